r"""Compute rank correlations between measures of many models.

    jbias report correlate --table=examples/published/biases.csv --out=report \
        --x=shape,low_freq,high_freq --y=ID,Robustness,Concepts,Adversarial \
        --category=training --split=adversarial_training --size=epsilon

The table has one row per model: its name in the first column, then one column per measure.
For example, --given=imagenet adds partial rank correlations that control for the column
imagenet. Writes to --out: index.html (a page that can be read offline), tables/ (CSV,
Parquet, LaTeX, Markdown), figures/ (SVG; --figures adds PDF and PNG), results.json (all
numbers).
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

from jbias.report import csv_rows
from jbias.report import options as options_lib
from jbias.runtime import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Write the report; return 0, or 2 with one line on stderr for wrong input.

    argv: arguments of the command line; None for `sys.argv[1:]`.
    """
    return options_lib.run(_parser(), _write, argv)


def _write(args: argparse.Namespace) -> list[str]:
    """Write the report for the parsed flags `args`; return the lines to print.

    The lines are the headline, the sentences on data and tests below the headline of the page (the
    entry "basis" of results.json), and "written: <path of the page>".
    """
    # Imported late: --help and argument errors should not wait for these imports.
    from jbias.report import document
    from jbias.report.pages.correlations import correlations_page, model_correlations

    options = model_correlations.CorrelationOptions(
        x=args.x,
        y=args.y,
        category=args.category,
        among=tuple(args.among),
        given=args.given,
        split=args.split,
        size=args.size,
        method=args.method,
        adjust=args.adjust,
        alpha=args.alpha,
        permutations=args.permutations,
        seed=args.seed,
    )
    _check(options)
    frame = read(args.table, options.measures, options.category, options.size)
    report = correlations_page.report(
        model_correlations.analyse(frame, options, source=args.table)
    )
    written = document.write(report, pathlib.Path(args.out), figures=args.figures)
    return [*report.answer, written]


def read(
    path: str, measures: Sequence[str], category: str, size: str | None
) -> "pd.DataFrame":
    """Return a frame with one row per model, indexed by the model's name.

    Columns: `measures` and `size` as numbers, `category` as text.

    path: a CSV file with a line per model, whose first column has the names. Cells of `size` may be
    empty (NaN). Raises ValueError with file and line for missing columns, models that occur twice,
    an empty name or category, and measures that are not finite numbers. Also raises ValueError if
    `category` is a column of numbers that differ between all models.
    """
    import pandas as pd

    sizes = [size] if size else []
    columns = [*measures, category, *sizes]
    rows = {}
    for model, (place, row) in csv_rows.read_named(path, columns, category).items():
        rows[model] = {category: row[category]}
        for name in (*measures, *sizes):
            needed = name in measures or row[name] != ""
            number = csv_rows.parse_number(row[name], name, place, needed=needed)
            rows[model][name] = number
    frame = pd.DataFrame.from_dict(rows, orient="index")
    numbers = pd.to_numeric(frame[category], "coerce")
    if len(frame) > 1 and frame[category].is_unique and numbers.notna().all():
        raise ValueError(
            f"--category: must be a column of categories, got {category!r}, which has a "
            "different number for each model; name the column with the models' categories"
        )
    return frame


def _check(options: "model_correlations.CorrelationOptions") -> None:
    """Raise ValueError for options that contradict each other.

    Contradictions are a measure of `given` that is also in x or y, `given` with Kendall's tau, a
    category that is a measure, and a size that is the category.
    """
    for name in options.given:
        if name in (*options.x, *options.y):
            raise ValueError(
                f"--given: must be no measure of --x or --y, got {name!r}; remove it from "
                "one of these flags"
            )
    if options.given and options.method != "spearman":
        raise ValueError(
            f"--given: needs --method=spearman, got {options.method}; remove one of these flags"
        )
    flags = [("--x", options.x), ("--y", options.y), ("--given", options.given)]
    flags += [("--among", names) for names in options.among]
    for flag, measures in flags:
        if options.category in measures:
            raise ValueError(
                f"--category: must be no measure, got {options.category!r}, which {flag} "
                "names, too; name the column with the models' categories"
            )
    if options.size == options.category:
        raise ValueError(
            f"--size: must be a column of numbers, got {options.size!r}, which --category "
            "names, too; name another column or remove the flag"
        )


def _parser() -> argparse.ArgumentParser:
    """Return the argument parser of `jbias report correlate`."""
    parser = cli.Parser("report.correlate", __doc__)
    add = parser.add_argument
    add(
        "--table",
        required=True,
        metavar="CSV",
        help="CSV file with a header and one row per model, whose first column has the names "
        "of the models",
    )
    add(
        "--x",
        required=True,
        type=cli.names,
        metavar="A,B",
        help="columns of --table to correlate with the columns of --y, such as biases",
    )
    add(
        "--y",
        required=True,
        type=cli.names,
        metavar="A,B",
        help="columns of --table to correlate with the columns of --x, such as accuracies",
    )
    add(
        "--category",
        required=True,
        metavar="COL",
        help="column with the category of each model, such as its training method; it sets the "
        "colour of the markers, and partial correlations control for it",
    )
    add("--out", **cli.OUT, help="folder to write the report into")
    cli.add_figures(parser)
    add(
        "--among",
        action="append",
        default=[],
        type=cli.names,
        metavar="A,B",
        help="columns to correlate with each other; repeat the flag for several groups of "
        "columns (default: no group)",
    )
    add(
        "--given",
        default=(),
        type=cli.names,
        metavar="A,B",
        help="also compute partial correlations of --x and --y that control for these columns, "
        "such as accuracy (default: no partial correlations)",
    )
    add(
        "--split",
        metavar="KIND",
        help="also correlate over the models of this category alone, and over all other models "
        "alone (default: only over all models)",
    )
    add(
        "--size",
        metavar="COL",
        help="column of numbers that sets the area of the markers; cells may be empty "
        "(default: markers of one size)",
    )
    add(
        "--method",
        choices=("spearman", "kendall"),
        default="spearman",
        help="rank correlation: Spearman's rho or Kendall's tau (default: %(default)s)",
    )
    cli.add_permutation_flags(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
