"""Write the tables of docs/performance.md: cost of seed strategies as compilers predict it.

    python -m benchmarks.strategies

Reads benchmarks/results/compiled-v5e.json and compiled-h100.json, which benchmarks.compiled
writes, and writes benchmarks/results/strategies.md. A cell without a program is `–`.

Takes seconds.
"""

import argparse
import json

from benchmarks import result_files

WIDTHS, SEEDS = (16, 64), (1, 4, 10)
METHODS = {
    "erm": "ERM",
    "sagnet": "SagNet",
    "padain": "pAdaIN",
    "infodrop": "InfoDrop",
}


def read(target: str) -> dict[str, dict]:
    """Return the rows that were compiled for a target, by name."""
    path = result_files.RESULTS / f"compiled-{target}.json"
    rows = json.loads(path.read_text())["results"]
    return {row["row"]: row for row in rows}


def cycles(rows: dict[str, dict], width: int, method: str, seeds: int) -> str:
    """Return the Mcycles of all seeds vmapped, and their ratio to the same seeds looped."""
    alone = rows.get(f"cifar{width}/{method}")
    if alone is None:
        return "–"
    looped = seeds * alone["cycles"] / 1e6
    if seeds == 1:
        return f"{looped:.2f}"
    together = rows.get(f"cifar{width}/{method}*{seeds}:vmapped")
    if together is None:
        return "–"
    vmapped = together["cycles"] / 1e6
    return f"{vmapped:.1f} ({vmapped / looped:.2f})"


def memory(rows: dict[str, dict], width: int, method: str, seeds: int) -> str:
    """Temporary GiB and kernels of all seeds, vmapped."""
    name = f"cifar{width}/{method}" + f"*{seeds}:vmapped" * (seeds > 1)
    row = rows.get(name)
    if row is None:
        return "–"
    return f"{row['temporary'] / 2**30:.2f}, {row['kernels']:,.0f}"


def table(head: str, target: str, cell) -> str:
    """A line for each width and number of seeds, a column for each method."""
    rows = read(target)
    lines = [f"| {head} | {' | '.join(METHODS.values())} |"]
    lines.append("| --- |" + " --: |" * len(METHODS))
    for width in WIDTHS:
        for seeds in SEEDS:
            cells = (cell(rows, width, method, seeds) for method in METHODS)
            lines.append(f"| {width}, {seeds} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write both tables."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    text = table("v5e: width, seeds", "v5e", cycles)
    text += "\n" + table("H100: width, seeds", "h100", memory)
    (result_files.RESULTS / "strategies.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
