r"""Reports networks under chosen shifts beside the paper's: Tables 1 to 3, ours and theirs.

    python -m jbias.papers.shifts --runs='runs/study/*/*/*' --out=report-shifts

Hu, Sang, Wang and Jiang, Understanding and Testing Generalization of Deep Networks on
Out-of-Distribution Data, 2021, https://arxiv.org/abs/2111.09190. Makes what python -m
jbias.report.shifts makes, and adds these tables and the ranks of the printed models.
"""

import argparse
import os
import pathlib
import sys
from collections.abc import Sequence

from jbias.report import shifts
from jbias.runtime import cli

_PRINTED = "examples/published"


def main(argv: Sequence[str] | None = None) -> int:
    """Makes the report; returns 0, or 2 with one line on stderr if that is impossible."""
    args = shifts.parse(_parser(), argv)
    return cli.print_lines("shifts", lambda: _made(args))


def _made(args: argparse.Namespace) -> list[str]:
    """Makes the report; returns what is to be told."""
    from jbias.papers import shifts_published
    from jbias.report import document, shift_runs

    printed = shifts_published.read(args.printed)
    study = shift_runs.read(args.runs, selection=args.selection, last=args.last)
    page = shifts_published.report(study, printed, args)
    return [*page.answer, *study.notes, document.write(page, pathlib.Path(args.out))]


def _parser() -> cli.Parser:
    parser = cli.Parser("papers.shifts", __doc__)
    shifts.add_flags(parser)
    parser.add_argument(
        "--printed",
        default=_PRINTED if os.path.isdir(_PRINTED) else "",
        metavar="DIR",
        help="folder with the published ood_*.csv (default: examples/published, where it "
        "is)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
