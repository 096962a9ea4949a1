"""Is it shape or texture? Six measures of the same networks, and how their ranks agree.

    python -m benchmarks.six_measures --measured='measured/six/*' [--out=benchmarks/results/six-measures]

Reads folders of `jbias.evaluate` that hold shape_bias, of the suite of biases, and the suites
suppression and shape, on the embedded set. Writes networks.csv, a row a network;
agreement.csv, a row a pair of measures: Spearman's rho with bootstrap intervals over
networks, and that given accuracy; and agreement.svg. Each measure is large where shape
decides:

    shape bias         decisions for the shape among those for either cue
    rank of shape      mean reciprocal rank of the shape's class on cue conflicts
    without texture    accuracy that the bilateral filter leaves less what shuffled tiles
                       leave, each relative and above chance (bilateral 12, shuffle 6)
    order of parts     pairs of pictures of the same tiles that are both right
    edges              the shape part of edge-enhancing diffusion and shuffled cells
    odd one out        by features of the last site
"""

import argparse
import glob
import itertools
import json
import pathlib
import sys
from collections.abc import Iterable

import matplotlib
import pandas as pd

from jbias.report import plots
from jbias.stats import correlation

MEASURES = (
    *("shape bias", "rank of shape", "without texture"),
    *("order of parts", "edges", "odd one out"),
)


def read(folder: pathlib.Path) -> dict[tuple[str, str, str], float | None]:
    """A network's numbers by measure, metric and condition."""
    found = {}
    for path in sorted(folder.glob("evals/*.jsonl")):
        measure = path.name.partition("@")[0]
        for line in path.read_text().splitlines():
            one = json.loads(line)
            condition = one["condition"].partition("/")[2]
            found[measure, one["metric"], condition] = one["value"]
    return found


def network(folder: pathlib.Path) -> dict:
    """A row of the table; edges are still the two accuracies that they are made of."""
    config = json.loads((folder / "config.json").read_text())
    value = read(folder)
    kept = {
        name: value["suppression", "relative_accuracy_chance", name]
        for name in ("bilateral 12", "shuffle 6")
    }
    return {
        "network": folder.name,
        "method": " ".join(filter(None, (config["algorithm"], config["variant"]))),
        "accuracy": value["accuracy", "accuracy", ""],
        "neither": value["shape_bias", "fraction_neither", ""],
        "shape bias": value["shape_bias", "shape_bias", ""],
        "rank of shape": value["shape_bias", "mrr_shape", ""],
        "without texture": kept["bilateral 12"] - kept["shuffle 6"],
        "order of parts": value["configural", "configural_substitute", ""],
        "diffused": value["cue_decomposition", "accuracy", "diffused"],
        "cells": value["cue_decomposition", "accuracy", "cells"],
        "odd one out": value["odd_one_out", "odd_one_out", ""],
    }


def table(folders: Iterable[pathlib.Path]) -> pd.DataFrame:
    """All networks by falling shape bias."""
    frame = pd.DataFrame(map(network, folders))
    shape, texture = (frame[of] / frame[of].mean() for of in ("diffused", "cells"))
    frame["edges"] = shape / (shape + texture)
    return frame.sort_values("shape bias", ascending=False, ignore_index=True)


def agreement(frame: pd.DataFrame) -> pd.DataFrame:
    """Rank correlations of each pair of measures, over networks and given accuracy."""
    rows = []
    for x, y in itertools.combinations(MEASURES, 2):
        row = {"x": x, "y": y, "networks": len(frame)}
        for name, given in (("rho", ()), ("given_accuracy", (frame["accuracy"],))):
            one = correlation.bootstrap_interval(frame[x], frame[y], covariates=given)
            row |= {
                name: one.statistic,
                f"{name}_low": one.low,
                f"{name}_high": one.high,
            }
        rows.append(row)
    return pd.DataFrame(rows)


def figure(found: pd.DataFrame):
    """Rho of each pair; above the diagonal given accuracy."""
    values = pd.DataFrame(1.0, MEASURES, MEASURES)
    for row in found.itertuples():
        values.loc[row.y, row.x] = row.rho
        values.loc[row.x, row.y] = row.given_accuracy
    fig, cells = plots.grid(1, alone=5.6, cell=(0, 3.6))
    look = dict(colours=matplotlib.colormaps["RdBu"], limits=(-1.15, 1.15))
    plots.matrix(cells[0, 0], values, form="{:.2f}", **look)
    cells[0, 0].tick_params("x", rotation=40)
    return plots.laid_out(fig)


def main(argv: list[str] | None = None) -> int:
    """Reads, correlates and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measured", required=True, help="folders of jbias.evaluate")
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("benchmarks/results/six-measures"),
    )
    options = parser.parse_args(argv)
    frame = table(map(pathlib.Path, sorted(glob.glob(options.measured))))
    found = agreement(frame)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, data in (("networks", frame), ("agreement", found)):
        data.round(6).to_csv(options.out / f"{name}.csv", index=False)
    (options.out / "agreement.svg").write_text(plots.to_svg(figure(found)))
    print(found.round(2).to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
