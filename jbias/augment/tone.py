"""Changes of brightness and colour of 8-bit images, with Pillow's pixels.

An image is one int32 per pixel: red + 256 green + 65536 blue. Tables have an entry for
each value of each channel; blends go from a degenerate image to the image and beyond.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from jbias.augment.warp import Pixels, take

Table = Int[Array, "3 256"]


def pack(image: Float[Array, "h w 3"]) -> Pixels:
    """Rounds [0, 1] to bytes."""
    levels = jnp.clip(jnp.round(image * 255), 0, 255).astype(jnp.int32)
    return join(levels[..., i] for i in range(3))


def unpack(pixels: Pixels) -> Float[Array, "h w 3"]:
    """Bytes as [0, 1]."""
    return jnp.stack(split(pixels), -1).astype(jnp.float32) / 255


def split(pixels: Pixels) -> tuple[Pixels, Pixels, Pixels]:
    """The three channels, from 0 to 255."""
    return pixels & 255, (pixels >> 8) & 255, pixels >> 16


def join(channels) -> Pixels:
    """One number per pixel of three channels."""
    red, green, blue = channels
    return red | (green << 8) | (blue << 16)


def look_up(pixels: Pixels, table: Table) -> Pixels:
    """Replaces each value by the table's."""
    return join(take(table[i], x) for i, x in enumerate(split(pixels)))


def identity() -> Table:
    """Every value its own."""
    return jnp.broadcast_to(jnp.arange(256), (3, 256))


def posterize(bits: Float[Array, ""]) -> Table:
    """Keeps the highest bits."""
    return identity() & (255 << (8 - bits.astype(jnp.int32)))


def solarize(threshold: Float[Array, ""]) -> Table:
    """Inverts values from the threshold on."""
    return jnp.where(identity() < threshold, identity(), 255 - identity())


def equalize(pixels: Pixels) -> Table:
    """Spreads each channel's values, so that all are about as frequent.

    With n pixels, of which c are of the largest value, and s = (n - c) // 255:
    (s // 2 + pixels of smaller value) // s, at most 255; the identity where s is 0.
    """
    counts = jnp.stack([histogram(x) for x in split(pixels)])
    top = jnp.stack([jnp.max(x) for x in split(pixels)])
    largest = jnp.take_along_axis(counts, top[:, None], 1)
    step = (pixels.size - largest) // 255
    below = jnp.cumsum(counts, 1) - counts
    spread = _quotient(step // 2 + below, jnp.maximum(step, 1))
    return jnp.where(step == 0, identity(), jnp.minimum(spread, 255))


def histogram(channel: Pixels) -> Int[Array, "256"]:
    """How many pixels have each value."""
    empty = jnp.zeros(256, jnp.int32)
    return empty.at[channel.reshape(-1)].add(1, mode="promise_in_bounds")


def autocontrast(pixels: Pixels) -> Table:
    """Stretches each channel to 0 ... 255; one of a single value stays as it is.

    floor(255 (i - lo) / (hi - lo)), less one where Pillow's float64 falls below a whole
    number that is the exact answer.
    """
    low = jnp.stack([jnp.min(x) for x in split(pixels)])
    high = jnp.stack([jnp.max(x) for x in split(pixels)])
    words, periods = _shortfalls()
    first, second = jnp.asarray(words)[low, high].T[..., None]
    low, high = low[:, None], high[:, None]
    span = jnp.maximum(high - low, 1)
    step = jnp.clip(identity() - low, 0, span)
    stretched = _quotient(255 * step, span)
    tie = _quotient(step, jnp.asarray(periods)[span])
    bit = jnp.where(tie < 32, first, second) >> (tie & 31).astype(jnp.uint32)
    short = (stretched * span == 255 * step) & ((bit & 1) == 1)
    return jnp.where(high > low, stretched - short, identity())


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
            short = (ties * scale + -low * scale).astype(int) < 255 * (
                ties - low
            ) // span
            words[low, high] = sum(1 << int(t) for t in np.flatnonzero(short))
    return np.stack([words & 0xFFFFFFFF, words >> 32], -1).astype(np.uint32), periods


def luma(pixels: Pixels) -> Pixels:
    """Grey of an image: 0.299 R + 0.587 G + 0.114 B in 16 bits, rounded."""
    red, green, blue = split(pixels)
    return (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16


def grey(pixels: Pixels) -> Pixels:
    """The image without colour."""
    return luma(pixels) * 0x010101


def middle(pixels: Pixels) -> Pixels:
    """One grey all over: the mean luma, rounded."""
    total = jnp.sum(luma(pixels))
    mean = (2 * total + pixels.size) // (2 * pixels.size)
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

    inner = join(one(x) for x in split(pixels))
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

    return join(one(a, b) for a, b in zip(split(degenerate), split(pixels)))
