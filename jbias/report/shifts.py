r"""Drops of accuracy of networks trained under shifts, and remedies.

    jbias report shifts --runs='runs/shifts/*' --out=report-shifts
    jbias report shifts --runs='runs/study/*/*/*' --out=report-shifts --tau=10

Reads the workdirs of runs trained under a shift: by `jbias study`, or by
`jbias train --config=configs/erm.py:shift=C6,attribute=colour`. Ranks training recipes and
attributes by the drop in accuracy under a shift, with intervals, tests and verdicts. Also shows
how much of the drop of plain training other algorithms (remedies) close, drops by level, and
the agreement of models' ranks in and out of distribution.

Writes to --out: index.html (one page, readable offline), tables/ (CSV, Parquet, LaTeX,
Markdown), figures/ (SVG; --figures adds PDF and PNG), results.json. For Tables 1 to 3 of Hu,
Sang, Wang and Jiang 2021 use `jbias papers shifts`.
"""

import argparse
import pathlib
import sys
from collections.abc import Callable, Sequence

from jbias.report import options
from jbias.runtime import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Write the report; return 0, or 2 with one line on stderr for wrong input.

    argv: arguments of the command line; None for `sys.argv[1:]`.
    """
    return options.run(parser(), write, argv, spread="--runs", moved="--printed")


def write(args: argparse.Namespace, extend: Callable | None = None) -> list[str]:
    """Write the report; return the lines to print.

    args: parsed flags of `parser`. extend: function of (page, study, args) that returns the page
    to write; None to write the page unchanged.
    """
    if args.last is not None and args.selection != "last_n":
        raise ValueError(
            "--last: is ignored without --selection=last_n; add this flag or remove --last"
        )
    # Imported late: --help and argument errors should not wait for these imports.
    from jbias.report import document, shift_page, shift_runs

    study = shift_runs.read(args.runs, selection=args.selection, last=args.last)
    page = shift_page.report(study, args)
    page = extend(page, study, args) if extend else page
    written = document.write(page, pathlib.Path(args.out), figures=args.figures)
    return [*page.answer, *study.notes, written]


def parser(command: str = "report.shifts", doc: str = __doc__) -> cli.Parser:
    """Return the argument parser of a command that reports shifts.

    command: name of the command after `jbias`. doc: text of its --help.
    """
    arguments = cli.Parser(command, doc)
    add = arguments.add_argument
    text = "workdirs of runs, or globs of workdirs; runs without a shift are left out"
    add("--runs", **cli.WORKDIRS, required=True, help=text)
    out = cli.OUT | {"required": False, "default": "report-shifts"}
    text = "folder to write the report into (default: %(default)s)"
    add("--out", **out, help=text)
    cli.add_figures(arguments)
    text = (
        "rule that selects the evaluation of each seed: best_validation (the highest "
    )
    text += "validation accuracy), last_n (the mean of the last evaluations) or oracle (the "
    text += (
        "best evaluation on each test set itself: an upper bound, not a valid result) "
    )
    text += "(default: %(default)s)"
    rules = ("best_validation", "last_n", "oracle")
    add("--selection", choices=rules, default=rules[0], help=text)
    text = "with --selection=last_n: number of last evaluations to average (default: 30 %% "
    text += "of all evaluations)"
    add("--last", type=cli.at_least_1, metavar="N", help=text)
    text = (
        "smallest drop that counts: an attribute is a 'bug' if its drop in accuracy is "
    )
    text += "significantly more than POINTS percentage points above the drop at the control "
    text += "level (default: %(default)g)"
    add("--tau", type=cli.positive, default=5.0, metavar="POINTS", help=text)
    text = "significance level of the tests, between 0 and 1 (default: %(default)s)"
    add("--alpha", **cli.ALPHA, metavar="P", help=text)
    text = "algorithm of plain training. All other algorithms are remedies, compared with it on "
    text += "the same network, data, attribute and level. A variant follows in brackets, as in "
    text += "--reference='NAME (VARIANT)' (default: %(default)s)"
    add("--reference", default="erm", metavar="ALGORITHM", help=text)
    text = "number of random draws of seeds and images for the intervals, at least 100"
    cli.add_count(arguments, "--draws", low=100, default=2_000, help=text)
    text = "random seed of these draws"
    cli.add_count(arguments, "--seed", low=0, default=0, help=text)
    return arguments


if __name__ == "__main__":
    sys.exit(main())
