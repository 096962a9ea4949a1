"""Images in shards: ArrayRecord, Parquet and tar, listed without decoding an image.

ArrayRecord shards hold tf.train.Example records, written by `prepare records` or by TFDS
(TFDS's protocol buffers read them, without TensorFlow). <split>-index.npz, which `prepare
records` writes next to its shards, has the label of each record; without this file all records
are read once, and the result is cached. Parquet files are Hugging Face's (a struct of bytes and
path, and a label) or TFDS's (one column of tf.train.Example). Tar shards hold WebDataset's
samples (<key>.jpg and <key>.cls), or class folders.
"""

import dataclasses
import functools
import json
import os
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jbias import errors
from jbias.data import base, cache
from jbias.data.base import Names
from jbias.data.forms import listing, stores, tar_samples
from jbias.untrusted import limits, opening

IMAGE_KEY, LABEL_KEY, NAME_KEY = "image", "label", "file_name"
_ENDINGS = tuple(suffix.removeprefix(".") for suffix in opening.SUFFIXES)
_IMAGE_KEYS = (IMAGE_KEY, "image/encoded", *_ENDINGS)
_LABEL_KEYS = (LABEL_KEY, "image/class/label", "fine_label", "cls")
_NAME_KEYS = (NAME_KEY, "image/filename", "filename", "id", "__key__")

# The columns of a listing, as cached: "names", "labels", "length", and the positions of the
# images in their shards.
ListingArrays = dict[str, np.ndarray]


def _make_listing(
    store: stores.Store, arrays: ListingArrays, classes: Iterable[str] | None
) -> listing.Listing:
    """Return the listing of the images of a store.

    arrays: "length" and "labels" of each image are used. classes: names of the classes; if
    None or empty, the listing's classes are None.
    """
    return listing.Listing(
        store=store,
        names=store.names,
        lengths=arrays["length"],
        labels=arrays["labels"],
        classes=tuple(classes or ()) or None,
    )


@functools.cache
def example_class() -> Any:
    """Return the protocol buffer class of tf.train.Example, from TFDS.

    While TFDS is imported, Python's `__import__` is replaced, and imports in other threads,
    such as in Pillow's decoders, fail. Call this function before threads start.
    """
    from tensorflow_datasets.proto import tf_example_pb2

    return tf_example_pb2.Example


def parse_example(record: bytes) -> Mapping[str, Any]:
    """Return {name: tf.train.Feature} of a serialised tf.train.Example.

    ValueError if the bytes are not a tf.train.Example.
    """
    from google.protobuf import message

    with base.explain_errors("must be a tf.train.Example, got ", message.DecodeError):
        return example_class().FromString(record).features.feature


def serialise_example(features: Mapping[str, bytes | int]) -> bytes:
    """Return a serialised tf.train.Example with the given features, each a single value."""
    example = example_class()()
    for name, value in features.items():
        kind = "bytes_list" if isinstance(value, bytes) else "int64_list"
        getattr(example.features.feature[name], kind).value.append(value)
    return example.SerializeToString(deterministic=True)


@dataclasses.dataclass(frozen=True)
class ExampleImage:
    """A callable that maps a serialised tf.train.Example to its encoded image.

    For threads and processes: TensorFlow Datasets is imported when the object is created or
    unpickled, before threads start.
    """

    key: str  # Name of the feature with the image.

    def __post_init__(self):
        example_class()

    def __call__(self, record: bytes) -> bytes:
        return parse_example(record)[self.key].bytes_list.value[0]

    def __reduce__(self):
        return ExampleImage, (self.key,)


def read_records(where: str, shards: Names) -> listing.Listing:
    """Return the listing of all records of ArrayRecord shards, in their order.

    The index next to the shards is used if it exists, else all records are read once and the
    result is cached. Class names are from the index, else from TFDS's file, else None.
    shards: paths. where: start of error messages. ValueError for damaged files.
    """
    arrays = _checked_index(where, shards)
    if arrays is None:
        arrays = cache.for_files("records", shards, _list_records, where, shards)
    if "classes" in arrays:
        classes = arrays["classes"].tolist()
    else:
        classes = class_names(shards)
    store = stores.ArrayRecordStore(
        shards=tuple(shards),
        names=tuple(arrays["names"].tolist()),
        record=np.arange(len(arrays["names"])),
        image=ExampleImage(str(arrays["image"])),
    )
    return _make_listing(store, arrays, classes)


