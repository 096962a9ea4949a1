"""Weights and images that a test and its oracle draw by name with numpy.

Names and shapes are those of AdaIN's published files.
"""

import zlib

import numpy as np

# Odd sides: pooling keeps the last row, and the output is larger than the input.
SIZES = {"even": (24, 32), "odd": (21, 27)}
ALPHA = 0.6


def draw(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Draw a tensor (out, in, h, w) by name, such as "vgg/2.weight"; activations stay near 1."""
    rng = np.random.default_rng([2017, zlib.crc32(name.encode())])
    if len(shape) == 1:
        return (0.1 * rng.standard_normal(shape)).astype(np.float32)
    if shape[1] == 3 and shape[2] == 1:  # The preprocessing keeps the colours apart.
        return (np.eye(3) * 2 + 0.1 * rng.standard_normal((3, 3)))[
            :, :, None, None
        ].astype(np.float32)
    scale = (2 / np.prod(shape[1:])) ** 0.5
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def images(case: str) -> np.ndarray:
    """Three images of differing colour, contrast and coarseness, NHWC in [0, 1]."""
    height, width = SIZES[case]
    rng = np.random.default_rng([2017, zlib.crc32(case.encode())])
    images = []
    for coarse in (1, 2, 4):
        noise = rng.uniform(0, 1, (-(-height // coarse), -(-width // coarse), 3))
        noise = noise.repeat(coarse, 0).repeat(coarse, 1)[:height, :width]
        contrast, colour = rng.uniform(0.3, 1), rng.uniform(0, 1, 3)
        images.append(contrast * noise + (1 - contrast) * colour)
    return np.stack(images).astype(np.float32)
