"""How much of an image's patches is news, and what to drop of what is not.

Source: Shi et al., "Informative Dropout for Robust Representation Learning", ICML
2020, https://arxiv.org/abs/2008.04254.
Reference code: https://github.com/bfshi/InfoDrop at 0dc1b24.
"""

import math
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
    b, h, w, _ = x.shape
    pad = kernel // 2
    around = ((0, 0), *((pad + radius, pad + radius),) * 2)
    size = (b, h + 2 * pad, w + 2 * pad)
    # Colours apart, padded once: a TPU would sum them across the rows of a register, and
    # pad again for each offset.
    colours = tuple(jnp.pad(x[..., i], around) for i in range(x.shape[-1]))
    colours = jax.lax.optimization_barrier(colours)
    within = slice(radius, -radius)

    def distance(offset):
        start = (0, radius + offset[0], radius + offset[1])
        each = sum(
            (one[:, within, within] - jax.lax.dynamic_slice(one, start, size)) ** 2
            for one in colours
        )
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
) -> Bool[Array, "n channels"]:
    """Keeps what none of `draws` draws with replacement hits, in each channel anew.

    Draws come at times of a Poisson process of rate 1, so each position has a process of
    its own, at the rate of its share, and the first hit of each is exponential. Hits after
    the first are one process whose rate at any time is the share of what was hit before:
    a Poisson count up to a time that is surely too early, one by one from there on. The
    time of the last draw is then found by quartering; what was hit by then is dropped.
    Neither sorts nor gathers, which are slow on TPUs. Exact but for float32 (times, and
    jax's Poisson counts, whose keys must be threefry) and chances below 1e-7.
    """
    if not draws:
        return jnp.ones((len(share), channels), bool)
    share = ((share + 1e-8) / jnp.sum(share + 1e-8))[:, None]
    k_first, k_early, k_again = jax.random.split(key, 3)
    first = jax.random.exponential(k_first, (len(share), channels)) / share
    # Else every comparison would draw them anew, which costs more than to read them.
    first = jax.lax.optimization_barrier(first)
    spread = 6 * math.sqrt(draws)
    early, late = max(0.0, draws - spread), draws + spread + 16
    seen = jnp.sum(share * jnp.maximum(early - first, 0), axis=0)
    wanted = draws - jax.random.poisson(k_early, seen)
    later = (min(draws, math.ceil(2 * spread)), channels)
    again = jnp.cumsum(jax.random.exponential(k_again, later), axis=0)

    def enough(time):
        time = time[None]
        hit = jnp.sum(first <= time, axis=0, dtype=jnp.float32)
        seen = jnp.sum(share * jnp.clip(time - first, 0, time - early), axis=0)
        hit += jnp.sum(again <= seen[None], axis=0, dtype=jnp.float32)
        return hit >= wanted

    low, high = jnp.full(channels, early), jnp.full(channels, late)
    for _ in range(math.ceil(math.log((late - early) / late * 2**24, 4))):
        step = (high - low) / 4
        times = [low + i * step for i in range(1, 4)]
        reached = [enough(time) for time in times]
        for time, there in zip(times, reached, strict=True):
            low = jnp.where(there, low, time)
        for time, there in zip(times[::-1], reached[::-1], strict=True):
            high = jnp.where(there, time, high)
    return first > high[None]


def fast(
    share: Float[Array, "n"], key: PRNGKeyArray, *, draws: int, channels: int
) -> Bool[Array, "n channels"]:
    """Keeps each position on its own with the chance (1 - share)^draws of `sample_exact`."""
    share = (share + 1e-8) / jnp.sum(share + 1e-8)
    chance = jnp.exp(draws * jnp.log1p(-share))
    return jax.random.uniform(key, (len(share), channels)) < chance[:, None]


SAMPLERS: Mapping[str, Callable] = types.MappingProxyType(
    {"exact": exact, "fast": fast}
)
