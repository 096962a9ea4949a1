"""Decoding and resizing for evaluation, equal to Pillow's as torchvision calls it.

Training crops, cut from the original image on the host.

Evaluation uses `transforms`, equal to Pillow to the bit. Here grey and coloured JPEG files
take a faster path: libjpeg-turbo without Pillow's copies, no rows below the window, a
smaller inverse DCT where the window is much larger than the crop, a vectorised resize.
Everything else goes to Pillow, which also decides what is refused.

TurboJPEG 3 decodes a part of a file, where that library is available: its cropping region
skips the inverse DCT outside the window. Python packages do not expose that, so the library
is called directly: conda's and Homebrew's libjpeg-turbo bring it, and the wheels of
`turbojpeg` on PyPI. Source: turbojpeg.h of libjpeg-turbo 3.0, https://libjpeg-turbo.org.
"""

import contextlib
import ctypes
import ctypes.util
import dataclasses
import functools
import io
import math
import os
import pathlib
import struct
import sys
import sysconfig
import types
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO

import numpy as np
import simplejpeg
from jaxtyping import UInt8
from PIL import Image, ImageFile

from jbias.data import base
from jbias.untrusted import limits, opening

Square = UInt8[np.ndarray, "size size 3"]
Opened = Callable[[], str | BinaryIO]
Window = tuple[int, int, int, int]  # Left, top, width, height in pixels.
Draw = Callable[[int, int], Window]  # Of the image's width and height.

# Modes that Image.convert brings to RGB without clipping. 16-bit and float images
# (I, I;16, F) would silently saturate.
_CONVERTIBLE = ("RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV")
_CONVERTIBLE += ("1", "L", "LA", "La", "P", "PA", "RGBa")


INTERPOLATIONS: Mapping[str, Image.Resampling] = types.MappingProxyType(
    {
        name: Image.Resampling[name.upper()]
        for name in ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
    }
)
FITS = ("crop", "squeeze", "border")


@dataclasses.dataclass(frozen=True)
class Preprocess:
    """Resizes an image as `fit` says, then crops size x size pixels at the centre.

    size, short: in pixels; `short` is at least `size`.
    fit: "crop" makes the short side `short` pixels long, and the long side
      int(short * long / short side). Source: torchvision's Resize and CenterCrop on Pillow
      images. "squeeze" makes it short x short, whatever its ratio. "border" makes the long
      side `short` pixels long, and fills up to size x size around it by the colour `fill`,
      from 0 to 255; the short side is round(short * short side / long). Source: timm's
      crop_mode "squash" and "border" (ResizeKeepRatio and CenterCropOrPad of 1.0).
    keep_exact: images of size x size are left as they are.
    interpolation: a name of INTERPOLATIONS; all have antialias.

    Offsets of the crop are round((side - size) / 2), half to even.
    """

    size: int
    short: int
    fit: str = "crop"
    keep_exact: bool = False
    interpolation: str = "bilinear"
    fill: tuple[int, ...] = (0, 0, 0)

    @property
    def description(self) -> str:
        """Says what is done, for tables."""
        square = f"{self.size}x{self.size}"
        filter_name = f"Pillow {self.interpolation} antialias:"
        centre_crop = f", centre crop {self.size}"
        if self.fit == "squeeze":
            cropped = centre_crop if self.short != self.size else ""
            return f"{filter_name} squeezed to {self.short}x{self.short}{cropped}"
        if self.fit == "border":
            border = f", border of {' '.join(map(str, self.fill))}"
            return f"{filter_name} long side {self.short}{border}{centre_crop}"
        kept = self.keep_exact and self.short != self.size
        as_they_are = f"; {square} images as they are" * kept
        return f"{filter_name} short side {self.short}{centre_crop}{as_they_are}"

    def __call__(self, image: Image.Image) -> Image.Image:
        size, (width, height) = self.size, image.size
        if width == height == size and (self.keep_exact or self.short == size):
            return image
        width, height = self._resized(width, height)
        image = resize(image, width, height, self.interpolation)
        if self.fit == "border" and min(width, height) < size:
            image = _add_border(image, size, self.fill)
            width, height = image.size
        left, top = round((width - size) / 2), round((height - size) / 2)
        return image.crop((left, top, left + size, top + size))

    def _resized(self, width: int, height: int) -> tuple[int, int]:
        """Return width and height that an image of that size is resized to."""
        if self.fit == "squeeze":
            return self.short, self.short
        if self.fit == "border":
            ratio = max(width, height) / self.short
            return max(round(width / ratio), 1), max(round(height / ratio), 1)
        long = int(self.short * max(width, height) / min(width, height))
        return (long, self.short) if width > height else (self.short, long)


