"""Functions that open untrusted files: regular files, images of known formats, .npz arrays."""

import contextlib
import io
import math
import os
import threading
import zipfile
from collections.abc import Iterator
from typing import BinaryIO, TextIO

import numpy as np
import PIL
from PIL import Image

from jbias.untrusted import limits

# Pillow's other formats may run programs, such as Ghostscript for PostScript.
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "PPM", "TIFF", "WEBP")
# Suffixes of image files, in lower case; the content decides how a file is decoded.
SUFFIXES = (
    ".jpg",
    ".jpeg",
    ".jpe",
    ".jfif",
    ".png",
    ".gif",
    ".bmp",
    ".webp",
    ".tif",
    ".tiff",
    ".ppm",
    ".pgm",
    ".pbm",
    ".pnm",
)
_LARGE_PIXELS = 2**25  # Larger images are decoded one at a time, to limit memory.
# Reentrant: a thread that decodes a large image may also resize it.
_LARGE_IMAGE_LOCK = threading.RLock()


def require_regular(path: str | os.PathLike) -> str | os.PathLike:
    """Return `path` unchanged; raise ValueError if it is a folder, a device or a pipe.

    Reading a device or a pipe may block or never end.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(
            f"{os.fspath(path)}: must be a regular file, got a folder or a device"
        )
    return path


def open_binary(path: str | os.PathLike) -> BinaryIO:
    """Open a regular file to read bytes; raise ValueError for folders, devices and pipes."""
    return open(require_regular(path), "rb")


def open_text(path: str | os.PathLike, newline: str | None = None) -> TextIO:
    """Open a regular file to read text in UTF-8, with or without a byte order mark.

    newline: as for Python's `open`. A byte order mark, which some programs write, is skipped.
    """
    return io.TextIOWrapper(open_binary(path), encoding="utf-8-sig", newline=newline)


@contextlib.contextmanager
def open_image(source: str | os.PathLike | BinaryIO) -> Iterator[Image.Image]:
    """Context manager: open an image without decoding its pixels; yield the Pillow image.

    The format is recognised by the file's content. If the file has several frames or pages, as
    an animated GIF has, the first is opened. Decode inside the context. ValueError for formats
    not in FORMATS, empty files, and images of more than limits.MAX_PIXELS; OSError if the file
    cannot be read.
    """
    with contextlib.ExitStack() as stack:
        if not hasattr(source, "read"):
            source = stack.enter_context(open_binary(source))
        if source.seek(0, os.SEEK_END) == 0:
            raise ValueError("must be a whole image, got 0 bytes")
        source.seek(0)
        try:
            image = stack.enter_context(Image.open(source, formats=FORMATS))
            pixels = math.prod(image.size)
        except PIL.UnidentifiedImageError as error:
            known = ", ".join(FORMATS)
            raise ValueError(f"must be a whole image, one of {known}") from error
        except Image.DecompressionBombError:
            pixels = math.inf
        if pixels > limits.MAX_PIXELS:
            raise ValueError(
                f"must have at most {limits.MAX_PIXELS:,} pixels ({limits.DOCS}), got more; "
                "shrink it, or leave it out by the option skip"
            )
        stack.enter_context(large_image_lock(pixels))
        yield image


def large_image_lock(pixels: int) -> contextlib.AbstractContextManager:
    """Return a context manager for decoding an image with this number of pixels.

    Only one thread at a time can be inside the context of a large image, of more than 2^25
    pixels; the context of a smaller image does nothing.
    """
    return _LARGE_IMAGE_LOCK if pixels > _LARGE_PIXELS else contextlib.nullcontext()


@contextlib.contextmanager
def explain_errors(
    path: str | os.PathLike,
    expected: str,
    remedy: str = "",
    *,
    max_reason_letters: int = 600,
) -> Iterator[None]:
    """Context manager: turn errors into ValueError("<path>: must be <expected>: <reason>...").

    The message is one line. An OSError is not changed. expected: description of a valid file.
    remedy: text after the reason, with its own separator. max_reason_letters: largest length
    of the reason.
    """
    try:
        yield
    except OSError:
        raise
    # For damaged bytes json, pickletools, zipfile, zlib and others raise any error.
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        reason = reason.removeprefix("Error while deserializing header: ")
        raise ValueError(
            f"{os.fspath(path)}: must be {expected}: {reason[:max_reason_letters]}{remedy}"
        ) from error


def read_npz(path: str | os.PathLike, **growth: int) -> dict[str, np.ndarray]:
    """Return {name: array} of all arrays of an .npz file.

    growth: `times` and `free` of `limits.max_unpacked`. ValueError if the file is missing or
    damaged, has pickles or is too large unpacked. The message is the reason; the caller adds
    the path.
    """
    try:
        # Opened here, because numpy does not close files that it cannot read.
        with open_binary(path) as raw:
            with zipfile.ZipFile(raw) as members:
                unpacked = sum(member.file_size for member in members.infolist())
                names = members.namelist()
            if len(set(names)) < len(names):
                doubled = next(name for name in names if names.count(name) > 1)
                raise ValueError(f"holds the array {doubled!r} twice")
            limits.check_growth(os.path.getsize(path), unpacked, **growth)
            raw.seek(0)
            with np.load(raw, allow_pickle=False) as file:
                return {key: file[key] for key in file.files}
    # For damaged bytes numpy, zipfile and zlib raise any error.
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(reason) from error
