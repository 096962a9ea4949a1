"""Stores of encoded images: files, members of tar archives, rows of Parquet, ArrayRecord.

A store opens an image by its index, in any order and from any thread.
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

# Groups of rows that a store caches, because neighbours are read together: two per thread.
_CACHED_GROUPS = 2 * (os.cpu_count() or 1)


class Store(abc.ABC):
    """Encoded images, opened by index, in files or in shards of one folder."""

    names: tuple[str, ...]  # Name of each image: a relative path with slashes.
    shards: tuple[str, ...]  # Paths of the shards.
    shard: Int[np.ndarray, "n"]  # Index of each image's shard.

    @abc.abstractmethod
    def open(self, index: int) -> str | BinaryIO:
        """Return the path or an open file of an encoded image, for opening.open_image.

        OSError or ValueError if the image cannot be read.
        """

    def where(self, index: int) -> str:
        """Return "<folder>/<key>" of an image, its path for messages."""
        return os.path.join(os.path.dirname(self.shards[0]), self.key(index))

    def key(self, index: int) -> str:
        """Return a name of an image that is unique in the store and has no root folder."""
        return f"{os.path.basename(self.shards[self.shard[index]])}:{self.names[index]}"

    def take(self, index: Int[np.ndarray, "m"]) -> "Store":
        """Return a store of the images at `index`, in that order."""
        columns: dict[str, Any] = {
            name: position[index] for name, position in self._positions().items()
        }
        columns["names"] = tuple(self.names[i] for i in index)
        return dataclasses.replace(cast(Any, self), **columns)

    def order(self) -> Int[np.ndarray, "n"]:
        """Return the indices of the images in the order on disk, the fastest to read."""
        positions = [*self._positions().values()]
        if not positions:
            return np.arange(len(self.names))
        return np.lexsort(positions[::-1])

    def _positions(self) -> dict[str, np.ndarray]:
        """Return {field: array} of the store's arrays, in the order of its fields.

        The arrays have each image's shard and its position in the shard; {} for a FileStore.
        """
        return {k: v for k, v in vars(self).items() if isinstance(v, np.ndarray)}


@dataclasses.dataclass(frozen=True, eq=False)
class FileStore(Store):
    """A store of files below one folder."""

    root: str  # Path of the folder.
    names: tuple[str, ...]  # Paths relative to `root`.

    def open(self, index: int) -> str:
        """Return the path of an image file."""
        return self.where(index)

    def where(self, index: int) -> str:
        return os.path.join(self.root, self.names[index])

    def key(self, index: int) -> str:
        return self.names[index]


@dataclasses.dataclass(frozen=True, eq=False)
class TarStore(Store):
    """A store of members of tar archives, read as byte ranges."""

    shards: tuple[str, ...]
    names: tuple[str, ...]  # Unique within a shard.
    shard: Int[np.ndarray, "n"]
    start: Int[np.ndarray, "n"]  # Byte offset in the archive.
    length: Int[np.ndarray, "n"]  # In bytes.

    def open(self, index: int) -> BinaryIO:
        """Return a file of the image's bytes; ValueError if the archive is cut off."""
        length = int(self.length[index])
        with open(self.shards[self.shard[index]], "rb") as file:
            data = os.pread(file.fileno(), length, int(self.start[index]))
        if len(data) != length:
            raise ValueError(f"must have {length} bytes, got {len(data)}: cut off")
        return io.BytesIO(data)


