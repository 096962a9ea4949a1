"""Data sets that come as arrays: builds a source from them, and reads .npz and pickled files.

The set "npz" is a user's own: <root>/<split>.npz. `load_pickle` reads lists, text and arrays
of bytes, as CIFAR is published, and nothing else: names in the pickle are looked up by
`jbias.untrusted.pickles`, and each stands for a function of this file, none of NumPy or
Python.
"""

import mmap
import os
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from jbias.data import base, decoding, sources
from jbias.data.base import Column, Columns, Names
from jbias.data.forms import listing
from jbias.data.sets import folder
from jbias.runtime import messages
from jbias.untrusted import limits, opening, pickles


def build(
    request: folder.Request,
    images: UInt8[np.ndarray, "n h w *c"],
    labels: Column,
    classes: Names,
    *,
    columns: Columns = MappingProxyType({}),
    before: str = "",
    **about: Any,
) -> sources.ArraySource:
    """Makes a source of a part of the images; grey ones are repeated in three channels.

    before: what was done to the images, in words that end in "; ". about: further fields
    of the source, as `Request.about` of folder.py has them.
    Raises ValueError on images of another form and on labels beyond the classes.
    """
    where, transform, n = request.where, request.transform, len(images)
    if images.dtype != np.uint8 or images.ndim != 3 and images.shape[3:] != (3,):
        must = f"{where}: images must be uint8 (n, h, w) or (n, h, w, 3)"
        raise ValueError(f"{must}, got {messages.describe_array(images)}")
    labels = _labels(where, labels, n, len(classes))
    names = listing.number_names(n)
    index = listing.split_indices(where, names, labels, classes, request.part)
    images, labels = images[index], labels[index]
    if images.ndim == 3:
        images = np.repeat(images[..., None], 3, -1)
    columns = {name: column[index] for name, column in columns.items()}
    about = request.about(n, **about) | {"columns": {"label": labels, **columns}}
    about["fingerprint"] = listing.digest_arrays(images, labels, classes)
    about["preprocessing"] = f"{before}{transform.description}"
    with base.explain_errors(f"{where}: images ", ValueError):
        shown = resized(images, transform)
    return sources.ArraySource(images=shown, classes=tuple(classes), **about)


def resized(
    images: UInt8[np.ndarray, "n h w 3"], transform: decoding.Preprocess
) -> UInt8[np.ndarray, "n size size 3"]:
    """Preprocesses images one by one, as files are; those of that size stay."""
    if images.shape[1:3] == (transform.size, transform.size) == (transform.short,) * 2:
        return images
    return np.stack([np.asarray(transform(Image.fromarray(one))) for one in images])


def _labels(where: str, labels: np.ndarray, n: int, k: int) -> Column:
    found = np.asarray(labels)
    whole = found.shape == (n,) and np.issubdtype(found.dtype, np.integer)
    if not whole or (n and not 0 <= found.min() <= found.max() < k):
        span = f" of {found.min()} to {found.max()}" if whole and n else ""
        must = f"{where}: labels must be {n} whole numbers"
        must += f" from 0 to {k - 1}" if k else ""
        raise ValueError(f"{must}, got {messages.describe_array(found)}{span}")
    return found.astype(np.int32)


def load_pickle(path: str) -> dict[bytes, Any]:
    """Reads a pickled dict of arrays, words, and lists of either words or numbers.

    ValueError for anything else, OSError where it is not read.
    """
    with (
        opening.binary(path) as file,
        # Of damaged bytes pickletools raises anything.
        base.explain_errors("", Exception, reason=base.describe_error),
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        found = _Machine().run(content)
    if not isinstance(found, dict):
        raise ValueError(f"it holds no dict but {type(found).__name__}")  # noqa: TRY004
    return {key: _plain(value) for key, value in found.items()}


class _Dtype:
    """The type of the numbers in an array: bytes, or nothing is read."""

    def __init__(self, code: Any = b"", *_: Any):
        if not isinstance(code, (str, bytes)):  # The repr of nested lists may not end.
            got = f"a type given by {type(code).__name__}"
            raise ValueError(f"arrays must be of bytes, got {got}")  # noqa: TRY004
        if code not in ("u1", b"u1", "uint8", b"uint8"):
            raise ValueError(f"arrays must be of bytes, got {code[:40]!r}")


class _Array:
    """An array of bytes; what it is made with comes as its state."""

    def __init__(self, *_: Any):
        self.value: np.ndarray | None = None


def _class() -> None:
    """Stands for numpy.ndarray, which `_reconstruct` is given and nobody calls."""


class _Machine(pickles.Machine):
    """Knows arrays of bytes; text of Python 2 is bytes."""

    calls: ClassVar = {
        ("numpy.core.multiarray", "_reconstruct"): _Array,
        ("numpy._core.multiarray", "_reconstruct"): _Array,
        ("numpy", "ndarray"): _class,
        ("numpy", "dtype"): _Dtype,
        ("_codecs", "encode"): pickles.encode,
    }
    remedy = "it is none of the published files"

    def __init__(self):
        super().__init__()
        kinds = ("STRING", "BINSTRING", "SHORT_BINSTRING")
        self.rules = dict.fromkeys(kinds, self.push_bytes)

    def push_bytes(self, text: str) -> None:
        self.stack.append(text.encode("latin-1"))

    def built(self, thing: Any, state: Any) -> Any:
        if isinstance(thing, _Array):
            _, shape, dtype, fortran, data = state
            if not isinstance(dtype, _Dtype) or type(data) is not bytes:
                raise ValueError("arrays must be of bytes, got others")
            order = "F" if fortran else "C"
            thing.value = np.frombuffer(data, np.uint8).reshape(shape, order=order)
        elif not isinstance(thing, _Dtype):  # What order bytes have says nothing.
            return super().built(thing, state)
        return thing


def _plain(value: Any) -> Any:
    if isinstance(value, _Array):
        if value.value is None:
            raise ValueError("it holds an array without numbers")
        return value.value
    for one in value if isinstance(value, list) else [value]:
        if not isinstance(one, bytes | str | int | None):
            raise ValueError(f"it holds {type(one).__name__}")  # noqa: TRY004
    return value


def read(request: folder.Request) -> sources.ArraySource:
    """Reads "images", "labels", "classes" (names; numbers without), further columns."""
    where, stem = request.where, os.path.join(request.root, request.part.base)
    path = f"{stem}.npz"
    with base.explain_errors(f"{where}: {path!r} must be an .npz file: ", ValueError):
        held = opening.npz(path)
    for key in ("images", "labels"):
        if key not in held:
            raise ValueError(f"{where}: {path!r} must have {key!r}, got {[*held]}")
    images, labels = held.pop("images"), held.pop("labels")
    whole = np.issubdtype(labels.dtype, np.integer)
    k = int(limits.check_labels(where, labels).max(initial=-1)) + 1 if whole else 0
    classes = held.pop("classes", np.arange(k)).astype(str).ravel().tolist()
    for key, column in held.items():
        if column.shape != labels.shape or not np.issubdtype(column.dtype, np.integer):
            must = f"{where}: {key!r} must be whole numbers {labels.shape}"
            got = messages.describe_array(column)
            raise ValueError(f"{must}, got {got}; leave it out")
    columns = {key: column.astype(np.int32) for key, column in held.items()}
    made = folder.provenance(f"{stem}.json")
    return build(request, images, labels, classes, columns=columns, **made)
