"""DSU: add noise to feature statistics, scaled by their spread between images.

Source: Li, Dai, Ge, Liu, Shan and Duan, "Uncertainty Modeling for Out-of-Distribution
Generalization", ICLR 2022, https://arxiv.org/abs/2202.03958.
Reference code: https://github.com/lixiaotong97/DSU at 82a1de0.
Deviation: the spread of statistics is computed inside groups of `mix_group` images, so
that it depends neither on the number of devices nor on the batch size; the reference computes
the spread over a batch of 64.
"""

import functools
import re
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, PRNGKeyArray

from jbias import errors
from jbias.algos import base, erm
from jbias.augment import batch_permutations, feature_stats, options, random_numbers
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
    """Return ERM with noise on feature statistics at some sites of the net.

    p: probability of noise, for the whole batch at each site.
    factor: standard deviation of the noise, relative to the spread of the statistics.
    sites: names of sites, see models/taps.py; None: the sites of the reference, after the
      first convolution (before any normalisation), the stem and each stage, if the net has
      them. In a transformer the tokens of an image count as its pixels.
    mix_group: number of neighbouring images whose statistics define the spread, at least 2.

    p and factor may be traced. With p = 0 this equals ERM: bit for bit if p is a number, up
    to rounding if p is traced (the map of stage 4 is then averaged differently). ValueError
    for a value out of range and for sites that the net lacks.
    """
    errors.check_condition("dsu", "in [0, 1]", p=p)
    errors.check_condition("dsu", "at least 0", factor=factor)
    sites = default_sites(net) if sites is None else tuple(sites)
    taps.check_sites("dsu", "sites", net, sites)
    if mix_group < 2:
        raise ValueError(
            f"dsu: mix_group must be at least 2, to have a deviation, got {mix_group}"
        )
    if options.is_statically(p, 0):
        return erm.make(net)._replace(mix_group=mix_group)

    tap = rescaling_tap(
        lambda x, site: site in sites,
        functools.partial(perturb, factor=factor, group=mix_group),
        p=p,
        acts_often=True,
    )
    return erm.make(net.clone(tap=tap))._replace(mix_group=mix_group)


def rescaling_tap(
    is_active_at: Callable, change: Callable, *, p: float, acts_often: bool = False
) -> taps.Tap:
    """Return a tap that replaces a map x by a x + b, with probability p for the whole batch.

    A tap is a function (x, site, key) that a net applies to its feature maps in training
    (models/taps.py). This tap returns a `taps.Rescaled` map, or x unchanged where
    `is_active_at` is False.

    is_active_at: (x, site) -> whether the tap may change x there.
    change: (mean, var, key) -> (a, b), arrays (b c) like mean and var, the mean and variance
      of x over its pixels.
    acts_often: whether x is changed in most steps. On a TPU the moments are then computed in
      every step, because a condition around a map costs more than the moments.
    """

    def tap(x: Float[Array, "b h w c"], site: str, key: PRNGKeyArray):
        """Return x rescaled, or x unchanged where `is_active_at` is False."""
        if not is_active_at(x, site):
            return x
        k_gate, k_change = jax.random.split(key)
        acts = jax.random.bernoulli(k_gate, p)
        read_always = acts_often and xla.platform() == "tpu"
        affine = feature_stats.gated_affine(
            x, acts, change, k_change, read_always=read_always
        )
        return taps.Rescaled(
            x,
            scale=affine.scale,
            shift=affine.shift,
            mean=affine.mean,
            var=affine.var,
            acts=None if read_always else acts,
        )

    return tap


def default_sites(net: nn.Module) -> tuple[str, ...]:
    """Return the sites of the net's first convolution, stem and stages, if the net has them."""
    sites = taps.map_sites(net)
    first_conv = [site for site in sites if "conv" in site][:1]
    stages = [site for site in sites if re.fullmatch(r"stem|stage\d", site)]
    return (*first_conv, *stages)


def perturb(
    mean: Stats, var: Stats, key: PRNGKeyArray, *, factor: float, group: int
) -> tuple[Stats, Stats]:
    """Return (a, b): a x + b is x with noise on each image's channel means and deviations.

    a x + b = (x - m) / s * (s + e1 S) + m + e2 M, with the mean m and variance v of x,
    s = sqrt(v + eps) and eps = 1e-6. S and M are the standard deviations, sqrt(variance +
    eps), of s and of m between the images of a group. e1 and e2 are normal with standard
    deviation `factor`, drawn for each image and channel. All variances are unbiased.
    Gradients pass through all statistics.

    mean, var: m and v, per image and channel. group: number of images in a group.
    """
    old = jnp.concatenate([mean, jnp.sqrt(var + _EPS)], axis=1)
    grouped = batch_permutations.split_groups(old, group=group)
    spread = jnp.var(grouped, axis=1, ddof=1, keepdims=True)
    spread = jnp.broadcast_to(jnp.sqrt(spread + _EPS), grouped.shape)
    normal = functools.partial(jax.random.normal, shape=old.shape[1:])
    noise = random_numbers.draw_each(normal, key, len(old))
    new = old + factor * noise * spread.reshape(old.shape)
    return feature_stats.affine_between(old, new)


ALGOS = {"dsu": make}
