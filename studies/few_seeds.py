r"""Write the tables and figures of docs/few-seeds.md on studies with few seeds.

    python -m studies.few_seeds

Reads the shape bias of each seed in docs/results/all.csv (studies `shapes` and `hundred-seeds`)
and the runs of the BiasBed paper in examples/biasbed_runs.csv. Writes
studies/results/few-seeds.md, OUT/few-seeds.svg and OUT/hundred-seeds.svg.

These commands train the studies `one-init`, `one-order` and `hundred-seeds` (four runs of 25
seeds), and add them to docs/results/all.csv:

    OPTIONS="--config.optim.rate=0.1 --config.precision=float32 --config.run.strategy=vmapped"
    jbias train --config=configs/erm.py:small,more,seeds=10 $OPTIONS \
        --config.save_every='1000 epochs' --config.fix.init=0 --workdir=runs/one-init
    jbias train --config=configs/erm.py:small,more,seeds=10 $OPTIONS \
        --config.save_every='1000 epochs' --config.fix.order=0 --config.fix.augment=0 \
        --config.fix.algorithm=0 --workdir=runs/one-order
    for run in 0 1 2 3; do
        jbias train --config=configs/erm.py:small,more $OPTIONS \
            --config.seeds="($(seq -s, $((25 * run)) $((25 * run + 24))))" \
            --config.save_every='1000 epochs' --workdir=runs/hundred-seeds/$run; done
    for study in one-init one-order; do
        python -m studies.collect_results --runs=runs/$study --study=$study; done
    python -m studies.collect_results --runs='runs/hundred-seeds/*' --study=hundred-seeds

Takes about ten seconds on two cores. The trainings take a few minutes each on a GPU (an
estimate).
"""

import itertools
import pathlib

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "jbias"  # The same file for the same results.

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

from jbias import stats
from studies import all_results, command

ROOT = pathlib.Path(__file__).parents[1]
SEEDS = (1, 3, 5)
MANY_SEEDS = (1, 3, 5, 10, 20, 50)  # For the study of a hundred seeds.
DIFFERENCE = 10  # Percentage points between two studies.
COPIES = 7  # Copies of one method that a study compares.


def shape_biases(study: str = "shapes") -> dict[str, np.ndarray]:
    """Return the shape bias of each seed in %, by method, the largest median first."""
    biases = all_results.by_method(study, "shape_bias")
    order = sorted(biases, key=lambda method: -np.median(biases[method]))
    return {method: biases[method] for method in order}


def format_methods(scores: dict[str, np.ndarray]) -> str:
    """Return the table of methods as Markdown.

    Columns: spread of the seeds, how often two studies of few seeds differ, by how much the
    best of equal methods leads, and the seeds needed to distinguish a method from ERM.

    scores: score per seed, by method.
    """
    head = (
        "Shape bias",
        "median [range]",
        f"1, 3, 5 seeds: two studies differ by > {DIFFERENCE}",
        f"the best of {COPIES} copies leads by",
        "seeds to tell it from ERM",
    )
    lines = []
    for name, values in scores.items():
        copies = _few_seeds([values] * COPIES)
        apart = ", ".join(f"{100 * share:.0f}" for share in copies.apart[:, 0])
        lead = ", ".join(f"{points:.0f}" for points in copies.lead[:, 0])
        num_seeds = _few_seeds([values, scores["ERM"]]).needed[0, 1]
        needed = "–" if name == "ERM" else f"{num_seeds:,.0f}"
        lines.append((name, all_results.spread(values), f"{apart} %", lead, needed))
    return all_results.table(head, lines)


def _few_seeds(scores: list[np.ndarray]):
    """Return stats.few_seeds of the scores for the numbers of seeds in SEEDS."""
    return stats.few_seeds(
        scores, difference=DIFFERENCE, larger_is_better=True, seeds=SEEDS
    )