def index_path(shards: Names) -> str:
    """Return the path of the index of ArrayRecord shards: <folder>/<split>-index.npz."""
    folder, name = os.path.split(shards[0])
    name = re.sub(r"-\d+-of-\d+", "", name.partition(".array_record")[0])
    return os.path.join(folder, f"{name}-index.npz")


def _checked_index(where: str, shards: Names) -> ListingArrays | None:
    """Return the arrays of the index of shards, see `index_path`; None if there is no file.

    shards: paths. ValueError if the file has a different form, or another number of records
    than the shards. where: start of error messages.
    """
    path = index_path(shards)
    if not os.path.isfile(path):
        return None
    must = f"{path}: must be the index of these shards, "
    with base.explain_errors(
        f"{must}got ", ValueError, KeyError, TypeError, remedy="; remove it"
    ):
        arrays = opening.read_npz(path)
        n, image = len(arrays["names"]), arrays["image"]
        columns = [arrays[key] for key in ("names", "labels", "length")]
        dtype_kinds = "".join(column.dtype.kind for column in columns)
        if dtype_kinds != "Uii" or any(column.shape != (n,) for column in columns):
            raise ValueError("other columns")
        if image.shape or image.dtype.kind != "U":
            raise ValueError("no name of the images")
    num_records = len(_open_records(where, shards))
    if n != num_records:
        raise ValueError(f"{must}has {n} records of {num_records}; remove it")
    return arrays


def class_names(shards: Names) -> list[str] | None:
    """Return the class names in TFDS's file next to the shards; None if there is no file."""
    folder = os.path.dirname(shards[0])
    for label in _LABEL_KEYS:
        path = os.path.join(folder, f"{label}.labels.txt")
        if os.path.isfile(path):
            return listing.text_lines(path, f"{path}: must be a text file: ")
    return None


def _list_records(where: str, shards: Names) -> ListingArrays:
    """Return the listing's arrays of all records of ArrayRecord shards, see `_describe_examples`.

    shards: paths. where: start of error messages.
    """

    def records() -> Iterator[_Record]:
        for path in shards:
            source = _open_records(where, [path])
            for i in range(len(source)):
                yield _Record(path, i, source[i])

    return _describe_examples(where, records())


class _Record(NamedTuple):
    """A record of a shard."""

    path: str  # Path of the shard.
    number: int  # Index in the shard.
    content: bytes  # A serialised tf.train.Example.


def _describe_examples(where: str, records: Iterable[_Record]) -> ListingArrays:
    """Return {"names", "labels", "length": array of examples, "image": key of the images}.

    "length" is in bytes; "image" is a text array without axes, "" without examples. An example
    without a name is named by its index, "00000042". ValueError for an example without an
    image, without a label or with a label out of range, and if the keys of the images differ
    between examples. where: start of error messages.
    """
    names, labels, lengths, key = [], [], [], None
    for i, (path, number, record) in enumerate(records):
        must = f"{where}: records must be tf.train.Example with an image and a label"
        got = f"got another at {number} of {path!r}"
        with base.explain_errors(f"{must}, {got}: ", ValueError):
            features = parse_example(record)
            own_key, image = _only_image(features)
            key = key or own_key
            if own_key != key:
                raise ValueError(
                    f"its image is {own_key!r}, that of the first is {key!r}"
                )
            lengths.append(len(image))
            labels.append(_only_label(features))
        name = _first_name(features) or b"%08d" % i
        names.append(name.decode() if isinstance(name, bytes) else str(name))
    names = listing.check_names(where, names)
    labels = limits.check_labels(where, labels)
    return {
        "names": names,
        "labels": labels,
        "length": np.array(lengths, np.int64),
        "image": np.array(key or ""),
    }


def _only_image(features: Mapping[str, Any]) -> tuple[str, bytes]:
    """Return the key and the bytes of a record's image.

    The key is the first of _IMAGE_KEYS that the record has; ValueError unless that feature has
    exactly one value, of bytes.
    """
    key = next((name for name in _IMAGE_KEYS if name in features), IMAGE_KEY)
    values = _values(features, key)
    if len(values) != 1 or not isinstance(values[0], bytes):
        got = f"{len(values)} values" if values else "none"
        raise ValueError(f"{key!r} must hold the bytes of one image, got {got}")
    return key, values[0]


def _only_label(features: Mapping[str, Any]) -> int:
    """Return the label of a record, from all features in _LABEL_KEYS.

    ValueError if the features disagree, are not integers, or do not exist.
    """
    labels = []
    for key in _LABEL_KEYS:
        for value in _values(features, key):
            label = int(value)  # ValueError for a word.
            if label != float(value):
                raise ValueError(f"{key!r} must be a whole number, got {value}")
            labels.append((key, label))
    if not labels:
        raise ValueError(f"it has no {LABEL_KEY!r}")
    return listing.agreed_label("label", "the record", labels)


