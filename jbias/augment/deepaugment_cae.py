"""Functions that damage the weights and codes of DeepAugment's compressive autoencoder.

One of eight options damages the weights, and one of nine options the code of each image. As in
the released code, option 0 reverses only one layer (the code draws two layers and reverses the
second layer twice), and a ninth option for weights is never drawn.

Source, reference code and deviations: jbias.augment.deepaugment.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jbias.augment import deepaugment
from jbias.augment.deepaugment import Weight, Weights

Rng = np.random.Generator
Code = Float[Array, "h w c"]  # Of one image.

_BLOCKS = ("d_block_1.1", "d_block_1.4", "d_block_2.1", "d_block_2.4", "d_block_3.1")
# The layers that may be damaged, in the order of the network, and their published number
# of rows. d_up_conv_1.3 is transposed: its rows are input channels, fewer than its biases.
_LAYERS = {
    "e_conv_3.0": 32,
    "d_up_conv_1.0": 64,
    "d_up_conv_1.3": 64,
    "d_block_1.1": 128,
    "d_block_1.4": 128,
    "d_block_2.1": 128,
    "d_block_2.4": 128,
    "d_block_3.1": 128,
}
_FIRST_SIX = tuple(_LAYERS)[:6]
_NUM_PERMUTED = 10  # Permuted channels of the code.
_NUM_FLIPPED = 5  # Drawn channels of the code, which are flipped.


def _draw_layer(rng: Rng, names: Sequence[str] = _FIRST_SIX) -> tuple[str, str]:
    """Return the names of the weight and the bias of a layer drawn from `names`."""
    name = names[rng.integers(len(names))]
    return f"{name}.weight", f"{name}.bias"


def _reverse(weights: Weights, rng: Rng) -> None:
    """Reverse the order of the rows of a random layer's weight and bias, in place."""
    for name in _draw_layer(rng, _BLOCKS):
        weights[name] = weights[name][::-1].copy()


def _change_rows(
    weights: Weights,
    rng: Rng,
    *,
    count: int,
    change: Callable,
    names: Sequence[str] = _FIRST_SIX,
) -> None:
    """Replace random rows of a random layer's weight and bias by change(row), in place.

    Rows are drawn with replacement; a row that is drawn twice is changed twice.
    count: number of draws in the published network; smaller networks have fewer draws, in
    proportion to their rows.
    names: layers to draw from.
    """
    weight, bias = _draw_layer(rng, names)
    num_rows, published = len(weights[weight]), _LAYERS[weight.removesuffix(".weight")]
    count = deepaugment.scale_count(count, num_rows, published)
    rows = rng.integers(num_rows, size=count)
    for name in (weight, bias):
        weights[name] = deepaugment.with_rows(weights[name], rows, change)


def _amplify(weights: Weights, rng: Rng) -> None:
    """Amplify the weights of two random layers, which may be the same, in place.

    See `deepaugment.amplified`, with most=8.
    """
    for name, _ in (_draw_layer(rng), _draw_layer(rng)):
        weights[name] = deepaugment.amplified(weights[name], rng, 8)


def _change(weights: Weights, rng: Rng, *, change: Callable) -> None:
    """Replace the weight of a random layer by change(weight, rng), in place."""
    name, _ = _draw_layer(rng)
    weights[name] = change(weights[name], rng)


def _masked(x: Weight, rng: Rng) -> Weight:
    """Return x with a random half of its elements set to 0, or negated.

    Each element is changed with probability 1/2; the two kinds of change are equally likely.
    """
    return deepaugment.masked(x, rng, 0 if rng.random() < 0.5 else -1)