def format_reversals(tables: dict[str, list[list[np.ndarray]]]) -> str:
    """Return a table of how often pairs of methods change places, by number of seeds.

    tables: row title -> data sets -> methods -> score per seed.
    """
    lines = []
    for title, datasets in tables.items():
        shares = []
        for scores in datasets:
            pairs = np.triu_indices(len(scores), 1)
            reversed_shares = _few_seeds(scores).reversed
            shares.append([100 * np.nanmean(share[pairs]) for share in reversed_shares])
        means = np.mean(shares, axis=0)
        lines.append((title, *(f"{mean:.0f} %" for mean in means)))
    *numbers, last = map(str, SEEDS)
    head = ("Pairs that change places", *numbers, f"{last} seeds")
    return all_results.table(head, lines)


def format_hundred_seeds(values: np.ndarray) -> str:
    """Return a table of studies with seeds drawn from a hundred, by number of seeds.

    Rows: how often two studies differ by more than DIFFERENCE, and the interval of the means
    that 95 % of studies report.
    """
    apart = stats.few_seeds(
        [values],
        difference=DIFFERENCE,
        larger_is_better=True,
        seeds=MANY_SEEDS,
        draws=100_000,
    ).apart[:, 0]
    rng = np.random.default_rng(0)
    means = [rng.choice(values, (100_000, s)).mean(axis=1) for s in MANY_SEEDS]
    intervals = [np.percentile(draws, (2.5, 97.5)) for draws in means]
    head = ("ERM, seeds of a study", *map(str, MANY_SEEDS))
    differ = (
        f"two studies differ by > {DIFFERENCE}",
        *(f"{100 * share:.0f} %" for share in apart),
    )
    reported = (
        "95 % of studies report",
        *(f"{low:.0f} to {high:.0f}" for low, high in intervals),
    )
    return all_results.table(head, [differ, reported])


def read_biasbed() -> list[dict[str, np.ndarray]]:
    """Return the scores of the BiasBed paper's runs, by algorithm, for every test set."""
    rows = pd.read_csv(ROOT / "examples/biasbed_runs.csv").dropna(subset="score")
    return [
        {
            algorithm: runs["score"].values
            for algorithm, runs in dataset_rows.groupby("algorithm")
        }
        for _, dataset_rows in rows.groupby("dataset")
    ]


def pair_with_erm(datasets: list[dict[str, np.ndarray]]) -> list[list[np.ndarray]]:
    """Return pairs of scores of ERM and another method, for every data set."""
    return [
        [scores["ERM"], values]
        for scores in datasets
        for method, values in scores.items()
        if method != "ERM"
    ]


def draw(values: np.ndarray, path: pathlib.Path) -> None:
    """Write a figure of the means that studies of ERM with few seeds would report."""
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
    """Write a histogram of the shape biases of a hundred seeds."""
    figure, axes = plt.subplots(figsize=(6.4, 2.4), layout="constrained")
    axes.hist(values, bins=np.arange(0, 101, 5), color="C0", rwidth=0.9)
    axes.set_xlim(0, 100)
    axes.set_xlabel("shape bias of ERM, %")
    axes.set_ylabel(f"of {len(values)} seeds")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Write the tables and figures."""
    parser = command.parser("few_seeds", __doc__)
    command.add_out(parser, "the figures")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    scores = shape_biases()
    published = read_biasbed()
    tables = {
        "shape bias here, all pairs of fifteen methods": [[*scores.values()]],
        "shape bias here, ERM with each": pair_with_erm([scores]),
        "BiasBed's ten test sets, all pairs of eight": [
            [*x.values()] for x in published
        ],
        "BiasBed's ten test sets, ERM with each": pair_with_erm(published),
    }
    hundred = shape_biases("hundred-seeds")["ERM"]
    sections = (
        format_methods(scores),
        format_reversals(tables),
        format_hundred_seeds(hundred),
    )
    text = "\n".join(sections)
    path = ROOT / "studies/results/few-seeds.md"
    path.write_text(text, encoding="utf-8")
    draw(scores["ERM"], options.out / "few-seeds.svg")
    draw_hundred(hundred, options.out / "hundred-seeds.svg")
    print(text)


if __name__ == "__main__":
    main()
