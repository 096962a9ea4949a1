"""Pickles of lists, text and arrays of bytes, as CIFAR is published, and nothing else.

A pickle is a program that may name any function to call. Here every name stands for a
class of this file, none of numpy or Python, and the program is looked through before it
runs: only the instructions of such files, none of which declares more than is there.
"""

import io
import pathlib
import pickle
import pickletools
from typing import Any

import numpy as np

_STEPS = 4_000_000  # CIFAR-100 has some 300 000.
_ALLOWED = frozenset(
    (
        *("PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE"),
        *("INT", "BININT", "BININT1", "BININT2", "LONG1"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE"),
        *("EMPTY_LIST", "LIST", "APPEND", "APPENDS", "EMPTY_DICT", "DICT"),
        *("SETITEM", "SETITEMS", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
        *("PUT", "BINPUT", "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET", "MEMOIZE"),
        *("GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD"),
    )
)
_NOTED = frozenset(("PUT", "BINPUT", "LONG_BINPUT"))


def load(path: str) -> dict[bytes, Any]:
    """Reads a pickled dict; ValueError for anything else, OSError where it is not read."""
    data = pathlib.Path(path).read_bytes()
    try:
        _look_through(data)
        found = _Unpickler(io.BytesIO(data), encoding="bytes").load()
    # Of damaged bytes pickle raises anything.
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"it holds no dict but {type(found).__name__}")  # noqa: TRY004
    return {key: _plain(value) for key, value in found.items()}


def _look_through(data: bytes) -> None:
    for step, (code, argument, _) in enumerate(pickletools.genops(data), 1):
        if code.name not in _ALLOWED or step > _STEPS:
            raise ValueError(f"its pickle has {code.name} at {step}")
        if code.name in _NOTED and argument > len(data):
            raise ValueError("its pickle notes more than it has")


class _Dtype:
    """The type of the numbers in an array: bytes, or nothing is read."""

    def __init__(self, code: Any = b"", *_: Any):
        if code not in ("u1", b"u1", "uint8", b"uint8"):
            raise ValueError(f"arrays must be of bytes, got {code!r}")

    def __setstate__(self, state: Any) -> None:
        """Which order bytes have says nothing where a number is one byte."""


class _Array:
    """An array of bytes; what it is made with comes as its state."""

    value: np.ndarray

    def __init__(self, *_: Any):
        pass

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, data = state
        if not isinstance(dtype, _Dtype) or type(data) is not bytes:
            raise ValueError("arrays must be of bytes, got others")
        order = "F" if fortran else "C"
        self.value = np.frombuffer(data, np.uint8).reshape(shape, order=order)


class _Class:
    """Stands for numpy.ndarray, which `_reconstruct` is given."""


def _encode(text: Any, coding: Any) -> bytes:
    if type(text) is not str or coding not in ("latin1", "latin-1", b"latin1"):
        raise ValueError("it encodes what is no text")
    return text.encode("latin-1")


_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Class,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    """Finds the classes of this file alone."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _NAMES:
            raise pickle.UnpicklingError(f"names {module}.{name}")
        return _NAMES[module, name]


def _plain(value: Any) -> Any:
    if isinstance(value, _Array):
        return value.value
    if not isinstance(value, list | bytes | str | int | None):
        raise ValueError(f"it holds {type(value).__name__}")  # noqa: TRY004
    return value
