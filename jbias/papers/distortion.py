r"""Studies what distorting images does to analysis and to training: the paper's tables.

    jbias papers distortion --measured='measured/*' --out=report
    jbias papers distortion --measured='measured/*' --runs='runs/distortion/*' \
        --out=report

Makes what jbias report distortion makes, and adds Tables 1 to 7 of "On the
Effects of Artificial Data Modification" (ICML 2022), ours beside theirs, which of its
orderings hold, and what is missing.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

from jbias.report import distortion, options
from jbias.runtime import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Makes the report; returns 0, or 2 with one line on stderr if that is impossible."""
    return options.run(parser(), _made, argv, spread=distortion.SPREAD)


def _made(args: argparse.Namespace) -> list[str]:
    """Makes the report; returns what is to be told."""
    from jbias.papers import distortion_published
    from jbias.report import distortion_page, distortion_study, document

    printed = distortion_published.read(args.printed)
    study, notes = distortion_study.read(args.measured)
    page = distortion_page.report(study, notes=notes, runs=args.runs)
    page = distortion_published.extended(page, study, printed, alpha=args.alpha)
    caveats = distortion_page.particular(page, distortion_published.ALWAYS)
    written = document.write(page, pathlib.Path(args.out), figures=args.figures)
    return [*page.answer, *caveats, written]


def parser() -> cli.Parser:
    """Gives what reads the arguments."""
    found = distortion.parser("papers.distortion", __doc__)
    what = "folder with the published distortion_*.csv (default: %(default)s)"
    folder = dict(default="examples/published", metavar="DIR")
    found.add_argument("--printed", **folder, help=what)
    what = "level of the tests (default: %(default)s)"
    found.add_argument("--alpha", **cli.ALPHA, help=what)
    return found


if __name__ == "__main__":
    sys.exit(main())
