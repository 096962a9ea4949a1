"""Permuted AdaIN: hides texture by swapping feature statistics between images.

Source: Nuriel, Benaim and Wolf, CVPR 2021, https://arxiv.org/abs/2010.05785.
Reference code: https://github.com/onuriel/PermutedAdaIN at 819cdb9.
Deviation: partners are drawn inside groups of `mix_group` images, so that the meaning
does not depend on the number of devices; the reference draws them inside one GPU's
batch.

In most steps no site swaps anything; `skip_when_shut` then runs the plain program.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float

from jbias.algos import base, dsu, erm
from jbias.augment import feature_stats, options
from jbias.models import taps
from jbias.runtime import xla


def make(net: nn.Module, *, p: float = 0.01, mix_group: int = 32) -> base.Algo:
    """ERM whose net swaps statistics after every convolution, each with chance p.

    Convolutions of shortcuts are left out; a transformer has one, which makes its words.
    p may be traced. Chances and partners are independent between sites and steps. At
    p = 0 this is ERM to the bit.
    """
    options.check_plain("padain", "in [0, 1]", p=p)
    swap = functools.partial(feature_stats.permuted_adain, group=mix_group)
    tap = dsu.rescaling_tap(_acts, swap, p)

    def gates(*args):
        sites = []

        def note(x, site, _key):
            sites.extend([site] * _acts(x, site))
            return x

        jax.eval_shape(lambda: erm.make(net.clone(tap=note)).losses(*args))
        drawn = (jax.random.split(taps.site_key(args[-1], site))[0] for site in sites)
        return jnp.array([jax.random.bernoulli(gate, p) for gate in drawn], bool)

    algo = erm.make(net.clone(tap=tap))._replace(mix_group=mix_group)
    return skip_when_shut(algo, erm.make(net), gates, p)


def _acts(x: Float[Array, "b h w c"], site: str) -> bool:
    """Whether a place is a convolution; one pixel has no deviation."""
    return "conv" in site and x.shape[1] * x.shape[2] > 1


def skip_when_shut(algo: base.Algo, plain: base.Algo, gates: Callable, p) -> base.Algo:
    """`algo`, computed as `plain` in steps in which none of its gates is open.

    gates(params, stats, batch, key) tells of each whether it is open, with chance p;
    where none is, both give the same one loss, up to rounding. Each way computes its
    gradient by the weights, and no other, within its branch: what passes even a shut
    gate must lie in a device's main memory. On a CPU, where that costs nothing, there is
    no such condition.
    """

    def losses(params, stats, batch, key, static=None):
        given = (stats, batch, key)
        acts = gates(params, *given) if xla.platform() != "cpu" else ()
        if not len(acts):
            return algo.losses(params, *given, static)
        # The name is what training/hlo.py reads the chance from.
        known = isinstance(p, int | float)
        name = f"chance={1 - (1 - p) ** len(acts):.6g}" if known else "some"

        def way(losses):
            def run(params):
                def of_weights(params):
                    return losses(params, *given, static)

                found, push, aux = jax.vjp(of_weights, params, has_aux=True)
                (grads,) = push(jax.tree.map(jnp.ones_like, found))
                return (found, aux), grads

            return run

        @jax.custom_vjp
        def either(params):
            return both(params)[0]

        def both(params):
            ways = way(algo.losses), way(plain.losses)
            with jax.named_scope(name):
                return jax.lax.cond(_any_open(acts), *ways, params)

        def gradient(grads, given):
            (times,) = given[0].values()
            return (jax.tree.map(lambda g: (times * g).astype(g.dtype), grads),)

        either.defvjp(both, gradient)
        return either(params)

    return algo._replace(losses=losses)


@custom_vmap
def _any_open(acts: Bool[Array, " gates"]) -> Bool[Array, ""]:
    return acts.any()


@_any_open.def_vmap
def _of_all_seeds(_count, _batched, acts):
    """Seeds in one program take one branch together."""
    return _any_open(acts.reshape(-1)), False
