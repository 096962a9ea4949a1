"""InfoDrop: drop stem features where a patch resembles its neighbours, as in textures.

Source: Shi, Zhang, Dai, Zhu, Mu and Wang, "Informative Dropout for Robust
Representation Learning", ICML 2020, https://arxiv.org/abs/2008.04254.
Reference code: https://github.com/bfshi/InfoDrop at 0dc1b24.
The authors train with InfoDrop and then fine-tune without InfoDrop, here in a second
stage of "erm".
Deviations: not active in evaluation (the reference also drops in evaluation until the net is
fine-tuned; see `variant`); a batch without any contrast drops uniformly instead of failing.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from jbias import errors
from jbias.algos import base, erm
from jbias.augment import options, random_numbers
from jbias.models import resnet

Map = Float[Array, "b h w c"]


class _Stem(NamedTuple):
    """The convolution of a ResNet's stem.

    has_pool: whether a 3x3 max-pool of stride 2 follows.
    """

    kernel: int
    stride: int
    has_pool: bool


_STEMS = {
    "imagenet": _Stem(kernel=7, stride=2, has_pool=True),
    "small": _Stem(kernel=3, stride=1, has_pool=False),
}


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
    """Return ERM that sets stem features to zero, most often where the image repeats itself.

    For each image and channel, `rate` times the number of positions (rounded down) are drawn
    with replacement, with the probabilities of `drop_shares`, and set to zero; other positions
    are not rescaled. The draws have no gradient. ValueError unless the net is a ResNet, and for
    options out of range.

    temperature, radius, bandwidth: see `drop_shares`. offsets: `count` of `drop_shares`.
    sampling: "exact", or "fast": each position is drawn independently, with the same
      probability as in "exact".
    variant: "biasbed" also drops in evaluation, as BiasBed's release does. The draws are
      then always the same and D is computed per image, so that a prediction does not
      depend on the batch, unlike in the release.

    With rate = 0 this equals ERM bit for bit.
    """
    stem = net.stem if isinstance(net, resnet.ResNet) else None
    if stem not in _STEMS:
        raise ValueError(
            "infodrop: needs a ResNet, whose stem is one convolution of known patches, "
            f"got {type(net).__name__}; take a model such as resnet18"
        )
    errors.check_condition("infodrop", "at least 0", rate=rate)
    errors.check_condition(
        "infodrop", "positive", temperature=temperature, bandwidth=bandwidth
    )
    errors.check_condition("infodrop", "at least 1", radius=radius, offsets=offsets)
    errors.check_choice(
        "infodrop", sampling, SAMPLERS, "change sampling", name="sampling"
    )
    errors.check_choice(
        "infodrop", variant, ("", "biasbed"), "change variant", name="variant"
    )
    if options.is_statically(rate, 0):
        return erm.make(net)
    drop = _make_drop(
        net,
        SAMPLERS[sampling],
        rate=rate,
        temperature=temperature,
        bandwidth=bandwidth,
        radius=radius,
        count=offsets,
    )

    def losses(params, stats, batch, key, static=None):
        """Return {"class": loss} and `base.Aux`, without metrics; see base.Algo."""
        k_drop, k_net = jax.random.split(key)
        forward = functools.partial(base.forward, net, params["net"])
        stem, net_stats = forward(
            stats["net"], batch["image"], k_net, method="features", stop=1
        )
        stem = drop(stem, batch["image"], k_drop)
        logits, net_stats = forward(net_stats, stem, k_net, method="head_of", start=1)
        loss = base.objective(logits, batch)
        return {"class": loss}, base.Aux({**stats, "net": net_stats}, {})

    def decide(variables, image):
        """Return the logits of images with features dropped; see base.Algo."""
        stem = net.apply(variables, image, method="features", stop=1)
        # The sum of an image's bytes selects its random draws.
        sums = jnp.sum(jnp.round(255 * image).astype(jnp.uint32), (1, 2, 3))
        stem = drop(stem, image, jax.random.key(0), sums)
        return net.apply(variables, stem, method="head_of", start=1)

    return base.Algo(net, losses, decide=decide if variant else None)


def _make_drop(
    net: nn.Module, sample: Callable, *, rate: float, **options: float
) -> Callable[..., Map]:
    """Return a function drop(stem, image, key, ids=None) that sets some features to zero.

    stem: the stem's features (b h w c) of the images in [0, 1]. ids: (b), numbers that select
    each image's random draws; D of `drop_shares` is then computed per image. None: the
    image's index in the batch selects the draws, and D is computed over the batch.

    sample: a value of `SAMPLERS`. rate: draws per position. options: options of
    `drop_shares`.
    """
    stem_conv = _STEMS[net.stem]
    mean, std = (jnp.float32(v).reshape(1, 1, 1, -1) for v in (net.mean, net.std))

    def drop(stem: Map, image: Map, key: PRNGKeyArray, ids=None) -> Map:
        """Return the stem's features, some of them set to zero; arguments: see `_make_drop`."""
        k_offsets, k_draws = jax.random.split(key)
        share = drop_shares(
            (image - mean) / std,
            k_offsets,
            kernel=stem_conv.kernel,
            stride=stem_conv.stride,
            pooled=stem_conv.has_pool,
            per_image=ids is not None,
            **options,
        )
        assert share.shape == stem.shape[:3], f"{share.shape} is not {stem.shape[:3]}"
        _, height, width, channels = stem.shape
        draws = int(rate * height * width)

        def sample_mask(share, key):
            """Return an image's mask (h, w, channels), False for dropped values; share: (h, w)."""
            mask = sample(share.ravel(), key, draws=draws, channels=channels)
            return mask.reshape(height, width, channels)

        if ids is None:
            keys = random_numbers.keys(k_draws, len(stem))
        else:
            keys = jax.vmap(jax.random.fold_in, (None, 0))(k_draws, ids)
        mask = jax.vmap(sample_mask)(share, keys)
        return jnp.where(jax.lax.stop_gradient(mask), stem, 0)

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
    per_image: bool = False,
) -> Float[Array, "b h2 w2"]:
    """Return the probability that one draw selects each position of a convolution's output.

    The probabilities, called shares, of an image sum to 1 and have no gradient.

    With D_k(u) the squared distance between the patch at u and the patch displaced by offset k,
    and D the mean of all D_k(u) over batch, offsets and positions:

        q(u) = mean_k exp(-D_k(u) / (2 bandwidth^2 D)),  share(u) ~ q(u)^(1/temperature)

    -log q is the self-information of a patch; ~ means proportional. The `count` offsets are
    uniform within `radius` pixels in each direction, with replacement, one draw for the whole
    batch.

    x: normalised images. kernel, stride: sides of the kernel and stride of the convolution,
      in pixels; the convolution pads by half its kernel with zeros.
    pooled: whether a 3x3 max-pool of stride 2 follows; q is then pooled by its minimum.
    per_image: whether D is the mean over one image instead of the batch.
    """
    drawn = jax.random.randint(key, (count, 2), -radius, radius + 1)
    distances = _distances(x, drawn, radius, kernel=kernel, stride=stride)
    mean = jnp.mean(distances, (0, 2, 3) if per_image else None, keepdims=True)
    scaled = jnp.where(mean > 0, distances / jnp.where(mean > 0, mean, 1), 0)
    log_q = jax.nn.logsumexp(-scaled / (2 * bandwidth**2), axis=0) - jnp.log(count)
    if pooled:
        log_q = jax.lax.reduce_window(
            log_q,
            jnp.inf,
            jax.lax.min,
            window_dimensions=(1, 3, 3),
            window_strides=(1, 2, 2),
            padding=((0, 0), (1, 1), (1, 1)),
        )
    flat = log_q.reshape(len(x), -1) / temperature
    return jax.lax.stop_gradient(jax.nn.softmax(flat).reshape(log_q.shape))


