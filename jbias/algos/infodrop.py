"""InfoDrop: drops stem features where a patch looks like its neighbours, as texture does.

Source: Shi, Zhang, Dai, Zhu, Mu and Wang, "Informative Dropout for Robust
Representation Learning", ICML 2020, https://arxiv.org/abs/2008.04254.
Reference code: https://github.com/bfshi/InfoDrop at 0dc1b24.
The authors train with it and then fine-tune without it: a second stage of "erm".
Deviations: never active in evaluation (the reference is, until fine-tuned; see
`variant`); a batch without any contrast drops uniformly instead of failing.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jbias.algos import base
from jbias.augment import examples, info_drop
from jbias.models import resnet

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
    if not rate >= 0:
        raise ValueError(f"infodrop: rate must be at least 0, got {rate}")
    for name, value in (("temperature", temperature), ("bandwidth", bandwidth)):
        if isinstance(value, int | float) and not value > 0:
            raise ValueError(f"infodrop: {name} must be positive, got {value}")
    if radius < 1 or offsets < 1:
        raise ValueError(
            f"infodrop: radius and offsets must be at least 1, got {radius}, {offsets}"
        )
    if sampling not in info_drop.SAMPLERS or variant not in ("", "biasbed"):
        raise ValueError(
            f"infodrop: sampling must be one of {', '.join(info_drop.SAMPLERS)} and "
            f"variant '' or 'biasbed', got {sampling!r} and {variant!r}"
        )
    drop = _dropper(
        net,
        info_drop.SAMPLERS[sampling],
        rate,
        temperature=temperature,
        radius=radius,
        count=offsets,
        bandwidth=bandwidth,
    )

    def losses(params, stats, batch, key, static=None):
        del static
        k_drop, k_net = jax.random.split(key)
        run = functools.partial(base.forward, net, params["net"])
        stem, seen = run(stats["net"], batch["image"], k_net, method="features", stop=1)
        if rate:
            stem = drop(stem, batch["image"], k_drop)
        logits, seen = run(seen, stem, k_net, method="head_of", start=1)
        loss = base.objective(logits, batch)
        return {"class": loss}, base.Aux({**stats, "net": seen}, {})

    def decide(variables, image):
        stem = net.apply(variables, image, method="features", stop=1)
        sums = jnp.sum(jnp.round(255 * image).astype(jnp.uint32), (1, 2, 3))
        stem = drop(stem, image, jax.random.key(0), sums)
        return net.apply(variables, stem, method="head_of", start=1)

    return base.Algo(net, losses, decide=decide if variant and rate else None)


def _dropper(net: nn.Module, sample: Callable, rate: float, **options) -> Callable:
    """Builds (stem features, image, key, names) -> the features, some of them zero.

    Draws are by the images' names, if they have any, and else by their places.
    """
    kernel, stride, pooled = _STEMS[net.stem]
    mean, std = (
        jnp.asarray(v, jnp.float32).reshape(1, 1, 1, -1) for v in (net.mean, net.std)
    )

    def drop(
        stem: Float[Array, "b h w c"],
        image: Float[Array, "b h2 w2 c2"],
        key: PRNGKeyArray,
        names: Int[Array, "b"] | None = None,
    ) -> Float[Array, "b h w c"]:
        k_offsets, k_draws = jax.random.split(key)
        share = info_drop.shares(
            (image - mean) / std,
            k_offsets,
            kernel=kernel,
            stride=stride,
            pooled=pooled,
            alone=names is not None,
            **options,
        )
        assert share.shape == stem.shape[:3], f"{share.shape} is not {stem.shape[:3]}"
        _, height, width, channels = stem.shape
        draws = int(rate * height * width)

        def keep(share, key):
            kept = sample(share.ravel(), key, draws=draws, channels=channels)
            return kept.reshape(height, width, channels)

        if names is None:
            keys = examples.keys(k_draws, len(stem))
        else:
            keys = jax.vmap(jax.random.fold_in, (None, 0))(k_draws, names)
        kept = jax.vmap(keep)(share, keys)
        return jnp.where(jax.lax.stop_gradient(kept), stem, 0)

    return drop
