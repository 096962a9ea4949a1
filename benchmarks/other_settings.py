"""Thirty epochs, 64 pixels, photographs: the tables and the figure of docs/results.md.

    python -m benchmarks.other_settings [--out=docs]
    python -m benchmarks.other_settings --runs runs/thirty-epochs/*

From docs/results/all.csv and docs/results/thirty_epochs.csv. Writes
benchmarks/results/other-settings.md and OUT/results-epochs.svg. With --runs, the latter is
first made of these runs: a row is an epoch of a seed, the columns its accuracies and its
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

from benchmarks import claims, plots, standing
from jbias import stats
from jbias.runs import results

ROOT = pathlib.Path(__file__).parents[1]
EPOCHS = ROOT / "docs/results/thirty_epochs.csv"
RUN = ["method", "schedule", "seed", "epoch"]
SETTLED = 10  # Epochs whose swings are not counted: the network still learns much.


def of_runs(workdirs: list[str]) -> pd.DataFrame:
    """The scores of every epoch: a column a test set, validation and shape bias."""
    rows = results.read(workdirs)
    rows = rows[rows["metric"].isin(standing.METRICS) & (rows["dataset"] != "train")]
    shape = rows["metric"] == "shape_bias"
    column = rows["dataset"].astype(object).where(~shape, "shape_bias")
    schedules = {
        name: json.loads((pathlib.Path(name) / "config.json").read_text())
        for name in rows["workdir"].unique()
    }
    schedules = {k: v["optim"]["schedule"]["name"] for k, v in schedules.items()}
    variant = " (" + rows["variant"].astype(object) + ")"
    method = rows["algorithm"].astype(object) + variant.where(rows["variant"] != "", "")
    rows = rows.assign(
        column=column,
        schedule=rows["workdir"].map(schedules).astype(object),
        method=[plots.NAMES.get(name, name) for name in method],
        epoch=rows["epoch"].round().astype(int),
    )
    return rows.pivot(index=RUN, columns="column", values="value").sort_index()


def medians(values: np.ndarray) -> str:
    """A cell: the median [lowest, highest]."""
    return f"{np.median(values):.0f} [{min(values):.0f}, {max(values):.0f}]"


def table(head: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    """Markdown: the first column to the left, the others to the right."""
    rule = "| --- |" + " --: |" * (len(head) - 1)
    rows = [f"| {' | '.join(cells)} |" for cells in (head, *lines)]
    return "\n".join((rows[0], rule, *rows[1:])) + "\n"


def by_method(study: str, metric: str, **where: object) -> dict[str, np.ndarray]:
    """The scores of a study in %, of each method by the order of seeds."""
    rows = claims.rows_of(study, metric)
    for column, value in where.items():
        rows = rows[rows[column] == value]
    return {
        plots.NAMES.get(name, name): 100 * of.sort_values("seed")["score"].to_numpy()
        for name, of in rows.groupby("method")
    }


def gaps(scores: pd.DataFrame) -> pd.Series:
    """Of each set: what the best epoch has above the one that is best in validation.

    scores: epochs x sets of one seed, with the column `valid`.
    """
    chosen = scores.iloc[scores["valid"].to_numpy().argmax()]
    return (scores.max() - chosen).drop("valid")


def swings(scores: pd.DataFrame) -> pd.Series:
    """Of each set: the mean absolute change from an epoch to the next."""
    return scores.diff().abs().iloc[SETTLED:].mean()


def of_epochs(scores: pd.DataFrame) -> str:
    """The table of thirty epochs: the gap to an oracle, swings, and what stays."""
    lines = []
    for (method, schedule), of in scores.groupby(["method", "schedule"], sort=False):
        seeds = of.groupby("seed")
        accuracy = of.drop(columns="shape_bias").groupby("seed")
        gap = 100 * accuracy.apply(gaps).mean()
        swing = 100 * accuracy.apply(swings).mean()
        outside = swing.drop(["valid", "test"])
        shape = 100 * of["shape_bias"].unstack("seed").droplevel([0, 1])
        # Validation may be best in several epochs: the first, as jbias selects.
        best = [100 * x["shape_bias"].iloc[x["valid"].argmax()] for _, x in seeds]
        late = (shape.loc[30] - shape.loc[5]).abs().max()
        lines.append(
            (
                f"{method}, {schedule}",
                medians(np.array(best)),
                f"{late:.0f}",
                f"{gap.mean():.1f}; {gap.max():.1f} ({gap.idxmax()})",
                f"{swing['valid']:.1f}",
                f"{outside.mean():.1f}; {outside.max():.1f} ({outside.idxmax()})",
            )
        )
    head = (
        "Rate of 30 epochs",
        "shape bias, %",
        "most that a seed's changes after the fifth epoch",
        "gap to an oracle: mean; largest (set)",
        "swing in validation",
        "elsewhere: mean; largest (set)",
    )
    return table(head, lines)


def of_pixels() -> str:
    """The table of 64 pixels beside 32, at one rate of each method."""
    shape = by_method("64-pixels", "shape_bias")
    right = by_method("64-pixels", "accuracy", dataset="test")
    rows = claims.rows_of("64-pixels", "shape_bias")
    rates = {plots.NAMES.get(n, n): r for n, r in zip(rows["method"], rows["rate"])}
    small = {
        name: by_method("every-rate", "shape_bias", rate=rate)[name]
        for name, rate in rates.items()
    }
    p = [scipy.stats.mannwhitneyu(small[name], shape[name]).pvalue for name in shape]
    lines = [
        (
            name,
            f"{rates[name]:g}",
            medians(small[name]),
            medians(shape[name]),
            claims.told(adjusted),
            f"{np.median(right[name]):.0f}",
        )
        for name, adjusted in zip(shape, stats.adjust(p, "holm"), strict=True)
    ]
    head = (
        *("Shape bias, %", "rate", "32 pixels, ten seeds", "64 pixels, five seeds"),
        *("p", "accuracy on `test` at 64"),
    )
    return table(head, lines)


def _told(p: float) -> str:
    """Dunnett's p, whose integral is exact to some three digits after the point."""
    return "< 0.001" if p < 0.001 else claims.told(p)


