"""Puts a set of images into ArrayRecord shards, which are read fast in any order.

jbias prepare records --src=data/imagenet --split=train --dst=data/imagenet-records

--src may be class folders, tar shards, Parquet or ArrayRecord of others (see the data set
"folder"); the images are copied byte by byte, after each has been decoded once. Started
again, the command makes the shards that are missing. Writes
DST/<split>-<i>-of-<n>.array_record of tf.train.Example (image, label, file_name), which
TensorFlow reads as well, and DST/<split>-index.npz with names, labels and classes.
"""

import argparse
import functools
import itertools
import math
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from jbias import data
from jbias.data import sources
from jbias.data.forms import shards as forms
from jbias.data.sets import folder
from jbias.models import weight_files
from jbias.prepare import dataset
from jbias.untrusted import opening

_WHERE = "prepare records"
_IMAGES = 2000  # Of a shard: of ImageNet about 220 MB.


def add(parser) -> None:
    """Adds the arguments of the subcommand."""
    add = parser.add_argument
    add("--src", required=True, help="the folder in which the split lies")
    add("--split", default="train", help="such as train or val")
    add("--dst", required=True, help="the folder to write into")
    add("--classes", default="", help="a file of class names, where labels are numbers")
    add("--shards", type=int, default=0, help="how many; 0: of 2,000 images each")


def run(args: argparse.Namespace) -> str:
    """Writes all shards and the index; returns what it did.

    Raises ValueError, one line, that counts damaged images and names the first, and for
    a folder that holds another set.
    """
    split, count = args.split, args.shards
    if "[" in split or count < 0:
        must = f"{_WHERE}: --split must be a whole one and --shards at least 0"
        raise ValueError(f"{must}, got {split!r} and {count}")
    options = dict(root=args.src, size=32, classes=args.classes)
    source = data.load("folder", split, **options)
    n, count = len(source), count or math.ceil(len(source) / _IMAGES)
    if count > n:
        must = f"{_WHERE}: --shards must be at most {n}, the number of images"
        raise ValueError(f"{must}, got {count}")
    target = pathlib.Path(args.dst).expanduser()
    names = [f"{split}-{i:05d}-of-{count:05d}.array_record" for i in range(count)]
    paths, cuts = [target / name for name in names], np.linspace(0, n, count + 1)
    shards = [*zip(paths, itertools.pairwise(cuts.astype(int).tolist()))]
    _claim(args, source, shards)
    made = _make(source, shards)
    done = f"{n} images of {len(source.classes)} classes in {count} shards, {made} of"
    them = f"data='folder', root={args.dst!r}, {split=}"
    return f"{target}: {done} them new; read them with {them}"


# Each with its images' numbers.
Shards = Sequence[tuple[pathlib.Path, tuple[int, int]]]


def _claim(args, source: sources.EncodedSource, shards: Shards) -> None:
    """Writes the index, once it is sure that the shards which are there are of it."""
    split, paths = args.split, [path for path, _ in shards]
    must = f"{_WHERE}: {args.dst} must hold no other shards of {split!r}"
    remedy = "name another --dst or the same --shards"
    there = {*paths[0].parent.glob(f"{split}-*-of-*.array_record")}
    if strange := sorted(path.name for path in there - {*paths}):
        raise ValueError(f"{must}, got {strange[0]}; {remedy}")
    lengths = folder.find_split(folder.request("folder", split, root=args.src)).lengths
    index = dict(
        names=np.array(source.files),
        labels=source.columns["label"],
        length=lengths,
        image=np.array(forms.IMAGE_KEY),
        classes=np.array(source.classes),
    )
    path = pathlib.Path(forms.index_path([str(paths[0])]))
    for shard, rows in shards:
        if shard in there and not _is_of(path, index, slice(*rows)):
            got = f"got {shard.name} of other images or classes"
            raise ValueError(f"{must}, {got}; name another --dst or remove its shards")
    weight_files.write_npz(path, index)


def _is_of(path: pathlib.Path, index: Mapping[str, np.ndarray], rows: slice) -> bool:
    """Tells whether the index that is there says the same of some images."""
    if not path.exists():
        return False
    there = opening.read_npz(str(path))
    if len(there["names"]) != len(index["names"]):
        return False
    some = dict(names=rows, labels=rows, length=rows, classes=slice(None))
    return all(np.array_equal(there[k][at], index[k][at]) for k, at in some.items())


def _make(source: sources.EncodedSource, shards: Shards) -> int:
    """Writes the shards that are missing; returns how many."""
    missing = [(path, range(*rows)) for path, rows in shards if not path.exists()]
    tasks = [(path, row) for path, rows in missing for row in rows]
    damaged, n, title = [], len(source), f"writing {source.name}"
    forms.example_class()  # Before threads decode and serialise.
    bar = dict(ahead=2 * dataset.WORKERS, done=n - len(tasks))
    one = functools.partial(_record, source)
    with dataset.map_ahead(title, one, tasks, n, **bar) as results:
        for path, ready in itertools.groupby(results, lambda result: result[0][0]):
            damaged += _write(path, (record for _, record in ready))
    if damaged:
        must = f"{_WHERE}: every image must decode, {len(damaged)} of {n} do not"
        raise ValueError(f"{must}, first {damaged[0]}; replace or remove them")
    return len(missing)


def _record(source: sources.EncodedSource, task: tuple) -> bytes | str:
    """The record of an image, or what is wrong with it."""
    _, index = task
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


def _write(path: pathlib.Path, ready: Iterable[bytes | str]) -> list[str]:
    """Writes a shard in place only when whole; returns what was damaged in it."""
    from array_record.python import array_record_module

    # Of its own name: two commands may write the same shard at once.
    part, damaged = path.with_name(f".{path.name}.{os.getpid()}.part"), []
    try:
        writer = array_record_module.ArrayRecordWriter(str(part), "group_size:1")
        for record in ready:
            if isinstance(record, str):
                damaged.append(record)
            else:
                writer.write(record)
        writer.close()
        if not damaged:
            os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return damaged
