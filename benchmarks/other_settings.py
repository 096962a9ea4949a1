"""Thirty epochs, 64 pixels, photographs: the tables and the figure of docs/results.md.

    python -m benchmarks.other_settings [--out=docs]
    python -m benchmarks.other_settings --runs runs/constant/* runs/cosine/*

From docs/results/all.csv and docs/results/thirty_epochs.csv. Writes
benchmarks/results/other-settings.md and OUT/results-epochs.svg. With --runs,
thirty_epochs.csv is first made of these runs: a row is an epoch of a seed, the columns its accuracies and its
shape bias, as shares of 1.
"""

import argparse
import json
import pathlib

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "jbias"  # The same file for the same results.

import numpy as np
import pandas as pd
import scipy.stats
from matplotlib import pyplot as plt

from benchmarks import all_results
from jbias import stats
from jbias.runs import results

ROOT = pathlib.Path(__file__).parents[1]
EPOCHS = ROOT / "docs/results/thirty_epochs.csv"
RUN = ["method", "schedule", "seed", "epoch"]
EARLY = 5  # Epochs that other tables have.
SETTLED = 10  # Epochs whose swings are not counted: the network still learns much.


def of_runs(workdirs: list[str]) -> pd.DataFrame:
    """The scores of every epoch: a column a test set, validation and shape bias."""
    rows = results.read(workdirs)
    rows = rows[rows["metric"].isin(["accuracy", "shape_bias"])]
    rows = rows[rows["dataset"] != "train"]
    shape = rows["metric"] == "shape_bias"
    schedules = {
        name: json.loads((pathlib.Path(name) / "config.json").read_text())["optim"]
        for name in rows["workdir"].unique()
    }
    rows = rows.assign(
        column=rows["dataset"].astype(object).where(~shape, "shape_bias"),
        schedule=[schedules[name]["schedule"]["name"] for name in rows["workdir"]],
        method=[all_results.NAMES.get(x, x) for x in all_results.methods(rows)],
        epoch=rows["epoch"].round().astype(int),
    )
    return rows.pivot(index=RUN, columns="column", values="value").sort_index()


def gaps(accuracy: pd.DataFrame, chosen: int) -> pd.Series:
    """Of each set: how much better its own best epoch is than the chosen one."""
    return (accuracy.max() - accuracy.iloc[chosen]).drop("valid")


def swings(accuracy: pd.DataFrame) -> pd.Series:
    """Of each set: the mean absolute change from an epoch to the next."""
    return accuracy.diff().abs().iloc[SETTLED:].mean()


def of_epochs(scores: pd.DataFrame) -> str:
    """The table of thirty epochs: the gap to an oracle, swings, and what stays."""
    lines = []
    for (method, schedule), of in scores.groupby(["method", "schedule"], sort=False):
        seeds = [100 * one.droplevel(RUN[:3]) for _, one in of.groupby("seed")]
        # Validation may be best in several epochs: the first, as jbias selects.
        chosen = [one["valid"].argmax() for one in seeds]
        shape = [one.pop("shape_bias") for one in seeds]
        moved = [(one.loc[EARLY:] - one.loc[EARLY]).abs().max() for one in shape]
        best = [one.iloc[at] for one, at in zip(shape, chosen, strict=True)]
        gap = pd.concat(map(gaps, seeds, chosen), axis=1).mean(axis=1)
        swing = pd.concat(map(swings, seeds), axis=1).mean(axis=1)
        outside = swing.drop(["valid", "test"])
        lines.append(
            (
                f"{method}, {schedule}",
                all_results.spread(np.array(best)),
                f"{max(moved):.0f}",
                f"{gap.mean():.1f}; {gap.max():.1f} ({gap.idxmax()})",
                f"{swing['valid']:.1f}",
                f"{outside.mean():.1f}; {outside.max():.1f} ({outside.idxmax()})",
            )
        )
    head = (
        *("Method, schedule", "shape bias, %"),
        f"largest change of a seed after epoch {EARLY}",
        "gap to an oracle: mean; largest (set)",
        *("swing in validation", "elsewhere: mean; largest (set)"),
    )
    return all_results.table(head, lines)


