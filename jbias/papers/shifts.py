r"""Compare networks under chosen distribution shifts with Tables 1 to 3 of a paper.

    jbias papers shifts --runs='runs/study/*/*/*' --out=report-shifts

The paper: Hu, Sang, Wang and Jiang, Understanding and Testing Generalization of Deep Networks
on Out-of-Distribution Data, 2021, https://arxiv.org/abs/2111.09190. Reads the workdirs of runs
that were trained under a shift: by `jbias study`, or by
`jbias train --config=configs/erm.py:shift=C6,attribute=colour`. Writes the report of
`jbias report shifts` to --out, and adds the paper's tables with your and the printed numbers,
and the ranks of the models in the paper.
"""

import argparse
import functools
import os
import sys
from collections.abc import Sequence

from jbias.report import options, shifts
from jbias.runtime import cli

_PRINTED = "examples/published"


def main(argv: Sequence[str] | None = None) -> int:
    """Run `jbias papers shifts`; return the exit code: 0, or 2 with one line on stderr.

    argv: the arguments; None: the process's arguments.
    """
    return options.run(parser(), _write_report, argv, spread="--runs")


def _write_report(args: argparse.Namespace) -> list[str]:
    """Write the report; return the lines to print. args: the flags of `parser`."""
    from jbias.papers import shifts_published

    printed = shifts_published.read(args.printed)
    return shifts.write(args, functools.partial(shifts_published.extended, printed))


def parser() -> cli.Parser:
    """Return the parser of `jbias papers shifts`."""
    shifts_parser = shifts.parser("papers.shifts", __doc__)
    shifts_parser.add_argument(
        "--printed",
        default=_PRINTED if os.path.isdir(_PRINTED) else "",
        metavar="DIR",
        help="folder with the numbers that the paper prints, as ood_*.csv (default: "
        f"{_PRINTED} if it exists, else no comparison)",
    )
    return shifts_parser


if __name__ == "__main__":
    sys.exit(main())
