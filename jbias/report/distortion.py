r"""Shows what distorting images does to networks, by how they were trained.

    jbias report distortion --measured='measured/*' --out=report
    jbias report distortion --measured='measured/*' --runs='runs/distortion/*' \
        --out=report

From workdirs of `jbias evaluate --suite=configs/suites/distortion.py`, one a
network; those of one model, method and data set are its seeds. `jbias
papers distortion` sets the published numbers beside, and tests the orderings that the
paper claims. Writes to --out: index.html (one page that needs no network), tables/ (CSV,
Parquet, LaTeX, Markdown), figures/ (SVG; --figures adds PDF and PNG),
results.json.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

from jbias.report import options
from jbias.runtime import cli

SPREAD = "--measured --runs"


def main(argv: Sequence[str] | None = None) -> int:
    """Makes the report; returns 0, or 2 with one line on stderr if that is impossible."""
    return options.run(parser(), _made, argv, spread=SPREAD, moved="--printed")


def _made(args: argparse.Namespace) -> list[str]:
    """Makes the report; returns what is to be told."""
    # Only now: --help and wrong arguments need none of it.
    from jbias.report import distortion_page, distortion_study, document

    study, notes = distortion_study.read(args.measured)
    page = distortion_page.report(study, notes=notes, runs=args.runs)
    caveats = distortion_page.particular(page, distortion_page.ALWAYS)
    written = document.write(page, pathlib.Path(args.out), figures=args.figures)
    return [*page.answer, *caveats, written]


def parser(command: str = "report.distortion", doc: str = __doc__) -> cli.Parser:
    """Gives what reads the arguments of every report of distortion."""
    found = cli.Parser(command, doc)
    add, what = found.add_argument, "workdirs of measured networks, or globs of them"
    add("--measured", **cli.WORKDIRS, required=True, help=what)
    what = "workdirs of the runs that trained them, or globs: for what training cost"
    add("--runs", **cli.WORKDIRS, default=[], help=what)
    add("--out", **cli.OUT, help="folder of the report")
    cli.add_figures(found)
    return found


if __name__ == "__main__":
    sys.exit(main())
