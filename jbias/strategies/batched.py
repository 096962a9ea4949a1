"""The step of one seed vectorised over seeds, without grouped convolutions.

Under plain `jax.vmap` a convolution whose kernel differs from seed to seed becomes a
grouped one, which is slow on most backends. Here each convolution of the traced step
gives way to one with a batching rule of its own, and the rest is left to `jax.vmap`.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.extend import core

from jbias.strategies import rewrite


def over_seeds(one: Callable) -> Callable:
    """Maps (state, arg, shared, static) -> outs over leading seed axes.

    The result takes states and args with a leading axis of seeds, and gives outs with
    one; `shared` has none. Where image and kernel both differ between seeds, each seed
    has an ordinary convolution. What only one operand has a seed axis of is folded into
    the batch or the features, as jax does.
    """
    alone = rewrite.convolutions(one, _convolution)

    def many(states, args, shared, static):
        each = jax.vmap(lambda state, arg: alone(state, arg, shared, static))
        return each(states, args)

    return many


def _convolution(eqn: core.JaxprEqn) -> Callable:
    """The same convolution, with a batching rule of its own."""
    plain = functools.partial(eqn.primitive.bind, **eqn.params)

    @custom_vmap
    def convolution(lhs, rhs):
        return plain(lhs, rhs)

    @convolution.def_vmap
    def rule(seeds, batched, lhs, rhs):
        if not all(batched):
            axes = tuple(0 if here else None for here in batched)
            return jax.vmap(plain, axes)(lhs, rhs), True
        at = functools.partial(jax.lax.index_in_dim, keepdims=False)
        return jnp.stack([plain(at(lhs, i), at(rhs, i)) for i in range(seeds)]), True

    return convolution
