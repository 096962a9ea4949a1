r"""Shows what was measured of networks: one page of tables and figures.

    jbias report measured --measured='measured/*' --out=report-measured

From workdirs of `jbias evaluate --suite=...`, one a network; up to eight are
drawn side by side. Writes to --out: index.html (one page that needs no network),
tables/ (CSV, Parquet, LaTeX, Markdown), figures/ (SVG; --figures adds PDF and PNG),
results.json.
"""

import argparse
import pathlib
import sys
from collections.abc import Iterator, Sequence

from jbias.report import options
from jbias.runtime import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Makes the page; returns 0, or 2 with one line on stderr if that is impossible."""
    return options.run(_parser(), _made, argv, spread="--measured")


def _made(args: argparse.Namespace) -> Iterator[str]:
    """Makes the page; returns what is to be told."""
    # Only now: --help and wrong arguments need none of it.
    from jbias.report import document, network_records, networks

    notes: list[str] = []
    found = network_records.read(args.measured, notes)
    report = networks.report(found, notes, published=args.published)
    written = document.write(report, pathlib.Path(args.out), figures=args.figures)
    return iter([*report.answer, *report.results["missing"], written])


def _parser() -> argparse.ArgumentParser:
    parser = cli.Parser("report.measured", __doc__)
    what = "workdirs of measured networks, the folder that holds them, or globs"
    parser.add_argument("--measured", **cli.WORKDIRS, required=True, help=what)
    parser.add_argument("--out", **cli.OUT, help="folder of the page")
    cli.add_figures(parser)
    parser.add_argument(
        "--published",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="where networks saw Geirhos' cue conflicts, published shape biases of others, "
        "and people's, stand beside theirs in a table of its own, with source and licence "
        "(default: they do)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
