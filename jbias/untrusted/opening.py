"""Opens untrusted files: regular files only, images of known formats, arrays without pickles."""

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

# Others of Pillow's may run programs, such as Ghostscript for PostScript.
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "PPM", "TIFF", "WEBP")
# Endings of their files' names, in small letters; the content decides what is decoded.
SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".webp")
SUFFIXES += (".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm")
_LARGE = 2**25  # Pixels; larger images are decoded one at a time, for memory.
_LARGE_ONE = threading.RLock()  # Whoever holds it may resize a large image, too.


def require_regular(path: str | os.PathLike) -> str | os.PathLike:
    """The path; ValueError where a read would wait for others or never end."""
    if os.path.exists(path) and not os.path.isfile(path):
        must = f"{os.fspath(path)}: must be a regular file"
        raise ValueError(f"{must}, got a folder or a device")
    return path


def binary(path: str | os.PathLike) -> BinaryIO:
    """Opens a regular file."""
    return open(require_regular(path), "rb")


def text(path: str | os.PathLike, newline: str | None = None) -> TextIO:
    """Open a regular file of text in UTF-8, with or without a byte order mark.

    newline: as of Python's `open`. What other programs write begins with the mark, which is
    no part of the text.
    """
    return io.TextIOWrapper(binary(path), encoding="utf-8-sig", newline=newline)


@contextlib.contextmanager
def image(source: str | os.PathLike | BinaryIO) -> Iterator[Image.Image]:
    """Opens an image by its content, whatever its name; nothing is decoded yet.

    Of several frames or pages, such as those of an animated GIF, it is the first.

    ValueError for other formats than FORMATS and for more than limits.MAX_PIXELS, OSError
    where it cannot be read. Decode inside the context.
    """
    with contextlib.ExitStack() as stack:
        if not hasattr(source, "read"):
            source = stack.enter_context(binary(source))
        if source.seek(0, os.SEEK_END) == 0:
            raise ValueError("must be a whole image, got 0 bytes")
        source.seek(0)
        try:
            found = stack.enter_context(Image.open(source, formats=FORMATS))
            pixels = math.prod(found.size)
        except PIL.UnidentifiedImageError as error:
            known = ", ".join(FORMATS)
            raise ValueError(f"must be a whole image, one of {known}") from error
        except Image.DecompressionBombError:
            pixels = math.inf
        if pixels > limits.MAX_PIXELS:
            must = f"must have at most {limits.MAX_PIXELS:,} pixels ({limits.DOCS})"
            remedy = "shrink it, or leave it out by the option skip"
            raise ValueError(f"{must}, got more; {remedy}")
        stack.enter_context(alone(pixels))
        yield found


def alone(pixels: int) -> contextlib.AbstractContextManager:
    """Return a context in which a thread is the only one with so many pixels, if they are many."""
    return _LARGE_ONE if pixels > _LARGE else contextlib.nullcontext()


@contextlib.contextmanager
def refusing(
    path: str | os.PathLike, what: str, remedy: str = "", *, letters: int = 600
) -> Iterator[None]:
    """Makes of any error but OSError one line: which file must be what, and why it is not.

    letters: of the reason.
    """
    try:
        yield
    except OSError:
        raise
    # Of damaged bytes json, pickletools, zipfile, zlib and others raise anything.
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        reason = reason.removeprefix("Error while deserializing header: ")[:letters]
        must = f"{os.fspath(path)}: must be {what}"
        raise ValueError(f"{must}: {reason}{remedy}") from error


def npz(path: str | os.PathLike, **growth: int) -> dict[str, np.ndarray]:
    """Reads all arrays of an .npz file; `growth` goes to `limits.max_unpacked`.

    ValueError, the reason alone, where it cannot.
    """
    try:
        with binary(path) as raw:  # Here: numpy leaves what it cannot read open.
            with zipfile.ZipFile(raw) as members:
                told = sum(member.file_size for member in members.infolist())
                names = members.namelist()
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise ValueError(f"holds the array {twice!r} twice")
            limits.check_growth(os.path.getsize(path), told, **growth)
            raw.seek(0)
            with np.load(raw, allow_pickle=False) as file:
                return {key: file[key] for key in file.files}
    # Of damaged bytes numpy, zipfile and zlib raise anything.
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(reason) from error
