"""A function that makes XLA compute a value once, not anew for each of its uses."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from jbias.runtime import xla


def materialize(f: Callable, *args: PyTree) -> PyTree:
    """Return f(*args), computed once and written to memory before it is used.

    XLA on a CPU fuses computations, also gathers, into every use and repeats them: a table
    once per pixel, which made `equalize` eight times slower. The border of a loop prevents
    this (an optimization_barrier does not). Other backends consider the cost of fusion; there,
    the result is f(*args) without a loop.
    """
    if xla.platform() != "cpu":
        return f(*args)

    def compute_once(i: Array, out: PyTree) -> PyTree:
        return jax.lax.cond(i == 0, lambda _: f(*args), lambda out: out, out)

    start = jax.tree.map(jnp.zeros_like, jax.eval_shape(f, *args))
    return jax.lax.fori_loop(0, 2, compute_once, start)
