"""Is it shape or texture? Six measures of the same networks, and how their ranks agree.

    python -m benchmarks.six_measures --measured='measured/six/*' [--out=DIR] [--figure=FILE.svg]

    python -m benchmarks.six_measures --measured='measured/tiny/*' --records=FILE.csv

Reads folders of `jbias.evaluate` that hold shape_bias, of the suite of biases, and the suites
suppression and shape. Writes networks.csv, a row a network; agreement.csv, a row a pair of
measures, and of each with accuracy: Spearman's rho over networks, that given accuracy, and
95 % intervals over methods drawn again with all their networks (of few methods they are
somewhat narrow); and a figure, shape bias against each. Each measure is large where shape
decides:

    shape bias         decisions for the shape among those for either cue
    rank of shape      mean reciprocal rank of the shape's class on cue conflicts
    without texture    accuracy that the bilateral filter leaves less what shuffled tiles
                       leave, each relative and above chance (bilateral 12, shuffle 6)
    order of parts     pairs of pictures of the same tiles that are both right; of the
                       embedded set alone
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

import numpy as np
import pandas as pd
from jaxtyping import Float

from benchmarks import all_results
from jbias.report import plots as report_plots
from jbias.report import relations

MEASURES = (
    *("shape bias", "rank of shape", "without texture"),
    *("order of parts", "edges", "odd one out"),
)
ALL = (*MEASURES, "accuracy")


def read(folder: pathlib.Path) -> dict[tuple[str, str, str], float | None]:
    """A network's numbers by measure, metric and condition, on the set of suppression."""
    (clean,) = (x.stem.partition("@")[2] for x in folder.glob("evals/suppression@*"))
    found = {}
    for path in sorted(folder.glob("evals/*.jsonl")):
        measure, _, shown = path.stem.partition("@")
        if shown != clean and measure not in ("shape_bias", "configural"):
            continue
        for line in path.read_text().splitlines():
            one = json.loads(line)
            condition = one["condition"].partition("/")[2]
            found[measure, one["metric"], condition] = one["value"]
    return found


def named(config: dict) -> str:
    """What papers call a network's method."""
    name = config["algorithm"] + (
        f" ({config['variant']})" if config["variant"] else ""
    )
    return all_results.NAMES.get(name, name)


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
        "method": named(config),
        "accuracy": value["accuracy", "accuracy", ""],
        "neither": value["shape_bias", "fraction_neither", ""],
        "shape bias": value["shape_bias", "shape_bias", ""],
        "rank of shape": value["shape_bias", "mrr_shape", ""],
        "without texture": kept["bilateral 12"] - kept["shuffle 6"],
        "order of parts": value.get(("configural", "configural_substitute", "")),
        "diffused": value["cue_decomposition", "accuracy", "diffused"],
        "cells": value["cue_decomposition", "accuracy", "cells"],
        "odd one out": value["odd_one_out", "odd_one_out", ""],
    }


def table(folders: Iterable[pathlib.Path]) -> pd.DataFrame:
    """All networks by falling shape bias."""
    frame = pd.DataFrame(map(network, folders))
    shape, texture = (frame[of] / frame[of].mean() for of in ("diffused", "cells"))
    frame["edges"] = shape / (shape + texture) if len(frame) > 1 else np.nan
    return frame.sort_values("shape bias", ascending=False, ignore_index=True)


def rank_correlations(frame: pd.DataFrame) -> Float[np.ndarray, "2 k k"]:
    """Spearman's rho of each pair of ALL, and the partial one given accuracy, the last."""
    rho = np.corrcoef(frame[[*ALL]].rank().to_numpy().T)
    partial, accuracy = np.full_like(rho, np.nan), rho[-1, :-1]
    left = np.sqrt(1 - accuracy**2)
    partial[:-1, :-1] = rho[:-1, :-1] - np.outer(accuracy, accuracy)
    partial[:-1, :-1] /= np.outer(left, left)
    return np.stack([rho, partial])


def agreement(frame: pd.DataFrame, draws: int = 4000, seed: int = 0) -> pd.DataFrame:
    """Rank correlations of each pair, with intervals over methods."""
    rng, drawn = np.random.default_rng(seed), []
    rows = [*frame.groupby("method").indices.values()]
    for _ in range(draws):
        chosen = rng.integers(len(rows), size=len(rows))
        some = frame.iloc[np.concatenate([rows[i] for i in chosen])]
        drawn.append(rank_correlations(some))
    low, high = np.quantile(drawn, (0.025, 0.975), axis=0)
    found, told = rank_correlations(frame), []
    for i, j in itertools.combinations(range(len(ALL)), 2):
        row = {"x": ALL[i], "y": ALL[j], "networks": len(frame)}
        for of, name in enumerate(("rho", "given_accuracy")):
            ends = low[of, i, j], high[of, i, j]
            row |= {name: found[of, i, j]}
            row |= dict(zip((f"{name}_low", f"{name}_high"), ends, strict=True))
        told.append(row)
    return pd.DataFrame(told)


def figure(frame: pd.DataFrame):
    """Shape bias against each other measure and accuracy: a marker a network."""
    others = [("shape bias", other) for other in ALL[1:]]
    return relations.scatter(frame, [others[:3], others[3:]], category="method")


RECORDED = {
    *("shape_bias", "suppression", "tile_order", "cue_decomposition"),
    *("odd_one_out", "human", "accuracy"),
}


def records(folders: Iterable[pathlib.Path]) -> pd.DataFrame:
    """The numbers of these measures as they are, without those of classes and sites."""
    rows = []
    for folder in folders:
        clean = {x.stem.partition("@")[2] for x in folder.glob("evals/tile_order@*")}
        for path in sorted(folder.glob("evals/*.jsonl")):
            measure, _, shown = path.stem.partition("@")
            if measure not in RECORDED or measure == "accuracy" and shown not in clean:
                continue
            whole = measure in ("shape_bias", "odd_one_out")
            for one in map(json.loads, path.read_text().splitlines()):
                if not (whole and "/" in one["condition"]):
                    told = [one[key] for key in COLUMNS[2:]]
                    rows.append([one["run"], measure, *told])
    return pd.DataFrame(rows, columns=[*COLUMNS]).rename(columns={"dataset": "set"})


COLUMNS = (
    "network",
    "measure",
    "dataset",
    "condition",
    "metric",
    "value",
    "count",
    "n",
)


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
    parser.add_argument("--figure", type=pathlib.Path, help="(default: in --out)")
    what = "writes the numbers of these networks there, and nothing else"
    parser.add_argument("--records", type=pathlib.Path, help=what)
    options = parser.parse_args(argv)
    if options.records:
        folders = map(pathlib.Path, sorted(glob.glob(options.measured)))
        found = records(folders).astype({"count": "Int64"}).round(6)
        found.to_csv(options.records, index=False)
        return 0
    frame = table(map(pathlib.Path, sorted(glob.glob(options.measured))))
    options.out.mkdir(parents=True, exist_ok=True)
    frame.round(6).to_csv(options.out / "networks.csv", index=False)
    print(frame.drop(columns=["diffused", "cells"]).round(2).to_string(index=False))
    if len(frame) > 2:
        found = agreement(frame)
        found.round(6).to_csv(options.out / "agreement.csv", index=False)
        path = options.figure or options.out / "six-measures.svg"
        path.write_text(report_plots.to_svg(figure(frame)))
        print(found.round(2).to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
