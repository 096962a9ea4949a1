"""Flips, crops and random erasing.

`random_resized_crop` is torchvision's, with antialiasing. `random_erasing` hides a box.
Source: Zhong et al., AAAI 2020, https://arxiv.org/abs/1708.04896; as in torchvision.
Deviation: torchvision and timm erase after normalisation, where 0 is the training set's
mean colour and noise is N(0, 1). Here images are in [0, 1]: the default `fill` is that mean
colour, and noise is uniform, as in the paper.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jbias.augment import options, sampling

Range = tuple[float, float]


def flip(*, p: float = 0.5) -> Callable:
    """Mirrors each image with probability p."""
    options.check_range("flip", 0, 1, p=p)

    def mirrored(image, key):
        return jnp.where(jax.random.bernoulli(key, p), image[:, ::-1], image)

    return options.each_image(mirrored)


def pad_crop(*, pad: int = 4) -> Callable:
    """Shifts each image by up to `pad` pixels each way; what comes in is black (0)."""
    options.check_plain("pad_crop", "at least 0", pad=pad)

    def window(image, key):
        padded = jnp.pad(image, ((pad, pad), (pad, pad), (0, 0)))
        top, left = jax.random.randint(key, (2,), 0, 2 * pad + 1)
        return jax.lax.dynamic_slice(padded, (top, left, 0), image.shape)

    return options.each_image(window)


_TRIES = 10
_ASPECT: Range = (3 / 4, 4 / 3)


def random_resized_crop(
    *, size: int | None = None, area: Range = (0.08, 1.0), aspect: Range = _ASPECT
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
    options.check_plain("random_resized_crop", "at least 1", size=size)
    for name, (low, high) in (("area", area), ("aspect", aspect)):
        if not 0 < low <= high or (name == "area" and high > 1):
            must = f"random_resized_crop: {name} must be a range of positive numbers"
            got = f"areas at most 1, got {(low, high)}"
            raise ValueError(f"{must}, {got}; change {name}")

    def apply(batch, key):
        image = batch["image"]
        _, height, width, _ = image.shape
        rows, columns = (size, size) if size else (height, width)
        squeezed = "aspect" in batch

        def one(x, k, wide):
            pixel = wide * height / width if squeezed else 1
            window = dict(area=area, aspect=aspect, pixel=pixel)
            top, left, h, w = draw_window(k, height, width, **window)
            down = resize_matrix(rows, height, top, h)
            across = resize_matrix(columns, width, left, w)
            # Narrower than float32 these products would show in 8-bit images.
            exact = dict(precision=jax.lax.Precision.HIGHEST)
            return jnp.einsum("ih,hwc,jw->ijc", down, x, across, **exact)

        keys = sampling.keys(key, image.shape[0])
        wide = batch["aspect"] if squeezed else jnp.ones(image.shape[0])
        batch = {name: x for name, x in batch.items() if name != "aspect"}
        return {**batch, "image": jax.vmap(one)(image, keys, wide)}

    return apply


def draw_window(
    key: PRNGKeyArray, height: int, width: int, *, area: Range, aspect: Range, pixel=1
) -> tuple[Int[Array, ""], ...]:
    """Draws top, left, height and width of a window, in pixels.

    `pixel` is the width over height of one pixel in the image that `aspect` is of.
    """
    k_area, k_aspect, k_top, k_left = jax.random.split(key, 4)
    w, h = _draw_sides((k_area, k_aspect), height * width, area, aspect, pixel)
    fits = (0 < w) & (w <= width) & (0 < h) & (h <= height)
    first, found = jnp.argmax(fits), fits.any()
    whole_w = jnp.round(jnp.minimum(width, height * aspect[1] / pixel))
    whole_h = jnp.round(jnp.minimum(height, width / aspect[0] * pixel))
    w = jnp.where(found, w[first], whole_w.astype(jnp.int32))
    h = jnp.where(found, h[first], whole_h.astype(jnp.int32))

    def place(key: PRNGKeyArray, room: Int[Array, ""]) -> Int[Array, ""]:
        return jnp.where(found, jax.random.randint(key, (), 0, room + 1), room // 2)

    return place(k_top, height - h), place(k_left, width - w), h, w


def resize_matrix(
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


def random_erasing(
    *,
    p: float = 0.5,
    area: Range = (0.02, 1 / 3),
    aspect: Range = (0.3, 3.3),
    fill: str | float | Sequence[float] = (0.485, 0.456, 0.406),
) -> Callable:
    """Fills a box of each image, with chance p, with a grey, a colour or "random".

    The box's share of the image is uniform in `area`, its height over width log-uniform
    in `aspect`, its place uniform inside the image. The first of ten draws that is
    smaller than the image both ways counts; if none is, the image stays.
    """
    options.check_range("random_erasing", 0, 1, p=p)
    options.check_range("random_erasing", 0, 1, area=area[1])
    options.check_range("random_erasing", 0, area[1], area=area[0])
    options.check_range("random_erasing", 1e-6, aspect[1], aspect=aspect[0])
    if isinstance(fill, str):
        options.check_choice("random_erasing", "fill", fill, ("random",))
    else:
        for value in np.ravel(fill).tolist():
            options.check_range("random_erasing", 0, 1, fill=value)

    def erased(x, k):
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
    """Draws a box and marks its pixels; none where no draw fits."""
    *k_sides, k_place = jax.random.split(key, 3)
    h, w = _draw_sides(k_sides, height * width, area, aspect)
    fits = (h < height) & (w < width)
    first = jnp.argmax(fits)
    sides = jnp.stack([h[first], w[first]])
    room = jnp.array([height, width]) - sides
    start = jax.random.randint(k_place, (2,), 0, jnp.maximum(room, 0) + 1)
    return inside_box(start, start + sides, height, width) & fits.any()


def _draw_sides(keys, pixels, area, aspect, pixel=1) -> list[Int[Array, "tries"]]:
    """Draws two sides, the first the longer where the ratio, log-uniform, is above 1."""
    k_area, k_aspect = keys
    pixels = pixels * jax.random.uniform(k_area, (_TRIES,), jnp.float32, *area)
    low, high = jnp.log(aspect[0]), jnp.log(aspect[1])
    ratio = jnp.exp(jax.random.uniform(k_aspect, (_TRIES,), jnp.float32, low, high))
    ratio = ratio / pixel
    sides = pixels * ratio, pixels / ratio
    return [jnp.round(jnp.sqrt(side)).astype(jnp.int32) for side in sides]


def inside_box(
    start: Int[Array, "2"], end: Int[Array, "2"], height: int, width: int
) -> Bool[Array, "h w"]:
    """Marks the pixels from `start` (row, column) to below `end`."""
    down, across = jnp.arange(height), jnp.arange(width)
    rows = (down >= start[0]) & (down < end[0])
    columns = (across >= start[1]) & (across < end[1])
    return rows[:, None] & columns[None, :]
