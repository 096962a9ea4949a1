"""The max-pool of ResNets' and DenseNets' stems, with a gradient that GPUs compute faster.

XLA's gradient of a max-pool (select-and-scatter) reads the input again and adds by atomic
operations. Here the forward pass keeps for each window which of its nine pixels is the
largest, one byte, and the gradient of a pixel is gathered from the at most four windows that
hold it. Of equal pixels the first takes all, in rows from the top left, as in XLA's.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import lax
from jaxtyping import Array, Float

from jbias.runtime import xla

_SIZE, _STRIDE = 3, 2


def max_pool_of_stem(x: Float[Array, "b h w c"]) -> Float[Array, "b h2 w2 c"]:
    """Return the maxima of 3x3 windows at every second pixel, borders padded by one."""
    if xla.platform() == "gpu":
        return _gathered(x)
    return nn.max_pool(x, (_SIZE, _SIZE), (_STRIDE, _STRIDE), ((1, 1), (1, 1)))


@jax.custom_vjp
def _gathered(x: Array) -> Array:
    return nn.max_pool(x, (_SIZE, _SIZE), (_STRIDE, _STRIDE), ((1, 1), (1, 1)))


def _forward(x: Array) -> tuple[Array, tuple]:
    """Return the maxima; which pixel of its window each is, and the images' sides."""
    padded = jnp.pad(
        x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=jnp.array(-np.inf, x.dtype)
    )
    sides = tuple(_pooled(n) for n in x.shape[1:3])
    largest, place = None, None
    for number in range(_SIZE**2):
        row, column = divmod(number, _SIZE)
        pixel = padded[
            :,
            row : row + _STRIDE * sides[0] - 1 : _STRIDE,
            column : column + _STRIDE * sides[1] - 1 : _STRIDE,
        ]
        if largest is None:
            largest, place = pixel, jnp.zeros(pixel.shape, jnp.uint8)
        else:
            place = jnp.where(pixel > largest, jnp.uint8(number), place)
            largest = jnp.maximum(largest, pixel)
    return largest, (place, x.shape[1:3])


def _backward(kept: tuple, gradient: Array) -> tuple[Array]:
    """Return the gradient of the images from that of the maxima."""
    place, sides = kept
    total = None
    for number in range(_SIZE**2):
        own = jnp.where(place == number, gradient, jnp.zeros((), gradient.dtype))
        # To where pixel `number` of each window lies in the images without their border.
        padding = [(0, 0, 0)]
        for offset, side in zip(divmod(number, _SIZE), sides, strict=True):
            before = offset - 1
            length = _STRIDE * (_pooled(side) - 1) + 1
            padding.append((before, side - before - length, _STRIDE - 1))
        padding.append((0, 0, 0))
        own = lax.pad(own, jnp.zeros((), own.dtype), padding)
        total = own if total is None else total + own
    return (total,)


def _pooled(side: int) -> int:
    """Return how many windows a side has."""
    return (side + 2 - _SIZE) // _STRIDE + 1


_gathered.defvjp(_forward, _backward)
