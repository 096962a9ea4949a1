"""Cuts a window of random area and aspect and resizes it with antialiasing."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jbias.augment import examples

_TRIES = 10


def make(
    *,
    size: int | None = None,
    area: tuple[float, float] = (0.08, 1.0),
    aspect: tuple[float, float] = (3 / 4, 4 / 3),
) -> Callable:
    """Crops and resizes each image to `size` pixels square (None: as it came).

    The window's share of the image is uniform in `area`, its width over height
    log-uniform in `aspect`, its place uniform. As in torchvision, whose windows have
    whole pixels: the first of ten draws that fits inside the image counts, and if none
    does the largest central window of an allowed aspect. The resize is Pillow's
    bilinear filter on the cut window, without its rounding to 8 bits.

    Where the batch has an "aspect" (b), the original's width over height, images are
    canvases that whole originals were squeezed to: windows have the aspects in the
    original, and whole pixels of the canvas.
    """

    for name, (low, high) in (("area", area), ("aspect", aspect)):
        if not 0 < low <= high or (name == "area" and high > 1):
            raise ValueError(
                f"random_resized_crop: {name} must be a range of positive numbers, "
                f"areas at most 1, got {(low, high)}; change {name}"
            )

    def apply(batch, key):
        image = batch["image"]
        _, height, width, _ = image.shape
        rows, columns = (size, size) if size else (height, width)
        squeezed = "aspect" in batch

        def one(x, k, wide):
            pixel = wide * height / width if squeezed else 1
            top, left, h, w = draw(
                k, height, width, area=area, aspect=aspect, pixel=pixel
            )
            down = weights(rows, height, top, h)
            across = weights(columns, width, left, w)
            # Narrower than float32 these products would show in 8-bit images.
            return jnp.einsum(
                "ih,hwc,jw->ijc", down, x, across, precision=jax.lax.Precision.HIGHEST
            )

        keys = examples.keys(key, image.shape[0])
        wide = batch["aspect"] if squeezed else jnp.ones(image.shape[0])
        batch = {name: x for name, x in batch.items() if name != "aspect"}
        return {**batch, "image": jax.vmap(one)(image, keys, wide)}

    return apply


def draw(
    key: PRNGKeyArray,
    height: int,
    width: int,
    *,
    area: tuple[float, float],
    aspect: tuple[float, float],
    pixel: float | Float[Array, ""] = 1,
) -> tuple[Int[Array, ""], Int[Array, ""], Int[Array, ""], Int[Array, ""]]:
    """Draws top, left, height and width of a window, in pixels.

    `pixel` is the width over height of one pixel in the image that `aspect` is of.
    """
    k_area, k_aspect, k_top, k_left = jax.random.split(key, 4)
    pixels = (
        height
        * width
        * jax.random.uniform(k_area, (_TRIES,), minval=area[0], maxval=area[1])
    )
    low, high = jnp.log(aspect[0]), jnp.log(aspect[1])
    ratio = jnp.exp(jax.random.uniform(k_aspect, (_TRIES,), minval=low, maxval=high))
    ratio = ratio / pixel
    w = jnp.round(jnp.sqrt(pixels * ratio)).astype(jnp.int32)
    h = jnp.round(jnp.sqrt(pixels / ratio)).astype(jnp.int32)
    fits = (0 < w) & (w <= width) & (0 < h) & (h <= height)
    first = jnp.argmax(fits)
    whole_w = jnp.round(jnp.minimum(width, height * aspect[1] / pixel))
    whole_h = jnp.round(jnp.minimum(height, width / aspect[0] * pixel))
    w = jnp.where(fits.any(), w[first], whole_w.astype(jnp.int32))
    h = jnp.where(fits.any(), h[first], whole_h.astype(jnp.int32))
    top = jax.random.randint(k_top, (), 0, height - h + 1)
    left = jax.random.randint(k_left, (), 0, width - w + 1)
    central = ~fits.any()
    top = jnp.where(central, (height - h) // 2, top)
    left = jnp.where(central, (width - w) // 2, left)
    return top, left, h, w


def weights(
    out: int, length: int, start: Int[Array, ""], count: Int[Array, ""]
) -> Float[Array, "out length"]:
    """Builds the matrix that resizes pixels start ... start + count - 1 to `out`.

    Each row is a triangle around its pixel's centre, as wide as the larger of the two
    pixels and cut at the window's border; rows sum to 1.
    """
    scale = count / out
    centre = (jnp.arange(out) + 0.5) * scale + start
    pixel = jnp.arange(length)
    distance = (pixel[None, :] + 0.5 - centre[:, None]) / jnp.maximum(scale, 1.0)
    inside = (pixel >= start) & (pixel < start + count)
    triangle = jnp.maximum(1 - jnp.abs(distance), 0) * inside[None, :]
    return triangle / jnp.sum(triangle, axis=1, keepdims=True)
