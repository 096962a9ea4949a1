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
from typing import Any

import numpy as np

from jbias.data import base, cache
from jbias.data.base import Names
from jbias.data.forms import listing, stores
from jbias.untrusted import limits, opening

IMAGE_KEY, LABEL_KEY, NAME_KEY = "image", "label", "file_name"
_IMAGE_KEYS = (IMAGE_KEY, "image/encoded", "jpg", "png")
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

    with base.explained("must be a tf.train.Example, got ", message.DecodeError):
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
    with base.explained(f"{must}got ", *kinds, remedy="; remove it"):
        found = opening.npz(path)
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
    source = _open_records(where, shards)
    records = (source[i] for i in range(len(source)))
    return describe_examples(where, os.path.dirname(shards[0]), records)


def describe_examples(where: str, place: str, records: Iterable[bytes]) -> Found:
    """Names, labels and lengths of examples, and under which key the images are."""
    names, labels, lengths, key = [], [], [], ""
    for i, record in enumerate(records):
        try:
            features = parse_example(record)
            key = next(name for name in _IMAGE_KEYS if name in features)
            lengths.append(len(features[key].bytes_list.value[0]))
            labels.append(int(_first(features, _LABEL_KEYS)))
        except (StopIteration, ValueError, IndexError) as error:
            must = "records must be tf.train.Example with an image and a label"
            got = f"got another at {i} of {place!r}"
            raise ValueError(f"{where}: {must}, {got}") from error
        name = _first(features, _NAME_KEYS, b"%08d" % i)
        names.append(name.decode() if isinstance(name, bytes) else str(name))
    names = listing.check_names(where, names)
    labels = limits.check_labels(where, labels)
    length, image = np.array(lengths, np.int64), np.array(key)
    return dict(names=names, labels=labels, length=length, image=image)


def _first(features: Mapping[str, Any], keys: Names, default=None) -> Any:
    """The first value under the first of these keys that has one."""
    for feature in (features[key] for key in keys if key in features):
        kind = feature.WhichOneof("kind")
        if kind and (values := getattr(feature, kind).value):
            return values[0]
    if default is None:
        raise ValueError(f"lacks {keys[0]!r}")
    return default


def _open_records(where: str, shards: Names):
    from array_record.python import array_record_data_source

    what = f"{where}: {shards[0]!r} must be an ArrayRecord file: "
    with base.explained(what, RuntimeError, ValueError, OSError):
        return array_record_data_source.ArrayRecordDataSource([*shards])


_PARQUET_IMAGES = ("image", "img", "jpg", "jpeg", "png", "webp")
_PARQUET_LABELS = ("label", "labels", "fine_label", "cls", "class")
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
        image, label, classes = _schema(where, shards[0])
        of = where, shards, image, label
        found = cache.for_files("parquet", shards, _list_parquet, *of)
        read = functools.partial(_group, image)
    place = "shard", "group", "row"
    return _listing(stores.ParquetStore, shards, found, place, classes, read=read)


def _list_examples(where: str, shards: Names) -> Found:
    groups = []

    def records() -> Iterator[bytes]:
        for i, path in enumerate(shards):
            for group in range(_open_parquet(where, path).num_row_groups):
                some = _group(_EXAMPLES, path, group)
                groups.append((i, group, len(some)))
                yield from some

    found = describe_examples(where, os.path.dirname(shards[0]), records())
    return found | _placed(groups)


def _example_images(image: ExampleImage, path: str, group: int) -> list[bytes]:
    return [*map(image, _group(_EXAMPLES, path, group))]


def _schema(where: str, path: str) -> tuple[str, str, list[str] | None]:
    """Names of the two columns, and of the classes where the schema says them."""
    schema = _open_parquet(where, path).schema_arrow
    columns = []
    for what, known in (("an image", _PARQUET_IMAGES), ("a label", _PARQUET_LABELS)):
        columns += [name for name in known if name in schema.names][:1]
        if not columns or columns[-1] not in known:
            must = f"{where}: {path!r} must have {what} column ({', '.join(known)})"
            raise ValueError(f"{must}, got {', '.join(schema.names)}; rename it")
    must = f"{where}: {path!r} must tell its classes as Hugging Face does,"
    place = f"info.features.{columns[1]}.names in the schema's metadata, got "
    kinds = ValueError, TypeError, AttributeError, RecursionError
    with base.explained(f"{must} {place}", *kinds, remedy="; write it anew"):
        info = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        feature = info.get("info", {}).get("features", {}).get(columns[1], {})
        names = list(feature.get("names") or ())
        if not all(isinstance(one, str) for one in names):
            raise TypeError("names that are no text")
    return *columns, names or None


def _placed(groups: Sequence[tuple[int, int, int]]) -> Found:
    """The shard, group and row of each row of groups: (shard, group, rows)."""
    shard, group, n = np.array(groups, np.int32).T
    rows = np.concatenate([np.arange(count, dtype=np.int32) for count in n])
    return dict(shard=np.repeat(shard, n), group=np.repeat(group, n), row=rows)


def _list_parquet(where: str, shards: Names, image: str, label: str) -> Found:
    names, labels, groups = [], [], []
    for i, path in enumerate(shards):
        file, own = _open_parquet(where, path), []
        nested = _is_struct(file.schema_arrow.field(image))
        columns = [label, *([f"{image}.path"] if nested else [])]
        for group in range(file.num_row_groups):
            before = len(own)
            for rows in _batches(where, path, group, columns):
                labels.append(_parquet_labels(where, path, rows.column(label)))
                told = rows.column(image).to_pylist() if nested else [None] * len(rows)
                own += [row and row.get("path") for row in told]
            groups.append((i, group, len(own) - before))
        stem = os.path.basename(path).partition(".")[0]
        names += [name or f"{stem}/{k}" for k, name in enumerate(own)]
    if not names:
        raise ValueError(f"{where}: shards must hold rows, got none in {shards[0]!r}")
    placed = _placed(groups)
    sizes = np.array([os.path.getsize(path) for path in shards])  # The rest costs.
    named = dict(names=listing.check_names(where, names), labels=np.concatenate(labels))
    return placed | named | dict(length=sizes[placed["shard"]])


