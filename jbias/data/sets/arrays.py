"""Readers of arrays in .npz and pickle files.

The data set "npz" is read from a user's own file, <root>/<split>.npz. `load_pickle` reads
lists, text and arrays of bytes, as in CIFAR's published files, and nothing else:
`jbias.untrusted.pickles` resolves names in the pickle to functions of this file, never to those
of NumPy or Python.
"""

import mmap
import os
from typing import Any, ClassVar

import numpy as np

from jbias.data import base, sources
from jbias.data.sets import split_files
from jbias.data.sets.split_files import SplitFiles
from jbias.runtime import messages
from jbias.untrusted import limits, opening, pickles


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


def read(files: SplitFiles) -> sources.ArraySource:
    """Return the source of <root>/<split>.npz with the arrays "images" and "labels".

    Optional arrays: "classes", the names (default: "0", "1", ...), and further integer columns.
    ValueError for arrays that do not fit this description.
    """
    where, stem = files.where, os.path.join(files.root, files.part.base)
    path = f"{stem}.npz"
    with base.explain_errors(f"{where}: {path!r} must be an .npz file: ", ValueError):
        columns = opening.read_npz(path)
    for key in ("images", "labels"):
        if key not in columns:
            raise ValueError(f"{where}: {path!r} must have {key!r}, got {[*columns]}")
    images, labels = columns.pop("images"), columns.pop("labels")
    k = 0  # `build_arrays` refuses labels that are no integers.
    if np.issubdtype(labels.dtype, np.integer):
        k = int(limits.check_labels(where, labels).max(initial=-1)) + 1
    classes = columns.pop("classes", np.arange(k)).astype(str).ravel().tolist()
    for key, column in columns.items():
        if column.shape != labels.shape or not np.issubdtype(column.dtype, np.integer):
            must = f"{where}: {key!r} must be whole numbers {labels.shape}"
            got = messages.describe_array(column)
            raise ValueError(f"{must}, got {got}; leave it out")
    return files.build_arrays(
        images,
        labels=labels,
        classes=classes,
        columns={key: column.astype(np.int32) for key, column in columns.items()},
        **split_files.provenance(f"{stem}.json"),
    )
