"""Figures of many models by category: lines over places, and spreads of measures."""

import math
from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import figure as mpl_figure
from matplotlib import patches
from matplotlib.backends import backend_agg

from jbias.report import plots, relation_figures, tables

_ROW = 0.5  # Inches.


def by_category(
    panels: Mapping[str, tuple[Sequence[float], pd.DataFrame]],
    kinds: pd.Series,
    *,
    label: str,
    height: str,
    doubling: bool = False,
) -> mpl_figure.Figure:
    """Draws lines side by side: a thin one a model, a thick one the mean of a category.

    A panel is a title, places on the x axis, and a frame of models with a column for each
    of them; `kinds` are the models' categories. NaN leaves a gap. doubling: equal steps
    of the x axis double the place.
    """
    names = list(dict.fromkeys(kinds))
    fig, aside = _figure(names, 4.1 * len(panels) + 0.3, 3.1)
    with mpl.rc_context(dict(plots.STYLE)):
        cells = fig.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for axes, (title, (places, frame)) in zip(cells, panels.items(), strict=True):
            for k, name in enumerate(names):
                mine = frame[(kinds == name).to_numpy()].to_numpy(float)
                colour = plots.style_of(k)["color"]
                if len(mine) > 1:
                    axes.plot(places, mine.T, color=colour, linewidth=0.5, alpha=0.35)
                axes.plot(
                    places,
                    frame[(kinds == name).to_numpy()].mean(),
                    color=colour,
                    linewidth=1.5,
                    marker=plots.marker_of(k),
                    markersize=4.5,
                    markeredgewidth=0,
                )
            plots.dress(axes)
            axes.set_title(title, fontsize=9, color=plots.INK, loc="left")
            axes.set_xlabel(label, color=plots.INK, fontsize=8)
            if doubling:
                axes.set_xscale("log", base=2)
                axes.set_xticks(places, [f"{place:g}" for place in places])
            else:
                axes.locator_params(nbins=6)
        cells[0].set_ylabel(height, color=plots.INK, fontsize=8)
    return _finished(fig, names, aside)


def spread(
    frame: pd.DataFrame, names: Sequence[str], kinds: pd.Series, *, label: str
) -> mpl_figure.Figure:
    """Draws a row a measure: a box over the quartiles, and each model in its category's lane."""
    groups = list(dict.fromkeys(kinds))
    fig, aside = _figure(groups, 7.6, _ROW * len(names) + 0.5)
    with mpl.rc_context(dict(plots.STYLE)):
        axes = fig.subplots()
        for i, name in enumerate(names):
            values = frame[name].dropna()
            first, middle, last = np.quantile(values, (0.25, 0.5, 0.75))
            axes.add_patch(
                patches.Rectangle(
                    (first, i - 0.4),
                    last - first,
                    0.8,
                    color=plots.FAINT,
                    alpha=0.6,
                    lw=0,
                )
            )
            axes.plot([middle] * 2, [i - 0.4, i + 0.4], color=plots.INK, linewidth=1)
            for k, group in enumerate(groups):
                mine = frame[name][(kinds == group).to_numpy()]
                lane = i + 0.72 * ((k + 0.5) / len(groups) - 0.5)
                axes.plot(
                    mine,
                    [lane] * len(mine),
                    plots.marker_of(k),
                    color=plots.style_of(k)["color"],
                    markersize=3.6,
                    markeredgewidth=0,
                    alpha=0.85,
                )
        plots.dress(axes)
        axes.grid(visible=False, axis="y")
        axes.set(ylim=(len(names) - 0.45, -0.55))
        axes.set_yticks(range(len(names)), plots.plain(names), fontsize=8)
        axes.tick_params(axis="y", length=0)
        axes.locator_params(axis="x", nbins=8)
        axes.set_xlabel(label, color=plots.INK, fontsize=8)
    return _finished(fig, groups, aside)


def pairs(
    frame: pd.DataFrame,
    names: Sequence[str],
    kinds: pd.Series,
    sizes: pd.Series,
    rho: pd.DataFrame,
) -> mpl_figure.Figure:
    """Draws each measure over each other one below the diagonal, and rho above it.

    The diagonal names the measure of its row and column, and its range, which fills a cell.
    """
    groups, count = list(dict.fromkeys(kinds)), len(names)
    side = max(0.9, min(1.5, 10 / count))
    aside = max(1, int(count * side / (0.45 + 0.07 * max(map(len, groups)))))
    above = 0.2 + 0.24 * math.ceil(len(groups) / aside)
    fig, axes = plots.canvas(count * side + 0.1, count * side + 0.1 + above)
    values = frame[list(names)].to_numpy(float)
    low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    places = 0.1 + 0.8 * (values - low) / np.where(high > low, high - low, 1)
    areas = relation_figures.areas_of(sizes) * 0.5

    def corner(i: int, j: int) -> tuple[float, float]:
        return 0.05 + j * side, 0.05 + (count - 1 - i) * side

    below = [(i, j) for i in range(count) for j in range(i)]
    for i in range(count):
        for j in range(count):
            edge = dict(fill=False, edgecolor=plots.FAINT, linewidth=0.7)
            axes.add_patch(patches.Rectangle(corner(i, j), side, side, **edge))
            x, y = (part + side / 2 for part in corner(i, j))
            ink = dict(color=plots.INK, ha="center", va="center")
            if j > i:
                told = tables.digits(2)(rho.loc[names[i], names[j]])
                axes.text(x, y, told, fontsize=9, **ink)
            elif i == j:
                axes.text(x, y + 0.09, names[i], fontsize=7.5, **ink)
                told = f"{low[i]:.1f} to {high[i]:.1f}"
                axes.text(x, y - 0.12, told, fontsize=7, **ink)
    for k, group in enumerate(groups):
        mine = (kinds == group).to_numpy()
        drawn = [
            np.asarray(corner(i, j)) + side * places[mine][:, [j, i]] for i, j in below
        ]
        axes.scatter(
            *np.concatenate(drawn).T,
            s=np.tile(areas[mine], len(below)),
            marker=plots.marker_of(k),
            color=plots.style_of(k)["color"],
            alpha=0.75,
            linewidths=0,
        )
    with mpl.rc_context(dict(plots.STYLE)):
        plots.legend(fig, groups, aside, where="upper left")
    return plots.literal(fig)


def _figure(names: Sequence[str], width: float, height: float):
    """Gives a figure with room for a legend, and the legend's number of columns."""
    aside = max(1, int(width / (0.45 + 0.07 * max(map(len, names)))))
    height += 0.15 + 0.24 * math.ceil(len(names) / aside)
    with mpl.rc_context(dict(plots.STYLE)):
        fig = mpl_figure.Figure(figsize=(width, height), layout="constrained")
        backend_agg.FigureCanvasAgg(fig)
    return fig, aside


def _finished(fig, names: Sequence[str], aside: int) -> mpl_figure.Figure:
    with mpl.rc_context(dict(plots.STYLE)):
        plots.legend(fig, names, aside)
        plots.literal(fig).draw_without_rendering()
    fig.set_layout_engine("none")  # Laid out once, not again for every format.
    return fig
