"""List the seconds and numbers of images of every measure in finished measurements.

    python -m benchmarks.recorded_times --measured='measured/*' --name=whole-suite-cpu [--out=DIR]

Reads the timings that `jbias evaluate --suite` writes next to its records: seconds from a
set's images to the written results, including decoding and compilation. A measure that
reuses another measure's decisions has no time of its own. Writes
benchmarks/results/<name>.json and .md.

Takes seconds.
"""

import argparse
import glob
import json
import pathlib

from benchmarks import result_files


def main() -> None:
    """Read the timings, print and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--measured",
        required=True,
        action="append",
        metavar="PATTERN",
        help="output folders of `jbias evaluate`; may be repeated",
    )
    parser.add_argument("--name", required=True, help="name of the results")
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        metavar="DIR",
        default=result_files.RESULTS,
        help="folder for the results (default: benchmarks/results)",
    )
    options = parser.parse_args()
    rows_by_network = {}
    for pattern in options.measured:
        for folder in sorted(glob.glob(pattern)):
            rows = _read_timings(pathlib.Path(folder))
            if rows:
                rows_by_network[_network_name(folder)] = rows
    if not rows_by_network:
        parser.error(f"--measured: no measured network in {options.measured!r}")
    head = ("network", "measure", "set", "stimuli", "seconds", "stimuli/s")
    lines = []
    for name, rows in rows_by_network.items():
        lines += [(name, *_cells(row)) for row in rows]
        total = sum(row["seconds"] or 0 for row in rows)
        num_images = sum(row["images"] for row in rows if row["seconds"])
        lines.append((name, "all", "", f"{num_images:,}", f"{total:,.1f}", ""))
    text = result_files.markdown(head, lines)
    results = {"networks": rows_by_network}
    result_files.write(options.name, results, text, ratios={}, out=options.out)


def _network_name(folder: str) -> str:
    """Return the last two components of a path."""
    path = pathlib.Path(folder)
    return f"{path.parent.name}/{path.name}"


def _read_timings(folder: pathlib.Path) -> list[dict]:
    """Return measure, set, images, seconds and precision of every measure of a network."""
    rows = []
    for path in sorted((folder / "measures").glob("*.json")):
        timing = json.loads(path.read_text())
        measure, _, dataset = path.stem.partition("@")
        row = {
            "measure": measure,
            "set": dataset,
            "images": timing["images"],
            "seconds": timing["seconds"],
            "precision": timing["precision"],
        }
        rows.append(row)
    return rows


def _cells(row: dict) -> tuple[str, ...]:
    """Return the cells of a measure's row: measure, set, stimuli, seconds and rate."""
    if row["seconds"] is None:
        return row["measure"], row["set"], f"{row['images']:,}", "decided before", ""
    rate = row["images"] / max(row["seconds"], 1e-9)
    seconds = f"{row['seconds']:,.1f}"
    return row["measure"], row["set"], f"{row['images']:,}", seconds, f"{rate:,.1f}"


if __name__ == "__main__":
    main()