def _first_name(features: Mapping[str, Any]) -> Any:
    """Return the first value of a record's first feature in _NAME_KEYS, or None."""
    for key in _NAME_KEYS:
        values = _values(features, key)
        if values:
            return values[0]
    return None


def _values(features: Mapping[str, Any], key: str) -> Sequence[Any]:
    """Return the values of the feature `key`; empty if there is no such feature."""
    kind = features[key].WhichOneof("kind") if key in features else None
    return getattr(features[key], kind).value if kind else ()


def _open_records(where: str, shards: Names) -> Sequence[bytes]:
    """Return an ArrayRecordDataSource: the records of all shards, by index.

    shards: paths. ValueError for files that are not ArrayRecord.
    where: start of error messages.
    """
    from array_record.python import array_record_data_source

    must = f"{where}: {shards[0]!r} must be an ArrayRecord file: "
    with base.explain_errors(must, RuntimeError, ValueError, OSError):
        return array_record_data_source.ArrayRecordDataSource([*shards])


_PARQUET_IMAGES = (IMAGE_KEY, "img", *_ENDINGS)
_ANY_CLASS = "class"  # A name that is often used for other data than labels.
_PARQUET_LABELS = ("label", "labels", "fine_label", "cls", _ANY_CLASS)
_EXAMPLES = "data"
_ROWS_PER_BATCH = 32
_LISTING_BYTES_PER_ROW = 256


def read_parquet(where: str, shards: Names) -> listing.Listing:
    """Return the listing of all rows of Parquet shards, in their order.

    Labels and names are read once and cached. Class names are from the schema (Hugging Face) or
    from TFDS's file, else None. shards: paths. where: start of error messages.
    ValueError for damaged files or unexpected columns.
    """
    if _open_parquet(where, shards[0]).schema_arrow.names == [_EXAMPLES]:
        arrays = cache.for_files("examples", shards, _list_examples, where, shards)
        image = ExampleImage(str(arrays["image"]))
        read, classes = functools.partial(_example_images, image), class_names(shards)
    else:
        columns = _parquet_columns(where, shards[0])
        arrays = cache.for_files("parquet", shards, _list_parquet, where, shards)
        read = functools.partial(_read_group, columns.image)
        classes = columns.classes
    store = stores.ParquetStore(
        shards=tuple(shards),
        names=tuple(arrays["names"].tolist()),
        shard=arrays["shard"],
        group=arrays["group"],
        row=arrays["row"],
        read=read,
    )
    return _make_listing(store, arrays, classes)


def read_texts(
    where: str, shards: Names, columns: Names
) -> tuple[listing.Listing, dict[str, list[str]]]:
    """Return the listing of all rows of Parquet shards, with label 0, and their columns of text.

    For shards whose classes are words. The images are in the column "image"; names are
    "train-0/12": the shard's name up to its first dot, and the row's index. shards: paths.
    where: start of error messages. ValueError for damaged files, a missing column, and a row
    without text.
    """
    texts: dict[str, list[str]] = {name: [] for name in columns}
    names, groups = [], []
    for i, path in enumerate(shards):
        file, first = _open_parquet(where, path), len(names)
        _known_columns(where, path, "an image", (IMAGE_KEY,), file.schema_arrow.names)
        for name in columns:
            _known_columns(where, path, f"a {name}", (name,), file.schema_arrow.names)
        stem = os.path.basename(path).partition(".")[0]
        for group in range(file.num_row_groups):
            begin = len(names)
            for batch in _batches(where, path, group, columns):
                for name in columns:
                    texts[name] += batch.column(name).to_pylist()
                start = len(names) - first
                names += [f"{stem}/{start + k}" for k in range(len(batch))]
            groups.append(_RowGroup(shard=i, group=group, num_rows=len(names) - begin))
    if not names:
        raise ValueError(f"{where}: shards must hold rows, got none in {shards[0]!r}")
    for column, words in texts.items():
        wrong = [row for row, word in zip(names, words) if not isinstance(word, str)]
        must = f"{where}: every row must have text in {column!r}"
        errors.refuse_some(
            wrong, must, which="have none", remedy="take the published files"
        )
    positions = _positions(groups)
    sizes = np.array([os.path.getsize(path) for path in shards])
    store = stores.ParquetStore(
        shards=tuple(shards),
        names=tuple(names),
        read=functools.partial(_read_group, IMAGE_KEY),
        **positions,
    )
    arrays = {
        "length": sizes[positions["shard"]],
        "labels": np.zeros(len(names), np.int32),
    }
    return _make_listing(store, arrays, None), texts


