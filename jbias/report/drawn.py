"""Which figures a report has, and what their captions say."""

import math
from collections.abc import Iterator

import numpy as np
from matplotlib import figure as mpl_figure

from jbias.report import gather, plots
from jbias.report import study as study_lib
from jbias.runs import results

PANELS, CURVES, MATRIX = 9, 12, 25  # More on one figure nobody can read.

Drawn = tuple[str, str, mpl_figure.Figure, str]


def of(study, analysis, evidence, varying) -> Iterator[Drawn]:
    """Gives the figures as (name, section, figure, caption)."""
    if evidence is not None:
        yield from _tested(study, analysis, evidence)
    if not study.is_runs:
        return
    yield from _varying(study, varying)
    leading = _leading(study, analysis)
    for metric in dict.fromkeys((study.metric, "shape_bias")):
        panels = list(_panels(study, metric))
        if not panels:
            continue
        shown = panels[:PANELS]
        scale = study_lib.unit_of(metric, panels[0][1]["mean"]).scale
        places = [study.algorithms.index(name) for name in leading]
        figure = plots.curves(shown, leading, scale=scale, places=places)
        unit = " in %" if scale == 100 else ""
        name = metric.replace("_", " ").capitalize()
        caption = (
            f"{name}{unit} over epochs. Mean over seeds; the band is ± one standard "
            "deviation over seeds. Each panel has an axis of its own; diverged seeds are "
            f"left out.{_limits(study, panels, leading)}"
        )
        yield f"curves_{metric}", "curves", figure, caption


def _tested(study, analysis, evidence) -> Iterator[Drawn]:
    colours = {
        name: plots.style_of(i)["color"] for i, name in enumerate(study.algorithms)
    }
    figure = plots.critical_difference(
        analysis.algorithms,
        analysis.nemenyi.ranks,
        analysis.cliques,
        analysis.critical_difference,
        alpha=analysis.alpha,
        colours=[colours[name] for name in analysis.algorithms],
    )
    caption = (
        "Mean ranks and critical difference. The best rank stands on the left. A bar "
        "joins algorithms that Nemenyi's test does not tell apart at "
        f"α = {analysis.alpha:g}."
    )
    yield "critical_difference", "tests", figure, caption
    shown, order = _ordered(study, analysis)
    result = analysis.nemenyi
    if len(shown) <= MATRIX:
        caption = (
            f"p of Nemenyi's test for all pairs, best mean rank first: the darker, the "
            f"smaller, from p ≤ {analysis.alpha:g} on."
        )
        places = [analysis.algorithms.index(name) for name in shown]
        matrix = result.pvalues[places][:, places]
        figure = plots.p_heatmap(shown, matrix, analysis.alpha)
        yield "p_values", "tests", figure, caption
    if evidence.runs is None:
        return
    sure = evidence.intervals
    what = "seeds" if study.is_runs else "runs"
    caption = (
        "Interquartile mean of scores normalised by the worst and best run of each data "
        f"set, with {evidence.bounds} over redrawn {what}."
    )
    parts = (getattr(sure.iqm, part)[order] for part in ("value", "low", "high"))
    figure = plots.intervals(shown, *parts, label="IQM, 0 the worst, 1 the best")
    yield "iqm", "seeds", figure, caption
    found = evidence.profiles
    leading = _leading(study, analysis)
    leading = [name for name in leading if name in analysis.algorithms]
    places = [analysis.algorithms.index(name) for name in leading]
    caption = (
        f"Performance profiles: the share of {what} × data sets whose normalised score "
        f"reaches a threshold, with {evidence.bounds}, pointwise. A curve above another "
        "everywhere is better throughout."
    )
    parts = (getattr(found.share, part)[places] for part in ("value", "low", "high"))
    figure = plots.profiles(leading, found.thresholds, *parts, label="normalised score")
    yield "profiles", "seeds", figure, caption
    power = evidence.power
    caption = (
        f"Power: how often a study with so many {what} and data sets would find one "
        f"algorithm better by {power.difference:g} with Nemenyi's test at "
        f"α = {power.alpha:g}, by simulation from the spread seen here. Framed: at least "
        f"{power.target:g}."
    )
    figure = plots.power(
        power.seeds,
        power.datasets,
        power.power["nemenyi"],
        target=power.target,
        labels=(what, "data sets"),
    )
    yield "power", "power", figure, caption


def _ordered(study, analysis) -> tuple[list[str], np.ndarray]:
    """Gives the tested algorithms, best mean rank first, and their places."""
    order = np.argsort(analysis.nemenyi.ranks, kind="stable")
    return [analysis.algorithms[i] for i in order], order


def _varying(study, data) -> Iterator[Drawn]:
    data = data[data["algorithm"].isin(study.algorithms[:CURVES])]
    if data["within"].isna().all() or data["between"].isna().all():
        return
    names = list(dict.fromkeys(data["algorithm"]))
    by = {name: rows for name, rows in data.groupby("algorithm")}
    scale = study.unit.scale
    within, between = (
        [scale * by[name][part].to_numpy() for name in names]
        for part in ("within", "between")
    )
    unit = f" in {study.unit.name}" if study.unit.name else ""
    caption = (
        "How scores vary, a dot a data set: inside runs over their last evaluations, and "
        "between runs."
    )
    label = f"standard deviation{unit}"
    figure = plots.variability(names, within, between, label=label)
    yield "variability", "selection", figure, caption


def _panels(study: study_lib.Study, metric: str):
    chosen = study.chosen
    wanted = list(study.datasets)
    if metric == study.metric:
        wanted = list(dict.fromkeys([results.VALID, *wanted]))
    else:
        wanted = list(chosen["dataset"][chosen["metric"] == metric].unique())
    by = ["label", "dataset", "run", "seed", "epoch"]
    mine = (chosen["metric"] == metric) & chosen["dataset"].isin(wanted)
    rows = chosen.loc[mine, [*by, "condition", "value"]]
    values = gather.averaged(rows, by).dropna(subset="value")
    groups = values.groupby(["dataset", "label", "epoch"])["value"]
    tables_of = dict(iter(groups.agg(["mean", "std", "size"]).groupby(level=0)))
    for dataset in wanted:
        if dataset not in tables_of:
            continue
        table = (
            tables_of[dataset].droplevel(0).reset_index(names=["algorithm", "epoch"])
        )
        # Where seeds are missing the mean would jump for no reason of training.
        full = table.groupby("algorithm")["size"].transform("max")
        yield dataset, table[table["size"] == full]


def _leading(study: study_lib.Study, analysis: study_lib.Analysis) -> tuple[str, ...]:
    """Gives the algorithms whose curves are drawn: all, or the best if they are many."""
    if len(study.algorithms) <= CURVES:
        return study.algorithms
    if analysis.nemenyi is None:
        return study.algorithms[:CURVES]
    ranked = dict(zip(analysis.algorithms, analysis.nemenyi.ranks, strict=True))
    best = sorted(study.algorithms, key=lambda name: ranked.get(name, math.inf))
    return tuple(best[:CURVES])


def _limits(study: study_lib.Study, panels, drawn) -> str:
    """Says what a figure leaves out for want of room."""
    told = []
    if len(panels) > PANELS:
        told.append(f"the first {PANELS} of {len(panels)} data sets")
    if len(drawn) < len(study.algorithms):
        which = f"{len(drawn)} of {len(study.algorithms)} algorithms"
        told.append(f"{which}, those of the best mean rank if there is one")
    return f" Drawn are {' and '.join(told)}." if told else ""
