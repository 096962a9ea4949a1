"""Would few seeds have lied? What smaller studies, of some of these seeds, would have shown."""

import functools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pandas as pd

from jbias import stats
from jbias.report import analysis as analysis_lib
from jbias.report import document, inputs, plots, prose, tables

SEEDS = (1, 3, 5, 10)
POINTS = 10.0  # Most readers would call that a finding.
_LINES = 12  # More on one figure nobody can read.
_HEADS = {"apart": "identical methods so far apart, %"}
_HEADS |= {"lead": "lead of the best identical method", "reversed": "pairs turned, %"}


def frame(study: analysis_lib.Study) -> pd.DataFrame:
    """Gives a row a metric, data set, number of seeds and algorithm, shape bias first.

    Columns: methods (with several seeds), difference (that counts), and what
    `stats.few_seeds` gives: means over an algorithm's pairs, `needed` of the median pair.
    """
    tasks = list(_tasks(study))
    results = analysis_lib.run_side_by_side(
        [functools.partial(_compare, task) for task in tasks]
    )
    parts = [pd.DataFrame()]
    for task, result in zip(tasks, results, strict=True):
        key = {
            "metric": task.metric,
            "dataset": task.dataset,
            "methods": len(task.runs),
            "algorithm": [*task.runs],
            "difference": task.difference,
            "needed": pd.Series(result.needed.ravel()).median(),
        }
        for s, turned, *each in zip(SEEDS, result.reversed, result.apart, result.lead):
            of = dict(zip(_HEADS, (*each, pd.DataFrame(turned).mean())))
            parts.append(pd.DataFrame(key | {"seeds": s} | of))
    return pd.concat(parts, ignore_index=True)


class _Task(NamedTuple):
    """The scores of methods on a data set, by method, and how they are compared."""

    metric: str
    dataset: str
    runs: Mapping[str, pd.Series]
    difference: float
    larger_is_better: bool
    alpha: float


def _compare(task: _Task):
    """Return what `stats.few_seeds` says of the methods of a task."""
    return stats.few_seeds(
        [*task.runs.values()],
        difference=task.difference,
        larger_is_better=task.larger_is_better,
        seeds=SEEDS,
        alpha=task.alpha,
    )


def _tasks(study: analysis_lib.Study) -> Iterator[_Task]:
    """Yield what is compared: methods with several seeds on each data set of each metric."""
    options = study.options
    for metric, values, unit in metrics(study):
        scores = unit.scale * values["value"]
        points = options.points if unit.name == study.unit.name else None
        points = points or POINTS / (1 if unit.name or scores.abs().max() > 1 else 100)
        algorithms = values["algorithm"].astype(str)
        for dataset, of in scores.groupby(values["dataset"].astype(str), sort=False):
            of = of.groupby(algorithms, sort=False)
            runs = {a: x for a, x in of if len(x) > 1 and x.notna().all()}
            if runs:
                yield _Task(
                    metric=metric,
                    dataset=dataset,
                    runs=runs,
                    difference=points,
                    larger_is_better=options.larger_is_better
                    or metric != options.metric,
                    alpha=options.alpha,
                )


def metrics(study: analysis_lib.Study) -> Iterator[tuple]:
    """Gives the name, the values and the unit of each metric shown, shape bias first."""
    metric, bias = study.options.metric, "shape_bias"
    if study.is_runs and metric != bias:
        sets = study.selected.loc[study.selected["metric"] == bias, "dataset"].unique()
        values = inputs.values_of(study.selected, bias, sets)
        yield bias, values, analysis_lib.unit_of(bias, values["value"])
    yield metric, study.values, study.unit


def blocks(study: analysis_lib.Study) -> Iterator[document.Block | None]:
    """Gives the worst finding in words, the table, and the figure if there is one."""
    what, found = study.repeats, frame(study)
    if found.empty:
        why = f"no algorithm has several {what}"
        why = analysis_lib.MEANS_ALONE if study.is_of_means else why
        yield document.Text(f"Not known: {why}.")
        return
    keys = ["metric", "dataset", "methods", "difference", "needed", "seeds"]
    whole = found.groupby(keys, sort=False)[[*_HEADS]].mean().reset_index()
    whole[["apart", "reversed"]] *= 100
    whole["line"] = whole["metric"].str.replace("_", " ") + " on " + whole["dataset"]
    known = whole[whole["apart"].notna() & (whole["seeds"] <= 3)]
    known = known[known["seeds"] == known["seeds"].max()].nlargest(1, "apart")
    for worst in known.itertuples():
        yield document.Text(
            f"Worst by {worst.line}: two identical methods with {tables.count(worst.seeds, what.removesuffix('s'))} each "
            f"lie more than {worst.difference:g} apart in {prose.share(worst.apart / 100)} "
            f"of studies, and the best of {worst.methods} lies {worst.lead:.3g} above their mean."
        )
    yield _table(study, whole, found)
    yield _figure(what, whole)


def _table(study, whole: pd.DataFrame, found: pd.DataFrame) -> tables.Table:
    """Shows means over algorithms, a row a metric and data set; the CSV file has all."""
    what, columns = study.repeats, tables.columns("metric dataset difference:g")
    for key, head in _HEADS.items():
        shown = tables.digits(study.unit.digits if key == "lead" else 0)
        columns[key] = head, lambda each, shown=shown: " / ".join(map(shown, each))
    columns["needed"] = f"{what} needed", tables.digits(0)
    rows = whole.groupby(["metric", "dataset"], sort=False, as_index=False)
    return tables.from_rows(
        "few_seeds",
        f"What {' / '.join(map(str, SEEDS))} {what} would have shown, as groups drawn from each "
        "method's own without replacement (all, or 5,000 draws); means over methods. Identical: "
        "two disjoint groups of one method, by more than the difference, and the best of as many "
        f"as there are methods, over their mean. –: more than half of the {what}, so two groups "
        f"cannot be drawn. Turned: not of the sign of all {what}, but the other or none; those "
        f"drawn are among all, so new ones turn more. Needed: {what} of each method for 80 % "
        f"power of a t-test at α = {study.options.alpha:g}, not adjusted, if the median pair's "
        "difference is the true one. The CSV file has each method.",
        rows.agg(dict.fromkeys(columns, "first") | dict.fromkeys(_HEADS, list)),
        columns,
        data=found,
    )


def _figure(what: str, whole: pd.DataFrame) -> document.Figure | None:
    names = list(whole["line"].unique())[:_LINES]
    lines = whole[whole["line"].isin(names)].rename(columns=_HEADS | {"seeds": "x"})
    lines = lines.melt(["line", "x"], [*_HEADS.values()], "panel").dropna()
    if lines["x"].nunique() < 2:
        return None
    looks = {x: plots.style_of(i) | {"marker": "o"} for i, x in enumerate(names)}
    caption = f"The table as curves; of more than {_LINES} rows the first."
    ends = lambda axes, of: axes.set(ylim=(0, None), xticks=sorted({*of["x"]}))
    labels = f"{what} of each method", ""
    drawn = lambda: plots.curves(lines, looks, labels, finish=ends)
    return document.Figure("few_seeds", caption, drawn)
