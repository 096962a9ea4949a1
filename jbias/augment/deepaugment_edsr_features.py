"""DeepAugment with the super-resolution network: its damaged activations, by image.

One of four options before the body of residual blocks, one of five inside it, drawn for
every image. They fit the places `before` and `body` of jbias.models.edsr.apply.

As in the released code, unless asked otherwise: "swapping" two channels copies the
second over the first, and "skipping layers" applies the last layer that is not skipped
to the body's input, nothing else.

Source, reference code and deviations: jbias.augment.deepaugment.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jbias.augment import deepaugment

BEFORE = ("swap", "zero", "negate", "nothing")
INSIDE = ("negate", "rectify", "flip", "skip", "nothing")
_CHANNELS, _BLOCKS, _CUT = 64, 16, 5  # Of the published network; the cut after block 4.
_SKIPPED = 3
_NEVER_SKIPPED = 2  # The first so many layers.


def before(
    x: Float[Array, "b h w c"],
    keys: PRNGKeyArray,
    option: str | None = None,
    *,
    true_swaps: bool = False,
) -> Float[Array, "b h w c"]:
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
    layers: Sequence[Callable],
    x: Float[Array, "b h w c"],
    keys: PRNGKeyArray,
    option: str | None = None,
    *,
    true_skips: bool = False,
) -> Float[Array, "b h w c"]:
    """Runs the body's layers and damages what passes between them.

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
    count = deepaugment.share(5, channels, _CHANNELS)
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