def _parquet_labels(where: str, path: str, column) -> np.ndarray:
    must = f"{where}: labels must be whole numbers, got {column.type} in {path!r}"
    with base.explained(must, TypeError, ValueError, reason=lambda _: ""):
        numbers = column.to_numpy().astype(np.int64, casting="same_kind")
    return limits.check_labels(f"{where}: {path!r}", numbers)


def _open_parquet(where: str, path: str):
    import pyarrow as pa
    import pyarrow.parquet as pq

    what = f"{where}: {path!r} must be a Parquet file: "
    with base.explained(what, OSError, ValueError, pa.ArrowException):
        file, size = pq.ParquetFile(path), os.path.getsize(path)
        limits.check_growth(size, _LISTED * file.metadata.num_rows)
        for i in range(file.num_row_groups):
            limits.check_growth(size, file.metadata.row_group(i).total_byte_size)
        return file


def _group(image: str, path: str, group: int) -> list[bytes]:
    """The encoded images of a row group."""
    found = []
    for rows in _batches("data", path, group, [image]):
        column = rows.column(0)
        found += (column.field("bytes") if _is_struct(column) else column).to_pylist()
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


def _is_struct(column: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_struct(column.type)


_Member = tuple[int, str, int, int]  # Its shard, name, start and length.


def read_tar(where: str, shards: Names) -> listing.Listing:
    """Lists all images; what the headers say is cached, since large archives have many."""
    found = cache.for_files("tar", shards, _list_tar, where, shards)
    place = "shard", "start", "length"
    return _listing(stores.TarStore, shards, found, place, found["classes"].tolist())


def _list_tar(where: str, shards: Names) -> Found:
    images, labels = {}, {}
    for i, path in enumerate(shards):
        for member, ending, key in _members(where, i, path):
            if f".{ending}" in listing.IMAGES:
                if (i, key) in images:
                    must = f"{where}: a sample must have one image"
                    got = f"got a second for {key!r} in {path!r}"
                    raise ValueError(f"{must}, {got}; give each a key of its own")
                images[i, key] = member
            elif ending in ("cls", "json"):
                labels[i, key] = _tar_label(where, path, member, ending)
    if not images:
        raise ValueError(f"{where}: shards must hold images, got none in {shards[0]!r}")
    lacking = next((key for key in images if key not in labels), None)
    if labels and lacking:
        got = f"got none for {lacking[1]!r} in {shards[lacking[0]]!r}"
        raise ValueError(f"{where}: every image must have a label (<key>.cls), {got}")
    shard, names, start, length = zip(*images.values(), strict=True)
    names = _without_common_folder(names)
    numbers, classes = [labels[key] for key in images if labels], ()
    if not labels:
        numbers, classes = _by_folder(where, names)
    start, length = (np.array(one, np.int64) for one in (start, length))
    place = dict(shard=np.array(shard, np.int32), start=start, length=length)
    names, labels = listing.check_names(where, names), np.array(numbers, np.int32)
    return place | dict(names=names, labels=labels, classes=np.array(classes, str))


def _members(where: str, shard: int, path: str):
    """Yields (member, ending in small letters, key) of all files of an archive."""
    # A header may follow the other without end, or say that it has gigabytes.
    kinds = tarfile.TarError, RecursionError, MemoryError, OverflowError
    must = f"{where}: {path!r} must be a whole, uncompressed tar archive, got "
    with base.explained(must, *kinds):
        size = os.path.getsize(path)
        with tarfile.open(path, "r:") as archive:
            for entry in archive:
                whole = entry.name.lstrip("/")  # As tar unpacks it.
                folder, name = os.path.split(whole)
                if not entry.isfile() or name.startswith("."):
                    continue
                stem, _, ending = name.partition(".")
                ending = ending.lower()
                if ending.endswith("tar"):
                    must = f"{where}: shards must hold images, {path!r} holds the"
                    raise ValueError(f"{must} archive {entry.name!r}; unpack it once")
                if entry.issparse() or entry.offset_data + entry.size > size:
                    must = f"{where}: {path!r} must hold its members whole"
                    got = f"got {entry.name!r} of {entry.size} bytes"
                    raise ValueError(f"{must}, {got}; pack it anew")
                member = shard, whole, entry.offset_data, entry.size
                key = os.path.normpath(os.path.join(folder, stem))  # "./a" is "a".
                yield member, ending.rpartition(".")[2], key


def _tar_label(where: str, path: str, member: _Member, ending: str) -> int:
    _, name, start, length = member
    with open(path, "rb") as file:
        file.seek(start)
        text = file.read(length)
    try:
        held = text
        if ending == "json":
            held = json.loads(text)
            held = held["label"] if "label" in held else held["cls"]
        if not 0 <= (label := int(held)) < limits.MAX_CLASSES or label != float(held):
            raise ValueError(f"{held!r} is no label")
        return label
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        must = f"{where}: labels must be whole numbers from 0 to"
        got = f"{limits.MAX_CLASSES - 1:,} ({limits.DOCS}), got {text[:40]!r}"
        raise ValueError(f"{must} {got} in {path}:{name}") from error


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
