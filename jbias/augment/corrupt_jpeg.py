"""JPEG on the device: what is left of an image that was coded and decoded.

As Pillow by libjpeg does it: YCbCr, colours halved along both axes, cosines of 8 x 8
pixels, quantised and back, colours interpolated, RGB. Whole numbers as there, but for
the cosines, which are float32 here.
Source: ITU-T T.81, https://www.w3.org/Graphics/JPEG/itu-t81.pdf; JFIF 1.02.
Reference code: https://github.com/libjpeg-turbo/libjpeg-turbo.
"""

import functools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jbias.augment.corrupt_arrays import Image

Whole = Int[Array, "h w"]
_HALF = 1 << 15  # Of a fraction of 16 bits.


def coded(x: Image, tables: Float[Array, "2 8 8"]) -> Image:
    """Codes and decodes bytes; `tables` are the steps of luma and of colour."""
    h, w = x.shape[:2]
    pads = ((0, -h % 16), (0, -w % 16), (0, 0))
    padded = jnp.pad(x.astype(jnp.int32), pads, mode="edge")
    red, green, blue = (padded[..., i] for i in range(3))
    luma = (19595 * red + 38470 * green + 7471 * blue + _HALF) >> 16
    centre = (128 << 16) + _HALF - 1
    colours = (
        (-11059 * red - 21709 * green + 32768 * blue + centre) >> 16,
        (32768 * red - 27439 * green - 5329 * blue + centre) >> 16,
    )
    luma = _blocks(luma, tables[0])[:h, :w]
    cb, cr = (
        _doubled(_blocks(_halved(c), tables[1])[: -(-h // 2), : -(-w // 2)])[:h, :w]
        - 128
        for c in colours
    )
    rgb = (
        luma + ((91881 * cr + _HALF) >> 16),
        luma + ((-22554 * cb - 46802 * cr + _HALF) >> 16),
        luma + ((116130 * cb + _HALF) >> 16),
    )
    return jnp.clip(jnp.stack(rgb, -1), 0, 255).astype(jnp.float32)


def _halved(x: Whole) -> Whole:
    """Means of 2 x 2, halves rounded up in every other column."""
    total = x[::2, ::2] + x[::2, 1::2] + x[1::2, ::2] + x[1::2, 1::2]
    return (total + 1 + jnp.arange(total.shape[1])[None] % 2) >> 2


def _doubled(x: Whole) -> Whole:
    """Twice as many rows and columns, three parts of the nearest and one of the next."""
    wide = jnp.pad(x, 1, mode="edge")
    rows = jnp.stack([3 * x + wide[:-2, 1:-1], 3 * x + wide[2:, 1:-1]], 1)
    rows = rows.reshape(-1, x.shape[1])
    wide = jnp.pad(rows, ((0, 0), (1, 1)), mode="edge")
    left, right = 3 * rows + wide[:, :-2] + 8, 3 * rows + wide[:, 2:] + 7
    return jnp.stack([left >> 4, right >> 4], -1).reshape(len(rows), -1)


@functools.cache
def _cosines() -> tuple[Float[np.ndarray, "8 8"], Float[np.ndarray, "8 8"]]:
    """Rows of cosines, and the squared factor that makes them orthonormal.

    Rows 0 and 4 are of ones, so that what ends on half a step does so exactly.
    """
    u, i = np.mgrid[:8, :8]
    rows = np.cos((2 * i + 1) * u * np.pi / 16)
    rows[4] = np.sign(rows[4])
    square = 1 / (rows**2).sum(1)
    return rows.astype(np.float32), np.sqrt(np.outer(square, square), dtype=np.float32)


def _blocks(x: Whole, steps: Float[Array, "8 8"]) -> Whole:
    """Quantises the cosines of 8 x 8 pixels and adds them up again."""
    rows, scale = _cosines()
    h, w = x.shape
    tiles = (x - 128).astype(jnp.float32).reshape(h // 8, 8, w // 8, 8)
    product = functools.partial(jnp.einsum, precision="highest")
    cosines = product("ui,vj,yixj->yuxv", rows, rows, tiles)
    scale, steps = scale[None, :, None], steps[None, :, None]
    level = cosines * (scale / steps)
    level = jnp.sign(level) * jnp.floor(jnp.abs(level) + 0.5)
    tiles = product("ui,vj,yuxv->yixj", rows, rows, level * (steps * scale))
    return jnp.clip(jnp.rint(tiles).astype(jnp.int32) + 128, 0, 255).reshape(h, w)
