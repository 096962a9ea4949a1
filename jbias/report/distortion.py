r"""Report how distorted images affect networks, by training method.

    jbias report distortion --measured='measured/*' --out=report
    jbias report distortion --measured='measured/*' --runs='runs/distortion/*' \
        --out=report

Reads the folders that `jbias evaluate --suite=configs/suites/distortion.py` wrote, one per
network. Networks with the same architecture, method and data set count as seeds of one model.
`jbias papers distortion` also shows the published numbers, and tests the orderings that the
paper claims. Writes to --out: index.html (a page that can be read offline), tables/ (CSV,
Parquet, LaTeX, Markdown), figures/ (SVG; --figures adds PDF and PNG), results.json (all
numbers).
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

from jbias.report import options
from jbias.runtime import cli

SPREAD = "--measured --runs"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the report; return 0, or 2 with one line on stderr for wrong input.

    argv: arguments of the command line; None for `sys.argv[1:]`.
    """
    return options.run(parser(), _write, argv, spread=SPREAD, moved="--printed")


def _write(args: argparse.Namespace) -> list[str]:
    """Write the report for the parsed flags `args`; return the lines to print.

    The lines are the headline, the sentences on the data below the headline of the page (the entry
    "basis" of results.json), the caveats of this study, and "written: <path of the page>".
    """
    # Imported late: --help and argument errors should not wait for these imports.
    from jbias.report import document
    from jbias.report.pages.distortion import distortion_groups, distortion_page

    study, notes = distortion_groups.read(args.measured)
    page = distortion_page.report(study, notes=notes, runs=args.runs)
    caveats = distortion_page.particular_caveats(page, distortion_page.ALWAYS)
    written = document.write(page, pathlib.Path(args.out), figures=args.figures)
    return [*page.answer, *caveats, written]


def parser(command: str = "report.distortion", doc: str = __doc__) -> cli.Parser:
    """Return the argument parser of a command that reports distortions.

    command: name of the command after `jbias`. doc: text of its --help.
    """
    arguments = cli.Parser(command, doc)
    arguments.add_argument(
        "--measured",
        **cli.WORKDIRS,
        required=True,
        help="folders of measured networks, which `jbias evaluate` wrote; the folder that "
        "contains them; or globs",
    )
    arguments.add_argument(
        "--runs",
        **cli.WORKDIRS,
        default=[],
        help="workdirs of the runs that trained these networks, or globs; adds a table of the "
        "cost of training (default: no table)",
    )
    arguments.add_argument("--out", **cli.OUT, help="folder to write the report into")
    cli.add_figures(arguments)
    return arguments


if __name__ == "__main__":
    sys.exit(main())
