"""Reader of files of PyTorch, without PyTorch and without running code in the file.

A .pth file is a pickle, which may name any function to call. Here jbias.untrusted.pickles
interprets the pickle and calls only the functions in CALLS: for tensors, containers, numbers
and text. Three formats exist: an archive (PyTorch 1.6 and later), a stream of pickles (before 1.6),
and a tar file (before 0.1.11), which is refused.
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

# dtypes of numbers in the file; bfloat16 is read as bits, the upper half of a float32.
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
    """The description of an array of numbers outside the pickle, in the same file."""

    key: str
    kind: str  # A key of STORAGES.
    count: int  # Number of elements.


class Tensor(NamedTuple):
    """The description of a tensor: a view of a storage."""

    storage: str  # The key of a Storage.
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # In elements, not in bytes.


def itemsize(storage: Storage) -> int:
    """Return the number of bytes of one number in a storage."""
    return np.dtype(STORAGES[storage.kind]).itemsize


def _require(is_valid: bool) -> None:
    """Raise TypeError without a message unless `is_valid`.

    The reader of the pickle catches the error and reports which function of the file failed.
    """
    if not is_valid:
        raise TypeError


def _refuse(is_wrong: bool, problem: str) -> None:
    """Raise ValueError, with `problem` as the message, if `is_wrong`."""
    if is_wrong:
        raise ValueError(problem)


def _make_ordered_dict(pairs: Any = ()) -> collections.OrderedDict:
    """Return an ordered dict of (name, value) pairs; TypeError unless names are text or bytes."""
    _require(isinstance(pairs, (list, tuple)))
    # Numbers as keys have a meaning only for the pickle machine.
    _require(all(isinstance(name, (str, bytes)) for name, _ in pairs))
    return collections.OrderedDict(pairs)


# Ignored arguments: whether the tensor requires gradients, and hooks.
def _make_tensor(
    storage: Any, offset: Any, shape: Any, strides: Any, *_: Any
) -> Tensor:
    """Return the description of a tensor; further arguments are ignored."""
    _require(isinstance(storage, Storage) and type(offset) is int)
    shape, strides = _make_size(shape), _make_size(strides)
    _require(max(len(shape), len(strides)) <= 32)
    return Tensor(storage.key, offset, shape, strides)


def _make_parameter(data: Any, *_: Any) -> Tensor:
    """Return `data`, the tensor of a parameter; further arguments are ignored."""
    _require(isinstance(data, Tensor))
    return data


def _make_size(items: Any) -> tuple[int, ...]:
    """Return a shape, given as a list or tuple of ints, as a tuple."""
    _require(isinstance(items, (tuple, list)) and all(type(n) is int for n in items))
    return tuple(items)


def _make_device(*words: Any) -> str:
    """Return the name of a device, such as "cuda:0", given its parts."""
    return ":".join(str(word)[:20] for word in words if isinstance(word, (str, int)))


def _make_dtype(code: Any, *_: Any) -> np.dtype:
    """Return the NumPy dtype of a code such as "f8"; only numbers are allowed."""
    _require(isinstance(code, str) and code.lstrip("<>|=")[:1] in tuple("fiub?"))
    return np.dtype(code)


def _make_scalar(dtype: Any, data: Any) -> Any:
    """Return the Python number in the bytes of one NumPy scalar."""
    data = data.encode("latin-1") if isinstance(data, str) else data
    _require(isinstance(dtype, np.dtype) and isinstance(data, bytes))
    (number,) = np.frombuffer(data, dtype).tolist()
    return number


def _make_dict(_: Any = None) -> dict:
    """Return an empty dict."""
    return {}  # The argument is the default factory of optimisers' dicts.


# Functions that a pickle may name, and the functions that are called instead.
CALLS: Mapping[tuple[str, str], Callable] = {
    ("collections", "OrderedDict"): _make_ordered_dict,
    ("collections", "defaultdict"): _make_dict,
    ("builtins", "dict"): _make_dict,
    ("__builtin__", "dict"): _make_dict,
    ("torch", "Size"): _make_size,
    ("torch", "device"): _make_device,
    ("torch._utils", "_rebuild_tensor"): _make_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _make_tensor,
    ("torch._utils", "_rebuild_parameter"): _make_parameter,
    ("numpy", "dtype"): _make_dtype,
    ("numpy.core.multiarray", "scalar"): _make_scalar,
    ("numpy._core.multiarray", "scalar"): _make_scalar,
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
    "float64",
    "double",
    "float32",
    "float",
    "float16",
    "half",
    "bfloat16",
    "int64",
    "long",
    "int32",
    "int",
    "int16",
    "short",
    "int8",
    "uint8",
    "bool",
)
# Modules that run commands or code.
_HOSTILE_MODULES = (
    "os",
    "posix",
    "nt",
    "subprocess",
    "_posixsubprocess",
    "commands",
    "pty",
    "shutil",
    "sys",
    "socket",
    "importlib",
    "runpy",
    "ctypes",
    "marshal",
)
# Builtins that run code or open files.
_HOSTILE_BUILTINS = (
    "eval",
    "exec",
    "execfile",
    "compile",
    "open",
    "file",
    "__import__",
    "apply",
    "breakpoint",
    "input",
)


def load_pickle(file: BinaryIO) -> tuple[Any, dict[str, Storage]]:
    """Return the content of a pickle, and the storages that the pickle refers to, by key.

    The file's position is then after the pickle. ValueError if the pickle is damaged or
    has anything but tensors, containers, numbers and text.
    """
    machine = _Machine()
    return machine.run(file), machine.storages


class _Machine(pickles.Machine):
    """A pickle machine that also interprets tensors and storages of PyTorch."""

    calls = CALLS
    remedy = _REMEDY

    def __init__(self):
        super().__init__()
        self.storages: dict[str, Storage] = {}
        self.rules = {"NEWOBJ": self.call, "BINPERSID": self.refer}

    def resolve_name(self, module: str, name: str) -> pickles.Name:
        """Return the name of a function in `CALLS`, or of a storage or dtype of torch.

        ValueError for any other name.
        """
        known = (*STORAGES, *_DTYPES) if module == "torch" else ()
        if (module, name) in self.calls or name in known:
            return pickles.Name(module, name)
        request = f"it asks for {module[:80]}.{name[:80]}"
        if module in ("builtins", "__builtin__"):
            is_hostile = name in _HOSTILE_BUILTINS
        else:
            is_hostile = module.partition(".")[0] in _HOSTILE_MODULES
        if is_hostile:
            raise ValueError(
                f"{request}: it wants to run a command: do not load it, here or with "
                "PyTorch"
            )
        raise ValueError(f"{request}, which is no tensor; {_REMEDY}")

    def set_state(self, thing: Any, state: Any) -> Any:
        """Return an OrderedDict unchanged, or a dtype with the byte order state[1].

        Attributes of an OrderedDict are dropped. ValueError for an unknown byte order.
        """
        if isinstance(thing, collections.OrderedDict):
            return thing
        if not isinstance(thing, np.dtype):
            return super().set_state(thing, state)
        order = state[1] if isinstance(state, tuple) and len(state) > 1 else None
        if order not in ("<", ">", "=", "|"):
            raise ValueError("its pickle has a dtype of an unknown order")
        return thing.newbyteorder(order)

    def refer(self, _: Any = None) -> None:
        """Replace the description of a storage on top of the stack by a `Storage`.

        Also add the `Storage` to `storages`. ValueError if the description is invalid, or
        differs from the description of a storage with the same key.
        """
        description = self.pop()
        if not isinstance(description, tuple) or len(description) not in (5, 6):
            raise ValueError("it refers to what is no storage")
        kind, storage, key, _device, count, *view = description
        if kind != "storage" or not isinstance(storage, pickles.Name) or any(view):
            raise ValueError("it refers to what is no storage")
        if storage.name not in STORAGES or not isinstance(key, (str, int)):
            raise ValueError("it refers to a storage of unknown numbers")
        if type(count) is not int or not 0 <= count < 2**48:
            raise ValueError("it refers to a storage of an impossible size")
        parsed = Storage(str(key), storage.name, count)
        if self.storages.setdefault(parsed.key, parsed) != parsed:
            raise ValueError("it refers to one storage as two")
        self.stack.append(parsed)


_KIND = "a PyTorch state dict"
_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_MAX_PICKLE_BYTES = 2**24  # Size of the pickle in an archive, which has no numbers.
_MAX_COPIED_BYTES = 2**32
_MAX_MEMBERS = 2**17
_HEADER = struct.Struct("<4s5H3I2H")  # Header of a member in a zip file.


class TorchFile(NamedTuple):
    """The content of a file of PyTorch: a tree with `Tensor` leaves, and their numbers."""

    path: str | os.PathLike
    tree: Any
    storages: Mapping[str, np.ndarray]

    def arrays(self, state: Any) -> dict[str, np.ndarray]:
        """Return read-only views of the tensors of a state dict, by name.

        state: a dict in the tree; entries that are not tensors are left out. ValueError if
        `state` is not a dict, a key is not text, or a tensor does not fit its storage.
        """
        with opening.explain_errors(self.path, _KIND):
            if not isinstance(state, Mapping):
                raise ValueError("it holds no dict")  # noqa: TRY004
            wrong_keys = [str(key)[:40] for key in state if not isinstance(key, str)]
            if wrong_keys:
                raise ValueError(
                    f"its keys must be text, got {wrong_keys[0]}; save each tensor by a "
                    "name"
                )
            return {
                name: _view(tensor, self.storages)
                for name, tensor in state.items()
                if isinstance(tensor, Tensor)
            }


def load(path: str | os.PathLike) -> TorchFile:
    """Return the content of a file: its tensors, containers, numbers and text.

    ValueError, one line, if the file has another format, is damaged, or names anything
    else; OSError if the file cannot be opened.
    """
    with opening.explain_errors(path, _KIND), opening.open_binary(path) as file:
        _refuse(not os.fstat(file.fileno()).st_size, "it is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content[:4] == b"PK\3\4":
                tree, storages = _read_archive(file, content)
                return TorchFile(path, tree, storages)
            head = io.BytesIO(content[:1024])
            if content[257:262] == b"ustar" and tarfile.is_tarfile(head):
                raise ValueError("is a tar file of PyTorch before 0.1.11; save it anew")
            tree, storages = _read_stream(content)
            return TorchFile(path, tree, storages)


def read(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Return the arrays, by name, of a file whose content is one state dict.

    Entries that are not tensors are left out. ValueError, one line, if the file has another
    format, is damaged, or names anything but tensors, containers, numbers and text; OSError
    if the file cannot be opened.
    """
    file = load(path)
    views = file.arrays(file.tree)
    with opening.explain_errors(path, _KIND):
        # Overlapping views may have more bytes than the file.
        total = sum(view.nbytes for view in views.values())
        if total > _MAX_COPIED_BYTES:
            raise ValueError(f"its tensors have {total} bytes in all")
    return {name: view.copy() for name, view in views.items()}


