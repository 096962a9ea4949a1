"""Opens what lies in third-party sets: regular files, and images of known formats."""

import contextlib
import io
import math
import os
import threading
from collections.abc import Iterator
from typing import BinaryIO, TextIO

import PIL
from PIL import Image

from jbias.foreign import limits

# Others of Pillow's may run programs, such as Ghostscript for PostScript.
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "PPM", "TIFF", "WEBP")
_LARGE = 2**25  # Pixels; larger images are decoded one at a time, for memory.
_LARGE_ONE = threading.Lock()


def regular(path: str | os.PathLike) -> str | os.PathLike:
    """The path; ValueError where a read would wait for others or never end."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(
            f"{os.fspath(path)}: must be a regular file, got a folder or a device"
        )
    return path


def file(path: str | os.PathLike) -> BinaryIO:
    """Opens a regular file."""
    return open(regular(path), "rb")


def text(path: str) -> TextIO:
    """Opens a regular file of text in UTF-8."""
    return io.TextIOWrapper(file(path), encoding="utf-8")


@contextlib.contextmanager
def image(source: str | os.PathLike | BinaryIO) -> Iterator[Image.Image]:
    """Opens an image by its content, whatever its name; nothing is decoded yet.

    ValueError for other formats than FORMATS and for more than limits.PIXELS, OSError
    where it cannot be read. Decode inside the context.
    """
    with contextlib.ExitStack() as stack:
        if not hasattr(source, "read"):
            source = stack.enter_context(file(source))
        try:
            found = stack.enter_context(Image.open(source, formats=FORMATS))
            pixels = math.prod(found.size)
        except PIL.UnidentifiedImageError as error:
            known = ", ".join(FORMATS)
            raise ValueError(f"must be a whole image, one of {known}") from error
        except Image.DecompressionBombError:
            pixels = math.inf
        if pixels > limits.PIXELS:
            raise ValueError(
                f"must have at most {limits.PIXELS:,} pixels (limits of docs/data.md),"
                " got more; shrink it, or leave it out by the option skip"
            )
        stack.enter_context(_LARGE_ONE if pixels > _LARGE else contextlib.nullcontext())
        yield found
