r"""Reports networks trained under chosen shifts: which attribute hurts, and what helps.

    python -m jbias.report.shifts --runs='runs/shifts/*' --out=report-shifts
    python -m jbias.report.shifts --runs='runs/study/*/*/*' --out=report-shifts --tau=10

From workdirs of runs with config.train.shift, as `shift=C6,attribute=colour` after the colon
of --config makes them. Ranks recipes and attributes by what a shift costs, with intervals,
tests and verdicts; shows what remedies close, drops over levels, and whether models rank
alike in and out of distribution. Writes to --out: index.html (one page that needs no
network), tables/ (CSV, Parquet, LaTeX, Markdown), figures/ (SVG, PDF, PNG), results.json. Tables 1 to 3
of Hu, Sang, Wang and Jiang 2021 are of python -m jbias.papers.shifts.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

from jbias.runtime import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Makes the report; returns 0, or 2 with one line on stderr if that is impossible."""
    parser, argv = _parser(), cli.split_values(argv, "--runs")
    if any(word.partition("=")[0] == "--printed" for word in argv):
        parser.error("--printed: is a flag of python -m jbias.papers.shifts now")
    args = parse(parser, argv)
    return cli.print_lines("shifts", lambda: _made(args))


def _made(args: argparse.Namespace) -> list[str]:
    """Makes the report; returns what is to be told."""
    # Only now: --help and wrong arguments need none of it.
    from jbias.report import document, shift_page, shift_runs

    study = shift_runs.read(args.runs, selection=args.selection, last=args.last)
    page = shift_page.report(study, args)
    return [*page.answer, *study.notes, document.write(page, pathlib.Path(args.out))]


def parse(parser: cli.Parser, argv: Sequence[str] | None) -> argparse.Namespace:
    """Reads the arguments."""
    args = parser.parse_args(cli.split_values(argv, "--runs"))
    if args.last is not None and args.selection != "last_n":
        parser.error("--last has no say without --selection=last_n")
    return args


def _parser() -> cli.Parser:
    parser = cli.Parser("report.shifts", __doc__)
    add_flags(parser)
    return parser


def add_flags(parser: cli.Parser) -> None:
    """Adds the flags of every report of shifts."""
    add = parser.add_argument
    add(
        "--runs",
        **cli.WORKDIRS,
        required=True,
        help="workdirs of runs, or globs of them; those without a shift are left out",
    )
    add(
        "--out",
        **{**cli.OUT, "required": False},
        default="report-shifts",
        help="folder of the report (default: %(default)s)",
    )
    add(
        "--selection",
        choices=("best_validation", "last_n", "oracle"),
        default="best_validation",
        help="which evaluation of a seed counts (default: %(default)s)",
    )
    add(
        "--last",
        type=cli.at_least_1,
        metavar="N",
        help="evaluations that last_n averages (default: 30 %% of them)",
    )
    add(
        "--tau",
        type=cli.positive,
        default=5.0,
        metavar="POINTS",
        help="a drop is a bug if its interval, less the control's, lies above this "
        "(default: %(default)g)",
    )
    add("--alpha", **cli.ALPHA, help="level of the tests (default: %(default)s)")
    add(
        "--reference",
        default="erm",
        metavar="ALGORITHM",
        help="the plain recipe's algorithm, with which remedies are compared, with its "
        "variant in brackets if it has one (default: %(default)s)",
    )
    what = "draws of seeds and images behind an interval, at least 100"
    cli.add_count(parser, "--draws", 100, 2_000, what)
    cli.add_count(parser, "--seed", 0, 0, "of the draws", metavar=None)


if __name__ == "__main__":
    sys.exit(main())
