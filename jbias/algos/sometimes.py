"""Algorithms whose gates are shut for most steps: a step is theirs, or a plain one."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, PRNGKeyArray, PyTree

from jbias import xla
from jbias.algos import base


def make(
    algo: base.Algo,
    plain: base.Algo,
    gates: Callable[[PRNGKeyArray], Bool[Array, " gates"]],
    p: float,
) -> base.Algo:
    """`algo`, computed as `plain` in steps in which none of its gates is open.

    gates(key) tells of each whether it is open, with chance p; where none is, both give
    the same loss, up to rounding. Each way computes its gradient within its branch:
    what passes even a shut gate must lie in a device's main memory. On a CPU, where that
    costs nothing, gates alone decide, and bits are those of runs before.
    """

    def losses(params, stats, batch, key, static=None):
        if xla.platform() == "cpu":
            return algo.losses(params, stats, batch, key, static)
        acts = gates(key)
        chance = 1 - (1 - p) ** len(acts) if isinstance(p, int | float) else None
        how = (plain.losses, algo.losses, static, chance)
        return _either(how, params, _any(acts), (stats, batch, key))

    return algo._replace(losses=losses)


def _with_gradient(losses: Callable, static: Any, params: PyTree, rest: tuple):
    stats, batch, key = rest
    found, push, aux = jax.vjp(
        lambda params: losses(params, stats, batch, key, static), params, has_aux=True
    )
    ones = jax.tree.map(jnp.ones_like, found)
    return (found, aux), push(ones)[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _either(how, params, acts, rest):
    return _found(how, params, acts, rest)[0]


def _found(how, params, acts, rest):
    *losses, static, chance = how
    shut, some = (functools.partial(_with_gradient, one, static) for one in losses)
    # The name is what training/hlo.py reads the chance from.
    with jax.named_scope("some" if chance is None else f"chance={chance:.4f}"):
        return jax.lax.cond(acts, some, shut, params, rest)


def _gradient(_how, grads, given):
    """Of the one loss: its cotangent times the gradient that is there."""
    (times,) = given[0].values()
    return jax.tree.map(lambda g: times * g, grads), None, None


_either.defvjp(_found, _gradient)


@custom_vmap
def _any(acts: Bool[Array, " gates"]) -> Bool[Array, ""]:
    return acts.any()


@_any.def_vmap
def _of_all_seeds(_count, _batched, acts):
    """Seeds in one program take one branch together."""
    return acts.any(), False
