"""Looks at every image of a set: are all there, and does each decode?

python -m jbias.prepare check --src=data/photos
python -m jbias.prepare check --data=pacs --src=data/pacs --sheet=pacs.png

Prints a line for each split: images, classes, the smallest and the largest class, the
published count where one is known, damaged images, and the fingerprint that runs record.
Exit code 1 if an image is damaged: each is named, and training would refuse them.
"""

import argparse
import functools
import os
from concurrent import futures
from typing import Any

import numpy as np

from jbias import console, data
from jbias.data import listing, spec
from jbias.prepare import reading, sheet

_NAMED = 20  # Damaged images that are printed.
_COLUMNS = 12


class Damaged(Exception):
    """Some images are; the message is what to print."""


def add(commands) -> None:
    """Adds the subcommand."""
    parser = commands.add_parser(
        "check",
        help="decodes every image of a set and counts them",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=check)
    add = parser.add_argument
    add("--src", required=True, help="the folder of the set, its `root`")
    add("--data", default="folder", help=f"one of {', '.join(data.DATASETS)}")
    add("--splits", default="", help="a+b+c; all there are if empty")
    add("--size", type=int, default=64, help="pixels of the images on the sheet")
    add("--sheet", default="", help="a figure with an image of some classes, .png")
    add("--space", default="", help="what class folders are named by, folder only")
    add("--classes", default="", help="a file of class names, folder only")


def check(src: str, splits: str, **options) -> str:
    """Checks all splits; returns a table.

    Raises ValueError for what is no set, and Damaged, with the table, where an image
    does not decode.
    """
    name, path = options.pop("data"), options.pop("sheet")
    options = {key: value for key, value in options.items() if value}
    chosen = splits.split("+") if splits else _splits(name, src)
    lines, rows, damaged = [], {}, []
    for split in chosen:
        source = data.load(name, split, root=src, **options)
        bad = _decode(source)
        damaged += bad
        lines.append(_line(split, source, len(bad)))
        good = [i for i in range(len(source)) if i not in {index for index, _ in bad}]
        rows[split] = _images(source, good)
    table = _aligned([_HEAD, *lines])
    if path:
        shown = {split: images for split, images in rows.items() if images}
        sheet.write(path, shown, foot=source.cite)
        table += f"\n{path} shows some"
    if damaged:
        some = [f"damaged: {why}" for _, why in damaged[:_NAMED]]
        more = len(damaged) - len(some)
        raise Damaged(
            "\n".join([table, *some, *([f"and {more} more"] if more else [])])
        )
    return table


def _splits(name: str, src: str) -> list[str]:
    """The known splits of a set that are there, or all folders of a user's own."""
    root = listing.existing("prepare check", os.path.expanduser(src), "--src")
    known = data.DATASETS[name].splits if name in data.DATASETS else ()
    there = sorted(
        entry.name
        for entry in os.scandir(root)
        if entry.is_dir() and entry.name[0] != "."
    )
    if name == "folder":
        if not there:
            raise ValueError(
                f"prepare check: --src must have a folder for each split, got none in"
                f" {root!r}; name shards by --splits=train+val"
            )
        return there
    if name not in data.DATASETS:
        raise ValueError(
            f"prepare check: --data must be a known set, got {name!r};"
            f" {spec.did_you_mean(name, data.DATASETS)}"
        )
    return [split for split in known if split in there] or list(known)


def _decode(source: spec.Source) -> list[tuple[int, str]]:
    """Decodes all images; returns the numbers and reasons of those that do not."""
    with (
        futures.ThreadPoolExecutor(reading.WORKERS) as pool,
        console.bar(f"decoding {source.name}", len(source)) as progress,
    ):
        wrong = functools.partial(_wrong, source)
        order = getattr(source, "store", None)
        order = range(len(source)) if order is None else order.order()
        found = []
        for done, (index, why) in enumerate(reading.ahead(pool, wrong, order, 64), 1):
            progress(done, len(source))
            if why:
                found.append((int(index), why))
    return sorted(found)


def _wrong(source: spec.Source, index: int) -> str:
    try:
        source[int(index)]
    except ValueError as error:
        return str(error)
    return ""


_HEAD = ("split", "images", "classes", "a class", "damaged", "fingerprint", "note")


def _line(split: str, source: spec.Source, damaged: int) -> tuple[Any, ...]:
    counts = np.bincount(source.columns["label"], minlength=len(source.classes))
    span = f"{counts.min():,} to {counts.max():,}"
    return (
        split,
        f"{len(source):,}",
        f"{len(source.classes):,}",
        span if counts.min() < counts.max() else f"{counts.min():,}",
        damaged,
        source.fingerprint[:12],
        source.note,
    )


def _aligned(rows: list[tuple]) -> str:
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    lines = (
        "  ".join(str(cell).ljust(w) for cell, w in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def _images(source: spec.Source, good: list[int]) -> list[np.ndarray]:
    """An image of each of some classes, evenly over them."""
    labels = source.columns["label"]
    first = {int(labels[i]): i for i in reversed(good)}
    chosen = np.linspace(0, len(first) - 1, min(_COLUMNS, len(first))).astype(int)
    ids = sorted(first)
    return [source[first[ids[k]]]["image"] for k in chosen]
