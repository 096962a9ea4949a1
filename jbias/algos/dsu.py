"""DSU: feature statistics become uncertain, as far as they differ between images.

Source: Li, Dai, Ge, Liu, Shan and Duan, "Uncertainty Modeling for Out-of-Distribution
Generalization", ICLR 2022, https://arxiv.org/abs/2202.03958.
Reference code: https://github.com/lixiaotong97/DSU at 82a1de0.
Deviation: how far statistics differ is taken inside groups of `mix_group` images, so
that the meaning depends neither on the number of devices nor on the batch; the reference
takes it over its batch of 64.
"""

import functools
import re
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.algos import base, erm
from jbias.augment import feature_stats, options, sampling
from jbias.models import taps
from jbias.runtime import xla

_EPS = 1e-6

Stats = feature_stats.Stats


def make(
    net: nn.Module,
    *,
    p: float = 0.5,
    factor: float = 1.0,
    sites: Sequence[str] | None = None,
    mix_group: int = 32,
) -> base.Algo:
    """ERM whose net disturbs the statistics of images at these sites, each with chance p.

    factor: deviation of the noise, in deviations of the statistics.
    sites: where, see models/taps.py; None is as in the reference: after the first
      convolution (before any normalisation), the stem and each stage, as far as the net
      has them. In a transformer the words of an image are its pixels.

    p and factor may be traced. With the number 0 for p this is ERM to the bit; with one
    that is traced up to rounding, as stage 4 is averaged by another program.
    """
    options.check_plain("dsu", "in [0, 1]", p=p)
    options.check_plain("dsu", "at least 0", factor=factor)
    sites = default_sites(net) if sites is None else tuple(sites)
    taps.check_sites("dsu", "sites", net, sites)
    if mix_group < 2:
        raise ValueError(
            f"dsu: mix_group must be at least 2, to have a deviation, got {mix_group}"
        )
    if options.is_statically(p, 0):
        return erm.make(net)._replace(mix_group=mix_group)

    change = functools.partial(disturb, factor=factor, group=mix_group)
    tap = rescaling_tap(lambda x, site: site in sites, change, p, often=True)
    return erm.make(net.clone(tap=tap))._replace(mix_group=mix_group)


def rescaling_tap(
    acts_at: Callable, change: Callable, p: float, *, often: bool = False
) -> taps.Tap:
    """Return a tap where acts_at(x, site) says so: change(mean, var, key) -> a, b of a x + b.

    It acts with chance p, for the whole batch at a site.

    often: on a TPU, reads the statistics in every step, where most steps need them: a
      condition around a map costs there more than the statistics.
    """

    def tap(x: Float[Array, "b h w c"], site: str, key: PRNGKeyArray):
        if not acts_at(x, site):
            return x
        gate, rest = jax.random.split(key)
        acts = jax.random.bernoulli(gate, p)
        read_always = often and xla.platform() == "tpu"
        affine = feature_stats.gated_affine(
            x, acts, change, rest, read_always=read_always
        )
        return taps.Rescaled(x, *affine, None if read_always else acts)

    return tap


def default_sites(net: nn.Module) -> tuple[str, ...]:
    """The net's first convolution, stem and stages, as far as it has them."""
    there = taps.map_sites(net)
    first = [site for site in there if "conv" in site][:1]
    return (*first, *(site for site in there if re.fullmatch(r"stem|stage\d", site)))


def disturb(
    mean: Stats, var: Stats, key: PRNGKeyArray, *, factor: float, group: int
) -> tuple[Stats, Stats]:
    """Moves each image's channel means and deviations by noise.

    Returns a and b of a x + b = (x - m) / s * (s + e1 S) + m + e2 M, given the moments
    of x, with s = sqrt(v + eps), S and M the deviations of s and of m between the images
    of a group, sqrt(variance + eps) again, e1 and e2 normal for each image and channel,
    eps = 1e-6 and all variances unbiased. Gradients pass all statistics.
    """
    own = jnp.concatenate([mean, jnp.sqrt(var + _EPS)], axis=1)
    grouped = sampling.split_groups(own, group=group)
    spread = jnp.var(grouped, axis=1, ddof=1, keepdims=True)
    spread = jnp.broadcast_to(jnp.sqrt(spread + _EPS), grouped.shape)
    normal = functools.partial(jax.random.normal, shape=own.shape[1:])
    noise = sampling.draw_each(normal, key, len(own))
    new = own + factor * noise * spread.reshape(own.shape)
    return feature_stats.affine_between(own, new)
