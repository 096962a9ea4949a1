"""Puts a set of images into ArrayRecord shards, which are read fast in any order.

python -m jbias.prepare records --src=data/imagenet --split=train --dst=data/imagenet-records

--src may be class folders, tar shards, Parquet or ArrayRecord of others (see the data set
"folder"); the images are copied byte by byte, after each has been decoded once. Started
again, the command makes the shards that are missing. Writes
DST/<split>-<i>-of-<n>.array_record of tf.train.Example (image, label, file_name), which
TensorFlow reads as well, and DST/<split>-index.npz with names, labels and classes.
"""

import argparse
import io
import itertools
import math
import os
import pathlib
from collections.abc import Iterable

import numpy as np

from jbias import data
from jbias.data import sources
from jbias.data.forms import shards
from jbias.data.sets import folder
from jbias.prepare import dataset

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
    split = args.split
    if "[" in split or args.shards < 0:
        raise ValueError(
            "prepare records: --split must be a whole one and --shards at least 0, got"
            f" {split!r} and {args.shards}"
        )
    options = dict(root=args.src, size=32, classes=args.classes)
    source = data.load("folder", split, **options)
    count = args.shards or math.ceil(len(source) / _IMAGES)
    if count > len(source):
        raise ValueError(
            f"prepare records: --shards must be at most {len(source)}, the number of"
            f" images, got {count}"
        )
    target = pathlib.Path(args.dst).expanduser()
    paths = [
        target / f"{split}-{i:05d}-of-{count:05d}.array_record" for i in range(count)
    ]
    _refuse_others(target, split, paths)
    cuts = np.linspace(0, len(source), count + 1).astype(int)
    made = _make(source, paths, cuts)
    request = folder.request("folder", split, root=args.src)
    _index(source, folder.find_split(request).lengths, paths)
    return (
        f"{target}: {len(source)} images of {len(source.classes)} classes in {count}"
        f" shards, {made} of them new; read them with data='folder', root={args.dst!r},"
        f" split={split!r}"
    )


def _refuse_others(target, split, paths) -> None:
    there = {p.name for p in target.glob(f"{split}-*-of-*.array_record")}
    strange = sorted(there - {path.name for path in paths})
    if strange:
        raise ValueError(
            f"prepare records: {target} must hold no other shards of {split!r}, got"
            f" {strange[0]}; name another --dst or the same --shards"
        )


def _make(source, paths, cuts) -> int:
    """Writes the shards that are missing; returns how many."""
    made, damaged = 0, []
    paths[0].parent.mkdir(parents=True, exist_ok=True)
    missing = [i for i, path in enumerate(paths) if not path.exists()]
    with dataset.map_ahead(
        f"writing {source.name}",
        lambda task: _record(source, task[1]),
        ((paths[i], row) for i in missing for row in range(cuts[i], cuts[i + 1])),
        len(source),
        ahead=2 * dataset.WORKERS,
        done=len(source) - sum(int(cuts[i + 1] - cuts[i]) for i in missing),
    ) as results:
        for path, ready in itertools.groupby(results, lambda result: result[0][0]):
            damaged += _write(path, (record for _, record in ready))
            made += 1
    if damaged:
        raise ValueError(
            f"prepare records: every image must decode, {len(damaged)} of"
            f" {len(source)} do not, first {damaged[0]}; replace or remove them"
        )
    return made


def _record(source: sources.EncodedSource, index: int) -> bytes | str:
    """The record of an image, or what is wrong with it."""
    try:
        source.image(index)
    except ValueError as error:
        return str(error)
    opened = source.store.open(index)
    encoded = (
        pathlib.Path(opened).read_bytes() if isinstance(opened, str) else opened.read()
    )
    return shards.serialise_example(
        {
            shards.IMAGE_KEY: encoded,
            shards.LABEL_KEY: int(source.columns["label"][index]),
            shards.NAME_KEY: source.files[index].encode(),
        }
    )


def _write(path: pathlib.Path, ready: Iterable[bytes | str]) -> list[str]:
    """Writes a shard in place only when whole; returns what was damaged in it."""
    from array_record.python import array_record_module

    part, damaged = path.with_name(f".{path.name}.part"), []
    writer = array_record_module.ArrayRecordWriter(str(part), "group_size:1")
    for record in ready:
        if isinstance(record, str):
            damaged.append(record)
        else:
            writer.write(record)
    writer.close()
    if damaged:
        part.unlink()
    else:
        os.replace(part, path)
    return damaged


def _index(source: sources.EncodedSource, lengths: np.ndarray, paths) -> None:
    written = io.BytesIO()
    np.savez(
        written,
        names=np.array(source.files),
        labels=source.columns["label"],
        length=lengths,
        image=np.array(shards.IMAGE_KEY),
        classes=np.array(source.classes),
    )
    path = shards.index_path([str(path) for path in paths])
    dataset.write_file(pathlib.Path(path), written.getvalue())
