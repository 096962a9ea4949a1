"""Random-access sources of images, in memory (ArraySource) or encoded (EncodedSource).

Encoded images lie in a store: files, members of tar archives, Parquet, ArrayRecord. A store
returns the bytes of an image by its number, in any order and from any thread.
"""

import abc
import collections
import dataclasses
import functools
import hashlib
import io
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, cast

import numpy as np
from jaxtyping import Int, UInt8

from jbias.data import base, decoding

_CACHED_GROUPS = 2  # Row groups a thread keeps: neighbours are read together.


class Store(abc.ABC):
    """Encoded images by number, and the shards, all in one folder, if they lie in any."""

    names: tuple[str, ...]  # Of each, relative, with slashes.
    shards: tuple[str, ...]
    shard: Int[np.ndarray, "n"]  # Of each image, by its number.

    @abc.abstractmethod
    def open(self, index: int) -> str | BinaryIO:
        """What opening.image takes; OSError or ValueError where it cannot be read."""

    def where(self, index: int) -> str:
        """Names one image to a person: the place, and its key."""
        folder = os.path.dirname(self.shards[self.shard[index]])
        return os.path.join(folder, self.key(index))

    def key(self, index: int) -> str:
        """Names one image as no other of the set, wherever the set lies."""
        return f"{os.path.basename(self.shards[self.shard[index]])}:{self.names[index]}"

    def take(self, index: Int[np.ndarray, "m"]) -> "Store":
        """Selects images, in the order of `index`."""
        columns = {k: v for k, v in vars(self).items() if isinstance(v, np.ndarray)}
        rows: dict[str, Any] = {k: column[index] for k, column in columns.items()}
        rows["names"] = tuple(self.names[i] for i in index)
        return dataclasses.replace(cast(Any, self), **rows)

    def order(self) -> Int[np.ndarray, "n"]:
        """The order in which they lie: the fastest to read them all."""
        return np.arange(len(self.names))


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
        path, length = self.shards[self.shard[index]], int(self.length[index])
        with open(path, "rb") as file:
            data = os.pread(file.fileno(), length, int(self.start[index]))
        if len(data) != length:
            raise ValueError(f"must have {length} bytes, got {len(data)}: cut off")
        return io.BytesIO(data)

    def order(self) -> Int[np.ndarray, "n"]:
        return np.lexsort((self.start, self.shard))


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
    read: Callable[[str, int], Sequence[bytes]]
    _seen: Any = dataclasses.field(default_factory=threading.local, init=False)

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
            if len(kept) > _CACHED_GROUPS:
                kept.popitem(last=False)
        kept.move_to_end((path, group))
        if isinstance(found := kept[path, group], Exception):
            raise found.with_traceback(None)
        return found

    def key(self, index: int) -> str:
        return (
            f"{super().key(index)} (group {self.group[index]}, row {self.row[index]})"
        )

    def order(self) -> Int[np.ndarray, "n"]:
        return np.lexsort((self.row, self.group, self.shard))

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k != "_seen"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _seen=threading.local())


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

    def order(self) -> Int[np.ndarray, "n"]:
        return np.argsort(self.record)


@dataclasses.dataclass(frozen=True, eq=False)
class ArraySource(base.Source):
    """Images that are in memory."""

    images: UInt8[np.ndarray, "n h w 3"]

    def __post_init__(self):
        shape = self.images.shape
        if self.images.dtype != np.uint8 or len(shape) != 4 or shape[3] != 3:
            raise ValueError(
                f"{self.name}: images must be uint8 (n, h, w, 3), got"
                f" {self.images.dtype} {shape}"
            )
        super().__post_init__()

    @property
    def shape(self) -> tuple[int, int]:
        return self.images.shape[1:3]

    def __len__(self) -> int:
        return len(self.images)

    def image(self, index: int) -> UInt8[np.ndarray, "h w 3"]:
        return self.images[index]


@dataclasses.dataclass(frozen=True, eq=False)
class EncodedSource(base.Source):
    """Images that are decoded when asked for."""

    store: Store
    transform: decoding.Preprocess
    preprocessing: str = dataclasses.field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "preprocessing", self.transform.description)
        super().__post_init__()

    @property
    def shape(self) -> tuple[int, int]:
        return self.transform.size, self.transform.size

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the images, relative, with slashes."""
        return self.store.names

    def __len__(self) -> int:
        return len(self.store.names)

    def image(
        self, index: int, transform: decoding.Preprocess | None = None
    ) -> UInt8[np.ndarray, "h w 3"]:
        """Decodes one image, by the source's own preprocessing or another."""
        return decoding.decode(*self._file(index), transform or self.transform)

    def cropped(
        self, index: int, size: int, draw: Callable[[int, int], decoding.Window]
    ) -> UInt8[np.ndarray, "size size 3"]:
        """Decodes a window of one original image; see decoding.cropped."""
        return decoding.cropped(*self._file(index), size, draw)

    def canvas(
        self, index: int, size: int
    ) -> tuple[UInt8[np.ndarray, "size size 3"], float]:
        """Squeezes one whole original image; see decoding.canvas."""
        return decoding.canvas(*self._file(index), size)

    def _file(self, index: int) -> tuple[decoding.Opened, str]:
        """What opens an image, and what a person calls it."""
        return functools.partial(self.store.open, index), self.store.where(index)


def take(
    source: base.Source, index: Int[np.ndarray, "m"], *, digest: str, note: str = ""
) -> base.Source:
    """Selects images, in the order of `index`.

    The fingerprint is that of the old one with `digest`, words or a digest of what was
    selected; `note` is added.
    """
    # There are no others.
    source = cast(ArraySource | EncodedSource, source)
    held = (
        {"images": source.images[index]}
        if isinstance(source, ArraySource)
        else {"store": source.store.take(index)}
    )
    total = hashlib.sha256(f"{source.fingerprint} {digest}".encode())
    return dataclasses.replace(
        source,
        columns={name: column[index] for name, column in source.columns.items()},
        arrays={name: array[index] for name, array in source.arrays.items()},
        note="; ".join(filter(None, (source.note, note))),
        fingerprint=total.hexdigest(),
        **held,
    )


def in_memory(source: base.Source) -> bool:
    """Whether images are there without reading or decoding anything."""
    return isinstance(source, ArraySource)
