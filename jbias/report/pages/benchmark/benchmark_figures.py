"""Functions that draw the figures of the page that compares algorithms, and their data."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from jbias.report import document, plots
from jbias.report.pages.benchmark import analysis as analysis_lib
from jbias.report.pages.benchmark import inputs
from jbias.runs import results, selection

Analysis = analysis_lib.Analysis
# Panels of a figure, and curves of a panel; a figure with more is unreadable.
MAX_PANELS = 9
MAX_CURVES = 12
_MAX_DOTS = 20_000  # Dots of single seeds; more dots hide the curves.


def variability(study: analysis_lib.BenchmarkScores) -> pd.DataFrame:
    """Return the standard deviations within and between runs, one row per algorithm and data set.

    Columns: algorithm, dataset, within, between, seeds (number of seeds) and evaluations (smallest
    number of averaged evaluations of a seed). `within` is the deviation over the last
    `options.last` evaluations of a seed (root of the mean variance over seeds). `between` is the
    deviation of the seeds' means over these evaluations. Both deviations have ddof 1 and the unit
    of the records (fractions for accuracies). A deviation is NaN without evaluations, and for a
    single number. Seeds of different runs are different seeds. Source: BiasBed, figure 2.
    """
    evaluations = _evaluations(study, study.options.metric, study.datasets)
    if not evaluations["epoch"].is_monotonic_increasing:
        evaluations = evaluations.sort_values("epoch", kind="stable")
    keys = results.number_rows(evaluations, ["label", "dataset", "run", "seed"])
    num_later = selection.count_later(keys)
    is_late = num_later < study.options.last
    late = evaluations["value"][is_late].groupby(keys[is_late])
    is_last = num_later == 0
    seeds = evaluations.loc[is_last, ["label", "dataset"]].set_index(keys[is_last])
    seeds = seeds.join(late.agg(["mean", "var", "size"]))
    groups = seeds.astype({"label": str, "dataset": str}).groupby(["label", "dataset"])
    deviations = {
        "within": np.sqrt(groups["var"].mean()),
        "between": groups["mean"].std(),
        "seeds": groups.size(),
        "evaluations": groups["size"].min(),
    }
    order = pd.MultiIndex.from_product([study.algorithms, study.datasets])
    frame = pd.DataFrame(deviations).reindex(order)
    return frame.rename_axis(["algorithm", "dataset"]).reset_index()


def _evaluations(
    study: analysis_lib.BenchmarkScores, metric: str, datasets: Sequence[str]
) -> pd.DataFrame:
    """Return the values of a metric per seed, data set and epoch, averaged over conditions.

    Columns: label, dataset, run, seed, epoch, condition and value. A record without a condition
    replaces the mean; the condition of a mean is NaN.
    """
    records = study.evaluations
    keys = ["label", "dataset", "run", "seed", "epoch"]
    is_wanted = (records["metric"] == metric) & records["dataset"].isin(datasets)
    return inputs.averaged(records.loc[is_wanted, [*keys, "condition", "value"]], keys)


def curves(analysis: Analysis) -> Iterator[document.Figure | None]:
    """Yield figures of the metric and of the shape bias over epochs; None without records.

    Nothing is yielded for a file of scores.
    """
    if analysis.study.is_runs:
        for metric in dict.fromkeys((analysis.study.options.metric, "shape_bias")):
            yield curve_figure(analysis, metric)


def rank_figure(analysis: Analysis) -> document.Figure:
    """Return the figure of mean ranks with their critical difference; ranks must be tested."""
    names = analysis.algorithms
    ranks = analysis.nemenyi.ranks
    styles = plots.styles(analysis.study.algorithms)
    cliques = analysis.cliques
    difference = analysis.critical_difference

    def draw() -> plots.Figure:
        return plots.critical_difference(
            names,
            ranks,
            cliques,
            difference,
            alpha=analysis.alpha,
            colours=[styles[name]["color"] for name in names],
        )

    caption = (
        "Mean ranks, the best on the left. A bar joins algorithms that Nemenyi's test does not "
        f"separate at α = {analysis.alpha:g}."
    )
    return document.Figure("critical_difference", caption, draw)


def dataset_figure(analysis: Analysis, by: str) -> document.Figure:
    """Return the figure of correlations between data sets with their blocks.

    by: "scores" or "deviations", the values that are correlated.
    """
    blocks = analysis.dataset_blocks[by].blocks
    names = analysis.datasets
    frame = pd.DataFrame(blocks.correlations, names, names)
    frame = frame.iloc[blocks.order, blocks.order]
    labels = blocks.labels[blocks.order]
    caption = (
        f"Correlations of data sets over algorithms by {by}, in the order of the tree; blocks "
        "are framed."
    )
    return document.Figure(
        f"alike_by_{by}", caption, lambda: plots.blocks(frame, labels)
    )


def iqm_figure(analysis: Analysis) -> document.Figure:
    """Return the figure of interquartile means with intervals, sorted by mean rank.

    Seeds must have been analysed.
    """
    iqm = analysis.seeds.intervals.iqm
    order = analysis.order
    names = [analysis.algorithms[i] for i in order]
    caption = (
        "Interquartile mean of scores normalised by the worst and best run of each data set, "
        f"with {analysis.bounds} over redrawn {analysis.study.repeats}."
    )

    def draw() -> plots.Figure:
        return plots.intervals(
            names,
            iqm.value[order],
            iqm.low[order],
            iqm.high[order],
            label="IQM, 0 the worst, 1 the best",
        )

    return document.Figure("iqm", caption, draw)


def profile_figure(analysis: Analysis) -> document.Figure:
    """Return the figure of performance profiles of the tested algorithms of `_drawn_algorithms`.

    Seeds must have been analysed.
    """
    repeats = analysis.study.repeats
    profiles = analysis.seeds.performance_profiles
    names = [
        name for name in _drawn_algorithms(analysis) if name in analysis.algorithms
    ]
    places = [analysis.algorithms.index(name) for name in names]
    thresholds = profiles.thresholds
    frame = pd.DataFrame(
        {
            "panel": "",
            "line": np.repeat(names, len(thresholds)),
            "x": np.tile(thresholds, len(names)),
            "value": profiles.share.value[places].ravel(),
            "low": profiles.share.low[places].ravel(),
            "high": profiles.share.high[places].ravel(),
        }
    )
    all_styles = plots.styles(analysis.study.algorithms)
    styles = {name: all_styles[name] for name in names}
    labels = "normalised score", f"share of {repeats} above"
    caption = (
        f"Performance profiles: the share of {repeats} × data sets whose normalised score "
        f"reaches a threshold, with {analysis.bounds}, pointwise."
    )

    def draw() -> plots.Figure:
        return plots.curves(frame, styles, labels, alone=9.0, cell=(0, 3.4))

    return document.Figure("profiles", caption, draw)


def power_figure(analysis: Analysis) -> document.Figure:
    """Return the figure of the power of Nemenyi's test by numbers of seeds and data sets.

    Seeds must have been analysed.
    """
    power = analysis.seeds.power
    repeats = analysis.study.repeats
    frame = pd.DataFrame(power.power["nemenyi"], power.seeds, power.datasets)
    caption = (
        f"Power: probability that a study with the given numbers of {repeats} and data sets "
        f"finds a difference of {power.difference:g} between two algorithms with Nemenyi's "
        f"test at α = {power.alpha:g}, by simulation from the spread in this study. Framed: at "
        f"least {power.target:g}."
    )

    def draw() -> plots.Figure:
        return plots.power(frame, target=power.target, labels=("data sets", repeats))

    return document.Figure("power", caption, draw)


def variability_figure(
    study: analysis_lib.BenchmarkScores, deviations: pd.DataFrame
) -> document.Figure | None:
    """Return the figure of box plots of deviations within and between runs, or None.

    The figure shows the first `MAX_CURVES` algorithms. None if all deviations within runs, or all
    deviations between runs, are unknown for these algorithms. deviations: the result of
    `variability`.
    """
    names = study.algorithms[:MAX_CURVES]
    kinds = ["within", "between"]
    is_drawn = deviations["algorithm"].isin(names)
    deviations = deviations[is_drawn].set_index("algorithm")
    if not deviations[kinds].notna().any().all():
        return None
    by_algorithm = [study.unit.scale * deviations.loc[[name], kinds] for name in names]
    values = {
        f"{kind} runs": [rows[kind].to_numpy() for rows in by_algorithm]
        for kind in kinds
    }
    unit = f" in {study.unit.name}" if study.unit.name else ""
    caption = (
        "Standard deviation of scores on the data sets: within runs over their last "
        "evaluations, and between runs. Boxes span the quartiles, whiskers all data sets."
    )
    label = f"standard deviation{unit}"
    return document.Figure(
        "variability", caption, lambda: plots.variability(names, values, label=label)
    )


def curve_figure(analysis: Analysis, metric: str) -> document.Figure | None:
    """Return the figure of a metric over epochs, one panel per data set; None without records.

    The figure shows at most `MAX_PANELS` data sets and the algorithms of `_drawn_algorithms`. A
    panel shows mean ± standard deviation over seeds. If this range leaves [0, 100] %, the panel
    shows medians with a dot per seed, or with ranges if there are too many dots.
    """
    study = analysis.study
    names = _drawn_algorithms(analysis)
    frame, seeds = _by_epoch(study, metric)
    if frame.empty:
        return None
    unit = analysis_lib.unit_of(metric, frame["value"])
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
    study: analysis_lib.BenchmarkScores, *, num_panels: int, num_curves: int
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
    study: analysis_lib.BenchmarkScores, metric: str
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
    values = _evaluations(study, metric, wanted).dropna(subset="value")
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


def _drawn_algorithms(analysis: Analysis) -> tuple[str, ...]:
    """Return the names of the algorithms that have a curve, at most `MAX_CURVES`.

    If the study has at most `MAX_CURVES` algorithms, all are returned in the study's order.
    Otherwise the algorithms with the best mean ranks are returned, the best first. If ranks were
    not tested, the first algorithms of the study are returned.
    """
    names = analysis.study.algorithms
    best = []
    if len(names) > MAX_CURVES and analysis.nemenyi is not None:
        best = [analysis.algorithms[i] for i in analysis.order]
    return (*best, *(name for name in names if name not in best))[:MAX_CURVES]