def _list_examples(where: str, shards: Names) -> ListingArrays:
    """Return the listing's arrays of TFDS's Parquet shards, with rows of tf.train.Example.

    The result has the arrays of `_describe_examples` and of `_positions`. ValueError without rows.
    shards: paths. where: start of error messages.
    """
    groups = []

    def records() -> Iterator[_Record]:
        """Yield a record for each row of all shards, numbered by its row in the shard.

        When a row group is read, its position and length are appended to `groups`, a list of
        the enclosing function.
        """
        for i, path in enumerate(shards):
            first = 0
            for group in range(_open_parquet(where, path).num_row_groups):
                rows = _read_group(_EXAMPLES, path, group)
                groups.append(_RowGroup(shard=i, group=group, num_rows=len(rows)))
                for number, content in enumerate(rows, first):
                    yield _Record(path, number, content)
                first += len(rows)

    arrays = _describe_examples(where, records())
    if not sum(group.num_rows for group in groups):
        raise ValueError(f"{where}: shards must hold rows, got none in {shards[0]!r}")
    return arrays | _positions(groups)


def _example_images(image: ExampleImage, path: str, group: int) -> list[bytes]:
    """Return the encoded images of one row group of TFDS's Parquet file `path`.

    group: index of the row group. image: example -> encoded image.
    """
    return [*map(image, _read_group(_EXAMPLES, path, group))]


class _Columns(NamedTuple):
    """The column names of a Parquet file, and its class names."""

    image: str  # Column of the images.
    # The first has the labels; the rest must have the same labels.
    labels: tuple[str, ...]
    classes: tuple[str, ...] | None  # None if the schema lacks them.


def _parquet_columns(where: str, path: str) -> _Columns:
    """Return the names of the columns of images and labels in the Parquet file `path`.

    The image column is the first of _PARQUET_IMAGES that holds bytes. The label columns are those
    of _PARQUET_LABELS that hold numbers, or the first label column if none has numbers; if "label"
    holds numbers, "class" is left out. `classes` is from the metadata of the first label column.

    ValueError if a column occurs twice, if there is no label column or no image column with bytes,
    and if several image columns hold bytes but none is named "image". where: start of error
    messages.
    """
    schema = _open_parquet(where, path).schema_arrow
    for name in {*_PARQUET_IMAGES, *_PARQUET_LABELS}:
        if schema.names.count(name) > 1:
            must = f"{where}: {path!r} must have each column once"
            raise ValueError(f"{must}, got {name!r} {schema.names.count(name)} times")
    images = _known_columns(where, path, "an image", _PARQUET_IMAGES, schema.names)
    labels = _known_columns(where, path, "a label", _PARQUET_LABELS, schema.names)
    with_bytes = [name for name in images if _holds_bytes(schema.field(name).type)]
    if not with_bytes:
        must = f"{where}: {path!r} must hold the bytes of its images"
        got = f"got {images[0]} of type {schema.field(images[0]).type}"
        remedy = "paths are not enough: write the file with the images inside"
        raise ValueError(f"{must}, {got}; {remedy}")
    if len(with_bytes) > 1 and with_bytes[0] != IMAGE_KEY:
        must = f"{where}: {path!r} must have one image column"
        raise ValueError(f"{must}, got {' and '.join(with_bytes)}; leave one")
    numbers = [name for name in labels if _holds_numbers(schema.field(name).type)]
    labels = tuple(numbers or labels[:1])
    if labels[0] == LABEL_KEY:
        labels = tuple(name for name in labels if name != _ANY_CLASS)
    classes = _parquet_classes(where, path, schema, labels[0])
    return _Columns(with_bytes[0], labels, classes)


def _known_columns(
    where: str, path: str, role: str, known: Names, names: Names
) -> list[str]:
    """Return the names in `known` that are in `names`; ValueError if there are none.

    role: role of the column in the message, such as "an image". names: columns of the file.
    where: start of error messages.
    """
    columns = [name for name in known if name in names]
    if not columns:
        must = f"{where}: {path!r} must have {role} column ({', '.join(known)})"
        raise ValueError(f"{must}, got {', '.join(names) or 'none'}; rename it")
    return columns


