"""Noises of ImageNet-C: Gaussian, shot, impulse and speckle.

Each is a function of an image (h, w, 3) of bytes, a generator and its settings.
Source: Hendrycks and Dietterich, ICLR 2019, https://arxiv.org/abs/1903.12261.
Reference code: https://github.com/hendrycks/robustness at 8190fe3. Deviation of all:
another generator; with the same draws the images are the same.
"""

import numpy as np

from jbias.data import corruption_arrays as arrays
from jbias.data.corruption_arrays import Image


def gaussian_noise(image: Image, rng: np.random.Generator, sigma: float) -> Image:
    """Adds N(0, sigma^2), on the scale of [0, 1], to each value."""
    return arrays.quantise(arrays.unit(image) + rng.normal(0, sigma, image.shape))


def shot_noise(image: Image, rng: np.random.Generator, count: float) -> Image:
    """Draws Poisson(count x) / count: white is `count` photons."""
    return arrays.quantise(rng.poisson(arrays.unit(image) * count) / count)


def impulse_noise(image: Image, rng: np.random.Generator, chance: float) -> Image:
    """Sets each value, with this chance and alone, to 0 or 255, evenly."""
    draw = rng.random(image.shape)
    out = np.where(draw < chance, np.uint8(255), image)
    out[draw < chance / 2] = 0
    return out


def speckle_noise(image: Image, rng: np.random.Generator, sigma: float) -> Image:
    """Adds x N(0, sigma^2) to each value x."""
    x = arrays.unit(image)
    return arrays.quantise(x + x * rng.normal(0, sigma, image.shape))