def of_pixels() -> str:
    """The table of 64 pixels beside 32, at one rate of each method."""
    rows = all_results.rows_of("64-pixels", "shape_bias")
    rates = {
        all_results.NAMES.get(name, name): rate
        for name, rate in zip(rows["method"], rows["rate"], strict=True)
    }

    def both(metric: str, **where: object) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        large = all_results.by_method("64-pixels", metric, **where)
        small = {
            rate: all_results.by_method("every-rate", metric, rate=rate, **where)
            for rate in {*rates.values()}
        }
        return {name: (small[rate][name], large[name]) for name, rate in rates.items()}

    shape, right = both("shape_bias"), both("accuracy", dataset="test")
    p = [scipy.stats.mannwhitneyu(*pair).pvalue for pair in shape.values()]
    lines = [
        (
            name,
            f"{rates[name]:g}",
            *map(all_results.spread, shape[name]),
            all_results.p_value(adjusted),
            *map(all_results.spread, right[name]),
        )
        for name, adjusted in zip(rates, stats.adjust(p, "holm"), strict=True)
    ]
    head = (
        *("Shape bias, %", "rate", "32 pixels, ten seeds", "64 pixels, five seeds"),
        *("p", "accuracy on `test` at 32", "at 64"),
    )
    return all_results.table(head, lines)


def of_photographs() -> str:
    """The table of photographs; p of Dunnett's test against ERM."""
    shape = all_results.by_method("tiny-imagenet", "shape_bias")
    neither = all_results.by_method("tiny-imagenet", "fraction_neither")
    others = [name for name in shape if name != "ERM"]
    found = scipy.stats.dunnett(
        *(shape[name] for name in others), control=shape["ERM"], rng=0
    )
    # Its integral is exact to some three digits after the point.
    p = {
        name: "< 0.001" if one < 0.001 else all_results.p_value(one)
        for name, one in zip(others, found.pvalue, strict=True)
    }
    sets = ("val", "cue-conflict", "edge", "silhouette")
    right = [
        all_results.by_method("tiny-imagenet", "accuracy", dataset=x) for x in sets
    ]
    lines = [
        (
            name,
            all_results.spread(shape[name]),
            p.get(name, "–"),
            *(f"{np.median(of[name]):.0f}" for of in (neither, *right)),
        )
        for name in sorted(shape, key=lambda name: -np.median(shape[name]))
    ]
    head = ("Photographs, %", "shape bias", "p against ERM", "neither cue", *sets)
    return all_results.table(head, lines)


def draw(scores: pd.DataFrame, path: pathlib.Path) -> None:
    """Draws a line a seed: shape bias after each epoch, a panel a method and schedule."""
    figure, axes = plt.subplots(
        2, 2, figsize=(6.4, 4.4), layout="constrained", sharex=True, sharey=True
    )
    for row, method in zip(axes, ("ERM", "SagNet"), strict=True):
        for panel, schedule in zip(row, ("constant", "cosine"), strict=True):
            of = scores.loc[method, schedule]["shape_bias"].unstack("seed")
            panel.plot(of.index, 100 * of.to_numpy(), lw=1.2)
            panel.set_title(f"{method}, {schedule} rate", fontsize=10)
            panel.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylim(0, 100)
    axes[0, 0].set_xlim(0, 30)
    figure.supylabel("shape bias, %: a line a seed", fontsize=10)
    figure.supxlabel("epoch", fontsize=10)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main(argv: list[str] | None = None) -> None:
    """Writes the tables and the figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=pathlib.Path, default=ROOT / "docs", help="of the figure"
    )
    parser.add_argument("--runs", nargs="+", metavar="WORKDIR")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    scores = pd.read_csv(EPOCHS, index_col=RUN)
    if options.runs:
        found = of_runs(options.runs).round(6)
        if missing := {*scores.index.droplevel(["seed", "epoch"])} - {
            *found.index.droplevel(["seed", "epoch"])
        }:
            wanted = ", ".join(" ".join(one) for one in sorted(missing))
            parser.error(f"--runs: without {wanted}; all are needed")
        found.to_csv(EPOCHS)
        scores = found
    text = f"{of_epochs(scores)}\n{of_pixels()}\n{of_photographs()}"
    path = ROOT / "benchmarks/results/other-settings.md"
    path.write_text(text, encoding="utf-8")
    draw(scores, options.out / "results-epochs.svg")
    print(text)


if __name__ == "__main__":
    main()
