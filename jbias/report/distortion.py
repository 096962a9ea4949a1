r"""Studies what distorting images does to analysis and to training: the paper's tables.

    python -m jbias.report.distortion --measured='measured/*' --out=report
    python -m jbias.report.distortion --measured='measured/*' --runs='runs/distortion/*' \
        --out=report

From workdirs of `python -m jbias.evaluate --suite=configs/suites/distortion.py`, one a
network; those of one model, method and data set are its seeds. Tables 1 to 7 and figures of
"On the Effects of Artificial Data Modification" (ICML 2022), ours beside theirs, and which
of its orderings hold. Writes to --out: index.html (one page that needs no network),
tables/*.csv and *.tex, figures/*.svg, *.pdf and *.png, results.json.
"""

import argparse
import os
import pathlib
import sys
from collections.abc import Iterator, Sequence

from jbias.runtime import cli

_PRINTED = "examples/published"


def main(argv: Sequence[str] | None = None) -> int:
    """Makes the report; returns 0, or 2 with one line on stderr if that is impossible."""
    argv = cli.split_values(argv, "--measured")
    args = _parser().parse_args(cli.split_values(argv, "--runs"))
    return cli.print_lines("distortion", lambda: _made(args))


def _made(args: argparse.Namespace) -> Iterator[str]:
    """Makes the report; returns what is to be told."""
    # Only now: --help and wrong arguments need none of it.
    from jbias.report import (
        distortion_costs,
        distortion_page,
        distortion_printed,
        distortion_read,
        distortion_values,
        document,
    )

    printed = distortion_printed.read(args.printed) if args.printed else {}
    groups, notes = distortion_read.read(args.measured)
    study = distortion_values.Study({group.key: group for group in groups})
    runs = distortion_costs.read(args.runs) if args.runs else ()
    if not printed:
        notes.append(
            "The printed numbers are not beside ours: name their folder by --printed."
        )
    report = distortion_page.report(
        study, printed, alpha=args.alpha, notes=notes, runs=runs
    )
    caveats = report.results["caveats"][: -len(distortion_page.ALWAYS)]
    written = document.write(report, pathlib.Path(args.out))
    return iter([*report.answer, *caveats, written])


def _parser() -> argparse.ArgumentParser:
    parser = cli.Parser("report.distortion", __doc__)
    add = parser.add_argument
    add(
        "--measured",
        **cli.WORKDIRS,
        required=True,
        help="workdirs of measured networks, or globs of them",
    )
    add(
        "--runs",
        **cli.WORKDIRS,
        help="workdirs of the runs that trained them, or globs: for what training cost",
    )
    add("--out", **cli.OUT, help="folder of the report")
    add(
        "--printed",
        default=_PRINTED if os.path.isdir(_PRINTED) else "",
        metavar="DIR",
        help="folder with the published distortion_*.csv (default: examples/published, "
        "where it is)",
    )
    add("--alpha", **cli.ALPHA, help="level of the tests (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
