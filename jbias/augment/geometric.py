"""Transforms of the geometry of images: flips, crops and random erasing.

`random_resized_crop` is torchvision's, with antialiasing.
Source: Szegedy et al., "Going Deeper with Convolutions", CVPR 2015,
https://arxiv.org/abs/1409.4842.

`random_erasing` hides a box.
Source: Zhong et al., AAAI 2020, https://arxiv.org/abs/1708.04896; as in torchvision.
Deviation: torchvision and timm erase after normalisation, with 0 (the training set's mean
colour) or N(0, 1) noise. Here images are in [0, 1]: the default `fill` is ImageNet's mean
colour, and noise is uniform, as in the paper.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jbias import errors
from jbias.augment import options, random_numbers

Range = tuple[float, float]


def flip(*, p: float = 0.5) -> options.Transform:
    """Return a transform that mirrors each image left to right with probability p.

    ValueError unless p is in [0, 1].
    """
    errors.check_range("flip", 0, 1, p=p)

    def mirrored(image, key):
        return jnp.where(jax.random.bernoulli(key, p), image[:, ::-1], image)

    return options.each_image(mirrored)


def pad_crop(*, pad: int = 4) -> options.Transform:
    """Return a transform that shifts each image by up to `pad` pixels per axis.

    Shifts are whole pixels, all equally likely; pixels from outside the image are black.
    ValueError if `pad` is negative.
    """
    errors.check_condition("pad_crop", "at least 0", pad=pad)

    def window(image, key):
        padded = jnp.pad(image, ((pad, pad), (pad, pad), (0, 0)))
        top, left = jax.random.randint(key, (2,), 0, 2 * pad + 1)
        return jax.lax.dynamic_slice(padded, (top, left, 0), image.shape)

    return options.each_image(window)


_NUM_TRIES = 10
_ASPECT: Range = (3 / 4, 4 / 3)


def random_resized_crop(
    *, size: int | None = None, area: Range = (0.08, 1.0), aspect: Range = _ASPECT
) -> options.Transform:
    """Return a transform that crops a random window of each image and resizes it.

    size: side of the result in pixels; None keeps height and width.
    area: range of the window's share of the image, uniform.
    aspect: range of the window's width over height, log-uniform.

    As in torchvision, windows have whole pixels and uniform positions; the first of ten draws
    that fits inside the image is used, and if none fits, the largest central window of an
    allowed aspect. The window is resized by Pillow's bilinear filter, without Pillow's rounding
    to 8 bits.

    If the batch has an "aspect" (b), the width over height of the original images, its
    images are originals that were resized to squares: `aspect` then refers to the original,
    and windows have whole pixels of the square. The result has no "aspect".

    ValueError for a size below 1, a range that descends or is not positive, an area above 1.
    """
    errors.check_condition("random_resized_crop", "at least 1", size=size)
    for name, (low, high) in (("area", area), ("aspect", aspect)):
        if not 0 < low <= high or (name == "area" and high > 1):
            must = f"random_resized_crop: {name} must be a range of positive numbers"
            got = f"areas at most 1, got {(low, high)}"
            raise ValueError(f"{must}, {got}; change {name}")

    def apply(batch, key):
        """Return the batch without "aspect", and with a random window of each image, resized.

        The new images are (b size size c), or of the old size without `size`. batch: has
        "image" (b h w c) and maybe "aspect" (b). key: random key.
        """
        image = batch["image"]
        _, height, width, _ = image.shape
        rows, columns = (size, size) if size else (height, width)
        is_squeezed = "aspect" in batch

        def crop(x, k, original_aspect):
            """Return a random window of an image, resized to `rows` x `columns` pixels.

            x: image (h w c). k: random key. original_aspect: width / height of the original;
            not used unless the batch has "aspect".
            """
            pixel = original_aspect * height / width if is_squeezed else 1
            window = draw_window(
                k, height, width, area=area, aspect=aspect, pixel=pixel
            )
            down = resize_matrix(rows, height, window.top, window.height)
            across = resize_matrix(columns, width, window.left, window.width)
            # Errors of products below float32 would be visible in 8-bit images.
            exact = jax.lax.Precision.HIGHEST
            return jnp.einsum("ih,hwc,jw->ijc", down, x, across, precision=exact)

        keys = random_numbers.keys(key, image.shape[0])
        aspects = batch["aspect"] if is_squeezed else jnp.ones(image.shape[0])
        batch = {name: x for name, x in batch.items() if name != "aspect"}
        return {**batch, "image": jax.vmap(crop)(image, keys, aspects)}

    return apply


class Window(NamedTuple):
    """A rectangle of an image, in pixels."""

    top: Int[Array, ""]
    left: Int[Array, ""]
    height: Int[Array, ""]
    width: Int[Array, ""]


def draw_window(
    key: PRNGKeyArray,
    height: int,
    width: int,
    *,
    area: Range,
    aspect: Range,
    pixel: Array | float = 1,
) -> Window:
    """Return a random window of an image, in whole pixels and inside the image.

    height, width: of the image in pixels. area, aspect: ranges, see `random_resized_crop`.
    pixel: width over height of one pixel in the image to which `aspect` refers.
    """
    k_area, k_aspect, k_top, k_left = jax.random.split(key, 4)
    w, h = _draw_sides(
        (k_area, k_aspect), height * width, area=area, aspect=aspect, pixel=pixel
    )
    fits = (0 < w) & (w <= width) & (0 < h) & (h <= height)
    first, any_fits = jnp.argmax(fits), fits.any()
    central_w = jnp.round(jnp.minimum(width, height * aspect[1] / pixel))
    central_h = jnp.round(jnp.minimum(height, width / aspect[0] * pixel))
    w = jnp.where(any_fits, w[first], central_w.astype(jnp.int32))
    h = jnp.where(any_fits, h[first], central_h.astype(jnp.int32))

    def draw_start(key: PRNGKeyArray, room: Int[Array, ""]) -> Int[Array, ""]:
        return jnp.where(any_fits, jax.random.randint(key, (), 0, room + 1), room // 2)

    top, left = draw_start(k_top, height - h), draw_start(k_left, width - w)
    return Window(top, left, height=h, width=w)


def resize_matrix(
    out: int, length: int, start: Int[Array, ""], count: Int[Array, ""]
) -> Float[Array, "out length"]:
    """Return the matrix that resizes pixels start ... start + count - 1 to `out` pixels.

    length: number of pixels of the input. Each row is a triangle filter around the centre
    of its output pixel, cut at the window's border and scaled to the sum 1. The radius of the
    filter is one pixel of the input or of the output, whichever is larger.
    """
    scale = count / out
    centre = (jnp.arange(out) + 0.5) * scale + start
    pixel = jnp.arange(length)
    distance = (pixel[None, :] + 0.5 - centre[:, None]) / jnp.maximum(scale, 1.0)
    inside = (pixel >= start) & (pixel < start + count)
    triangle = jnp.maximum(1 - jnp.abs(distance), 0) * inside[None, :]
    return triangle / jnp.sum(triangle, axis=1, keepdims=True)


def random_erasing(
    *,
    p: float = 0.5,
    area: Range = (0.02, 1 / 3),
    aspect: Range = (0.3, 3.3),
    fill: str | float | Sequence[float] = (0.485, 0.456, 0.406),
) -> options.Transform:
    """Return a transform that fills a random box of each image with probability p.

    area: range of the box's share of the image, uniform.
    aspect: range of the box's height over width, log-uniform.
    fill: a grey value, a colour (three values in [0, 1]) or "random" for uniform noise.

    The position of the box is uniform inside the image. The first of ten draws that is smaller
    than the image in both directions is used; if none is, the image is unchanged. ValueError
    for an option out of range.
    """
    errors.check_range("random_erasing", 0, 1, p=p)
    errors.check_range("random_erasing", 0, 1, area=area[1])
    errors.check_range("random_erasing", 0, area[1], area=area[0])
    errors.check_range("random_erasing", 1e-6, aspect[1], aspect=aspect[0])
    if isinstance(fill, str):
        errors.check_choice(
            "random_erasing", fill, ("random",), "change fill", name="fill"
        )
    else:
        for value in np.ravel(fill).tolist():
            errors.check_range("random_erasing", 0, 1, fill=value)

    def erased(x, k):
        """Return an image with a random box filled, or unchanged with probability 1 - p.

        x: image (h w c). k: random key. Without a box that fits, the image is unchanged.
        """
        k_gate, k_box, k_fill = jax.random.split(k, 3)
        height, width, channels = x.shape
        inside = draw_box(k_box, height, width, area=area, aspect=aspect)
        inside &= jax.random.bernoulli(k_gate, p)
        if fill == "random":
            filled = jax.random.uniform(k_fill, x.shape, x.dtype)
        else:
            filled = jnp.broadcast_to(jnp.asarray(fill, x.dtype), channels)
            filled = filled.reshape(1, 1, channels)
        return jnp.where(inside[:, :, None], filled, x)

    return options.each_image(erased, p=p)


def draw_box(
    key: PRNGKeyArray, height: int, width: int, *, area: Range, aspect: Range
) -> Bool[Array, "h w"]:
    """Return a mask of the pixels of a random box; no pixel if none of ten draws fits.

    height, width: of the image in pixels. area, aspect: see `random_erasing`.
    """
    k_area, k_aspect, k_place = jax.random.split(key, 3)
    h, w = _draw_sides((k_area, k_aspect), height * width, area=area, aspect=aspect)
    fits = (h < height) & (w < width)
    first = jnp.argmax(fits)
    sides = jnp.stack([h[first], w[first]])
    room = jnp.array([height, width]) - sides
    start = jax.random.randint(k_place, (2,), 0, jnp.maximum(room, 0) + 1)
    return inside_box(start, start + sides, height, width) & fits.any()


def _draw_sides(
    keys: PRNGKeyArray,
    pixels: int,
    *,
    area: Range,
    aspect: Range,
    pixel: Array | float = 1,
) -> list[Int[Array, "tries"]]:
    """Return the sides of ten random windows in pixels: [first sides, second sides].

    keys: two, for area and aspect. pixels: number of pixels of the image. area: range of
    the window's share of the image, uniform. aspect: range of the first side over the
    second, log-uniform. pixel: first side over second side of one pixel.
    """
    k_area, k_aspect = keys
    pixels = pixels * jax.random.uniform(
        k_area, (_NUM_TRIES,), jnp.float32, minval=area[0], maxval=area[1]
    )
    low, high = jnp.log(aspect[0]), jnp.log(aspect[1])
    ratio = jnp.exp(
        jax.random.uniform(
            k_aspect, (_NUM_TRIES,), jnp.float32, minval=low, maxval=high
        )
    )
    ratio = ratio / pixel
    squares = pixels * ratio, pixels / ratio
    return [jnp.round(jnp.sqrt(square)).astype(jnp.int32) for square in squares]


def inside_box(
    start: Int[Array, "2"], end: Int[Array, "2"], height: int, width: int
) -> Bool[Array, "h w"]:
    """Return a mask of the pixels from `start` (row, column) to below `end`.

    height, width: of the mask in pixels.
    """
    down, across = jnp.arange(height), jnp.arange(width)
    rows = (down >= start[0]) & (down < end[0])
    columns = (across >= start[1]) & (across < end[1])
    return rows[:, None] & columns[None, :]
