"""Pillow's image operations to the bit, a different one for each image of a batch.

Under vmap a `lax.switch` computes every operation for every image. So operations come in
three kinds, and only numbers differ between images: warps take the coordinates they read
from, tables the new value of each old one, blends a degenerate image and a factor. An image
costs one warp, one table and one blend, whatever it draws: with the 13 operations of
AugMix, on one CPU core, 13 us at 32 pixels and 50 at 64; a switch takes 150 and 730.

An image is one int32 per pixel: red + 256 green + 65536 blue (`pack`, `unpack`). Amounts
are: of "rotate" whole degrees anticlockwise, -30 to 30; of shears pixels per pixel; of
translations whole pixels by which the reading point moves right or down; of "posterize" the
bits kept; of "solarize" the threshold; of blends the factor.

Pixels are those of Pillow 13.0 on x86-64, computed in integers and exact products alone, so
that no backend differs. Rotations by 30 degrees, at odd sizes by 15, may be off by one
level at a pixel in thousands: there interpolated values may be whole numbers, and Pillow's
float64 falls to either side of them.

Bilinear warps: an output pixel with centre (x + 1/2, y + 1/2) reads the input at (X, Y),
measured from the upper left corner: X = a (x + 1/2) + b (y + 1/2) + c, Y alike. What reads
outside [0, w) x [0, h) is black. Pillow computes in float64; here positions are multiples
of 2^-42 of a pixel, in three limbs of 14 bits, which gives Pillow's pixels with or without
fused multiply-adds. Sides are at most 1024, which keeps all products below 2^31.

Nearest warps use Pillow's 16 fractional bits: X = (a x + b y + c) >> 16 and Y alike, of
integers.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree, UInt32

from jbias.augment import memory

Pixels = Int[Array, "h w"]
Amount = Float[Array, ""]
Pair = tuple[Amount | float, Amount | float]
_NONE: Pair = (0.0, 0.0)
Fraction = tuple[Array, Array, Array]  # Limbs of a number in [0, 1).

MAX_ANGLE = 30  # Degrees.
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
    corners = memory.materialize(_corners, image, where)
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


def cosine_and_sine(degrees: int) -> tuple[float, float]:
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
        must = f"augment.pillow: sides must be at most {_SIDE} pixels"
        raise ValueError(f"{must}, got {h} by {w}; use smaller images")


def _rotate(h: int, w: int, degrees: Amount) -> Ramps:
    _fits(h, w)
    index = degrees.astype(jnp.int32) + MAX_ANGLE
    return Ramps(*(jnp.asarray(part)[index] for part in _turns(h, w)))


@functools.cache
def _turns(h: int, w: int) -> tuple[Int[np.ndarray, "n 3 m"], ...]:
    """The four ramps of each angle."""
    angles = range(-MAX_ANGLE, MAX_ANGLE + 1)
    cos, sin = np.array([cosine_and_sine(degrees) for degrees in angles]).T
    x, y = np.arange(w) + 0.5 - w / 2, np.arange(h) + 0.5 - h / 2
    cos, sin = cos[:, None], sin[:, None]
    ramps = (cos * x + w / 2, sin * y, -sin * x, cos * y + h / 2)
    return tuple(_limbs(ramp) for ramp in ramps)


def _limbs(x: Float[np.ndarray, "n m"]) -> Int[np.ndarray, "n 3 m"]:
    fixed = np.rint(x * 2.0 ** (3 * _LIMB)).astype(np.int64)
    parts = fixed >> 2 * _LIMB, (fixed >> _LIMB) & _MASK, fixed & _MASK
    return np.stack(parts, 1).astype(np.int32)


def _linear(h: int, w: int, *, shear: Pair = _NONE, shift: Pair = _NONE) -> Ramps:
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

    x = straight(w, shift[0]), sloped(h, shear[0])
    return Ramps(*x, sloped(w, shear[1]), straight(h, shift[1]))


def _sampler(read: Callable, rotate: Callable, linear: Callable) -> Sampler:
    maps = {
        "rotate": rotate,
        "shear_x": lambda h, w, amount: linear(h, w, shear=(amount, 0.0)),
        "shear_y": lambda h, w, amount: linear(h, w, shear=(0.0, amount)),
        "translate_x": lambda h, w, amount: linear(h, w, shift=(amount, 0.0)),
        "translate_y": lambda h, w, amount: linear(h, w, shift=(0.0, amount)),
    }
    return Sampler(read, maps)


BILINEAR = _sampler(bilinear, _rotate, _linear)

_UNIT, _HALF = 1 << 16, 1 << 15


def nearest(image: Pixels, matrix: Int[Array, "6"]) -> Pixels:
    """Takes the pixel that is read."""
    h, w = image.shape
    x, y = jnp.arange(w)[None, :], jnp.arange(h)[:, None]
    column = (matrix[0] * x + matrix[1] * y + matrix[2]) >> 16
    row = (matrix[3] * x + matrix[4] * y + matrix[5]) >> 16
    inside = (column >= 0) & (column < w) & (row >= 0) & (row < h)
    index = jnp.clip(row, 0, h - 1) * w + jnp.clip(column, 0, w - 1)
    return jnp.where(inside, take(image.reshape(-1), index), 0)


def _linear_nearest(
    h: int, w: int, *, shear: Pair = _NONE, shift: Pair = _NONE
) -> Int[Array, "6"]:
    """As `_linear`; a shear in 16 bits, and what it adds at half a pixel, are rounded."""

    def rounded(x: Amount) -> Int[Array, ""]:
        return jnp.floor(x + 0.5).astype(jnp.int32)

    slopes = [jnp.asarray(x) for x in shear]
    slope, start = ([rounded(x * unit) for x in slopes] for unit in (_UNIT, _HALF))
    whole = (jnp.asarray(pixels).astype(jnp.int32) for pixels in shift)
    c, f = (_HALF + half + pixels * _UNIT for half, pixels in zip(start, whole))
    return jnp.stack([jnp.int32(_UNIT), slope[0], c, slope[1], jnp.int32(_UNIT), f])


def _rotate_nearest(h: int, w: int, degrees: Amount) -> Int[Array, "6"]:
    return jnp.asarray(_nearest_turns(h, w))[degrees.astype(jnp.int32) + MAX_ANGLE]


@functools.cache
def _nearest_turns(h: int, w: int) -> Int[np.ndarray, "n 6"]:
    """The matrix of each angle, by the additions that Pillow does in float64."""
    rows = []
    for degrees in range(-MAX_ANGLE, MAX_ANGLE + 1):
        cos, sin = cosine_and_sine(degrees)
        c = cos * (-w / 2) + sin * (-h / 2) + w / 2
        f = -sin * (-w / 2) + cos * (-h / 2) + h / 2
        start = c + cos * 0.5 + sin * 0.5, f + -sin * 0.5 + cos * 0.5
        row = (cos, sin, start[0], -sin, cos, start[1])
        rows.append([math.floor(x * _UNIT + 0.5) for x in row])
    return np.array(rows, np.int32)


NEAREST = _sampler(nearest, _rotate_nearest, _linear_nearest)

Table = Int[Array, "3 256"]


def pack(image: Float[Array, "h w 3"]) -> Pixels:
    """Rounds [0, 1] to bytes."""
    levels = jnp.clip(jnp.round(image * 255), 0, 255).astype(jnp.int32)
    return join_channels(levels[..., i] for i in range(3))


def unpack(pixels: Pixels) -> Float[Array, "h w 3"]:
    """Bytes as [0, 1]."""
    return jnp.stack(split_channels(pixels), -1).astype(jnp.float32) / 255


def split_channels(pixels: Pixels) -> tuple[Pixels, Pixels, Pixels]:
    """The three channels, from 0 to 255."""
    return pixels & 255, (pixels >> 8) & 255, pixels >> 16


def join_channels(channels) -> Pixels:
    """One number per pixel of three channels."""
    red, green, blue = channels
    return red | (green << 8) | (blue << 16)


def look_up(pixels: Pixels, table: Table) -> Pixels:
    """Replaces each value by the table's."""
    channels = enumerate(split_channels(pixels))
    return join_channels(take(table[i], x) for i, x in channels)


