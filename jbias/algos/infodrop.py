"""InfoDrop: drops stem features where a patch looks like its neighbours, as texture does.

Source: Shi, Zhang, Dai, Zhu, Mu and Wang, "Informative Dropout for Robust
Representation Learning", ICML 2020, https://arxiv.org/abs/2008.04254.
Reference code: https://github.com/bfshi/InfoDrop at 0dc1b24.
The authors train with it and then fine-tune without it: a second stage of "erm".
Deviations: never active in evaluation (the reference is, until fine-tuned; see
`variant`); a batch without any contrast drops uniformly instead of failing.
"""

import functools
import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from jbias.algos import base, erm
from jbias.augment import options, sampling
from jbias.models import resnet

Map = Float[Array, "b h w c"]

# Of the stem: kernel, stride, and whether a 3x3 max-pool of stride 2 follows.
_STEMS = {"imagenet": (7, 2, True), "small": (3, 1, False)}


def make(
    net: nn.Module,
    *,
    rate: float = 1.5,
    temperature: float = 0.03,
    radius: int = 3,
    offsets: int = 9,
    bandwidth: float = 1.0,
    sampling: str = "exact",
    variant: str = "",
) -> base.Algo:
    """ERM that zeroes stem features, most of all where the image repeats itself.

    For each image and channel, `rate` times as many positions as there are are drawn
    with replacement, by `drop_shares`, and set to zero; the others keep their
    scale. No gradient passes through the choice.

    sampling: "exact", or "fast": each position on its own, with the same chance.
    variant: "biasbed" drops in evaluation too, as BiasBed's release does. There the
      draws are always the same and D is an image's own, so that a decision is one of
      the image and not of the batch that it comes in; the release's is of both.

    At rate = 0 this is ERM to the bit.
    """
    stem = net.stem if isinstance(net, resnet.ResNet) else None
    if stem not in _STEMS:
        raise ValueError(
            "infodrop: needs a ResNet, whose stem is one convolution of known patches, "
            f"got {type(net).__name__}; take a model such as resnet18"
        )
    options.check_plain("infodrop", "at least 0", rate=rate)
    positive = dict(temperature=temperature, bandwidth=bandwidth)
    options.check_plain("infodrop", "positive", **positive)
    options.check_plain("infodrop", "at least 1", radius=radius, offsets=offsets)
    options.check_choice("infodrop", "sampling", sampling, SAMPLERS)
    options.check_choice("infodrop", "variant", variant, ("", "biasbed"))
    if options.is_statically(rate, 0):
        return erm.make(net)
    shares = dict(positive, radius=radius, count=offsets)
    drop = _dropper(net, SAMPLERS[sampling], rate, **shares)

    def losses(params, stats, batch, key, static=None):
        k_drop, k_net = jax.random.split(key)
        run = functools.partial(base.forward, net, params["net"])
        stem, seen = run(stats["net"], batch["image"], k_net, method="features", stop=1)
        stem = drop(stem, batch["image"], k_drop)
        logits, seen = run(seen, stem, k_net, method="head_of", start=1)
        loss = base.objective(logits, batch)
        return {"class": loss}, base.Aux({**stats, "net": seen}, {})

    def decide(variables, image):
        stem = net.apply(variables, image, method="features", stop=1)
        sums = jnp.sum(jnp.round(255 * image).astype(jnp.uint32), (1, 2, 3))
        stem = drop(stem, image, jax.random.key(0), sums)
        return net.apply(variables, stem, method="head_of", start=1)

    return base.Algo(net, losses, decide=decide if variant else None)


def _dropper(net: nn.Module, sample: Callable, rate: float, **options) -> Callable:
    """Builds (stem features, image, key, names) -> the features, some of them zero.

    Draws are by the images' names, if they have any, and else by their places.
    """
    options |= dict(zip(("kernel", "stride", "pooled"), _STEMS[net.stem], strict=True))
    mean, std = (jnp.float32(v).reshape(1, 1, 1, -1) for v in (net.mean, net.std))

    def drop(stem: Map, image: Map, key: PRNGKeyArray, names=None) -> Map:
        k_offsets, k_draws = jax.random.split(key)
        x, alone = (image - mean) / std, names is not None
        share = drop_shares(x, k_offsets, alone=alone, **options)
        assert share.shape == stem.shape[:3], f"{share.shape} is not {stem.shape[:3]}"
        _, height, width, channels = stem.shape
        draws = int(rate * height * width)

        def keep(share, key):
            kept = sample(share.ravel(), key, draws=draws, channels=channels)
            return kept.reshape(height, width, channels)

        if names is None:
            keys = sampling.keys(k_draws, len(stem))
        else:
            keys = jax.vmap(jax.random.fold_in, (None, 0))(k_draws, names)
        kept = jax.vmap(keep)(share, keys)
        return jnp.where(jax.lax.stop_gradient(kept), stem, 0)

    return drop


def drop_shares(
    x: Map,
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
        pool = (1, 3, 3), (1, 2, 2), ((0, 0), (1, 1), (1, 1))
        log_q = jax.lax.reduce_window(log_q, jnp.inf, jax.lax.min, *pool)
    flat = log_q.reshape(len(x), -1) / temperature
    return jax.lax.stop_gradient(jax.nn.softmax(flat).reshape(log_q.shape))


def _distances(
    x: Map, offsets: Array, radius: int, *, kernel: int, stride: int
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
        # A box sum, one side after the other.
        for down, across in ((1, 0), (0, 1)):
            window, strides = ((1, n**down, n**across) for n in (kernel, stride))
            box = window, strides, "VALID"
            each = jax.lax.reduce_window(each, 0.0, jax.lax.add, *box)
        return each

    return jnp.stack([distance(offset) for offset in offsets])


def sample_exact(
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


def sample_fast(
    share: Float[Array, "n"], key: PRNGKeyArray, *, draws: int, channels: int
) -> Bool[Array, "n channels"]:
    """Keeps each position on its own with the chance (1 - share)^draws of `sample_exact`."""
    share = (share + 1e-8) / jnp.sum(share + 1e-8)
    chance = jnp.exp(draws * jnp.log1p(-share))
    return jax.random.uniform(key, (len(share), channels)) < chance[:, None]


SAMPLERS: Mapping[str, Callable] = {"exact": sample_exact, "fast": sample_fast}
