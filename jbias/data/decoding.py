"""Decoding of images: preprocessing for evaluation, and training crops on the host.

Evaluation (`decode` with a `Preprocess`) is equal to torchvision's transforms on Pillow images,
to the bit. Training crops (`cropped`, `canvas`) of grey and coloured JPEG files are decoded
faster: libjpeg-turbo is called without Pillow's copies, rows below the window are not decoded,
the inverse DCT is smaller where the window is much larger than the crop, and the resize is
vectorised. All other files go to Pillow, which also decides which files are refused. Crops are
within one level of 255 of torchvision's, except windows at least four times as large as the
crop (at least 44 decibels).

Where the library TurboJPEG 3 is available, only a part of a file is decoded: a cropping region
skips the inverse DCT outside the window. Python packages do not expose cropping regions, so the
library is called directly. The library is in libjpeg-turbo of conda and Homebrew, and in the
wheels of `turbojpeg` on PyPI. Source: turbojpeg.h of libjpeg-turbo 3.0,
https://libjpeg-turbo.org.
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

from jbias import errors
from jbias.data import base
from jbias.untrusted import limits, opening

Square = UInt8[np.ndarray, "size size 3"]
Opener = Callable[[], str | BinaryIO]  # Returns a path or an open binary file.
Window = tuple[int, int, int, int]  # Left, top, width, height in pixels.
Draw = Callable[[int, int], Window]  # (width, height of the image) -> window.

# Modes that Image.convert brings to RGB without clipping. 16-bit and float images
# (I, I;16, F) would silently saturate.
_CONVERTIBLE = (
    "RGB",
    "RGBA",
    "RGBX",
    "CMYK",
    "YCbCr",
    "LAB",
    "HSV",
    "1",
    "L",
    "LA",
    "La",
    "P",
    "PA",
    "RGBa",
)


INTERPOLATIONS: Mapping[str, Image.Resampling] = types.MappingProxyType(
    {
        name: Image.Resampling[name.upper()]
        for name in ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
    }
)
FITS = ("crop", "squeeze", "border")


@dataclasses.dataclass(frozen=True)
class Preprocess:
    """Preprocessing for evaluation: a resize by `fit`, then a centre crop of size x size.

    Callable: PIL image -> PIL image.

    size, short: in pixels; `short` is at least `size`.
    fit: "crop" makes the short side `short` pixels long, and the long side
      int(short * long / short side). Source: torchvision's Resize and CenterCrop on Pillow
      images. "squeeze" makes the image short x short without keeping its aspect ratio. "border"
      makes the long side `short` pixels long, and the short side round(short * short side /
      long). The image is then padded to size x size with the colour `fill`, 0 to 255 per
      channel. Source: timm's crop_mode "squash" and "border" (ResizeKeepRatio and
      CenterCropOrPad of 1.0).
    trim: pixels that are cut off at each side of the image first, such as a border; all else
      applies to the rest.
    keep_exact: leave images of size x size unchanged.
    interpolation: a name of INTERPOLATIONS; all are antialiased.

    Offsets of the crop are round((side - size) / 2), half to even.
    """

    size: int
    short: int
    fit: str = "crop"
    keep_exact: bool = False
    interpolation: str = "bilinear"
    fill: tuple[int, ...] = (0, 0, 0)
    trim: int = 0

    @property
    def description(self) -> str:
        """The preprocessing in words, for tables.

        For example "Pillow bilinear antialias: short side 256, centre crop 224".
        """
        square = f"{self.size}x{self.size}"
        trimmed = f"border of {self.trim} cut off; " if self.trim else ""
        filter_name = f"{trimmed}Pillow {self.interpolation} antialias:"
        centre_crop = f", centre crop {self.size}"
        if self.fit == "squeeze":
            cropped = centre_crop if self.short != self.size else ""
            return f"{filter_name} squeezed to {self.short}x{self.short}{cropped}"
        if self.fit == "border":
            border = f", border of {' '.join(map(str, self.fill))}"
            return f"{filter_name} long side {self.short}{border}{centre_crop}"
        exception = ""
        if self.keep_exact and self.short != self.size:
            exception = f"; {square} images as they are"
        return f"{filter_name} short side {self.short}{centre_crop}{exception}"

    def __call__(self, image: Image.Image) -> Image.Image:
        image = _trimmed(image, self.trim)
        size, (width, height) = self.size, image.size
        if width == height == size and (self.keep_exact or self.short == size):
            return image
        width, height = self._resized_size(width, height)
        image = resize(image, width, height, self.interpolation)
        if self.fit == "border" and min(width, height) < size:
            image = _add_border(image, size, self.fill)
            width, height = image.size
        left, top = round((width - size) / 2), round((height - size) / 2)
        return image.crop((left, top, left + size, top + size))

    def _resized_size(self, width: int, height: int) -> tuple[int, int]:
        """Return the width and height to which an image of width x height is resized."""
        if self.fit == "squeeze":
            return self.short, self.short
        if self.fit == "border":
            ratio = max(width, height) / self.short
            return max(round(width / ratio), 1), max(round(height / ratio), 1)
        long = int(self.short * max(width, height) / min(width, height))
        return (long, self.short) if width > height else (self.short, long)


def _trimmed(image: Image.Image, trim: int) -> Image.Image:
    """Return the image without `trim` pixels at each side; ValueError if nothing is left."""
    if not trim:
        return image
    if min(image.size) <= 2 * trim:
        must = (
            f"must be more than {2 * trim} pixels wide and high, as its border is cut"
        )
        raise ValueError(f"{must} off, got {image.width} x {image.height}")
    return image.crop((trim, trim, image.width - trim, image.height - trim))


def _add_border(image: Image.Image, size: int, fill: tuple[int, ...]) -> Image.Image:
    """Return the image, centred and padded to at least size x size pixels.

    fill: colour of the border, 0 to 255 per channel.
    """
    width, height = max(image.width, size), max(image.height, size)
    filled = Image.new("RGB", (width, height), tuple(fill))
    filled.paste(image, ((width - image.width) // 2, (height - image.height) // 2))
    return filled


def resize(
    image: Image.Image, width: int, height: int, interpolation: str = "bilinear"
) -> Image.Image:
    """Return an image resized to width x height pixels.

    interpolation: a name of INTERPOLATIONS. ValueError if the result would have more than
    limits.MAX_PIXELS pixels, such as for a thin image whose short side is enlarged.
    """
    if width * height > limits.MAX_PIXELS:
        must = (
            f"must be resized to at most {limits.MAX_PIXELS:,} pixels ({limits.DOCS})"
        )
        got = f"got {width:,} x {height:,} from {image.width:,} x {image.height:,}"
        remedy = "crop it, or leave it out by the option skip"
        raise ValueError(f"{must}, {got}; {remedy}")
    with opening.large_image_lock(width * height):
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
    trim: int = 0,
) -> Preprocess:
    """Return the Preprocess that a user's options describe; ValueError for invalid options.

    size: side of the output in pixels.
    resize: short side in pixels before the crop, at least `size`. Default: `size` if `native`
      or if `size` is below 128; else round(size * 256 / 224), as is usual for ImageNet, with
      images of exactly size x size unchanged. With fit="squeeze" or "border", the side
      before the crop (default: `size`).
    crop: False squeezes to size x size, as fit="squeeze" does; `resize` and `fit` must then
      keep their defaults.
    native: True for a data set that is published at one size.
    fit, interpolation, fill, trim: see Preprocess.
    """
    errors.check_whole("data", size, low=1, name="size")
    errors.check_choice("data", fit, FITS, name="fit")
    errors.check_choice("data", interpolation, [*INTERPOLATIONS], name="interpolation")
    if len(fill) != 3:
        raise ValueError(f"data: fill must be three numbers, got {fill}")
    for number in fill:
        errors.check_whole("data", number, low=0, high=255, name="fill")
    if not crop and (resize is not None or fit != "crop"):
        option = f"resize={resize!r}" if resize is not None else f"fit={fit!r}"
        must = f"data: crop=False squeezes to {size}x{size} and must come without"
        name = option.partition("=")[0]
        raise ValueError(f"{must} {name}, got {option}; remove one of the two")
    fit, keep_exact = (fit if crop else "squeeze"), False
    if resize is not None:
        errors.check_whole(
            "data", resize, low=size, name="resize, no smaller than size,"
        )
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
        trim=trim,
    )


def read(path: str, transform: Preprocess) -> Square:
    """Return the preprocessed RGB image of a file; errors: see `decode`."""
    return decode(lambda: path, path, transform)


def decode(open_image: Opener, where: str, transform: Preprocess) -> Square:
    """Return an image, converted to RGB by Image.convert and preprocessed by `transform`.

    open_image: () -> path or binary file of the encoded image. where: name of the image, the
    start of error messages. Alpha is dropped and an EXIF orientation ignored, as torchvision
    does. ValueError, with the reason, if the image is damaged, cut off or missing, or has more
    than 8 bits a channel, and for every error of `transform` except MemoryError. RuntimeError
    if Pillow is set to accept cut-off files.
    """
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        must = "data: PIL.ImageFile.LOAD_TRUNCATED_IMAGES must be off, else cut-off"
        remedy = "some import turned it on, set it to False"
        raise RuntimeError(f"{must} files pass as grey images; {remedy}")
    try:
        with opening.open_image(open_image()) as image:
            if image.mode not in _CONVERTIBLE:
                must = "pixels must have 8 bits a channel"
                raise ValueError(f"{must}, got mode {image.mode}")
            if image.mode == "P" and "transparency" in image.info:
                image = image.convert("RGBA")  # The same colours, without a warning.
            return np.asarray(transform(image.convert("RGB")))
    except MemoryError:
        raise
    except Exception as error:  # Decoders raise OSError, SyntaxError, struct.error ...
        raise ValueError(f"{where}: {base.describe_error(error)}") from error


try:  # No wheels for Linux on ARM, where Pillow resizes.
    import cykooz_resizer as resizer
except ImportError:
    resizer = None

_TRIES = 10
_REDUCTIONS = (8, 4, 2)  # Of the inverse DCT; other factors are not vectorised.
# Factor by which the reduced window is still larger than the crop, at least: with a factor
# of 1 errors are three times as large.
_MIN_REMAINING_FACTOR = 2
_PROGRESSIVE = {0xC0: False, 0xC1: False, 0xC2: True}  # By the frame's marker.
# Sampling factors of grey images, and of colour whose chroma is full or halved.
_SAMPLINGS = (b"\x11", *(bytes((x, 0x11, 0x11)) for x in (0x11, 0x12, 0x21, 0x22)))
_NO_FRAME = (0xC4, 0xC8, 0xCC)  # The other markers from 0xC0 to 0xCF start a frame.


def decoder_name() -> str:
    """Return "<decoder>, <resizer>", the libraries that make training crops.

    The decoder is the file name of the TurboJPEG library or "simplejpeg", the resizer
    "cykooz-resizer" or "Pillow". Rounding differs between resizers.
    """
    library = turbojpeg_library()
    decoder = os.path.basename(library._name) if library else "simplejpeg"
    return f"{decoder}, {'cykooz-resizer' if resizer else 'Pillow'}"


def random_window(
    generator: np.random.Generator,
    width: int,
    height: int,
    *,
    area: tuple[float, float] = (0.08, 1.0),
    aspect: tuple[float, float] = (3 / 4, 4 / 3),
) -> Window:
    """Return a random window of an image: left, top, width and height in pixels.

    The window's share of the image is uniform in `area`, its width over height log-uniform
    in `aspect`, its position uniform. The first of ten draws that fits inside the image is
    used; if none fits, the largest central window of an allowed aspect.
    Source: torchvision's RandomResizedCrop.get_params.
    """
    low, high = math.log(aspect[0]), math.log(aspect[1])
    for _ in range(_TRIES):
        pixels = width * height * generator.uniform(area[0], area[1])
        ratio = math.exp(generator.uniform(low, high))
        w, h = round(math.sqrt(pixels * ratio)), round(math.sqrt(pixels / ratio))
        if 0 < w <= width and 0 < h <= height:
            left = int(generator.integers(width - w + 1))
            return left, int(generator.integers(height - h + 1)), w, h
    w = min(width, round(height * aspect[1]))
    h = min(height, round(width / aspect[0]))
    return (width - w) // 2, (height - h) // 2, w, h


def cropped(open_image: Opener, where: str, size: int, draw: Draw) -> Square:
    """Return a window of an image in RGB, squeezed to size x size pixels.

    open_image, where: see `decode`. size: side of the result in pixels.
    draw: (width, height) -> (left, top, width, height) of the window, in pixels; called once
      with the original's size, for example `random_window` with a generator.

    The window is cut first, then resized by Pillow's bilinear filter. Modes, orientation and
    errors: see `decode`; also ValueError if the window is not inside the image.
    """

    @functools.cache
    def draw_once(width: int, height: int) -> Window:
        return _draw_inside(draw, width, height)

    data, reopen = _read(open_image)
    frame = _frame(data)
    if frame:
        window = draw_once(frame.width, frame.height)
        pixels = _decode_jpeg_window(data, frame, window, size=size)
        if pixels is not None:
            return pixels

    def cut(image: Image.Image) -> Image.Image:
        left, top, width, height = draw_once(image.width, image.height)
        image = image.crop((left, top, left + width, top + height))
        return image.resize((size, size), Image.Resampling.BILINEAR)

    return decode(reopen, where, cut)


def canvas(open_image: Opener, where: str, size: int) -> tuple[Square, float]:
    """Return a whole image squeezed to size x size, and its original width / height.

    Training crops are then cut from the result on the device. size: side in pixels.
    open_image, where, errors: see `decode`.
    """
    aspects = []

    def whole_image(width: int, height: int) -> Window:
        aspects.append(width / height)
        return 0, 0, width, height

    pixels = cropped(open_image, where, size=size, draw=whole_image)
    return pixels, aspects[0]


@dataclasses.dataclass(frozen=True)
class _Frame:
    """The header of a JPEG file's frame."""

    width: int
    height: int
    height_offset: int  # Position of the height in the file, in bytes from the start.
    unit_width: int  # Width of a minimum coded unit, in pixels.
    unit_height: int
    progressive: bool


