"""Reads and writes safetensors: eight bytes of length, a header in JSON, the numbers.

Form after https://github.com/huggingface/safetensors, README.md, whose library reads it and
sees that every byte behind the header belongs to one tensor. It lets pass a name that stands
there twice, of which it takes the last, and words that it does not know.
"""

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import safetensors

from jbias.runtime import files
from jbias.untrusted import opening

_HEADER_BYTES = 2**24  # A hundred thousand tensors; the library's own limit is higher.
_KEYS = {"data_offsets", "dtype", "shape"}


def read(path: str | os.PathLike) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Reads a file: its arrays by name, bfloat16 as float32, and its metadata.

    ValueError, one line, where it is damaged; OSError where it cannot be opened.
    """
    with _opened(path) as file:
        arrays = file.get_tensors()
        for name, array in arrays.items():
            if array.dtype.name == "bfloat16":  # Which NumPy has from jax.
                arrays[name] = array.astype(np.float32)
            elif array.dtype.kind not in "biuf":
                raise ValueError(f"{name[:80]!r} has numbers of the type {array.dtype}")
        return arrays, file.metadata() or {}


def read_metadata(path: str | os.PathLike) -> dict[str, str]:
    """What a file says beside its arrays; errors as of `read`."""
    with _opened(path) as file:
        return file.metadata() or {}


@contextlib.contextmanager
def _opened(path: str | os.PathLike) -> Iterator[Any]:
    with opening.refusing(path, "a safetensors file", "; copy it anew", letters=300):
        with open(path, "rb") as raw:
            length = int.from_bytes(raw.read(8), "little")
            if length > _HEADER_BYTES:
                raise ValueError(f"its header has {length} bytes")
            text = raw.read(length)
        with safetensors.safe_open(path, "np") as file:
            for name, entry in json.loads(text, object_pairs_hook=_unique).items():
                if name != "__metadata__" and entry.keys() != _KEYS:
                    words = ", ".join(sorted(_KEYS))
                    raise ValueError(f"{name[:80]!r} must have {words} alone")
            yield file


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("its header has a name twice")
    return found


def write(
    path: str | os.PathLike, arrays: Mapping[str, np.ndarray], metadata: Mapping
) -> None:
    """Writes arrays of float32, in place of an old file only when whole.

    The library would write the metadata in any order: the same network, other bytes.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    start = 0
    for name, array in arrays.items():
        assert array.dtype == np.float32, f"{name} is {array.dtype}"
        end = start + array.nbytes
        header[name] = dict(dtype="F32", shape=array.shape, data_offsets=[start, end])
        start = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # The numbers begin at a multiple of eight.
    numbers = (np.ascontiguousarray(array, "<f4").data for array in arrays.values())
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    content = b"".join((len(text).to_bytes(8, "little"), text, *numbers))
    files.write(path, content, lasting=False)
