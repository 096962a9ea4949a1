"""Data sets of arrays: sources built from arrays, and readers of .npz and pickle files.

The data set "npz" is read from a user's own file, <root>/<split>.npz. `load_pickle` reads
lists, text and arrays of bytes, as in CIFAR's published files, and nothing else:
`jbias.untrusted.pickles` resolves names in the pickle to functions of this file, never to those
of NumPy or Python.
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
    steps_before: str = "",
    **fields: Any,
) -> sources.ArraySource:
    """Return the source of a request, from the images of the whole split.

    The part of the split that the request names is selected, then resized.
    images: grey images (n h w) are repeated in three channels. labels: indices into `classes`.
    columns: further columns of all images. steps_before: earlier preprocessing, in words
    that end in "; ". fields: further fields of the source, see folder.Request.source_fields.
    ValueError for images of a wrong shape or type, for labels beyond the classes, and if a
    class has no image in the part.
    """
    where, transform, n = request.where, request.transform, len(images)
    if images.dtype != np.uint8 or images.ndim != 3 and images.shape[3:] != (3,):
        must = f"{where}: images must be uint8 (n, h, w) or (n, h, w, 3)"
        raise ValueError(f"{must}, got {messages.describe_array(images)}")
    labels = _check_labels(where, labels, n=n, k=len(classes))
    index = listing.split_indices(
        where,
        listing.number_names(n),
        labels=labels,
        classes=classes,
        split=request.part,
    )
    images, labels = images[index], labels[index]
    if images.ndim == 3:
        images = np.repeat(images[..., None], 3, -1)
    fields = request.source_fields(n, **fields)
    fields["columns"] = {
        "label": labels,
        **{name: column[index] for name, column in columns.items()},
    }
    fields["fingerprint"] = listing.digest_arrays(images, labels, classes)
    fields["preprocessing"] = f"{steps_before}{transform.description}"
    with base.explain_errors(f"{where}: images ", ValueError):
        images = resized(images, transform)
    return sources.ArraySource(images=images, classes=tuple(classes), **fields)


def resized(
    images: UInt8[np.ndarray, "n h w 3"], transform: decoding.Preprocess
) -> UInt8[np.ndarray, "n size size 3"]:
    """Return the images preprocessed by `transform`, without a copy if no resize is needed."""
    if images.shape[1:3] == (transform.size, transform.size) == (transform.short,) * 2:
        return images
    return np.stack([np.asarray(transform(Image.fromarray(image))) for image in images])


def _check_labels(where: str, labels: np.ndarray, *, n: int, k: int) -> Column:
    """Return labels as int32; ValueError unless they are n integers from 0 to k - 1.

    where: start of error messages.
    """
    labels = np.asarray(labels)
    are_integers = labels.shape == (n,) and np.issubdtype(labels.dtype, np.integer)
    if not are_integers or (n and not 0 <= labels.min() <= labels.max() < k):
        span = f" of {labels.min()} to {labels.max()}" if are_integers and n else ""
        must = f"{where}: labels must be {n} whole numbers"
        must += f" from 0 to {k - 1}" if k else ""
        raise ValueError(f"{must}, got {messages.describe_array(labels)}{span}")
    return labels.astype(np.int32)


def load_pickle(path: str) -> dict[bytes, Any]:
    """Return the dict in a pickle file, with arrays of bytes as uint8 NumPy arrays.

    Keys and values that Python 2 wrote as strings are bytes. Other values are text, bytes,
    integers, None, and lists of these. ValueError for any other content, OSError if the file
    cannot be read.
    """
    with (
        opening.open_binary(path) as file,
        # pickletools raises all kinds of errors for damaged bytes.
        base.explain_errors("", Exception, reason=base.describe_error),
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        entries = _ByteArrayMachine().run(content)
    if not isinstance(entries, dict):
        got = f"it holds no dict but {type(entries).__name__}"
        raise ValueError(got)  # noqa: TRY004
    return {key: _unwrap(value) for key, value in entries.items()}


class _Dtype:
    """A replacement of numpy.dtype; ValueError for any dtype except unsigned bytes."""

    def __init__(self, code: Any = b"", *_: Any):
        if not isinstance(code, (str, bytes)):  # The repr of nested lists may not end.
            got = f"a type given by {type(code).__name__}"
            raise ValueError(f"arrays must be of bytes, got {got}")  # noqa: TRY004
        if code not in ("u1", b"u1", "uint8", b"uint8"):
            raise ValueError(f"arrays must be of bytes, got {code[:40]!r}")


class _ByteArray:
    """An array of bytes, set by its pickled state; replaces numpy's `_reconstruct`."""

    def __init__(self, *_: Any):
        self.value: np.ndarray | None = None


