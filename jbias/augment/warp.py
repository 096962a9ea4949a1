"""Affine warps of 8-bit images, in whole numbers and with Pillow's pixels.

An output pixel with centre (x + 1/2, y + 1/2) reads the input at (X, Y), measured from
the upper left corner: X = a (x + 1/2) + b (y + 1/2) + c, Y alike. What reads outside
[0, w) x [0, h) is black. Pillow computes in float64; here positions are whole multiples
of 2^-42 of a pixel, in three limbs of 14 bits, so that every backend, with or without
fused multiply-adds, gives the same pixels, and those are Pillow's.

An image is one int32 per pixel: red + 256 green + 65536 blue. Sides are at most 1024,
which keeps all products below 2^31.
"""

import functools
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from jbias.augment import memory

Pixels = Int[Array, "h w"]
Amount = Float[Array, ""]
Fraction = tuple[Array, Array, Array]  # Limbs of a number in [0, 1).

MOST = 30  # Degrees.
_SIDE = 1024
_LIMB = 14
_MASK = (1 << _LIMB) - 1
_SHEAR = 20  # Shears are multiples of 2^-20.


class Sampler(NamedTuple):
    """How to read between pixels: by operation, (h, w, amount) -> what `read` takes.

    "rotate" turns anticlockwise about the centre by whole degrees, from -30 to 30. The
    shears are X = x + amount y and Y = y + amount x about the upper left corner. The
    translations read `amount` whole pixels further right or down.
    """

    read: Callable[[Pixels, PyTree], Pixels]
    maps: Mapping[str, Callable[[int, int, Amount], PyTree]]


class Ramps(NamedTuple):
    """Where pixels read: X = xx[:, x] + xy[:, y], Y = yx[:, x] + yy[:, y], in limbs."""

    xx: Int[Array, "3 w"]
    xy: Int[Array, "3 h"]
    yx: Int[Array, "3 w"]
    yy: Int[Array, "3 h"]


def bilinear(image: Pixels, where: Ramps) -> Pixels:
    """Mixes the four nearest pixels, those beyond the border clamped; cuts to bytes.

    p00 + (p01 - p00) u + (p10 - p00) v + (p11 - p10 - p01 + p00) u v, rounded down.
    """
    corners = memory.written(_corners, image, where)
    inside_x, _, u = _read(where.xx, where.xy, image.shape[1])
    inside_y, _, v = _read(where.yx, where.yy, image.shape[0])
    weights = [_halves(part) for part in (u, v, _times(u, v))]
    out = jnp.zeros_like(image)
    for place in (0, 8, 16):
        a, b, c, d = ((corner >> place) & 255 for corner in corners)
        steps = b - a, c - a, d - c - b + a
        low = sum(step * weight[1] for step, weight in zip(steps, weights))
        high = sum(step * weight[0] for step, weight in zip(steps, weights))
        out |= (a + ((high + (low >> 21)) >> 21)) << place
    return jnp.where(inside_x & inside_y, out, 0)


def take(table: Int[Array, "n"], index: Int[Array, "*shape"]) -> Int[Array, "*shape"]:
    """table[index], for indices that are known to be in range."""
    return table.at[index].get(mode="promise_in_bounds")


def turn(degrees: int) -> tuple[float, float]:
    """Cosine and sine to 15 decimals, as Pillow has them."""
    angle = -math.radians(degrees % 360)
    return round(math.cos(angle), 15), round(math.sin(angle), 15)


def _corners(image: Pixels, where: Ramps) -> list[Pixels]:
    """The four neighbours of every place that is read."""
    h, w = image.shape
    left, top = _read(where.xx, where.xy, w)[1], _read(where.yx, where.yy, h)[1]
    columns = [jnp.clip(left + i, 0, w - 1) for i in (0, 1)]
    rows = [jnp.clip(top + i, 0, h - 1) * w for i in (0, 1)]
    return [take(image.reshape(-1), row + column) for row in rows for column in columns]


def _read(
    across: Int[Array, "3 w"], down: Int[Array, "3 h"], length: int
) -> tuple[Array, Array, Fraction]:
    """Whether a position is inside, the pixel before it, and how far behind that."""
    low = across[2][None, :] + down[2][:, None]
    middle = across[1][None, :] + down[1][:, None] + (low >> _LIMB)
    high = across[0][None, :] + down[0][:, None] + (middle >> _LIMB)
    inside = (high >= 0) & (high < length << _LIMB)
    high = high - (1 << (_LIMB - 1))  # Pixels have their centres at 1/2.
    return inside, high >> _LIMB, (high & _MASK, middle & _MASK, low & _MASK)


