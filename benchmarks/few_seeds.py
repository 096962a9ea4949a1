"""What studies of fewer seeds would have said: tables and figures of docs/few-seeds.md.

    python -m benchmarks.few_seeds [--out=docs]

From the shape bias of each seed in docs/results/all.csv (studies `shapes` and
`hundred-seeds`), and the runs of the BiasBed paper in examples/biasbed_runs.csv. Writes
benchmarks/results/few-seeds.md, few-seeds.svg and hundred-seeds.svg.
"""

import argparse
import itertools
import pathlib

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "jbias"  # The same file for the same results.

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

from benchmarks import all_results
from jbias import stats

ROOT = pathlib.Path(__file__).parents[1]
SEEDS = (1, 3, 5)
MANY = (1, 3, 5, 10, 20, 50)  # Of a hundred.
FAR, COPIES = 10, 7  # Points; methods that are all the same one.


def shape_biases(study: str = "shapes") -> dict[str, np.ndarray]:
    """Shape bias of each seed in %, by method, the largest median first."""
    found = all_results.by_method(study, "shape_bias")
    return dict(sorted(found.items(), key=lambda one: -np.median(one[1])))


def shape(scores: dict[str, np.ndarray]) -> str:
    """The table of methods: groups apart, the best of seven copies, seeds against ERM."""
    head = (
        *("Shape bias", "median [range]"),
        f"1, 3, 5 seeds: two studies differ by > {FAR}",
        *(f"the best of {COPIES} copies leads by", "seeds to tell it from ERM"),
    )
    lines = []
    asked = dict(difference=FAR, larger_is_better=True, seeds=SEEDS)
    for name, values in scores.items():
        found = stats.few_seeds([values] * COPIES, **asked)
        apart = ", ".join(f"{100 * share:.0f}" for share in found.apart[:, 0])
        lead = ", ".join(f"{points:.0f}" for points in found.lead[:, 0])
        against = stats.few_seeds([values, scores["ERM"]], **asked).needed[0, 1]
        needed = "–" if name == "ERM" else f"{against:,.0f}"
        lines.append((name, all_results.spread(values), f"{apart} %", lead, needed))
    return all_results.table(head, lines)


def turned(tables: dict[str, list[list[np.ndarray]]]) -> str:
    """The table of signs: how often pairs of methods change places, by seeds."""
    lines = []
    for name, sets in tables.items():
        shares = []
        for scores in sets:
            asked = dict(difference=FAR, larger_is_better=True, seeds=SEEDS)
            found = stats.few_seeds(scores, **asked).reversed
            each = np.triu_indices(len(scores), 1)
            shares.append([100 * np.nanmean(one[each]) for one in found])
        means = np.mean(shares, axis=0)
        lines.append((name, *(f"{x:.0f} %" for x in means)))
    first, *others = SEEDS
    head = ("Pairs that change places", str(first), *map(str, others[:-1]))
    return all_results.table((*head, f"{others[-1]} seeds"), lines)


def of_hundred(values: np.ndarray) -> str:
    """The table of a hundred seeds: studies apart, and what most of new ones would report."""
    asked = dict(difference=FAR, larger_is_better=True, seeds=MANY, draws=100_000)
    apart = stats.few_seeds([values], **asked).apart[:, 0]
    rng = np.random.default_rng(0)
    means = [rng.choice(values, (100_000, s)).mean(axis=1) for s in MANY]
    ends = [np.percentile(one, (2.5, 97.5)) for one in means]
    head = ("ERM, seeds of a study", *map(str, MANY))
    far = (f"two studies differ by > {FAR}", *(f"{100 * x:.0f} %" for x in apart))
    most = (
        "95 % of studies report",
        *(f"{low:.0f} to {high:.0f}" for low, high in ends),
    )
    return all_results.table(head, [far, most])


def of_biasbed() -> list[dict[str, np.ndarray]]:
    """The scores of each run of the BiasBed paper, by algorithm, for every test set."""
    rows = pd.read_csv(ROOT / "examples/biasbed_runs.csv").dropna(subset="score")
    return [
        {name: one["score"].values for name, one in of_set.groupby("algorithm")}
        for _, of_set in rows.groupby("dataset")
    ]


def with_erm(sets: list[dict[str, np.ndarray]]) -> list[list[np.ndarray]]:
    """Pairs of ERM and another, of every test set."""
    return [
        [scores["ERM"], one]
        for scores in sets
        for name, one in scores.items()
        if name != "ERM"
    ]


def draw(values: np.ndarray, path: pathlib.Path) -> None:
    """What studies of ERM would have reported: every mean of s of its seeds."""
    figure, axes = plt.subplots(figsize=(6.4, 2.8), layout="constrained")
    for row, s in enumerate(SEEDS):
        groups = itertools.combinations(values, s)
        means = np.array([np.mean(group) for group in groups])
        shift = np.random.default_rng(0).uniform(-0.3, 0.3, len(means))
        axes.plot(means, row + shift, "o", ms=4, alpha=0.4, mew=0, c="C0")
    axes.axvline(np.mean(values), c="C1", lw=2)
    axes.annotate(
        f" mean of all {len(values)} seeds", (np.mean(values), -0.75), va="center"
    )
    labels = [f"{s} seed{'s' * (s > 1)}" for s in SEEDS]
    axes.set_yticks(range(3), labels)
    axes.set_ylim(2.5, -1)
    axes.set_xlim(0, 100)
    axes.set_xlabel("shape bias of ERM that a study would have reported, %")
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def draw_hundred(values: np.ndarray, path: pathlib.Path) -> None:
    """How many of a hundred seeds have which shape bias."""
    figure, axes = plt.subplots(figsize=(6.4, 2.4), layout="constrained")
    axes.hist(values, bins=np.arange(0, 101, 5), color="C0", rwidth=0.9)
    axes.set_xlim(0, 100)
    axes.set_xlabel("shape bias of ERM, %")
    axes.set_ylabel(f"of {len(values)} seeds")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Writes tables and figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=pathlib.Path, default=ROOT / "docs", help="of the figures"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    scores = shape_biases()
    published = of_biasbed()
    tables = {
        "shape bias here, all pairs of fifteen methods": [[*scores.values()]],
        "shape bias here, ERM with each": with_erm([scores]),
        "BiasBed's ten test sets, all pairs of eight": [
            [*x.values()] for x in published
        ],
        "BiasBed's ten test sets, ERM with each": with_erm(published),
    }
    hundred = shape_biases("hundred-seeds")["ERM"]
    told = f"{shape(scores)}\n{turned(tables)}\n{of_hundred(hundred)}"
    path = ROOT / "benchmarks/results/few-seeds.md"
    path.write_text(told, encoding="utf-8")
    draw(scores["ERM"], options.out / "few-seeds.svg")
    draw_hundred(hundred, options.out / "hundred-seeds.svg")
    print(told)


if __name__ == "__main__":
    main()
