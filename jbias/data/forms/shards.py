"""Images in shards: ArrayRecord, Parquet and tar, each listed without decoding an image.

ArrayRecord shards hold tf.train.Example, ours and those that TFDS writes (its own protocol
buffers read them, without TensorFlow). Which record has which label stands in
<split>-index.npz, which `prepare records` writes beside its shards; without one all records
are read once, and the result is cached. Parquet is that of Hugging Face (a struct of bytes and
path, and a label) or of TFDS (one column of tf.train.Example). Tar shards hold WebDataset's
samples (<key>.jpg beside <key>.cls), or class folders.
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

from jbias.data import base, cache
from jbias.data.base import Names
from jbias.data.forms import listing, stores, tar_samples
from jbias.untrusted import limits, opening

IMAGE_KEY, LABEL_KEY, NAME_KEY = "image", "label", "file_name"
_ENDINGS = tuple(suffix.removeprefix(".") for suffix in opening.SUFFIXES)
_IMAGE_KEYS = (IMAGE_KEY, "image/encoded", *_ENDINGS)
_LABEL_KEYS = (LABEL_KEY, "image/class/label", "fine_label", "cls")
_NAME_KEYS = (NAME_KEY, "image/filename", "filename", "id", "__key__")

Found = dict[str, np.ndarray]  # What a listing is made of, as it is cached.


def _listing(kind, shards, found: Found, places, classes, **options) -> listing.Listing:
    """Lists what was found of images whose places are columns of these names."""
    names = tuple(found["names"].tolist())
    store = kind(tuple(shards), names, *(found[key] for key in places), **options)
    columns = found["length"], found["labels"]
    return listing.Listing(store, names, *columns, tuple(classes or ()) or None)


@functools.cache
def example_class() -> Any:
    """The protocol buffer of tf.train.Example, of TFDS.

    TFDS replaces Python's `__import__` while it is imported, and what another thread
    imports meanwhile fails, such as a decoder of Pillow: call this before threads start.
    """
    from tensorflow_datasets.proto import tf_example_pb2

    return tf_example_pb2.Example


def parse_example(record: bytes) -> Mapping[str, Any]:
    """Reads {name: feature}; ValueError where the record is no Example."""
    from google.protobuf import message

    with base.explain_errors("must be a tf.train.Example, got ", message.DecodeError):
        return example_class().FromString(record).features.feature


def serialise_example(features: Mapping[str, bytes | int]) -> bytes:
    """Writes one value a name, bytes or a whole number."""
    made = example_class()()
    for name, value in features.items():
        kind = "bytes_list" if isinstance(value, bytes) else "int64_list"
        getattr(made.features.feature[name], kind).value.append(value)
    return made.SerializeToString(deterministic=True)


@dataclasses.dataclass(frozen=True)
class ExampleImage:
    """Takes the encoded image out of an example, in any thread of any process.

    Whoever makes or unpickles it imports what it needs.
    """

    key: str

    def __post_init__(self):
        example_class()

    def __call__(self, record: bytes) -> bytes:
        return parse_example(record)[self.key].bytes_list.value[0]

    def __reduce__(self):
        return ExampleImage, (self.key,)


def read_records(where: str, shards: Names) -> listing.Listing:
    """Lists all records."""
    found = _checked_index(where, shards)
    found = found or cache.for_files("records", shards, _list_records, where, shards)
    image = ExampleImage(str(found["image"]))
    classes = found["classes"].tolist() if "classes" in found else class_names(shards)
    found["record"] = np.arange(len(found["names"]))
    kind, place = stores.ArrayRecordStore, ("record",)
    return _listing(kind, shards, found, place, classes, image=image)


def index_path(shards: Names) -> str:
    """Where the index of these shards lies."""
    folder, name = os.path.split(shards[0])
    name = re.sub(r"-\d+-of-\d+", "", name.partition(".array_record")[0])
    return os.path.join(folder, f"{name}-index.npz")


def _checked_index(where: str, shards: Names) -> Found | None:
    """What stands beside the shards, if there is such an index of them."""
    path = index_path(shards)
    if not os.path.isfile(path):
        return None
    must = f"{path}: must be the index of these shards, "
    kinds = ValueError, KeyError, TypeError
    with base.explain_errors(f"{must}got ", *kinds, remedy="; remove it"):
        found = opening.read_npz(path)
        n, image = len(found["names"]), found["image"]
        columns = [found[key] for key in ("names", "labels", "length")]
        letters = "".join(column.dtype.kind for column in columns)
        if letters != "Uii" or any(column.shape != (n,) for column in columns):
            raise ValueError("other columns")
        if image.shape or image.dtype.kind != "U":
            raise ValueError("no name of the images")
    if n != (there := len(_open_records(where, shards))):
        raise ValueError(f"{must}has {n} records of {there}; remove it")
    return found


def class_names(shards: Names) -> list[str] | None:
    """The names of labels that TFDS writes beside its shards."""
    folder = os.path.dirname(shards[0])
    paths = (os.path.join(folder, f"{label}.labels.txt") for label in _LABEL_KEYS)
    if path := next(filter(os.path.isfile, paths), None):
        return listing.text_lines(path, f"{path}: must be a text file: ")
    return None


def _list_records(where: str, shards: Names) -> Found:
    """Return what the records of ArrayRecord shards say of themselves."""

    def records() -> Iterator[_Record]:
        for path in shards:
            source = _open_records(where, [path])
            for i in range(len(source)):
                yield _Record(path, i, source[i])

    return _describe_examples(where, records())


class _Record(NamedTuple):
    """A serialised example, and its place in a file."""

    path: str
    number: int
    content: bytes


def _describe_examples(where: str, records: Iterable[_Record]) -> Found:
    """Names, labels and lengths of examples, and under which key the images are."""
    names, labels, lengths, key = [], [], [], ""
    for i, (path, number, record) in enumerate(records):
        must = f"{where}: records must be tf.train.Example with an image and a label"
        got = f"got another at {number} of {path!r}"
        with base.explain_errors(f"{must}, {got}: ", ValueError):
            features = parse_example(record)
            key, image = _only_image(features)
            lengths.append(len(image))
            labels.append(_only_label(features))
        name = _first_name(features) or b"%08d" % i
        names.append(name.decode() if isinstance(name, bytes) else str(name))
    names = listing.check_names(where, names)
    labels = limits.check_labels(where, labels)
    length, image = np.array(lengths, np.int64), np.array(key)
    return dict(names=names, labels=labels, length=length, image=image)


def _only_image(features: Mapping[str, Any]) -> tuple[str, bytes]:
    """Return the key and the bytes of a record's image; ValueError if it is not one."""
    key = next((name for name in _IMAGE_KEYS if name in features), IMAGE_KEY)
    values = _values(features, key)
    if len(values) != 1 or not isinstance(values[0], bytes):
        got = f"{len(values)} values" if values else "none"
        raise ValueError(f"{key!r} must hold the bytes of one image, got {got}")
    return key, values[0]


