"""The filters of corruptions for the device: arrays, made by NumPy on the host.

This module is an `operations.Filters`, which documents the functions.
augment.corruption_operations uses the filters. For a side, the filters of all severities have
the same shapes and types: Gaussians and zooms are matrices, and kernels are padded with zeros
to the longest one.
"""

import functools
import io
import pathlib
from typing import NamedTuple

import numpy as np
import PIL.Image
from jaxtyping import Float, Int, UInt8
from scipy import ndimage, special

from jbias.data.corruptions import host_operations as host
from jbias.data.corruptions.operations import Line
from jbias.untrusted import opening

_LONGEST_LINE = 41  # Points.
_LARGEST_DISK = 21  # Rows.

Matrix = Float[np.ndarray, "side side"]


class Disk(NamedTuple):
    """A symmetric disk: a filter matrix for each of its rows, from the middle on.

    Filters beyond the first `count` are 0.
    """

    chords: Float[np.ndarray, "n side side"]
    count: Int[np.ndarray, ""]


class Box(NamedTuple):
    """A mask of the pixels that each pixel averages, and 2^22 over their number, rounded."""

    mask: Float[np.ndarray, "side side"]
    weights: Int[np.ndarray, "side"]


class Photons(NamedTuple):
    """The probability of at most j photons (column) for each byte x (row).

    The number of photons of a byte x has the distribution Poisson(count x / 255). Columns j are
    0, 1, ..., n - 1; n is a power of two, large enough for the brightest severity.
    """

    distribution: Float[np.ndarray, "256 n"]
    count: Float[np.ndarray, ""]


class Photographs(NamedTuple):
    """Photographs padded with zeros to one size; sizes: height and width without the padding."""

    ice: UInt8[np.ndarray, "n h w 3"]
    sizes: Int[np.ndarray, "n 2"]


def gaussian(side: int, sigma: float, mode: str = "nearest") -> Matrix:
    """Return the matrix of a Gaussian filter of `sigma` pixels, truncated at 4 sigma."""
    matrix = ndimage.gaussian_filter(np.eye(side), (sigma, 0), mode=mode, truncate=4.0)
    return matrix.astype(np.float32)


def disk(side: int, radius: float, alias: float) -> Disk:
    """Return the rows of host_operations.disk as matrices; edges are mirrored."""
    kernel = host.disk(side, radius, alias)
    reach = len(kernel) // 2
    chords = np.zeros((_LARGEST_DISK // 2 + 1, side, side), np.float32)
    for chord, row in zip(chords, kernel[reach:], strict=False):
        ndimage.correlate1d(np.eye(side), row, axis=0, mode="mirror", output=chord)
    return Disk(chords, np.int32(reach + 1))


def line(radius: int, sigma: float) -> Line:
    """Return host_operations.line, padded to _LONGEST_LINE weights."""
    kernel, taps = host.line(radius, sigma)
    return Line(np.pad(kernel, (0, _LONGEST_LINE - taps)), np.int32(taps))


def zoom(side: int, factor: float) -> Matrix:
    """Return the matrix of an enlargement along an axis."""
    return host.magnified(np.eye(side), factor).astype(np.float32)


def zooms(
    side: int, step: float, count: int, *, most: int
) -> Float[np.ndarray, "most side side"]:
    """Return the matrices of `count` enlargements along an axis, padded to `most` matrices."""
    identity = np.eye(side, dtype=np.float32)
    factors = host.zooms(side, step, count)
    matrices = np.stack([host.magnified(identity, factor) for factor in factors])
    return np.pad(matrices, ((0, most - len(matrices)), (0, 0), (0, 0)))


def smoother(side: int, sigma: float) -> Matrix:
    """Return host_operations.smoother in float32."""
    return host.smoother(side, sigma).astype(np.float32)


def box(side: int, scale: float) -> Box:
    """Return Pillow's box filter, computed on the rows of an identity matrix."""
    small, resample = host.box(side, scale), PIL.Image.Resampling.BOX
    eye = np.eye(side, dtype=np.float32) * 255
    shrunk = PIL.Image.fromarray(eye).resize((side, small), resample)
    mask = np.array(shrunk.resize((side, side), resample)) > 0
    weights = np.floor(2**22 / mask.sum(1) + 0.5)
    return Box(mask.astype(np.float32), weights.astype(np.int32))


@functools.cache
def jpeg(quality: int) -> Int[np.ndarray, "2 8 8"]:
    """Return the JPEG quantisation steps, luma then chroma, that Pillow writes.

    quality: 1 to 95.
    """
    stream = io.BytesIO()
    PIL.Image.new("RGB", (8, 8)).save(stream, "JPEG", quality=quality)
    with opening.open_image(stream) as picture:
        steps = [picture.quantization[i] for i in (0, 1)]
    return np.int32(steps).reshape(2, 8, 8)


def photons(count: float, *, most: float) -> Photons:
    """Return the distribution of photons for each byte, for at most `most` for white."""
    length = 1 << int(most + 8 * most**0.5).bit_length()
    means = np.arange(256)[:, None] * (count / 255)
    distribution = special.pdtr(np.arange(length), means).astype(np.float32)
    return Photons(distribution, np.float32(count))


def photographs(
    side: int, folder: str | pathlib.Path | None, scale: float
) -> Photographs:
    """Return the photographs of the corruption "frost" as arrays.

    side: side in pixels of the images that are corrupted; scaled photographs must be larger.
    folder: contains the five files host_operations.FROSTS. scale: factor on the height and width of
    the photographs. ValueError if `folder` is None or lacks a file, if a file cannot be decoded, or
    if a scaled photograph is not higher and wider than `side`. The latest two results are cached.
    """
    return _photographs(host.photographs(side, folder, scale), side)


@functools.lru_cache(maxsize=2)
def _photographs(photographs: host.Photographs, side: int) -> Photographs:
    """Return the photographs, scaled, as arrays. side: see the function `photographs`."""
    scale = photographs.scale
    ice = [host.photograph(path, scale, side) for path in photographs.paths]
    sizes = np.int32([photograph.shape[:2] for photograph in ice])
    padded = np.zeros((len(ice), *sizes.max(0), 3), np.uint8)
    for photograph, target in zip(ice, padded, strict=True):
        height, width = photograph.shape[:2]
        target[:height, :width] = photograph
    return Photographs(padded, sizes)
