"""Weights and images that a test and its oracle draw by name with numpy."""

import zlib

import numpy as np

# Name: the library, the side at which positions are drawn, that of the images, options.
CASES = {
    "timm": ("timm", 32, 32, {}),
    "timm_larger": ("timm", 32, 48, {}),
    "timm_smaller": ("timm", 32, 24, {}),
    "timm_avg": ("timm", 32, 32, {"pool": "avg"}),
    "timm_headless": ("timm", 32, 32, {"classes": 0}),
    "torchvision": ("torchvision", 32, 32, {}),
    "transformers": ("transformers", 32, 32, {}),
}
WIDTH, DEPTH, HEADS, PATCH, CLASSES, BATCH = 32, 4, 2, 8, 7, 3


def draw(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Draw a tensor; layers have different scales, so that norms and their eps matter."""
    rng = np.random.default_rng([2021, zlib.crc32(name.encode())])
    x = rng.standard_normal(shape)
    if name.endswith(("cls_token", "class_token")) or "pos" in name:
        pass
    elif len(shape) > 1:
        x *= (2 / np.prod(shape[1:])) ** 0.5
    elif name.endswith("weight"):
        x = 1 + 0.2 * x
    else:
        x *= 0.3
    return x.astype(np.float32)


def images(side: int) -> np.ndarray:
    """Noise of different contrast an image, NHWC in [0, 1]."""
    rng = np.random.default_rng(side)
    noise = rng.uniform(0, 1, (BATCH, side, side, 3))
    return (noise * [[[[1.0]]], [[[0.5]]], [[[0.1]]]]).astype(np.float32)