def _only_label(features: Mapping[str, Any]) -> int:
    """Return the label on which all that a record says of it agrees."""
    labels = []
    for key in _LABEL_KEYS:
        for held in _values(features, key):
            value = int(held)  # ValueError for a word.
            if value != float(held):
                raise ValueError(f"{key!r} must be a whole number, got {held}")
            labels.append((key, value))
    if not labels:
        raise ValueError(f"it has no {LABEL_KEY!r}")
    return listing.agreed_label("label", "the record", labels)


def _first_name(features: Mapping[str, Any]) -> Any:
    """Return the first name that a record has; None without one."""
    for key in _NAME_KEYS:
        if values := _values(features, key):
            return values[0]
    return None


def _values(features: Mapping[str, Any], key: str) -> Sequence[Any]:
    """Return the values under a key; empty without any."""
    kind = features[key].WhichOneof("kind") if key in features else None
    return getattr(features[key], kind).value if kind else ()


def _open_records(where: str, shards: Names):
    from array_record.python import array_record_data_source

    what = f"{where}: {shards[0]!r} must be an ArrayRecord file: "
    with base.explain_errors(what, RuntimeError, ValueError, OSError):
        return array_record_data_source.ArrayRecordDataSource([*shards])


_PARQUET_IMAGES = (IMAGE_KEY, "img", *_ENDINGS)
_ANY_CLASS = "class"  # A word for much else than a label.
_PARQUET_LABELS = ("label", "labels", "fine_label", "cls", _ANY_CLASS)
_EXAMPLES = "data"
_ROWS = 32  # Read at once.
_LISTED = 256  # Bytes that a row takes in a listing.


def read_parquet(where: str, shards: Names) -> listing.Listing:
    """Lists all rows; the images themselves are read when asked for."""
    if _open_parquet(where, shards[0]).schema_arrow.names == [_EXAMPLES]:
        found = cache.for_files("examples", shards, _list_examples, where, shards)
        image = ExampleImage(str(found["image"]))
        read, classes = functools.partial(_example_images, image), class_names(shards)
    else:
        columns = _parquet_columns(where, shards[0])
        found = cache.for_files("parquet", shards, _list_parquet, where, shards)
        read = functools.partial(_group, columns.image)
        classes = columns.classes
    place = "shard", "group", "row"
    return _listing(stores.ParquetStore, shards, found, place, classes, read=read)


