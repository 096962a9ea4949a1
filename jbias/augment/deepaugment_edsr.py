"""Functions that damage the weights and features of DeepAugment's super-resolution network EDSR.

Weights: three of seventeen options, drawn with replacement, are applied one after the
other. `conv0` and `conv2` are a block's two convolutions; biases change only where stated.

Activations: for every image, one of four options is applied before the body of residual
blocks and one of five inside it; pass `before` and `body` to jbias.models.edsr.apply. As in
the released code, by default "swapping" two channels copies the second over the first, and
"skipping layers" applies only the last layer that is not skipped, to the body's input.

Source and reference code: jbias.augment.deepaugment.
Deviation: in networks of fewer than 16 blocks, fewer blocks can be damaged; otherwise as
released.
"""

import functools
import itertools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jbias.augment import deepaugment
from jbias.augment.deepaugment import Weight, Weights

Rng = np.random.Generator
partial = functools.partial
_PLUS = np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]], np.float32)
_SQUARE = np.array([[-1, -1, -1], [-1, 8, -1], [-1, -1, -1]], np.float32)
_THIRDS, _SECONDS, _FOURTHS = (0, 3, 6, 9), (1, 4, 7), (1, 5, 9)  # Blocks.


def _num_blocks(weights: Weights) -> int:
    """Return the number of residual blocks of the network."""
    return sum(name.endswith(".body.0.bias") for name in weights)


def _draw_block(weights: Weights, places: Sequence[int], rng: Rng) -> int:
    """Return a random entry of `places` that is the index of a block of the network."""
    places = [place for place in places if place < _num_blocks(weights)]
    return places[rng.integers(len(places))]


def _name(block: int, conv: int, kind: str = "weight") -> str:
    """Return the name of the "weight" or the "bias" of convolution 0 or 2 of a block."""
    return f"body.{block}.body.{conv}.{kind}"


def _change(
    weights: Weights,
    rng: Rng,
    *,
    change: Callable,
    places: Sequence[int] = _THIRDS,
    convs: Sequence[int] = (0,),
    kinds: Sequence[str] = ("weight",),
) -> None:
    """Replace weights of a random block by change(weight, rng), in place.

    places: indices of the blocks to draw from. convs: convolutions of the block that change, 0
    and 2. kinds: parameters that change, "weight" and "bias".
    """
    block = _draw_block(weights, places, rng)
    for name in (_name(block, conv, kind) for conv in convs for kind in kinds):
        weights[name] = change(weights[name], rng)


def _change_any(
    weights: Weights,
    rng: Rng,
    *,
    change: Callable,
    convs: Sequence[int] = (0,),
    times: int = 5,
) -> None:
    """Replace the weight of a random convolution by change(weight, rng), `times` times.

    The mapping is changed in place. Each time, a new convolution is drawn: one of
    `convs` (0, 2) in any block except the last.
    """
    for _ in range(times):
        block = rng.integers(_num_blocks(weights) - 1)
        name = _name(block, rng.choice(convs) if len(convs) > 1 else convs[0])
        weights[name] = change(weights[name], rng)


def _mirror(weights: Weights, rng: Rng) -> None:
    """Mirror conv0's kernels left to right and negate conv2's kernels in a random block.

    The weights are changed in place.
    """
    block = _draw_block(weights, _THIRDS, rng)
    weights[_name(block, 0)] = weights[_name(block, 0)][..., ::-1].copy()
    weights[_name(block, 2)] = -weights[_name(block, 2)]


def _shifted(x: Weight, rng: Rng) -> Weight:
    """Return x with every input channel replaced by the same sum of all input channels.

    Before the sum, each channel gets a random sign and is shifted by up to one pixel per axis.
    """
    bank = np.zeros_like(x)
    for j in range(bank.shape[1]):
        row, column = rng.integers(3, size=2)
        bank[:, j, row, column] = rng.choice([-1, 1])
    return _filtered(x, bank)


def _blurred(x: Weight, rng: Rng) -> Weight:
    """Return the kernels x, cross-correlated with random kernels.

    The weights of the random kernels are U(-1, 2 u - 1) / 6, with a single u ~ U(0, 1).
    """
    return _filtered(x, (2 * rng.random(x.shape) * rng.random() - 1) / 6)


def _smeared(x: Weight, rng: Rng) -> Weight:
    """Return the kernels x, cross-correlated with random kernels of weights >= 0 and sum 1.

    The nine weights of a random kernel are drawn from Dirichlet(0.1, ..., 0.1).
    """
    return _filtered(x, rng.dirichlet([0.1] * 9, x.shape[:2]).reshape(x.shape))


def _noisy(x: Weight, rng: Rng) -> Weight:
    """Return x plus U(-0.5, 0.5) noise."""
    return x + rng.uniform(-0.5, 0.5, x.shape).astype(np.float32)


