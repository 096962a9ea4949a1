r"""Drops of accuracy of networks trained under shifts, and remedies.

    jbias report shifts --runs='runs/shifts/*' --out=report-shifts
    jbias report shifts --runs='runs/study/*/*/*' --out=report-shifts --tau=10

Reads workdirs of runs with config.train.shift, as `shift=C6,attribute=colour` after the colon
of --config makes them. Ranks recipes and attributes by the drop under a shift, with intervals,
tests and verdicts; shows the drop closed by remedies, drops by level, and the agreement of
models' ranks in and out of distribution. Writes to --out: index.html (one page, readable
offline), tables/ (CSV, Parquet, LaTeX, Markdown), figures/ (SVG; --figures adds PDF and
PNG), results.json. For tables 1 to 3 of Hu, Sang, Wang and Jiang 2021 use jbias papers shifts.
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
    text = "workdirs of runs, or globs of them; those without a shift are left out"
    add("--runs", **cli.WORKDIRS, required=True, help=text)
    out = cli.OUT | {"required": False, "default": "report-shifts"}
    add("--out", **out, help="folder of the report (default: %(default)s)")
    cli.add_figures(arguments)
    text = "rule that selects the evaluation of a seed (default: %(default)s)"
    rules = ("best_validation", "last_n", "oracle")
    add("--selection", choices=rules, default=rules[0], help=text)
    text = "number of last evaluations that last_n averages (default: 30 %% of them)"
    add("--last", type=cli.at_least_1, metavar="N", help=text)
    text = "a drop is a bug if it exceeds that of the control by more than this, in points "
    text += "(default: %(default)g)"
    add("--tau", type=cli.positive, default=5.0, metavar="POINTS", help=text)
    add("--alpha", **cli.ALPHA, help="level of the tests (default: %(default)s)")
    text = "algorithm of the plain recipe, with which remedies are compared; a variant follows "
    text += "in brackets (default: %(default)s)"
    add("--reference", default="erm", metavar="ALGORITHM", help=text)
    text = "random draws of seeds and images for the intervals, at least 100"
    cli.add_count(arguments, "--draws", 100, 2_000, text)
    cli.add_count(arguments, "--seed", 0, 0, "seed of the random draws", metavar=None)
    return arguments


if __name__ == "__main__":
    sys.exit(main())