def _holds_bytes(kind: Any) -> bool:
    """Return True if a column's Arrow type is bytes, null, or Hugging Face's struct with bytes.

    For a dictionary-encoded column, the type of the dictionary's values is tested.
    """
    import pyarrow as pa

    kinds = pa.binary(), pa.large_binary(), pa.binary_view(), pa.null()
    if pa.types.is_struct(kind):
        names = [kind.field(i).name for i in range(kind.num_fields)]
        return "bytes" in names and _holds_bytes(kind.field("bytes").type)
    if pa.types.is_dictionary(kind):
        return _holds_bytes(kind.value_type)
    return kind in kinds or pa.types.is_fixed_size_binary(kind)


def _holds_numbers(kind: Any) -> bool:
    """Return True if a column's Arrow type, or its dictionary's, is a number or boolean."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    tests = pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean
    return any(test(kind) for test in tests)


def _parquet_classes(
    where: str, path: str, schema: Any, label: str
) -> tuple[str, ...] | None:
    """Return the class names of column `label` in a schema's metadata; None if absent.

    schema: the Arrow schema of the file `path`. where: start of error messages. ValueError if
    the metadata have a different form.
    """
    must = f"{where}: {path!r} must have its class names as Hugging Face has them,"
    place = f"info.features.{label}.names in the schema's metadata, got "
    with base.explain_errors(
        f"{must} {place}",
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
        remedy="; write it again",
    ):
        info = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        feature = info.get("info", {}).get("features", {}).get(label, {})
        names = tuple(feature.get("names") or ())
        if not all(isinstance(name, str) for name in names):
            raise TypeError("names that are no text")
    return names or None


def _shared_columns(where: str, shards: Names) -> _Columns:
    """Return the column names of Parquet shards; ValueError if they differ between shards.

    shards: paths. where: start of error messages.
    """
    first = _parquet_columns(where, shards[0])
    for path in shards[1:]:
        columns = _parquet_columns(where, path)
        for field, expected, other in zip(_Columns._fields, first, columns):
            if expected != other:
                must = f"{where}: all shards must have the same {field}"
                got = f"got {expected} in {shards[0]!r} and {other} in {path!r}"
                raise ValueError(f"{must}, {got}; write them again")
    return first


class _RowGroup(NamedTuple):
    """A row group of a Parquet shard, and its number of rows."""

    shard: int  # Index of the shard.
    group: int  # Index of the row group in the shard.
    num_rows: int


def _positions(groups: Sequence[_RowGroup]) -> ListingArrays:
    """Return {"shard", "group", "row": array}, the position of each row of the groups.

    "row" is the index in the row group.
    """
    shard, group, num_rows = np.array(groups, np.int32).T
    rows = np.concatenate([np.arange(count, dtype=np.int32) for count in num_rows])
    return {
        "shard": np.repeat(shard, num_rows),
        "group": np.repeat(group, num_rows),
        "row": rows,
    }


def _list_parquet(where: str, shards: Names) -> ListingArrays:
    """Return the listing's arrays of Hugging Face's Parquet shards.

    The arrays are "names", "labels", "length" (for each image the size of its shard in bytes,
    since images are not read) and the arrays of `_positions`. A row without a path is named
    "train-0/12": the shard's name up to its first dot, and the row's index. ValueError if the
    shards differ in form or have no rows. shards: paths. where: start of error messages.
    """
    names, labels, groups = [], [], []
    columns = _shared_columns(where, shards)
    for i, path in enumerate(shards):
        _refuse_missing_bytes(where, path, columns.image)
        file, shard_names = _open_parquet(where, path), []
        has_paths = _has_paths(file.schema_arrow.field(columns.image).type)
        wanted = [*columns.labels]
        if has_paths:
            wanted.append(f"{columns.image}.path")
        label_chunks = {name: [] for name in columns.labels}
        for group in range(file.num_row_groups):
            first = len(shard_names)
            for batch in _batches(where, path, group, wanted):
                for name in columns.labels:
                    label_chunks[name].append(batch.column(name))
                if has_paths:
                    rows = batch.column(columns.image).to_pylist()
                    shard_names += [row and row.get("path") for row in rows]
                else:
                    shard_names += [None] * len(batch)
            num_rows = len(shard_names) - first
            groups.append(_RowGroup(shard=i, group=group, num_rows=num_rows))
        if shard_names:
            labels.append(_parquet_labels(where, path, label_chunks))
        stem = os.path.basename(path).partition(".")[0]
        names += [name or f"{stem}/{k}" for k, name in enumerate(shard_names)]
    if not names:
        raise ValueError(f"{where}: shards must hold rows, got none in {shards[0]!r}")
    positions = _positions(groups)
    # Sizes of shards stand for lengths of images, which would have to be read.
    sizes = np.array([os.path.getsize(path) for path in shards])
    return positions | {
        "names": listing.check_names(where, names),
        "labels": np.concatenate(labels),
        "length": sizes[positions["shard"]],
    }


def _has_paths(kind: Any) -> bool:
    """Return True if a column's Arrow type is a struct with a path."""
    import pyarrow as pa

    return pa.types.is_struct(kind) and kind.get_field_index("path") >= 0


