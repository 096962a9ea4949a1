"""Weights and images that a test and its oracle draw by name with numpy.

Names and shapes are those of PyTorch's published ResNets.
"""

import zlib

import numpy as np

# Name: depths, bottleneck, stem, image size.
CASES = {
    "resnet18": ((2, 2, 2, 2), False, "small", 32),
    "resnet50": ((3, 4, 6, 3), True, "imagenet", 96),
}
CLASSES = 100
BATCH = 4


def draw(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Draw a tensor, scaled so that activations and logits stay near 1."""
    rng = np.random.default_rng([2026, zlib.crc32(name.encode())])
    kind = name.rpartition(".")[2]
    if len(shape) > 1:
        gain = 2 if len(shape) == 4 else 1
        x = rng.standard_normal(shape) * (gain / np.prod(shape[1:])) ** 0.5
    elif kind == "running_var":
        x = rng.uniform(0.5, 1.5, shape)
    elif kind == "weight":
        x = rng.uniform(0.4, 0.8, shape)
    else:
        x = 0.1 * rng.standard_normal(shape)
    return x.astype(np.float32)


def images(size: int) -> np.ndarray:
    """Noise of a different colour and contrast an image, NHWC in [0, 1]."""
    rng = np.random.default_rng(2026)
    noise = rng.uniform(0, 1, (BATCH, size, size, 3))
    colour, contrast = rng.uniform(0, 1, (2, BATCH, 1, 1, 3))
    return (contrast * noise + (1 - contrast) * colour).astype(np.float32)


def labels() -> np.ndarray:
    return np.arange(BATCH) * 7
