r"""Compare six measures of shape or texture on the same networks: values and rank agreement.

    python -m studies.six_measures --measured='measured/six/*'
    python -m studies.six_measures --measured='measured/tiny/*' --records=FILE.csv

Reads folders, one per network, with results of shape_bias (suite biases) and of the suites
suppression and shape. Writes networks.csv and, with three or more networks, agreement.csv to --out
and the figure to --figure. With --records, writes only that file.

- networks.csv: a row per network, with the measures and accuracy.
- agreement.csv: a row per pair of the six measures and accuracy, with Spearman's rho over
  networks, partial rho given accuracy, and 95 % intervals. Intervals resample methods with all
  their networks; with few methods they are somewhat too narrow.
- The figure shows shape bias against each other measure and accuracy.

Each measure is large if shape decides:

    shape bias         decisions for the shape among those for either cue
    rank of shape      mean reciprocal rank of the shape's class on cue conflicts
    without texture    accuracy after the bilateral filter minus accuracy on shuffled tiles,
                       each relative and above chance (bilateral 12, shuffle 6)
    order of parts     share of anagram pairs (two shapes made of the same tiles) with both
                       pictures classified right; on the embedded set only
    edges              accuracy after edge-enhancing diffusion, relative to accuracy on shuffled
                       cells: d / (d + c), where d and c are these accuracies divided by their
                       means over all networks
    odd one out        share of images whose last-layer features are far from those of two
                       pictures with swapped tiles: farther than these two are from each other

The networks of docs/six-measures.md are the methods' configs with :small,more,seeds=2, at the
rates of docs/results/shapes/rates.json (in runs/six), and for photographs one network (in
runs/tiny), with the data set tiny26 and the stimuli of studies.other_settings:

    TINY=data=tiny_imagenet,root=tiny26
    jbias train --config=configs/erm.py:$TINY,stimuli=STIMULI,seeds=1,epochs=12,size=32 \
        --workdir=runs/tiny/erm

These commands measure both:

    jbias evaluate --checkpoint='runs/six/*' --out=measured/six --suite=configs/suites/shape.py
    jbias evaluate --checkpoint='runs/six/*' --out=measured/six \
        --suite=configs/suites/biases.py --only=shape_bias
    jbias evaluate --checkpoint='runs/six/*' --out=measured/six \
        --suite=configs/suites/suppression.py \
        --suite.measures.suppression.families="('people',)"
    jbias evaluate --checkpoint='runs/tiny/*' --out=measured/tiny \
        --suite=configs/suites/shape.py:$TINY,size=32,images=400 \
        --only=tile_order,cue_decomposition,odd_one_out
    jbias evaluate --checkpoint='runs/tiny/*' --out=measured/tiny \
        --suite=configs/suites/biases.py:$TINY,stimuli=STIMULI,size=32 --only=shape_bias
    jbias evaluate --checkpoint='runs/tiny/*' --out=measured/tiny \
        --suite=configs/suites/suppression.py:$TINY,size=32 \
        --suite.measures.suppression.families="('people',)"
    python -m studies.six_measures --measured='measured/six/*' --figure=docs/six-measures.svg
    python -m studies.six_measures --measured='measured/tiny/*' \
        --records=studies/results/six-measures/photographs.csv

Takes about half a minute on two cores, without the trainings and measurements.
"""

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
from studies import all_results, command

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
    parser = command.parser("six_measures", __doc__)
    parser.add_argument(
        "--measured",
        required=True,
        metavar="PATTERN",
        help="quoted pattern of the output folders of `jbias evaluate`, one per network, such as "
        "'measured/six/*' (required)",
    )
    tables_folder = pathlib.Path("studies/results/six-measures")
    command.add_out(parser, "the tables", tables_folder)
    parser.add_argument(
        "--figure",
        type=pathlib.Path,
        metavar="FILE",
        help="SVG file to write the figure to (default: six-measures.svg in --out)",
    )
    parser.add_argument(
        "--records",
        type=pathlib.Path,
        metavar="FILE",
        help="CSV file to write the networks' records to, and nothing else (default: write the "
        "tables and the figure)",
    )
    options = parser.parse_args(argv)
    folders = [*map(pathlib.Path, sorted(glob.glob(options.measured)))]
    if not folders:
        parser.error(
            f"--measured: no folder matches {options.measured!r}; name the output folders of "
            "`jbias evaluate`"
        )
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
