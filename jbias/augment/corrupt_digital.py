"""Tone, warp and coding of ImageNet-C on the device: brightness, elastic ...

Each has the draws of an image and what they do to it; data.corruption_kernels says what
that is. Source: Hendrycks and Dietterich, ICLR 2019, https://arxiv.org/abs/1903.12261.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.augment import corrupt_arrays, corrupt_jpeg
from jbias.augment.corrupt_arrays import Image, Plane, Settings


def brightness(x: Image, drawn: tuple, s: Settings) -> Image:
    """Adds to the value V of HSV."""
    del drawn
    value = x.max(-1, keepdims=True)
    lifted = jnp.minimum(value + 255 * s["more"], 255)
    black = value == 0
    return jnp.where(black, lifted, x * (lifted / jnp.where(black, 1, value)))


def saturate(x: Image, drawn: tuple, s: Settings) -> Image:
    """Scales the saturation S of HSV and adds to it; greys turn red."""
    del drawn
    value, least = x.max(-1, keepdims=True), x.min(-1, keepdims=True)
    grey = value == least
    red = np.float32([[[0, 1, 1]]])
    share = jnp.where(grey, red, (value - x) / jnp.where(grey, 1, value - least))
    old = (value - least) / jnp.where(value == 0, 1, value)
    return value - value * jnp.clip(old * s["times"] + s["plus"], 0, 1) * share


def contrast(x: Image, drawn: tuple, s: Settings) -> Image:
    """Scales the distance of each value to the mean of its channel."""
    del drawn
    mean = x.mean((0, 1), keepdims=True)
    return (x - mean) * s["scale"] + mean


def pixelate(x: Image, drawn: tuple, s: Settings) -> Image:
    """Shrinks by a box filter and enlarges by the nearest, to Pillow's bytes.

    `boxes` (h, h) are of zeros and ones; `weights` (h) is 2^22 over their number.
    """
    del drawn
    weights = s["weights"]

    def along(x: Image) -> Image:
        # Sums of bytes are exact in float32.
        total = jnp.einsum("ij,jwc->iwc", s["boxes"], x, precision="highest")
        whole = total.astype(jnp.int32) * weights[:, None, None] + (1 << 21)
        return (whole >> 22).astype(jnp.float32)

    return along(along(x.swapaxes(0, 1)).swapaxes(0, 1))


def jpeg_compression(x: Image, drawn: tuple, s: Settings) -> Image:
    """Codes and decodes as JPEG."""
    del drawn
    return corrupt_jpeg.coded(x, s["tables"])


def draw_elastic(
    key: PRNGKeyArray, side: int
) -> tuple[Float[Array, "3 2"], Plane, Plane]:
    """U(0, 1) for the three points (x, y), and for the ways right and down."""
    points, right, down = jax.random.split(key, 3)
    return (
        jax.random.uniform(points, (3, 2)),
        jax.random.uniform(right, (side, side)),
        jax.random.uniform(down, (side, side)),
    )


def elastic_transform(x: Image, drawn: tuple, s: Settings) -> Image:
    """Maps affinely, then displaces each pixel by a smooth random field."""
    side = len(x)
    points, *ways = drawn
    row, column = _affine(s["jitter"] * (2 * points - 1), side)
    x = corrupt_arrays.bilinear(x, row, column, "reflect_101")
    right, down = (
        s["alpha"] * corrupt_arrays.filtered(2 * u - 1, s["smoother"]) for u in ways
    )
    along = jnp.arange(side, dtype=jnp.float32)
    row = corrupt_arrays.between(along[:, None] + down)
    column = corrupt_arrays.between(along[None, :] + right)
    return corrupt_arrays.bilinear(x, row, column, "reflect")


def _affine(
    moves: Float[Array, "3 2"], side: int
) -> tuple[corrupt_arrays.Between, corrupt_arrays.Between]:
    """Where each pixel reads, rows and columns, when three points move like that.

    The points (x, y) are the centre plus (q, q), (q, -q) and (-q, -q), q a third of the
    side.
    """
    centre, q = side // 2, side // 3
    # What moves by `at` at the centre, and by `slopes` (x or y, for each of x and y).
    slopes = jnp.stack([moves[1] - moves[2], moves[0] - moves[1]], -1) / (2 * q)
    at = (moves[0] + moves[2]) / 2
    a, b = 1 + slopes[0, 0], slopes[0, 1]
    c, d = slopes[1, 0], 1 + slopes[1, 1]
    inverse = jnp.stack([d, -b, -c, a]).reshape(2, 2) / (a * d - b * c)
    offsets = jnp.arange(side, dtype=jnp.float32) - centre

    def reading(which: int) -> corrupt_arrays.Between:
        by_x, by_y = inverse[which]
        x, y = offsets[None, :] - at[0], offsets[:, None] - at[1]
        return corrupt_arrays.between(centre + by_x * x + by_y * y)

    return reading(1), reading(0)
