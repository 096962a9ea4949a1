"""Reads weights that PyTorch saved, without PyTorch and without running what they say.

A .pth file holds a pickle, which may name any function to call. Here it may name what
tensors are made of and nothing else. Three forms exist: an archive (PyTorch 1.6 and
later), a stream of pickles (before), and a tar file (before 0.1.11), which is refused.
Form after https://github.com/pytorch/pytorch, torch/serialization.py.
"""

import collections
import io
import os
import pickle
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple

import numpy as np

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_DTYPES = MappingProxyType(
    {
        "DoubleStorage": "<f8",
        "FloatStorage": "<f4",
        "HalfStorage": "<f2",
        "LongStorage": "<i8",
        "IntStorage": "<i4",
        "ShortStorage": "<i2",
        "CharStorage": "i1",
        "ByteStorage": "u1",
        "BoolStorage": "?",
    }
)


class _Kind(NamedTuple):
    """Stands for a class such as torch.FloatStorage."""

    dtype: np.dtype


class _Tensor(NamedTuple):
    """A tensor whose numbers are not read yet."""

    storage: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # In numbers, not in bytes.


class _Storage(NamedTuple):
    key: str
    dtype: np.dtype
    count: int


def read(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Reads a state dict, {name: array}; entries that are no tensors are left out.

    Raises ValueError, one line, for what is no such file, is damaged, or names anything
    but tensors; OSError where the file cannot be opened.
    """
    try:
        with open(path, "rb") as file:
            if zipfile.is_zipfile(file):
                found, storages = _archive(file)
            elif _is_tar(file):
                raise ValueError("is a tar file of PyTorch before 0.1.11; save it anew")
            else:
                found, storages = _stream(file)
        tensors = {k: v for k, v in dict(found).items() if isinstance(v, _Tensor)}
        return {name: _array(t, storages) for name, t in tensors.items()}
    except (
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        AttributeError,
        EOFError,
        NotImplementedError,
        RuntimeError,
        MemoryError,
        pickle.UnpicklingError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"{os.fspath(path)}: must be a PyTorch state dict: {reason}"
        ) from error


def _is_tar(file: BinaryIO) -> bool:
    file.seek(0)
    found = tarfile.is_tarfile(file)
    file.seek(0)
    return found


def _archive(file: BinaryIO) -> tuple[Any, dict[str, np.ndarray]]:
    """Opens the form of PyTorch 1.6: <any>/data.pkl and <any>/data/<key>, in a zip."""
    with zipfile.ZipFile(file) as members:
        (pickled,) = [n for n in members.namelist() if n.endswith("/data.pkl")] or [""]
        if not pickled:
            raise ValueError("the archive has no data.pkl")
        root = pickled.removesuffix("data.pkl")
        order = f"{root}byteorder"
        if order in members.namelist() and members.read(order) != b"little":
            raise ValueError("its numbers are not little-endian")
        loader = _Unpickler(io.BytesIO(members.read(pickled)))
        found = loader.load()
        storages = {
            key: _numbers(members.read(f"{root}data/{key}"), storage)
            for key, storage in loader.storages.items()
        }
    return found, storages


def _stream(file: BinaryIO) -> tuple[Any, dict[str, np.ndarray]]:
    """Opens the older form: five pickles, then the storages in the last one's order."""
    if _Unpickler(file).load() != _MAGIC or _Unpickler(file).load() != _PROTOCOL:
        raise ValueError("it does not begin as one")
    system = _Unpickler(file).load()
    if not system.get("little_endian", True):
        raise ValueError("its numbers are not little-endian")
    loader = _Unpickler(file)
    found = loader.load()
    storages = {}
    for key in _Unpickler(file).load():
        storage = loader.storages[key]
        count = int.from_bytes(file.read(8), "little", signed=True)
        if count != storage.count:
            raise ValueError(f"storage {key} must have {storage.count} numbers")
        data = file.read(count * storage.dtype.itemsize)
        storages[key] = _numbers(data, storage)
    return found, storages


def _numbers(data: bytes, storage: _Storage) -> np.ndarray:
    expected = storage.count * storage.dtype.itemsize
    if len(data) != expected:
        raise ValueError(
            f"storage {storage.key} must have {expected} bytes, got {len(data)}"
        )
    return np.frombuffer(data, storage.dtype)


def _array(tensor: _Tensor, storages: Mapping[str, np.ndarray]) -> np.ndarray:
    """Copies a tensor out of its storage; nothing outside of that is looked at."""
    storage, shape = storages[tensor.storage], tensor.shape
    if len(shape) != len(tensor.strides) or min((*shape, *tensor.strides, 0)) < 0:
        raise ValueError(f"a tensor has shape {shape} and strides {tensor.strides}")
    steps = zip(shape, tensor.strides)
    last = tensor.offset + sum((n - 1) * step for n, step in steps)
    empty = 0 in shape
    if not empty and not 0 <= tensor.offset <= last < len(storage):
        raise ValueError(f"a tensor lies outside its storage {tensor.storage}")
    strides = [step * storage.itemsize for step in tensor.strides]
    base = storage[:0] if empty else storage[tensor.offset :]
    return np.lib.stride_tricks.as_strided(base, shape, strides).copy()


def _rebuild(storage: _Storage, offset: int, shape, strides, *rest: Any) -> _Tensor:
    del rest  # Whether it takes gradients, and hooks.
    return _Tensor(storage.key, offset, tuple(shape), tuple(strides))


def _rebuild_parameter(data: _Tensor, *rest: Any) -> _Tensor:
    del rest
    return data


_CALLED: Mapping[tuple[str, str], Callable] = MappingProxyType(
    {
        ("collections", "OrderedDict"): collections.OrderedDict,
        ("torch._utils", "_rebuild_tensor"): _rebuild,
        ("torch._utils", "_rebuild_tensor_v2"): _rebuild,
        ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    }
)


class _Unpickler(pickle.Unpickler):
    """Knows tensors, storages and dicts; notes which storages were named."""

    def __init__(self, file: BinaryIO):
        super().__init__(file, encoding="utf-8")
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _CALLED:
            return _CALLED[module, name]
        if module == "torch" and name in _DTYPES:
            return _Kind(np.dtype(_DTYPES[name]))
        raise ValueError(f"it asks for {module}.{name}, which is no tensor")

    def persistent_load(self, saved: tuple) -> _Storage:
        kind, storage, key, _, count, *view = saved
        if kind != "storage" or not isinstance(storage, _Kind) or any(view):
            raise ValueError(f"it refers to {kind!r}, which is no storage")
        return self.storages.setdefault(
            str(key), _Storage(str(key), storage.dtype, count)
        )
