"""Write docs/reproduction-biasbed-tables.md and docs/reproduction-biases-tables.md.

    python -m studies.reproduction [--out=docs]

The pages summarise recomputed numbers of two papers; the full tables are CSV files in the
pages' folder `results`. Reads examples/ and examples/published/ only. `--check` writes nothing
and exits with code 1 if a file differs from what would be written.

Takes about half a minute on two cores.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

from studies import biasbed_page, imagenet_models_page

PAGES = (biasbed_page, imagenet_models_page)


def _files() -> dict[str, str]:
    """Return the text of each file by its path in the folder of pages."""
    files = {page.NAME: page.text() for page in PAGES}
    for page in PAGES:
        for name, frame in page.tables().items():
            csv = frame.round(5).to_csv(index=False, lineterminator="\n")
            files[f"results/{name}.csv"] = csv
    return files


def main(argv: Sequence[str] | None = None) -> int:
    """Write or check all files; return 1 if a checked file differs."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.reproduction",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--out",
        default="docs",
        metavar="DIR",
        help="folder to write to (default: docs)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; exit with code 1 if a file would change",
    )
    args = parser.parse_args(argv)
    any_differs = False
    for name, content in _files().items():
        path = pathlib.Path(args.out) / name
        if not args.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
            print(f"written: {path}")
            continue
        is_same = path.exists() and path.read_text(encoding="utf-8") == content
        print(f"{path}: {'is up to date' if is_same else 'differs'}")
        any_differs |= not is_same
    return int(any_differs)


if __name__ == "__main__":
    sys.exit(main())
