"""DeepAugment with the compressive autoencoder: its damaged weights and codes.

One of eight options damages the weights, one of nine the code of each image. As in the
released code: option 0 reverses one layer although two are drawn (the second is reversed
twice), and a ninth option for weights is never drawn.

Source, reference code and deviations: jbias.augment.deepaugment.
"""

import functools
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jbias.augment import deepaugment

# The layers that may be damaged, by their place in the network: rows when published.
# d_up_conv_1.3 is transposed: its rows are input channels, fewer than its biases.
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
_MOST = tuple(_LAYERS)[:6]
_PERMUTED = 10  # Channels of the code.
_FLIPPED = 5


def draw(key: PRNGKeyArray) -> tuple[int, ...]:
    """Draws which option damages the weights."""
    return (int(deepaugment.generator(key, 0).integers(len(_OPTIONS))),)


def damage(
    weights: Mapping[str, np.ndarray],
    key: PRNGKeyArray,
    options: Sequence[int] | None = None,
) -> deepaugment.Weights:
    """Returns damaged weights, by the options that `draw` draws unless they are given."""
    chosen = draw(key) if options is None else options
    return deepaugment.apply(_OPTIONS, chosen, weights, key)


def _layer(rng: np.random.Generator, names: Sequence[str] = _MOST) -> tuple[str, str]:
    name = names[rng.integers(len(names))]
    return f"{name}.weight", f"{name}.bias"


def _rows(weights, name: str, count: int, rng: np.random.Generator) -> np.ndarray:
    rows = len(weights[name])
    published = _LAYERS[name.removesuffix(".weight")]
    return rng.integers(rows, size=deepaugment.share(count, rows, published))


def _reverse(weights, rng):
    for name in _layer(rng, tuple(_LAYERS)[3:]):
        weights[name] = weights[name][::-1].copy()


def _change_rows(weights, rng, count, change, names=_MOST):
    both = _layer(rng, names)
    rows = _rows(weights, both[0], count, rng)
    for name in both:
        weights[name] = deepaugment.with_rows(weights[name], rows, change)


def _negate(weights, rng):
    _change_rows(weights, rng, 12, np.negative)


def _zero(weights, rng):
    _change_rows(weights, rng, 25, np.zeros_like)


def _gelu(weights, rng):
    names = _MOST[2:]
    _change_rows(weights, rng, 25, lambda row: -deepaugment.gelu(row), names)


def _amplify(weights, rng):
    for name, _ in (_layer(rng), _layer(rng)):  # May be one layer, twice.
        weights[name] = deepaugment.amplified(weights[name], 8, rng)


def _mask(weights, rng):
    name, _ = _layer(rng)
    low = 0 if rng.random() < 0.5 else -1
    weights[name] = deepaugment.masked(weights[name], low, rng)


def _rotate(weights, rng):
    name, _ = _layer(rng)
    weights[name] = deepaugment.rotated(weights[name], rng)


