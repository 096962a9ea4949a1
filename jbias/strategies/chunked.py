"""Kernel gradients of convolutions in chunks of the batch, for CPUs.

XLA's CPU backend computes the gradient of a kernel as a convolution whose kernel is as
large as the image, three times slower than the forward pass and hardly in parallel. As a
sum over chunks of the batch it takes about half the time (`python -m benchmarks.train
--whole`).
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.extend import core

from jbias.strategies import rewrite

MOST = 8  # Chunks.
LEAST = 512  # Products that each number of a chunk's gradient sums.


def kernel_gradients(one: Callable) -> Callable:
    """The step (state, arg, shared, static) -> outs, up to the order of float sums.

    For a batch that lies on one device: the chunks of a shared one would cross devices.
    """
    return rewrite.convolutions(one, _in_chunks)


def _in_chunks(eqn: core.JaxprEqn) -> Callable | None:
    kernel, outs = map(math.prod, rewrite.extents(eqn))
    if kernel <= outs or rewrite.in_groups(eqn):
        return None  # No gradient of a kernel.
    lhs, rhs, _ = eqn.params["dimension_numbers"]
    examples = eqn.invars[0].aval.shape[lhs[1]]
    fits = (c for c in range(MOST, 1, -1) if examples % c == 0)
    count = next((c for c in fits if examples // c * kernel >= LEAST), 1)
    if count == 1:
        return None
    size = examples // count
    plain = functools.partial(eqn.primitive.bind, **eqn.params)

    @jax.jit
    def convolution(images, gradients):
        def chunk(i: int):
            cut = (i * size, (i + 1) * size)
            x = jax.lax.slice_in_dim(images, *cut, axis=lhs[1])
            return plain(x, jax.lax.slice_in_dim(gradients, *cut, axis=rhs[1]))

        return functools.reduce(jnp.add, map(chunk, range(count)))

    return convolution
