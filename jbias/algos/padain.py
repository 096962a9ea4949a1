"""Permuted AdaIN: hides texture by swapping feature statistics between images.

Source: Nuriel, Benaim and Wolf, CVPR 2021, https://arxiv.org/abs/2010.05785.
Reference code: https://github.com/onuriel/PermutedAdaIN at 819cdb9.
Deviation: partners are drawn inside groups of `mix_group` images, so that the meaning
does not depend on the number of devices; the reference draws them inside one GPU's
batch.
"""

import functools

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.algos import base, erm, sometimes
from jbias.augment import feature_stats
from jbias.models import rescaled, taps


def make(net: nn.Module, *, p: float = 0.01, mix_group: int = 32) -> base.Algo:
    """ERM whose net swaps statistics after every convolution, each with chance p.

    Convolutions of shortcuts are left out; a transformer has one, which makes its words.
    p may be traced. Chances and partners are independent between sites and steps. At
    p = 0 this is ERM to the bit.
    """
    if isinstance(p, int | float) and not 0 <= p <= 1:
        raise ValueError(f"padain: p must be in [0, 1], got {p}")

    swap = functools.partial(feature_stats.permuted_adain, group=mix_group)

    def tap(x: Float[Array, "b h w c"], site: str, key: PRNGKeyArray):
        if not _acts(x, site):
            return x
        gate, order = jax.random.split(key)
        acts = jax.random.bernoulli(gate, p)
        found = feature_stats.gated(x, acts, swap, order)
        return rescaled.Rescaled(x, *found, acts)

    def gates(*args):
        sites = []

        def note(x, site, _key):
            sites.extend([site] * _acts(x, site))
            return x

        jax.eval_shape(lambda: erm.make(net.clone(tap=note)).losses(*args))
        drawn = (jax.random.split(taps.stream(args[-1], site))[0] for site in sites)
        return jnp.array([jax.random.bernoulli(gate, p) for gate in drawn], bool)

    algo = erm.make(net.clone(tap=tap))._replace(mix_group=mix_group)
    return sometimes.make(algo, erm.make(net), gates, p)


def _acts(x: Float[Array, "b h w c"], site: str) -> bool:
    """Whether a place is a convolution; one pixel has no deviation."""
    return "conv" in site and x.shape[1] * x.shape[2] > 1
