"""Write the tables and the figure of docs/results.md#at-every-rate.

    python -m studies.every_rate

Reads the study `every-rate` (eight methods, ten seeds each at each of three learning rates) in
docs/results/all.csv, and docs/results/every-rate/rates.json. Writes
studies/results/every-rate.md and OUT/results-rates.svg.

Takes about five seconds on two cores.
"""

import json
import pathlib

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "jbias"  # The same file for the same results.

import numpy as np
import scipy.stats
from matplotlib import pyplot as plt

from jbias import stats
from studies import all_results, claims, command

ROOT = pathlib.Path(__file__).parents[1]
STUDY = "every-rate"
Grid = dict[str, dict[float, np.ndarray]]  # Method -> learning rate -> score per seed.


def shape_biases() -> Grid:
    """Return shape biases in %: ERM first, then by increasing median over all rates."""
    rates = sorted(all_results.rows_of(STUDY, "shape_bias")["rate"].unique())
    by_rate = {
        rate: all_results.by_method(STUDY, "shape_bias", rate=rate) for rate in rates
    }
    grid = {
        method: {rate: by_rate[rate][method] for rate in rates}
        for method in by_rate[rates[0]]
    }
    medians = {
        method: np.median([*seeds_by_rate.values()])
        for method, seeds_by_rate in grid.items()
    }
    order = sorted(grid, key=lambda method: (method != "ERM", medians[method]))
    return {method: grid[method] for method in order}


def selected_rates() -> dict[str, float]:
    """Return the rate that validation with five other seeds selected, by method."""
    rates = json.loads((ROOT / f"docs/results/{STUDY}/rates.json").read_text())
    return {name: method["chosen"] for name, method in rates.items()}


# Names of methods in rates.json.
FOLDERS = {
    "DeepAugment (CAE)": "deepaugment:nets=cae",
    "Stylized ERM": "stylized_erm",
    "RandConv": "rand_conv",
    "Gaussian noise": "gaussian_noise",
    "ERM": "erm",
    "SagNet": "sagnet",
    "pAdaIN": "padain",
    "MixStyle": "mixstyle",
}


def format_scores(grid: Grid) -> str:
    """Return the table of methods as Markdown.

    Columns: median [lowest, highest] shape bias at each rate, median accuracies on the set
    `test`, mean ranks in accuracy over all ten sets, and the selected rate.
    """
    rates, selected = [*grid["ERM"]], selected_rates()
    ranks, test_accuracies = {}, {}
    for rate, cells in claims.scores_by_rate(STUDY, "accuracy").items():
        table = claims.mean_scores(cells)
        mean_ranks = stats.friedman(table, larger_is_better=True).ranks
        methods = (all_results.NAMES.get(name, name) for name in table)
        ranks[rate] = dict(zip(methods, mean_ranks, strict=True))
        test_accuracies[rate] = all_results.by_method(
            STUDY, "accuracy", dataset="test", rate=rate
        )
    head = ("Shape bias, %", *(f"rate {rate:g}" for rate in rates))
    head += (
        "accuracy on `test` at the three rates, %",
        "mean rank in accuracy",
        "chosen rate",
    )
    lines = [
        (
            method,
            *map(all_results.spread, by_rate.values()),
            ", ".join(
                f"{np.median(test_accuracies[rate][method]):.0f}" for rate in rates
            ),
            ", ".join(f"{ranks[rate][method]:.1f}" for rate in rates),
            f"{selected[FOLDERS[method]]:g}",
        )
        for method, by_rate in grid.items()
    ]
    return all_results.table(head, lines)


def format_differences(grid: Grid) -> str:
    """Return the table of differences from ERM as Markdown.

    Columns: difference of medians at each rate with p, adjusted by Holm's method, and how
    many pairs of rates have a positive difference.
    """
    erm = grid["ERM"]
    rates, methods = [*erm], [method for method in grid if method != "ERM"]
    pairs = [(method, rate) for method in methods for rate in rates]
    pvalues = [
        scipy.stats.mannwhitneyu(grid[method][rate], erm[rate]).pvalue
        for method, rate in pairs
    ]
    adjusted = dict(zip(pairs, stats.adjust(pvalues, "holm"), strict=True))
    head = ("Shape bias above ERM's", *(f"rate {rate:g}" for rate in rates))
    lines = []
    for method in methods:
        cells = (
            f"{np.median(grid[method][rate]) - np.median(erm[rate]):+.0f} "
            f"(p = {all_results.p_value(adjusted[method, rate])})"
            for rate in rates
        )
        above = sum(
            np.median(x) > np.median(y)
            for x in grid[method].values()
            for y in erm.values()
        )
        lines.append((method, *cells, f"{above} of {len(rates) ** 2}"))
    return all_results.table((*head, "at every pair of rates"), lines)


def draw(grid: Grid, path: pathlib.Path) -> None:
    """Write a figure with a row per method and a band of the row per rate.

    Each dot is a seed, each line a median.
    """
    figure, axes = plt.subplots(figsize=(6.4, 5.2), layout="constrained")
    rates = [*grid["ERM"]]
    for row, by_rate in enumerate(grid.values()):
        for band, (rate, values) in enumerate(by_rate.items()):
            y, colour = row + 0.26 * (band - 1), f"C{band}"
            axes.plot(values, [y] * len(values), "o", ms=4, alpha=0.5, mew=0, c=colour)
            median = 2 * [np.median(values)]
            label = f"rate {rate:g}" if row == 0 else None
            axes.plot(median, [y - 0.11, y + 0.11], lw=2, c=colour, label=label)
    for row in range(len(grid) - 1):
        axes.axhline(row + 0.5, c="0.93", lw=0.8, zorder=0)
    axes.set_yticks(range(len(grid)), grid)
    axes.set_ylim(-0.5, len(grid) - 0.5)
    axes.set_xlim(0, 100)
    axes.set_xlabel("shape bias, %: a dot a seed, a line at the median")
    handles, labels = axes.get_legend_handles_labels()
    order = slice(None, None, -1)  # The order of the bands from top to bottom.
    figure.legend(
        handles[order], labels[order], loc="outside upper right", ncols=len(rates)
    )
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main(argv: list[str] | None = None) -> None:
    """Write the tables and the figure."""
    parser = command.parser("every_rate", __doc__)
    command.add_out(parser, "the figure")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    grid = shape_biases()
    text = f"{format_scores(grid)}\n{format_differences(grid)}"
    (ROOT / "studies/results/every-rate.md").write_text(text, encoding="utf-8")
    draw(grid, options.out / "results-rates.svg")
    print(text)


if __name__ == "__main__":
    main()
