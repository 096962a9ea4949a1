"""Permuted AdaIN: hide texture by swapping feature statistics between images.

Source: Nuriel, Benaim and Wolf, CVPR 2021, https://arxiv.org/abs/2010.05785.
Reference code: https://github.com/onuriel/PermutedAdaIN at 819cdb9.
Deviation: partners are drawn inside groups of `mix_group` images, so that results do not
depend on the number of devices; the reference draws partners inside one GPU's batch.

A site is a named position in the net (models/taps.py). The gate of a site is the random decision
in each step whether statistics are swapped at the site. The gate is open if statistics are
swapped. In most steps no gate is open; `skip_when_shut` then runs ERM's program.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float

from jbias import errors
from jbias.algos import base, dsu, erm
from jbias.augment import feature_stats
from jbias.models import taps
from jbias.runtime import xla


def make(net: nn.Module, *, p: float = 0.01, mix_group: int = 32) -> base.Algo:
    """Return ERM whose net swaps feature statistics between images after convolutions.

    p: probability of a swap, for the whole batch at each site; may be traced. With p = 0
      this equals ERM bit for bit.
    mix_group: number of neighbouring images among which statistics are swapped.

    Swaps and partners are independent between sites and steps. Convolutions of shortcuts
    are left out; a transformer has one convolution, which embeds the patches. ValueError for
    p outside [0, 1].
    """
    errors.check_condition("padain", "in [0, 1]", p=p)
    swap = functools.partial(feature_stats.permuted_adain, group=mix_group)
    tap = dsu.rescaling_tap(_is_active_at, swap, p=p)

    def gates(*args):
        """Return an array of booleans, one per site of the tap: True if the site swaps.

        args: params, stats, batch and key.
        """
        sites = []

        def record_site(x: Array, site: str, _key: Array) -> Array:
            """Return x, and record the site."""
            if _is_active_at(x, site):
                sites.append(site)
            return x

        jax.eval_shape(lambda: erm.make(net.clone(tap=record_site)).losses(*args))
        keys = (jax.random.split(taps.site_key(args[-1], site))[0] for site in sites)
        return jnp.array([jax.random.bernoulli(key, p) for key in keys], bool)

    algo = erm.make(net.clone(tap=tap))._replace(mix_group=mix_group)
    return skip_when_shut(algo, erm.make(net), gates, p)


def _is_active_at(x: Float[Array, "b h w c"], site: str) -> bool:
    """Return True if a site follows a convolution and its map x has more than one pixel."""
    return "conv" in site and x.shape[1] * x.shape[2] > 1


def skip_when_shut(
    algo: base.Algo, plain: base.Algo, gates: Callable, p: float | Array
) -> base.Algo:
    """Return an algorithm like `algo` that runs `plain` in steps in which no gate is open.

    If no gate is open, both algorithms must give the same loss, up to rounding. Each algorithm must
    have exactly one loss.

    gates: (params, stats, batch, key) -> an array of booleans, True for each open gate.
    p: probability that a gate is open.

    jax.lax.cond chooses between the losses of `algo` and `plain`. Each branch also computes the
    gradient of the weights; there are no other gradients. If the gradient were computed outside
    of the branches, the device would store the maps of closed gates until then. On a CPU, where
    a closed gate costs nothing, `algo` is always used.
    """

    def losses(params, stats, batch, key, static=None):
        """Return the losses and `base.Aux` of `algo`, or of `plain` if no gate is open.

        On a CPU the result is always from `algo`.
        """
        acts = gates(params, stats, batch, key) if xla.platform() != "cpu" else ()
        if not len(acts):
            return algo.losses(params, stats, batch, key, static)
        # training/tuning/hlo.py reads the probability from this name.
        is_known = isinstance(p, int | float)
        name = f"chance={1 - (1 - p) ** len(acts):.6g}" if is_known else "some"

        def with_gradient(losses):
            """Return a function params -> (result of `losses`, gradient of its only loss)."""

            def run(params):
                def losses_of(params):
                    return losses(params, stats, batch, key, static)

                values, vjp, aux = jax.vjp(losses_of, params, has_aux=True)
                (grads,) = vjp(jax.tree.map(jnp.ones_like, values))
                return (values, aux), grads

            return run

        @jax.custom_vjp
        def select(params):
            return select_with_gradient(params)[0]

        def select_with_gradient(params):
            """Return ((losses by name, `base.Aux`), gradient of the parameters)."""
            with jax.named_scope(name):
                return jax.lax.cond(
                    _any_open(acts),
                    with_gradient(algo.losses),
                    with_gradient(plain.losses),
                    params,
                )

        def backward(grads, cotangents):
            (factor,) = cotangents[0].values()
            return (jax.tree.map(lambda g: (factor * g).astype(g.dtype), grads),)

        select.defvjp(select_with_gradient, backward)
        return select(params)

    return algo._replace(losses=losses)


@custom_vmap
def _any_open(acts: Bool[Array, " gates"]) -> Bool[Array, ""]:
    """Return True if any gate is open; under vmap, any gate of any seed."""
    return acts.any()


@_any_open.def_vmap
def _any_open_of_all_seeds(_count, _batched, acts):
    """Return (`any_open`, False): `any_open` is True if any gate of any seed is open.

    False: the first value has no seed axis. All seeds in one program take the
    same branch. This is the rule of `_any_open` for vmap.
    """
    return _any_open(acts.reshape(-1)), False


ALGOS = {"padain": make}
