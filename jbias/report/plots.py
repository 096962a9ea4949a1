"""Figures of numbers with names: intervals, profiles, variability.

Each is a function of arrays. Rows keep their height and names their room, so a figure of
many algorithms grows; the page scrolls it.
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib import figure as mpl_figure
from matplotlib import lines, patches, ticker

from jbias.report import figures

ROW = 0.27  # Inches; so are all lengths here.
LETTER = 0.078
_COLOUR = figures.COLOURS[0]


def intervals(
    names: Sequence[str],
    point: Float[np.ndarray, "k"],
    low: Float[np.ndarray, "k"],
    high: Float[np.ndarray, "k"],
    *,
    label: str = "",
    reference: float | None = None,
    digits: int = 2,
) -> mpl_figure.Figure:
    """Draws a line from low to high with a dot at the point, a row a name, and the numbers.

    `reference` is a value to compare with, such as no difference. NaN draws nothing.
    """
    names, k = figures.plain(names), len(names)
    told = [
        f"{p:.{digits}f} [{a:.{digits}f}, {b:.{digits}f}]".replace("-", "−")
        if math.isfinite(a)
        else (f"{p:.{digits}f}".replace("-", "−") if math.isfinite(p) else "–")
        for p, a, b in zip(point, low, high, strict=True)
    ]
    left = LETTER * max(map(len, names)) + 0.25
    right = LETTER * max(map(len, told)) + 0.25
    fig, axes = _rows(names, left=left, span=3.6, right=right, label=label)
    if reference is not None:
        axes.axvline(reference, color=figures.INK, linewidth=0.8, linestyle=(0, (3, 2)))
    for i in range(k):
        if math.isfinite(point[i]):
            axes.plot([low[i], high[i]], [i, i], color=_COLOUR, linewidth=1.8)
        axes.plot(point[i], i, "o", color=_COLOUR, markersize=4.5)
        axes.text(
            1 + 0.1 / 3.6,
            i,
            told[i],
            va="center",
            transform=axes.get_yaxis_transform(),
            **figures.ink(9),
        )
    return figures.literal(fig)


def profiles(
    names: Sequence[str],
    thresholds: Float[np.ndarray, "t"],
    shares: Float[np.ndarray, "k t"],
    low: Float[np.ndarray, "k t"] | None = None,
    high: Float[np.ndarray, "k t"] | None = None,
    *,
    label: str = "score",
) -> mpl_figure.Figure:
    """Draws the share of runs that exceed each threshold, with bands if they are given."""
    names = figures.plain(names)
    longest = LETTER * max(map(len, names)) + 0.5
    columns = max(1, min(len(names), int(6.2 / longest)))
    rows = math.ceil(len(names) / columns)
    width, foot = max(6.4, longest + 0.2), 0.6
    height = foot + 3.1 + 0.2 + rows * 0.18
    fig = figures.blank(width, height)
    axes = figures.axes_at(fig, (0.65, foot, width - 0.85, 3.1))
    axes.xaxis.set_major_locator(ticker.MaxNLocator(5))
    for i in range(len(names)):
        axes.plot(thresholds, shares[i], linewidth=1.5, **figures.style_of(i))
        if low is not None:
            colour = figures.style_of(i)["color"]
            axes.fill_between(
                thresholds, low[i], high[i], color=colour, alpha=0.14, lw=0
            )
    axes.set(ylim=(-0.02, 1.02), yticks=np.linspace(0, 1, 6))
    axes.set_xlabel(label, **figures.ink())
    axes.set_ylabel("share of runs above", **figures.ink())
    handles = [lines.Line2D([], [], **figures.style_of(i)) for i in range(len(names))]
    fig.legend(
        handles,
        names,
        loc="upper left",
        bbox_to_anchor=(0.02, 1 - 0.03 / height),
        ncols=columns,
        frameon=False,
        labelcolor=figures.INK,
        fontsize=8,
        handlelength=1.8,
        labelspacing=0.35,
        borderpad=0,
    )
    return figures.literal(fig)


def variability(
    names: Sequence[str],
    intra: Sequence[Float[np.ndarray, "runs"]],
    inter: Sequence[Float[np.ndarray, "sets"]],
    *,
    label: str = "standard deviation",
    kinds: tuple[str, str] = ("within a run", "between runs"),
) -> mpl_figure.Figure:
    """Draws deviations of each algorithm as dots, with a box over their quartiles.

    Dots above are `intra`, those below, in another colour and form, are `inter`.
    """
    names = figures.plain(names)
    left = LETTER * max(map(len, names)) + 0.25
    fig, axes = _rows(names, left=left, span=4.6, right=0.25, label=label, row=0.42)
    looks = (
        (intra, -0.19, "o", figures.COLOURS[0]),
        (inter, 0.19, "D", figures.COLOURS[1]),
    )
    for values, shift, marker, colour in looks:
        for i, each in enumerate(values):
            each = np.asarray(each, float)
            each = each[np.isfinite(each)]
            if not len(each):
                continue
            first, middle, last = np.quantile(each, (0.25, 0.5, 0.75))
            y = i + shift
            box = patches.Rectangle(
                (first, y - 0.13), last - first, 0.26, color=colour, alpha=0.25, lw=0
            )
            axes.add_patch(box)
            axes.plot([middle] * 2, [y - 0.15, y + 0.15], color=colour, linewidth=1.8)
            axes.plot(
                each, [y] * len(each), marker, color=colour, markersize=2.6, alpha=0.7
            )
    handles = [
        lines.Line2D([], [], linestyle="", marker=marker, color=colour, markersize=4)
        for _, _, marker, colour in looks
    ]
    axes.legend(
        handles,
        kinds,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=2,
        frameon=False,
        labelcolor=figures.INK,
        fontsize=8,
    )
    axes.autoscale_view()
    return figures.literal(fig)


def _rows(names, *, left, span, right, label, row=ROW):
    """Gives axes with a row for each name, the first on top."""
    foot, head, k = 0.6, 0.3, len(names)
    width, height = left + span + right, foot + head + row * k
    fig = figures.blank(width, height)
    axes = figures.axes_at(fig, (left, foot, span, row * k))
    axes.xaxis.set_major_locator(ticker.MaxNLocator(5))
    axes.set(ylim=(k - 0.5, -0.5))
    axes.set_yticks(range(k), list(names), fontsize=9)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(label, **figures.ink())
    return fig, axes
