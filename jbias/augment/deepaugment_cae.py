"""DeepAugment with the compressive autoencoder: its damaged weights and codes.

One of eight options damages the weights, one of nine the code of each image. As in the
released code: option 0 reverses one layer although two are drawn (the second is reversed
twice), and a ninth option for weights is never drawn.

Source, reference code and deviations: jbias.augment.deepaugment.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jbias.augment import deepaugment

Code = Float[Array, "h w c"]  # Of one image.

# The layers that may be damaged, by their place in the network: rows when published.
# d_up_conv_1.3 is transposed: its rows are input channels, fewer than its biases.
_BLOCKS = ("d_block_1.1", "d_block_1.4", "d_block_2.1", "d_block_2.4", "d_block_3.1")
_LAYERS = {"e_conv_3.0": 32, "d_up_conv_1.0": 64, "d_up_conv_1.3": 64}
_LAYERS |= dict.fromkeys(_BLOCKS, 128)
_MOST = tuple(_LAYERS)[:6]
_PERMUTED = 10  # Channels of the code.
_FLIPPED = 5


def _layer(rng: np.random.Generator, names: Sequence[str] = _MOST) -> tuple[str, str]:
    name = names[rng.integers(len(names))]
    return f"{name}.weight", f"{name}.bias"


def _reverse(weights, rng):
    for name in _layer(rng, _BLOCKS):
        weights[name] = weights[name][::-1].copy()


def _change_rows(weights, rng, *, count, change, names=_MOST):
    both = _layer(rng, names)
    have, published = len(weights[both[0]]), _LAYERS[both[0].removesuffix(".weight")]
    rows = rng.integers(have, size=deepaugment.scale_count(count, have, published))
    for name in both:
        weights[name] = deepaugment.with_rows(weights[name], rows, change)


def _amplify(weights, rng):
    for name, _ in (_layer(rng), _layer(rng)):  # May be one layer, twice.
        weights[name] = deepaugment.amplified(weights[name], rng, 8)


def _change(weights, rng, *, change):
    name, _ = _layer(rng)
    weights[name] = change(weights[name], rng)


def _masked(x, rng):
    return deepaugment.masked(x, rng, 0 if rng.random() < 0.5 else -1)


def _fifth_negated(x, rng):
    rows = np.unique(rng.integers(len(x), size=max(1, len(x) // 5)))
    return deepaugment.with_rows(x, rows, np.negative)


def _negative_gelu(x):
    return -deepaugment.gelu(x)


partial = functools.partial
_OPTIONS = (
    _reverse,
    partial(_change_rows, count=12, change=np.negative),
    partial(_change_rows, count=25, change=np.zeros_like),
    partial(_change_rows, count=25, change=_negative_gelu, names=_MOST[2:]),
    _amplify,
    partial(_change, change=_masked),
    partial(_change, change=deepaugment.rotated),
    partial(_change, change=_fifth_negated),
)
draw, damage = deepaugment.make(_OPTIONS, 1)


class _Numbers(NamedTuple):
    """Random numbers, U(0, 1), of an image: one option acts, so all may share them."""

    taps: Float[Array, "c c 3 3"]
    element: Code

    def below(self, place: int, limit: int, count: int) -> Int[Array, "count"]:
        """Whole numbers below `limit`, others at each `place`."""
        start = place * 64
        return (self.taps.reshape(-1)[start : start + count] * limit).astype(int)


def latent(
    x: Float[Array, "b h w c"], keys: PRNGKeyArray, option: int | None = None
) -> tuple[Float[Array, "b h w c"], Float[Array, "b h w c"]]:
    """Damages the code of each image, before its bits are drawn.

    keys: (b), one for each image. `option` is drawn for each unless it is given.
    Returns the code and what its bits, 0 or 1, are to be multiplied by.
    Every option is computed for every image; together they cost a few per cent of the
    network, since the code is small.
    """

    def one(x, key):
        which, taps, element = jax.random.split(key, 3)
        chosen = draw_latent(which) if option is None else jnp.asarray(option)
        channels = x.shape[-1]
        kernels = jax.random.uniform(taps, (channels, channels, 3, 3))
        numbers = _Numbers(kernels, jax.random.uniform(element, x.shape))
        gain = 3 + 4 * numbers.taps[0, 0, 0, 0] * numbers.element
        return _code(x, chosen, numbers), jnp.where(chosen == 0, gain, 1)

    return jax.vmap(one)(x, keys)


def draw_latent(key: PRNGKeyArray) -> Int[Array, ""]:
    """Draws which option damages the code of an image."""
    return jax.random.randint(key, (), 0, 9)


def _code(x: Code, option: Int[Array, ""], numbers: _Numbers) -> Code:
    place = numbers.element[..., :1]
    all_flipped = _flipped(x, numbers)
    moved = (
        x,
        jnp.where(place < 0.2, 0, x),
        jnp.where(place < 0.1, -x, x),
        _permuted(x, numbers),
        jnp.where(_drawn_oddly(x.shape[-1], numbers), all_flipped, x),
        all_flipped,
    )
    moved = jax.lax.select_n(jnp.where(option < 6, option, 0), *moved)
    kernels = _noisy(numbers), _doubled(numbers), _shifted(numbers)
    kernel = jax.lax.select_n(jnp.maximum(option - 6, 0), *kernels)
    return jnp.where(option >= 6, _filtered(x, kernel), moved)


def _permuted(x: Array, numbers: _Numbers) -> Array:
    first = jnp.argsort(numbers.taps.reshape(-1)[:_PERMUTED])
    return x[..., jnp.concatenate([first, jnp.arange(_PERMUTED, x.shape[-1])])]


def _flipped(x: Array, numbers: _Numbers) -> Array:
    """Flips along two of (batch, height, width); the batch is one image, always."""
    (way,) = numbers.below(0, 3, 1)
    return jax.lax.select_n(way, x[::-1], x[:, ::-1], x[::-1, ::-1])


def _drawn_oddly(channels: int, numbers: _Numbers) -> Bool[Array, "1 1 c"]:
    """Which channels are drawn once, thrice ...: flipped twice is restored."""
    times = jnp.zeros(channels, int).at[numbers.below(1, channels, _FLIPPED)].add(1)
    return (times % 2 == 1)[None, None, :]


def _identity(channels: int) -> Float[Array, "c c 3 3"]:
    """A kernel that changes nothing, [to, from, row, column]."""
    return jnp.zeros((channels, channels, 3, 3)).at[:, :, 1, 1].set(jnp.eye(channels))


def _noisy(numbers: _Numbers) -> Float[Array, "c c 3 3"]:
    return _identity(len(numbers.taps)) + 0.2 * (numbers.taps - 0.5)


def _doubled(numbers: _Numbers) -> Float[Array, "c c 3 3"]:
    """Gives half of the channels a second one; a tap that is there already stays 1."""
    channels = len(numbers.taps)
    extra = numbers.below(0, 2, channels).astype(jnp.float32)
    source = numbers.below(1, channels, channels)
    row, column = (numbers.below(i, 3, channels) for i in (2, 3))
    return _identity(channels).at[jnp.arange(channels), source, row, column].max(extra)


def _shifted(numbers: _Numbers) -> Float[Array, "c c 3 3"]:
    """Moves every channel; an offset holds until it is drawn anew, with chance 0.2."""
    channels = len(numbers.taps)
    place = jnp.arange(channels)
    renewed = numbers.below(0, 5, channels) == 0
    drawn = numbers.below(1, 9, channels + 1)  # The last one begins.
    latest = jax.lax.cummax(jnp.where(renewed, place, -1))
    row, column = jnp.divmod(drawn[latest], 3)
    return jnp.zeros((channels, channels, 3, 3)).at[place, place, row, column].set(1)


def _filtered(x: Code, kernel: Float[Array, "c c 3 3"]) -> Array:
    """Correlates with a kernel of the image's own, as products of matrices."""
    h, w, c = x.shape
    padded = jnp.pad(x, ((1, 1), (1, 1), (0, 0)))
    taps = [padded[i : i + h, j : j + w] for i in range(3) for j in range(3)]
    return jnp.concatenate(taps, -1) @ kernel.transpose(2, 3, 1, 0).reshape(9 * c, c)