def _array_class() -> None:
    """Replace numpy.ndarray, an argument of `_reconstruct`; never called."""


class _ByteArrayMachine(pickles.Machine):
    """A pickle machine that builds arrays of bytes, and reads text of Python 2 as bytes."""

    calls: ClassVar = {
        ("numpy.core.multiarray", "_reconstruct"): _ByteArray,
        ("numpy._core.multiarray", "_reconstruct"): _ByteArray,
        ("numpy", "ndarray"): _array_class,
        ("numpy", "dtype"): _Dtype,
        ("_codecs", "encode"): pickles.encode,
    }
    remedy = "it is none of the published files"

    def __init__(self):
        super().__init__()
        opcodes = ("STRING", "BINSTRING", "SHORT_BINSTRING")
        self.rules = dict.fromkeys(opcodes, self.push_bytes)

    def push_bytes(self, text: str) -> None:
        """Push the bytes of a Python 2 string onto the machine's stack."""
        self.stack.append(text.encode("latin-1"))

    def set_state(self, thing: Any, state: Any) -> Any:
        """Return `thing`, an object of the pickle, with its pickled state.

        For a _ByteArray, the state is its array. The state of a _Dtype, the byte order, is
        ignored. ValueError for an array not of bytes and for other objects.
        """
        if isinstance(thing, _ByteArray):
            _, shape, dtype, fortran, data = state
            if not isinstance(dtype, _Dtype) or type(data) is not bytes:
                raise ValueError("arrays must be of bytes, got others")
            order = "F" if fortran else "C"
            thing.value = np.frombuffer(data, np.uint8).reshape(shape, order=order)
        elif not isinstance(
            thing, _Dtype
        ):  # A dtype's state, the byte order, is ignored.
            return super().set_state(thing, state)
        return thing


def _unwrap(value: Any) -> Any:
    """Return a value of the pickle; for a _ByteArray, its NumPy array.

    ValueError unless the value is an array, text, bytes, an integer, None or a list of these
    without arrays.
    """
    if isinstance(value, _ByteArray):
        if value.value is None:
            raise ValueError("it holds an array without numbers")
        return value.value
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, bytes | str | int | None):
            raise ValueError(f"it holds {type(item).__name__}")  # noqa: TRY004
    return value


def read(request: folder.Request) -> sources.ArraySource:
    """Return the source of <root>/<split>.npz with the arrays "images" and "labels".

    Optional arrays: "classes", the names (default: "0", "1", ...), and further integer columns.
    ValueError for arrays that do not fit this description.
    """
    where, stem = request.where, os.path.join(request.root, request.part.base)
    path = f"{stem}.npz"
    with base.explain_errors(f"{where}: {path!r} must be an .npz file: ", ValueError):
        columns = opening.read_npz(path)
    for key in ("images", "labels"):
        if key not in columns:
            raise ValueError(f"{where}: {path!r} must have {key!r}, got {[*columns]}")
    images, labels = columns.pop("images"), columns.pop("labels")
    k = 0  # `build` refuses labels that are no integers.
    if np.issubdtype(labels.dtype, np.integer):
        k = int(limits.check_labels(where, labels).max(initial=-1)) + 1
    classes = columns.pop("classes", np.arange(k)).astype(str).ravel().tolist()
    for key, column in columns.items():
        if column.shape != labels.shape or not np.issubdtype(column.dtype, np.integer):
            must = f"{where}: {key!r} must be whole numbers {labels.shape}"
            got = messages.describe_array(column)
            raise ValueError(f"{must}, got {got}; leave it out")
    return build(
        request,
        images,
        labels=labels,
        classes=classes,
        columns={key: column.astype(np.int32) for key, column in columns.items()},
        **folder.provenance(f"{stem}.json"),
    )