def _rotated(x: Weight, rng: Rng) -> Weight:
    """Return x rotated in the plane of pixels or of channels, with equal probabilities."""
    axes = (2, 3) if rng.random() < 0.5 else (0, 1)
    return deepaugment.rotated(x, rng, axes)


def _with_filters_negated(x: Weight, rng: Rng) -> Weight:
    """Return x with random rows negated: up to 32 of 64, drawn with replacement."""
    count = deepaugment.scale_count(32, len(x), _CHANNELS)
    rows = np.unique(rng.integers(len(x), size=count))
    return deepaugment.with_rows(x, rows, np.negative)


def _largest_alone(x: Weight, rng: Rng) -> Weight:
    """Return x with only the largest element of each kernel; other elements become 0."""
    flat = x.reshape(*x.shape[:2], -1)
    largest = np.argmax(flat, -1, keepdims=True)
    return np.where(np.arange(flat.shape[-1]) == largest, flat, 0).reshape(x.shape)


def _filtered(weight: Weight, bank: Float[np.ndarray, "p i 3 3"]) -> Weight:
    """Return the kernels `weight` (o i h w), cross-correlated with the kernels `bank`.

    `weight` is treated as o images of i channels; the result is (o p h w).
    """
    height, width = weight.shape[2:]
    padded = np.pad(weight, ((0, 0), (0, 0), (1, 1), (1, 1)))
    total = 0
    for i, j in itertools.product(range(3), repeat=2):
        shifted = padded[:, :, i : i + height, j : j + width]
        total += np.einsum("oihw,pi->ophw", shifted, bank[:, :, i, j], optimize=True)
    return total.astype(np.float32)


_BOTH = ("weight", "bias")
_OPTIONS = (
    partial(_change, convs=(0, 2), kinds=_BOTH, change=lambda x, rng: x[::-1].copy()),
    partial(_change, places=_SECONDS, kinds=_BOTH, change=lambda x, rng: -x),
    partial(_change, kinds=_BOTH, change=lambda x, rng: np.zeros_like(x)),
    partial(_change, convs=(0, 2), change=lambda x, rng: -deepaugment.gelu(x)),
    partial(_change, change=lambda x, rng: x * _PLUS),
    partial(_change, change=lambda x, rng: x * _SQUARE),
    partial(_change, convs=(2,), change=partial(deepaugment.amplified, most=4)),
    _mirror,
    partial(_change, places=_FOURTHS, change=_shifted),
    partial(_change, change=_blurred),
    partial(_change, places=_FOURTHS, convs=(2,), change=_smeared),
    partial(_change_any, convs=(2,), times=1, change=_noisy),
    partial(_change_any, convs=(0, 2), change=_rotated),
    partial(_change_any, change=partial(deepaugment.masked, low=-1)),
    partial(_change_any, change=partial(deepaugment.masked, low=0)),
    partial(_change_any, change=_with_filters_negated),
    partial(_change_any, convs=(0, 2), change=_largest_alone),
)
draw, damage = deepaugment.make(_OPTIONS, 3)

Map = Float[Array, "b h w c"]
BEFORE = ("swap", "zero", "negate", "nothing")
INSIDE = ("negate", "rectify", "flip", "skip", "nothing")
# Of the published network; activations are damaged before block 5.
_CHANNELS, _BLOCKS, _CUT = 64, 16, 5
_NUM_SKIPPED = 3
_NEVER_SKIPPED = 2  # Number of layers at the start that are never skipped.


def before(
    x: Map, keys: PRNGKeyArray, option: str | None = None, *, true_swaps: bool = False
) -> Map:
    """Return x, the input of the body of residual blocks, after damage to each image.

    keys: (b), one for each image.
    option: one of BEFORE, for all images; None: drawn for each image. "swap": swaps two
      random channels, five times for 64 channels. "zero": sets elements to 0 with
      probability 0.05. "negate": negates elements with probability 0.025. "nothing": no
      damage.
    true_swaps: True: swap the two channels; False, as released: copy the second over the
      first.
    """

    def damage_input(x, key):
        """Return x after one option of BEFORE, or unchanged for "nothing".

        x: features (h w c) of one image. key: random key of the image. option: an argument of
        `before`.
        """
        k_option, k_channel, k_element = jax.random.split(key, 3)
        chosen = draw_before(k_option) if option is None else BEFORE.index(option)
        order = _draw_swaps(k_channel, x.shape[-1], true_swaps)
        x = jnp.where(chosen == 0, x[..., order], x)
        u = jax.random.uniform(k_element, x.shape)
        x = jnp.where((chosen == 1) & (u < 0.05), 0, x)
        return jnp.where((chosen == 2) & (u < 0.025), -x, x)

    return jax.vmap(damage_input)(x, keys)


