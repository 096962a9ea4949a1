"""Uniform numbers for several purposes from one call.

A program of many small draws takes seconds to compile on CPU, most of it for the
random bits of each; those of one call take a fraction.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray


def uniforms(key: PRNGKeyArray, *shapes: tuple[int, ...]) -> list[Float[Array, "..."]]:
    """Draws from [0, 1) one array of each shape."""
    sizes = [math.prod(shape) for shape in shapes]
    flat = jax.random.uniform(key, (sum(sizes),))
    parts = jnp.split(flat, np.cumsum(sizes)[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes)]


def below(u: Float[Array, "*shape"], n: int) -> Int[Array, "*shape"]:
    """Turns uniform numbers into whole ones from 0 to n - 1, as likely to 2^-23."""
    return jnp.floor(u * n).astype(jnp.int32)
