"""DeepAugment with EDSR, the super-resolution network: damaged weights and features.

Weights: three of seventeen options, drawn with replacement, are applied one after the
other. `conv0` and `conv2` are a block's two convolutions; biases change only where stated.

Activations: for every image one of four options before the body of residual blocks and one
of five inside it. They plug into `before` and `body` of jbias.models.edsr.apply. As in the
released code, unless asked otherwise: "swapping" two channels copies the second over the
first, and "skipping layers" applies only the last layer that is not skipped, to the body's
input.

Source and reference code: jbias.augment.deepaugment.
Deviation: networks of fewer than 16 blocks offer fewer places; otherwise as released.
"""

import functools
import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jbias.augment import deepaugment
from jbias.augment.deepaugment import Weight

partial = functools.partial
_PLUS = np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]], np.float32)
_SQUARE = np.array([[-1, -1, -1], [-1, 8, -1], [-1, -1, -1]], np.float32)
_THIRDS, _SECONDS, _FOURTHS = (0, 3, 6, 9), (1, 4, 7), (1, 5, 9)  # Blocks.


def _blocks(weights) -> int:
    return sum(name.endswith(".body.0.bias") for name in weights)


def _block_of(weights, places: Sequence[int], rng) -> int:
    places = [place for place in places if place < _blocks(weights)]
    return places[rng.integers(len(places))]


def _name(block: int, conv: int, kind: str = "weight") -> str:
    return f"body.{block}.body.{conv}.{kind}"


def _change(weights, rng, *, change, places=_THIRDS, convs=(0,), kinds=("weight",)):
    """Changes weights of one block, each by change(weight, rng)."""
    block = _block_of(weights, places, rng)
    for name in (_name(block, conv, kind) for conv in convs for kind in kinds):
        weights[name] = change(weights[name], rng)


def _change_any(weights, rng, *, change, convs=(0,), times=5):
    """Changes one of these convolutions of any block but the last, so many times."""
    for _ in range(times):
        block = rng.integers(_blocks(weights) - 1)
        name = _name(block, rng.choice(convs) if len(convs) > 1 else convs[0])
        weights[name] = change(weights[name], rng)


def _mirror(weights, rng):
    block = _block_of(weights, _THIRDS, rng)
    weights[_name(block, 0)] = weights[_name(block, 0)][..., ::-1].copy()
    weights[_name(block, 2)] = -weights[_name(block, 2)]


def _shifted(x, rng):
    bank = np.zeros_like(x)
    for j in range(bank.shape[1]):
        row, column = rng.integers(3, size=2)
        bank[:, j, row, column] = rng.choice([-1, 1])
    return _filtered(x, bank)


def _blurred(x, rng):
    return _filtered(x, (2 * rng.random(x.shape) * rng.random() - 1) / 6)


def _smeared(x, rng):
    return _filtered(x, rng.dirichlet([0.1] * 9, x.shape[:2]).reshape(x.shape))


def _noisy(x, rng):
    return x + rng.uniform(-0.5, 0.5, x.shape).astype(np.float32)


def _rotated(x, rng):
    axes = (2, 3) if rng.random() < 0.5 else (0, 1)
    return deepaugment.rotated(x, rng, axes)


def _with_filters_negated(x, rng):
    count = deepaugment.scale_count(32, len(x), _CHANNELS)
    rows = np.unique(rng.integers(len(x), size=count))
    return deepaugment.with_rows(x, rows, np.negative)


def _largest_alone(x, rng):
    flat = x.reshape(*x.shape[:2], -1)
    largest = np.argmax(flat, -1, keepdims=True)
    return np.where(np.arange(flat.shape[-1]) == largest, flat, 0).reshape(x.shape)


def _filtered(weight: Weight, bank: Float[np.ndarray, "p i 3 3"]) -> Weight:
    """Correlates kernels, as if they were images of i channels, with a bank, pad 1."""
    height, width = weight.shape[2:]
    padded = np.pad(weight, ((0, 0), (0, 0), (1, 1), (1, 1)))
    found = 0
    for i, j in itertools.product(range(3), repeat=2):
        near = padded[:, :, i : i + height, j : j + width]
        found += np.einsum("oihw,pi->ophw", near, bank[:, :, i, j], optimize=True)
    return found.astype(np.float32)


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
_CHANNELS, _BLOCKS, _CUT = 64, 16, 5  # Of the published network; the cut after block 4.
_SKIPPED = 3
_NEVER_SKIPPED = 2  # The first so many layers.


