"""How much of an image's patches is news, and what to drop of what is not.

Source: Shi et al., "Informative Dropout for Robust Representation Learning", ICML
2020, https://arxiv.org/abs/2008.04254.
Reference code: https://github.com/bfshi/InfoDrop at 0dc1b24.
"""

import types
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray


def shares(
    x: Float[Array, "b h w c"],
    key: PRNGKeyArray,
    *,
    kernel: int,
    stride: int,
    pooled: bool,
    temperature: float = 0.03,
    radius: int = 3,
    count: int = 9,
    bandwidth: float = 1.0,
    alone: bool = False,
) -> Float[Array, "b h2 w2"]:
    """Shares out the drops over the positions of a convolution's output; sums to 1.

    With D_k(u) the squared distance between the patch at u and the one displaced by
    offset k, and D their mean over batch, offsets and positions:

        q(u) = mean_k exp(-D_k(u) / (2 bandwidth^2 D)),  share(u) ~ q(u)^(1/temperature)

    -log q is the self-information of a patch. The `count` offsets are uniform within
    `radius` each way, with replacement, one draw for the whole batch. Where the
    convolution is `pooled` (3x3 maximum, stride 2), q is pooled by its minimum.
    x is the normalised image; the convolution pads by half its kernel, with zeros.
    `alone` takes D of each image by itself.
    """
    drawn = jax.random.randint(key, (count, 2), -radius, radius + 1)
    distances = _distances(x, drawn, radius, kernel=kernel, stride=stride)
    mean = jnp.mean(distances, (0, 2, 3) if alone else None, keepdims=True)
    scaled = jnp.where(mean > 0, distances / jnp.where(mean > 0, mean, 1), 0)
    log_q = jax.nn.logsumexp(-scaled / (2 * bandwidth**2), axis=0) - jnp.log(count)
    if pooled:
        window, strides = (1, 3, 3), (1, 2, 2)
        padding = ((0, 0), (1, 1), (1, 1))
        log_q = jax.lax.reduce_window(
            log_q, jnp.inf, jax.lax.min, window, strides, padding
        )
    flat = log_q.reshape(len(x), -1) / temperature
    return jax.lax.stop_gradient(jax.nn.softmax(flat).reshape(log_q.shape))


def _distances(
    x: Float[Array, "b h w c"], offsets: Array, radius: int, *, kernel: int, stride: int
) -> Float[Array, "k b h2 w2"]:
    """Squared distances of each patch to itself displaced, for each offset."""
    b, h, w, c = x.shape
    pad = kernel // 2
    wide = jnp.pad(x, ((0, 0), *((pad + radius, pad + radius),) * 2, (0, 0)))
    size = (b, h + 2 * pad, w + 2 * pad, c)
    here = jax.lax.slice(
        wide, (0, radius, radius, 0), (b, radius + size[1], radius + size[2], c)
    )

    def distance(offset):
        start = (0, radius + offset[0], radius + offset[1], 0)
        each = jnp.sum((here - jax.lax.dynamic_slice(wide, start, size)) ** 2, axis=-1)
        for axis in (1, 2):  # A box sum, one side after the other.
            window, strides = [1, 1, 1], [1, 1, 1]
            window[axis], strides[axis] = kernel, stride
            each = jax.lax.reduce_window(
                each, 0.0, jax.lax.add, window, strides, "VALID"
            )
        return each

    return jnp.stack([distance(offset) for offset in offsets])


def exact(
    share: Float[Array, "n"], key: PRNGKeyArray, *, draws: int, channels: int
) -> Bool[Array, "channels n"]:
    """Keeps what none of `draws` draws with replacement hits, in each channel anew.

    Draws come in order, as sums of exponential gaps, so that a position is hit if
    sums lie in its interval of the cumulative shares.
    """
    share = (share + 1e-8) / jnp.sum(share + 1e-8)
    ends = jnp.cumsum(share)
    sums = jnp.cumsum(jax.random.exponential(key, (channels, draws + 1)), axis=-1)
    # Not divided by the last sum, but the intervals times it: fewer operations.
    below = jax.vmap(
        lambda s: jnp.searchsorted(s[:-1], ends * s[-1], method="scan_unrolled")
    )(sums)
    below = below.at[:, -1].set(draws)
    return jnp.diff(below, prepend=0) == 0


def fast(
    share: Float[Array, "n"], key: PRNGKeyArray, *, draws: int, channels: int
) -> Bool[Array, "channels n"]:
    """Keeps each position on its own with the chance (1 - share)^draws of `exact`."""
    share = (share + 1e-8) / jnp.sum(share + 1e-8)
    chance = jnp.exp(draws * jnp.log1p(-share))
    return jax.random.uniform(key, (channels, len(share))) < chance[None]


SAMPLERS: Mapping[str, Callable] = types.MappingProxyType(
    {"exact": exact, "fast": fast}
)
