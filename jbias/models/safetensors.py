"""Reads and writes safetensors: eight bytes of length, a header in JSON, the numbers.

Form after https://github.com/huggingface/safetensors, README.md. What it demands is
checked: every byte behind the header belongs to one tensor.
"""

import json
import math
import mmap
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from jbias.models import torch_files
from jbias.runtime import files

_HEADER_BYTES = 2**24  # A hundred thousand tensors; the format's own limit is higher.
_DTYPES = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "U32": "<u4",
    "I32": "<i4",
    "U64": "<u8",
    "I64": "<i8",
    "F16": "<f2",
    "BF16": "<u2",  # The upper half of a float32.
    "F32": "<f4",
    "F64": "<f8",
}


def read(path: str | os.PathLike) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Reads a file: its arrays by name, and its metadata. Arrays are not copied.

    ValueError, one line, where it is damaged; OSError where it cannot be opened.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, _HEADER_BYTES):
                raise ValueError(f"its header has {length} bytes, the file {size}")
            header = _header(file.read(length))
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        metadata = header.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(
            isinstance(value, str) for value in metadata.values()
        ):
            raise ValueError("its metadata are no texts")
        spans = {name: _span(name, entry) for name, entry in header.items()}
        _check_spans(spans, size - 8 - length)
        return {
            name: _array(data, header[name], 8 + length + start)
            for name, (start, _) in spans.items()
        }, metadata
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"{os.fspath(path)}: must be a safetensors file: {reason[:300]}"
        ) from error


def _header(text: bytes) -> dict[str, Any]:
    if text[:1] != b"{":
        raise ValueError("its header does not begin as one")
    header = json.loads(text.decode(), object_pairs_hook=_unique)
    if not isinstance(header, dict):
        raise ValueError("its header is no object")  # noqa: TRY004
    return header


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("its header has a name twice")
    return found


def _span(name: str, entry: Any) -> tuple[int, int]:
    """Where a tensor's bytes begin and end; ValueError where the entry is impossible."""
    keys = {"dtype", "shape", "data_offsets"}
    if not isinstance(entry, dict) or entry.keys() != keys:
        raise ValueError(f"{name[:80]!r} must have {', '.join(sorted(keys))}")
    dtype, shape, span = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise ValueError(f"{name[:80]!r} has numbers of the type {str(dtype)[:20]}")
    for numbers in (shape, span):
        if not isinstance(numbers, list) or any(
            type(n) is not int or not 0 <= n < 2**63 for n in numbers
        ):
            raise ValueError(
                f"{name[:80]!r} has a shape or a place of no whole numbers"
            )
    if len(shape) > 32 or len(span) != 2:
        raise ValueError(f"{name[:80]!r} has too many axes or no two ends")
    expected = math.prod(shape) * np.dtype(_DTYPES[dtype]).itemsize
    if span[1] - span[0] != expected:
        raise ValueError(
            f"{name[:80]!r} must have {expected} bytes, got {span[1] - span[0]}"
        )
    return span[0], span[1]


def _check_spans(spans: Mapping[str, tuple[int, int]], size: int) -> None:
    """Refuses tensors that overlap, leave gaps or leave the file."""
    end = 0
    for name, (start, stop) in sorted(spans.items(), key=lambda item: item[1]):
        if start != end:
            kind = "overlaps another" if start < end else "leaves a gap before it"
            raise ValueError(f"{name[:80]!r} {kind}")
        end = stop
    if end != size:
        cut = "; it was cut, copy it anew" if size < end else ""
        raise ValueError(f"its tensors must have {end} bytes, got {size}{cut}")


def _array(data: mmap.mmap, entry: Mapping[str, Any], start: int) -> np.ndarray:
    dtype, shape = entry["dtype"], entry["shape"]
    count = math.prod(shape)
    numbers = np.frombuffer(data, _DTYPES[dtype], count, start if count else 0)
    if dtype == "BF16":
        numbers = torch_files.from_bfloat16(numbers)
    return numbers.reshape(shape)


def write(
    path: str | os.PathLike,
    arrays: Mapping[str, np.ndarray],
    metadata: Mapping[str, str],
) -> None:
    """Writes arrays of float32, in place of an old file only when whole."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    start = 0
    for name, array in arrays.items():
        assert array.dtype == np.float32, f"{name} is {array.dtype}"
        header[name] = {
            "dtype": "F32",
            "shape": list(array.shape),
            "data_offsets": [start, start + array.nbytes],
        }
        start += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # The numbers begin at a multiple of eight.
    numbers = (
        np.ascontiguousarray(array, "<f4").tobytes() for array in arrays.values()
    )
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    content = b"".join((len(text).to_bytes(8, "little"), text, *numbers))
    files.write(path, content, lasting=False)
