"""Draw docs/results-seeds.svg: the shape bias of each seed of the small benchmark.

    python -m studies.seeds_figure

Reads OUT/results/shapes/tables/seeds.csv, which studies.small_benchmark writes. Writes
OUT/results-seeds.svg.

Takes about four seconds on two cores.
"""

import pathlib

import matplotlib as mpl
import pandas as pd

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "jbias"  # The same file for the same results.

from matplotlib import pyplot as plt

from studies import all_results, command


def draw_shape_biases(rows: pd.DataFrame, path: pathlib.Path) -> None:
    """Draw a row per method, with a dot per seed and a line at the median.

    rows: columns algorithm, variant and value, a row per seed.
    """
    raw = all_results.methods(rows)
    rows = rows.assign(method=[all_results.NAMES.get(name, name) for name in raw])
    medians = rows.groupby("method")["value"].median().sort_values()
    figure, axes = plt.subplots(figsize=(6.4, 5), layout="constrained")
    for row, (method, median) in enumerate(medians.items()):
        values = 100 * rows.loc[rows["method"] == method, "value"]
        axes.plot(values, [row] * len(values), "o", ms=5, alpha=0.5, mew=0, c="C0")
        axes.plot(2 * [100 * median], [row - 0.3, row + 0.3], lw=2, c="C1")
    axes.set_yticks(range(len(medians)), medians.index)
    axes.set_xlim(0, 100)
    axes.set_xlabel("shape bias, %: a dot a seed, a line at the median")
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Draw the figure."""
    parser = command.parser("seeds_figure", __doc__)
    command.add_out(parser, "the figure, which has results/shapes/tables/seeds.csv")
    options = parser.parse_args()
    table = options.out / "results/shapes/tables/seeds.csv"
    path = options.out / "results-seeds.svg"
    draw_shape_biases(pd.read_csv(table, keep_default_na=False), path)
    print(path)


if __name__ == "__main__":
    main()
