"""Pickles of lists, text and arrays of bytes, as CIFAR is published, and nothing else.

What they name is read by `jbias.foreign.pickles`; every name stands for a function of this file,
none of numpy or Python.
"""

import mmap
import types
from typing import Any

import numpy as np

from jbias.foreign import opening, pickles

_ITEMS = (bytes, str, int, type(None))


def load(path: str) -> dict[bytes, Any]:
    """Reads a pickled dict of arrays, words, and lists of either words or numbers.

    ValueError for anything else, OSError where it is not read.
    """
    with opening.file(path) as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                found = _Machine().run(content)
        # Of damaged bytes pickletools raises anything.
        except Exception as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"it holds no dict but {type(found).__name__}")  # noqa: TRY004
    return {key: _plain(value) for key, value in found.items()}


class _Dtype:
    """The type of the numbers in an array: bytes, or nothing is read."""

    def __init__(self, code: Any = b"", *_: Any):
        if code not in ("u1", b"u1", "uint8", b"uint8"):
            raise ValueError(f"arrays must be of bytes, got {code!r}")


class _Array:
    """An array of bytes; what it is made with comes as its state."""

    def __init__(self, *_: Any):
        self.value: np.ndarray | None = None


def _class() -> None:
    """Stands for numpy.ndarray, which `_reconstruct` is given and nobody calls."""


class _Machine(pickles.Machine):
    """Knows arrays of bytes; text of Python 2 is bytes."""

    calls = types.MappingProxyType(
        {
            ("numpy.core.multiarray", "_reconstruct"): _Array,
            ("numpy._core.multiarray", "_reconstruct"): _Array,
            ("numpy", "ndarray"): _class,
            ("numpy", "dtype"): _Dtype,
            ("_codecs", "encode"): pickles.encode,
        }
    )
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
    items = value if isinstance(value, list) else [value]
    for one in items:
        if not isinstance(one, _ITEMS):
            raise ValueError(f"it holds {type(one).__name__}")  # noqa: TRY004
    return value
