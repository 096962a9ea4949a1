"""Affine warps that take the nearest pixel, with the 16 bits that Pillow has for them.

X = (a x + b y + c) >> 16 and Y alike, of whole numbers; what reads outside is black.
"""

import functools
import math
from types import MappingProxyType

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from jbias.augment import warp
from jbias.augment.warp import Amount, Pixels

_ONE, _HALF = 1 << 16, 1 << 15


def nearest(image: Pixels, matrix: Int[Array, "6"]) -> Pixels:
    """Takes the pixel that is read."""
    h, w = image.shape
    x, y = jnp.arange(w)[None, :], jnp.arange(h)[:, None]
    column = (matrix[0] * x + matrix[1] * y + matrix[2]) >> 16
    row = (matrix[3] * x + matrix[4] * y + matrix[5]) >> 16
    inside = (column >= 0) & (column < w) & (row >= 0) & (row < h)
    index = jnp.clip(row, 0, h - 1) * w + jnp.clip(column, 0, w - 1)
    return jnp.where(inside, warp.take(image.reshape(-1), index), 0)


def _matrix(*entries: Array | int) -> Int[Array, "6"]:
    return jnp.stack([jnp.asarray(entry, jnp.int32) for entry in entries])


def _slope(factor: Amount) -> tuple[Array, Array]:
    """The factor in 16 bits, and what it adds at half a pixel, each rounded."""
    slope = jnp.floor(factor * _ONE + 0.5).astype(jnp.int32)
    return slope, _HALF + jnp.floor(factor * _HALF + 0.5).astype(jnp.int32)


def _shear_x(h: int, w: int, amount: Amount) -> Int[Array, "6"]:
    slope, start = _slope(amount)
    return _matrix(_ONE, slope, start, 0, _ONE, _HALF)


def _shear_y(h: int, w: int, amount: Amount) -> Int[Array, "6"]:
    slope, start = _slope(amount)
    return _matrix(_ONE, 0, _HALF, slope, _ONE, start)


def _translate_x(h: int, w: int, amount: Amount) -> Int[Array, "6"]:
    start = _HALF + amount.astype(jnp.int32) * _ONE
    return _matrix(_ONE, 0, start, 0, _ONE, _HALF)


def _translate_y(h: int, w: int, amount: Amount) -> Int[Array, "6"]:
    start = _HALF + amount.astype(jnp.int32) * _ONE
    return _matrix(_ONE, 0, _HALF, 0, _ONE, start)


def _rotate(h: int, w: int, degrees: Amount) -> Int[Array, "6"]:
    return jnp.asarray(_turns(h, w))[degrees.astype(jnp.int32) + warp.MOST]


@functools.cache
def _turns(h: int, w: int) -> Int[np.ndarray, "n 6"]:
    """The matrix of each angle, by the additions that Pillow does in float64."""
    rows = []
    for degrees in range(-warp.MOST, warp.MOST + 1):
        cos, sin = warp.turn(degrees)
        c = cos * (-w / 2) + sin * (-h / 2) + w / 2
        f = -sin * (-w / 2) + cos * (-h / 2) + h / 2
        start = c + cos * 0.5 + sin * 0.5, f + -sin * 0.5 + cos * 0.5
        row = (cos, sin, start[0], -sin, cos, start[1])
        rows.append([math.floor(x * _ONE + 0.5) for x in row])
    return np.array(rows, np.int32)


NEAREST = warp.Sampler(
    nearest,
    MappingProxyType(
        {
            "rotate": _rotate,
            "shear_x": _shear_x,
            "shear_y": _shear_y,
            "translate_x": _translate_x,
            "translate_y": _translate_y,
        }
    ),
)
