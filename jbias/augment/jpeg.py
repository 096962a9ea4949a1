"""JPEG compression on the device: encoding and decoding of an image.

The arithmetic is as in Pillow's libjpeg, in integers: YCbCr, chroma subsampled along both
axes, cosine transform of 8 x 8 pixels, quantisation, and the inverse steps.
Source: ITU-T T.81, https://www.w3.org/Graphics/JPEG/itu-t81.pdf; JFIF 1.02.
Reference code: https://github.com/libjpeg-turbo/libjpeg-turbo.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

Image = Float[Array, "h w 3"]  # 0 to 255.
Integers = Int[Array, "h w"]
_HALF = 1 << 15  # Of a fraction of 16 bits.


def round_trip(x: Image, tables: Int[Array, "2 8 8"]) -> Image:
    """Return an image after encoding and decoding as JPEG, in whole numbers 0 to 255.

    x: whole numbers 0 to 255. tables: quantisation steps of luma and of chroma, for each
    frequency (down, across).
    """
    h, w = x.shape[:2]
    x = jnp.pad(x.astype(jnp.int32), ((0, h % 2), (0, -w % 16), (0, 0)), mode="edge")
    red, green, blue = (x[..., i] for i in range(3))
    luma = (19595 * red + 38470 * green + 7471 * blue + _HALF) >> 16
    centre = (128 << 16) + _HALF - 1
    to_blue = (-11059 * red - 21709 * green + 32768 * blue + centre) >> 16
    to_red = (32768 * red - 27439 * green - 5329 * blue + centre) >> 16
    luma = _blocks(luma, tables[0])[:h, :w]
    small = (_blocks(_halved(colour), tables[1]) for colour in (to_blue, to_red))
    small = (c[: -(-h // 2), : -(-w // 2)] for c in small)
    cb, cr = (_doubled(c)[:h, :w] - 128 for c in small)
    red = luma + ((91881 * cr + _HALF) >> 16)
    green = luma + ((-22554 * cb - 46802 * cr + _HALF) >> 16)
    blue = luma + ((116130 * cb + _HALF) >> 16)
    return jnp.clip(jnp.stack([red, green, blue], -1), 0, 255).astype(jnp.float32)


def _halved(x: Integers) -> Integers:
    """Return the means of 2 x 2 pixels; halves are rounded down in even and up in odd columns."""
    total = x[::2, ::2] + x[::2, 1::2] + x[1::2, ::2] + x[1::2, 1::2]
    return (total + 1 + jnp.arange(total.shape[1])[None] % 2) >> 2


def _doubled(x: Integers) -> Integers:
    """Return a channel with twice as many rows and columns.

    Along each axis, a pixel is 3/4 of the nearest and 1/4 of the next pixel.
    """
    wide = jnp.pad(x, 1, mode="edge")
    rows = jnp.stack([3 * x + wide[:-2, 1:-1], 3 * x + wide[2:, 1:-1]], 1)
    rows = rows.reshape(-1, x.shape[1])
    wide = jnp.pad(rows, ((0, 0), (1, 1)), mode="edge")
    left, right = 3 * rows + wide[:, :-2] + 8, 3 * rows + wide[:, 2:] + 7
    return jnp.stack([left >> 4, right >> 4], -1).reshape(len(rows), -1)


# Cosines times 2^13, as rounded in libjpeg's butterflies: of 1, 3, 5 and 7 sixteenths.
_ODD = (
    (11363, 9633, 6437, 2260),
    (9633, -2259, -11362, -6436),
    (6437, -11362, 2261, 9633),
    (2260, -6436, 9633, -11363),
)
_EVEN = (
    (8192, 8192, 8192, 8192),
    (10703, 4433, -4433, -10703),
    (8192, -8192, -8192, 8192),
    (4433, -10704, 10704, -4433),
)
# The right half of each row mirrors the left half.
_PAIRS = [np.array(_EVEN), np.fliplr(_EVEN), np.array(_ODD), -np.fliplr(_ODD)]
_COSINES = np.int32(np.concatenate(_PAIRS, 1).reshape(8, 8))


def _blocks(x: Integers, steps: Int[Array, "8 8"]) -> Integers:
    """Return a channel whose 8 x 8 blocks were cosine-transformed, quantised and transformed back.

    steps: of the quantisation, for each frequency (down, across). The width must be a
    multiple of 8. The last row is repeated up to a height that is a multiple of 8, also in
    the result.
    """
    x = jnp.pad(x, ((0, -len(x) % 8), (0, 0)), mode="edge")
    h, w = x.shape
    tiles = (x - 128).reshape(h // 8, 8, w // 8, 8)
    # Cosines, 8 times as large, of rows of pixels and then of columns.
    tiles = _divided(jnp.einsum("vj,yixj->yixv", _COSINES, tiles), 11)
    tiles = _divided(jnp.einsum("ui,yixv->yuxv", _COSINES, tiles), 15)
    steps = steps.astype(jnp.int32)[None, :, None]
    level = (jnp.abs(tiles) + 4 * steps) // (8 * steps)
    tiles = jnp.sign(tiles) * level * steps
    tiles = _divided(jnp.einsum("ui,yuxv->yixv", _COSINES, tiles), 11)
    tiles = _divided(jnp.einsum("vj,yixv->yixj", _COSINES, tiles), 18)
    return jnp.clip(tiles + 128, 0, 255).reshape(h, w)


def _divided(x: Int[Array, "y i x j"], bits: int) -> Int[Array, "y i x j"]:
    """Return x / 2^bits, rounded; halves are rounded up."""
    return (x + (1 << (bits - 1))) >> bits
