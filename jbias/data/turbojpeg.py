"""Parts of JPEG files by TurboJPEG 3, where that library is at hand.

Its cropping region spares the inverse DCT of what lies outside. Packages for Python do
not offer it, so that the library is called directly: conda's and Homebrew's
libjpeg-turbo bring it, and on PyPI the wheels of `turbojpeg`.
Source: turbojpeg.h of libjpeg-turbo 3.0, https://libjpeg-turbo.org.
"""

import ctypes
import ctypes.util
import functools
import pathlib
import sys
import sysconfig

import numpy as np
from jaxtyping import UInt8

_DECOMPRESS, _RGB = 1, 0  # TJINIT_DECOMPRESS, TJPF_RGB.
_PLACES = (  # Of the environment, before the system's; relative to `purelib` or prefix.
    ("purelib", "turbojpeg.libs/libturbojpeg*"),
    ("data", "lib/libturbojpeg.so.0"),
    ("data", "lib/libturbojpeg.0.dylib"),
    ("data", "Library/bin/turbojpeg.dll"),
)


class _Region(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("x", "y", "w", "h")]


class _Scale(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("num", "denom")]


_TYPES = {
    "tj3Init": (ctypes.c_void_p, ctypes.c_int),
    "tj3Destroy": (None, ctypes.c_void_p),
    "tj3DecompressHeader": (
        ctypes.c_int,
        *(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t),
    ),
    "tj3SetScalingFactor": (ctypes.c_int, ctypes.c_void_p, _Scale),
    "tj3SetCroppingRegion": (ctypes.c_int, ctypes.c_void_p, _Region),
    "tj3Decompress8": (
        ctypes.c_int,
        *(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t),
        *(ctypes.c_void_p, ctypes.c_int, ctypes.c_int),
    ),
    "tj3GetErrorStr": (ctypes.c_char_p, ctypes.c_void_p),
}


@functools.cache
def shared_object() -> ctypes.CDLL | None:
    """TurboJPEG, version 3 or later; None if there is none."""
    found = []
    for kind, pattern in _PLACES:
        found += sorted(pathlib.Path(sysconfig.get_path(kind)).glob(pattern))
    if sys.platform == "darwin":
        found.append("/opt/homebrew/opt/jpeg-turbo/lib/libturbojpeg.0.dylib")
    for path in (*found, ctypes.util.find_library("turbojpeg")):
        try:
            opened = ctypes.CDLL(str(path)) if path else None
        except OSError:  # For another machine, or not there.
            continue
        if hasattr(opened, "tj3SetCroppingRegion"):
            for name, (result, *arguments) in _TYPES.items():
                function = getattr(opened, name)
                function.restype, function.argtypes = result, arguments
            return opened
    return None


def decode(
    data: bytes, rows: slice, columns: slice, *, width: int, unit: int, reduction: int
) -> UInt8[np.ndarray, "h w 3"]:
    """Decodes a part of a JPEG file to RGB, at 1 / reduction of its size.

    `rows`, `columns` and `width`, which is the image's, are in reduced pixels; `unit` is
    how many columns of the original are coded together. Where chroma is upsampled, which
    mixes neighbours, takes a unit more on both sides: the pixels are those of the whole.
    Raises ValueError where the library refuses the file, or warns of it.
    """
    tj, beside, unit = shared_object(), int(unit > 8), unit // reduction
    start = max(columns.start // unit - beside, 0) * unit
    stop = min((-(-columns.stop // unit) + beside) * unit, width)
    region = _Region(start, rows.start, stop - start, rows.stop - rows.start)
    pixels = np.empty((region.h, region.w, 3), np.uint8)
    handle = tj.tj3Init(_DECOMPRESS)
    try:
        failed = (
            tj.tj3DecompressHeader(handle, data, len(data))
            or tj.tj3SetScalingFactor(handle, _Scale(1, reduction))
            or tj.tj3SetCroppingRegion(handle, region)
            or tj.tj3Decompress8(
                handle, data, len(data), pixels.ctypes.data, pixels.strides[0], _RGB
            )
        )
        if failed:
            raise ValueError(f"turbojpeg: {tj.tj3GetErrorStr(handle).decode()}")
    finally:
        tj.tj3Destroy(handle)
    return pixels[:, columns.start - start : columns.stop - start]
