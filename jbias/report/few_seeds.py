"""Would few seeds have lied? What smaller studies, of some of these seeds, would have shown."""

import itertools
from collections.abc import Iterator

import numpy as np
import pandas as pd

from jbias import stats
from jbias.report import analysis as analysis_lib
from jbias.report import document, inputs, plots, prose, tables

SEEDS = (1, 3, 5, 10)
POINTS = 10.0  # Most readers would call that a finding.
TARGET = 0.8
ALL = "all"  # In the place of an algorithm: the mean over them, or over pairs.
_DRAWS = 5000
_LINES = 12  # More on one figure nobody can read.
_HEADS = {
    "apart": "identical methods so far apart, %",
    "lead": "lead of the best identical method",
    "reversed": "pairs turned, %",
}


def frame(study: analysis_lib.Study) -> pd.DataFrame:
    """Gives a row a metric, data set, number of seeds and algorithm, and one for all.

    Columns: methods (with several seeds), difference (that counts), and what
    `stats.few_seeds` gives: of an algorithm means over its pairs, and the median of `needed`.
    Shape bias comes first.
    """
    rows = []
    for metric, values, unit in _metrics(study):
        scores = unit.scale * values["value"]
        points = study.options.points if unit.name == study.unit.name else None
        small = not unit.name and scores.abs().max() <= 1
        points = points or POINTS / (100 if small else 1)
        better = study.options.larger_is_better or metric != study.options.metric
        for dataset, of in scores.groupby(values["dataset"].astype(str), sort=False):
            of = of.groupby(values["algorithm"].astype(str), sort=False)
            runs = {a: x for a, x in of if len(x) > 1 and x.notna().all()}
            if not runs:
                continue
            found = stats.few_seeds(
                [*runs.values()],
                difference=points,
                seeds=SEEDS,
                alpha=study.options.alpha,
                target=TARGET,
                draws=_DRAWS,
                larger_is_better=better,
            )
            for (s, size), (i, name) in itertools.product(
                enumerate(SEEDS), [(slice(None), ALL), *enumerate(runs)]
            ):
                parts = {key: np.ravel(getattr(found, key)[s, i]) for key in _HEADS}
                rows.append(
                    dict(metric=metric, dataset=dataset, methods=len(runs))
                    | dict(algorithm=name, seeds=size, difference=points)
                    | {key: pd.Series(part).mean() for key, part in parts.items()}
                    | {"needed": pd.Series(found.needed[i].ravel()).median()}
                )
    return pd.DataFrame(rows)


def _metrics(study: analysis_lib.Study) -> Iterator[tuple]:
    """Gives the name, the values and the unit of each metric shown."""
    metric, bias = study.options.metric, "shape_bias"
    if study.is_runs and metric != bias:
        sets = study.selected.loc[study.selected["metric"] == bias, "dataset"].unique()
        values = inputs.values_of(study.selected, bias, sets)
        yield bias, values, analysis_lib.unit_of(bias, values["value"])
    yield metric, study.values, study.unit


def _overall(found: pd.DataFrame) -> pd.DataFrame:
    """Gives the rows that are of all algorithms, shares in %."""
    whole = found[found["algorithm"] == ALL].copy()
    whole[["apart", "reversed"]] *= 100
    names = whole["metric"].str.replace("_", " ") + " on " + whole["dataset"]
    return whole.assign(line=names)


def blocks(study: analysis_lib.Study, found: pd.DataFrame) -> Iterator[document.Block]:
    """Gives the worst finding in words, and the figure where there are seeds enough."""
    what = study.repeats
    if found.empty:
        yield document.Text(f"Not known: no algorithm has several {what}.")
        return
    whole = _overall(found)
    known = whole[whole["apart"].notna() & (whole["seeds"] <= 3)]
    if len(known):
        known = known[known["seeds"] == known["seeds"].max()]
        worst = known.loc[known["apart"].idxmax()]
        yield document.Text(
            f"By {worst['line']}, where it is worst, two identical methods with "
            f"{worst['seeds']} {what} each would lie more than {worst['difference']:g} apart in "
            f"{prose.share(worst['apart'] / 100)} of studies, and the best of {worst['methods']} "
            f"identical methods would lie {worst['lead']:.3g} above their mean."
        )
    names = list(whole["line"].unique())
    drawn = whole[whole["line"].isin(names[:_LINES])].rename(columns=_HEADS)
    drawn = drawn.melt(["line", "seeds"], [*_HEADS.values()], "panel").dropna()
    if drawn["seeds"].nunique() > 1:
        looks = {
            x: plots.style_of(i) | {"marker": "o"} for i, x in enumerate(names[:_LINES])
        }
        some = f", the first {_LINES} of {len(names)}" * (len(names) > _LINES)
        caption = f"What fewer {what} would have shown, as in the table{some}."
        labels = f"{what} of each method", ""
        drawn = plots.curves(drawn.rename(columns={"seeds": "x"}), looks, labels)
        yield document.Figure("few_seeds", caption, drawn)


def table(study: analysis_lib.Study, found: pd.DataFrame) -> tables.Table | None:
    """Shows means over algorithms, a row a metric and data set; the CSV file has all."""
    if found.empty:
        return None
    what, digits = study.repeats, {"lead": study.unit.digits}
    rows = _overall(found).groupby(["metric", "dataset"], sort=False, as_index=False)
    rows = rows.agg(
        {"difference": "first", "needed": "first"} | dict.fromkeys(_HEADS, list)
    )
    columns = tables.columns("metric dataset difference:g", difference="more than")
    for key, head in _HEADS.items():
        shown = tables.digits(digits.get(key, 0))
        columns[key] = head, lambda each, shown=shown: " / ".join(map(shown, each))
    columns["needed"] = f"{what} needed", tables.digits(0)
    return tables.from_rows(
        "few_seeds",
        f"What {' / '.join(map(str, SEEDS))} {what} a method would have shown: groups drawn "
        f"from its own without replacement (all that there are, or {_DRAWS:,} draws). Identical "
        "methods are two disjoint groups of one method's; leads are of the best of as many "
        "groups as there are methods, over their mean; shown are means over methods. –: fewer "
        f"than twice as many {what}, so two groups cannot be drawn. Pairs: how often their "
        f"difference has not the sign of that of all {what}, but the other or none; those drawn "
        f"are among all, so new ones turn more. Needed: {what} of each method for a two-sample "
        f"t-test at α = {study.options.alpha:g}, not adjusted, to find the median pair's "
        f"difference with chance {TARGET:g}, if that is the true one. The CSV file has each "
        "method, with its own pairs.",
        rows,
        columns,
        data=found,
    )
