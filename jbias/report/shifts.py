r"""Reports networks trained under chosen shifts: which attribute hurts, and what helps.

    python -m jbias.report.shifts --runs='runs/shifts/*' --out=report-shifts
    python -m jbias.report.shifts --runs='runs/study/*/*/*' --out=report-shifts --tau=10

From workdirs of runs with config.train.shift, as `shift=C6,attribute=colour` after the colon
of --config makes them. Ranks recipes and attributes by what a shift costs, with intervals,
tests and verdicts; shows what remedies close, and Tables 1 to 3 and Figures 3 to 6 of Hu,
Sang, Wang and Jiang 2021, ours beside theirs. Writes to --out: index.html (one page that
needs no network), tables/*.csv and *.tex, figures/*.svg, *.pdf and *.png, results.json.
"""

import argparse
import os
import pathlib
import sys
from collections.abc import Iterator, Sequence

from jbias.runtime import cli

_PRINTED = "examples/published"
_OUT = "report-shifts"


def main(argv: Sequence[str] | None = None) -> int:
    """Makes the report; returns 0, or 2 with one line on stderr if that is impossible."""
    parser = _parser()
    args = parser.parse_args(cli.split_values(argv, "--runs"))
    if args.last is not None and args.selection != "last_n":
        parser.error("--last has no say without --selection=last_n")
    return cli.print_lines("shifts", lambda: _made(args))


def _made(args: argparse.Namespace) -> Iterator[str]:
    """Makes the report; returns what is to be told."""
    # Only now: --help and wrong arguments need none of it.
    from jbias.report import document, shift_page, shift_printed, shift_read

    printed = shift_printed.Printed()
    if args.printed:
        printed = shift_printed.read(args.printed)
    study = shift_read.read(args.runs, selection=args.selection, last=args.last)
    options = shift_page.Options(
        tau=args.tau,
        alpha=args.alpha,
        reference=args.reference,
        draws=args.draws,
        seed=args.seed,
    )
    report = shift_page.report(study, printed, options)
    written = document.write(report, pathlib.Path(args.out))
    return iter([*report.answer, *study.notes, written])


def _parser() -> argparse.ArgumentParser:
    parser = cli.Parser("report.shifts", __doc__)
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
        default=_OUT,
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
    add(
        "--draws",
        type=cli.at_least_100,
        default=2_000,
        metavar="N",
        help="draws of seeds and images behind an interval, at least 100 (default: "
        "%(default)s)",
    )
    add(
        "--seed",
        type=cli.at_least_0,
        default=0,
        help="of the draws (default: %(default)s)",
    )
    add(
        "--printed",
        default=_PRINTED if os.path.isdir(_PRINTED) else "",
        metavar="DIR",
        help="folder with the published ood_*.csv (default: examples/published, where it "
        "is)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
