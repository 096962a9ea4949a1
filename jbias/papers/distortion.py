r"""Compare the effects of distorted images on your networks with the tables of a paper.

    jbias papers distortion --measured='measured/*' --out=report
    jbias papers distortion --measured='measured/*' --runs='runs/distortion/*' \
        --out=report

Writes the report of `jbias report distortion` to --out, and adds Tables 1 to 7 of "On the
Effects of Artificial Data Modification" (ICML 2022) with your and the printed numbers, tests of
the paper's claims, and a list of the missing measurements with the commands that make them.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

from jbias.report import distortion, options
from jbias.runtime import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Run `jbias papers distortion`; return the exit code: 0, or 2 with one line on stderr.

    argv: the arguments; None: the process's arguments.
    """
    return options.run(parser(), _write_report, argv, spread=distortion.SPREAD)


def _write_report(args: argparse.Namespace) -> list[str]:
    """Write the report; return the lines to print. args: the flags of `parser`."""
    from jbias.papers import distortion_published
    from jbias.report import document
    from jbias.report.pages.distortion import distortion_groups, distortion_page

    printed = distortion_published.read(args.printed)
    study, notes = distortion_groups.read(args.measured)
    page = distortion_page.report(study, notes=notes, runs=args.runs)
    page = distortion_published.extended(page, study, printed, alpha=args.alpha)
    caveats = distortion_page.particular_caveats(page, distortion_published.ALWAYS)
    written = document.write(page, pathlib.Path(args.out), figures=args.figures)
    return [*page.answer, *caveats, written]


def parser() -> cli.Parser:
    """Return the parser of `jbias papers distortion`."""
    distortion_parser = distortion.parser("papers.distortion", __doc__)
    distortion_parser.add_argument(
        "--printed",
        default="examples/published",
        metavar="DIR",
        help="folder with the numbers that the paper prints, as distortion_*.csv (default: "
        "%(default)s, in a checkout of the repository)",
    )
    distortion_parser.add_argument(
        "--alpha",
        **cli.ALPHA,
        metavar="P",
        help="significance level of the tests, between 0 and 1 (default: %(default)s)",
    )
    return distortion_parser


if __name__ == "__main__":
    sys.exit(main())
