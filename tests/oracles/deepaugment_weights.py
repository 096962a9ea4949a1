"""Weights, images and codes that a test and its oracle draw by name with numpy.

Names and shapes are those of DeepAugment's published files.
"""

import zlib

import numpy as np


def draw(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Draw a tensor, scaled so that activations stay near 1 through many blocks."""
    rng = np.random.default_rng([2026, zlib.crc32(name.encode())])
    if len(shape) == 1:
        return (0.05 * rng.standard_normal(shape)).astype(np.float32)
    scale = np.prod(shape[1:]) ** -0.5
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def image(height: int, width: int) -> np.ndarray:
    """Noise of a different colour an image, NHWC in [0, 1]."""
    rng = np.random.default_rng(2026)
    noise = rng.uniform(0, 1, (2, height, width, 3))
    colour = rng.uniform(0, 1, (2, 1, 1, 3))
    return (0.5 * noise + 0.5 * colour).astype(np.float32)


def code(height: int, width: int) -> np.ndarray:
    """Bits, NHWC."""
    bits = np.random.default_rng(2027).integers(0, 2, (2, height, width, 32))
    return bits.astype(np.float32)


def kernels(seed: int) -> np.ndarray:
    """Draw a weight tensor (out, in, 3, 3) with equal numbers of input and output channels."""
    return np.random.default_rng(seed).standard_normal((5, 5, 3, 3)).astype(np.float32)
