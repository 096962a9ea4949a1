"""Keeps XLA from computing a value anew for everything that uses it."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from jbias.runtime import xla


def materialize(f: Callable, *args: PyTree) -> PyTree:
    """f(*args), put into memory before it is used.

    XLA on CPU fuses what it can into every use, gathers too, and computes it again for
    each: a table once per pixel, which made `equalize` eight times slower. The border
    of a loop stops it (an optimization_barrier does not). Other backends weigh the cost
    of that themselves: there nothing is added.
    """
    if xla.platform() != "cpu":
        return f(*args)

    def turn(i: Array, out: PyTree) -> PyTree:
        return jax.lax.cond(i == 0, lambda _: f(*args), lambda out: out, out)

    start = jax.tree.map(jnp.zeros_like, jax.eval_shape(f, *args))
    return jax.lax.fori_loop(0, 2, turn, start)
