"""Draw the figures of docs/performance.md and docs/scaling.md.

    python -m benchmarks.plots [--results=benchmarks/results] [--out=docs]

Reads stored results, and writes SVG files. performance-seeds-<...>.svg: images per second
of all seeds together, divided by those of one seed alone, by number of seeds, with a line
per strategy, from each seeds-*.json with several numbers of seeds. scaling-pod.svg: the
modelled efficiency of pods, from scaling-imagenet-*.json.

Takes seconds.
"""

import argparse
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "jbias"  # The same file for the same results.

from matplotlib import pyplot as plt

from benchmarks import result_files, scaling

ALONE = "alone"


def ratios_by_strategy(
    results: Mapping[str, Any],
) -> dict[str, dict[int, tuple[float, float, float]]]:
    """Return ERM's ratios to one seed alone: (median, lowest, highest).

    Keys: strategy, then number of seeds. results: those of benchmarks.seeds.
    """
    ratios = {}
    for name, variants in results.items():
        algorithm, _, number = name.removesuffix(" seeds").partition(", ")
        if algorithm != "erm":
            continue
        for variant, r in variants.items():
            if variant != ALONE:
                by_number = ratios.setdefault(variant, {})
                by_number[int(number)] = (r["ratio"], r["lowest"], r["highest"])
    return ratios


def draw_seeds(results: Mapping[str, Any], title: str, path: pathlib.Path) -> bool:
    """Draw a line per strategy; return False, and draw nothing, for one number of seeds."""
    strategies = ratios_by_strategy(results)
    if max((len(points) for points in strategies.values()), default=0) < 2:
        return False
    figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
    ends = []
    for strategy, points in strategies.items():
        numbers = sorted(points)
        ratios = [points[n] for n in numbers]
        medians = [r for r, _, _ in ratios]
        lower = [max(0, r - low) for r, low, _ in ratios]
        upper = [max(0, high - r) for r, _, high in ratios]
        line = axes.errorbar(
            numbers, medians, [lower, upper], marker="o", capsize=3, lw=1.5
        )
        ends.append((medians[-1], numbers[-1], strategy, line[0].get_color()))
    axes.axhline(1, color="0.6", lw=1, zorder=0)
    axes.set_xscale("log", base=2)
    ticks = sorted({n for points in strategies.values() for n in points})
    axes.set_xticks(ticks, [str(n) for n in ticks])
    axes.set_xlim(right=max(ticks) * 1.9)
    _label_lines(axes, ends)
    axes.set_xlabel("seeds trained together")
    axes.set_ylabel("images a second of all, over one seed alone")
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return True


def _label_lines(axes, ends: list[tuple[float, int, str, str]]) -> None:
    """Write the name of each line at its end, without overlap.

    ends: y, x, name and colour of each line.
    """
    low, high = axes.get_ylim()
    label_y, gap = -1e9, (high - low) / 18
    for y, x, name, colour in sorted(ends):
        label_y = max(y, label_y + gap)
        axes.annotate(name, (x * 1.12, label_y), color=colour, fontsize=8, va="center")


def draw_pod(results: Mapping[str, Any], path: pathlib.Path) -> bool:
    """Draw the modelled efficiency by link, without overlap; return False if unknown."""
    if not results["pod"]:
        return False
    figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    ends = []
    for link, by_chips in results["pod"].items():
        chips = sorted(map(int, by_chips))
        efficiencies = [by_chips[str(n)][0] for n in chips]
        (line,) = axes.plot(chips, efficiencies, marker="o")
        ends.append((efficiencies[-1], chips[-1], link, line.get_color()))
    axes.set_xscale("log", base=2)
    axes.set_xticks(scaling.CHIPS, [str(n) for n in scaling.CHIPS])
    axes.set_xlim(right=max(scaling.CHIPS) * 10)
    axes.set_ylim(min(0.9, *(y for y, *_ in ends)), 1.01)
    _label_lines(axes, ends)
    axes.set_xlabel("chips")
    axes.set_ylabel("efficiency if nothing overlaps")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return True


def main() -> None:
    """Draw every figure whose results exist."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--results",
        type=pathlib.Path,
        default=result_files.RESULTS,
        metavar="DIR",
        help="folder of the results (default: benchmarks/results)",
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=result_files.RESULTS.parents[1] / "docs",
        metavar="DIR",
        help="folder for the figures (default: docs)",
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for source in sorted(options.results.glob("seeds-*.json")):
        written = json.loads(source.read_text())
        setting = written.get("setting")
        if setting is None:
            continue
        device = written["device"]
        title = (
            f"ERM, {setting['model']} of width {setting['width']}, {setting['size']} "
            f"pixels, batches of {setting['batch']}; {device['cores']} cores, "
            f"{device['kind']}"
        )
        path = options.out / f"performance-{source.stem}.svg"
        if draw_seeds(written["results"], title, path):
            print(path)
    for source in sorted(options.results.glob("scaling-imagenet*.json")):
        path = options.out / "scaling-pod.svg"
        if draw_pod(json.loads(source.read_text())["results"], path):
            print(path)


if __name__ == "__main__":
    main()