def _refuse_missing_bytes(where: str, path: str, image: str) -> None:
    """Raise ValueError if the statistics of a Parquet file count images without bytes.

    image: name of the column. Without statistics, reading such an image raises the error.
    where: start of error messages.
    """
    metadata, missing = _open_parquet(where, path).metadata, 0
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        for chunk in map(group.column, range(group.num_columns)):
            known = chunk.statistics is not None and chunk.statistics.has_null_count
            if known and chunk.path_in_schema in (image, f"{image}.bytes"):
                missing += chunk.statistics.null_count
    if missing:
        must = f"{where}: {path!r} must hold the bytes of its images"
        got = f"{missing:,} of {metadata.num_rows:,} rows have none"
        remedy = "a path is not enough: write the file with the images inside"
        raise ValueError(f"{must}, {got}; {remedy}")


def _parquet_labels(where: str, path: str, columns: Mapping[str, list]) -> np.ndarray:
    """Return the label of each row of a Parquet file; ValueError if columns differ in a row.

    columns: {name: list of Arrow arrays}; the first column has the labels, further columns
    must have the same labels or no value. ValueError also for a row without a label.
    where: start of error messages.
    """
    (first, labels), *further_columns = [
        (name, _to_integers(where, path, chunks)) for name, chunks in columns.items()
    ]
    missing = np.flatnonzero(labels == _NO_LABEL)
    if len(missing):
        got = (
            f"{len(missing):,} of {len(labels):,} rows lack one, first row {missing[0]}"
        )
        must = f"{where}: every row of {path!r} must have a label in {first!r}"
        raise ValueError(f"{must}, {got}; label or drop them")
    for name, column in further_columns:
        differ = np.flatnonzero((column != labels) & (column != _NO_LABEL))
        if len(differ):
            row = int(differ[0])
            sources = [(first, int(labels[row])), (name, int(column[row]))]
            listing.agreed_label(where, f"row {row} of {path!r}", sources)
    return limits.check_labels(f"{where}: {path!r}", labels)


_NO_LABEL = np.iinfo(np.int64).min


def _to_integers(where: str, path: str, chunks: list) -> np.ndarray:
    """Return a Parquet column as int64, _NO_LABEL where a row has no value.

    chunks: Arrow arrays of the column; NaN is no value, and booleans are 0 and 1. Integers
    above the range of int64 become its largest number. ValueError for words, lists, and floats
    that are not integers or are above 2^53. where: start of error messages.
    """
    import pyarrow as pa

    column, kind = pa.chunked_array(chunks), chunks[0].type
    if pa.types.is_dictionary(kind):
        column = pa.chunked_array([chunk.dictionary_decode() for chunk in chunks])
        kind = kind.value_type
    must = f"{where}: labels must be whole numbers"
    if pa.types.is_null(kind):
        return np.full(len(column), _NO_LABEL)
    if not _holds_numbers(kind):
        raise ValueError(f"{must}, got {kind} in {path!r}; number the classes from 0")
    is_missing = column.is_null(nan_is_null=True).to_numpy()
    numbers = column.fill_null(False if pa.types.is_boolean(kind) else 0).to_numpy()
    numbers = np.where(is_missing, 0, numbers)
    if numbers.dtype.kind == "f":
        is_fraction = (numbers != np.floor(numbers)) | (abs(numbers) > 2**53)
        fractions = np.flatnonzero(is_fraction)
        if len(fractions):
            got = f"got {numbers[fractions[0]]:g} in row {fractions[0]} of {path!r}"
            raise ValueError(f"{must}, {got}; number the classes from 0")
    if numbers.dtype == np.uint64:
        # Too large numbers, which are refused later, must not wrap around here.
        numbers = np.minimum(numbers, np.uint64(np.iinfo(np.int64).max))
    return np.where(is_missing, _NO_LABEL, numbers.astype(np.int64))


