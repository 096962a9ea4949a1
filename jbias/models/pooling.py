"""The max-pool of ResNets' and DenseNets' stems, with a gradient that GPUs compute faster.

XLA's gradient of a max-pool (select-and-scatter) reads the input again and adds by atomic
operations. Here the forward pass stores one byte for each window, the index of its largest
pixel. The gradient of a pixel is gathered from the windows that cover it, at most four. If
several pixels of a window are the largest, the first of these pixels (row by row from the top
left) gets the whole gradient, as with XLA.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import lax
from jaxtyping import Array, Float, UInt8

from jbias.runtime import xla

_SIZE = 3
_STRIDE = 2
# For each window the index of its largest pixel, 0 to 8, row by row; and the image's sides.
_Residuals = tuple[UInt8[Array, "b h2 w2 c"], tuple[int, int]]


def max_pool_of_stem(x: Float[Array, "b h w c"]) -> Float[Array, "b h2 w2 c"]:
    """Return the maxima of 3x3 windows of stride 2, with borders padded by one pixel."""
    return _max_pool_for_gpu(x) if xla.platform() == "gpu" else _max_pool(x)


def _max_pool(x: Float[Array, "b h w c"]) -> Float[Array, "b h2 w2 c"]:
    """Return the maxima of 3x3 windows of stride 2; the gradient is XLA's own."""
    return nn.max_pool(x, (_SIZE, _SIZE), (_STRIDE, _STRIDE), ((1, 1), (1, 1)))


_max_pool_for_gpu = jax.custom_vjp(_max_pool)


def _forward(
    x: Float[Array, "b h w c"],
) -> tuple[Float[Array, "b h2 w2 c"], _Residuals]:
    """Return the maxima of the windows, as `_max_pool` does, and residuals for `_backward`.

    The residuals are the number of the first maximum in each window, counted row by row from 0,
    and (h, w).
    """
    padded = jnp.pad(
        x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=jnp.array(-np.inf, x.dtype)
    )
    rows, columns = (_count_windows(side) for side in x.shape[1:3])
    largest = None
    largest_number = None
    for number in range(_SIZE**2):
        row, column = divmod(number, _SIZE)
        pixel = padded[
            :,
            row : row + _STRIDE * rows - 1 : _STRIDE,
            column : column + _STRIDE * columns - 1 : _STRIDE,
        ]
        if largest is None:
            largest, largest_number = pixel, jnp.zeros(pixel.shape, jnp.uint8)
        else:
            larger = pixel > largest
            largest_number = jnp.where(larger, jnp.uint8(number), largest_number)
            largest = jnp.maximum(largest, pixel)
    return largest, (largest_number, x.shape[1:3])


def _backward(
    residuals: _Residuals, gradient: Float[Array, "b h2 w2 c"]
) -> tuple[Float[Array, "b h w c"]]:
    """Return a tuple of the gradient of the images, given the gradient of the maxima."""
    largest_number, sides = residuals
    zero = jnp.zeros((), gradient.dtype)
    total = None
    for number in range(_SIZE**2):
        of_pixel = jnp.where(largest_number == number, gradient, zero)
        # Lay it out at pixel `number` of each window, in the images without their border.
        padding = [(0, 0, 0)]
        for offset, side in zip(divmod(number, _SIZE), sides, strict=True):
            low = offset - 1
            length = _STRIDE * (_count_windows(side) - 1) + 1
            padding.append((low, side - low - length, _STRIDE - 1))
        padding.append((0, 0, 0))
        of_pixel = lax.pad(of_pixel, zero, padding)
        total = of_pixel if total is None else total + of_pixel
    return (total,)


def _count_windows(side: int) -> int:
    """Return the number of windows along a side of this many pixels."""
    return (side + 2 - _SIZE) // _STRIDE + 1


_max_pool_for_gpu.defvjp(_forward, _backward)