def _times(u: Fraction, v: Fraction) -> Fraction:
    """The product, its limbs below 2^-42 cut off."""
    low = u[0] * v[2] + u[1] * v[1] + u[2] * v[0]
    middle = u[0] * v[1] + u[1] * v[0] + (low >> _LIMB)
    high = u[0] * v[0] + (middle >> _LIMB)
    return high >> _LIMB, high & _MASK, middle & _MASK


def _halves(part: Fraction) -> tuple[Array, Array]:
    """Two limbs of 21 bits: 1020 of one, the most that steps sum to, fit in 31 bits."""
    return (part[0] << 7) | (part[1] >> 7), ((part[1] & 127) << 14) | part[2]


def _fits(h: int, w: int) -> None:
    if max(h, w) > _SIDE:
        raise ValueError(
            f"augment.pillow: sides must be at most {_SIDE} pixels, got {h} by {w}; use"
            " smaller images"
        )


def _rotate(h: int, w: int, degrees: Amount) -> Ramps:
    _fits(h, w)
    index = degrees.astype(jnp.int32) + MOST
    return Ramps(*(jnp.asarray(part)[index] for part in _turns(h, w)))


@functools.cache
def _turns(h: int, w: int) -> tuple[Int[np.ndarray, "n 3 m"], ...]:
    """The four ramps of each angle."""
    cos, sin = np.array([turn(degrees) for degrees in range(-MOST, MOST + 1)]).T
    x, y = np.arange(w) + 0.5 - w / 2, np.arange(h) + 0.5 - h / 2
    cos, sin = cos[:, None], sin[:, None]
    ramps = (cos * x + w / 2, sin * y, -sin * x, cos * y + h / 2)
    return tuple(_limbs(ramp) for ramp in ramps)


def _limbs(x: Float[np.ndarray, "n m"]) -> Int[np.ndarray, "n 3 m"]:
    fixed = np.rint(x * 2.0 ** (3 * _LIMB)).astype(np.int64)
    parts = fixed >> 2 * _LIMB, (fixed >> _LIMB) & _MASK, fixed & _MASK
    return np.stack(parts, 1).astype(np.int32)


def _linear(
    h: int,
    w: int,
    *,
    shear: tuple[Amount | float, Amount | float] = (0.0, 0.0),
    shift: tuple[Amount | float, Amount | float] = (0.0, 0.0),
) -> Ramps:
    """X = x + shear[0] y + shift[0], Y = y + shear[1] x + shift[1]."""
    _fits(h, w)

    def straight(length: int, pixels: Amount | float) -> Int[Array, "3 length"]:
        whole = jnp.asarray(pixels).astype(jnp.int32)
        fixed = (2 * (jnp.arange(length) + whole) + 1) << (_LIMB - 1)
        return jnp.pad(fixed[None], ((0, 2), (0, 0)))

    def sloped(length: int, factor: Amount | float) -> Int[Array, "3 length"]:
        units = jnp.round(factor * 2.0**_SHEAR).astype(jnp.int32)
        fixed = units * (2 * jnp.arange(length) + 1)  # Of 2^-21.
        rest = _SHEAR + 1 - _LIMB
        middle = (fixed & ((1 << rest) - 1)) << (_LIMB - rest)
        return jnp.stack([fixed >> rest, middle, jnp.zeros_like(fixed)])

    return Ramps(
        straight(w, shift[0]),
        sloped(h, shear[0]),
        sloped(w, shear[1]),
        straight(h, shift[1]),
    )


BILINEAR = Sampler(
    bilinear,
    MappingProxyType(
        {
            "rotate": _rotate,
            "shear_x": lambda h, w, amount: _linear(h, w, shear=(amount, 0.0)),
            "shear_y": lambda h, w, amount: _linear(h, w, shear=(0.0, amount)),
            "translate_x": lambda h, w, amount: _linear(h, w, shift=(amount, 0.0)),
            "translate_y": lambda h, w, amount: _linear(h, w, shift=(0.0, amount)),
        }
    ),
)