def _distances(
    x: Map, offsets: Array, radius: int, *, kernel: int, stride: int
) -> Float[Array, "k b h2 w2"]:
    """Return the squared distance of each patch to the displaced patch, for each of k offsets.

    offsets: (k, 2), rows and columns in pixels, at most `radius`. kernel, stride: in pixels.
    """
    b, h, w, _ = x.shape
    pad = kernel // 2
    padding = ((0, 0), (pad + radius, pad + radius), (pad + radius, pad + radius))
    size = (b, h + 2 * pad, w + 2 * pad)
    # Channels are separate arrays, padded once: a TPU would sum channels across the rows of
    # a register, and pad again for each offset.
    planes = tuple(jnp.pad(x[..., i], padding) for i in range(x.shape[-1]))
    planes = jax.lax.optimization_barrier(planes)
    inner = slice(radius, -radius)

    def distance(offset):
        """Return the squared distances (b h2 w2) of patches; offset: (row, column) in pixels."""
        start = (0, radius + offset[0], radius + offset[1])
        total = sum(
            (plane[:, inner, inner] - jax.lax.dynamic_slice(plane, start, size)) ** 2
            for plane in planes
        )
        # The sum over a patch, along one axis after the other.
        for window, strides in (
            ((1, kernel, 1), (1, stride, 1)),
            ((1, 1, kernel), (1, 1, stride)),
        ):
            total = jax.lax.reduce_window(
                total,
                0.0,
                jax.lax.add,
                window_dimensions=window,
                window_strides=strides,
                padding="VALID",
            )
        return total

    return jnp.stack([distance(offset) for offset in offsets])