@dataclasses.dataclass(frozen=True, eq=False)
class ParquetStore(Store):
    """A store of rows of Parquet shards.

    read: (path, group) -> the encoded image of each row of a row group of Parquet, which is
    read as a whole; None for a row without an image.
    """

    shards: tuple[str, ...]
    names: tuple[str, ...]
    shard: Int[np.ndarray, "n"]
    group: Int[np.ndarray, "n"]  # Index of the row group in the shard.
    row: Int[np.ndarray, "n"]  # Index of the row in the group.
    read: Callable[[str, int], Sequence[bytes | None]]

    def open(self, index: int) -> BinaryIO:
        """Return a file of the image's bytes.

        ValueError for a row without an image; OSError or ValueError if its row group cannot be
        read.
        """
        path = self.shards[self.shard[index]]
        rows = self._read_cached(path, int(self.group[index]))
        if isinstance(rows, Exception):
            raise rows.with_traceback(None)
        content = rows[self.row[index]]
        if content is None:
            must = "the row must hold the bytes of the image, got none"
            remedy = "a path is not enough: write the file with the images inside"
            raise ValueError(f"{must}; {remedy}")
        return io.BytesIO(content)

    @functools.cached_property
    def _read_cached(self) -> Callable[[str, int], Sequence[bytes | None] | Exception]:
        """Function (path, group) -> result of `_read_group`, with a cache of the last groups."""
        return functools.lru_cache(_CACHED_GROUPS)(self._read_group)

    def _read_group(self, path: str, group: int) -> Sequence[bytes | None] | Exception:
        """Return self.read(path, group), or the exception if the data are damaged.

        The exception is returned to be cached. Errors of the system, which have an errno, are
        raised.
        """
        try:
            return self.read(path, group)
        except (OSError, ValueError) as error:
            if any(getattr(e, "errno", None) for e in (error, error.__cause__)):
                raise  # An error of the system, which may be temporary: not cached.
            return error

    def key(self, index: int) -> str:
        place = f"group {self.group[index]}, row {self.row[index]}"
        return f"{super().key(index)} ({place})"

    def __getstate__(self) -> dict[str, Any]:
        """Return {field: value} without the cache, to pickle the store for other processes."""
        return {k: v for k, v in vars(self).items() if k != "_read_cached"}


@dataclasses.dataclass(frozen=True, eq=False)
class ArrayRecordStore(Store):
    """A store of records of ArrayRecord shards."""

    shards: tuple[str, ...]
    names: tuple[str, ...]
    record: Int[np.ndarray, "n"]  # Index over all shards.
    image: Callable[[bytes], bytes]  # image(record) -> the encoded image.

    @functools.cached_property
    def _source(self) -> Sequence[bytes]:
        """The records of all shards, by index."""
        from array_record.python import array_record_data_source

        return array_record_data_source.ArrayRecordDataSource([*self.shards])

    def open(self, index: int) -> BinaryIO:
        """Return a file of the image's bytes."""
        return io.BytesIO(self.image(self._source[int(self.record[index])]))

    def where(self, index: int) -> str:
        return f"{os.path.dirname(self.shards[0])}:{self.key(index)}"

    def key(self, index: int) -> str:
        return f"{self.names[index]} (record {self.record[index]})"


@dataclasses.dataclass(frozen=True, eq=False)
class JoinedStore(Store):
    """A store of the images of several stores.

    prefixes: start of the names of each store's images, such as "photo/"; they differ, so that
    names and keys are unique.
    """

    stores: tuple[Store, ...]
    prefixes: tuple[str, ...]
    names: tuple[str, ...]
    store: Int[np.ndarray, "n"]  # Index of each image's store.
    row: Int[np.ndarray, "n"]  # Index of each image in its store.

    @classmethod
    def join(cls, stores: Sequence[Store], prefixes: Sequence[str]) -> "JoinedStore":
        """Return a store of all images, in the order of the stores."""
        counts = [len(store.names) for store in stores]
        names = [
            prefix + name
            for store, prefix in zip(stores, prefixes, strict=True)
            for name in store.names
        ]
        return cls(
            stores=tuple(stores),
            prefixes=tuple(prefixes),
            names=tuple(names),
            store=np.repeat(np.arange(len(counts)), counts),
            row=np.concatenate([np.arange(count) for count in counts]),
        )

    def open(self, index: int) -> str | BinaryIO:
        """Return the path or an open file of an image, as its store does."""
        return self.stores[self.store[index]].open(int(self.row[index]))

    def where(self, index: int) -> str:
        return self.stores[self.store[index]].where(int(self.row[index]))

    def key(self, index: int) -> str:
        number = self.store[index]
        return self.prefixes[number] + self.stores[number].key(int(self.row[index]))
