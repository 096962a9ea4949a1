"""How long each measure of networks that were measured took, and of how many images.

    python -m benchmarks.took --measured='measured/*' --name=whole-suite-cpu [--out=DIR]

Reads what `python -m jbias.evaluate --suite` wrote beside its records: seconds from the
set's images to the kept numbers, decoding and compilation among them. A measure that
shares another's decisions has no time of its own. Writes benchmarks/results/<name>.json
and .md.
"""

import argparse
import glob
import json
import pathlib

from benchmarks import measured


def main() -> None:
    """Reads, prints and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--measured",
        required=True,
        action="append",
        help="folders of networks, a glob; may be given again",
    )
    parser.add_argument("--name", required=True, help="of the files")
    parser.add_argument("--out", type=pathlib.Path, default=measured.RESULTS)
    options = parser.parse_args()
    found = {
        _name(folder): _read(pathlib.Path(folder))
        for pattern in options.measured
        for folder in sorted(glob.glob(pattern))
    }
    found = {name: rows for name, rows in found.items() if rows}
    if not found:
        parser.error(f"--measured: no measured network in {options.measured!r}")
    head = ("network", "measure", "set", "stimuli", "seconds", "stimuli/s")
    lines = []
    for name, rows in found.items():
        lines += [(name, *_cells(row)) for row in rows]
        total = sum(row["seconds"] or 0 for row in rows)
        shown = sum(row["images"] for row in rows if row["seconds"])
        lines.append((name, "all", "", f"{shown:,}", f"{total:,.1f}", ""))
    text = measured.markdown(head, lines)
    measured.write(options.name, {"networks": found}, text, ratios={}, out=options.out)


def _name(folder: str) -> str:
    path = pathlib.Path(folder)
    return f"{path.parent.name}/{path.name}"


def _read(folder: pathlib.Path) -> list[dict]:
    rows = []
    for path in sorted((folder / "measures").glob("*.json")):
        told = json.loads(path.read_text())
        measure, _, dataset = path.stem.partition("@")
        row = {"measure": measure, "set": dataset}
        rows.append(
            row | {key: told[key] for key in ("images", "seconds", "precision")}
        )
    return rows


def _cells(row: dict) -> tuple[str, ...]:
    if row["seconds"] is None:
        return row["measure"], row["set"], f"{row['images']:,}", "decided before", ""
    rate = row["images"] / max(row["seconds"], 1e-9)
    seconds = f"{row['seconds']:,.1f}"
    return row["measure"], row["set"], f"{row['images']:,}", seconds, f"{rate:,.1f}"


if __name__ == "__main__":
    main()