def _list_examples(where: str, shards: Names) -> Found:
    groups = []

    def records() -> Iterator[_Record]:
        for i, path in enumerate(shards):
            first = 0
            for group in range(_open_parquet(where, path).num_row_groups):
                some = _group(_EXAMPLES, path, group)
                groups.append((i, group, len(some)))
                for number, content in enumerate(some, first):
                    yield _Record(path, number, content)
                first += len(some)

    found = _describe_examples(where, records())
    return found | _placed(groups)


def _example_images(image: ExampleImage, path: str, group: int) -> list[bytes]:
    return [*map(image, _group(_EXAMPLES, path, group))]


class _Columns(NamedTuple):
    """What the columns of a Parquet file are called, and the names of its classes."""

    image: str
    labels: tuple[str, ...]  # The first holds the label, others must agree with it.
    classes: tuple[str, ...] | None  # None where the schema does not say them.


def _parquet_columns(where: str, path: str) -> _Columns:
    """Return the columns of a file; ValueError where one lacks or two are likely.

    Beside an "image" that holds bytes other images are something else, and so is "class"
    beside a "label" that holds numbers.
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
        remedy = "paths alone do not do: write the file with the images inside"
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


def _known_columns(where, path, what: str, known: Names, names: Names) -> list[str]:
    """Return those of the known columns that a file has; ValueError for none."""
    if not (columns := [name for name in known if name in names]):
        must = f"{where}: {path!r} must have {what} column ({', '.join(known)})"
        raise ValueError(f"{must}, got {', '.join(names) or 'none'}; rename it")
    return columns


def _holds_bytes(kind: Any) -> bool:
    """Return whether a column holds bytes, by itself or as Hugging Face's struct."""
    import pyarrow as pa

    kinds = pa.binary(), pa.large_binary(), pa.binary_view(), pa.null()
    if pa.types.is_struct(kind):
        names = [kind.field(i).name for i in range(kind.num_fields)]
        return "bytes" in names and _holds_bytes(kind.field("bytes").type)
    if pa.types.is_dictionary(kind):
        return _holds_bytes(kind.value_type)
    return kind in kinds or pa.types.is_fixed_size_binary(kind)


