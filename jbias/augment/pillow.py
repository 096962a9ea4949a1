"""Pillow's image operations, equal to the bit, with a different operation for each image.

Under vmap a `lax.switch` computes every operation for every image. Operations are therefore
of three kinds that differ only in their arguments: warps take the positions that are read,
tables the new value of each old value, blends a degenerate image and a factor. Every image
costs one warp, one table and one blend: with the 13 operations of AugMix, on one CPU core,
13 us at 32 pixels and 50 at 64; a switch takes 150 and 730.

An image is one int32 per pixel: red + 256 green + 65536 blue (`pack`, `unpack`). Amounts
are: for "rotate" whole degrees anticlockwise, -30 to 30; for shears pixels per pixel; for
translations whole pixels by which the position that is read moves right or down; for
"posterize" the number of bits to keep; for "solarize" the threshold; for blends the factor.

Pixels are as in Pillow 13.0 on x86-64, computed only by integers and exact products, so
that all backends agree. Rotations by 30 degrees, at odd sizes by 15, may differ by one level at
one pixel in thousands. There, interpolated values may be whole numbers, and Pillow's float64
rounds them in either direction.

Bilinear warps: an output pixel with centre (x + 1/2, y + 1/2) reads the input at (X, Y),
measured from the upper left corner: X = a (x + 1/2) + b (y + 1/2) + c and
Y = d (x + 1/2) + e (y + 1/2) + f.
Positions outside [0, w) x [0, h) give black. Pillow computes in float64; here positions are
multiples of 2^-42 of a pixel, in three limbs of 14 bits, which gives Pillow's pixels with or
without fused multiply-adds. Sides are at most 1024, which keeps all products below 2^31.

Nearest-neighbour warps use Pillow's 16 fractional bits, in integers:
X = (a x + b y + c) >> 16 and Y = (d x + e y + f) >> 16.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
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
_MAX_SIDE = 1024
_LIMB = 14  # Bits.
_MASK = (1 << _LIMB) - 1
_SHEAR = 20  # Shears are multiples of 2^-20.


class Interpolation(NamedTuple):
    """A kind of interpolation: reads an image at the positions that an operation defines.

    read: (image, positions) -> image.
    maps: operation -> (h, w, amount) -> positions. "rotate" is anticlockwise about the
      centre by whole degrees, from -30 to 30. Shears are X = x + amount y and
      Y = y + amount x about the upper left corner. Translations read `amount` whole pixels
      further right or down.
    """

    read: Callable[[Pixels, PyTree], Pixels]
    maps: Mapping[str, Callable[[int, int, Amount], PyTree]]


class Ramps(NamedTuple):
    """The position (X, Y) that each pixel (x, y) of the result reads, in limbs.

    X = xx[:, x] + xy[:, y], Y = yx[:, x] + yy[:, y].
    """

    xx: Int[Array, "3 w"]
    xy: Int[Array, "3 h"]
    yx: Int[Array, "3 w"]
    yy: Int[Array, "3 h"]


def bilinear(image: Pixels, where: Ramps) -> Pixels:
    """Return the image at the positions `where`, interpolated between four pixels.

    The value is p00 + (p01 - p00) u + (p10 - p00) v + (p11 - p10 - p01 + p00) u v, rounded
    down, with p the four pixels and (u, v) the distances right of and below p00. Neighbours
    beyond the border are border pixels. Positions outside the image give 0.
    image: packed pixels, see `pack`.
    """
    corners = memory.materialize(_corners, image, where)
    inside_x, _, u = _split_position(where.xx, where.xy, image.shape[1])
    inside_y, _, v = _split_position(where.yx, where.yy, image.shape[0])
    weights = [_to_two_limbs(fraction) for fraction in (u, v, _multiply(u, v))]
    out = jnp.zeros_like(image)
    for place in (0, 8, 16):
        a, b, c, d = ((corner >> place) & 255 for corner in corners)
        steps = b - a, c - a, d - c - b + a
        low = sum(step * weight[1] for step, weight in zip(steps, weights))
        high = sum(step * weight[0] for step, weight in zip(steps, weights))
        out |= (a + ((high + (low >> 21)) >> 21)) << place
    return jnp.where(inside_x & inside_y, out, 0)


def take(table: Int[Array, "n"], index: Int[Array, "*shape"]) -> Int[Array, "*shape"]:
    """Return table[index], for indices that the caller knows to be in range."""
    return table.at[index].get(mode="promise_in_bounds")


def cosine_and_sine(degrees: int) -> tuple[float, float]:
    """Return the cosine and the sine of -degrees, to 15 decimals as in Pillow."""
    angle = -math.radians(degrees % 360)
    return round(math.cos(angle), 15), round(math.sin(angle), 15)


def _corners(image: Pixels, where: Ramps) -> list[Pixels]:
    """Return the pixels upper left, upper right, lower left and lower right of each position.

    The result is a list of four images (h, w) of packed pixels.
    """
    h, w = image.shape
    _, left, _ = _split_position(where.xx, where.xy, w)
    _, top, _ = _split_position(where.yx, where.yy, h)
    columns = [jnp.clip(left + i, 0, w - 1) for i in (0, 1)]
    rows = [jnp.clip(top + i, 0, h - 1) * w for i in (0, 1)]
    return [take(image.reshape(-1), row + column) for row in rows for column in columns]


def _split_position(
    across: Int[Array, "3 w"], down: Int[Array, "3 h"], length: int
) -> tuple[Array, Array, Fraction]:
    """Return (inside, index, fraction) of the positions along one axis, each (h w).

    inside: True for positions in [0, length). index: the pixel with its centre at or before
    the position. fraction: the distance to this centre, in limbs.

    across, down: summands of the position by column and by row, in limbs.
    length: number of pixels along the axis.
    """
    low = across[2][None, :] + down[2][:, None]
    middle = across[1][None, :] + down[1][:, None] + (low >> _LIMB)
    high = across[0][None, :] + down[0][:, None] + (middle >> _LIMB)
    inside = (high >= 0) & (high < length << _LIMB)
    high = high - (1 << (_LIMB - 1))  # Pixels have their centres at 1/2.
    return inside, high >> _LIMB, (high & _MASK, middle & _MASK, low & _MASK)


def _multiply(u: Fraction, v: Fraction) -> Fraction:
    """Return the product u v, rounded down, with an error of a few units of 2^-42."""
    low = u[0] * v[2] + u[1] * v[1] + u[2] * v[0]
    middle = u[0] * v[1] + u[1] * v[0] + (low >> _LIMB)
    high = u[0] * v[0] + (middle >> _LIMB)
    return high >> _LIMB, high & _MASK, middle & _MASK


def _to_two_limbs(fraction: Fraction) -> tuple[Array, Array]:
    """Return a fraction as two limbs of 21 bits, the higher first.

    1020 times a limb, the largest sum of differences of bytes, fits in 31 bits.
    """
    high, middle, low = fraction
    return (high << 7) | (middle >> 7), ((middle & 127) << 14) | low


def _check_side(h: int, w: int) -> None:
    """Raise ValueError for images above 1024 pixels a side."""
    if max(h, w) > _MAX_SIDE:
        must = f"augment.pillow: sides must be at most {_MAX_SIDE} pixels"
        raise ValueError(f"{must}, got {h} by {w}; use smaller images")


def _rotate(h: int, w: int, degrees: Amount) -> Ramps:
    """Return the positions that an anticlockwise rotation of an h x w image reads."""
    _check_side(h, w)
    index = degrees.astype(jnp.int32) + MAX_ANGLE
    return Ramps(*(jnp.asarray(ramp)[index] for ramp in _rotation_ramps(h, w)))


@functools.cache
def _rotation_ramps(h: int, w: int) -> tuple[Int[np.ndarray, "n 3 m"], ...]:
    """Return the fields of Ramps for all angles, from -MAX_ANGLE to MAX_ANGLE degrees."""
    angles = range(-MAX_ANGLE, MAX_ANGLE + 1)
    cos, sin = np.array([cosine_and_sine(degrees) for degrees in angles]).T
    x, y = np.arange(w) + 0.5 - w / 2, np.arange(h) + 0.5 - h / 2
    cos, sin = cos[:, None], sin[:, None]
    ramps = (cos * x + w / 2, sin * y, -sin * x, cos * y + h / 2)
    return tuple(_limbs(ramp) for ramp in ramps)


def _limbs(x: Float[np.ndarray, "n m"]) -> Int[np.ndarray, "n 3 m"]:
    """Return numbers rounded to multiples of 2^-42, as three limbs of 14 bits.

    The highest limb is first; it has the sign and may have more bits.
    """
    fixed = np.rint(x * 2.0 ** (3 * _LIMB)).astype(np.int64)
    limbs = fixed >> 2 * _LIMB, (fixed >> _LIMB) & _MASK, fixed & _MASK
    return np.stack(limbs, 1).astype(np.int32)


def _linear(h: int, w: int, *, shear: Pair = _NONE, shift: Pair = _NONE) -> Ramps:
    """Return the positions X = x + shear[0] y + shift[0], Y = y + shear[1] x + shift[1].

    h, w: size of the image in pixels; ValueError above 1024. shear: rounded to multiples of
    2^-20. shift: whole pixels.
    """
    _check_side(h, w)

    def straight(length: int, pixels: Amount | float) -> Int[Array, "3 length"]:
        whole = jnp.asarray(pixels).astype(jnp.int32)
        fixed = (2 * (jnp.arange(length) + whole) + 1) << (_LIMB - 1)
        return jnp.pad(fixed[None], ((0, 2), (0, 0)))

    def sloped(length: int, factor: Amount | float) -> Int[Array, "3 length"]:
        units = jnp.round(factor * 2.0**_SHEAR).astype(jnp.int32)
        fixed = units * (2 * jnp.arange(length) + 1)  # In units of 2^-21.
        low_bits = _SHEAR + 1 - _LIMB
        middle = (fixed & ((1 << low_bits) - 1)) << (_LIMB - low_bits)
        return jnp.stack([fixed >> low_bits, middle, jnp.zeros_like(fixed)])

    return Ramps(
        xx=straight(w, shift[0]),
        xy=sloped(h, shear[0]),
        yx=sloped(w, shear[1]),
        yy=straight(h, shift[1]),
    )


def _make_interpolation(
    read: Callable, *, rotate: Callable, linear: Callable
) -> Interpolation:
    """Return the interpolation with `read` and the maps of five operations.

    read: (image, positions) -> image. rotate: (h, w, degrees) -> positions.
    linear: (h, w, shear=..., shift=...) -> positions of a shear or a translation.
    """
    maps = {
        "rotate": rotate,
        "shear_x": lambda h, w, amount: linear(h, w, shear=(amount, 0.0)),
        "shear_y": lambda h, w, amount: linear(h, w, shear=(0.0, amount)),
        "translate_x": lambda h, w, amount: linear(h, w, shift=(amount, 0.0)),
        "translate_y": lambda h, w, amount: linear(h, w, shift=(0.0, amount)),
    }
    return Interpolation(read, maps)


BILINEAR = _make_interpolation(bilinear, rotate=_rotate, linear=_linear)

_UNIT, _HALF = 1 << 16, 1 << 15


def nearest(image: Pixels, matrix: Int[Array, "6"]) -> Pixels:
    """Return the nearest pixel at each position (X, Y); 0 outside the image.

    image: packed pixels.
    matrix: (a, b, c, d, e, f) times 2^16: X = a x + b y + c, Y = d x + e y + f.
    """
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
    """Return the matrix for `nearest` of a shear and a shift; arguments: see `_linear`.

    A shear is rounded to 16 bits, and so is its product with half a pixel.
    """

    def rounded(x: Amount) -> Int[Array, ""]:
        return jnp.floor(x + 0.5).astype(jnp.int32)

    slopes = [jnp.asarray(x) for x in shear]
    slope, start = ([rounded(x * unit) for x in slopes] for unit in (_UNIT, _HALF))
    whole = (jnp.asarray(pixels).astype(jnp.int32) for pixels in shift)
    c, f = (_HALF + offset + pixels * _UNIT for offset, pixels in zip(start, whole))
    return jnp.stack([jnp.int32(_UNIT), slope[0], c, slope[1], jnp.int32(_UNIT), f])


def _rotate_nearest(h: int, w: int, degrees: Amount) -> Int[Array, "6"]:
    """Return the matrix for `nearest` of an anticlockwise rotation of an h x w image."""
    matrices = jnp.asarray(_rotation_matrices(h, w))
    return matrices[degrees.astype(jnp.int32) + MAX_ANGLE]


@functools.cache
def _rotation_matrices(h: int, w: int) -> Int[np.ndarray, "n 6"]:
    """Return the matrices for `nearest` of all angles from -MAX_ANGLE to MAX_ANGLE degrees.

    Matrices are computed in float64 in Pillow's order of additions.
    """
    rows = []
    for degrees in range(-MAX_ANGLE, MAX_ANGLE + 1):
        cos, sin = cosine_and_sine(degrees)
        c = cos * (-w / 2) + sin * (-h / 2) + w / 2
        f = -sin * (-w / 2) + cos * (-h / 2) + h / 2
        start = c + cos * 0.5 + sin * 0.5, f + -sin * 0.5 + cos * 0.5
        row = (cos, sin, start[0], -sin, cos, start[1])
        rows.append([math.floor(x * _UNIT + 0.5) for x in row])
    return np.array(rows, np.int32)


NEAREST = _make_interpolation(nearest, rotate=_rotate_nearest, linear=_linear_nearest)

Table = Int[Array, "3 256"]


def pack(image: Float[Array, "h w 3"]) -> Pixels:
    """Return an image in [0, 1] as packed bytes, rounded."""
    levels = jnp.clip(jnp.round(image * 255), 0, 255).astype(jnp.int32)
    return join_channels(levels[..., i] for i in range(3))


def unpack(pixels: Pixels) -> Float[Array, "h w 3"]:
    """Return packed bytes as an image in [0, 1]."""
    return jnp.stack(split_channels(pixels), -1).astype(jnp.float32) / 255


def split_channels(pixels: Pixels) -> tuple[Pixels, Pixels, Pixels]:
    """Return red, green and blue of packed pixels, from 0 to 255."""
    return pixels & 255, (pixels >> 8) & 255, pixels >> 16


def join_channels(channels: Iterable[Pixels]) -> Pixels:
    """Return three channels, red first, from 0 to 255, as one packed number per pixel."""
    red, green, blue = channels
    return red | (green << 8) | (blue << 16)


def look_up(pixels: Pixels, table: Table) -> Pixels:
    """Return packed pixels with each value v of channel c replaced by table[c, v]."""
    channels = enumerate(split_channels(pixels))
    return join_channels(take(table[i], x) for i, x in channels)


def identity_table() -> Table:
    """Return the table that keeps every value."""
    return jnp.broadcast_to(jnp.arange(256), (3, 256))


def posterize(bits: Float[Array, ""]) -> Table:
    """Return the table that keeps the highest `bits` of 8 bits and clears the lower bits."""
    return identity_table() & (255 << (8 - bits.astype(jnp.int32)))


def solarize(threshold: Float[Array, ""]) -> Table:
    """Return the table that inverts values at or above the threshold: 255 - v."""
    values = identity_table()
    return jnp.where(values < threshold, values, 255 - values)


def equalize(pixels: Pixels) -> Table:
    """Return the table (3 256) that equalises the histogram of each channel.

    With n pixels, c of them with the largest value, and s = (n - c) // 255:
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
    """Return the number of pixels with each value from 0 to 255."""
    empty = jnp.zeros(256, jnp.int32)
    return empty.at[channel.reshape(-1)].add(1, mode="promise_in_bounds")