def _open_parquet(where: str, path: str) -> Any:
    """Return an open pyarrow.parquet.ParquetFile.

    ValueError for a file that is not Parquet or would be too large unpacked.
    where: start of error messages.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    must = f"{where}: {path!r} must be a Parquet file: "
    with base.explain_errors(must, OSError, ValueError, pa.ArrowException):
        file, size = pq.ParquetFile(path), os.path.getsize(path)
        limits.check_growth(size, _LISTING_BYTES_PER_ROW * file.metadata.num_rows)
        for i in range(file.num_row_groups):
            limits.check_growth(size, file.metadata.row_group(i).total_byte_size)
        return file


def _read_group(image: str, path: str, group: int) -> list[bytes | None]:
    """Return the encoded image of each row of a row group; None for a row without an image.

    image: name of the column. path: path of the file. group: index of the row group.
    """
    import pyarrow as pa

    images = []
    for rows in _batches("data", path, group, [image]):
        column = rows.column(0)
        is_struct = pa.types.is_struct(column.type)
        images += (column.field("bytes") if is_struct else column).to_pylist()
    return images


def _batches(where: str, path: str, group: int, columns: Names) -> Iterator:
    """Yield Arrow record batches of a row group; ValueError if they unpack to too many bytes.

    The limit is checked here because a hostile file's metadata may be wrong, and a page may
    repeat its content many times. where: start of error messages.
    """
    file, size, unpacked = _open_parquet(where, path), os.path.getsize(path), 0
    for rows in file.iter_batches(_ROWS_PER_BATCH, row_groups=[group], columns=columns):
        unpacked += rows.nbytes
        limits.check_growth(size, unpacked)
        yield rows


def read_tar(where: str, shards: Names) -> listing.Listing:
    """Return the listing of all images in tar archives.

    Folders that all images share are left out of the names. Classes are the first folders of
    the names, or None if labels are in files. The listing is cached, since large archives have
    many headers. shards: paths. where: start of error messages. ValueError for damaged
    archives.
    """
    arrays = cache.for_files("tar", shards, _list_tar, where, shards)
    store = stores.TarStore(
        shards=tuple(shards),
        names=tuple(arrays["names"].tolist()),
        shard=arrays["shard"],
        start=arrays["start"],
        length=arrays["length"],
    )
    return _make_listing(store, arrays, arrays["classes"].tolist())


def _list_tar(where: str, shards: Names) -> ListingArrays:
    """Return the listing's arrays of the images in tar archives.

    The arrays are "names", "labels", "shard", "start", "length" and "classes": the class names,
    empty if labels are in files. ValueError for archives without images or with wrong labels.
    shards: paths of the archives. where: start of error messages.
    """
    members = [
        member
        for number, path in enumerate(shards)
        for member in _members(where, number, path)
    ]
    members = _without_junk_folders(members)
    samples = tar_samples.find_samples(where, shards, members)
    if not samples:
        raise ValueError(f"{where}: shards must hold images, got none in {shards[0]!r}")
    images = [sample.image for sample in samples]
    names = _without_common_folder([image.name for image in images])
    labels, classes = [sample.label for sample in samples], ()
    if None in labels:  # Then no sample has a label.
        labels, classes = _labels_by_folder(where, names)
    _refuse_links_across_classes(where, images, labels)
    return {
        "shard": np.array([image.shard for image in images], np.int32),
        "start": np.array([image.start for image in images], np.int64),
        "length": np.array([image.length for image in images], np.int64),
        "names": listing.check_names(where, names),
        "labels": np.array(labels, np.int32),
        "classes": np.array(classes, str),
    }


def _refuse_links_across_classes(
    where: str, images: Sequence[tar_samples.Member], labels: Sequence[int]
) -> None:
    """Raise ValueError if links give a file of an archive two labels under one file name.

    images, labels: all images of the archives and their labels.
    where: start of error messages.
    """
    first_of: dict[tuple, tuple[tar_samples.Member, int]] = {}
    for image, label in zip(images, labels, strict=True):
        place = image.shard, image.start, os.path.basename(image.name)
        first, first_label = first_of.setdefault(place, (image, label))
        if label != first_label:
            must = f"{where}: an image must be of one class"
            got = f"got {first.name!r} and {image.name!r}, which are one file"
            raise ValueError(f"{must}, {got}; remove one of the two links")


def _members(where: str, shard: int, path: str) -> Iterator[tar_samples.Member]:
    """Yield all files of an archive, without hidden and system files; links are last.

    A link has the bytes of its target, as in the unpacked archive. shard, path: index and
    path of the archive. ValueError for an archive that is cut off, compressed or nested, or
    has paths with "..". where: start of error messages.
    """
    must = f"{where}: {path!r} must be a whole, uncompressed tar archive, got "
    files: dict[str, tar_samples.Member] = {}
    links: dict[str, str] = {}
    # A hostile archive may nest headers without end, or state a size of gigabytes.
    with base.explain_errors(
        must, tarfile.TarError, RecursionError, MemoryError, OverflowError
    ):
        size = os.path.getsize(path)
        with tarfile.open(path, "r:") as archive:
            for entry in archive:
                steps = _path_steps(entry.name)
                is_link = entry.islnk() or entry.issym()
                has_content = entry.isfile() or is_link
                if not has_content or not steps or listing.is_junk(steps[-1]):
                    continue
                if ".." in steps:
                    must = f"{where}: members of {path!r} must have paths without '..'"
                    raise ValueError(f"{must}, got {entry.name!r}; pack it again")
                name = "/".join(steps)
                if is_link:
                    links[name] = _link_target(entry)
                    continue
                if steps[-1].lower().endswith(".tar"):
                    must = f"{where}: shards must hold images, {path!r} holds the"
                    raise ValueError(f"{must} archive {entry.name!r}; unpack it once")
                if entry.issparse() or entry.offset_data + entry.size > size:
                    must = f"{where}: {path!r} must hold its members whole"
                    got = f"got {entry.name!r} of {entry.size} bytes"
                    raise ValueError(f"{must}, {got}; pack it again")
                files[name] = tar_samples.Member(
                    shard, name, start=entry.offset_data, length=entry.size
                )
                yield files[name]
    yield from _linked_members(where, path, files, links)


def _link_target(entry: tarfile.TarInfo) -> str:
    """Return the path in the archive that a link leads to; "" if outside the archive."""
    target = entry.linkname
    if entry.issym():  # Relative to the link's folder; hard links: to the archive.
        if target.startswith("/"):
            return ""
        target = os.path.join(os.path.dirname(entry.name), target)
    steps = _path_steps(os.path.normpath(target))
    return "" if ".." in steps else "/".join(steps)


def _linked_members(
    where: str,
    path: str,
    files: Mapping[str, tar_samples.Member],
    links: Mapping[str, str],
) -> Iterator[tar_samples.Member]:
    """Yield a member for each link to a file of the archive.

    ValueError for a link to a folder of the archive, and for an image's link to anything but a
    file of the archive; other links without a target are skipped. path: path of the archive.
    files: {path in the archive: member}. links: {path: path of the target}.
    where: start of error messages.
    """
    folders = {os.path.dirname(name) for name in files} if links else set()
    for name, target in links.items():
        passed = {name}
        while target in links and target not in passed:
            passed.add(target)
            target = links[target]
        if target in files:
            yield files[target]._replace(name=name)
        elif listing.is_image(name) or any(
            folder == target or folder.startswith(f"{target}/") for folder in folders
        ):
            must = f"{where}: links in {path!r} must lead to files in it"
            got = f"got {name!r}, which leads to {links[name] or 'a place outside'!r}"
            remedy = "pack it again with tar's --dereference"
            raise ValueError(f"{must}, {got}; {remedy}")


def _path_steps(name: str) -> list[str]:
    """Return the folders and the file name of a member's path, as tar unpacks the path.

    For "./a//0.png" and "/a/0.png" the result is ["a", "0.png"].
    """
    return [step for step in name.split("/") if step not in ("", ".")]


def _without_junk_folders(
    members: Sequence[tar_samples.Member],
) -> list[tar_samples.Member]:
    """Return the members outside hidden and system folders.

    Folders that all members share are not checked.
    """
    folders = [os.path.dirname(member.name).split("/") for member in members]
    depth = len(os.path.commonprefix(folders))
    return [
        member
        for member, steps in zip(members, folders)
        if not any(map(listing.is_junk, steps[depth:]))
    ]


def _labels_by_folder(where: str, names: Names) -> tuple[np.ndarray, np.ndarray]:
    """Return the label of each image and the sorted class names, the first folders of names.

    ValueError for a name without a folder. where: start of error messages.
    """
    folders = [name.partition("/")[0] for name in names]
    if not all("/" in name for name in names):
        must = f"{where}: images must have a label (<key>.cls) or lie in class folders"
        remedy = "unpack the archive of a single class into a folder of its name"
        raise ValueError(f"{must}, got {names[0]!r}; {remedy}")
    classes, labels = np.unique(folders, return_inverse=True)
    return labels, classes


def _without_common_folder(names: Names) -> list[str]:
    """Return names without the folders that all names share."""
    common = os.path.commonpath(names) if len(names) > 1 else os.path.dirname(names[0])
    return [os.path.relpath(name, common) if common else name for name in names]


# Ending of shards -> read(where, paths) -> their listing.
FORMS = {"tar": read_tar, "parquet": read_parquet, "array_record": read_records}