def _add_border(image: Image.Image, size: int, fill: tuple[int, ...]) -> Image.Image:
    """Return an image of at least size x size pixels, with `image` at its centre."""
    width, height = max(image.width, size), max(image.height, size)
    filled = Image.new("RGB", (width, height), tuple(fill))
    filled.paste(image, ((width - image.width) // 2, (height - image.height) // 2))
    return filled


def resize(
    image: Image.Image, width: int, height: int, interpolation: str = "bilinear"
) -> Image.Image:
    """Return an image of that size, by one of Pillow's filters.

    ValueError for more than limits.MAX_PIXELS, as a thin image has whose short side grows.
    """
    if width * height > limits.MAX_PIXELS:
        must = (
            f"must be resized to at most {limits.MAX_PIXELS:,} pixels ({limits.DOCS})"
        )
        got = f"got {width:,} x {height:,} from {image.width:,} x {image.height:,}"
        remedy = "cut it, or leave it out by the option skip"
        raise ValueError(f"{must}, {got}; {remedy}")
    with opening.alone(width * height):
        return image.resize((width, height), INTERPOLATIONS[interpolation])


def preprocess(
    size: int,
    resize: int | None = None,
    crop: bool = True,
    *,
    native: bool = False,
    fit: str = "crop",
    interpolation: str = "bilinear",
    fill: Sequence[int] = (0, 0, 0),
) -> Preprocess:
    """Return the preprocessing that a user's options ask for.

    With `resize` the short side of every image becomes that long before the crop.
    Without it, `native` sets (published at one size) are resized to `size`. Other
    sets follow ImageNet's habit, round(size * 256 / 224), from 128 pixels on; there,
    images of size x size are taken to have been prepared already and kept.
    fit, interpolation, fill: of Preprocess; with "squeeze" and "border" `resize` is the
    side before the crop, by itself `size`. crop=False is fit="squeeze" without `resize`.
    """
    base.check_whole("data: size", size, 1)
    base.check_choice("data: fit", fit, FITS)
    base.check_choice("data: interpolation", interpolation, [*INTERPOLATIONS])
    if len(fill) != 3:
        raise ValueError(f"data: fill must be three numbers, got {fill}")
    for number in fill:
        base.check_whole("data: fill", number, 0, 255)
    if not crop and (resize is not None or fit != "crop"):
        option = f"resize={resize!r}" if resize is not None else f"fit={fit!r}"
        must = f"data: crop=False squeezes to {size}x{size} and must come without"
        name = option.partition("=")[0]
        raise ValueError(f"{must} {name}, got {option}; remove one of the two")
    fit = fit if crop else "squeeze"
    keep_exact = False
    if resize is not None:
        base.check_whole("data: resize, no smaller than size,", resize, size)
        short = resize
    else:
        keep_exact = fit == "crop" and not native and size >= 128
        short = round(size * 256 / 224) if keep_exact else size
    return Preprocess(
        size,
        short,
        fit,
        keep_exact=keep_exact,
        interpolation=interpolation,
        fill=tuple(fill),
    )


def read(path: str, transform: Preprocess) -> Square:
    """Decodes a file; see `decode`."""
    return decode(lambda: path, path, transform)


def decode(opened: Opened, where: str, transform: Preprocess) -> Square:
    """Decodes an image to RGB, as Image.convert does it, and preprocesses it.

    Alpha is dropped and an EXIF orientation ignored, as torchvision does. Raises
    ValueError naming the image and the reason if it is damaged, cut off or missing.
    """
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        must = "data: PIL.ImageFile.LOAD_TRUNCATED_IMAGES must be off, else cut-off"
        remedy = "some import turned it on, set it to False"
        raise RuntimeError(f"{must} files pass as grey images; {remedy}")
    try:
        with opening.image(opened()) as image:
            if (mode := image.mode) not in _CONVERTIBLE:
                raise ValueError(f"pixels must have 8 bits a channel, got mode {mode}")
            if mode == "P" and "transparency" in image.info:
                image = image.convert("RGBA")  # The same colours, without a warning.
            return np.asarray(transform(image.convert("RGB")))
    except MemoryError:
        raise
    except Exception as error:  # Decoders raise OSError, SyntaxError, struct.error ...
        raise ValueError(f"{where}: {base.kind_and_text(error)}") from error


try:  # Has no wheels for Linux on ARM; there Pillow resizes.
    import cykooz_resizer as resizer
except ImportError:
    resizer = None

_TRIES = 10
_REDUCTIONS = (8, 4, 2)  # Of the inverse DCT; others are not vectorised.
_GAP = 2  # What a reduction must leave to the resize: at 1, errors are thrice as large.
_PROGRESSIVE = {0xC0: False, 0xC1: False, 0xC2: True}  # By the frame's marker.
_SAMPLINGS = (b"\x11", *(bytes((x, 0x11, 0x11)) for x in (0x11, 0x12, 0x21, 0x22)))
_NO_FRAME = (0xC4, 0xC8, 0xCC)  # The other markers from 0xC0 to 0xCF start a frame.


def decoder_name() -> str:
    """Says what decodes and resizes here; rounding differs between resizers."""
    tj = turbojpeg_library()
    decodes = os.path.basename(tj._name) if tj else "simplejpeg"
    return f"{decodes}, {'cykooz-resizer' if resizer else 'Pillow'}"


def random_window(
    generator: np.random.Generator,
    width: int,
    height: int,
    *,
    area: tuple[float, float] = (0.08, 1.0),
    aspect: tuple[float, float] = (3 / 4, 4 / 3),
) -> Window:
    """Draws left, top, width and height of a window, in pixels.

    Its share of the image is uniform in `area`, its width over height log-uniform in
    `aspect`, its place uniform. The first of ten draws that fits inside the image
    counts; if none does, the largest central window of an allowed aspect.
    Source: torchvision's RandomResizedCrop.get_params.
    """
    low, high = math.log(aspect[0]), math.log(aspect[1])
    for _ in range(_TRIES):
        pixels = width * height * generator.uniform(*area)
        ratio = math.exp(generator.uniform(low, high))
        w, h = round(math.sqrt(pixels * ratio)), round(math.sqrt(pixels / ratio))
        if 0 < w <= width and 0 < h <= height:
            left = int(generator.integers(width - w + 1))
            return left, int(generator.integers(height - h + 1)), w, h
    w = min(width, round(height * aspect[1]))
    h = min(height, round(width / aspect[0]))
    return (width - w) // 2, (height - h) // 2, w, h


def cropped(opened: Opened, where: str, size: int, draw: Draw) -> Square:
    """Decodes an image to RGB, cuts a window out and squeezes it to size x size.

    `opened` gives a path or a binary file, `where` names the image to a person.
    draw(width, height) -> (left, top, width, height), in pixels, is called once with
    the original's size; see `box`. The window is cut first, then resized by Pillow's
    bilinear filter. Modes, orientation and damage are treated as in
    `decode`: raises ValueError naming the image and the reason.
    """
    drawn = functools.cache(lambda width, height: _inside(draw, width, height))
    data, again = _read(opened)
    if frame := _frame(data):
        pixels = _fast(data, frame, drawn(frame.width, frame.height), size)
        if pixels is not None:
            return pixels

    def cut(image: Image.Image) -> Image.Image:
        left, top, width, height = drawn(*image.size)
        image = image.crop((left, top, left + width, top + height))
        return image.resize((size, size), Image.Resampling.BILINEAR)

    return decode(again, where, cut)


def canvas(opened: Opened, where: str, size: int) -> tuple[Square, float]:
    """Squeezes the whole image to size x size, for crops to be cut on the device.

    Returns it with the original's width over height. Arguments and errors as of
    `cropped`.
    """
    seen = []

    def whole(width: int, height: int) -> Window:
        seen.append(width / height)
        return 0, 0, width, height

    return cropped(opened, where, size, whole), seen[0]


@dataclasses.dataclass(frozen=True)
class _Frame:
    """What a JPEG file says of its image."""

    width: int
    height: int
    height_at: int  # Where the file says its height, in bytes from its start.
    unit_width: int  # Of the pixels that are coded together.
    unit_height: int
    progressive: bool


def _inside(draw: Draw, width: int, height: int) -> Window:
    left, top, w, h = window = draw(width, height)
    if not (0 <= left < left + w <= width and 0 <= top < top + h <= height):
        must = f"data.decoding: a window must lie inside the image of {width}x{height}"
        raise ValueError(f"{must}, got left, top, width, height = {window}")
    return window


def _read(opened: Opened) -> tuple[bytes, Opened]:
    """Reads the file; returns what opens it once more, too."""
    try:
        file = opened()
        if hasattr(file, "read"):
            data = file.read()
            return data, functools.partial(io.BytesIO, data)
        with opening.binary(file) as file:
            return file.read(), opened
    except (OSError, ValueError):
        return b"", opened  # `decode` will say why.


def _frame(data: bytes) -> _Frame | None:
    """Reads the header of an ordinary JPEG file; None if anything is unusual.

    Ordinary: whole (libjpeg would only warn of a file cut off), one Huffman-coded frame
    of grey or of three channels, the last two of which may be halved, of 8 bits, no
    larger than what Pillow opens without a warning.
    """
    if not (data.startswith(b"\xff\xd8") and data.endswith(b"\xff\xd9")):
        return None
    at = 2
    while at + 19 < len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in _NO_FRAME:
            break
        at += 2 + int.from_bytes(data[at + 2 : at + 4])
    else:
        return None
    bits, height, width = struct.unpack_from(">BHH", data, at + 4)
    sampling = data[at + 11 : at + 11 + 3 * data[at + 9] : 3]
    usual = marker in _PROGRESSIVE and bits == 8 and sampling in _SAMPLINGS
    if not usual or not 0 < width * height <= limits.MAX_PIXELS // 2:
        return None
    unit = 8 * (sampling[0] >> 4), 8 * (sampling[0] & 15)
    return _Frame(width, height, at + 5, *unit, _PROGRESSIVE[marker])


def _fast(data, frame, window, size) -> Square | None:
    """Decodes and resizes a window; None where libjpeg-turbo refuses the file."""
    left, top, width, height = window
    by = next((k for k in _REDUCTIONS if _GAP * k * size <= min(width, height)), 1)
    rows = slice(top // by, -(-(top + height) // by))
    columns = slice(left // by, -(-(left + width) // by))
    try:
        pixels = _decoded(data, frame, rows, columns, by)
    except (ValueError, RuntimeError):
        return None
    if by == 1:
        return _resized(pixels, None, size)
    place = (left / by - columns.start, top / by - rows.start)
    return _resized(pixels, (*place, width / by, height / by), size)


def _decoded(data, frame, rows, columns, reduction) -> UInt8[np.ndarray, "h w 3"]:
    """Decodes some rows and columns of an image at 1 / reduction of its size.

    By TurboJPEG 3 or, to the same pixels, by simplejpeg, which can leave nothing out. But
    a decoder stops at the height that the file says; what follows counts as garbage
    before the end. One row more, which the chroma's upsampling may mix into the last.
    """
    wide = -(-frame.width // reduction)
    if turbojpeg_library():
        sizes = dict(width=wide, unit=frame.unit_width, reduction=reduction)
        return decode_region(data, rows, columns, **sizes)
    height = -(-(rows.stop * reduction + 1) // frame.unit_height) * frame.unit_height
    part = height < frame.height and not frame.progressive
    if part:
        at = frame.height_at
        data = b"".join((data[:at], height.to_bytes(2), data[at + 2 :]))
    high = -(-(height if part else frame.height) // reduction)
    least = dict(min_height=high, min_width=wide, min_factor=reduction)
    return simplejpeg.decode_jpeg(data, strict=not part, **least)[rows, columns]


def _resized(pixels, window, size) -> Square:
    """Squeezes a window (left, top, width, height; all) by Pillow's bilinear filter."""
    height, width, _ = pixels.shape
    if resizer is None:
        left, top, w, h = window or (0, 0, width, height)
        image, area = Image.fromarray(pixels), (left, top, left + w, top + h)
        image = image.resize((size, size), Image.Resampling.BILINEAR, box=area)
        return np.asarray(image)
    algorithm = resizer.ResizeAlg.convolution(resizer.FilterType.bilinear)
    options = resizer.ResizeOptions(algorithm, use_alpha=False)
    if window:
        options.crop_box = resizer.CropBox(*window)
    kind = resizer.PixelType.U8x3
    source = resizer.ImageData(width, height, kind, pixels.tobytes())
    result = resizer.ImageData(size, size, kind)
    resizer.Resizer().resize(source, result, options)
    return np.frombuffer(result.get_buffer(), np.uint8).reshape(size, size, 3)


_DECOMPRESS, _RGB = 1, 0  # TJINIT_DECOMPRESS, TJPF_RGB.
_LIBRARY_PLACES = (  # Of the environment, before the system's; relative to `purelib` or prefix.
    ("purelib", "turbojpeg.libs/libturbojpeg*"),
    ("data", "lib/libturbojpeg.so.0"),
    ("data", "lib/libturbojpeg.0.dylib"),
    ("data", "Library/bin/turbojpeg.dll"),
)
_INT, _POINTER = ctypes.c_int, ctypes.c_void_p


class _Region(ctypes.Structure):
    _fields_ = [(name, _INT) for name in ("x", "y", "w", "h")]


class _Scale(ctypes.Structure):
    _fields_ = [(name, _INT) for name in ("num", "denom")]


_FILE = _POINTER, ctypes.c_char_p, ctypes.c_size_t  # Handle, bytes, how many.
_TYPES = {
    "tj3Init": (_POINTER, _INT),
    "tj3Destroy": (None, _POINTER),
    "tj3DecompressHeader": (_INT, *_FILE),
    "tj3SetScalingFactor": (_INT, _POINTER, _Scale),
    "tj3SetCroppingRegion": (_INT, _POINTER, _Region),
    "tj3Decompress8": (_INT, *_FILE, _POINTER, _INT, _INT),
    "tj3GetErrorStr": (ctypes.c_char_p, _POINTER),
}


@functools.cache
def turbojpeg_library() -> ctypes.CDLL | None:
    """TurboJPEG, version 3 or later; None if there is none."""
    places = [(pathlib.Path(sysconfig.get_path(k)), end) for k, end in _LIBRARY_PLACES]
    found = [path for place, end in places for path in sorted(place.glob(end))]
    if sys.platform == "darwin":
        found.append("/opt/homebrew/opt/jpeg-turbo/lib/libturbojpeg.0.dylib")
    for path in filter(None, (*found, ctypes.util.find_library("turbojpeg"))):
        with contextlib.suppress(OSError, AttributeError):  # Not there, or older.
            library = ctypes.CDLL(str(path))
            for name, (result, *arguments) in _TYPES.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
            return library
    return None


def decode_region(
    data: bytes, rows: slice, columns: slice, *, width: int, unit: int, reduction: int
) -> UInt8[np.ndarray, "h w 3"]:
    """Decodes a part of a JPEG file to RGB, at 1 / reduction of its size.

    `rows`, `columns` and `width`, which is the image's, are in reduced pixels; `unit` is
    how many columns of the original are coded together. Where chroma is upsampled, which
    mixes neighbours, takes a unit more on both sides: the pixels are those of the whole.
    Raises ValueError where the library refuses the file, or warns of it.
    """
    tj, beside, unit = turbojpeg_library(), int(unit > 8), unit // reduction
    start = max(columns.start // unit - beside, 0) * unit
    stop = min((-(-columns.stop // unit) + beside) * unit, width)
    region = _Region(start, rows.start, stop - start, rows.stop - rows.start)
    pixels = np.empty((region.h, region.w, 3), np.uint8)
    handle = tj.tj3Init(_DECOMPRESS)
    try:
        file, to = (handle, data, len(data)), (pixels.ctypes.data, pixels.strides[0])
        failed = tj.tj3DecompressHeader(*file)
        failed = failed or tj.tj3SetScalingFactor(handle, _Scale(1, reduction))
        failed = failed or tj.tj3SetCroppingRegion(handle, region)
        if failed or tj.tj3Decompress8(*file, *to, _RGB):
            raise ValueError(f"turbojpeg: {tj.tj3GetErrorStr(handle).decode()}")
    finally:
        tj.tj3Destroy(handle)
    return pixels[:, columns.start - start : columns.stop - start]
