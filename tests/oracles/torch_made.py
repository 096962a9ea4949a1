"""Tensors shared by a test and its oracle: shapes of published files with little content.

All are views of one storage of 4000 numbers, whose strides are small primes, so that
every axis counts and a file of 80 MB becomes one of 30 kB.
"""

import zlib

import numpy as np

_LAYERS = {
    "vgg": ((0, 3), (2, 64), (5, 64), (9, 128), (12, 128), (16, 256), (19, 256))
    + ((22, 256), (25, 256), (29, 512), (32, 512), (35, 512), (38, 512), (42, 512))
    + ((45, 512), (48, 512), (51, 512)),
    "decoder": ((1, 256), (5, 256), (8, 256), (11, 256), (14, 128), (18, 128))
    + ((21, 64), (25, 64), (28, 3)),
}


def shapes(net: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a published file's entries by name, (out, in, h, w)."""
    fan_in = {"vgg": 3, "decoder": 512}[net]
    shape_by_name = {}
    for number, width in _LAYERS[net]:
        size = 3 if number else 1
        shape_by_name[f"{number}.weight"] = (width, fan_in, size, size)
        shape_by_name[f"{number}.bias"] = (width,)
        fan_in = width
    return shape_by_name


def storage() -> np.ndarray:
    return np.random.default_rng(2017).standard_normal(4000).astype(np.float32)


def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (2, 3, 5, 7)[: len(shape)]


def offset(name: str) -> int:
    return zlib.crc32(name.encode()) % 1000


def tensor(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return the tensor of that name in the file, in PyTorch's layout."""
    at = offset(name)
    steps = tuple(4 * step for step in strides(shape))
    return np.lib.stride_tricks.as_strided(storage()[at:], shape, steps)
