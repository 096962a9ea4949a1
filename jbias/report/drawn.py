"""Which figures a report has, and what their captions say."""

import math
from collections.abc import Iterator

from matplotlib import figure as mpl_figure

from jbias import results
from jbias.report import figures, gather
from jbias.report import study as study_lib

PANELS, CURVES = 12, 16  # More on one figure nobody can read.

Drawn = tuple[str, str, mpl_figure.Figure, str]


def of(study, analysis, evidence, options) -> Iterator[Drawn]:
    """Gives the figures as (name, section, figure, caption)."""
    if analysis.nemenyi is not None:
        colours = {
            name: figures.style_of(i)["color"]
            for i, name in enumerate(study.algorithms)
        }
        figure = figures.critical_difference(
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
    if not study.is_runs:
        return
    leading = _leading(study, analysis)
    for metric in dict.fromkeys((study.metric, "shape_bias")):
        panels = list(_panels(study, metric))
        if not panels:
            continue
        shown = panels[:PANELS]
        scale = study_lib.unit_of(metric, panels[0][1]["mean"]).scale
        places = [study.algorithms.index(name) for name in leading]
        figure = figures.curves(shown, leading, scale=scale, places=places)
        unit = " in %" if scale == 100 else ""
        name = metric.replace("_", " ").capitalize()
        caption = (
            f"{name}{unit} over epochs. Mean over seeds; the band is ± one standard "
            "deviation over seeds. Each panel has an axis of its own; diverged seeds are "
            f"left out.{_limits(study, panels, leading)}"
        )
        yield f"curves_{metric}", "curves", figure, caption


def _panels(study: study_lib.Study, metric: str):
    chosen = results.evaluations(study.frame)
    wanted = list(study.datasets)
    if metric == study.metric:
        wanted = list(dict.fromkeys([results.VALID, *wanted]))
    else:
        wanted = list(chosen["dataset"][chosen["metric"] == metric].unique())
    rows = chosen[(chosen["metric"] == metric) & chosen["dataset"].isin(wanted)]
    by = ["label", "dataset", "run", "seed", "epoch"]
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
