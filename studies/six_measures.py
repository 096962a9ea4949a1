r"""Compare six measures of shape or texture on the same networks: values and rank agreement.

    python -m studies.six_measures --measured='measured/six/*' [--out=DIR] [--figure=FILE.svg]

    python -m studies.six_measures --measured='measured/tiny/*' --records=FILE.csv

Reads output folders of `jbias evaluate` with shape_bias, of the suite of biases, and the
suites suppression and shape. Writes networks.csv, a row per network; agreement.csv, a row
per pair of measures, and per measure with accuracy: Spearman's rho over networks, partial
rho given accuracy, and 95 % intervals from methods resampled with all their networks (with
few methods they are somewhat narrow); and a figure, shape bias against each other measure.
Each measure is large if shape decides:

    shape bias         decisions for the shape among those for either cue
    rank of shape      mean reciprocal rank of the shape's class on cue conflicts
    without texture    accuracy after the bilateral filter minus accuracy on shuffled tiles,
                       each relative and above chance (bilateral 12, shuffle 6)
    order of parts     pairs of pictures of the same tiles that are both right; on the
                       embedded set only
    edges              share of shape in edge-enhancing diffusion and shuffled cells
    odd one out        by features of the last site

The networks of docs/six-measures.md are the methods' configs with :small,more,seeds=2, at the
rates of docs/results/shapes/rates.json, and for photographs
erm.py:data=tiny_imagenet,seeds=1,epochs=12,size=32 with the 26 classes and the stimuli:

    jbias evaluate --checkpoint='runs/six/*' --out=measured/six --suite=configs/suites/shape.py
    jbias evaluate --checkpoint='runs/six/*' --out=measured/six \
        --suite=configs/suites/biases.py --only=shape_bias
    jbias evaluate --checkpoint='runs/six/*' --out=measured/six \
        --suite=configs/suites/suppression.py \
        --suite.measures.suppression.families="('people',)"
    python -m studies.six_measures --measured='measured/six/*' --figure=docs/six-measures.svg
    python -m studies.six_measures --measured='measured/tiny/*' \
        --records=studies/results/six-measures/photographs.csv

Both CutMix networks decide by texture and have 0.61 and 0.64 in the odd one out; the RandConv
and the Gaussian noise network that decide by shape have 0.60.

Takes about a minute on two cores.
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

from jbias.report import plots as report_plots
from jbias.report.pages.correlations import correlation_plots
from studies import all_results

MEASURES = (
    "shape bias",
    "rank of shape",
    "without texture",
    "order of parts",
    "edges",
    "odd one out",
)
ALL = (*MEASURES, "accuracy")


def read_values(folder: pathlib.Path) -> dict[tuple[str, str, str], float | None]:
    """Return a network's values by measure, metric and condition.

    Values are of the data set of the suite suppression, and of cue conflicts.
    """
    (clean,) = (x.stem.partition("@")[2] for x in folder.glob("evals/suppression@*"))
    values = {}
    for path in sorted(folder.glob("evals/*.jsonl")):
        measure, _, dataset = path.stem.partition("@")
        if dataset != clean and measure not in ("shape_bias", "configural"):
            continue
        for record in map(json.loads, path.read_text().splitlines()):
            condition = record["condition"].partition("/")[2]
            values[measure, record["metric"], condition] = record["value"]
    return values


def method_name(config: dict) -> str:
    """Return the name of a network's method as in papers."""
    variant = f" ({config['variant']})" if config["variant"] else ""
    name = config["algorithm"] + variant
    return all_results.NAMES.get(name, name)


def network_row(folder: pathlib.Path) -> dict:
    """Return a network's row of the table.

    In place of `edges` the row has the accuracies from which `table` computes it: diffused
    and cells.
    """
    config = json.loads((folder / "config.json").read_text())
    value = read_values(folder)
    relative_accuracy = {
        name: value["suppression", "relative_accuracy_chance", name]
        for name in ("bilateral 12", "shuffle 6")
    }
    return {
        "network": folder.name,
        "method": method_name(config),
        "accuracy": value["accuracy", "accuracy", ""],
        "neither": value["shape_bias", "fraction_neither", ""],
        "shape bias": value["shape_bias", "shape_bias", ""],
        "rank of shape": value["shape_bias", "mrr_shape", ""],
        "without texture": relative_accuracy["bilateral 12"]
        - relative_accuracy["shuffle 6"],
        "order of parts": value.get(("configural", "configural_substitute", "")),
        "diffused": value["cue_decomposition", "accuracy", "diffused"],
        "cells": value["cue_decomposition", "accuracy", "cells"],
        "odd one out": value["odd_one_out", "odd_one_out", ""],
    }


