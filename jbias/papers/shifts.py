r"""Reports networks under chosen shifts beside the paper's: Tables 1 to 3, ours and theirs.

    jbias papers shifts --runs='runs/study/*/*/*' --out=report-shifts

Hu, Sang, Wang and Jiang, Understanding and Testing Generalization of Deep Networks on
Out-of-Distribution Data, 2021, https://arxiv.org/abs/2111.09190. Makes what `jbias report
shifts` makes, and adds these tables and the ranks of the printed models.
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
    """Makes the report; returns 0, or 2 with one line on stderr if that is impossible."""
    return options.run(parser(), _made, argv, spread="--runs")


def _made(args: argparse.Namespace) -> list[str]:
    """Makes the report; returns what is to be told."""
    from jbias.papers import shifts_published

    printed = shifts_published.read(args.printed)
    return shifts.made(args, functools.partial(shifts_published.extended, printed))


def parser() -> cli.Parser:
    """Gives what reads the arguments."""
    found = shifts.parser("papers.shifts", __doc__)
    here = _PRINTED if os.path.isdir(_PRINTED) else ""
    what = f"folder with the published ood_*.csv (default: {_PRINTED}, where it is)"
    found.add_argument("--printed", default=here, metavar="DIR", help=what)
    return found


if __name__ == "__main__":
    sys.exit(main())