def _draw_inside(draw: Draw, width: int, height: int) -> Window:
    """Return draw(width, height), a window; ValueError unless it is inside the image."""
    left, top, w, h = window = draw(width, height)
    if not (0 <= left < left + w <= width and 0 <= top < top + h <= height):
        must = f"data.decoding: a window must lie inside the image of {width}x{height}"
        raise ValueError(f"{must}, got left, top, width, height = {window}")
    return window


def _read(open_image: Opener) -> tuple[bytes, Opener]:
    """Return the bytes of an image file, and a function that opens the image again.

    If the file cannot be read, the bytes are b"", and `decode` raises the error when it is
    called with the function.
    """
    try:
        file = open_image()
        if hasattr(file, "read"):
            data = file.read()
            return data, functools.partial(io.BytesIO, data)
        with opening.open_binary(file) as file:
            return file.read(), open_image
    except (OSError, ValueError):
        return b"", open_image


def _frame(data: bytes) -> _Frame | None:
    """Return the frame header of an ordinary JPEG file; None for any other file.

    An ordinary file is complete (libjpeg would only warn of a truncated file). It has one
    Huffman-coded frame of 8 bits, which is grey or has three channels; the last two channels
    may have half the resolution. It has at most half of limits.MAX_PIXELS pixels; Pillow warns
    of larger images.
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
    is_usual = marker in _PROGRESSIVE and bits == 8 and sampling in _SAMPLINGS
    if not is_usual or not 0 < width * height <= limits.MAX_PIXELS // 2:
        return None
    # The high and the low four bits are the factors of width and height.
    horizontal, vertical = sampling[0] >> 4, sampling[0] & 15
    return _Frame(
        width=width,
        height=height,
        height_offset=at + 5,
        unit_width=8 * horizontal,
        unit_height=8 * vertical,
        progressive=_PROGRESSIVE[marker],
    )


def _divide_up(number: int, divisor: int) -> int:
    """Return number / divisor, rounded up."""
    return -(-number // divisor)


def _decode_jpeg_window(
    data: bytes, frame: _Frame, window: Window, *, size: int
) -> Square | None:
    """Return a window of a JPEG file, squeezed to size x size pixels.

    None if libjpeg-turbo refuses the file. data: the whole file. frame: its header. window:
    left, top, width, height in pixels of the original, inside the image.
    """
    left, top, width, height = window
    short = min(width, height)
    fitting = (k for k in _REDUCTIONS if _MIN_REMAINING_FACTOR * k * size <= short)
    reduction = next(fitting, 1)
    rows = slice(top // reduction, _divide_up(top + height, reduction))
    columns = slice(left // reduction, _divide_up(left + width, reduction))
    try:
        pixels = _decode_reduced(data, frame, rows, columns, reduction)
    except (ValueError, RuntimeError):
        return None
    if reduction == 1:
        return _resize_bilinear(pixels, None, size)
    reduced_window = (
        left / reduction - columns.start,
        top / reduction - rows.start,
        width / reduction,
        height / reduction,
    )
    return _resize_bilinear(pixels, reduced_window, size)


def _decode_reduced(
    data: bytes, frame: _Frame, rows: slice, columns: slice, reduction: int
) -> UInt8[np.ndarray, "h w 3"]:
    """Return some rows and columns of a JPEG image at 1 / reduction of its size, in RGB.

    data, frame: the file and its header. rows, columns: in pixels of the reduced image.
    ValueError or RuntimeError if the decoder refuses the file.

    The decoder is TurboJPEG 3 if installed, else simplejpeg, with the same pixels. simplejpeg
    decodes whole files: a smaller height, written into the file's header, makes it stop below
    the last needed row, and strict=False accepts the data that are left. One further row is
    decoded, because upsampling of chroma mixes neighbouring rows.
    """
    reduced_width = _divide_up(frame.width, reduction)
    if turbojpeg_library():
        return decode_region(
            data,
            rows,
            columns,
            width=reduced_width,
            unit=frame.unit_width,
            reduction=reduction,
        )
    units = _divide_up(rows.stop * reduction + 1, frame.unit_height)
    height = units * frame.unit_height
    is_shortened = height < frame.height and not frame.progressive
    if is_shortened:
        at = frame.height_offset
        data = b"".join((data[:at], height.to_bytes(2), data[at + 2 :]))
    pixels = simplejpeg.decode_jpeg(
        data,
        strict=not is_shortened,
        min_height=_divide_up(height if is_shortened else frame.height, reduction),
        min_width=reduced_width,
        min_factor=reduction,
    )
    return pixels[rows, columns]


def _resize_bilinear(
    pixels: UInt8[np.ndarray, "h w 3"],
    window: tuple[float, float, float, float] | None,
    size: int,
) -> Square:
    """Return a window of pixels, squeezed to size x size by Pillow's bilinear filter.

    window: left, top, width, height in pixels, which may be fractions; None: all pixels.
    """
    height, width, _ = pixels.shape
    if resizer is None:
        left, top, w, h = window or (0, 0, width, height)
        image, area = Image.fromarray(pixels), (left, top, left + w, top + h)
        image = image.resize((size, size), Image.Resampling.BILINEAR, box=area)
        return np.asarray(image)
    algorithm = resizer.ResizeAlg.convolution(resizer.FilterType.bilinear)
    options = resizer.ResizeOptions(algorithm, use_alpha=False)
    if window:
        left, top, w, h = window
        options.crop_box = resizer.CropBox(left, top, w, h)
    pixel_type = resizer.PixelType.U8x3
    source = resizer.ImageData(width, height, pixel_type, pixels.tobytes())
    result = resizer.ImageData(size, size, pixel_type)
    resizer.Resizer().resize(source, result, options)
    return np.frombuffer(result.get_buffer(), np.uint8).reshape(size, size, 3)


_DECOMPRESS, _RGB = 1, 0  # TJINIT_DECOMPRESS, TJPF_RGB.
# Paths in the Python environment, tried before the system's: (name of a path of sysconfig,
# pattern below it).
_LIBRARY_PLACES = (
    ("purelib", "turbojpeg.libs/libturbojpeg*"),
    ("data", "lib/libturbojpeg.so.0"),
    ("data", "lib/libturbojpeg.0.dylib"),
    ("data", "Library/bin/turbojpeg.dll"),
)
_INT, _POINTER = ctypes.c_int, ctypes.c_void_p
_BYTES, _SIZE = ctypes.c_char_p, ctypes.c_size_t


class _Region(ctypes.Structure):
    """A cropping region (tjregion), in pixels."""

    _fields_ = [(name, _INT) for name in ("x", "y", "w", "h")]


class _Scale(ctypes.Structure):
    """A scaling factor (tjscalingfactor)."""

    _fields_ = [(name, _INT) for name in ("num", "denom")]


# Function -> type of the result, types of the arguments.
_TYPES = {
    "tj3Init": (_POINTER, [_INT]),
    "tj3Destroy": (None, [_POINTER]),
    "tj3DecompressHeader": (_INT, [_POINTER, _BYTES, _SIZE]),
    "tj3SetScalingFactor": (_INT, [_POINTER, _Scale]),
    "tj3SetCroppingRegion": (_INT, [_POINTER, _Region]),
    "tj3Decompress8": (_INT, [_POINTER, _BYTES, _SIZE, _POINTER, _INT, _INT]),
    "tj3GetErrorStr": (_BYTES, [_POINTER]),
}


@functools.cache
def turbojpeg_library() -> ctypes.CDLL | None:
    """Return the loaded TurboJPEG library, version 3 or later; None if not installed."""
    paths = []
    for path_name, pattern in _LIBRARY_PLACES:
        folder = pathlib.Path(sysconfig.get_path(path_name))
        paths += sorted(folder.glob(pattern))
    if sys.platform == "darwin":
        paths.append("/opt/homebrew/opt/jpeg-turbo/lib/libturbojpeg.0.dylib")
    for path in filter(None, (*paths, ctypes.util.find_library("turbojpeg"))):
        with contextlib.suppress(OSError, AttributeError):  # Missing, or older.
            library = ctypes.CDLL(str(path))
            for name, (result, arguments) in _TYPES.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
            return library
    return None


def decode_region(
    data: bytes, rows: slice, columns: slice, *, width: int, unit: int, reduction: int
) -> UInt8[np.ndarray, "h w 3"]:
    """Return a part of a JPEG file in RGB, at 1 / reduction of its size, by TurboJPEG.

    data: the whole file. rows, columns: part to return, in reduced pixels. width: width of the
    whole image in reduced pixels. unit: number of original columns that are coded together.
    If chroma is upsampled, neighbours are mixed. One more unit on each side is then decoded, so
    that the pixels are equal to the pixels of the whole image.
    ValueError if the library reports an error or a warning. The library must be installed, see
    `turbojpeg_library`.
    """
    library = turbojpeg_library()
    margin, unit = int(unit > 8), unit // reduction
    start = max(columns.start // unit - margin, 0) * unit
    stop = min((_divide_up(columns.stop, unit) + margin) * unit, width)
    region = _Region(start, rows.start, stop - start, rows.stop - rows.start)
    pixels = np.empty((region.h, region.w, 3), np.uint8)
    handle = library.tj3Init(_DECOMPRESS)
    try:
        failed = (
            library.tj3DecompressHeader(handle, data, len(data))
            or library.tj3SetScalingFactor(handle, _Scale(1, reduction))
            or library.tj3SetCroppingRegion(handle, region)
            or library.tj3Decompress8(
                handle, data, len(data), pixels.ctypes.data, pixels.strides[0], _RGB
            )
        )
        if failed:
            raise ValueError(f"turbojpeg: {library.tj3GetErrorStr(handle).decode()}")
    finally:
        library.tj3Destroy(handle)
    return pixels[:, columns.start - start : columns.stop - start]
