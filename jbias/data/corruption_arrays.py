"""What several corruptions do to an array: to bytes and back, blur, zoom, motion.

Bytes are cut, not rounded, as in the code that made the published sets, unless said
otherwise.
"""

import math

import numpy as np
from jaxtyping import Float, UInt8
from scipy import ndimage

Image = UInt8[np.ndarray, "h w 3"]
Plane = Float[np.ndarray, "h w"]
Field = Float[np.ndarray, "h w *c"]  # A plane, or channels of one.


def unit(image: Image, dtype: type = np.float64) -> Float[np.ndarray, "h w 3"]:
    """Scales bytes to [0, 1]."""
    return image.astype(dtype) / dtype(255)


def quantise(image: Float[np.ndarray, "h w 3"]) -> Image:
    """Scales [0, 1] to bytes; what lies outside is clipped, fractions are cut off."""
    return (np.clip(image, 0, 1) * 255).astype(np.uint8)


def blurred(field: Field, sigma: float) -> Field:
    """Convolves with a Gaussian, sigma in pixels, cut at 4 sigma; edges repeat."""
    sigmas = (sigma, sigma, 0)[: field.ndim]
    return ndimage.gaussian_filter(field, sigmas, mode="nearest", truncate=4.0)


def _stretched(field: Field, count: int, start: int, side: int) -> Field:
    """Interpolates the first axis at `count` even places, and keeps `side` of them."""
    place = (start + np.arange(side)) * ((len(field) - 1) / (count - 1))
    low = np.minimum(place.astype(int), len(field) - 2)
    share = (place - low).astype(field.dtype)
    share = share.reshape(-1, *[1] * (field.ndim - 1))
    return field[low] * (1 - share) + field[low + 1] * share


def magnified(field: Field, factor: float) -> Field:
    """Enlarges the middle of the first axis to the whole: linear, ends on ends.

    The middle has ceil(side / factor) entries and grows to round(factor times that); of
    those the middle `side` are kept, and an odd one too many is trimmed at the end.
    """
    side = len(field)
    crop = math.ceil(side / factor)
    top = (side - crop) // 2
    grown = round(crop * factor)
    return _stretched(field[top : top + crop], grown, (grown - side) // 2, side)


def zoomed(field: Field, factor: float) -> Field:
    """Enlarges the centre to the whole square: `magnified` along both axes."""
    rows = np.swapaxes(magnified(field, factor), 0, 1)
    return np.swapaxes(magnified(rows, factor), 0, 1)


def motion_kernel(radius: int, sigma: float) -> Float[np.ndarray, "k"]:
    """Gives exp(-i^2 / (2 sigma^2)), i = 0 .. 2 radius, over their sum: one-sided."""
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    return weights / weights.sum()


def moved(field: Field, radius: int, sigma: float, degrees: float) -> Field:
    """Blurs as a camera moving in a direction does; values on the scale of bytes.

    out(x, y) = sum_i k_i in(x + ceil(i cos a - 1/2), y + ceil(i sin a - 1/2)); edges
    repeat; y points down. As ImageMagick 6 does it, by which the published sets were
    made: sums are rounded to 16 bits, x 257, and fractions of bytes then cut off.
    """
    kernel = motion_kernel(radius, sigma).astype(np.float32)
    steps = np.arange(len(kernel))
    turn = math.radians(degrees)
    right = np.ceil(steps * math.cos(turn) - 0.5).astype(int)
    down = np.ceil(steps * math.sin(turn) - 0.5).astype(int)
    reach = len(kernel)
    pads = ((reach, reach), (reach, reach), (0, 0))[: field.ndim]
    padded = np.pad(field.astype(np.float32), pads, mode="edge")
    height, width = field.shape[:2]
    out = np.zeros(field.shape, np.float32)
    for weight, x, y in zip(kernel, right + reach, down + reach, strict=True):
        out += weight * padded[y : y + height, x : x + width]
    return np.rint(out * 257) // 257
