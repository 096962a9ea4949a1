"""What holds at every rate: the table and the figure of docs/results.md#at-every-rate.

    python -m benchmarks.every_rate [--out=docs]

From the study `every-rate` of docs/results/all.csv: eight methods, ten seeds each at each of
three rates. Writes benchmarks/results/every-rate.md and OUT/results-rates.svg.
"""

import argparse
import json
import pathlib

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "jbias"  # The same file for the same results.

import numpy as np
import scipy.stats
from matplotlib import pyplot as plt

from benchmarks import all_results, claims
from jbias import stats

ROOT = pathlib.Path(__file__).parents[1]
STUDY = "every-rate"
Grid = dict[str, dict[float, np.ndarray]]  # Of each method and rate, seeds.


def shape_biases() -> Grid:
    """Shape bias in %; ERM first, then as the medians over all rates rise."""
    rates = sorted(all_results.rows_of(STUDY, "shape_bias")["rate"].unique())
    each = {
        rate: all_results.by_method(STUDY, "shape_bias", rate=rate) for rate in rates
    }
    found = {
        name: {rate: each[rate][name] for rate in rates} for name in each[rates[0]]
    }
    middle = {name: np.median([*of.values()]) for name, of in found.items()}
    return dict(
        sorted(found.items(), key=lambda one: (one[0] != "ERM", middle[one[0]]))
    )


def chosen() -> dict[str, float]:
    """The rate that validation of five other seeds chose for each method."""
    rates = json.loads((ROOT / f"docs/results/{STUDY}/rates.json").read_text())
    return {name: one["chosen"] for name, one in rates.items()}


def folders() -> dict[str, str]:
    """How rates.json calls each method."""
    own = {"DeepAugment (CAE)": "deepaugment:nets=cae", "Stylized ERM": "stylized_erm"}
    own |= {"RandConv": "rand_conv", "Gaussian noise": "gaussian_noise"}
    return own | {
        name: name.lower() for name in ("ERM", "SagNet", "pAdaIN", "MixStyle")
    }


def scores(found: Grid) -> str:
    """The table of methods: median [lowest, highest] at each rate; accuracies; the choice.

    Accuracies are the medians on the set `test`, and mean ranks over all ten sets.
    """
    rates, picked, names = [*found["ERM"]], chosen(), folders()
    ranks, on_test = {}, {}
    for rate, cells in claims.over_rates(STUDY, "accuracy").items():
        table = claims.means(cells)
        of = stats.friedman(table, larger_is_better=True).ranks
        called = (all_results.NAMES.get(name, name) for name in table)
        ranks[rate] = dict(zip(called, of, strict=True))
        asked = dict(dataset="test", rate=rate)
        on_test[rate] = all_results.by_method(STUDY, "accuracy", **asked)
    head = ("Shape bias, %", *(f"rate {rate:g}" for rate in rates))
    head += ("accuracy on `test` at each, %", "mean rank in accuracy", "chosen rate")
    lines = [
        (
            name,
            *map(all_results.spread, of.values()),
            ", ".join(f"{np.median(on_test[rate][name]):.0f}" for rate in rates),
            ", ".join(f"{ranks[rate][name]:.1f}" for rate in rates),
            f"{picked[names[name]]:g}",
        )
        for name, of in found.items()
    ]
    return all_results.table(head, lines)


def against(found: Grid) -> str:
    """The table of differences from ERM: at each rate with p, and over all combinations."""
    base = found["ERM"]
    rates, others = [*base], [name for name in found if name != "ERM"]
    each = [(name, rate) for name in others for rate in rates]
    p = [
        scipy.stats.mannwhitneyu(found[name][rate], base[rate]).pvalue
        for name, rate in each
    ]
    p = dict(zip(each, stats.adjust(p, "holm"), strict=True))
    head = ("Shape bias above ERM's", *(f"rate {rate:g}" for rate in rates))
    lines = []
    for name in others:
        cells = (
            f"{np.median(found[name][rate]) - np.median(base[rate]):+.0f} "
            f"(p = {all_results.p_value(p[name, rate])})"
            for rate in rates
        )
        above = sum(
            np.median(x) > np.median(y)
            for x in found[name].values()
            for y in base.values()
        )
        lines.append((name, *cells, f"{above} of {len(rates) ** 2}"))
    return all_results.table((*head, "at every pair of rates"), lines)


def draw(found: Grid, path: pathlib.Path) -> None:
    """Draws a dot a seed and a line at the median: a row a method, a band of it a rate."""
    figure, axes = plt.subplots(figsize=(6.4, 5.2), layout="constrained")
    rates = [*found["ERM"]]
    for row, of in enumerate(found.values()):
        for place, (rate, values) in enumerate(of.items()):
            y, colour = row + 0.26 * (place - 1), f"C{place}"
            axes.plot(values, [y] * len(values), "o", ms=4, alpha=0.5, mew=0, c=colour)
            middle = 2 * [np.median(values)]
            label = f"rate {rate:g}" if row == 0 else None
            axes.plot(middle, [y - 0.11, y + 0.11], lw=2, c=colour, label=label)
    for row in range(len(found) - 1):
        axes.axhline(row + 0.5, c="0.93", lw=0.8, zorder=0)
    axes.set_yticks(range(len(found)), found)
    axes.set_ylim(-0.5, len(found) - 0.5)
    axes.set_xlim(0, 100)
    axes.set_xlabel("shape bias, %: a dot a seed, a line at the median")
    handles, labels = axes.get_legend_handles_labels()
    order = slice(None, None, -1)  # As the bands lie.
    figure.legend(
        handles[order], labels[order], loc="outside upper right", ncols=len(rates)
    )
    axes.spines[["top", "right", "left"]].set_visible(False)
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
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    found = shape_biases()
    text = f"{scores(found)}\n{against(found)}"
    (ROOT / "benchmarks/results/every-rate.md").write_text(text, encoding="utf-8")
    draw(found, options.out / "results-rates.svg")
    print(text)


if __name__ == "__main__":
    main()
