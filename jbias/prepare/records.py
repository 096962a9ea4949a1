"""Copy a data set into ArrayRecord shards, which can be read fast in any order.

jbias prepare records --src=data/imagenet --split=train --dst=data/imagenet-records

The data set in --src may be class folders, tar shards, Parquet or ArrayRecord files (see the data
set `folder` in docs/data.md). Each image is decoded once as a check, and its bytes are copied
unchanged. If you start the command again, it makes only the missing shards. Writes

    DST/<split>-<i>-of-<n>.array_record  shards of tf.train.Example (image, label, file_name),
                                         which TensorFlow can read, too
    DST/<split>-index.npz                names, labels and classes of all images

To train on the result, use data=folder with root=DST.
"""

import argparse
import itertools
import math
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jbias import data
from jbias.data import sources
from jbias.data.forms import shards as forms
from jbias.models import weight_files
from jbias.prepare import dataset
from jbias.untrusted import opening

_WHERE = "prepare records"
_IMAGES_PER_SHARD = 2000  # About 220 MB of ImageNet.


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `jbias prepare records` to its parser."""
    add = parser.add_argument
    src_help = "folder of the data set, which contains the folder or shards of --split"
    add("--src", required=True, metavar="DIR", help=src_help)
    split_help = "split to copy, such as val (default: train)"
    add("--split", default="train", metavar="SPLIT", help=split_help)
    add("--dst", required=True, metavar="DIR", help="folder to write the shards into")
    classes_help = (
        "only if --src has shards with labels that are numbers: file with one "
    )
    classes_help += (
        "class name per line, from label 0 (default: the names in the data set)"
    )
    add("--classes", default="", metavar="FILE", help=classes_help)
    shards_help = "number of shards; 0 makes one shard per 2,000 images (default: 0)"
    add("--shards", type=int, default=0, metavar="N", help=shards_help)


def run(args: argparse.Namespace) -> str:
    """Write all missing shards and the index; return a line with the number of shards.

    args: the flags of `add`. ValueError for a part of a split, for more shards than images, for
    damaged images, and for a folder with another data set.
    """
    split, count = args.split, args.shards
    if "[" in split or count < 0:
        must = f"{_WHERE}: --split must be a whole one and --shards at least 0"
        raise ValueError(f"{must}, got {split!r} and {count}")
    source = data.load("folder", split, root=args.src, size=32, classes=args.classes)
    n, count = len(source), count or math.ceil(len(source) / _IMAGES_PER_SHARD)
    if count > n:
        must = f"{_WHERE}: --shards must be at most {n}, the number of images"
        raise ValueError(f"{must}, got {count}")
    target = pathlib.Path(args.dst).expanduser()
    names = [f"{split}-{i:05d}-of-{count:05d}.array_record" for i in range(count)]
    cuts = np.linspace(0, n, count + 1).astype(int).tolist()
    shards = [
        Shard(target / name, range(start, stop))
        for name, (start, stop) in zip(names, itertools.pairwise(cuts))
    ]
    _write_index(args, source, shards)
    num_new = _write_missing(source, shards)
    counts = f"{n} images of {len(source.classes)} classes in {count} shards"
    entry = f"data='folder', root={args.dst!r}, {split=}"
    return f"{target}: {counts}, {num_new} of them new; read them with {entry}"


class Shard(NamedTuple):
    """The path of a shard to write, and the indices of its images."""

    path: pathlib.Path
    rows: range


def _write_index(
    args: argparse.Namespace, source: sources.EncodedSource, shards: Sequence[Shard]
) -> None:
    """Write DST/<split>-index.npz; ValueError if existing shards have different images.

    ValueError also if the split has other shards in the folder, such as for another --shards.
    args: the flags of `add`. shards: all shards of the split, to be written or existing.
    """
    split, paths = args.split, [shard.path for shard in shards]
    must = f"{_WHERE}: {args.dst} must hold no other shards of {split!r}"
    remedy = "name another --dst or the same --shards"
    existing = {*paths[0].parent.glob(f"{split}-*-of-*.array_record")}
    other = sorted(path.name for path in existing - {*paths})
    if other:
        raise ValueError(f"{must}, got {other[0]}; {remedy}")
    lengths = data.DATASETS["folder"].files(split, root=args.src).find().lengths
    index = {
        "names": np.array(source.files),
        "labels": source.columns["label"],
        "length": lengths,
        "image": np.array(forms.IMAGE_KEY),
        "classes": np.array(source.classes),
    }
    index_path = pathlib.Path(forms.index_path([str(paths[0])]))
    for shard in shards:
        if shard.path in existing and not _agrees(index_path, index, shard.rows):
            got = f"got {shard.path.name} of other images or classes"
            raise ValueError(f"{must}, {got}; name another --dst or remove its shards")
    weight_files.write_npz(index_path, index)


def _agrees(path: pathlib.Path, index: Mapping[str, np.ndarray], rows: range) -> bool:
    """Return True if the index stored at `path` has the same images in `rows` as `index`.

    Names, labels and lengths in `rows`, and all class names, are compared. False if there is no
    file, or if the indices have different numbers of images.
    """
    if not path.exists():
        return False
    stored = opening.read_npz(str(path))
    if len(stored["names"]) != len(index["names"]):
        return False
    if not np.array_equal(stored["classes"], index["classes"]):
        return False
    return all(
        np.array_equal(
            stored[key][rows.start : rows.stop], index[key][rows.start : rows.stop]
        )
        for key in ("names", "labels", "length")
    )


def _write_missing(source: sources.EncodedSource, shards: Sequence[Shard]) -> int:
    """Write the shards that do not exist and return their number.

    ValueError for damaged images, after all shards without damaged images are written.
    """
    missing = [shard for shard in shards if not shard.path.exists()]
    tasks = [(shard.path, row) for shard in missing for row in shard.rows]
    errors, n, title = [], len(source), f"writing {source.name}"
    forms.example_class()  # Import before threads decode and serialise.
    with dataset.map_ahead(
        title,
        lambda task: _make_record(source, task[1]),
        items=tasks,
        total=n,
        ahead=2 * dataset.WORKERS,
        done=n - len(tasks),
    ) as results:
        for path, group in itertools.groupby(results, lambda result: result[0][0]):
            errors += _write_shard(path, (record for _, record in group))
    if errors:
        must = f"{_WHERE}: every image must decode, {len(errors)} of {n} do not"
        raise ValueError(f"{must}, first {errors[0]}; replace or remove them")
    return len(missing)


def _make_record(source: sources.EncodedSource, index: int) -> bytes | str:
    """Return an image's serialised tf.train.Example (bytes); the error (str) if it is damaged."""
    try:
        source.image(index)
    except ValueError as error:
        return str(error)
    features = {
        forms.IMAGE_KEY: sources.read_encoded(source, index),
        forms.LABEL_KEY: int(source.columns["label"][index]),
        forms.NAME_KEY: source.files[index].encode(),
    }
    return forms.serialise_example(features)


def _write_shard(path: pathlib.Path, records: Iterable[bytes | str]) -> list[str]:
    """Write a shard atomically, unless an image is damaged; return the error messages, or [].

    records: results of `_make_record`, serialised records (bytes) or error messages (str).
    """
    from array_record.python import array_record_module

    # With the process's id: two commands may write the same shard at the same time.
    partial_path = path.with_name(f".{path.name}.{os.getpid()}.part")
    errors = []
    try:
        writer = array_record_module.ArrayRecordWriter(
            str(partial_path), "group_size:1"
        )
        for record in records:
            if isinstance(record, str):
                errors.append(record)
            else:
                writer.write(record)
        writer.close()
        if not errors:
            os.replace(partial_path, path)
    finally:
        partial_path.unlink(missing_ok=True)
    return errors
