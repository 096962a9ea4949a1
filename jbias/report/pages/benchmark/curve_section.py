"""Report section on training curves: figures of scores over epochs."""

import math

import pandas as pd

from jbias.report import document, plots
from jbias.report.pages.benchmark import analysis as analysis_lib
from jbias.report.pages.benchmark import benchmark_blocks, benchmark_scores
from jbias.runs import results

Analysis = analysis_lib.Analysis
MAX_PANELS = 9  # Panels of a figure; a figure with more is unreadable.
_MAX_DOTS = 20_000  # Dots of single seeds; more dots hide the curves.


def blocks(analysis: Analysis) -> document.Blocks:
    """Yield figures of the metric and of the shape bias over epochs; None without records.

    Nothing is yielded for a file of scores.
    """
    if analysis.study.is_runs:
        for metric in dict.fromkeys((analysis.study.options.metric, "shape_bias")):
            yield curve_figure(analysis, metric)


def curve_figure(analysis: Analysis, metric: str) -> document.Figure | None:
    """Return the figure of a metric over epochs, one panel per data set; None without records.

    The figure shows at most `MAX_PANELS` data sets and the algorithms of
    `benchmark_blocks.drawn_algorithms`. A panel shows mean ± standard deviation over seeds. If this
    range leaves [0, 100] %, the panel shows medians with a dot per seed, or with ranges if there
    are too many dots.
    """
    study = analysis.study
    names = benchmark_blocks.drawn_algorithms(analysis)
    frame, seeds = _by_epoch(study, metric)
    if frame.empty:
        return None
    unit = benchmark_scores.unit_of(metric, frame["value"])
    panels = frame["panel"].unique()
    drawn_panels = panels[:MAX_PANELS]
    leaves_range = unit.beyond(frame["value"], frame["std"])
    median_panels = [
        panel for panel in drawn_panels if leaves_range[frame["panel"] == panel].any()
    ]
    frame = frame[frame["panel"].isin(drawn_panels) & frame["line"].isin(names)]
    keys = ["panel", "line", "x"]
    is_drawn = seeds["panel"].isin(median_panels) & seeds["line"].isin(names)
    seeds = seeds.loc[is_drawn, [*keys, "value"]]
    seeds = seeds[_has_all_seeds(seeds)]
    low = frame["value"] - frame["std"].fillna(0)
    frame = frame.assign(low=low, high=2 * frame["value"] - low).set_index(keys)
    ranges = seeds.groupby(keys, observed=True)["value"].agg(["median", "min", "max"])
    has_dots = len(seeds) <= _MAX_DOTS
    if has_dots:
        ranges[["min", "max"]] = math.nan
    ranges = ranges.reset_index().astype({"panel": str, "line": str}).set_index(keys)
    columns = ["value", "low", "high"]
    frame.loc[ranges.index, columns] = ranges.to_numpy()
    frame = frame[columns].mul(unit.scale).reset_index()
    all_styles = plots.styles(study.algorithms)
    styles = {name: all_styles[name] for name in names}
    are_whole_epochs = (frame["x"] % 1 == 0).all()

    def draw_dots(axes: plots.Axes, rows: pd.DataFrame) -> None:
        if are_whole_epochs:  # No tick at epoch 1.5.
            axes.xaxis.get_major_locator().set_params(integer=True)
        points = seeds[seeds["panel"] == rows["panel"].iloc[0]]
        for name, line in points.groupby("line", observed=True) if has_dots else ():
            x, y = line["x"], unit.scale * line["value"]
            colour = styles[name]["color"]
            axes.plot(x, y, "o", color=colour, ms=2.5, mew=0, alpha=0.5)

    label = metric.replace("_", " ").capitalize()
    label += " in %" if unit.scale == 100 else ""
    caption = (
        f"{label} over epochs: mean ± one standard deviation over seeds, or, if that leaves "
        f"[0, 100] %, medians and {'one dot per seed' if has_dots else 'ranges'}, without "
        "diverged seeds. Each panel has its own axis."
        f"{_limits_of_curves(study, num_panels=len(panels), num_curves=len(names))}"
    )

    def draw() -> plots.Figure:
        return plots.curves(frame, styles, ("epoch", label), finish=draw_dots)

    return document.Figure(f"curves_{metric}", caption, draw)


def _limits_of_curves(
    study: benchmark_scores.BenchmarkScores, *, num_panels: int, num_curves: int
) -> str:
    """Return the sentence on data sets and algorithms that are not drawn; "" if all are drawn.

    num_panels: number of data sets with records, of which `MAX_PANELS` are drawn. num_curves:
    number of drawn algorithms.
    """
    limits = []
    if num_panels > MAX_PANELS:
        limits.append(f"the first {MAX_PANELS} of {num_panels} data sets")
    if num_curves < len(study.algorithms):
        limits.append(
            f"{num_curves} of {len(study.algorithms)} algorithms, the best mean ranks if ranks "
            "were tested"
        )
    return f" The figure shows {' and '.join(limits)}." if limits else ""


def _by_epoch(
    study: benchmark_scores.BenchmarkScores, metric: str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return (means over seeds, scores of seeds) of a metric by data set and epoch.

    Both frames have the columns panel (data set), line (algorithm), x (epoch) and value; the first
    frame also has std and size (number of seeds), and the second frame also has run, seed and
    condition. Epochs with fewer seeds than another epoch of the line are left out of the first
    frame. For the study's metric, data sets are validation and the study's data sets. For another
    metric, all data sets with records are used.
    """
    chosen = study.evaluations
    wanted = [*dict.fromkeys([results.VALID, *study.datasets])]
    if metric != study.options.metric:
        wanted = list(chosen["dataset"][chosen["metric"] == metric].unique())
    values = benchmark_blocks.evaluations_of(study, metric, wanted).dropna(
        subset="value"
    )
    values = values.rename(columns={"dataset": "panel", "label": "line", "epoch": "x"})
    groups = values.groupby(["panel", "line", "x"], observed=True)["value"]
    frame = groups.agg(value="mean", std="std", size="size").reset_index()
    frame = frame.astype({"panel": str, "line": str})
    # If seeds are missing at an epoch, the mean would jump without a cause in training.
    num_seeds = frame.groupby(["panel", "line"])["size"].transform("max")
    frame = frame[frame["size"] == num_seeds]
    order = lambda names: names.map(wanted.index)
    return frame.sort_values("panel", key=order, kind="stable"), values


def _has_all_seeds(seeds: pd.DataFrame) -> pd.Series:
    """Return a mask of the rows at epochs where a curve has its largest number of seeds.

    A curve is a line in a panel. seeds: one row per seed with the columns panel, line, x and value.
    """
    line = ["panel", "line"]
    sizes = seeds.groupby([*line, "x"], observed=True)["value"].transform("size")
    most = sizes.groupby([seeds[name] for name in line], observed=True).transform("max")
    return sizes == most
