"""Looks at every image of a set: are all there, and does each decode?

jbias prepare check --src=data/photos
jbias prepare check --data=pacs --src=data/pacs --sheet=pacs.png
jbias prepare check --data=imagenet --src=data/imagenet --list=damaged.json

Prints a line for each split: images, classes, the smallest and the largest class, the
published count where one is known, damaged images, and the fingerprint that runs record.
Exit code 1 if an image is damaged: each is named, and training would refuse them. The
set's option skip=damaged.json in a config leaves out what such a list names.
"""

import argparse
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from jbias import config as jc
from jbias import data, prepare
from jbias.data import base, set_options
from jbias.data.forms import listing
from jbias.prepare import dataset
from jbias.runtime import console, messages, outputs

_NAMED = 20  # Damaged images that are printed.
_COLUMNS = 12


def add(parser) -> None:
    """Adds the arguments of the subcommand."""
    add = parser.add_argument
    add("--src", required=True, help="the folder of the set, its `root`")
    add("--data", default="folder", help=f"one of {', '.join(data.DATASETS)}")
    add("--splits", default="", help="a+b+c; all there are if empty")
    add("--size", type=int, default=64, help="pixels of the images on the sheet")
    add("--sheet", default="", help="a figure with an image of some classes, .png")
    add("--space", default="", help="what class folders are named by, folder only")
    add("--classes", default="", help="a file of class names, folder only")
    add("--options", default="", help="further options of the set: subset=True,a=b")
    add("--list", default="", help="writes the damaged ones for the option skip, .json")


def run(args: argparse.Namespace) -> list[str]:
    """Checks all splits; returns the lines of a table.

    Raises ValueError for what is no set, and prepare.DamagedImages, with the table, where
    an image does not decode.
    """
    console.silence_warnings()
    options = dataset.select(args, "size", "space", "classes")
    options = {key: value for key, value in options.items() if value != ""}
    options |= dataset.parse_options("prepare check", args.options)
    if args.list:  # What cannot be written is refused before images are decoded.
        outputs.check_made_by(args.list, set_options.MADE_BY, flag="--list")
    if args.sheet:
        outputs.check_file(args.sheet, flag="--sheet")
    lines, rows, noted, reasons = [], {}, {}, []
    for split, source in _opened(args.data, args.src, args.splits, options):
        bad = dict(_decode(source))
        noted[split] = set_options.damaged_entry(source, bad)
        lines.append(_line(split, source, len(bad)))
        reasons += bad.values()
        rows[split] = _images(source, [i for i in range(len(source)) if i not in bad])
    if args.list:
        set_options.write_damaged(args.list, noted)
    table = messages.align_columns([_HEAD, *lines])
    if args.sheet and (shown := {split: some for split, some in rows.items() if some}):
        dataset.write_sheet(args.sheet, shown, foot=source.cite)
        table.append(f"{args.sheet} shows some")
    if reasons:
        table += [f"damaged: {why}" for why in reasons[:_NAMED]]
        more = len(reasons) - _NAMED
        raise prepare.DamagedImages(table + [f"and {more} more"] * (more > 0))
    return table


def _opened(name, src, splits, options) -> Iterator[tuple[str, base.Source]]:
    """Opens the splits that are asked for, else those that are there, one by one."""
    missing, found = [], False
    for split in splits.split("+") if splits else _splits(name, src):
        try:
            yield split, data.load(name, split, root=src, **options)
            found = True
        except base.Missing as error:
            if splits:
                raise
            missing.append(error)
    if not found:
        raise missing[0]


def _splits(name: str, src: str) -> list[str]:
    """The known splits of a set, or all folders of a user's own."""
    root = listing.require_folder("prepare check", os.path.expanduser(src), "--src")
    jc.check_known("prepare check: --data", name, data.DATASETS)
    folders = (one.name for one in os.scandir(root) if one.is_dir())
    there = sorted(name for name in folders if name[0] != ".")
    if not (splits := data.DATASETS[name].splits or there):
        must = "prepare check: --src must have a folder for each split, got none"
        raise ValueError(f"{must} in {root!r}; name shards by --splits=train+val")
    return list(splits)


def _decode(source: base.Source) -> list[tuple[int, str]]:
    """Decodes all images; returns the numbers and reasons of those that do not."""
    store = getattr(source, "store", None)
    order = range(len(source)) if store is None else store.order()

    def wrong(index: int) -> str:
        try:
            source[int(index)]
        except ValueError as error:
            return str(error)
        return ""

    title = f"decoding {source.name}"
    with dataset.map_ahead(title, wrong, order, len(source), ahead=64) as results:
        return sorted((int(index), why) for index, why in results if why)


_HEAD = ("split", "images", "classes", "a class", "damaged", "fingerprint", "note")


def _line(split: str, source: base.Source, damaged: int) -> tuple[Any, ...]:
    counts = np.bincount(source.columns["label"], minlength=len(source.classes))
    each = " to ".join(f"{n:,}" for n in sorted({counts.min(), counts.max()}))
    sizes = f"{len(source):,}", f"{len(source.classes):,}", each
    return split, *sizes, damaged, source.fingerprint[:12], source.note


def _images(source: base.Source, good: list[int]) -> list[np.ndarray]:
    """An image of each of some classes, evenly over them."""
    labels = source.columns["label"]
    first = {int(labels[i]): i for i in reversed(good)}
    chosen = np.linspace(0, len(first) - 1, min(_COLUMNS, len(first))).astype(int)
    ids = sorted(first)
    return [source[first[ids[k]]]["image"] for k in chosen]