def _holds_numbers(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    tests = pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean
    return any(test(kind) for test in tests)


def _parquet_classes(where, path, schema, label: str) -> tuple[str, ...] | None:
    """Return the names of classes that a schema says; None without any."""
    must = f"{where}: {path!r} must tell its classes as Hugging Face does,"
    place = f"info.features.{label}.names in the schema's metadata, got "
    kinds = ValueError, TypeError, AttributeError, RecursionError
    with base.explain_errors(f"{must} {place}", *kinds, remedy="; write it anew"):
        info = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        feature = info.get("info", {}).get("features", {}).get(label, {})
        names = tuple(feature.get("names") or ())
        if not all(isinstance(name, str) for name in names):
            raise TypeError("names that are no text")
    return names or None


def _shared_columns(where: str, shards: Names) -> _Columns:
    """Return the columns of all shards; ValueError where one has other ones."""
    first = _parquet_columns(where, shards[0])
    for path in shards[1:]:
        columns = _parquet_columns(where, path)
        for field, expected, other in zip(_Columns._fields, first, columns):
            if expected != other:
                must = f"{where}: all shards must have the same {field}"
                got = f"got {expected} in {shards[0]!r} and {other} in {path!r}"
                raise ValueError(f"{must}, {got}; write them anew")
    return first


def _placed(groups: Sequence[tuple[int, int, int]]) -> Found:
    """The shard, group and row of each row of groups: (shard, group, rows)."""
    shard, group, n = np.array(groups, np.int32).T
    rows = np.concatenate([np.arange(count, dtype=np.int32) for count in n])
    return dict(shard=np.repeat(shard, n), group=np.repeat(group, n), row=rows)


def _list_parquet(where: str, shards: Names) -> Found:
    names, labels, groups = [], [], []
    known = _shared_columns(where, shards)
    for i, path in enumerate(shards):
        _refuse_missing_bytes(where, path, known.image)
        file, own = _open_parquet(where, path), []
        has_paths = _has_paths(file.schema_arrow.field(known.image).type)
        wanted = [*known.labels, *[f"{known.image}.path"] * has_paths]
        rows = {name: [] for name in known.labels}
        for group in range(file.num_row_groups):
            before = len(own)
            for batch in _batches(where, path, group, wanted):
                for name in known.labels:
                    rows[name].append(batch.column(name))
                told = [None] * len(batch)
                if has_paths:
                    told = batch.column(known.image).to_pylist()
                own += [row and row.get("path") for row in told]
            groups.append((i, group, len(own) - before))
        if own:
            labels.append(_parquet_labels(where, path, rows))
        stem = os.path.basename(path).partition(".")[0]
        names += [name or f"{stem}/{k}" for k, name in enumerate(own)]
    if not names:
        raise ValueError(f"{where}: shards must hold rows, got none in {shards[0]!r}")
    placed = _placed(groups)
    sizes = np.array([os.path.getsize(path) for path in shards])  # The rest costs.
    named = dict(names=listing.check_names(where, names), labels=np.concatenate(labels))
    return placed | named | dict(length=sizes[placed["shard"]])


def _has_paths(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_struct(kind) and kind.get_field_index("path") >= 0


def _refuse_missing_bytes(where: str, path: str, image: str) -> None:
    """Raise ValueError if the statistics of a file say that images lack their bytes.

    Where a file has no statistics, reading such an image raises it.
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
        remedy = "a path alone does not do: write the file with the images inside"
        raise ValueError(f"{must}, {got}; {remedy}")


def _parquet_labels(where: str, path: str, columns: Mapping[str, list]) -> np.ndarray:
    """Return the labels of a file; ValueError where two columns differ in a row.

    columns: the first has the labels; others hold them again, or nothing.
    """
    (first, labels), *others = [
        (name, _whole_numbers(where, path, name, parts))
        for name, parts in columns.items()
    ]
    missing = np.flatnonzero(labels == _NO_LABEL)
    if len(missing):
        got = (
            f"{len(missing):,} of {len(labels):,} rows lack one, first row {missing[0]}"
        )
        must = f"{where}: every row of {path!r} must have a label in {first!r}"
        raise ValueError(f"{must}, {got}; label or drop them")
    for name, column in others:
        differ = np.flatnonzero((column != labels) & (column != _NO_LABEL))
        if len(differ):
            row = int(differ[0])
            sources = [(first, int(labels[row])), (name, int(column[row]))]
            listing.agreed_label(where, f"row {row} of {path!r}", sources)
    return limits.check_labels(f"{where}: {path!r}", labels)


_NO_LABEL = np.iinfo(np.int64).min


def _whole_numbers(where: str, path: str, name: str, parts: list) -> np.ndarray:
    """Return a column as int64, _NO_LABEL where it has no value.

    ValueError for words, lists and numbers that are not whole.
    """
    import pyarrow as pa

    column, kind = pa.chunked_array(parts), parts[0].type
    if pa.types.is_dictionary(kind):
        column = pa.chunked_array([part.dictionary_decode() for part in parts])
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
        broken = np.flatnonzero((numbers != np.floor(numbers)) | (abs(numbers) > 2**53))
        if len(broken):
            got = f"got {numbers[broken[0]]:g} in row {broken[0]} of {path!r}"
            raise ValueError(f"{must}, {got}; number the classes from 0")
    is_large = numbers >= limits.MAX_CLASSES  # Refused later; none wraps around here.
    numbers = np.where(is_large, 0, numbers).astype(np.int64)
    numbers = np.where(is_large, limits.MAX_CLASSES, numbers)
    return np.where(is_missing, _NO_LABEL, numbers)


def _open_parquet(where: str, path: str):
    import pyarrow as pa
    import pyarrow.parquet as pq

    what = f"{where}: {path!r} must be a Parquet file: "
    with base.explain_errors(what, OSError, ValueError, pa.ArrowException):
        file, size = pq.ParquetFile(path), os.path.getsize(path)
        limits.check_growth(size, _LISTED * file.metadata.num_rows)
        for i in range(file.num_row_groups):
            limits.check_growth(size, file.metadata.row_group(i).total_byte_size)
        return file


def _group(image: str, path: str, group: int) -> list[bytes]:
    """The encoded images of a row group; None where a row has none."""
    import pyarrow as pa

    found = []
    for rows in _batches("data", path, group, [image]):
        column = rows.column(0)
        is_struct = pa.types.is_struct(column.type)
        found += (column.field("bytes") if is_struct else column).to_pylist()
    return found


def _batches(where: str, path: str, group: int, columns: Names) -> Iterator:
    """Some rows of a group at a time; ValueError once they are more than they may be.

    Its metadata may lie, and a page may give again and again what it holds once.
    """
    file, size, unpacked = _open_parquet(where, path), os.path.getsize(path), 0
    for rows in file.iter_batches(_ROWS, row_groups=[group], columns=columns):
        unpacked += rows.nbytes
        limits.check_growth(size, unpacked)
        yield rows


def read_tar(where: str, shards: Names) -> listing.Listing:
    """Lists all images; what the headers say is cached, since large archives have many."""
    found = cache.for_files("tar", shards, _list_tar, where, shards)
    place = "shard", "start", "length"
    return _listing(stores.TarStore, shards, found, place, found["classes"].tolist())


def _list_tar(where: str, shards: Names) -> Found:
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
    numbers, classes = [sample.label for sample in samples], ()
    if None in numbers:  # Then no sample has a label.
        numbers, classes = _by_folder(where, names)
    place = dict(
        shard=np.array([image.shard for image in images], np.int32),
        start=np.array([image.start for image in images], np.int64),
        length=np.array([image.length for image in images], np.int64),
    )
    _refuse_links_across_classes(where, images, numbers)
    names, labels = listing.check_names(where, names), np.array(numbers, np.int32)
    return place | dict(names=names, labels=labels, classes=np.array(classes, str))


def _refuse_links_across_classes(
    where: str, images: Sequence[tar_samples.Member], labels: Sequence[int]
) -> None:
    """Raise ValueError if one file has one name in two class folders, by a link."""
    first: dict[tuple, tuple[tar_samples.Member, int]] = {}
    for image, label in zip(images, labels, strict=True):
        place = image.shard, image.start, os.path.basename(image.name)
        other, other_label = first.setdefault(place, (image, label))
        if label != other_label:
            must = f"{where}: an image must be of one class"
            got = f"got {other.name!r} and {image.name!r}, which are one file"
            raise ValueError(f"{must}, {got}; remove one of the two links")


def _members(where: str, shard: int, path: str) -> Iterator[tar_samples.Member]:
    """Yields the images of an archive, and the files that may hold a label.

    A link has the bytes of the file that it leads to, as where the archive is unpacked.
    """
    # A header may follow the other without end, or say that it has gigabytes.
    kinds = tarfile.TarError, RecursionError, MemoryError, OverflowError
    must = f"{where}: {path!r} must be a whole, uncompressed tar archive, got "
    files: dict[str, tar_samples.Member] = {}
    links: dict[str, str] = {}
    with base.explain_errors(must, *kinds):
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
                    raise ValueError(f"{must}, got {entry.name!r}; pack it anew")
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
                    raise ValueError(f"{must}, {got}; pack it anew")
                place = entry.offset_data, entry.size
                files[name] = tar_samples.Member(shard, name, *place)
                yield files[name]
    yield from _linked_members(where, path, files, links)


def _link_target(entry: tarfile.TarInfo) -> str:
    """Return the path in the archive that a link leads to; "" where that is outside."""
    target = entry.linkname
    if entry.issym():  # Relative to its own folder; a hard link's is to the archive.
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
    """Yield a member for each link to a file; ValueError for an image that leads to none.

    files: by path. links: by path, the path that each leads to.
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
            remedy = "pack it anew with tar's --dereference"
            raise ValueError(f"{must}, {got}; {remedy}")


def _path_steps(name: str) -> list[str]:
    """Return the folders and the file of a member's path, as tar unpacks it.

    "./a//0.png" and "/a/0.png" are "a/0.png".
    """
    return [step for step in name.split("/") if step not in ("", ".")]


def _without_junk_folders(
    members: Sequence[tar_samples.Member],
) -> list[tar_samples.Member]:
    """Return the members outside hidden folders and such; a folder above all may be one."""
    folders = [os.path.dirname(member.name).split("/") for member in members]
    depth = len(os.path.commonprefix(folders))
    return [
        member
        for member, steps in zip(members, folders)
        if not any(map(listing.is_junk, steps[depth:]))
    ]


def _by_folder(where: str, names: Names) -> tuple[np.ndarray, np.ndarray]:
    """Labels by the first folder of the names, which all have one."""
    folders = [name.partition("/")[0] for name in names]
    if not all("/" in name for name in names):
        must = f"{where}: images must have a label (<key>.cls) or lie in class folders"
        remedy = "unpack the archive of a single class into a folder of its name"
        raise ValueError(f"{must}, got {names[0]!r}; {remedy}")
    classes, numbers = np.unique(folders, return_inverse=True)
    return numbers, classes


def _without_common_folder(names: Names) -> list[str]:
    """Names without the folders that all are in."""
    above = os.path.commonpath(names) if len(names) > 1 else os.path.dirname(names[0])
    return [os.path.relpath(name, above) if above else name for name in names]


# Endings of shards -> (where, paths) -> what they hold.
FORMS = dict(tar=read_tar, parquet=read_parquet, array_record=read_records)
