"""Decoding and resizing for evaluation, equal to Pillow's as torchvision calls it."""

import dataclasses
from collections.abc import Callable
from typing import BinaryIO

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageFile

from jbias.data import base
from jbias.untrusted import opening

# Modes that Image.convert brings to RGB without clipping. 16-bit and float images
# (I, I;16, F) would silently saturate.
_CONVERTIBLE = (
    *("RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"),
    *("1", "L", "LA", "La", "P", "PA", "RGBa"),
)


@dataclasses.dataclass(frozen=True)
class Preprocess:
    """Resizes the short side to `short` pixels, then crops size x size at the centre.

    Long side int(short * long / short side), offsets round((side - size) / 2), half
    to even; bilinear with antialias. Source: torchvision's Resize and CenterCrop on
    Pillow images.
    """

    size: int
    short: int
    crop: bool = True  # False: squeezes to size x size, whatever the ratio.
    keep_exact: bool = False  # Images of size x size are left as they are.

    @property
    def description(self) -> str:
        """Says what is done, for tables."""
        if not self.crop:
            return f"Pillow bilinear antialias: squeezed to {self.size}x{self.size}"
        words = (
            f"Pillow bilinear antialias: short side {self.short}, centre crop"
            f" {self.size}"
        )
        if self.keep_exact and self.short != self.size:
            words += f"; {self.size}x{self.size} images as they are"
        return words

    def __call__(self, image: Image.Image) -> Image.Image:
        size, (width, height) = self.size, image.size
        if width == height == size and (self.keep_exact or self.short == size):
            return image
        if not self.crop:
            return image.resize((size, size), Image.Resampling.BILINEAR)
        long = int(self.short * max(width, height) / min(width, height))
        wide = width > height
        width, height = (long, self.short) if wide else (self.short, long)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
        left, top = round((width - size) / 2), round((height - size) / 2)
        return image.crop((left, top, left + size, top + size))


def preprocess(
    size: int, resize: int | None = None, crop: bool = True, *, native: bool = False
) -> Preprocess:
    """Builds the preprocessing from a user's options.

    With `resize` the short side of every image becomes that long before the crop.
    Without it, `native` sets (published at one size) are resized to `size`. Other
    sets follow ImageNet's habit, round(size * 256 / 224), from 128 pixels on; there,
    images of size x size are taken to have been prepared already and kept.
    """
    if not (_is_integer(size) and size >= 1):
        raise ValueError(f"data: size must be a positive integer, got {size!r}")
    if resize is None:
        imagenet = crop and not native and size >= 128
        short = round(size * 256 / 224) if imagenet else size
        return Preprocess(size, short, crop, keep_exact=imagenet)
    if not crop:
        raise ValueError(
            f"data: crop=False squeezes to {size}x{size} and must come without resize,"
            f" got resize={resize!r}; remove one of the two"
        )
    if not (_is_integer(resize) and resize >= size):
        raise ValueError(
            f"data: resize must be an integer of at least size={size}, got {resize!r}"
        )
    return Preprocess(size, resize)


def read(path: str, transform: Preprocess) -> UInt8[np.ndarray, "size size 3"]:
    """Decodes a file; see `decode`."""
    return decode(lambda: path, path, transform)


def decode(
    opened: Callable[[], str | BinaryIO], where: str, transform: Preprocess
) -> UInt8[np.ndarray, "size size 3"]:
    """Decodes an image to RGB, as Image.convert does it, and preprocesses it.

    Alpha is dropped and an EXIF orientation ignored, as torchvision does. Raises
    ValueError naming the image and the reason if it is damaged, cut off or missing.
    """
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise RuntimeError(
            "data: PIL.ImageFile.LOAD_TRUNCATED_IMAGES must be off, else cut-off files"
            " pass as grey images; some import turned it on, set it to False"
        )
    try:
        with opening.image(opened()) as image:
            return np.asarray(transform(_rgb(image)))
    except MemoryError:
        raise
    except Exception as error:  # Decoders raise OSError, SyntaxError, struct.error ...
        raise ValueError(f"{where}: {base.kind_and_text(error)}") from error


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode not in _CONVERTIBLE:
        raise ValueError(f"pixels must have 8 bits a channel, got mode {image.mode}")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # The same colours, without Pillow's warning.
    return image.convert("RGB")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
