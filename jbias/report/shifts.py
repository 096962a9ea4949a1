r"""Reports networks trained under chosen shifts: which attribute hurts, and what helps.

    jbias report shifts --runs='runs/shifts/*' --out=report-shifts
    jbias report shifts --runs='runs/study/*/*/*' --out=report-shifts --tau=10

From workdirs of runs with config.train.shift, as `shift=C6,attribute=colour` after the colon
of --config makes them. Ranks recipes and attributes by what a shift costs, with intervals,
tests and verdicts; shows what remedies close, drops over levels, and whether models rank
alike in and out of distribution. Writes to --out: index.html (one page that needs no
network), tables/ (CSV, Parquet, LaTeX, Markdown), figures/ (SVG; --figures adds PDF and
PNG), results.json. Tables 1 to 3 of Hu, Sang, Wang and Jiang 2021 are of jbias papers shifts.
"""

import argparse
import pathlib
import sys
from collections.abc import Callable, Sequence

from jbias.report import options
from jbias.runtime import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Makes the report; returns 0, or 2 with one line on stderr if that is impossible."""
    return options.run(parser(), made, argv, spread="--runs", moved="--printed")


def made(args: argparse.Namespace, extend: Callable | None = None) -> list[str]:
    """Makes the report; returns what is to be told. extend: what makes of a page another."""
    if args.last is not None and args.selection != "last_n":
        raise ValueError("--last has no say without --selection=last_n")
    # Only now: --help and wrong arguments need none of it.
    from jbias.report import document, shift_page, shift_runs

    study = shift_runs.read(args.runs, selection=args.selection, last=args.last)
    page = shift_page.report(study, args)
    page = extend(page, study, args) if extend else page
    written = document.write(page, pathlib.Path(args.out), figures=args.figures)
    return [*page.answer, *study.notes, written]


def parser(command: str = "report.shifts", doc: str = __doc__) -> cli.Parser:
    """Gives what reads the arguments of every report of shifts."""
    found = cli.Parser(command, doc)
    add = found.add_argument
    what = "workdirs of runs, or globs of them; those without a shift are left out"
    add("--runs", **cli.WORKDIRS, required=True, help=what)
    out = cli.OUT | {"required": False, "default": "report-shifts"}
    add("--out", **out, help="folder of the report (default: %(default)s)")
    cli.add_figures(found)
    what = "which evaluation of a seed counts (default: %(default)s)"
    rules = ("best_validation", "last_n", "oracle")
    add("--selection", choices=rules, default=rules[0], help=what)
    what = "evaluations that last_n averages (default: 30 %% of them)"
    add("--last", type=cli.at_least_1, metavar="N", help=what)
    what = "a drop is a bug if its interval, less the control's, lies above this "
    what += "(default: %(default)g)"
    add("--tau", type=cli.positive, default=5.0, metavar="POINTS", help=what)
    add("--alpha", **cli.ALPHA, help="level of the tests (default: %(default)s)")
    what = "the plain recipe's algorithm, with which remedies are compared, with its variant "
    what += "in brackets if it has one (default: %(default)s)"
    add("--reference", default="erm", metavar="ALGORITHM", help=what)
    what = "draws of seeds and images behind an interval, at least 100"
    cli.add_count(found, "--draws", 100, 2_000, what)
    cli.add_count(found, "--seed", 0, 0, "of the draws", metavar=None)
    return found


if __name__ == "__main__":
    sys.exit(main())
