"""Parquet as Hugging Face writes image sets: a struct of bytes and path, and a label.

Or as TFDS does: one column of tf.train.Example.
"""

import functools
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jbias.data import cache, form_records, listing, stores
from jbias.foreign import limits

_IMAGES = ("image", "img", "jpg", "jpeg", "png", "webp")
_EXAMPLES = "data"
_ROWS = 32  # Read at once.
_LISTED = 256  # Bytes that a row takes in a listing.
_LABELS = ("label", "labels", "fine_label", "cls", "class")


def read(
    where: str, shards: Sequence[str]
) -> tuple[stores.Store, listing.Files, tuple[str, ...] | None]:
    """Lists all rows; the images themselves are read when asked for."""
    if _open(where, shards[0]).schema_arrow.names == [_EXAMPLES]:
        return _examples(where, shards)
    image, label, classes = _schema(where, shards[0])
    found = cache.made("parquet", shards, lambda: _rows(where, shards, image, label))
    names = tuple(found["names"].tolist())
    store = stores.Rows(
        tuple(shards),
        names,
        found["shard"],
        found["group"],
        found["row"],
        read=functools.partial(_group, image),
    )
    return store, listing.Files(names, found["length"], found["labels"]), classes


def _examples(where: str, shards: Sequence[str]) -> tuple:
    groups = []

    def records() -> Iterator[bytes]:
        for i, path in enumerate(shards):
            for group in range(_open(where, path).num_row_groups):
                some = _group(_EXAMPLES, path, group)
                groups.append((i, group, len(some)))
                yield from some

    def listed() -> dict[str, np.ndarray]:
        place = os.path.dirname(shards[0])
        return form_records.described(where, place, records()) | _placed(groups)

    found = cache.made("examples", shards, listed)
    names = tuple(found["names"].tolist())
    key = str(found["image"])
    store = stores.Rows(
        tuple(shards),
        names,
        found["shard"],
        found["group"],
        found["row"],
        read=functools.partial(_images, key),
    )
    files = listing.Files(names, found["length"], found["labels"])
    return store, files, form_records.class_names(shards)


def _images(key: str, path: str, group: int) -> list[bytes]:
    return [form_records.image(key, one) for one in _group(_EXAMPLES, path, group)]


def _schema(where: str, path: str) -> tuple[str, str, tuple[str, ...] | None]:
    """Names of the two columns, and of the classes where the schema says them."""
    schema = _open(where, path).schema_arrow
    columns = []
    for what, known in (("an image", _IMAGES), ("a label", _LABELS)):
        found = [name for name in known if name in schema.names]
        if not found:
            raise ValueError(
                f"{where}: {path!r} must have {what} column ({', '.join(known)}), got"
                f" {', '.join(schema.names)}; rename it"
            )
        columns.append(found[0])
    try:
        info = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        feature = info.get("info", {}).get("features", {}).get(columns[1], {})
        names = tuple(feature.get("names") or ())
        if not all(isinstance(one, str) for one in names):
            raise TypeError("names that are no text")
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{where}: {path!r} must tell its classes as Hugging Face does, info.features."
            f"{columns[1]}.names in the schema's metadata, got {error}; write it anew"
        ) from error
    return *columns, names or None


def _placed(groups: Sequence[tuple[int, int, int]]) -> dict[str, np.ndarray]:
    """The shard, group and row of each row of groups: (shard, group, rows)."""
    shard, group, counts = np.array(groups, np.int32).T
    rows = np.concatenate([np.arange(n, dtype=np.int32) for n in counts])
    return dict(
        shard=np.repeat(shard, counts), group=np.repeat(group, counts), row=rows
    )


def _rows(where: str, shards: Sequence[str], image: str, label: str) -> dict:
    names, labels, groups = [], [], []
    for i, path in enumerate(shards):
        file, first = _open(where, path), len(names)
        nested = _is_struct(file.schema_arrow.field(image))
        columns = [label, *([f"{image}.path"] if nested else [])]
        for group in range(file.num_row_groups):
            before = len(names)
            for rows in _batches(where, path, group, columns):
                labels.append(_labels(where, path, rows.column(label)))
                told = rows.column(image).to_pylist() if nested else [None] * len(rows)
                names += [row and row.get("path") for row in told]
            groups.append((i, group, len(names) - before))
        stem = os.path.basename(path).partition(".")[0]
        names[first:] = [p or f"{stem}/{k}" for k, p in enumerate(names[first:])]
    if not names:
        raise ValueError(f"{where}: shards must hold rows, got none in {shards[0]!r}")
    placed = _placed(groups)
    sizes = np.array([os.path.getsize(path) for path in shards])  # The rest costs.
    return placed | dict(
        names=listing.named(where, names),
        labels=np.concatenate(labels),
        length=sizes[placed["shard"]],
    )


def _labels(where: str, path: str, column) -> np.ndarray:
    try:
        numbers = column.to_numpy().astype(np.int64, casting="same_kind")
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{where}: labels must be whole numbers, got {column.type} in {path!r}"
        ) from error
    return limits.labels(f"{where}: {path!r}", numbers)


def _open(where: str, path: str):
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        size = os.path.getsize(path)
        limits.growth(size, _LISTED * file.metadata.num_rows)
        for i in range(file.num_row_groups):
            limits.growth(size, file.metadata.row_group(i).total_byte_size)
        return file
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{where}: {path!r} must be a Parquet file: {reason}"
        ) from error


def _group(image: str, path: str, group: int) -> list[bytes]:
    """The encoded images of a row group."""
    found = []
    for rows in _batches("data", path, group, [image]):
        column = rows.column(0)
        found += (column.field("bytes") if _is_struct(column) else column).to_pylist()
    return found


def _batches(where: str, path: str, group: int, columns: Sequence[str]) -> Iterator:
    """Some rows of a group at a time; ValueError once they are more than they may be.

    Its metadata may lie, and a page may give again and again what it holds once.
    """
    file, size, unpacked = _open(where, path), os.path.getsize(path), 0
    for rows in file.iter_batches(_ROWS, row_groups=[group], columns=columns):
        unpacked += rows.nbytes
        limits.growth(size, unpacked)
        yield rows


def _is_struct(column: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_struct(column.type)
