"""Write the pages that recompute BiasBed (CVPR 2023) and 48 ImageNet models (CVPR 2024).

    python -m studies.reproduction
    python -m studies.reproduction --check

Writes OUT/reproduction-biasbed-tables.md and OUT/reproduction-biases-tables.md, which summarise
the recomputed numbers, and the full tables, OUT/results/biasbed_*.csv and
OUT/results/biases_*.csv. Reads examples/ and examples/published/ only. With --check, compares
these files with those in --out, prints a line for each, and writes nothing.

Takes about fifteen seconds on two cores.
"""

import pathlib
import sys
from collections.abc import Sequence

from studies import biasbed_page, command, imagenet_models_page

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
    parser = command.parser("reproduction", __doc__)
    command.add_out(parser, "the pages and the folder results/", pathlib.Path("docs"))
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing, and exit with code 1 if a file in --out differs",
    )
    args = parser.parse_args(argv)
    any_differs = False
    for name, content in _files().items():
        path = args.out / name
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