def _read_archive(
    file: BinaryIO, content: mmap.mmap
) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the tree and storages of a file of PyTorch 1.6 or later.

    Its format is a zip file of <any>/data.pkl and <any>/data/<key>. Storages are flat arrays by
    key. ValueError if the file is damaged or not little-endian.
    """
    try:
        archive = zipfile.ZipFile(file)
    except zipfile.BadZipFile as error:
        raise ValueError(
            f"the archive's end is missing or damaged ({error}); copy the file anew"
        ) from error
    with archive:
        check_members(archive, content)
        names = archive.namelist()
        (pickle_name,) = [name for name in names if name.endswith("/data.pkl")] or [""]
        _refuse(not pickle_name, "the archive has no data.pkl")
        if archive.getinfo(pickle_name).file_size > _MAX_PICKLE_BYTES:
            raise ValueError(f"its data.pkl has more than {_MAX_PICKLE_BYTES} bytes")
        root = pickle_name.removesuffix("data.pkl")
        byte_order = f"{root}byteorder"
        if byte_order in names and archive.read(byte_order) != b"little":
            raise ValueError("its numbers are not little-endian")
        tree, described = load_pickle(io.BytesIO(archive.read(pickle_name)))
        storages = {}
        for key, storage in described.items():
            member = f"{root}data/{key}"
            _refuse(member not in names, f"the archive has no {member[:80]}")
            _check_size(archive.getinfo(member).file_size, storage)
            storages[key] = _to_array(archive.read(member), storage)
    return tree, storages


def check_members(archive: zipfile.ZipFile, content: mmap.mmap) -> None:
    """Raise ValueError unless an archive has the structure that PyTorch writes.

    An archive must have at most `_MAX_MEMBERS` uncompressed members, one after the other, with
    different names that are paths inside the archive, and with the same sizes in their own
    headers and in the directory.
    """
    infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
    if len(infos) > _MAX_MEMBERS:
        raise ValueError(
            f"the archive has {len(infos)} members, more than {_MAX_MEMBERS}"
        )
    names = [info.filename for info in infos]
    _refuse(len(set(names)) < len(names), "the archive has two members of one name")
    end = 0
    for info in infos:
        name = info.filename[:80]
        folders = info.filename.split("/")
        if ".." in folders or "" in folders[:-1] or set(info.filename) & {"\\", ":"}:
            raise ValueError(f"the archive has a member with the path {name!r}")
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise ValueError(f"the archive has {name!r} compressed or encrypted")
        if info.compress_size != info.file_size:
            raise ValueError(f"the archive has two sizes for {name!r}")
        if info.header_offset < end:
            raise ValueError(f"the archive has {name!r} inside of another member")
        end = _member_end(info, content)
        _refuse(end > archive.start_dir, f"the archive is too short for {name!r}")


def _member_end(info: zipfile.ZipInfo, content: mmap.mmap) -> int:
    """Return the end of a member in bytes, computed from the header in front of the member.

    ValueError if this header differs from the entry in the archive's central directory.
    """
    start = info.header_offset
    head = content[start : start + _HEADER.size]
    if len(head) < _HEADER.size:
        raise ValueError(f"the archive is too short for {info.filename[:80]!r}")
    magic, _, flags, method, *_, packed_size, size, name_length, extra_length = (
        _HEADER.unpack(head)
    )
    # A size of 2^32 - 1 means that the size is in the extra field; 0 with flag 8 that it
    # follows the data.
    placeholders = {0xFFFFFFFF, 0} if flags & 8 else {0xFFFFFFFF}
    sizes = {packed_size, size} - placeholders
    if magic != b"PK\3\4" or method != info.compress_type or sizes - {info.file_size}:
        raise ValueError(
            f"the archive says of {info.filename[:80]!r} one thing in its directory and"
            " another at its place"
        )
    return start + _HEADER.size + name_length + extra_length + info.file_size


def _read_stream(content: mmap.mmap) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the tree and storages of a file of PyTorch before 1.6.

    Its format is five pickles, then the storages in the order of the last pickle's keys.
    Storages are flat arrays by key. ValueError if the file is damaged or not little-endian.
    """
    try:
        head = [load_pickle(content)[0] for _ in range(2)]
    except ValueError as error:
        if content[:1] == b"\x80":  # The first byte of every pickle of torch.save.
            raise
        raise ValueError(
            f"it does not begin as what torch.save writes ({error}); check which file "
            "it is, or copy it anew"
        ) from error
    _refuse(head != [_MAGIC, _PROTOCOL], "it does not begin as one")
    system, _ = load_pickle(content)
    if not isinstance(system, dict) or not system.get("little_endian", True):
        raise ValueError("its numbers are not little-endian")
    tree, described = load_pickle(content)
    keys, _ = load_pickle(content)
    _refuse(not isinstance(keys, list), "its list of storages is no list")
    storages = {}
    for key in keys:
        # The type is checked first: the hash of nested tuples may take forever.
        if not isinstance(key, str) or key not in described or key in storages:
            raise ValueError("its list of storages is not that of its tensors")
        storage = described[key]
        count = int.from_bytes(content.read(8), "little", signed=True)
        if count != storage.count:
            raise ValueError(f"storage {key[:80]} must have {storage.count} numbers")
        size = count * itemsize(storage)
        _check_size(min(size, len(content) - content.tell()), storage)
        storages[key] = _to_array(content.read(size), storage)
    return tree, storages