def table(folders: Iterable[pathlib.Path]) -> pd.DataFrame:
    """Return a row per network, in order of decreasing shape bias."""
    frame = pd.DataFrame(map(network_row, folders))
    shape = frame["diffused"] / frame["diffused"].mean()
    texture = frame["cells"] / frame["cells"].mean()
    frame["edges"] = shape / (shape + texture) if len(frame) > 1 else np.nan
    return frame.sort_values("shape bias", ascending=False, ignore_index=True)


def rank_correlations(frame: pd.DataFrame) -> Float[np.ndarray, "2 k k"]:
    """Return Spearman's rho of each pair of ALL, and the partial rho given accuracy.

    The partial rho with accuracy itself, the last of ALL, is NaN.
    """
    rho = np.corrcoef(frame[[*ALL]].rank().to_numpy().T)
    partial, accuracy = np.full_like(rho, np.nan), rho[-1, :-1]
    residual = np.sqrt(1 - accuracy**2)
    partial[:-1, :-1] = rho[:-1, :-1] - np.outer(accuracy, accuracy)
    partial[:-1, :-1] /= np.outer(residual, residual)
    return np.stack([rho, partial])


def agreement(frame: pd.DataFrame, draws: int = 4000, seed: int = 0) -> pd.DataFrame:
    """Return rank correlations of each pair, with 95 % intervals over methods.

    draws: number of resamples of the methods. seed: seed of the resamples.
    """
    rng, resampled = np.random.default_rng(seed), []
    rows_by_method = [*frame.groupby("method").indices.values()]
    for _ in range(draws):
        drawn = rng.integers(len(rows_by_method), size=len(rows_by_method))
        rows = np.concatenate([rows_by_method[i] for i in drawn])
        resampled.append(rank_correlations(frame.iloc[rows]))
    low, high = np.quantile(resampled, (0.025, 0.975), axis=0)
    observed, table_rows = rank_correlations(frame), []
    for i, j in itertools.combinations(range(len(ALL)), 2):
        row = {"x": ALL[i], "y": ALL[j], "networks": len(frame)}
        for kind, name in enumerate(("rho", "given_accuracy")):
            row[name] = observed[kind, i, j]
            row[f"{name}_low"] = low[kind, i, j]
            row[f"{name}_high"] = high[kind, i, j]
        table_rows.append(row)
    return pd.DataFrame(table_rows)


def figure(frame: pd.DataFrame):
    """Return a figure of shape bias against each other measure; a marker per network."""
    pairs = [("shape bias", other) for other in ALL[1:]]
    return correlation_plots.scatter(frame, [pairs[:3], pairs[3:]], category="method")


RECORDED = {
    "shape_bias",
    "suppression",
    "tile_order",
    "cue_decomposition",
    "odd_one_out",
    "human",
    "accuracy",
}


def read_records(folders: Iterable[pathlib.Path]) -> pd.DataFrame:
    """Return the records of these measures, without those of single classes and sites."""
    rows = []
    for folder in folders:
        clean = {x.stem.partition("@")[2] for x in folder.glob("evals/tile_order@*")}
        for path in sorted(folder.glob("evals/*.jsonl")):
            measure, _, dataset = path.stem.partition("@")
            is_clean = dataset in clean
            if measure not in RECORDED or (measure == "accuracy" and not is_clean):
                continue
            only_overall = measure in ("shape_bias", "odd_one_out")
            for record in map(json.loads, path.read_text().splitlines()):
                if not (only_overall and "/" in record["condition"]):
                    values = [record[key] for key in COLUMNS[2:]]
                    rows.append([record["run"], measure, *values])
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
    """Read the measures, write the tables and the figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--measured",
        required=True,
        metavar="PATTERN",
        help="output folders of `jbias evaluate`, such as 'measured/six/*'",
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("studies/results/six-measures"),
        metavar="DIR",
        help="folder for the tables (default: %(default)s)",
    )
    parser.add_argument(
        "--figure",
        type=pathlib.Path,
        metavar="FILE",
        help="file of the figure (default: six-measures.svg in --out)",
    )
    parser.add_argument(
        "--records",
        type=pathlib.Path,
        metavar="FILE",
        help="write only the networks' records, to this CSV file",
    )
    options = parser.parse_args(argv)
    folders = map(pathlib.Path, sorted(glob.glob(options.measured)))
    if options.records:
        records = read_records(folders).astype({"count": "Int64"}).round(6)
        records.to_csv(options.records, index=False)
        return 0
    frame = table(folders)
    options.out.mkdir(parents=True, exist_ok=True)
    frame.round(6).to_csv(options.out / "networks.csv", index=False)
    print(frame.drop(columns=["diffused", "cells"]).round(2).to_string(index=False))
    if len(frame) > 2:
        correlations = agreement(frame)
        correlations.round(6).to_csv(options.out / "agreement.csv", index=False)
        path = options.figure or options.out / "six-measures.svg"
        path.write_text(report_plots.to_svg(figure(frame)))
        print(correlations.round(2).to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
