"""Draw a figure with one image of each split and class of a data set.

jbias prepare samples --data=shapes --out=docs/shapes.png
jbias prepare samples --data=shapes --correlation=0 --size=64 --out=x.png
jbias prepare samples --data=pacs --root=/data/pacs --out=pacs.png

The figure has a row per split and a column per class, for the first 16 classes.
"""

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import UInt8

from jbias import data
from jbias.prepare import dataset

_MAX_CLASSES = 16  # Columns of the figure.


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `jbias prepare samples` to its parser."""
    parser.argument_default = argparse.SUPPRESS  # Left out: the data set's default.
    add = parser.add_argument
    add("--data", default="shapes", metavar="NAME", help=dataset.data_help("shapes"))
    out_help = "file to write the figure into, ending in .png, .pdf or .svg"
    add("--out", required=True, metavar="FILE", help=out_help)
    splits_help = (
        "splits to draw, joined by +, such as train+test (default: all splits "
    )
    splits_help += "of published data sets; required for your own data sets)"
    add("--splits", default="", metavar="A+B", help=splits_help)
    index_help = "which image of each class to draw, counted from 0 (default: 0, the "
    index_help += "first image)"
    add("--index", type=int, default=0, metavar="N", help=index_help)
    size_help = "side of the images in pixels (default: 32)"
    add("--size", type=int, default=32, metavar="PIXELS", help=size_help)
    add("--root", metavar="DIR", help=dataset.ROOT_HELP)
    add("--correlation", type=float, metavar="SHARE", help=dataset.CORRELATION_HELP)
    add("--seed", type=int, metavar="N", help=dataset.DATA_SEED_HELP)


def run(args: argparse.Namespace) -> str:
    """Write a figure with an image of each split and class; return a line with the counts.

    Only the first 16 classes are drawn. args: the flags of `add`. ValueError for an unknown
    data set, split or option, for a user's data set without --splits, if a class has too few
    images, and if splits have different classes.
    """
    options = dataset.select(args, "size", "root", "correlation", "seed")
    rows, cite = _rows(args.data, args.splits, index=args.index, options=options)
    classes = list(next(iter(rows.values())))
    images = {split: list(by_class.values()) for split, by_class in rows.items()}
    dataset.write_sheet(args.out, images, titles=classes, foot=cite)
    return f"{args.out}: {len(rows)} splits, {len(classes)} classes of {args.data}"


def _rows(
    name: str, splits: str, *, index: int, options: Mapping[str, Any]
) -> tuple[dict[str, dict[str, UInt8[np.ndarray, "h w 3"]]], str]:
    """Return {split: {class: image}}, for the first 16 classes, and the data set's citation.

    name: name of the data set. splits: "train+test"; "": all known splits. index: number of the
    image among the images of its class, from 0. options: options of the data set.
    ValueError: see `run`.
    """
    if index < 0:
        raise ValueError(f"prepare samples: --index must be 0 or more, got {index}")
    split_names = splits.split("+") if splits else list(data.find(name).splits)
    if not split_names:
        known = ", ".join(k for k, entry in data.DATASETS.items() if entry.splits)
        must = f"prepare samples: --splits must name splits of {name!r}"
        raise ValueError(f"{must}, got none; optional for {known}")
    rows = {}
    for split in split_names:
        source = data.load(name, split, **options)
        rows[split] = {}
        for k, label in enumerate(source.classes[:_MAX_CLASSES]):
            members = np.flatnonzero(source.columns["label"] == k)
            if index >= len(members):
                must = f"prepare samples: {split}/{label} must have an image {index}"
                got = f"got {len(members)} images"
                raise ValueError(f"{must}, {got}; choose a smaller --index")
            rows[split][label] = source[int(members[index])]["image"]
    if len({tuple(images) for images in rows.values()}) > 1:
        must = "prepare samples: all splits must have the same classes, got others"
        raise ValueError(f"{must} in {', '.join(rows)}; name splits that agree")
    return rows, source.cite
