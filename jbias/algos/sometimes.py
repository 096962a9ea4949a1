"""Algorithms whose gates are shut in most steps: a step is theirs, or a plain one."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool

from jbias.algos import base
from jbias.runtime import xla


def make(algo: base.Algo, plain: base.Algo, gates: Callable, p: Any) -> base.Algo:
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
            def found(params):
                found, push, aux = jax.vjp(
                    lambda params: losses(params, *given, static), params, has_aux=True
                )
                (grads,) = push(jax.tree.map(jnp.ones_like, found))
                return (found, aux), grads

            return found

        @jax.custom_vjp
        def either(params):
            return both(params)[0]

        def both(params):
            with jax.named_scope(name):
                return jax.lax.cond(
                    _any(acts), way(algo.losses), way(plain.losses), params
                )

        def gradient(grads, given):
            (times,) = given[0].values()
            return (jax.tree.map(lambda g: (times * g).astype(g.dtype), grads),)

        either.defvjp(both, gradient)
        return either(params)

    return algo._replace(losses=losses)


@custom_vmap
def _any(acts: Bool[Array, " gates"]) -> Bool[Array, ""]:
    return acts.any()


@_any.def_vmap
def _of_all_seeds(_count, _batched, acts):
    """Seeds in one program take one branch together."""
    return _any(acts.reshape(-1)), False
