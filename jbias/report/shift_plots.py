"""Figures of shifts: curves over levels, in against out of distribution, probabilities."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib import figure as mpl_figure
from matplotlib import lines
from matplotlib.backends import backend_agg

from jbias.report import plots

ASIDE = 3  # Panels in a row.
PANELS, LINES = 9, 12  # More on one figure nobody can read.
SETS = ("in distribution", "out of distribution")


class Line(NamedTuple):
    """One curve of a panel, with the ends of its intervals."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def curves(
    panels: Mapping[str, Sequence[Line]],
    names: Sequence[str],
    *,
    ticks: Mapping[str, Mapping[float, str]],
    labels: tuple[str, str],
    log: bool = False,
) -> mpl_figure.Figure:
    """Draws lines with intervals, a panel a title; each of `names` keeps its look.

    Panels have one scale of y. ticks: by title, names of places on the axis of x. log:
    whether x grows by factors.
    """
    fig, grid = _grid(len(panels), legend=names)
    ends = [
        y for lines_of in panels.values() for x in lines_of for y in (*x.low, *x.high)
    ]
    low, high = min(0.0, *ends), max(10.0, *ends)
    with mpl.rc_context(dict(plots.STYLE)):
        for axes, (title, drawn) in zip(grid.flat, panels.items(), strict=False):
            for line in drawn:
                i = names.index(line.name)
                look = plots.style_of(i) | {"marker": plots.marker_of(i)}
                axes.plot(line.x, line.y, linewidth=1.4, markersize=4, mew=0, **look)
                axes.vlines(line.x, line.low, line.high, color=look["color"], lw=0.9)
            plots.dress(axes)
            axes.set_title(plots.plain([title])[0], **_ink(9), loc="left")
            if log:
                axes.set_xscale("log")
            axes.set_xticks(list(ticks[title]), list(ticks[title].values()))
            axes.minorticks_off()
            axes.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
        _labels(grid, len(panels), *labels)
        _legend(fig, names, lines_too=True)
        return _laid_out(fig)


class Spot(NamedTuple):
    """One model in a panel of in against out of distribution: its seeds, in %."""

    name: str
    inside: Float[np.ndarray, "s"]
    outside: Float[np.ndarray, "s"]


def against(
    panels: Mapping[str, Sequence[Spot]], names: Sequence[str]
) -> mpl_figure.Figure:
    """Draws out over in distribution: a small dot a seed, a large one their mean."""
    fig, grid = _grid(len(panels), legend=names)
    with mpl.rc_context(dict(plots.STYLE)):
        for axes, (title, spots) in zip(grid.flat, panels.items(), strict=False):
            for spot in spots:
                i = names.index(spot.name)
                look = dict(color=plots.style_of(i)["color"], linewidths=0)
                look |= dict(marker=plots.marker_of(i))
                axes.scatter(spot.inside, spot.outside, s=9, alpha=0.45, **look)
                axes.scatter(spot.inside.mean(), spot.outside.mean(), s=46, **look)
            plots.dress(axes)
            axes.margins(0.12)
            axes.set_title(plots.plain([title])[0], **_ink(9), loc="left")
        _labels(grid, len(panels), "in distribution, %", "out of distribution, %")
        _legend(fig, names, lines_too=False)
        return _laid_out(fig)


BINS = np.linspace(0, 1, 21)


def probabilities(
    panels: Mapping[str, tuple[Float[np.ndarray, "n"], Float[np.ndarray, "o"]]],
) -> mpl_figure.Figure:
    """Draws how often the right class has which probability, in and out, a panel a title."""
    fig, grid = _grid(len(panels), legend=SETS)
    with mpl.rc_context(dict(plots.STYLE)):
        for axes, (title, pair) in zip(grid.flat, panels.items(), strict=False):
            for i, values in enumerate(pair):
                share = np.histogram(values, BINS)[0] / max(len(values), 1)
                colour = plots.style_of(i)["color"]
                axes.stairs(100 * share, BINS, fill=True, color=colour, alpha=0.3)
                axes.stairs(100 * share, BINS, color=colour, linewidth=1.3)
            plots.dress(axes)
            axes.set(xlim=(0, 1), ylim=(0, None))
            axes.set_title(plots.plain([title])[0], **_ink(9), loc="left")
        words = "probability of the right class", "share of images, %"
        _labels(grid, len(panels), *words)
        handles = [
            lines.Line2D(
                [], [], color=plots.style_of(i)["color"], linewidth=5, alpha=0.6
            )
            for i in range(2)
        ]
        _placed(fig, handles, SETS)
        return _laid_out(fig)


def left_out(panels: Sequence | Mapping, names: Sequence[str] = ()) -> str:
    """Says what a figure leaves out for want of room."""
    told = []
    if len(panels) > PANELS:
        told.append(f"the first {PANELS} of {len(panels)} panels")
    if len(names) > LINES:
        told.append(f"{LINES} of {len(names)} recipes")
    return f"Drawn are {' and '.join(told)}." if told else ""


def _grid(panels: int, legend: Sequence[str]):
    """Gives a figure, laid out by what is in it, and its axes; those left over are off."""
    columns = min(ASIDE, panels)
    rows = math.ceil(panels / columns)
    width = 3.1 * columns + 0.2 if columns > 1 else 5.0
    height = 2.3 * rows + 0.2 * math.ceil(len(legend) / _beside(legend, width)) + 0.2
    with mpl.rc_context(dict(plots.STYLE)):
        fig = mpl_figure.Figure(figsize=(width, height), layout="constrained")
        backend_agg.FigureCanvasAgg(fig)
        grid = fig.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[panels:]:
        axes.set_axis_off()
    return fig, grid


def _beside(names: Sequence[str], width: float) -> int:
    """Gives how many names of a legend stand side by side."""
    return max(1, int(width / (0.55 + 0.072 * max(map(len, names), default=1))))


def _labels(grid, panels: int, x: str, y: str) -> None:
    columns = grid.shape[1]
    for axes in list(grid.flat)[max(panels - columns, 0) : panels]:
        axes.set_xlabel(x, **_ink(8))
    for axes in grid[:, 0]:
        axes.set_ylabel(y, **_ink(8))


def _legend(fig, names: Sequence[str], *, lines_too: bool) -> None:
    handles = []
    for i in range(len(names)):
        look = plots.style_of(i) if lines_too else {"linestyle": ""}
        look |= {"color": plots.style_of(i)["color"], "mew": 0, "markersize": 5}
        handles.append(lines.Line2D([], [], marker=plots.marker_of(i), **look))
    _placed(fig, handles, names)


def _placed(fig, handles, names: Sequence[str]) -> None:
    fig.legend(
        handles,
        plots.plain(names),
        loc="outside upper left",
        ncols=_beside(names, fig.get_size_inches()[0]),
        frameon=False,
        labelcolor=plots.INK,
        fontsize=8,
    )


def _laid_out(fig: mpl_figure.Figure) -> mpl_figure.Figure:
    plots.literal(fig).draw_without_rendering()
    fig.set_layout_engine("none")  # Laid out once, not again for every format.
    return fig


def _ink(size: float) -> dict:
    return {"color": plots.INK, "fontsize": size}
