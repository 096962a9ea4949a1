"""A figure with samples of each split of a data set.

jbias prepare samples --data=shapes --out=docs/shapes.png
jbias prepare samples --data=shapes --correlation=0 --size=64 --out=x.png
jbias prepare samples --data=pacs --root=/data/pacs --out=pacs.png
"""

import argparse

import numpy as np

from jbias import data
from jbias.prepare import dataset

_CLASSES = 16  # At most so many columns.


def add(parser) -> None:
    """Adds the arguments of the subcommand."""
    parser.argument_default = argparse.SUPPRESS  # Left out: the set's default.
    add = parser.add_argument
    add("--data", default="shapes", help=f"one of {', '.join(data.DATASETS)}")
    add("--out", required=True, help="the figure: .png, .pdf or .svg")
    add("--splits", default="", help="a+b+c; all known ones if empty")
    add("--index", type=int, default=0, help="which image of each class")
    add("--size", type=int, default=32, help="pixels")
    add("--root", help="the folder of a data set of files")
    add("--correlation", type=float, help="of texture and class, shapes only")
    add("--seed", type=int, help="of the drawing, shapes only")


def run(args: argparse.Namespace) -> str:
    """Writes a figure with one image for each split and class; returns what it did.

    Raises ValueError for an unknown data set, split or option, and where a class has
    too few images.
    """
    options = dataset.select(args, "size", "root", "correlation", "seed")
    rows, cite = _rows(args.data, args.splits, args.index, options)
    classes = list(next(iter(rows.values())))
    images = {split: list(by_class.values()) for split, by_class in rows.items()}
    dataset.write_sheet(args.out, images, titles=classes, foot=cite)
    return f"{args.out}: {len(rows)} splits, {len(classes)} classes of {args.data}"


def _rows(name, splits, index, options):
    """Picks the images: split -> class -> image; and the citation."""
    if index < 0:
        raise ValueError(f"prepare samples: --index must be 0 or more, got {index}")
    chosen = splits.split("+") if splits else list(data.find(name).splits)
    if not chosen:
        known = ", ".join(k for k, entry in data.DATASETS.items() if entry.splits)
        must = f"prepare samples: --splits must name splits of {name!r}"
        raise ValueError(f"{must}, got none; optional for {known}")
    rows = {}
    for split in chosen:
        source = data.load(name, split, **options)
        rows[split] = {}
        for k, label in enumerate(source.classes[:_CLASSES]):
            found = np.flatnonzero(source.columns["label"] == k)
            if index >= len(found):
                must = f"prepare samples: {split}/{label} must have an image {index}"
                got = f"got {len(found)} images"
                raise ValueError(f"{must}, {got}; choose a smaller --index")
            rows[split][label] = source[int(found[index])]["image"]
    if len({tuple(images) for images in rows.values()}) > 1:
        must = "prepare samples: all splits must have the same classes, got others"
        raise ValueError(f"{must} in {', '.join(rows)}; name splits that agree")
    return rows, source.cite
