"""What a pickle of PyTorch may hold: storages, tensors, and the functions it may call."""

import collections
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from jbias.untrusted import pickles

# Numbers as they lie in the file; bfloat16 is the upper half of a float32.
STORAGES: Mapping[str, str] = types.MappingProxyType(
    {
        "DoubleStorage": "<f8",
        "FloatStorage": "<f4",
        "HalfStorage": "<f2",
        "BFloat16Storage": "bf16",
        "LongStorage": "<i8",
        "IntStorage": "<i4",
        "ShortStorage": "<i2",
        "CharStorage": "i1",
        "ByteStorage": "u1",
        "BoolStorage": "?",
    }
)


class Storage(NamedTuple):
    """What a pickle says of numbers that lie elsewhere in the file."""

    key: str
    kind: str  # A key of STORAGES.
    count: int


class Tensor(NamedTuple):
    """A tensor whose numbers are not read yet."""

    storage: str  # The key of a Storage.
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # In numbers, not in bytes.


class Dtype(NamedTuple):
    """A dtype of numpy, for its scalars."""

    dtype: np.dtype


def itemsize(storage: Storage) -> int:
    """Bytes of a number in a storage."""
    code = STORAGES[storage.kind]
    return 2 if code == "bf16" else np.dtype(code).itemsize


def _ordered(pairs: Any = ()) -> collections.OrderedDict:
    if not isinstance(pairs, (list, tuple)):
        raise TypeError
    made = collections.OrderedDict()
    for name, value in pairs:
        if not isinstance(name, (str, bytes)):  # Only a machine counts numbers.
            raise TypeError
        made[name] = value
    return made


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> Tensor:
    del rest  # Whether it takes gradients, and hooks.
    whole = isinstance(shape, (tuple, list)) and isinstance(strides, (tuple, list))
    if (
        not isinstance(storage, Storage)
        or not whole
        or max(len(shape), len(strides)) > 32
    ):
        raise TypeError
    if any(type(n) is not int for n in (offset, *shape, *strides)):
        raise TypeError
    return Tensor(storage.key, offset, tuple(shape), tuple(strides))


def _parameter(data: Any, *rest: Any) -> Tensor:
    del rest
    if not isinstance(data, Tensor):
        raise TypeError
    return data


def _size(items: Any) -> tuple:
    if not isinstance(items, (tuple, list)) or any(type(n) is not int for n in items):
        raise TypeError
    return tuple(items)


def _device(*words: Any) -> str:
    return ":".join(str(word)[:20] for word in words if isinstance(word, (str, int)))


def _dtype(code: Any, *rest: Any) -> Dtype:
    del rest
    if not isinstance(code, str) or code.lstrip("<>|=")[:1] not in tuple("fiub?"):
        raise TypeError
    return Dtype(np.dtype(code))


def _scalar(dtype: Any, data: Any) -> Any:
    if not isinstance(dtype, Dtype):
        raise TypeError
    data = data.encode("latin-1") if isinstance(data, str) else data
    if not isinstance(data, bytes) or len(data) != dtype.dtype.itemsize:
        raise TypeError
    return np.frombuffer(data, dtype.dtype)[0].item()


def _defaulting(factory: Any = None) -> dict:
    del factory  # The optimisers' dicts have one.
    return {}


CALLS: Mapping[tuple[str, str], Callable] = types.MappingProxyType(
    {
        ("collections", "OrderedDict"): _ordered,
        ("collections", "defaultdict"): _defaulting,
        ("builtins", "dict"): _defaulting,
        ("__builtin__", "dict"): _defaulting,
        ("torch", "Size"): _size,
        ("torch", "device"): _device,
        ("torch._utils", "_rebuild_tensor"): _tensor,
        ("torch._utils", "_rebuild_tensor_v2"): _tensor,
        ("torch._utils", "_rebuild_parameter"): _parameter,
        ("numpy", "dtype"): _dtype,
        ("numpy.core.multiarray", "scalar"): _scalar,
        ("numpy._core.multiarray", "scalar"): _scalar,
        ("_codecs", "encode"): pickles.encode,
    }
)