def _negate_some(weights, rng):
    name, _ = _layer(rng)
    rows = len(weights[name])
    rows = np.unique(rng.integers(rows, size=rows // 5))
    weights[name] = deepaugment.with_rows(weights[name], rows, np.negative)


_OPTIONS = (
    _reverse,
    _negate,
    _zero,
    _gelu,
    _amplify,
    _mask,
    _rotate,
    _negate_some,
)


def latent(
    x: Float[Array, "b h w c"], keys: PRNGKeyArray, option: int | None = None
) -> tuple[Float[Array, "b h w c"], Float[Array, "b h w c"]]:
    """Damages the code of each image, before its bits are drawn.

    keys: (b), one for each image. `option` is drawn for each unless it is given.
    Returns the code and what its bits, 0 or 1, are to be multiplied by.
    Every option is computed for every image; together they cost a few per cent of the
    network, since the code is small.
    """
    which, how, gain = jnp.moveaxis(
        jax.vmap(lambda key: jax.random.split(key, 3))(keys), 1, 0
    )
    if option is None:
        chosen = jax.vmap(draw_latent)(which)
    else:
        chosen = jnp.full(len(keys), option)
    return jax.vmap(_code)(x, chosen, how), jax.vmap(_gain)(x, chosen, gain)


def draw_latent(key: PRNGKeyArray) -> Int[Array, ""]:
    """Draws which option damages the code of an image."""
    return jax.random.randint(key, (), 0, 9)


def _gain(x: Float[Array, "h w c"], option: Int[Array, ""], key: PRNGKeyArray) -> Array:
    scalar, each = jax.random.split(key)
    found = 3 + 4 * jax.random.uniform(scalar) * jax.random.uniform(each, x.shape)
    return jnp.where(option == 0, found, 1)


def _code(x: Float[Array, "h w c"], option: Int[Array, ""], key: PRNGKeyArray) -> Array:
    channels = x.shape[-1]
    moved = jax.lax.switch(
        jnp.where((1 <= option) & (option <= 5), option, 0),
        (lambda x, key: x, _drop, _invert, _permute, _flip_some, _flip_all),
        x,
        key,
    )
    kernels = [functools.partial(f, channels) for f in (_noisy, _doubled, _shifted)]
    kernel = jax.lax.switch(jnp.maximum(option - 6, 0), kernels, key)
    return jnp.where(option >= 6, _filtered(x, kernel), moved)


def _drop(x, key):
    return jnp.where(jax.random.bernoulli(key, 0.2, (*x.shape[:2], 1)), 0, x)


def _invert(x, key):
    return jnp.where(jax.random.bernoulli(key, 0.1, (*x.shape[:2], 1)), -x, x)


def _permute(x, key):
    first = jax.random.permutation(key, _PERMUTED)
    return x[..., jnp.concatenate([first, jnp.arange(_PERMUTED, x.shape[-1])])]


def _flip_all(x, key):
    """Flips along two of (batch, height, width); the batch is one image, always."""
    ways = (lambda x: x[::-1], lambda x: x[:, ::-1], lambda x: x[::-1, ::-1])
    return jax.lax.switch(jax.random.randint(key, (), 0, 3), ways, x)


def _flip_some(x, key):
    way, which = jax.random.split(key)
    drawn = jax.random.randint(which, (_FLIPPED,), 0, x.shape[-1])
    times = jnp.zeros(x.shape[-1], jnp.int32).at[drawn].add(1)
    return jnp.where((times % 2 == 1)[None, None, :], _flip_all(x, way), x)


def _identity(channels: int) -> Float[Array, "3 3 c c"]:
    """A kernel that changes nothing, [row, column, from, to]."""
    return jnp.zeros((3, 3, channels, channels)).at[1, 1].set(jnp.eye(channels))


def _noisy(channels, key):
    kernel = _identity(channels)
    return kernel + jax.random.uniform(key, kernel.shape, minval=-0.1, maxval=0.1)


def _doubled(channels, key):
    coin, source, offset = jax.random.split(key, 3)
    extra = jax.random.bernoulli(coin, 0.5, (channels,))
    source = jax.random.randint(source, (channels,), 0, channels)
    row, column = jax.random.randint(offset, (2, channels), 0, 3)
    target = jnp.arange(channels)
    # Not the sum: a tap that is there already stays 1.
    return (
        _identity(channels)
        .at[row, column, source, target]
        .max(extra.astype(jnp.float32))
    )


def _shifted(channels, key):
    coin, offset = jax.random.split(key)
    new = jax.random.bernoulli(coin, 0.2, (channels,))
    drawn = jax.random.randint(offset, (channels + 1,), 0, 9)  # The last one begins.
    place = jnp.arange(channels)
    latest = jax.lax.cummax(jnp.where(new, place, -1))
    row, column = jnp.divmod(drawn[latest], 3)
    return jnp.zeros((3, 3, channels, channels)).at[row, column, place, place].set(1)


def _filtered(x: Float[Array, "h w c"], kernel: Float[Array, "3 3 c c"]) -> Array:
    """Correlates with a kernel of the image's own, as products of matrices."""
    h, w, c = x.shape
    padded = jnp.pad(x, ((1, 1), (1, 1), (0, 0)))
    taps = [padded[i : i + h, j : j + w] for i in range(3) for j in range(3)]
    return jnp.concatenate(taps, -1) @ kernel.reshape(9 * c, c)
