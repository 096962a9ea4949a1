"""Functions that draw the figures of decisions: intervals in rows, verdicts, error consistency.

Figures of intervals are as wide as a phone: the name of an observer stands above its interval.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from matplotlib import collections, patches

from jbias.report import plots

_ROW = 0.32  # Height of a row with the name above the interval, in inches.
_INTERVAL_DEPTH = 0.42  # Distance of the interval below the name, in rows.
_MAX_LETTERS = 44  # Of a name; longer names are shortened.
_ROW_LETTERS = 46  # Of the name and the text of a row, which is as wide as a phone.
_CELL = 0.13  # Side of a cell of a matrix, in inches.
_MAX_NAMED = 80  # Rows of a matrix; of more, only some are named.
# Verdicts on a pair, in the order of the legend.
VERDICTS = {
    "differs after Holm": plots.COLOURS[0],
    "differs only without adjustment": "#a9c9ec",
    "no difference shown": plots.FAINT,
}


def shorten(name: str, letters: int = _MAX_LETTERS) -> str:
    """Return a name of at most `letters` letters, with an ellipsis in place of its middle."""
    if len(name) <= letters:
        return name
    end = (letters - 1) // 2
    return f"{name[: letters - 1 - end]}…{name[-end:]}"


def looks_of(kinds: Sequence[str]) -> dict[str, dict]:
    """Return marker and colour by group of observers, in the order of first occurrence."""
    return plots.marks(kinds)


def intervals(
    frame: pd.DataFrame,
    looks: Mapping[str, Mapping],
    *,
    label: str,
    limits: tuple[float, float] | None,
    inner: str = "",
    outer: str = "",
) -> plots.Figure:
    """Return a figure with a row per observer: a dot, its interval, and its name above.

    frame: columns name, kind, value, low, high, text (at the right end of the row), words (on
    hover) and, where there is a second interval, inner_low and inner_high, which is drawn thick.
    Rows without a value show only the text. looks: style by kind. label: label of the x axis.
    limits: ends of the x axis; None: those of the intervals. inner, outer: names of the thick and
    the thin interval, for the legend; "" without a second interval.
    """
    present = {kind: looks[kind] for kind in dict.fromkeys(frame["kind"])}
    legend = plots.handles(present) if len(present) > 1 else {}
    if inner:
        for name, width in ((inner, 3.2), (outer, 1.0)):
            legend[name] = plots.lines.Line2D([], [], color=plots.INK, lw=width)
    height = _ROW * len(frame) + 0.75
    fig, ((axes,),) = plots.grid(1, tuple(legend), cell=(0, height), alone=plots.PHONE)
    y = np.arange(len(frame)) + _INTERVAL_DEPTH
    for i, row in enumerate(frame.itertuples()):
        look = looks[row.kind]
        if math.isfinite(row.value):
            line = {"color": look["color"], "solid_capstyle": "butt"}
            axes.plot([row.low, row.high], [y[i]] * 2, lw=1.2, **line)
            if inner:
                ends = [row.inner_low, row.inner_high]
                axes.plot(ends, [y[i]] * 2, lw=3.4, alpha=0.55, **line)
            axes.plot(row.value, y[i], ls="", ms=4.5, mew=0, **look)
        name = shorten(row.name, min(_MAX_LETTERS, _ROW_LETTERS - len(row.text)))
        _write_in_row(axes, name, i, x=0)
        _write_in_row(axes, row.text, i, x=1)
    known = np.isfinite(frame["value"].to_numpy(float))
    words = frame["words"][known]
    plots.hover_points(axes, frame["value"][known], y[known], [*words])
    if limits:
        axes.set_xlim(limits)
    _dress_rows(axes, (len(frame) - 0.3, -0.6), label)
    if legend:
        plots.legend_above(fig, legend)
    return plots.laid_out(fig)


def _write_in_row(axes: plots.Axes, text: str, y: float, *, x: int) -> None:
    """Write a text at the left (x = 0) or right (x = 1) end of a row."""
    axes.annotate(
        plots.plain([text])[0],
        (x, y),
        xycoords=axes.get_yaxis_transform(),
        va="center",
        ha="right" if x else "left",
        **plots.ink(),
    )


def _dress_rows(axes: plots.Axes, ends: tuple[float, float], label: str) -> None:
    """Set limits, ticks above and below, and the label of axes with a row per observer.

    ends: limits of the y axis, the lower end first.
    """
    axes.set(ylim=ends, yticks=[])
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.tick_params(labeltop=True, length=0)
    axes.set_xlabel(label, **plots.ink())


def verdicts(
    names: Sequence[str], verdict: Int[np.ndarray, "k k"], words: Sequence[str]
) -> plots.Figure:
    """Return a figure of a symmetric matrix of verdicts on all pairs of observers.

    names: observers in the order of rows and columns; columns show only numbers. verdict: index
    into `VERDICTS`, -1 for no comparison. words: text of each row on hover.
    """
    k = len(names)
    legend = {name: patches.Patch(color=colour) for name, colour in VERDICTS.items()}
    labels = [f"{shorten(name)}  {i}" for i, name in enumerate(names, 1)]
    fig, axes = _matrix_canvas(labels, legend)
    for index, colour in enumerate(VERDICTS.values()):
        rectangles = [
            patches.Rectangle((start - 0.5, i - 0.42), end - start, 0.84)
            for i in range(k)
            for start, end in _runs(verdict[i] == index)
        ]
        cells = collections.PatchCollection(rectangles, facecolor=colour, lw=0)
        axes.add_collection(cells)
    plots.hover_boxes(axes, [(-0.5, i - 0.5, k, 1) for i in range(k)], words)
    axes.set(xlim=(-0.5, k - 0.5), ylim=(k - 0.5, -0.5))
    plots.legend_above(fig, legend)
    return plots.laid_out(fig)


def _runs(is_set: np.ndarray) -> list[tuple[int, int]]:
    """Return (start, end) of each run of True values; `end` is not in the run."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], is_set.astype(int), [0]])))
    return [*zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)]


