r"""Correlates measures of many models, and reports what goes together with what.

    python -m jbias.report.correlate --table=examples/published/biases.csv --out=report \
        --x=shape,low_freq,high_freq --y=ID,Robustness,Concepts,Adversarial \
        --category=training --split=adversarial_training --size=epsilon

The table has one line a model: its name in the first column, a column for each measure.
Writes to --out: index.html (one page that needs no network), tables/*.csv and *.tex,
figures/*.svg and *.pdf, results.json.
"""

import argparse
import math
import pathlib
import sys
from collections.abc import Iterator, Sequence

from jbias.report import csv_rows
from jbias.runtime import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Makes the report; returns 0, or 2 with one line on stderr if that is impossible."""
    args = _parser().parse_args(argv)
    return cli.print_lines("correlate", lambda: _made(args))


def _made(args: argparse.Namespace) -> Iterator[str]:
    """Makes the report; returns what is to be told."""
    # Only now: --help and wrong arguments need none of it.
    from jbias.report import document, relation_page, relations

    _check(args)
    options = relations.Options(
        x=args.x,
        y=args.y,
        category=args.category,
        among=tuple(args.among),
        split=args.split,
        size=args.size,
        method=args.method,
        adjust=args.adjust,
        alpha=args.alpha,
        permutations=args.permutations,
        seed=args.seed,
    )
    frame = read(args.table, options.measures, options.category, options.size)
    study = relations.analyse(frame, options, source=args.table)
    report = relation_page.report(study)
    return iter([*report.answer, document.write(report, pathlib.Path(args.out))])


def read(path: str, measures: Sequence[str], category: str, size: str | None):
    """Gives a frame of models: measures as numbers, `category` as words.

    A cell of `size` may be empty. Raises ValueError by file and line for columns that are
    missing, models that occur twice, and what is no finite number.
    """
    import pandas as pd

    head, lines = csv_rows.read(path)
    wanted = [*measures, category, *([size] if size else [])]
    missing = [name for name in wanted if name not in head]
    if missing:
        raise ValueError(
            f"{path}:1: must name the column {missing[0]!r}, and names "
            f"{', '.join(head) or 'nothing'}"
        )
    rows, places = {}, {}
    for place, fields in lines:
        name = fields[head[0]]
        if not name or not fields[category]:
            raise ValueError(
                f"{place}: {head[0]} and {category} must not be empty; name them"
            )
        if places.setdefault(name, place) != place:
            raise ValueError(
                f"{place}: a model must occur once, got {name!r} of {places[name]} again"
            )
        rows[name] = {m: _number(fields[m], m, place) for m in measures}
        rows[name][category] = fields[category]
        if size and size not in rows[name]:
            empty = not fields[size]
            rows[name][size] = math.nan if empty else _number(fields[size], size, place)
    return pd.DataFrame.from_dict(rows, orient="index")


def _check(args: argparse.Namespace) -> None:
    """Refuses options that contradict each other."""
    if args.seed < 0:
        raise ValueError(f"--seed: must be 0 or larger, got {args.seed}")
    for flag, measures in [("--x", args.x), ("--y", args.y)] + [
        ("--among", measures) for measures in args.among
    ]:
        if args.category in measures:
            raise ValueError(
                f"--category: must be no measure, got {args.category!r}, which {flag} "
                "names too; name the column with the models' kinds"
            )
    if args.size == args.category:
        raise ValueError(
            f"--size: must be a column of numbers, got {args.size!r}, which --category "
            "names too; name another or leave it out"
        )


def _number(field: str, name: str, place: str) -> float:
    try:
        value = float(field)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(
            f"{place}: {name} must be a finite number, got {field!r}; correct it, or leave "
            "the model or the measure out"
        )
    return value


def _parser() -> argparse.ArgumentParser:
    parser = cli.Parser("report.correlate", __doc__)
    add = parser.add_argument
    add("--table", required=True, metavar="CSV", help="one line a model, with a header")
    add(
        "--x",
        required=True,
        type=cli.names,
        metavar="A,B",
        help="measures, such as biases",
    )
    add(
        "--y",
        required=True,
        type=cli.names,
        metavar="C,D",
        help="measures to correlate with, such as averages of accuracies",
    )
    add(
        "--category",
        required=True,
        metavar="COL",
        help="column with each model's kind: it colours, and partial correlations "
        "control for it",
    )
    add("--out", **cli.OUT, help="folder of the report")
    add(
        "--among",
        type=cli.names,
        action="append",
        default=[],
        metavar="E,F",
        help="measures to correlate among themselves; may be given again",
    )
    add(
        "--split",
        metavar="KIND",
        help="also correlate within this category and without it",
    )
    add("--size", metavar="COL", help="column that sizes markers; cells may be empty")
    add("--method", choices=("spearman", "kendall"), default="spearman")
    cli.add_permutation_flags(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
