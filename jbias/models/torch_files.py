"""Reads what PyTorch saved, without PyTorch and without running what it says.

A .pth file holds a pickle, which may name any function to call; pickles.py has what it
may name here. Three forms exist: an archive (PyTorch 1.6 and later), a stream of pickles
(before), and a tar file (before 0.1.11), which is refused.
Form after https://github.com/pytorch/pytorch, torch/serialization.py.
"""

import io
import mmap
import os
import struct
import tarfile
import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from jbias.models import pickle_values, pickles
from jbias.untrusted import opening

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_PICKLE_BYTES = 2**24  # Of an archive; the numbers lie elsewhere.
_COPIED_BYTES = 2**32
_MEMBERS = 2**17
_HEADER = struct.Struct("<4s5H3I2H")  # Of a member in a zip file.


class Loaded(NamedTuple):
    """What a file holds, whose tensors are `Tensor`, and their numbers."""

    tree: Any
    storages: Mapping[str, np.ndarray]

    def array(self, tensor: pickle_values.Tensor) -> np.ndarray:
        """A view of a tensor, read-only; ValueError where it leaves its storage."""
        return _view(tensor, self.storages)


def load(path: str | os.PathLike) -> Loaded:
    """Reads all that a file holds: tensors, containers, numbers and text.

    ValueError, one line, for what is no such file, is damaged, or names anything else;
    OSError where the file cannot be opened.
    """
    try:
        with opening.binary(path) as file:
            if not os.fstat(file.fileno()).st_size:
                raise ValueError("it is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                if content[:4] == b"PK\3\4":
                    return Loaded(*_archive(file, content))
                if _is_tar(content):
                    raise ValueError(
                        "is a tar file of PyTorch before 0.1.11; save it anew"
                    )
                return Loaded(*_stream(content))
    except OSError:
        raise
    # Of damaged bytes pickletools, zipfile and zlib raise anything.
    except Exception as error:
        raise _refusal(path, error) from error


def read(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Reads a state dict, {name: array}; entries that are no tensors are left out.

    Raises ValueError, one line, for what is no such file, is damaged, or names anything
    but tensors; OSError where the file cannot be opened.
    """
    loaded = load(path)
    try:
        if not isinstance(loaded.tree, Mapping):
            raise ValueError("it holds no dict")  # noqa: TRY004
        tensors = {
            name: loaded.array(value)
            for name, value in loaded.tree.items()
            if isinstance(value, pickle_values.Tensor)
        }
        total = sum(array.nbytes for array in tensors.values())
        if total > _COPIED_BYTES:  # Views may say more than the file holds.
            raise ValueError(f"its tensors have {total} bytes in all")
    except ValueError as error:
        raise _refusal(path, error) from error
    return {name: array.copy() for name, array in tensors.items()}


def _refusal(path: str | os.PathLike, error: Exception) -> ValueError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return ValueError(
        f"{os.fspath(path)}: must be a PyTorch state dict: {reason[:600]}"
    )


def _is_tar(content: mmap.mmap) -> bool:
    head = io.BytesIO(content[:1024])
    return content[257:262] == b"ustar" and tarfile.is_tarfile(head)


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
        if not pickled:
            raise ValueError("the archive has no data.pkl")
        if members.getinfo(pickled).file_size > _PICKLE_BYTES:
            raise ValueError(f"its data.pkl has more than {_PICKLE_BYTES} bytes")
        root = pickled.removesuffix("data.pkl")
        order = f"{root}byteorder"
        if order in names and members.read(order) != b"little":
            raise ValueError("its numbers are not little-endian")
        found, named = pickles.load(io.BytesIO(members.read(pickled)))
        storages = {}
        for key, storage in named.items():
            member = f"{root}data/{key}"
            if member not in names:
                raise ValueError(f"the archive has no {member[:80]}")
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
    if len(set(names)) < len(names):
        raise ValueError("the archive has two members of one name")
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
        if end > members.start_dir:
            raise ValueError(f"the archive is too short for {name!r}")


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
        head = [pickles.load(content)[0] for _ in range(2)]
    except ValueError as error:
        if content[:1] == b"\x80":  # As every pickle of torch.save begins.
            raise
        raise ValueError(
            f"it does not begin as what torch.save writes ({error}); check which file "
            "it is, or copy it anew"
        ) from error
    if head != [_MAGIC, _PROTOCOL]:
        raise ValueError("it does not begin as one")
    system, _ = pickles.load(content)
    if not isinstance(system, dict) or not system.get("little_endian", True):
        raise ValueError("its numbers are not little-endian")
    found, named = pickles.load(content)
    keys, _ = pickles.load(content)
    storages = {}
    for key in keys:
        if key not in named or key in storages:
            raise ValueError("its list of storages is not that of its tensors")
        storage = named[key]
        count = int.from_bytes(content.read(8), "little", signed=True)
        if count != storage.count:
            raise ValueError(f"storage {key[:80]} must have {storage.count} numbers")
        size = count * pickle_values.itemsize(storage)
        _check_size(min(size, len(content) - content.tell()), storage)
        storages[key] = _numbers(content.read(size), storage)
    return found, storages


def _check_size(held: int, storage: pickle_values.Storage) -> None:
    expected = storage.count * pickle_values.itemsize(storage)
    if held != expected:
        raise ValueError(
            f"storage {storage.key[:80]} must have {expected} bytes, got {held}"
        )


def _numbers(data: bytes, storage: pickle_values.Storage) -> np.ndarray:
    if storage.kind == "BFloat16Storage":
        return from_bfloat16(np.frombuffer(data, "<u2"))
    return np.frombuffer(data, pickle_values.STORAGES[storage.kind])


def from_bfloat16(halves: np.ndarray) -> np.ndarray:
    """The float32 numbers whose upper halves these are."""
    return (halves.astype("<u4") << 16).view("<f4")


def _view(
    tensor: pickle_values.Tensor, storages: Mapping[str, np.ndarray]
) -> np.ndarray:
    """A tensor in its storage; nothing outside of that is looked at."""
    if tensor.storage not in storages:
        raise ValueError(
            f"a tensor lies in storage {tensor.storage[:80]}, which is not there"
        )
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
    return np.lib.stride_tricks.as_strided(base, shape, strides, writeable=False)