def kappas(names: Sequence[str], kappa: Float[np.ndarray, "k k"]) -> plots.Figure:
    """Return a heat map of the error consistency of all pairs of observers.

    names: observers in the order of rows and columns; columns show only numbers.
    """
    labels = [f"{shorten(name)}  {i}" for i, name in enumerate(names, 1)]
    fig, axes = _matrix_canvas(labels, {})
    values = np.where(np.eye(len(names), dtype=bool), math.nan, kappa)
    frame = pd.DataFrame(values, names, range(1, len(names) + 1))
    lowest = min(0.0, float(np.nanmin(values, initial=0.0)))
    has_numbers = len(names) <= 12
    cells = plots.matrix(
        axes,
        frame,
        limits=(lowest, 1),
        form="{:.2f}",
        least=-math.inf if has_numbers else None,
    )
    if not has_numbers:
        cells.set_interpolation("nearest")
    every = math.ceil(len(names) / _MAX_NAMED)
    axes.set_yticks(range(0, len(names), every), plots.plain(labels)[::every])
    _number_columns(axes, len(names))
    bar = fig.colorbar(
        cells, ax=axes, location="bottom", anchor=(0, 0), aspect=24, shrink=0.6
    )
    bar.outline.set_visible(False)
    bar.set_label("error consistency (kappa)", **plots.ink())
    bar.ax.tick_params(length=0, labelsize=plots.SMALL, labelcolor=plots.INK)
    return plots.laid_out(fig)


def _matrix_canvas(
    labels: Sequence[str], legend: Mapping[str, object]
) -> tuple[plots.Figure, plots.Axes]:
    """Return (figure, axes) for a matrix of all pairs, with the labels of its rows."""
    k = len(labels)
    cell = _CELL if k > 12 else 0.4
    side = cell * k
    width = max(side + plots.LETTER * max(map(len, labels)) + 0.3, plots.PHONE)
    fig, ((axes,),) = plots.grid(
        1, tuple(legend), cell=(0, side + (0.5 if legend else 1.1)), alone=width
    )
    every = math.ceil(k / _MAX_NAMED)
    axes.set_yticks(range(0, k, every), plots.plain(labels)[::every])
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    _number_columns(axes, k)
    return fig, axes


def _number_columns(axes: plots.Axes, k: int) -> None:
    """Write the numbers of columns above a matrix with k columns."""
    step = 1 if k <= 12 else 5
    numbers = [1, *range(step, k + 1, step)] if step > 1 else range(1, k + 1)
    axes.set_xticks([i - 1 for i in numbers], [*map(str, numbers)])
    axes.tick_params(labelbottom=False, labeltop=True)


def levels(
    names: Sequence[str],
    estimates: Mapping[str, Mapping[str, tuple[float, float, float]]],
    *,
    label: str,
) -> plots.Figure:
    """Return a figure with a row per model and a dot with an interval per level of a factor.

    names: models in the order of rows. estimates: (value, low, high) by level, then model. label:
    label of the x axis.
    """
    looks = plots.marks(estimates)
    lane = 0.14
    row = 0.2 + lane * len(estimates)
    fig, ((axes,),) = plots.grid(
        1, tuple(looks), cell=(0, row * len(names) + 0.75), alone=plots.PHONE
    )
    top = -0.5 + 0.2 / row
    for number, (level, by_name) in enumerate(estimates.items()):
        rows = [i for i, name in enumerate(names) if name in by_name]
        value, low, high = np.array([by_name[names[i]] for i in rows]).T
        y = np.array(rows) + top + (number + 0.5) * lane / row
        axes.hlines(y, low, high, colors=looks[level]["color"], linewidth=1.2)
        axes.plot(value, y, ls="", ms=4.5, mew=0, **looks[level])
        words = [
            f"{names[i]}, {level}: {x:.3f}" for i, x in zip(rows, value, strict=True)
        ]
        plots.hover_points(axes, value, y, words)
    for i, name in enumerate(names):
        _write_in_row(axes, shorten(name), i - 0.5 + 0.1 / row, x=0)
    _dress_rows(axes, (len(names) - 0.5, -0.6), label)
    plots.legend_above(fig, plots.handles(looks))
    return plots.laid_out(fig)
