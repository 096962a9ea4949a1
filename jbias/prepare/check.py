"""Decode and count every image of a data set.

jbias prepare check --src=data/photos
jbias prepare check --data=pacs --src=data/pacs --sheet=pacs.png
jbias prepare check --data=imagenet --src=data/imagenet --list=damaged.json

Prints a line for each split: the number of images and classes, the sizes of the smallest and
the largest class, the published number of images if it differs, the number of damaged images,
and the fingerprint (a checksum) that runs record. Training stops at a damaged image, unless the
config leaves out the images of a list by skip=damaged.json (see --list).

Exit codes: 0 no image is damaged; 1 an image is damaged, and its path is printed; 2 an error.
"""

import argparse
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from jbias import data, errors, prepare
from jbias.data import base, set_options
from jbias.data.forms import listing
from jbias.prepare import dataset
from jbias.runtime import console, messages, outputs

_MAX_NAMED = 20  # Damaged images that are printed.
_COLUMNS = 12


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `jbias prepare check` to its parser."""
    add = parser.add_argument
    src_help = "folder of the data set, the same as root=DIR in a config"
    add("--src", required=True, metavar="DIR", help=src_help)
    add("--data", default="folder", metavar="NAME", help=dataset.data_help("folder"))
    splits_help = (
        "splits to check, joined by +, such as train+val (default: all splits; "
    )
    splits_help += "for your own data sets, all folders in --src)"
    add("--splits", default="", metavar="A+B", help=splits_help)
    size_help = "side in pixels of the images in the figure of --sheet (default: 64)"
    add("--size", type=int, default=64, metavar="PIXELS", help=size_help)
    sheet_help = (
        "file to write a figure into, ending in .png, with one image of each of up "
    )
    sheet_help += f"to {_COLUMNS} classes (default: no figure)"
    add("--sheet", default="", metavar="FILE", help=sheet_help)
    space_help = f"{dataset.SPACE_HELP} (default: names)"
    add("--space", default="", metavar="KIND", help=space_help)
    classes_help = (
        "only for --data=folder, if its shards have labels that are numbers: "
    )
    classes_help += "file with one class name per line, from label 0 (default: the names in the data set)"
    add("--classes", default="", metavar="FILE", help=classes_help)
    options_help = (
        "further options of the data set, separated by commas (docs/data.md), such as "
    )
    options_help += "subset=True for --data=imagenet (default: no further options)"
    add("--options", default="", metavar="KEY=VALUE,...", help=options_help)
    list_help = (
        "file to write a list of the damaged images into, ending in .json, for the "
    )
    list_help += "argument skip of a config (default: no list)"
    add("--list", default="", metavar="FILE", help=list_help)


def run(args: argparse.Namespace) -> list[str]:
    """Decode all images of all splits; return a table: a header and a line per split.

    Also write the figure --sheet, named in a further line, and the list --list, if given.
    args: the flags of `add`. ValueError if there is no data set. prepare.DamagedImages, with
    the table and the damaged images, if an image does not decode.
    """
    console.silence_warnings()
    options = dataset.select(args, "size", "space", "classes")
    options = {key: value for key, value in options.items() if value != ""}
    options |= dataset.parse_options("prepare check", args.options)
    if args.list:  # Fail before images are decoded.
        outputs.check_made_by(args.list, set_options.MADE_BY, flag="--list")
    if args.sheet:
        outputs.check_file(args.sheet, flag="--sheet")
    lines, rows, entries, reasons = [], {}, {}, []
    for split, source in _open_splits(
        args.data, args.src, splits=args.splits, options=options
    ):
        damaged = dict(_find_damaged(source))
        entries[split] = set_options.damaged_entry(source, damaged)
        lines.append(_line(split, source, len(damaged)))
        reasons += damaged.values()
        intact = [i for i in range(len(source)) if i not in damaged]
        images = _sample_images(source, intact)
        if images:
            rows[split] = images
    if args.list:
        set_options.write_damaged(args.list, entries)
    table = messages.align_columns([_HEAD, *lines])
    if args.sheet and rows:
        dataset.write_sheet(args.sheet, rows, foot=source.cite)
        table.append(f"{args.sheet} shows some")
    if reasons:
        table += [f"damaged: {reason}" for reason in reasons[:_MAX_NAMED]]
        if len(reasons) > _MAX_NAMED:
            table.append(f"and {len(reasons) - _MAX_NAMED} more")
        raise prepare.DamagedImages(table)
    return table


def _open_splits(
    name: str, src: str, *, splits: str, options: Mapping[str, Any]
) -> Iterator[tuple[str, base.Source]]:
    """Yield the name and the source of each split.

    name: name of the data set. src: its folder. splits: "train+val"; "": all existing splits.
    options: options of the data set. base.Missing if a split in `splits`, or every known split,
    does not exist.
    """
    missing, any_exists = [], False
    for split in splits.split("+") if splits else _splits(name, src):
        try:
            yield split, data.load(name, split, root=src, **options)
            any_exists = True
        except base.Missing as error:
            if splits:
                raise
            missing.append(error)
    if not any_exists:
        raise missing[0]


def _splits(name: str, src: str) -> list[str]:
    """Return the known splits of a data set or, if none is known, the folders in `src`.

    Hidden folders are left out. name: name of the data set. ValueError if `name` is unknown, if
    `src` is not a folder, and if no split is known and `src` contains no folder.
    """
    root = listing.require_folder("prepare check", os.path.expanduser(src), "--src")
    errors.check_known("prepare check: --data", name, data.DATASETS)
    folders = sorted(
        entry.name
        for entry in os.scandir(root)
        if entry.is_dir() and entry.name[0] != "."
    )
    splits = data.DATASETS[name].splits or folders
    if not splits:
        must = "prepare check: --src must have a folder for each split, got none"
        raise ValueError(f"{must} in {root!r}; name shards by --splits=train+val")
    return list(splits)


def _find_damaged(source: base.Source) -> list[tuple[int, str]]:
    """Return (index, error message) of each image that does not decode, sorted by index."""
    store = getattr(source, "store", None)
    order = range(len(source)) if store is None else store.order()

    def decode(index: int) -> str:
        """Decode an image; return the error, or ""."""
        try:
            source[int(index)]
        except ValueError as error:
            return str(error)
        return ""

    title = f"decoding {source.name}"
    with dataset.map_ahead(
        title, decode, items=order, total=len(source), ahead=64
    ) as results:
        return sorted((int(index), error) for index, error in results if error)


_HEAD = ("split", "images", "classes", "a class", "damaged", "fingerprint", "note")


def _line(split: str, source: base.Source, num_damaged: int) -> tuple[Any, ...]:
    """Return the cells of a split's line in the table, in the order of _HEAD.

    The cells are texts: name of the split, number of images, number of classes, images of the
    smallest and of the largest class, number of damaged images (an int), the first 12 digits of the
    fingerprint, and the source's note. num_damaged: number of damaged images.
    """
    counts = np.bincount(source.columns["label"], minlength=len(source.classes))
    class_sizes = " to ".join(f"{n:,}" for n in sorted({counts.min(), counts.max()}))
    return (
        split,
        f"{len(source):,}",
        f"{len(source.classes):,}",
        class_sizes,
        num_damaged,
        source.fingerprint[:12],
        source.note,
    )


def _sample_images(source: base.Source, intact: list[int]) -> list[np.ndarray]:
    """Return the first intact image of each of up to _COLUMNS classes, evenly spaced.

    [] if no image is intact. intact: ascending indices of the images that decode.
    """
    labels = source.columns["label"]
    first = {int(labels[i]): i for i in reversed(intact)}
    count = min(_COLUMNS, len(first))
    columns = np.linspace(0, len(first) - 1, count).astype(int)
    ids = sorted(first)
    return [source[first[ids[k]]]["image"] for k in columns]
