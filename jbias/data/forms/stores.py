"""Stores of encoded images: files, members of tar archives, rows of Parquet, ArrayRecord.

A store returns the bytes of an image by its number, in any order and from any thread.
"""

import abc
import dataclasses
import functools
import io
import os
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, cast

import numpy as np
from jaxtyping import Int

# Groups that a store keeps, for neighbours are read together: two a thread.
_KEPT_GROUPS = 2 * (os.cpu_count() or 1)


class Store(abc.ABC):
    """Encoded images by number, and the shards, all in one folder, if they lie in any."""

    names: tuple[str, ...]  # Of each, relative, with slashes.
    shards: tuple[str, ...]
    shard: Int[np.ndarray, "n"]  # Of each image, by its number.

    @abc.abstractmethod
    def open(self, index: int) -> str | BinaryIO:
        """What opening.open_image takes; OSError or ValueError where it cannot be read."""

    def where(self, index: int) -> str:
        """Names one image to a person: the place, and its key."""
        return os.path.join(os.path.dirname(self.shards[0]), self.key(index))

    def key(self, index: int) -> str:
        """Names one image as no other of the set, wherever the set lies."""
        return f"{os.path.basename(self.shards[self.shard[index]])}:{self.names[index]}"

    def take(self, index: Int[np.ndarray, "m"]) -> "Store":
        """Selects images, in the order of `index`."""
        rows: dict[str, Any] = {k: place[index] for k, place in self._places().items()}
        rows["names"] = tuple(self.names[i] for i in index)
        return dataclasses.replace(cast(Any, self), **rows)

    def order(self) -> Int[np.ndarray, "n"]:
        """The order in which they lie: the fastest to read them all."""
        places = [*self._places().values()]
        return np.lexsort(places[::-1]) if places else np.arange(len(self.names))

    def _places(self) -> dict[str, np.ndarray]:
        """Where each image lies: its shard, then the place in it."""
        return {k: v for k, v in vars(self).items() if isinstance(v, np.ndarray)}


@dataclasses.dataclass(frozen=True, eq=False)
class FileStore(Store):
    """Files below one folder."""

    root: str
    names: tuple[str, ...]

    def open(self, index: int) -> str:
        return self.where(index)

    def where(self, index: int) -> str:
        return os.path.join(self.root, self.names[index])

    def key(self, index: int) -> str:
        return self.names[index]


@dataclasses.dataclass(frozen=True, eq=False)
class TarStore(Store):
    """Stretches of large files, such as the members of tar archives."""

    shards: tuple[str, ...]
    names: tuple[str, ...]  # Each once in a shard.
    shard: Int[np.ndarray, "n"]
    start: Int[np.ndarray, "n"]  # In bytes.
    length: Int[np.ndarray, "n"]

    def open(self, index: int) -> BinaryIO:
        length = int(self.length[index])
        with open(self.shards[self.shard[index]], "rb") as file:
            data = os.pread(file.fileno(), length, int(self.start[index]))
        if len(data) != length:
            raise ValueError(f"must have {length} bytes, got {len(data)}: cut off")
        return io.BytesIO(data)


@dataclasses.dataclass(frozen=True, eq=False)
class ParquetStore(Store):
    """Rows of shards that are read by a function: read(path, group) -> list of bytes.

    A group is what must be read at once, such as a row group of Parquet.
    """

    shards: tuple[str, ...]
    names: tuple[str, ...]
    shard: Int[np.ndarray, "n"]
    group: Int[np.ndarray, "n"]
    row: Int[np.ndarray, "n"]  # Of the group.
    read: Callable[[str, int], Sequence[bytes | None]]

    def open(self, index: int) -> BinaryIO:
        found = self._groups(self.shards[self.shard[index]], int(self.group[index]))
        if isinstance(found, Exception):
            raise found.with_traceback(None)
        content = found[self.row[index]]
        if content is None:
            must = "the row must hold the bytes of the image, got none"
            remedy = "a path alone does not do: write the file with the images inside"
            raise ValueError(f"{must}; {remedy}")
        return io.BytesIO(content)

    @functools.cached_property
    def _groups(self) -> Callable[[str, int], Sequence[bytes | None] | Exception]:
        return functools.lru_cache(_KEPT_GROUPS)(self._group)

    def _group(self, path: str, group: int) -> Sequence[bytes | None] | Exception:
        try:
            return self.read(path, group)
        except (OSError, ValueError) as error:
            if any(getattr(e, "errno", None) for e in (error, error.__cause__)):
                raise  # The system's reason, which may pass.
            return error  # So it is for all of its images.

    def key(self, index: int) -> str:
        place = f"group {self.group[index]}, row {self.row[index]}"
        return f"{super().key(index)} ({place})"

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k != "_groups"}


@dataclasses.dataclass(frozen=True, eq=False)
class ArrayRecordStore(Store):
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
