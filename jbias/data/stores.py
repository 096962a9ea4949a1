"""Where encoded images lie: files, members of tar archives, Parquet, ArrayRecord.

A store gives the bytes of an image by its number, in any order and from any thread.
"""

import collections
import dataclasses
import functools
import io
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, Protocol

import numpy as np
from jaxtyping import Int

_KEPT = 2  # Row groups a thread keeps: neighbours are read together.


class Store(Protocol):
    """Encoded images by number."""

    names: tuple[str, ...]  # Of each, relative, with slashes.

    def open(self, index: int) -> str | BinaryIO:
        """What opening.image takes; OSError or ValueError where it cannot be read."""

    def where(self, index: int) -> str:
        """Names one image to a person: the place, and its key."""

    def key(self, index: int) -> str:
        """Names one image as no other of the set, wherever the set lies."""

    def take(self, index: Int[np.ndarray, "m"]) -> "Store":
        """Selects images, in the order of `index`."""

    def order(self) -> Int[np.ndarray, "n"]:
        """The order in which they lie: the fastest to read them all."""


@dataclasses.dataclass(frozen=True, eq=False)
class Files:
    """Files below one folder."""

    root: str
    names: tuple[str, ...]

    def open(self, index: int) -> str:
        return self.where(index)

    def where(self, index: int) -> str:
        return os.path.join(self.root, self.names[index])

    def key(self, index: int) -> str:
        return self.names[index]

    def take(self, index: Int[np.ndarray, "m"]) -> "Files":
        return Files(self.root, tuple(self.names[i] for i in index))

    def order(self) -> Int[np.ndarray, "n"]:
        return np.arange(len(self.names))


@dataclasses.dataclass(frozen=True, eq=False)
class Slices:
    """Stretches of large files, such as the members of tar archives."""

    shards: tuple[str, ...]  # All in one folder.
    names: tuple[str, ...]  # Each once in a shard.
    shard: Int[np.ndarray, "n"]
    start: Int[np.ndarray, "n"]  # In bytes.
    length: Int[np.ndarray, "n"]

    def open(self, index: int) -> BinaryIO:
        path, length = self.shards[self.shard[index]], int(self.length[index])
        with open(path, "rb") as file:
            data = os.pread(file.fileno(), length, int(self.start[index]))
        if len(data) != length:
            raise ValueError(f"must have {length} bytes, got {len(data)}: cut off")
        return io.BytesIO(data)

    def where(self, index: int) -> str:
        folder = os.path.dirname(self.shards[self.shard[index]])
        return os.path.join(folder, self.key(index))

    def key(self, index: int) -> str:
        shard = os.path.basename(self.shards[self.shard[index]])
        return f"{shard}:{self.names[index]}"

    def take(self, index: Int[np.ndarray, "m"]) -> "Slices":
        names = tuple(self.names[i] for i in index)
        rows = (x[index] for x in (self.shard, self.start, self.length))
        return Slices(self.shards, names, *rows)

    def order(self) -> Int[np.ndarray, "n"]:
        return np.lexsort((self.start, self.shard))


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Rows of shards that are read by a function: read(path, group) -> list of bytes.

    A group is what must be read at once, such as a row group of Parquet.
    """

    shards: tuple[str, ...]  # All in one folder.
    names: tuple[str, ...]
    shard: Int[np.ndarray, "n"]
    group: Int[np.ndarray, "n"]
    row: Int[np.ndarray, "n"]  # Of the group.
    read: Callable[[str, int], Sequence[bytes]]
    _seen: Any = dataclasses.field(default_factory=threading.local)

    def open(self, index: int) -> BinaryIO:
        path, group = self.shards[self.shard[index]], int(self.group[index])
        return io.BytesIO(self._group(path, group)[self.row[index]])

    def _group(self, path: str, group: int) -> Sequence[bytes]:
        kept = self._seen.__dict__.setdefault("kept", collections.OrderedDict())
        if (path, group) not in kept:
            try:
                kept[path, group] = self.read(path, group)
            except (OSError, ValueError) as error:
                if any(getattr(e, "errno", None) for e in (error, error.__cause__)):
                    raise  # The system's reason, which may pass.
                kept[path, group] = error  # So it is for all of its images.
            if len(kept) > _KEPT:
                kept.popitem(last=False)
        kept.move_to_end((path, group))
        if isinstance(found := kept[path, group], Exception):
            raise found.with_traceback(None)
        return found

    def where(self, index: int) -> str:
        folder = os.path.dirname(self.shards[self.shard[index]])
        return os.path.join(folder, self.key(index))

    def key(self, index: int) -> str:
        shard = os.path.basename(self.shards[self.shard[index]])
        place = f"group {self.group[index]}, row {self.row[index]}"
        return f"{shard}:{self.names[index]} ({place})"

    def take(self, index: Int[np.ndarray, "m"]) -> "Rows":
        names = tuple(self.names[i] for i in index)
        rows = (x[index] for x in (self.shard, self.group, self.row))
        return Rows(self.shards, names, *rows, read=self.read)

    def order(self) -> Int[np.ndarray, "n"]:
        return np.lexsort((self.row, self.group, self.shard))

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k != "_seen"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _seen=threading.local())


@dataclasses.dataclass(frozen=True, eq=False)
class Records:
    """Records of ArrayRecord shards; image(record) -> bytes takes the image out."""

    shards: tuple[str, ...]
    names: tuple[str, ...]
    record: Int[np.ndarray, "n"]  # Over all shards.
    image: Callable[[bytes], bytes]

    @functools.cached_property
    def _source(self):
        from array_record.python import array_record_data_source

        return array_record_data_source.ArrayRecordDataSource([*self.shards])

    def open(self, index: int) -> BinaryIO:
        return io.BytesIO(self.image(self._source[int(self.record[index])]))

    def where(self, index: int) -> str:
        return f"{os.path.dirname(self.shards[0])}:{self.key(index)}"

    def key(self, index: int) -> str:
        return f"{self.names[index]} (record {self.record[index]})"

    def take(self, index: Int[np.ndarray, "m"]) -> "Records":
        names = tuple(self.names[i] for i in index)
        return Records(self.shards, names, self.record[index], self.image)

    def order(self) -> Int[np.ndarray, "n"]:
        return np.argsort(self.record)
