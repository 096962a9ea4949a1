r"""Correlates measures of many models, and reports what goes together with what.

    jbias report correlate --table=examples/published/biases.csv --out=report \
        --x=shape,low_freq,high_freq --y=ID,Robustness,Concepts,Adversarial \
        --category=training --split=adversarial_training --size=epsilon

The table has one line a model: its name in the first column, a column for each measure.
--given=imagenet also correlates what is left given that measure: partial rank correlations.
Writes to --out: index.html (one page that needs no network), tables/ (CSV, Parquet, LaTeX,
Markdown), figures/ (SVG; --figures adds PDF and PNG), results.json.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from jbias.report import csv_rows
from jbias.report import options as options_lib
from jbias.runtime import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Makes the report; returns 0, or 2 with one line on stderr if that is impossible."""
    return options_lib.run(_parser(), lambda args: _made(**vars(args)), argv)


def _made(table: str, out: str, figures: Sequence[str], **asked: Any) -> list[str]:
    """Makes the report; returns what is to be told."""
    # Only now: --help and wrong arguments need none of it.
    from jbias.report import document, relations

    options = relations.Options(**asked | {"among": tuple(asked["among"])})
    _check(options)
    frame = read(table, options.measures, options.category, options.size)
    report = relations.report(relations.analyse(frame, options, source=table))
    written = document.write(report, pathlib.Path(out), figures=figures)
    return [*report.answer, written]


def read(path: str, measures: Sequence[str], category: str, size: str | None):
    """Gives a frame of models: measures as numbers, `category` as words.

    A cell of `size` may be empty. Raises ValueError by file and line for columns that are
    missing, models that occur twice, and what is no finite number.
    """
    import pandas as pd

    sizes = [size] if size else []
    needed, rows = [*measures, category, *sizes], {}
    for model, (place, of) in csv_rows.read_named(path, needed, category).items():
        rows[model] = {category: of[category]}
        for name in (*measures, *sizes):
            filled = name in measures or of[name] != ""
            number = csv_rows.parse_number(of[name], name, place, needed=filled)
            rows[model][name] = number
    frame = pd.DataFrame.from_dict(rows, orient="index")
    numbers = pd.to_numeric(frame[category], "coerce")
    if len(frame) > 1 and frame[category].is_unique and numbers.notna().all():
        told = f"--category: must be a column of kinds, got {category!r}, another"
        remedy = "name the column with their kinds"
        raise ValueError(f"{told} number for each model; {remedy}")
    return frame


def _check(options: "relations.Options") -> None:
    """Refuses options that contradict each other."""
    given = [("--x", options.x), ("--y", options.y)]
    for name in options.given:
        if name in (*options.x, *options.y):
            told = f"--given: must be no measure of --x or --y, got {name!r}"
            raise ValueError(f"{told}, of which nothing is left; take it out of one")
    if options.given and options.method != "spearman":
        told = f"--given: needs --method=spearman, got {options.method}; leave one out"
        raise ValueError(told)
    given += [("--given", options.given)]
    for flag, measures in given + [("--among", names) for names in options.among]:
        if options.category in measures:
            told = f"--category: must be no measure, got {options.category!r}, which"
            remedy = "name the column with the models' kinds"
            raise ValueError(f"{told} {flag} names too; {remedy}")
    if options.size == options.category:
        told = f"--size: must be a column of numbers, got {options.size!r}, which --category"
        raise ValueError(f"{told} names too; name another or leave it out")


def _parser() -> argparse.ArgumentParser:
    parser = cli.Parser("report.correlate", __doc__)
    add = parser.add_argument
    add("--table", required=True, metavar="CSV", help="one line a model, with a header")
    some = dict(type=cli.names, metavar="A,B")
    add("--x", required=True, **some, help="measures, such as biases")
    what = "measures to correlate with, such as averages of accuracies"
    add("--y", required=True, **some, help=what)
    what = "column with each model's kind: it colours, and partial correlations control for it"
    add("--category", required=True, metavar="COL", help=what)
    add("--out", **cli.OUT, help="folder of the report")
    cli.add_figures(parser)
    what = "measures to correlate among themselves; may be given again"
    add("--among", action="append", default=[], **some, help=what)
    what = "also correlate what is left given these measures, such as accuracy"
    add("--given", default=(), **some, help=what)
    what = "also correlate within this category and without it"
    add("--split", metavar="KIND", help=what)
    add("--size", metavar="COL", help="column that sizes markers; cells may be empty")
    add("--method", choices=("spearman", "kendall"), default="spearman")
    cli.add_permutation_flags(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
