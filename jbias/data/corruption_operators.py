"""Settings of the corruptions as arrays, for corrupting images on a device.

    settings("fog", 3, side=224)  # {"thick": 2.5, "decay": 1.7}

All severities of a corruption have arrays of the same names, shapes and types: filters
are matrices, kernels are padded with zeros to the longest one.
"""

import functools
import inspect
import io
import pathlib
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import PIL.Image
from jaxtyping import Float, Int
from scipy import ndimage, stats

from jbias.data import corruption_kernels as host
from jbias.data import corruptions
from jbias.untrusted import opening

Arrays = dict[str, np.ndarray]

_KERNEL = 41  # Points of the longest motion.
_DISK = 21


def settings(
    name: str,
    severity: int,
    *,
    side: int,
    table: int | None = None,
    frost: str | pathlib.Path | None = None,
) -> Arrays:
    """Gives the arrays of a corruption at a severity for images of `side` pixels.

    table, frost: as of data.corruptions.corrupt. Raises ValueError as that does.
    """
    rows = corruptions.severity_settings(name, side, table)
    row = rows[corruptions.severity_index(severity)]
    made = {key: np.float32(value) for key, value in zip(_names(name), row)}
    if name == "frost":
        return made | _ice(tuple(host.photographs(frost)), row[2], side)
    if name in _BUILDERS:
        made |= _BUILDERS[name](side, *row)
    if name == "zoom_blur":
        missing = int(max(count for _, count in rows)) - len(made["zooms"])
        made["zooms"] = np.pad(made["zooms"], ((0, missing), (0, 0), (0, 0)))
    if name == "shot_noise":
        made["photons"] = _photons(row[0], int(max(count for (count,) in rows)))
    return made


def _names(name: str) -> list[str]:
    """What the numbers of a row are called: the host's parameters, after image and rng."""
    corruption = {**corruptions.CORRUPTIONS, **corruptions.BAR}[name].apply
    return list(inspect.signature(corruption).parameters)[2:]


def _gaussian(side: int, sigma: float, mode: str = "nearest") -> np.ndarray:
    """Gives the matrix of a Gaussian filter, cut at 4 sigma."""
    matrix = ndimage.gaussian_filter(np.eye(side), (sigma, 0), mode=mode, truncate=4.0)
    return matrix.astype(np.float32)


def _photons(count: float, most: int) -> Float[np.ndarray, "256 n"]:
    """Gives the distribution function of Poisson(count x / 255) of each byte x."""
    length = 1 << int(most + 8 * most**0.5).bit_length()
    means = np.arange(256)[:, None] * (count / 255)
    return stats.poisson.cdf(np.arange(length), means).astype(np.float32)


def _defocus(side: int, radius: float, alias: float) -> Arrays:
    """Gives filters of rows, mirrored at the edges, by the lower half of the disk."""
    disk = host.disk(radius, alias)
    reach = len(disk) // 2
    chords = np.zeros((_DISK // 2 + 1, side, side), np.float32)
    for chord, kernel in zip(chords, disk[reach:], strict=False):
        ndimage.correlate1d(np.eye(side), kernel, axis=0, mode="mirror", output=chord)
    return {"chords": chords, "count": np.int32(reach + 1)}


def _motion(radius: int, sigma: float) -> Arrays:
    kernel = host.motion_kernel(radius, sigma).astype(np.float32)
    padded = np.pad(kernel, (0, _KERNEL - len(kernel)))
    return {"kernel": padded, "taps": np.int32(len(kernel))}


def _zoom(side: int, step: float, count: int) -> Arrays:
    factors = host.zoom_factors(step, count)
    one = np.eye(side, dtype=np.float32)
    zooms = np.stack([host.magnified(one, factor) for factor in factors])
    return {"zooms": zooms, "count": np.int32(count)}


def _snow(side: int, *row: float) -> Arrays:
    _, _, zoom, _, radius, blur, _ = row
    zoomed = host.magnified(np.eye(side), zoom).astype(np.float32)
    return {"zoom": zoomed, **_motion(radius, blur)}


@functools.lru_cache(maxsize=2)
def _ice(paths: tuple[pathlib.Path, ...], scale: float, side: int) -> Arrays:
    """Gives the photographs padded to one size, the same arrays for all severities."""
    photographs = [host.ice(path, scale, side) for path in paths]
    sizes = np.int32([one.shape[:2] for one in photographs])
    padded = np.zeros((len(paths), *sizes.max(0), 3), np.uint8)
    for to, one in zip(padded, photographs, strict=True):
        to[: one.shape[0], : one.shape[1]] = one
    return {"ice": padded, "sizes": sizes}


def _spatter(side: int, *row: float) -> Arrays:
    _, _, blur, _, strength, mud = row
    return {
        "blur": _gaussian(side, blur),
        "border": _gaussian(side, strength if mud else 0),
        "mud": np.bool_(mud),
    }


def _pixelate(side: int, scale: float) -> Arrays:
    """Gives which pixels each one is a mean of, and 2^22 over their number.

    Pillow shrinks and enlarges by a box filter: by the way of either, an entry of a
    picture is 1 at one pixel and 0 elsewhere.
    """
    small = int(side * scale)
    box = PIL.Image.Resampling.BOX
    eye = np.eye(side, dtype=np.float32) * 255
    shrunk = PIL.Image.fromarray(eye).resize((side, small), box)
    boxes = np.array(shrunk.resize((side, side), box)) > 0
    counts = boxes.sum(1)
    return {
        "boxes": boxes.astype(np.float32),
        "weights": np.floor(2**22 / counts + 0.5).astype(np.int32),
    }


@functools.cache
def quantisation_tables(quality: int) -> Int[np.ndarray, "2 8 8"]:
    """Gives the steps of luma and colour that Pillow writes at a quality, 1 to 95."""
    stream = io.BytesIO()
    PIL.Image.new("RGB", (8, 8)).save(stream, "JPEG", quality=quality)
    with opening.image(stream) as picture:
        steps = [picture.quantization[i] for i in (0, 1)]
    return np.int32(steps).reshape(2, 8, 8)


_BUILDERS: Mapping[str, Callable[..., Arrays]] = MappingProxyType(
    {
        "gaussian_blur": lambda side, sigma: {"blur": _gaussian(side, sigma)},
        "defocus_blur": _defocus,
        "glass_blur": lambda side, sigma, reach, sweeps: {
            "blur": _gaussian(side, sigma),
            "reach": np.int32(reach),
            "sweeps": np.int32(sweeps),
        },
        "motion_blur": lambda side, radius, sigma: _motion(radius, sigma),
        "zoom_blur": _zoom,
        "snow": _snow,
        "spatter": _spatter,
        "elastic_transform": lambda side, _, sigma, __: {
            "smoother": host.smoother(side, sigma).astype(np.float32)
        },
        "pixelate": _pixelate,
        "jpeg_compression": lambda _, quality: {"tables": quantisation_tables(quality)},
        "caustic_refraction": lambda side, _: {"blur": _gaussian(side, 1, "reflect")},
    }
)