def _fifth_negated(x: Weight, rng: Rng) -> Weight:
    """Return x with random rows negated: up to a fifth, drawn with replacement."""
    rows = np.unique(rng.integers(len(x), size=max(1, len(x) // 5)))
    return deepaugment.with_rows(x, rows, np.negative)


def _negative_gelu(x: Weight) -> Weight:
    """Return -gelu(x)."""
    return -deepaugment.gelu(x)


partial = functools.partial
_OPTIONS = (
    _reverse,
    partial(_change_rows, count=12, change=np.negative),
    partial(_change_rows, count=25, change=np.zeros_like),
    partial(_change_rows, count=25, change=_negative_gelu, names=_FIRST_SIX[2:]),
    _amplify,
    partial(_change, change=_masked),
    partial(_change, change=deepaugment.rotated),
    partial(_change, change=_fifth_negated),
)
draw, damage = deepaugment.make(_OPTIONS, 1)


class _Numbers(NamedTuple):
    """The U(0, 1) numbers of an image: one per kernel weight and one per element of its code.

    All options use the same numbers, since only one option acts on an image.
    """

    taps: Float[Array, "c c 3 3"]
    element: Code

    def integers(self, stream: int, *, limit: int, count: int) -> Int[Array, "count"]:
        """Return `count` random whole numbers from 0 to limit - 1.

        stream: index, from 0, of a sequence of random numbers. Sequences are independent for
        counts of at most 64.
        """
        start = stream * 64
        return (self.taps.reshape(-1)[start : start + count] * limit).astype(int)


def latent(
    x: Float[Array, "b h w c"], keys: PRNGKeyArray, option: int | None = None
) -> tuple[Float[Array, "b h w c"], Float[Array, "b h w c"]]:
    """Return the damaged code of each image, and the gain by which to multiply its bits.

    x: codes of images, before their bits, 0 or 1, are drawn.
    keys: (b), one for each image.
    option: 0 to 8, for all images; None: drawn for each image. Option 0 does not change the
      code and has a random gain of 3 to 7 per element. Options 1 to 8 have the gain 1; see
      `_apply_option`.

    Every option is computed for every image; since the code is small, this costs a few per
    cent of the network.
    """

    def damage_code(x, key):
        """Return an image's damaged code (h w c), and the gains of its bits (h w c).

        x: code (h w c) of one image. key: random key of the image. option: an argument of
        `latent`.
        """
        k_option, k_taps, k_element = jax.random.split(key, 3)
        chosen = draw_latent(k_option) if option is None else jnp.asarray(option)
        channels = x.shape[-1]
        taps = jax.random.uniform(k_taps, (channels, channels, 3, 3))
        numbers = _Numbers(taps, jax.random.uniform(k_element, x.shape))
        gain = 3 + 4 * numbers.taps[0, 0, 0, 0] * numbers.element
        return _apply_option(x, chosen, numbers), jnp.where(chosen == 0, gain, 1)

    return jax.vmap(damage_code)(x, keys)


def draw_latent(key: PRNGKeyArray) -> Int[Array, ""]:
    """Return a random option for the code of an image, 0 to 8."""
    return jax.random.randint(key, (), 0, 9)


def _apply_option(x: Code, option: Int[Array, ""], numbers: _Numbers) -> Code:
    """Return an image's code after option 0 to 8.

    0: unchanged. 1: set a fifth of the positions to 0. 2: negate a tenth of the positions.
    3: permute the first ten channels. 4: flip five channels. 5: flip all channels.
    6, 7, 8: correlate with the noisy, the doubling or the shifting kernel.
    numbers: the image's random numbers, which determine the damage.
    """
    position = numbers.element[..., :1]
    all_flipped = _flip(x, numbers)
    first_six = (
        x,
        jnp.where(position < 0.2, 0, x),
        jnp.where(position < 0.1, -x, x),
        _permute_channels(x, numbers),
        jnp.where(_is_flipped(x.shape[-1], numbers), all_flipped, x),
        all_flipped,
    )
    elementwise = jax.lax.select_n(jnp.where(option < 6, option, 0), *first_six)
    kernels = (
        _noisy_kernel(numbers),
        _doubling_kernel(numbers),
        _shifting_kernel(numbers),
    )
    kernel = jax.lax.select_n(jnp.maximum(option - 6, 0), *kernels)
    return jnp.where(option >= 6, _correlate(x, kernel), elementwise)


def _permute_channels(x: Code, numbers: _Numbers) -> Code:
    """Return the code with its first ten channels randomly permuted."""
    first = jnp.argsort(numbers.taps.reshape(-1)[:_NUM_PERMUTED])
    return x[..., jnp.concatenate([first, jnp.arange(_NUM_PERMUTED, x.shape[-1])])]


def _flip(x: Code, numbers: _Numbers) -> Code:
    """Return the code flipped along height, width or both axes, with equal probabilities.

    The released code flips two random axes of (batch, height, width). Here the batch is a
    single image, so that a flip along the batch does nothing.
    """
    (axes,) = numbers.integers(0, limit=3, count=1)
    return jax.lax.select_n(axes, x[::-1], x[:, ::-1], x[::-1, ::-1])


def _is_flipped(channels: int, numbers: _Numbers) -> Bool[Array, "1 1 c"]:
    """Return a mask of the channels that five random draws select an odd number of times."""
    times = jnp.zeros(channels, int)
    drawn = numbers.integers(1, limit=channels, count=_NUM_FLIPPED)
    times = times.at[drawn].add(1)
    return (times % 2 == 1)[None, None, :]


def _identity(channels: int) -> Float[Array, "c c 3 3"]:
    """Return the 3 x 3 kernel that changes nothing, with axes (output, input, row, column)."""
    return jnp.zeros((channels, channels, 3, 3)).at[:, :, 1, 1].set(jnp.eye(channels))


def _noisy_kernel(numbers: _Numbers) -> Float[Array, "c c 3 3"]:
    """Return the identity kernel plus U(-0.1, 0.1) noise."""
    return _identity(len(numbers.taps)) + 0.2 * (numbers.taps - 0.5)


def _doubling_kernel(numbers: _Numbers) -> Float[Array, "c c 3 3"]:
    """Return a kernel that adds a random channel to each channel with probability 1/2.

    The added channel is shifted by up to one pixel. If the draw hits the channel itself
    without a shift, the channel does not change.
    """
    channels = len(numbers.taps)
    extra = numbers.integers(0, limit=2, count=channels).astype(jnp.float32)
    source = numbers.integers(1, limit=channels, count=channels)
    row, column = (numbers.integers(i, limit=3, count=channels) for i in (2, 3))
    return _identity(channels).at[jnp.arange(channels), source, row, column].max(extra)


def _shifting_kernel(numbers: _Numbers) -> Float[Array, "c c 3 3"]:
    """Return a kernel that shifts channels by up to one pixel.

    Consecutive channels have the same offset until a new offset is drawn, with probability
    0.2 before each channel.
    """
    channels = len(numbers.taps)
    channel = jnp.arange(channels)
    is_renewed = numbers.integers(0, limit=5, count=channels) == 0
    # The last number is the offset before the first renewal.
    drawn = numbers.integers(1, limit=9, count=channels + 1)
    latest = jax.lax.cummax(jnp.where(is_renewed, channel, -1))
    row, column = jnp.divmod(drawn[latest], 3)
    empty = jnp.zeros((channels, channels, 3, 3))
    return empty.at[channel, channel, row, column].set(1)


def _correlate(x: Code, kernel: Float[Array, "c c 3 3"]) -> Code:
    """Return the code cross-correlated with a kernel, at the same size, zeros outside.

    kernel: [to, from, row, column].
    """
    h, w, c = x.shape
    padded = jnp.pad(x, ((1, 1), (1, 1), (0, 0)))
    taps = [padded[i : i + h, j : j + w] for i in range(3) for j in range(3)]
    return jnp.concatenate(taps, -1) @ kernel.transpose(2, 3, 1, 0).reshape(9 * c, c)
