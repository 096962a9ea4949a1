"""ArrayRecord shards of tf.train.Example, ours and those that TFDS writes.

Which record has which label stands in <split>-index.npz, which `prepare records` writes
beside its shards; for those of others all records are read once, and that is cached.
"""

import functools
import os
import re
from collections.abc import Iterable, Sequence

import numpy as np

from jbias.data import cache, example, listing, stores
from jbias.foreign import array_files, limits

IMAGE, LABEL, NAME = "image", "label", "file_name"
_IMAGES = (IMAGE, "image/encoded", "jpg", "png")
_LABELS = (LABEL, "image/class/label", "fine_label", "cls")
_NAMES = (NAME, "image/filename", "filename", "id", "__key__")


def read(
    where: str, shards: Sequence[str]
) -> tuple[stores.Store, listing.Files, tuple[str, ...] | None]:
    """Lists all records."""
    found = _beside(where, shards) or cache.made(
        "records", shards, lambda: _listed(where, shards)
    )
    names = tuple(found["names"].tolist())
    key = str(found["image"])
    store = stores.Records(
        tuple(shards),
        names,
        np.arange(len(names)),
        functools.partial(image, key),
    )
    files = listing.Files(names, found["length"], found["labels"])
    classes = (
        tuple(found["classes"].tolist()) if "classes" in found else class_names(shards)
    )
    return store, files, classes


def index_path(shards: Sequence[str]) -> str:
    """Where the index of these shards lies."""
    folder, name = os.path.split(shards[0])
    name = re.sub(r"-\d+-of-\d+", "", name.partition(".array_record")[0])
    return os.path.join(folder, f"{name}-index.npz")


def _beside(where: str, shards: Sequence[str]) -> dict[str, np.ndarray] | None:
    path = index_path(shards)
    if not os.path.isfile(path):
        return None
    found = _index(path)
    n = len(_source(where, shards))
    if n != len(found["names"]):
        raise ValueError(
            f"{path}: must be the index of these shards, has {len(found['names'])}"
            f" records of {n}; remove it"
        )
    return found


def _index(path: str) -> dict[str, np.ndarray]:
    try:
        found = array_files.read(path)
        n = len(found["names"])
        columns = [found[key] for key in ("names", "labels", "length")]
        kinds = "".join(column.dtype.kind for column in columns)
        if kinds != "Uii" or any(column.shape != (n,) for column in columns):
            raise ValueError("other columns")
        if found["image"].shape or found["image"].dtype.kind != "U":
            raise ValueError("no name of the images")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: must be the index of shards, got {error}; remove it"
        ) from error
    return found


def class_names(shards: Sequence[str]) -> tuple[str, ...] | None:
    """The names of labels that TFDS writes beside its shards."""
    folder = os.path.dirname(shards[0])
    for label in _LABELS:
        path = os.path.join(folder, f"{label}.labels.txt")
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                return tuple(line for line in file.read().splitlines() if line)
    return None


def _listed(where: str, shards: Sequence[str]) -> dict[str, np.ndarray]:
    source = _source(where, shards)
    n = len(source)
    place = os.path.dirname(shards[0])
    return described(where, place, (source[i] for i in range(n)))


def described(
    where: str, place: str, records: Iterable[bytes]
) -> dict[str, np.ndarray]:
    """Names, labels and lengths of examples, and under which key the images are."""
    names, labels, lengths, key = [], [], [], ""
    for i, record in enumerate(records):
        try:
            held = example.parse(record)
            key = next(name for name in _IMAGES if name in held)
            labels.append(int(_first(held, _LABELS)))
        except (StopIteration, ValueError) as error:
            raise ValueError(
                f"{where}: records must be tf.train.Example with an image and a label,"
                f" got another at {i} of {place!r}"
            ) from error
        name = _first(held, _NAMES, b"%08d" % i)
        names.append(name.decode() if isinstance(name, bytes) else str(name))
        lengths.append(len(held[key][0]))
    return dict(
        names=listing.named(where, names),
        labels=limits.labels(where, labels),
        length=np.array(lengths, np.int64),
        image=np.array(key),
    )


def _source(where: str, shards: Sequence[str]):
    from array_record.python import array_record_data_source

    try:
        return array_record_data_source.ArrayRecordDataSource([*shards])
    except (RuntimeError, ValueError, OSError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{where}: {shards[0]!r} must be an ArrayRecord file: {reason}"
        ) from error


def _first(held, keys: Sequence[str], default=None):
    found = [held[key][0] for key in keys if held.get(key)]
    if not found and default is None:
        raise ValueError(f"lacks {keys[0]!r}")
    return found[0] if found else default


def image(key: str, record: bytes) -> bytes:
    """Takes the encoded image out of an example."""
    return example.parse(record)[key][0]