def autocontrast(pixels: Pixels) -> Table:
    """Return the table (3 256) that stretches each channel to 0 ... 255.

    A channel with a single value does not change. For values i from lo to hi the table has
    floor(255 (i - lo) / (hi - lo)), minus one where the exact result is a whole number and
    Pillow's float64 is below it.
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
    """Return n // d, for results below 2^20; integer division is slow in vectors."""
    guess = jnp.floor(n * (1 / d.astype(jnp.float32))).astype(jnp.int32)
    remainder = n - guess * d
    return guess + (remainder >= d) - (remainder < 0)


@functools.cache
def _shortfalls() -> tuple[UInt32[np.ndarray, "256 256 2"], Int[np.ndarray, "256"]]:
    """Return two tables of the errors of Pillow's float64 in `autocontrast`.

    s = 255 / (hi - lo) in float64. From lo on, every period-th value i has a whole exact
    result; the second table has the period for each hi - lo. Bit t of entry (lo, hi) of the
    first table, in two words, is 1 if int(i s - lo s) is below the exact result for the t-th of
    these values i.
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
    """Return the grey of each pixel, 0 to 255: 0.299 R + 0.587 G + 0.114 B, rounded.

    The weights are fractions of 16 bits.
    """
    red, green, blue = split_channels(pixels)
    return (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16


def grey(pixels: Pixels) -> Pixels:
    """Return the image with all channels equal to its luma."""
    return luma(pixels) * 0x010101


def mean_grey(pixels: Pixels) -> Pixels:
    """Return a uniform grey image of the mean luma, rounded."""
    mean = (2 * jnp.sum(luma(pixels)) + pixels.size) // (2 * pixels.size)
    return jnp.broadcast_to(mean * 0x010101, pixels.shape)


def smooth(pixels: Pixels) -> Pixels:
    """Return the image with inner pixels replaced by means of 3 x 3 pixels, rounded.

    The centre has the weight 5, its neighbours 1. Border pixels, and images with a side below 3
    pixels, do not change.
    """
    h, w = pixels.shape
    if h < 3 or w < 3:
        return pixels

    def smooth_channel(channel: Pixels) -> Pixels:
        rows = channel[:-2] + channel[1:-1] + channel[2:]
        box = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]
        double = 2 * (box + 4 * channel[1:-1, 1:-1]) + 13
        return (double * 10083) >> 18  # Equals double // 26 for all sums of bytes.

    inner = join_channels(smooth_channel(x) for x in split_channels(pixels))
    return pixels.at[1:-1, 1:-1].set(inner)


def blend(degenerate: Pixels, pixels: Pixels, factor: Float[Array, ""]) -> Pixels:
    """Return degenerate + factor (pixels - degenerate), clipped and truncated to bytes.

    Computed in float32, as in Pillow, where the product is rounded before the sum. Here the
    product is the sum of two exact products, so that fused multiply-adds give the same
    result.
    """
    factor = jnp.asarray(factor, jnp.float32)
    coarse = _clear_low_bits(factor)
    fine = factor - coarse

    def blend_channel(start: Pixels, end: Pixels) -> Pixels:
        step = (end - start).astype(jnp.float32)
        value = start.astype(jnp.float32) + (coarse * step + fine * step)
        return jnp.clip(value, 0, 255).astype(jnp.int32)

    return join_channels(
        map(blend_channel, split_channels(degenerate), split_channels(pixels))
    )


def _clear_low_bits(x: Float[Array, ""]) -> Float[Array, ""]:
    """Return x with the lowest 9 bits of its significand cleared."""
    bits = jax.lax.bitcast_convert_type(x, jnp.int32) & ~0x1FF
    return jax.lax.bitcast_convert_type(bits, jnp.float32)


WARPS = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
# (image, amount) -> the new value of each old value.
TABLES: Mapping[str, Callable[[Pixels, Amount], Table]] = {
    "autocontrast": lambda image, amount: autocontrast(image),
    "equalize": lambda image, amount: equalize(image),
    "posterize": lambda image, amount: posterize(amount),
    "solarize": lambda image, amount: solarize(amount),
}
# image -> the degenerate image, the result for factor 0.
BLENDS: Mapping[str, Callable[[Pixels], Pixels]] = {
    "colour": grey,
    "contrast": mean_grey,
    "brightness": jnp.zeros_like,
    "sharpness": smooth,
}


def apply(
    image: Pixels,
    kind: Array,
    amount: Amount,
    names: Sequence[str],
    interpolation: Interpolation = BILINEAR,
) -> Pixels:
    """Return the image after operation names[kind].

    image: packed pixels, see `pack`. kind: index in `names`, may be traced. amount: of the
    operation, in the units of the module's docstring. names: the possible operations: WARPS,
    keys of TABLES and of BLENDS, or "identity". interpolation: of warps, BILINEAR or NEAREST.
    """

    def select(default: PyTree, known: Sequence[str], make: Callable) -> PyTree:
        """Return make(names[kind]), or the default if that name is not in `known`.

        kind, names: arguments of `apply`. make: name -> tree of arrays like `default`.
        """
        for i, name in enumerate(names):
            if name in known:
                choose = functools.partial(jnp.where, kind == i)
                default = jax.tree.map(choose, make(name), default)
        return default

    maps = interpolation.maps

    def positions() -> PyTree:
        identity = maps["translate_x"](*image.shape, jnp.zeros_like(amount))
        return select(identity, WARPS, lambda name: maps[name](*image.shape, amount))

    def make_table(image: Pixels) -> Table:
        return select(
            identity_table(), TABLES, lambda name: TABLES[name](image, amount)
        )

    def apply_blend(image: Pixels) -> Pixels:
        degenerate = select(image, BLENDS, lambda name: BLENDS[name](image))
        return blend(degenerate, image, amount)

    if set(names) & set(WARPS):
        where = memory.materialize(positions)
        image = memory.materialize(interpolation.read, image, where)
    if set(names) & set(TABLES):
        table = memory.materialize(make_table, image)
        image = memory.materialize(look_up, image, table)
    if set(names) & set(BLENDS):
        image = memory.materialize(apply_blend, image)
    return image
