"""Makes data sets and shows what is in them.

    python -m jbias.prepare samples --data=shapes --out=docs/shapes.png
    python -m jbias.prepare samples --data=shapes --correlation=0 --size=64 --out=x.png
    python -m jbias.prepare samples --data=pacs --root=/data/pacs --out=pacs.png
    python -m jbias.prepare samples --help

Exit codes: 0 done, 2 what is asked cannot be done, in one line on standard error.
"""

import argparse
import os
import sys
from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8
from matplotlib import figure

from jbias import data

_CLASSES = 16  # At most so many columns.
_DPI = 100


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one subcommand; returns the exit code."""
    arguments = vars(_parser().parse_args(argv))
    command = arguments.pop("command")
    try:
        print(command(**arguments))
    except (ValueError, OSError) as error:
        if os.environ.get("JBIAS_TRACEBACK"):
            raise
        print(f"jbias: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m jbias.prepare", description=__doc__.splitlines()[0]
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add = commands.add_parser(
        "samples",
        help="a figure with samples of each split of a data set",
        description="Draws a figure: a row for each split, a column for each class.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        argument_default=argparse.SUPPRESS,  # Left out: the data set's own default.
    )
    add.set_defaults(command=samples)
    add.add_argument(
        "--data", default="shapes", help=f"one of {', '.join(data.DATASETS)}"
    )
    add.add_argument("--out", required=True, help="the figure: .png, .pdf or .svg")
    add.add_argument("--splits", default="", help="a+b+c; all known ones if empty")
    add.add_argument("--index", type=int, default=0, help="which image of each class")
    add.add_argument("--size", type=int, default=32, help="pixels")
    add.add_argument("--root", help="the folder of a data set of files")
    add.add_argument(
        "--correlation", type=float, help="of texture and class, shapes only"
    )
    add.add_argument("--seed", type=int, help="of the drawing, shapes only")
    return parser


def samples(data: str, out: str, *, splits: str, index: int, **options) -> str:
    """Writes a figure with one image for each split and class; returns what it did.

    Raises ValueError for an unknown data set, split or option, and where a class has
    too few images.
    """
    rows, cite = _rows(data, splits, index, options)
    classes = list(next(iter(rows.values())))
    cell = next(iter(rows[next(iter(rows))].values())).shape[0]
    cell *= max(1, 64 // cell)  # Whole pixels on whole pixels: nothing is resampled.
    left, top, gap = 90, 24, 3
    wide = left + len(classes) * (cell + gap)
    high = top + len(rows) * (cell + gap) + 18
    drawing = figure.Figure(figsize=(wide / _DPI, high / _DPI), dpi=_DPI)
    for i, (split, images) in enumerate(rows.items()):
        for j, name in enumerate(classes):
            x, y = left + j * (cell + gap), high - top - cell - i * (cell + gap)
            ax = drawing.add_axes((x / wide, y / high, cell / wide, cell / high))
            ax.imshow(images[name], interpolation="nearest")
            ax.set_axis_off()
            if i == 0:
                ax.set_title(name, fontsize=8, pad=4)
        middle = (y + cell / 2) / high
        drawing.text((left - 6) / wide, middle, split, ha="right", va="center", size=9)
    drawing.text(1 - 4 / wide, 5 / high, cite, ha="right", size=6)
    os.makedirs(os.path.dirname(out) or ".", exist_ok=True)
    drawing.savefig(out, dpi=_DPI)
    return f"{out}: {len(rows)} splits, {len(classes)} classes of {data}"


def _rows(
    name: str, splits: str, index: int, options: dict
) -> tuple[dict[str, dict[str, UInt8[np.ndarray, "size size 3"]]], str]:
    """Picks the images: split -> class -> image; and the citation."""
    if index < 0:
        raise ValueError(f"prepare samples: --index must be 0 or more, got {index}")
    if name not in data.DATASETS:
        data.load(name, splits)  # Says which name is nearest.
    chosen = splits.split("+") if splits else list(data.DATASETS[name].splits)
    if not chosen:
        with_splits = [k for k, entry in data.DATASETS.items() if entry.splits]
        raise ValueError(
            f"prepare samples: --splits must name splits of {name!r}, got none;"
            f" optional for {', '.join(with_splits)}"
        )
    rows = {}
    for split in chosen:
        source = data.load(name, split, **options)
        rows[split] = {}
        for k, label in enumerate(source.classes[:_CLASSES]):
            found = np.flatnonzero(source.columns["label"] == k)
            if index >= len(found):
                raise ValueError(
                    f"prepare samples: {split}/{label} must have an image {index}, got"
                    f" {len(found)} images; choose a smaller --index"
                )
            rows[split][label] = source[int(found[index])]["image"]
    if len({tuple(images) for images in rows.values()}) > 1:
        raise ValueError(
            "prepare samples: all splits must have the same classes, got others in"
            f" {', '.join(rows)}; name splits that agree"
        )
    return rows, source.cite


if __name__ == "__main__":
    sys.exit(main())
