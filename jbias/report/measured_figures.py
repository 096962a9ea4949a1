"""Figures of measured networks: heat maps by network, filters, attacks."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import matplotlib as mpl
import pandas as pd
from matplotlib import figure as mpl_figure

from jbias.report import measure_figures, plots

_LETTER, _WIDE = 0.075, 9.5  # Inches.


class Band(NamedTuple):
    """A critical band among the columns of a heat map, in their numbers."""

    low: float
    centre: float
    high: float


def heat(
    panels: Mapping[str, pd.DataFrame],
    *,
    across: str,
    down: str,
    cell: tuple[float, float] = (0.42, 0.22),
    bands: Mapping[str, Band] | None = None,
) -> mpl_figure.Figure:
    """Draws shares in per cent as cells, a panel a network.

    panels: tables with the same rows, NaN where nothing was measured. bands: where a panel has
    one, a bar over its cells, from end to end, with a dot at the centre.
    """
    tables = list(panels.values())
    rows = plots.plain([str(name) for name in tables[0].index])
    most = max(table.shape[1] for table in tables)
    left = _LETTER * max(map(len, rows)) + 0.45
    titles = plots.plain(panels)
    wide = max(cell[0] * most, _LETTER * max(map(len, titles))) + 0.25
    aside = max(1, min(len(panels), int((_WIDE - left) / wide)))
    room = 5 if not bands else 20  # Points below a title.
    tall = cell[1] * len(rows) + 0.8 + room / 72
    below = math.ceil(len(panels) / aside)
    width, height = left + aside * wide, below * tall + 0.1
    fig = plots.blank(width, height)
    for i, (title, table) in enumerate(zip(titles, tables, strict=True)):
        line, place = divmod(i, aside)
        foot = (below - 1 - line) * tall + 0.55
        columns = plots.plain([str(name) for name in table])
        box = (left + place * wide, foot, cell[0] * len(columns), cell[1] * len(rows))
        axes = plots.axes_at(fig, box)
        _cells(axes, 100 * table.to_numpy(float))
        axes.set_title(title, fontsize=8.5, color=plots.INK, loc="left", pad=room)
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(rows)), rows if place == 0 else [""] * len(rows))
        axes.tick_params(length=0)
        axes.set_xlabel(across, **plots.ink())
        if place == 0:
            axes.set_ylabel(down, **plots.ink())
        band = (bands or {}).get(list(panels)[i])
        if band is not None:
            _band(axes, band, len(columns))
    return plots.literal(fig)


def _cells(axes, values) -> None:
    axes.imshow(values, cmap=measure_figures.SHADES, vmin=0, vmax=100, aspect="auto")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            if math.isnan(value):
                told, ink = "–", plots.INK
            else:
                ink = "white" if value > 45 else measure_figures.ON_LIGHT
                told = f"{value:.0f}"
            axes.text(j, i, told, ha="center", va="center", fontsize=6.5, color=ink)


def _band(axes, band: Band, count: int) -> None:
    """Draws a band over the cells; what lies outside of them is cut, without an end."""
    look = dict(color=plots.COLOURS[1], clip_on=False)
    low, high = max(band.low, -0.5), min(band.high, count - 0.5)
    if low < high:
        axes.plot([low, high], [-0.95] * 2, linewidth=2.2, **look)
    for place in (band.low, band.high):
        if -0.5 <= place <= count - 0.5:
            axes.plot([place] * 2, [-1.2, -0.7], linewidth=2.2, **look)
    if -0.5 <= band.centre <= count - 0.5:
        axes.plot(band.centre, -0.95, "o", markersize=5, **look)
    axes.set(xlim=(-0.5, count - 0.5))


def curves(
    panels: Mapping[str, tuple[Sequence[float], pd.DataFrame]],
    *,
    label: str | Mapping[str, str],
    height: str,
    limits: tuple[float, float] | None = None,
) -> mpl_figure.Figure:
    """Draws a line a network over places, a panel a frame of networks by place."""
    names = list(next(iter(panels.values()))[1].index)
    aside = max(1, int(3.6 * len(panels) / (0.45 + 0.07 * max(map(len, names)))))
    present = {
        name
        for _, frame in panels.values()
        for name in frame.index[frame.notna().any(axis=1)]
    }
    head = 0.1 + 0.17 * math.ceil(len(present) / aside) if len(names) > 1 else 0.0
    fig = plots.blank(3.6 * len(panels) + 0.5, 3.4 + head)
    for i, (title, (places, frame)) in enumerate(panels.items()):
        axes = plots.axes_at(fig, (0.65 + 3.6 * i, 0.55, 3.1, 2.6))
        for k, name in enumerate(names):
            values = frame.loc[name].to_numpy(float)
            known = ~pd.isna(values)
            axes.plot(
                [place for place, is_known in zip(places, known) if is_known],
                values[known],
                color=plots.style_of(k)["color"],
                marker=plots.marker_of(k),
                linewidth=1.5,
                markersize=4,
                markeredgewidth=0,
            )
        axes.set_title(title, fontsize=9, color=plots.INK, loc="left")
        told = label if isinstance(label, str) else label[title]
        axes.set_xlabel(told, **plots.ink())
        axes.set_ylim(*(limits or (0, None)))
        if not i:
            axes.set_ylabel(height, **plots.ink())
    if len(names) > 1:
        with mpl.rc_context(dict(plots.STYLE)):
            told = plots.plain(names)
            drawn = {told[names.index(name)] for name in present}
            look = dict(present=drawn, where="upper left")
            plots.legend(fig, told, aside, **look)
    return plots.literal(fig)