def of_photographs() -> str:
    """The table of photographs; p of Dunnett's test against ERM."""
    shape = by_method("tiny-imagenet", "shape_bias")
    others = [name for name in shape if name != "ERM"]
    found = scipy.stats.dunnett(
        *(shape[name] for name in others), control=shape["ERM"], rng=0
    )
    p = dict(zip(others, found.pvalue, strict=True))
    sets = ("val", "cue-conflict", "edge", "silhouette")
    right = {x: by_method("tiny-imagenet", "accuracy", dataset=x) for x in sets}
    order = sorted(shape, key=lambda name: -np.median(shape[name]))
    lines = [
        (
            name,
            medians(shape[name]),
            "–" if name == "ERM" else _told(p[name]),
            *(f"{np.median(right[x][name]):.0f}" for x in sets),
        )
        for name in order
    ]
    return table(("Photographs, %", "shape bias", "p against ERM", *sets), lines)


def draw(scores: pd.DataFrame, path: pathlib.Path) -> None:
    """Draws a line a seed: shape bias after each epoch, a panel a method and schedule."""
    methods = [name for name in ("ERM", "SagNet") if name in scores.index.levels[0]]
    figure, axes = plt.subplots(
        2, 2, figsize=(6.4, 4.4), layout="constrained", sharex=True, sharey=True
    )
    for row, method in zip(axes, methods, strict=True):
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
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs")
    parser.add_argument("--runs", nargs="+", metavar="WORKDIR")
    options = parser.parse_args(argv)
    if options.runs:
        of_runs(options.runs).round(6).to_csv(EPOCHS)
    scores = pd.read_csv(EPOCHS, index_col=RUN)
    text = f"{of_epochs(scores)}\n{of_pixels()}\n{of_photographs()}"
    path = ROOT / "benchmarks/results/other-settings.md"
    path.write_text(text, encoding="utf-8")
    draw(scores, options.out / "results-epochs.svg")
    print(text)


if __name__ == "__main__":
    main()
