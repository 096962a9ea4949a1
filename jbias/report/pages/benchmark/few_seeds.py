"""Functions for the section on few seeds: results of smaller studies with some of the seeds."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pandas as pd

from jbias import stats
from jbias.report import document, plots, tables
from jbias.report.pages.benchmark import analysis as analysis_lib
from jbias.report.pages.benchmark import benchmark_scores, inputs, prose

SEEDS = (1, 3, 5, 10)
POINTS = 10.0  # A difference in percentage points that most readers would report.
_MAX_LINES = 12  # More lines make a figure unreadable.
# Column heads by the name of the statistic.
_HEADS = {
    "apart": "identical methods so far apart, %",
    "lead": "lead of the best identical method",
    "reversed": "pairs reversed, %",
}


def frame(study: benchmark_scores.BenchmarkScores) -> pd.DataFrame:
    """Return statistics per metric, data set, number of seeds and algorithm; shape bias first.

    Columns: metric, dataset, methods (number of methods with several seeds), algorithm, difference
    (smallest difference that matters), seeds (number of seeds of a smaller study), and the
    statistics of `stats.few_seeds`: apart and reversed (fractions), lead (in the page's unit) and
    needed (number of seeds). reversed is the mean over the pairs of an algorithm, and needed is the
    median over all pairs.

    If `seeds` is more than half of the measured seeds, apart and lead are NaN. If `seeds` is not
    smaller than the number of measured seeds, reversed is NaN. Methods with a missing score or a
    single seed are left out. Empty and without columns if no method has several seeds.
    """
    tasks = list(_tasks(study))
    with analysis_lib.worker_threads() as pool:
        results = [*pool.map(_compare, tasks)]
    frames = [pd.DataFrame()]
    for task, result in zip(tasks, results, strict=True):
        key = {
            "metric": task.metric,
            "dataset": task.dataset,
            "methods": len(task.runs),
            "algorithm": [*task.runs],
            "difference": task.difference,
            "needed": pd.Series(result.needed.ravel()).median(),
        }
        statistics = zip(SEEDS, result.apart, result.lead, result.reversed)
        for num_seeds, apart, lead, is_reversed in statistics:
            columns = {
                "seeds": num_seeds,
                "apart": apart,
                "lead": lead,
                "reversed": pd.DataFrame(is_reversed).mean(),
            }
            frames.append(pd.DataFrame(key | columns))
    return pd.concat(frames, ignore_index=True)


class _SeedGroups(NamedTuple):
    """Scores on one data set, and the settings of `stats.few_seeds` for these scores.

    runs: scores by method. difference: smallest difference that matters, in the unit of the scores.
    """

    metric: str
    dataset: str
    runs: Mapping[str, pd.Series]
    difference: float
    larger_is_better: bool
    alpha: float


def _compare(task: _SeedGroups):
    """Return the `FewSeedsResult` of `stats.few_seeds` for the methods of a task."""
    return stats.few_seeds(
        [*task.runs.values()],
        difference=task.difference,
        larger_is_better=task.larger_is_better,
        seeds=SEEDS,
        alpha=task.alpha,
    )


def _tasks(study: benchmark_scores.BenchmarkScores) -> Iterator[_SeedGroups]:
    """Yield a task per metric and data set, with the scores of methods with several seeds.

    Methods with a missing score, and data sets without any method, are left out. The difference of
    a task is `options.points`, if not None, for a metric in the study's unit. Otherwise the
    difference is 10, or 0.1 for scores of at most 1 that are not in %.
    """
    options = study.options
    for metric, values, unit in metrics(study):
        scores = unit.scale * values["value"]
        points = options.points if unit.name == study.unit.name else None
        points = points or POINTS / (1 if unit.name or scores.abs().max() > 1 else 100)
        algorithms = values["algorithm"].astype(str)
        datasets = values["dataset"].astype(str)
        for dataset, dataset_scores in scores.groupby(datasets, sort=False):
            runs = {
                algorithm: run_scores
                for algorithm, run_scores in dataset_scores.groupby(
                    algorithms, sort=False
                )
                if len(run_scores) > 1 and run_scores.notna().all()
            }
            if runs:
                yield _SeedGroups(
                    metric=metric,
                    dataset=dataset,
                    runs=runs,
                    difference=points,
                    larger_is_better=options.larger_is_better
                    or metric != options.metric,
                    alpha=options.alpha,
                )


def metrics(
    study: benchmark_scores.BenchmarkScores,
) -> Iterator[tuple[str, pd.DataFrame, benchmark_scores.Unit]]:
    """Yield (metric, scores per seed, unit) for the study's metric; for runs, shape bias is first.

    Scores per seed have the columns of `BenchmarkScores.values`.
    """
    metric = study.options.metric
    bias = "shape_bias"
    if study.is_runs and metric != bias:
        sets = study.selected.loc[study.selected["metric"] == bias, "dataset"].unique()
        values = inputs.values_of(study.selected, bias, sets)
        yield bias, values, benchmark_scores.unit_of(bias, values["value"])
    yield metric, study.values, study.unit


def blocks(study: benchmark_scores.BenchmarkScores) -> document.Blocks:
    """Yield a sentence on the least reliable comparison, the table, and the figure or None.

    The sentence is left out if groups of 3 seeds or fewer cannot be compared. If no method has
    several seeds, only a sentence with the reason is yielded.
    """
    repeats = study.repeats
    statistics = frame(study)
    if statistics.empty:
        reason = f"no algorithm has several {repeats}"
        if study.is_of_means:
            reason = benchmark_scores.MEANS_ALONE
        yield document.Text(f"Not known: {reason}.")
        return
    keys = ["metric", "dataset", "methods", "difference", "needed", "seeds"]
    means = statistics.groupby(keys, sort=False)[[*_HEADS]].mean().reset_index()
    means[["apart", "reversed"]] *= 100
    means["line"] = means["metric"].str.replace("_", " ") + " on " + means["dataset"]
    few = means[means["apart"].notna() & (means["seeds"] <= 3)]
    worst = few[few["seeds"] == few["seeds"].max()].nlargest(1, "apart")
    for row in worst.itertuples():
        num_repeats = tables.count(row.seeds, repeats.removesuffix("s"))
        yield document.Text(
            f"Worst by {row.line}: two identical methods with {num_repeats} each "
            f"differ by more than {row.difference:g} in {prose.share(row.apart / 100)} "
            f"of studies, and the best of {row.methods} exceeds their mean by {row.lead:.3g}."
        )
    yield _table(study, means, statistics)
    yield _figure(repeats, means)


def _table(
    study: benchmark_scores.BenchmarkScores,
    means: pd.DataFrame,
    statistics: pd.DataFrame,
) -> tables.Table:
    """Return the table of few seeds, one row per metric and data set.

    Columns: metric, dataset, difference, apart, lead and reversed (texts with the numbers for each
    of `SEEDS`, joined by " / "; apart and reversed in %), and needed. means: means over algorithms
    of the columns of `frame`, which the page shows. statistics: all rows of `frame`, which are
    written to the CSV file.
    """
    repeats = study.repeats
    columns = tables.columns("metric dataset difference:g")
    for key, head in _HEADS.items():
        show = tables.digits(study.unit.digits if key == "lead" else 0)
        columns[key] = tables.Column(
            head, lambda values, show=show: " / ".join(map(show, values))
        )
    columns["needed"] = tables.Column(f"{repeats} needed", tables.digits(0))
    rows = means.groupby(["metric", "dataset"], sort=False, as_index=False)
    return tables.from_rows(
        "few_seeds",
        f"Results of smaller studies with {' / '.join(map(str, SEEDS))} {repeats} per method, "
        f"drawn from each method's own {repeats} without replacement (all groups, or 5,000 "
        "draws); means over methods. Identical: how often two disjoint groups of one method "
        "differ by more than the difference, and the lead of the best of as many groups as "
        f"there are methods over their mean. –: more than half of the {repeats}, so two groups "
        f"cannot be drawn. Reversed: the sign of the difference is not that of all {repeats}: "
        f"opposite, or zero. Groups are drawn from the same {repeats}, so fresh {repeats} would "
        f"reverse more pairs. Needed: {repeats} of each method for 80 % power of a t-test at "
        f"α = {study.options.alpha:g}, not adjusted, if the median pair's difference is the "
        "true difference. The CSV file has each method.",
        rows.agg(dict.fromkeys(columns, "first") | dict.fromkeys(_HEADS, list)),
        columns,
        data=statistics,
        in_results=True,
    )


def _figure(repeats: str, means: pd.DataFrame) -> document.Figure | None:
    """Return the figure of statistics over the number of seeds; None for a single number of seeds.

    There is a panel per statistic, with a line for each of the first 12 rows. repeats: noun for the
    scores, "seeds" or "runs". means: see `_table`.
    """
    names = list(means["line"].unique())[:_MAX_LINES]
    lines = means[means["line"].isin(names)].rename(columns=_HEADS | {"seeds": "x"})
    lines = lines.melt(["line", "x"], [*_HEADS.values()], "panel").dropna()
    if lines["x"].nunique() < 2:
        return None
    styles = {name: plots.style_of(i) | {"marker": "o"} for i, name in enumerate(names)}

    def set_limits(axes: plots.Axes, points: pd.DataFrame) -> None:
        axes.set(ylim=(0, None), xticks=sorted({*points["x"]}))

    def draw() -> plots.Figure:
        labels = f"{repeats} of each method", ""
        return plots.curves(lines, styles, labels, finish=set_limits)

    caption = (
        f"The table as curves; only the first {_MAX_LINES} rows if there are more."
    )
    return document.Figure("few_seeds", caption, draw)