def before(
    x: Map, keys: PRNGKeyArray, option: str | None = None, *, true_swaps: bool = False
) -> Map:
    """Damages what enters the body.

    swap: five times, two random channels (without `true_swaps`, a copy); zero: each
    element with chance 0.05; negate: each with chance 0.025.
    keys: (b), one for each image; `option` is drawn for each unless it is given.
    """

    def one(x, key):
        which, channel, element = jax.random.split(key, 3)
        chosen = draw_before(which) if option is None else BEFORE.index(option)
        order = _swaps(channel, x.shape[-1], true_swaps)
        x = jnp.where(chosen == 0, x[..., order], x)
        u = jax.random.uniform(element, x.shape)
        x = jnp.where((chosen == 1) & (u < 0.05), 0, x)
        return jnp.where((chosen == 2) & (u < 0.025), -x, x)

    return jax.vmap(one)(x, keys)


def body(
    layers, x: Map, keys: PRNGKeyArray, option=None, *, true_skips: bool = False
) -> Map:
    """Runs the body's layers, functions, and damages what passes between them.

    After five of the 16 blocks, negate: all features; rectify: by a ReLU (1/3) or a
    GELU (2/3); flip: channels and rows (1/3) or channels and columns (2/3).
    skip: up to three random layers after the second are left out (without
    `true_skips`, all but the last of the others are).
    Every option is computed for every image: four layers more than the network has,
    or none with `true_skips`.
    """
    two = jax.vmap(jax.random.split)(keys)
    which, how = two[:, 0], two[:, 1]
    if option is None:
        chosen = jax.vmap(draw_inside)(which)
    else:
        chosen = jnp.full(len(keys), INSIDE.index(option))
    left_out = jax.vmap(lambda key: _left_out(key, len(layers)))(how)
    left_out &= (chosen == INSIDE.index("skip"))[:, None]
    found = x
    for i, layer in enumerate(layers):
        if i == round((len(layers) - 1) * _CUT / _BLOCKS):
            found = jax.vmap(_at_the_cut)(found, chosen, how)
        after = layer(found)
        if true_skips and i >= _NEVER_SKIPPED:
            after = jnp.where(left_out[:, i, None, None, None], found, after)
        found = after
    return found if true_skips else _last_alone(layers, x, found, chosen, left_out)


def draw_before(key: PRNGKeyArray) -> Int[Array, ""]:
    """Draws an option of BEFORE, by its place."""
    return jax.random.randint(key, (), 0, len(BEFORE))


def draw_inside(key: PRNGKeyArray) -> Int[Array, ""]:
    """Draws an option of INSIDE, by its place."""
    return jax.random.randint(key, (), 0, len(INSIDE))


def _swaps(key: PRNGKeyArray, channels: int, true: bool) -> Int[Array, "c"]:
    order = jnp.arange(channels)
    count = deepaugment.scale_count(5, channels, _CHANNELS)
    for first, second in jax.random.randint(key, (count, 2), 0, channels):
        old = order
        order = order.at[first].set(old[second])
        if true:
            order = order.at[second].set(old[first])
    return order


def _at_the_cut(x, option: Int[Array, ""], key: PRNGKeyArray) -> Array:
    third = jax.random.uniform(key) < 1 / 3
    rectified = jnp.where(third, jax.nn.relu(x), jax.nn.gelu(x, approximate=False))
    flipped = jnp.where(third, x[::-1, :, ::-1], x[:, ::-1, ::-1])
    return jax.lax.select_n(option, -x, rectified, flipped, x, x)


def _left_out(key: PRNGKeyArray, layers: int) -> Array:
    drawn = jax.random.randint(key, (_SKIPPED,), _NEVER_SKIPPED, layers)
    return jnp.zeros(layers, bool).at[drawn].set(True)


def _last_alone(layers, x, found, option, left_out) -> Array:
    """Where layers are skipped, the last other one is applied to the body's input."""
    skips = option == INSIDE.index("skip")
    for i in range(len(layers) - 1 - _SKIPPED, len(layers)):
        later = left_out[:, i + 1 :].all(1)
        chosen = skips & later & ~left_out[:, i]
        found = jnp.where(chosen[:, None, None, None], layers[i](x), found)
    return found
