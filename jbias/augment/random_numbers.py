"""Random keys for the examples of a batch, and random numbers for several purposes at once.

The key of an example depends on its position in the global batch, so that results do not
depend on the number or layout of devices.

`uniforms` draws arrays for several purposes in one call: a program of many small draws
takes seconds to compile on a CPU, a single call much less.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray


def keys(key: PRNGKeyArray, count: int) -> PRNGKeyArray:
    """Return `count` keys; key i depends only on `key` and i, the index in the global batch."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(count))


def draw_each(draw: Callable, key: PRNGKeyArray, count: int) -> Array:
    """Return the results of draw(key) for `count` examples, stacked; keys: see `keys`."""
    return jax.vmap(draw)(keys(key, count))


def uniforms(key: PRNGKeyArray, *shapes: tuple[int, ...]) -> list[Float[Array, "..."]]:
    """Return a list of arrays of U[0, 1) numbers, one for each shape."""
    sizes = [math.prod(shape) for shape in shapes]
    numbers = jax.random.uniform(key, (sum(sizes),))
    flat_arrays = jnp.split(numbers, np.cumsum(sizes)[:-1])
    return [flat.reshape(shape) for flat, shape in zip(flat_arrays, shapes)]


def integers(u: Float[Array, "*shape"], n: int) -> Int[Array, "*shape"]:
    """Return floor(u n): whole numbers from 0 to n - 1, equally likely up to 2^-23.

    u: U[0, 1) numbers.
    """
    return jnp.floor(u * n).astype(jnp.int32)
