"""Reads what PyTorch saved, without PyTorch and without running anything in the file.

A .pth file holds a pickle, which may name any function to call. The machine here is
jbias.untrusted.pickles with CALLS: tensors, containers, numbers and text, nothing else. Three
formats exist: an archive (PyTorch 1.6 and later), a stream of pickles (before), and a tar
file (before 0.1.11), which is refused.
Format: https://github.com/pytorch/pytorch, torch/serialization.py.
"""

import collections
import io
import mmap
import os
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from jbias.untrusted import opening, pickles

# Numbers as they lie in the file; of bfloat16 the bits, the upper half of a float32.
STORAGES: Mapping[str, str] = {
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "BFloat16Storage": "<u2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}


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


def itemsize(storage: Storage) -> int:
    """Bytes of a number in a storage."""
    return np.dtype(STORAGES[storage.kind]).itemsize


def _require(sound: bool) -> None:
    """Refuses the arguments of a call; the machine says of which."""
    if not sound:
        raise TypeError


def _refuse(wrong: bool, why: str) -> None:
    """Refuses a file, in these words."""
    if wrong:
        raise ValueError(why)


def _ordered(pairs: Any = ()) -> collections.OrderedDict:
    _require(isinstance(pairs, (list, tuple)))
    # Only a machine counts numbers.
    _require(all(isinstance(name, (str, bytes)) for name, _ in pairs))
    return collections.OrderedDict(pairs)


# The others are whether it takes gradients, and hooks.
def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> Tensor:
    _require(isinstance(storage, Storage) and type(offset) is int)
    shape, strides = _size(shape), _size(strides)
    _require(max(len(shape), len(strides)) <= 32)
    return Tensor(storage.key, offset, shape, strides)


def _parameter(data: Any, *rest: Any) -> Tensor:
    _require(isinstance(data, Tensor))
    return data


def _size(items: Any) -> tuple[int, ...]:
    _require(isinstance(items, (tuple, list)) and all(type(n) is int for n in items))
    return tuple(items)


def _device(*words: Any) -> str:
    return ":".join(str(word)[:20] for word in words if isinstance(word, (str, int)))


def _dtype(code: Any, *rest: Any) -> np.dtype:
    """A dtype, for scalars."""
    _require(isinstance(code, str) and code.lstrip("<>|=")[:1] in tuple("fiub?"))
    return np.dtype(code)


def _scalar(dtype: Any, data: Any) -> Any:
    data = data.encode("latin-1") if isinstance(data, str) else data
    _require(isinstance(dtype, np.dtype) and isinstance(data, bytes))
    (number,) = np.frombuffer(data, dtype).tolist()
    return number


def _defaulting(_: Any = None) -> dict:
    return {}  # The optimisers' dicts have a factory.


CALLS: Mapping[tuple[str, str], Callable] = {
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

_REMEDY = (
    "if you trust the file, load it in an environment that has PyTorch and what the file "
    "asks for, by x = torch.load(FILE, weights_only=False), and save its weights alone: "
    "torch.save(x.state_dict(), NEW) of a whole module, "
    'torch.save(x["state_dict"], NEW) of a dictionary with that entry; or assign the '
    "module to a name in a file of Python, as net in my.py, and run jbias measure my.py:net"
)

_DTYPES = (
    *("float64", "double", "float32", "float", "float16", "half", "bfloat16"),
    *("int64", "long", "int32", "int", "int16", "short", "int8", "uint8", "bool"),
)
# Modules that run commands or code; of builtins, functions that do.
_HOSTILE = (
    *("os", "posix", "nt", "subprocess", "_posixsubprocess", "commands", "pty"),
    *("shutil", "sys", "socket", "importlib", "runpy", "ctypes", "marshal"),
)
_EVALUATING = (
    *("eval", "exec", "execfile", "compile", "open", "file", "__import__"),
    *("apply", "breakpoint", "input"),
)


def load_pickle(file: BinaryIO) -> tuple[Any, dict[str, Storage]]:
    """Interprets one pickle and leaves the file behind it; returns its storages as well.

    ValueError where it is damaged or says anything but tensors, containers, numbers and
    text.
    """
    machine = _Machine()
    return machine.run(file), machine.storages


class _Machine(pickles.Machine):
    """Knows tensors, and the storages that they refer to."""

    calls = CALLS
    remedy = _REMEDY

    def __init__(self):
        super().__init__()
        self.storages: dict[str, Storage] = {}
        self.rules = {"NEWOBJ": self.call, "BINPERSID": self.refer}

    def named(self, module: str, name: str) -> pickles.Name:
        kinds = (*STORAGES, *_DTYPES) if module == "torch" else ()
        if (module, name) in self.calls or name in kinds:
            return pickles.Name(module, name)
        asked = f"it asks for {module[:80]}.{name[:80]}"
        builtin = module in ("builtins", "__builtin__")
        if name in _EVALUATING if builtin else module.partition(".")[0] in _HOSTILE:
            asked += ": it wants to run a command: do not load it, here or with PyTorch"
            raise ValueError(asked)
        raise ValueError(f"{asked}, which is no tensor; {_REMEDY}")

    def built(self, thing: Any, state: Any) -> Any:
        """Sets what can be left out, but for the order of bytes of a dtype."""
        if isinstance(thing, collections.OrderedDict):
            return thing
        if not isinstance(thing, np.dtype):
            return super().built(thing, state)
        order = state[1] if isinstance(state, tuple) and len(state) > 1 else None
        if order not in ("<", ">", "=", "|"):
            raise ValueError("its pickle has a dtype of an unknown order")
        return thing.newbyteorder(order)

    def refer(self, _: Any = None) -> None:
        """A persistent id: here always a storage."""
        saved = self.pop()
        if not isinstance(saved, tuple) or len(saved) not in (5, 6):
            raise ValueError("it refers to what is no storage")
        kind, storage, key, _place, count, *view = saved
        if kind != "storage" or not isinstance(storage, pickles.Name) or any(view):
            raise ValueError("it refers to what is no storage")
        if storage.name not in STORAGES or not isinstance(key, (str, int)):
            raise ValueError("it refers to a storage of unknown numbers")
        if type(count) is not int or not 0 <= count < 2**48:
            raise ValueError("it refers to a storage of an impossible size")
        made = Storage(str(key), storage.name, count)
        if self.storages.setdefault(made.key, made) != made:
            raise ValueError("it refers to one storage as two")
        self.stack.append(made)


_KIND = "a PyTorch state dict"
_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_PICKLE_BYTES = 2**24  # Of an archive; the numbers lie elsewhere.
_COPIED_BYTES = 2**32
_MEMBERS = 2**17
_HEADER = struct.Struct("<4s5H3I2H")  # Of a member in a zip file.


class Loaded(NamedTuple):
    """What a file holds, whose tensors are `Tensor`, and their numbers."""

    path: str | os.PathLike
    tree: Any
    storages: Mapping[str, np.ndarray]

    def arrays(self, state: Any) -> dict[str, np.ndarray]:
        """Views of the tensors of a state dict by name, read-only.

        Entries that are no tensors are left out. ValueError where it is no dict, has a
        key that is no text, or a tensor leaves its storage.
        """
        with opening.refusing(self.path, _KIND):
            if not isinstance(state, Mapping):
                raise ValueError("it holds no dict")  # noqa: TRY004
            if wrong := [str(key)[:40] for key in state if not isinstance(key, str)]:
                raise ValueError(
                    f"its keys must be text, got {wrong[0]}; save each tensor by a name"
                )
            tensors = {k: v for k, v in state.items() if isinstance(v, Tensor)}
            return {name: _view(one, self.storages) for name, one in tensors.items()}


def load(path: str | os.PathLike) -> Loaded:
    """Reads all that a file holds: tensors, containers, numbers and text.

    ValueError, one line, for what is no such file, is damaged, or names anything else;
    OSError where the file cannot be opened.
    """
    with opening.refusing(path, _KIND), opening.binary(path) as file:
        _refuse(not os.fstat(file.fileno()).st_size, "it is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content[:4] == b"PK\3\4":
                return Loaded(path, *_archive(file, content))
            head = io.BytesIO(content[:1024])
            if content[257:262] == b"ustar" and tarfile.is_tarfile(head):
                raise ValueError("is a tar file of PyTorch before 0.1.11; save it anew")
            return Loaded(path, *_stream(content))


def read(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Reads a state dict, {name: array}; entries that are no tensors are left out.

    Raises ValueError, one line, for what is no such file, is damaged, or names anything
    but tensors; OSError where the file cannot be opened.
    """
    loaded = load(path)
    tensors = loaded.arrays(loaded.tree)
    with opening.refusing(path, _KIND):
        total = sum(array.nbytes for array in tensors.values())
        if total > _COPIED_BYTES:  # Views may say more than the file holds.
            raise ValueError(f"its tensors have {total} bytes in all")
    return {name: array.copy() for name, array in tensors.items()}


def _archive(file: BinaryIO, content: mmap.mmap) -> tuple[Any, dict[str, np.ndarray]]:
    """Opens the form of PyTorch 1.6: <any>/data.pkl and <any>/data/<key>, in a zip."""
    try:
        opened = zipfile.ZipFile(file)
    except zipfile.BadZipFile as error:
        raise ValueError(
            f"the archive's end is missing or damaged ({error}); copy the file anew"
        ) from error
    with opened as members:
        check_members(members, content)
        names = members.namelist()
        (pickled,) = [n for n in names if n.endswith("/data.pkl")] or [""]
        _refuse(not pickled, "the archive has no data.pkl")
        if members.getinfo(pickled).file_size > _PICKLE_BYTES:
            raise ValueError(f"its data.pkl has more than {_PICKLE_BYTES} bytes")
        root = pickled.removesuffix("data.pkl")
        order = f"{root}byteorder"
        if order in names and members.read(order) != b"little":
            raise ValueError("its numbers are not little-endian")
        found, named = load_pickle(io.BytesIO(members.read(pickled)))
        storages = {}
        for key, storage in named.items():
            member = f"{root}data/{key}"
            _refuse(member not in names, f"the archive has no {member[:80]}")
            _check_size(members.getinfo(member).file_size, storage)
            storages[key] = _numbers(members.read(member), storage)
    return found, storages


def check_members(members: zipfile.ZipFile, content: mmap.mmap) -> None:
    """Refuses archives that say one thing in two places, or hold less than they say.

    PyTorch stores its members as they are, one after the other, each under one name.
    """
    infos = sorted(members.infolist(), key=lambda info: info.header_offset)
    if len(infos) > _MEMBERS:
        raise ValueError(f"the archive has {len(infos)} members, more than {_MEMBERS}")
    names = [info.filename for info in infos]
    _refuse(len(set(names)) < len(names), "the archive has two members of one name")
    end = 0
    for info in infos:
        name = info.filename[:80]
        steps = info.filename.split("/")
        if ".." in steps or "" in steps[:-1] or set(info.filename) & {"\\", ":"}:
            raise ValueError(f"the archive has a member with the path {name!r}")
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise ValueError(f"the archive has {name!r} compressed or encrypted")
        if info.compress_size != info.file_size:
            raise ValueError(f"the archive has two sizes for {name!r}")
        if info.header_offset < end:
            raise ValueError(f"the archive has {name!r} inside of another member")
        end = _member_end(info, content)
        _refuse(end > members.start_dir, f"the archive is too short for {name!r}")


def _member_end(info: zipfile.ZipInfo, content: mmap.mmap) -> int:
    """Where a member ends by its own header, which must agree with the directory."""
    start = info.header_offset
    head = content[start : start + _HEADER.size]
    if len(head) < _HEADER.size:
        raise ValueError(f"the archive is too short for {info.filename[:80]!r}")
    magic, _, flags, method, *_, packed, size, letters, extra = _HEADER.unpack(head)
    later = flags & 8  # Sizes follow the numbers; else 2^32 - 1 says they are extra.
    sizes = {packed, size} - {0xFFFFFFFF} - ({0} if later else set())
    if magic != b"PK\3\4" or method != info.compress_type or sizes - {info.file_size}:
        raise ValueError(
            f"the archive says of {info.filename[:80]!r} one thing in its directory and"
            " another at its place"
        )
    return start + _HEADER.size + letters + extra + info.file_size


def _stream(content: mmap.mmap) -> tuple[Any, dict[str, np.ndarray]]:
    """Opens the older form: five pickles, then the storages in the last one's order."""
    try:
        head = [load_pickle(content)[0] for _ in range(2)]
    except ValueError as error:
        if content[:1] == b"\x80":  # As every pickle of torch.save begins.
            raise
        raise ValueError(
            f"it does not begin as what torch.save writes ({error}); check which file "
            "it is, or copy it anew"
        ) from error
    _refuse(head != [_MAGIC, _PROTOCOL], "it does not begin as one")
    system, _ = load_pickle(content)
    if not isinstance(system, dict) or not system.get("little_endian", True):
        raise ValueError("its numbers are not little-endian")
    found, named = load_pickle(content)
    keys, _ = load_pickle(content)
    _refuse(not isinstance(keys, list), "its list of storages is no list")
    storages = {}
    for key in keys:
        # Text alone: the hash of nested tuples may take for ever.
        if not isinstance(key, str) or key not in named or key in storages:
            raise ValueError("its list of storages is not that of its tensors")
        storage = named[key]
        count = int.from_bytes(content.read(8), "little", signed=True)
        if count != storage.count:
            raise ValueError(f"storage {key[:80]} must have {storage.count} numbers")
        size = count * itemsize(storage)
        _check_size(min(size, len(content) - content.tell()), storage)
        storages[key] = _numbers(content.read(size), storage)
    return found, storages


def _check_size(held: int, storage: Storage) -> None:
    key, expected = storage.key[:80], storage.count * itemsize(storage)
    _refuse(held != expected, f"storage {key} must have {expected} bytes, got {held}")


def _numbers(data: bytes, storage: Storage) -> np.ndarray:
    numbers = np.frombuffer(data, STORAGES[storage.kind])
    bits = storage.kind == "BFloat16Storage"
    return (numbers.astype("<u4") << 16).view("<f4") if bits else numbers


def _view(tensor: Tensor, storages: Mapping[str, np.ndarray]) -> np.ndarray:
    """A tensor in its storage; nothing outside of that is looked at."""
    if tensor.storage not in storages:
        raise ValueError(
            f"a tensor lies in storage {tensor.storage[:80]}, which is not there"
        )
    storage, shape = storages[tensor.storage], tensor.shape
    if len(shape) != len(tensor.strides) or min((*shape, *tensor.strides, 0)) < 0:
        raise ValueError(f"a tensor has shape {shape} and strides {tensor.strides}")
    last = tensor.offset + sum((n - 1) * step for n, step in zip(shape, tensor.strides))
    empty = 0 in shape
    if not empty and not 0 <= tensor.offset <= last < len(storage):
        raise ValueError(f"a tensor lies outside its storage {tensor.storage}")
    strides = [step * storage.itemsize for step in tensor.strides]
    base = storage[:0] if empty else storage[tensor.offset :]
    return np.lib.stride_tricks.as_strided(base, shape, strides, writeable=False)
