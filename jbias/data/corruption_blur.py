"""Blurs of ImageNet-C: Gaussian, defocus, glass, motion and zoom.

Each is a function of an image (h, w, 3) of bytes, a generator and its settings.
Source: Hendrycks and Dietterich, ICLR 2019, https://arxiv.org/abs/1903.12261.
Reference code: https://github.com/hendrycks/robustness at 8190fe3. Deviation of all:
another generator; with the same draws the images are the same.
"""

import cv2
import numpy as np
from jaxtyping import Float, Int

from jbias.data import corruption_arrays as arrays
from jbias.data.corruption_arrays import Image


def gaussian_blur(image: Image, rng: np.random.Generator, sigma: float) -> Image:
    """Convolves with a Gaussian of `sigma` pixels; edges repeat."""
    del rng
    return arrays.quantise(arrays.blurred(arrays.unit(image), sigma))


def disk(radius: float, alias: float) -> Float[np.ndarray, "k k"]:
    """Gives a disk of even weight, its border softened by a Gaussian of `alias` pixels.

    The Gaussian has 3 x 3 points, 5 x 5 for a radius beyond 8. A disk that touches the
    kernel's border (radius 8 or 10) is mirrored there, so that the sum is 1.013 or 1.011
    in place of 1 and the picture that much brighter, as in the reference.
    """
    reach = max(8, int(radius))
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    inside = (x**2 + y**2 <= radius**2).astype(np.float32)
    support = (3, 3) if radius <= 8 else (5, 5)
    return cv2.GaussianBlur(inside / inside.sum(), support, sigmaX=alias)


def defocus_blur(
    image: Image, rng: np.random.Generator, radius: float, alias: float
) -> Image:
    """Correlates with a disk of `radius` pixels; edges are mirrored."""
    del rng
    kernel = disk(radius, alias)
    return arrays.quantise(cv2.filter2D(arrays.unit(image), -1, kernel))


def glass_origins(
    rows: Int[np.ndarray, "m n"], columns: Int[np.ndarray, "m n"], reach: int, side: int
) -> Int[np.ndarray, "side*side"]:
    """Gives the pixel that each pixel's value is from after one sweep.

    The sweep goes over y and x from side - reach down to reach + 1 and copies to each
    pixel the one `rows` below and `columns` to the right, which by then may itself be a
    copy. So each pixel points at its neighbour's new value if that comes earlier, else
    at its old one; the chains are followed by doubling.
    """
    pixels = np.arange(side * side)
    grid = pixels.reshape(side, side)
    place = slice(side - reach, reach, -1)
    here = grid[place, place]
    there = here + rows * side + columns
    inner = np.zeros(side * side, bool)
    inner[here] = True
    new = pixels.copy()
    new[here] = there + side * side * (inner[there] & (there > here))
    links = np.concatenate([pixels, new])  # Nodes: old values, then new ones.
    while (links >= side * side).any():
        links = links[links]
    return links[side * side :]


def glass_blur(
    image: Image, rng: np.random.Generator, sigma: float, reach: int, sweeps: int
) -> Image:
    """Blurs, displaces each pixel by up to `reach` pixels, `sweeps` times, and blurs.

    Offsets are drawn evenly from -reach to reach - 1. The reference means to swap a
    pixel with its neighbour, but its arrays share memory and it copies the neighbour,
    which stays as it was: so here.
    """
    side = len(image)
    x = arrays.quantise(arrays.blurred(arrays.unit(image), sigma)).reshape(-1, 3)
    inner = side - 2 * reach
    for _ in range(sweeps):
        offsets = rng.integers(-reach, reach, (inner, inner, 2))
        x = x[glass_origins(offsets[..., 1], offsets[..., 0], reach, side)]
    x = arrays.unit(x.reshape(image.shape))
    return arrays.quantise(arrays.blurred(x, sigma))


def motion_blur(
    image: Image, rng: np.random.Generator, radius: int, sigma: float
) -> Image:
    """Blurs along a line at U(-45, 45) degrees by a one-sided Gaussian."""
    degrees = rng.uniform(-45, 45)
    return arrays.moved(image, radius, sigma, degrees).astype(np.uint8)


def zoom_factors(step: float, count: int) -> Float[np.ndarray, "count"]:
    """Gives 1, 1 + step ...: `count` of them, to the last digit of the reference's."""
    # Not 1 + k step: the last digit decides where a side of 32.5 pixels is rounded to.
    return np.arange(1, 1 + (count - 0.5) * step, step)


def zoom_blur(image: Image, rng: np.random.Generator, step: float, count: int) -> Image:
    """Averages the image and its zooms by 1, 1 + step ...: `count` of them.

    The first factor is 1, so that the image itself counts twice: as in the reference.
    Deviation: interpolated in float32, which a few bytes in a thousand show, by 1.
    """
    del rng
    x = arrays.unit(image, np.float32)
    total = x.copy()
    for factor in zoom_factors(step, count):
        total += arrays.zoomed(x, factor)
    return arrays.quantise(total / np.float32(count + 1))
