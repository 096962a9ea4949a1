"""Read and write safetensors: eight bytes of length, a JSON header, the numbers.

Format: https://github.com/huggingface/safetensors, README.md. The library of that repository
reads the file and checks that every byte after the header belongs to one tensor. The library
accepts duplicate names, of which the last is used, and unknown keys of entries; this module refuses
such names and keys.
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

# Enough for a hundred thousand tensors; the library's own limit is higher.
_MAX_HEADER_BYTES = 2**24
_KEYS = {"data_offsets", "dtype", "shape"}


def read(path: str | os.PathLike) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return the arrays of a file by name, bfloat16 as float32, and its metadata.

    The metadata are texts by name, {} if there are none. ValueError, one line, if the file is
    damaged or has numbers other than booleans, ints and floats; OSError if the file cannot be
    opened.
    """
    with _open(path) as file:
        arrays = file.get_tensors()
        for name, array in arrays.items():
            if array.dtype.name == "bfloat16":  # jax registers this dtype with NumPy.
                arrays[name] = array.astype(np.float32)
            elif array.dtype.kind not in "biuf":
                raise ValueError(f"{name[:80]!r} has numbers of the type {array.dtype}")
        return arrays, file.metadata() or {}


def read_metadata(path: str | os.PathLike) -> dict[str, str]:
    """Return the metadata of a file, {} if it has none; errors: see `read`."""
    with _open(path) as file:
        return file.metadata() or {}


@contextlib.contextmanager
def _open(path: str | os.PathLike) -> Iterator[Any]:
    """Yield the library's open file, after a check of the header.

    Errors inside the context and of the check, except OSError, become a ValueError of one
    line that names the file.
    """
    with opening.explain_errors(
        path, "a safetensors file", "; copy it anew", max_reason_letters=300
    ):
        with open(path, "rb") as raw:
            length = int.from_bytes(raw.read(8), "little")
            if length > _MAX_HEADER_BYTES:
                raise ValueError(f"its header has {length} bytes")
            header = raw.read(length)
        with safetensors.safe_open(path, "np") as file:
            entries = json.loads(header, object_pairs_hook=_unique_keys)
            for name, entry in entries.items():
                if name != "__metadata__" and entry.keys() != _KEYS:
                    keys = ", ".join(sorted(_KEYS))
                    raise ValueError(f"{name[:80]!r} must have {keys} alone")
            yield file


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the dict of a JSON object; ValueError if a key occurs twice."""
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("its header has a name twice")
    return entries


def write(
    path: str | os.PathLike, arrays: Mapping[str, np.ndarray], metadata: Mapping
) -> None:
    """Write float32 arrays, by name, and metadata; an existing file is replaced in one step.

    A missing folder is created. Metadata are written in a fixed order; the library would write
    them in random order, so that two files of one network could differ.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    start = 0
    for name, array in arrays.items():
        assert array.dtype == np.float32, f"{name} is {array.dtype}"
        end = start + array.nbytes
        header[name] = dict(dtype="F32", shape=array.shape, data_offsets=[start, end])
        start = end
    header_bytes = json.dumps(header).encode()
    # The numbers must begin at a multiple of eight bytes.
    header_bytes += b" " * (-len(header_bytes) % 8)
    numbers = (np.ascontiguousarray(array, "<f4").data for array in arrays.values())
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    length = len(header_bytes).to_bytes(8, "little")
    content = b"".join((length, header_bytes, *numbers))
    files.write(path, content, lasting=False)