def body(
    layers: Sequence[Callable[[Map], Map]],
    x: Map,
    keys: PRNGKeyArray,
    option: str | None = None,
    *,
    true_skips: bool = False,
) -> Map:
    """Return the output of the body of residual blocks, with damaged features inside it.

    layers: the blocks, applied one after the other. x: input of the first layer.
    keys: (b), one for each image.
    option: one of INSIDE, for all images; None: drawn for each image. "negate", "rectify"
      and "flip" act on all features after five of 16 layers, or the same share of fewer
      layers: "negate" negates them; "rectify" applies a ReLU (probability 1/3) or a GELU
      (2/3); "flip" reverses channels and rows (1/3) or channels and columns (2/3). "skip": see
      true_skips. "nothing": no damage.
    true_skips: "skip" draws up to three random layers after the second. True: these are
      left out. False, as released: only the last layer that was not drawn is applied, to x.

    Every option is computed for every image, which costs four additional layers, or none
    with `true_skips`.
    """
    split_keys = jax.vmap(jax.random.split)(keys)
    k_option, k_damage = split_keys[:, 0], split_keys[:, 1]
    if option is None:
        chosen = jax.vmap(draw_inside)(k_option)
    else:
        chosen = jnp.full(len(keys), INSIDE.index(option))
    is_skipped = jax.vmap(lambda key: _draw_skipped(key, len(layers)))(k_damage)
    is_skipped &= (chosen == INSIDE.index("skip"))[:, None]
    y = x
    for i, layer in enumerate(layers):
        if i == round((len(layers) - 1) * _CUT / _BLOCKS):
            y = jax.vmap(_damage_features)(y, chosen, k_damage)
        new = layer(y)
        if true_skips and i >= _NEVER_SKIPPED:
            new = jnp.where(is_skipped[:, i, None, None, None], y, new)
        y = new
    if true_skips:
        return y
    return _apply_last(layers, x, y=y, option=chosen, is_skipped=is_skipped)


def draw_before(key: PRNGKeyArray) -> Int[Array, ""]:
    """Return the index of a random option of BEFORE."""
    return jax.random.randint(key, (), 0, len(BEFORE))


def draw_inside(key: PRNGKeyArray) -> Int[Array, ""]:
    """Return the index of a random option of INSIDE."""
    return jax.random.randint(key, (), 0, len(INSIDE))


def _draw_swaps(key: PRNGKeyArray, channels: int, true_swaps: bool) -> Int[Array, "c"]:
    """Return, for each channel, the index of the channel that replaces it after random swaps.

    There are five swaps for 64 channels, and fewer in proportion for fewer channels.
    true_swaps: False: copy the second of two channels over the first.
    """
    order = jnp.arange(channels)
    count = deepaugment.scale_count(5, channels, _CHANNELS)
    for first, second in jax.random.randint(key, (count, 2), 0, channels):
        old = order
        order = order.at[first].set(old[second])
        if true_swaps:
            order = order.at[second].set(old[first])
    return order


def _damage_features(
    x: Float[Array, "h w c"], option: Int[Array, ""], key: PRNGKeyArray
) -> Float[Array, "h w c"]:
    """Return an image's features after INSIDE[option]; unchanged for "skip" and "nothing"."""
    third = jax.random.uniform(key) < 1 / 3
    rectified = jnp.where(third, jax.nn.relu(x), jax.nn.gelu(x, approximate=False))
    flipped = jnp.where(third, x[::-1, :, ::-1], x[:, ::-1, ::-1])
    return jax.lax.select_n(option, -x, rectified, flipped, x, x)


def _draw_skipped(key: PRNGKeyArray, num_layers: int) -> Bool[Array, "layers"]:
    """Return a mask of one to three random layers to skip, never one of the first two."""
    drawn = jax.random.randint(key, (_NUM_SKIPPED,), _NEVER_SKIPPED, num_layers)
    return jnp.zeros(num_layers, bool).at[drawn].set(True)


def _apply_last(
    layers: Sequence[Callable[[Map], Map]],
    x: Map,
    *,
    y: Map,
    option: Int[Array, "b"],
    is_skipped: Bool[Array, "b layers"],
) -> Map:
    """Return y, replaced for images with "skip" by the last layer not skipped, applied to x.

    x, y: input and output of the body. option: index in INSIDE. is_skipped: see
    `_draw_skipped`.
    """
    has_skips = option == INSIDE.index("skip")
    for i in range(len(layers) - 1 - _NUM_SKIPPED, len(layers)):
        all_later_skipped = is_skipped[:, i + 1 :].all(1)
        is_last = has_skips & all_later_skipped & ~is_skipped[:, i]
        y = jnp.where(is_last[:, None, None, None], layers[i](x), y)
    return y
