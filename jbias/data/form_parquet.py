"""Parquet as Hugging Face writes image sets: a struct of bytes and path, and a label.

Or as TFDS does: one column of tf.train.Example.
"""

import functools
import json
import os
from collections.abc import Iterator, Sequence

import numpy as np

from jbias.data import cache, form_records, listing, stores

_IMAGES = ("image", "img", "jpg", "jpeg", "png", "webp")
_EXAMPLES = "data"
_GROUP_BYTES = 2**32  # Of a row group, which is read at once.
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
        found = form_records.described(where, place, records())
        shard, group, counts = (
            np.array(x, np.int32) for x in zip(*groups, strict=True)
        )
        return found | dict(
            shard=np.repeat(shard, counts),
            group=np.repeat(group, counts),
            row=np.concatenate([np.arange(n) for n in counts]),
        )

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
    info = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    feature = info.get("info", {}).get("features", {}).get(columns[1], {})
    return *columns, tuple(feature.get("names", ())) or None


def _rows(where: str, shards: Sequence[str], image: str, label: str) -> dict:
    import pyarrow as pa

    parts = []
    for i, path in enumerate(shards):
        file, size = _open(where, path), os.path.getsize(path)
        nested = pa.types.is_struct(file.schema_arrow.field(image).type)
        for group in range(file.num_row_groups):
            columns = [label, *([f"{image}.path"] if nested else [])]
            table = file.read_row_group(group, columns=columns)
            n = table.num_rows
            paths = [None] * n
            if nested:
                paths = [row and row.get("path") for row in table[image].to_pylist()]
            stem = os.path.basename(path).partition(".")[0]
            first = sum(len(part["row"]) for part in parts if part["shard"][0] == i)
            parts.append(
                dict(
                    names=[p or f"{stem}/{first + k}" for k, p in enumerate(paths)],
                    labels=_labels(where, path, table[label]),
                    shard=np.full(n, i, np.int32),
                    group=np.full(n, group, np.int32),
                    row=np.arange(n, dtype=np.int32),
                    length=np.full(n, size, np.int64),  # Of the shard: the rest costs.
                )
            )
    if not parts:
        raise ValueError(f"{where}: shards must hold rows, got none in {shards[0]!r}")
    joined = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    return joined | {"names": joined["names"].astype(str)}


def _labels(where: str, path: str, column) -> np.ndarray:
    try:
        return column.to_numpy().astype(np.int32, casting="same_kind")
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{where}: labels must be whole numbers, got {column.type} in {path!r}"
        ) from error


def _open(where: str, path: str):
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        groups = (file.metadata.row_group(i) for i in range(file.num_row_groups))
        if any(group.total_byte_size > _GROUP_BYTES for group in groups):
            raise OSError(f"a row group has more than {_GROUP_BYTES} bytes")
        return file
    except (OSError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{where}: {path!r} must be a Parquet file: {reason}"
        ) from error


def _group(image: str, path: str, group: int) -> list[bytes]:
    """The encoded images of a row group."""
    import pyarrow as pa

    column = _open("data", path).read_row_group(group, columns=[image])[image]
    if pa.types.is_struct(column.type):
        column = column.combine_chunks().field("bytes")
    return column.to_pylist()
