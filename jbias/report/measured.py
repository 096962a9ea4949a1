r"""Write a page with tables and figures of measured networks.

    jbias report measured --measured='measured/*' --out=report-measured

Reads the folders that `jbias measure` or `jbias evaluate` wrote, one per network. Figures
compare up to eight networks; with more networks, the page has only tables. Writes to --out:
index.html (a page that can be read offline), tables/ (CSV, Parquet, LaTeX, Markdown), figures/
(SVG; --figures adds PDF and PNG), results.json (all numbers).
"""

import argparse
import pathlib
import sys
from collections.abc import Iterator, Sequence

from jbias.report import options
from jbias.runtime import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page; return 0, or 2 with one line on stderr for wrong input.

    argv: arguments of the command line; None for `sys.argv[1:]`.
    """
    return options.run(_parser(), _write, argv, spread="--measured")


def _write(args: argparse.Namespace) -> Iterator[str]:
    """Write the page for the parsed flags `args`; return the lines to print.

    The lines are the headline, the sentence on the data below the headline of the page (the entry
    "basis" of results.json), the caveats, and "written: <path of the page>".
    """
    # Imported late: --help and argument errors should not wait for these imports.
    from jbias.calibrating import curves
    from jbias.report import document, network_records
    from jbias.report.pages.networks import networks_page

    notes: list[str] = []
    measured_networks = network_records.read(args.measured, notes)
    report = networks_page.report(
        measured_networks, notes, published=args.published, curves=curves.read()
    )
    written = document.write(report, pathlib.Path(args.out), figures=args.figures)
    return iter([*report.answer, *report.results["missing"], written])


def _parser() -> argparse.ArgumentParser:
    """Return the argument parser of `jbias report measured`."""
    parser = cli.Parser("report.measured", __doc__)
    parser.add_argument(
        "--measured",
        **cli.WORKDIRS,
        required=True,
        help="folders of measured networks, which `jbias measure` or `jbias evaluate` wrote; "
        "the folder that contains them; or globs",
    )
    parser.add_argument("--out", **cli.OUT, help="folder to write the page into")
    cli.add_figures(parser)
    parser.add_argument(
        "--published",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="add, or do not add, a table with published shape biases of people and of other "
        "networks; only for networks that were measured on Geirhos' cue conflicts (default: "
        "add it)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
