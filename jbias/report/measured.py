r"""Shows what was measured of networks: one page, with tables and figures.

    python -m jbias.report.measured --measured='measured/*' --out=report-measured

From workdirs of `python -m jbias.evaluate --suite=...`, one a network; up to eight are
drawn side by side. Writes to --out: index.html (one page that needs no network),
tables/*.csv and *.tex, figures/*.svg, *.pdf and *.png, results.json.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

from jbias.report import arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Makes the page; returns 0, or 2 with one line on stderr if that is impossible."""
    args = _parser().parse_args(arguments.spread(argv, "--measured"))
    # Only now: --help and wrong arguments need none of it.
    from jbias.report import measured_page, measured_read

    try:
        notes: list[str] = []
        networks = measured_read.read(args.measured, notes)
        answer = measured_page.write(networks, pathlib.Path(args.out), notes)
    except (ValueError, OSError) as error:
        print(f"measured: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    for line in answer:
        print(line)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m jbias.report.measured",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--measured",
        nargs="+",
        action="extend",
        required=True,
        metavar="WORKDIR",
        help="workdirs of measured networks, the folder that holds them, or globs",
    )
    parser.add_argument(
        "--out",
        type=arguments.folder,
        required=True,
        metavar="DIR",
        help="folder of the page",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