def _check_size(num_bytes: int, storage: Storage) -> None:
    """Raise ValueError unless `num_bytes` is the size of a storage."""
    key, expected = storage.key[:80], storage.count * itemsize(storage)
    _refuse(
        num_bytes != expected,
        f"storage {key} must have {expected} bytes, got {num_bytes}",
    )


def _to_array(data: bytes, storage: Storage) -> np.ndarray:
    """Return the bytes of a storage as an array of numbers, bfloat16 as float32."""
    numbers = np.frombuffer(data, STORAGES[storage.kind])
    if storage.kind != "BFloat16Storage":
        return numbers
    return (numbers.astype("<u4") << 16).view("<f4")


def _view(tensor: Tensor, storages: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return a tensor as a read-only view of its storage.

    ValueError if the storage is missing, or the tensor is malformed or exceeds the storage.
    """
    if tensor.storage not in storages:
        raise ValueError(
            f"a tensor lies in storage {tensor.storage[:80]}, which is not there"
        )
    storage, shape = storages[tensor.storage], tensor.shape
    if len(shape) != len(tensor.strides) or min((*shape, *tensor.strides, 0)) < 0:
        raise ValueError(f"a tensor has shape {shape} and strides {tensor.strides}")
    last = tensor.offset + sum(
        (n - 1) * stride for n, stride in zip(shape, tensor.strides)
    )
    is_empty = 0 in shape
    if not is_empty and not 0 <= tensor.offset <= last < len(storage):
        raise ValueError(f"a tensor lies outside its storage {tensor.storage}")
    strides = [stride * storage.itemsize for stride in tensor.strides]
    base = storage[:0] if is_empty else storage[tensor.offset :]
    return np.lib.stride_tricks.as_strided(base, shape, strides, writeable=False)