def sample_exact(
    share: Float[Array, "n"], key: PRNGKeyArray, *, draws: int, channels: int
) -> Bool[Array, "n channels"]:
    """Return a mask: False for positions that at least one of `draws` draws hits, else True.

    Draws are with replacement. share: probability of each of n positions in one draw.
    Channels are drawn independently.

    Draws come at the times of a Poisson process of rate 1. Hits of a position are then a
    Poisson process whose rate is the share of the position, and the time of the first hit is
    exponential. Repeated hits of all positions together are one process, whose rate at any time
    is the total share of the positions hit so far. Repeated hits are counted by a Poisson
    variable up to a time that is certainly before the last draw, and one by one after that
    time. The time of the last draw is found by quartering an interval; positions hit by that
    time are dropped. This method avoids sorting and gathering, which are slow on TPUs. The method
    is exact except for float32 (times, and jax's Poisson counts, whose keys must be threefry) and
    probabilities below 1e-7.
    """
    if not draws:
        return jnp.ones((len(share), channels), bool)
    share = ((share + 1e-8) / jnp.sum(share + 1e-8))[:, None]
    k_first, k_early, k_again = jax.random.split(key, 3)
    first = jax.random.exponential(k_first, (len(share), channels)) / share
    # Without the barrier every comparison would recompute the times, which is slower than
    # reading them.
    first = jax.lax.optimization_barrier(first)
    spread = 6 * math.sqrt(draws)
    early, late = max(0.0, draws - spread), draws + spread + 16
    early_exposure = jnp.sum(share * jnp.maximum(early - first, 0), axis=0)
    remaining = draws - jax.random.poisson(k_early, early_exposure)
    shape = (min(draws, math.ceil(2 * spread)), channels)
    repeats = jnp.cumsum(jax.random.exponential(k_again, shape), axis=0)

    def has_all_draws(time):
        """Return a boolean per channel: True if its draws are complete; time: (channels)."""
        time = time[None]
        hits = jnp.sum(first <= time, axis=0, dtype=jnp.float32)
        exposure = jnp.sum(share * jnp.clip(time - first, 0, time - early), axis=0)
        hits += jnp.sum(repeats <= exposure[None], axis=0, dtype=jnp.float32)
        return hits >= remaining

    low, high = jnp.full(channels, early), jnp.full(channels, late)
    for _ in range(math.ceil(math.log((late - early) / late * 2**24, 4))):
        step = (high - low) / 4
        times = [low + i * step for i in range(1, 4)]
        reached = [has_all_draws(time) for time in times]
        for time, is_reached in zip(times, reached, strict=True):
            low = jnp.where(is_reached, low, time)
        for time, is_reached in zip(times[::-1], reached[::-1], strict=True):
            high = jnp.where(is_reached, time, high)
    return first > high[None]


def sample_fast(
    share: Float[Array, "n"], key: PRNGKeyArray, *, draws: int, channels: int
) -> Bool[Array, "n channels"]:
    """Return a mask: each position is True with probability (1 - share)^draws, else False.

    `sample_exact` has the same probabilities; here positions are independent. Arguments: see
    `sample_exact`.
    """
    share = (share + 1e-8) / jnp.sum(share + 1e-8)
    chance = jnp.exp(draws * jnp.log1p(-share))
    return jax.random.uniform(key, (len(share), channels)) < chance[:, None]


SAMPLERS: Mapping[str, Callable] = {"exact": sample_exact, "fast": sample_fast}


ALGOS = {"infodrop": make}