def identity_table() -> Table:
    """Every value its own."""
    return jnp.broadcast_to(jnp.arange(256), (3, 256))


def posterize(bits: Float[Array, ""]) -> Table:
    """Keeps the highest bits."""
    return identity_table() & (255 << (8 - bits.astype(jnp.int32)))


def solarize(threshold: Float[Array, ""]) -> Table:
    """Inverts values from the threshold on."""
    same = identity_table()
    return jnp.where(same < threshold, same, 255 - same)


def equalize(pixels: Pixels) -> Table:
    """Spreads each channel's values, so that all are about as frequent.

    With n pixels, of which c are of the largest value, and s = (n - c) // 255:
    (s // 2 + pixels of smaller value) // s, at most 255; the identity where s is 0.
    """
    counts = jnp.stack([histogram(x) for x in split_channels(pixels)])
    top = jnp.stack([jnp.max(x) for x in split_channels(pixels)])
    largest = jnp.take_along_axis(counts, top[:, None], 1)
    step = (pixels.size - largest) // 255
    below = jnp.cumsum(counts, 1) - counts
    spread = _quotient(step // 2 + below, jnp.maximum(step, 1))
    return jnp.where(step == 0, identity_table(), jnp.minimum(spread, 255))


def histogram(channel: Pixels) -> Int[Array, "256"]:
    """How many pixels have each value."""
    empty = jnp.zeros(256, jnp.int32)
    return empty.at[channel.reshape(-1)].add(1, mode="promise_in_bounds")


def autocontrast(pixels: Pixels) -> Table:
    """Stretches each channel to 0 ... 255; one of a single value stays as it is.

    floor(255 (i - lo) / (hi - lo)), less one where Pillow's float64 falls below a whole
    number that is the exact answer.
    """
    low = jnp.stack([jnp.min(x) for x in split_channels(pixels)])
    high = jnp.stack([jnp.max(x) for x in split_channels(pixels)])
    words, periods = _shortfalls()
    first, second = jnp.asarray(words)[low, high].T[..., None]
    low, high = low[:, None], high[:, None]
    span = jnp.maximum(high - low, 1)
    step = jnp.clip(identity_table() - low, 0, span)
    stretched = _quotient(255 * step, span)
    tie = _quotient(step, jnp.asarray(periods)[span])
    bit = jnp.where(tie < 32, first, second) >> (tie & 31).astype(jnp.uint32)
    short = (stretched * span == 255 * step) & ((bit & 1) == 1)
    return jnp.where(high > low, stretched - short, identity_table())


def _quotient(n: Int[Array, "3 256"], d: Int[Array, "3 1"]) -> Int[Array, "3 256"]:
    """n // d, for answers below 2^20: whole numbers are slow to divide in vectors."""
    guess = jnp.floor(n * (1 / d.astype(jnp.float32))).astype(jnp.int32)
    rest = n - guess * d
    return guess + (rest >= d) - (rest < 0)


@functools.cache
def _shortfalls() -> tuple[UInt32[np.ndarray, "256 256 2"], Int[np.ndarray, "256"]]:
    """Where int(i s - lo s), s = 255 / (hi - lo) in float64, is below the exact floor.

    Bit t of entry (lo, hi) is of the t-th value whose answer is a whole number, which
    come every `period` values from lo on.
    """
    periods = np.array([d // math.gcd(d, 255) for d in range(256)], np.int32)
    words = np.zeros((256, 256), np.uint64)
    i = np.arange(256)
    for low in range(255):
        for high in range(low + 1, 256):
            span = high - low
            ties = i[low : high + 1 : periods[span]]
            scale = 255.0 / span
            exact = 255 * (ties - low) // span
            short = (ties * scale + -low * scale).astype(int) < exact
            words[low, high] = sum(1 << int(t) for t in np.flatnonzero(short))
    return np.stack([words & 0xFFFFFFFF, words >> 32], -1).astype(np.uint32), periods


def luma(pixels: Pixels) -> Pixels:
    """Grey of an image: 0.299 R + 0.587 G + 0.114 B in 16 bits, rounded."""
    red, green, blue = split_channels(pixels)
    return (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16


def grey(pixels: Pixels) -> Pixels:
    """The image without colour."""
    return luma(pixels) * 0x010101


def mean_grey(pixels: Pixels) -> Pixels:
    """One grey all over: the mean luma, rounded."""
    mean = (2 * jnp.sum(luma(pixels)) + pixels.size) // (2 * pixels.size)
    return jnp.broadcast_to(mean * 0x010101, pixels.shape)


def smooth(pixels: Pixels) -> Pixels:
    """The mean of 3 x 3 pixels, the central one five times, rounded; not at borders."""
    h, w = pixels.shape
    if h < 3 or w < 3:
        return pixels

    def one(channel: Pixels) -> Pixels:
        rows = channel[:-2] + channel[1:-1] + channel[2:]
        box = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]
        double = 2 * (box + 4 * channel[1:-1, 1:-1]) + 13
        return (double * 10083) >> 18  # Over 26, exactly, for all that bytes sum to.

    inner = join_channels(one(x) for x in split_channels(pixels))
    return pixels.at[1:-1, 1:-1].set(inner)


def blend(degenerate: Pixels, pixels: Pixels, factor: Float[Array, ""]) -> Pixels:
    """degenerate + factor (image - degenerate), cut to bytes, in float32 as Pillow.

    The product is rounded before the sum is: it is put together of two exact ones, so
    that fusing a multiplication with an addition changes nothing.
    """
    factor = jnp.asarray(factor, jnp.float32)
    bits = jax.lax.bitcast_convert_type(factor, jnp.int32) & ~0x1FF
    coarse = jax.lax.bitcast_convert_type(bits, jnp.float32)
    fine = factor - coarse

    def one(start: Pixels, end: Pixels) -> Pixels:
        step = (end - start).astype(jnp.float32)
        value = start.astype(jnp.float32) + (coarse * step + fine * step)
        return jnp.clip(value, 0, 255).astype(jnp.int32)

    return join_channels(map(one, split_channels(degenerate), split_channels(pixels)))


WARPS = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
# (image, amount) -> the new value of each old one.
TABLES: Mapping[str, Callable[[Pixels, Amount], Table]] = {
    "autocontrast": lambda image, amount: autocontrast(image),
    "equalize": lambda image, amount: equalize(image),
    "posterize": lambda image, amount: posterize(amount),
    "solarize": lambda image, amount: solarize(amount),
}
# image -> what the factor leads away from.
BLENDS: Mapping[str, Callable[[Pixels], Pixels]] = {
    "colour": grey,
    "contrast": mean_grey,
    "brightness": jnp.zeros_like,
    "sharpness": smooth,
}


def apply(
    image: Pixels, kind: Array, amount: Amount, names: Sequence[str], sampler=BILINEAR
) -> Pixels:
    """Applies names[kind] as a warp, a table and a blend, two of which do nothing."""

    def pick(start: PyTree, known: Sequence[str], make: Callable) -> PyTree:
        for i, name in enumerate(names):
            if name in known:
                choose = functools.partial(jnp.where, kind == i)
                start = jax.tree.map(choose, make(name), start)
        return start

    def place() -> PyTree:
        still = sampler.maps["translate_x"](*image.shape, jnp.zeros_like(amount))
        return pick(still, WARPS, lambda n: sampler.maps[n](*image.shape, amount))

    def table(image: Pixels) -> Table:
        return pick(identity_table(), TABLES, lambda n: TABLES[n](image, amount))

    def blended(image: Pixels) -> Pixels:
        return blend(pick(image, BLENDS, lambda n: BLENDS[n](image)), image, amount)

    if set(names) & set(WARPS):
        image = memory.materialize(sampler.read, image, memory.materialize(place))
    if set(names) & set(TABLES):
        image = memory.materialize(look_up, image, memory.materialize(table, image))
    if set(names) & set(BLENDS):
        image = memory.materialize(blended, image)
    return image
