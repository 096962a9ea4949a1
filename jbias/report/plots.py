"""Figures of numbers with names: heat maps, intervals, profiles, variability.

Each is a function of arrays. Rows keep their height and names their room, so a figure of
many algorithms grows; the page scrolls it.
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float
from matplotlib import figure as mpl_figure
from matplotlib import lines, patches, ticker

from jbias.report import figures, tables

ROW = 0.27  # Inches; so are all lengths here.
LETTER = 0.078
_SHADES = (0.75, 0.5, 0.28)  # How much colour: ink stays legible on all, light or dark.
_COLOUR = figures.COLOURS[0]
_TOLD = 15  # Names up to which each cell of a matrix says its number.


def p_heatmap(
    names: Sequence[str], pvalues: Float[np.ndarray, "k k"], alpha: float
) -> mpl_figure.Figure:
    """Draws p-values of all pairs: deep where p is small, with the number or a dot.

    The depth has three steps: p <= alpha, alpha / 5 and alpha / 50. NaN is a dash.
    """
    names = figures.plain(names)
    k, told = len(names), len(names) <= _TOLD
    cell = 0.5 if told else 0.24
    longest = LETTER * max(map(len, names)) + 0.2
    foot = 0.55
    width = max(longest + k * cell + 0.15, 4.6)
    fig, axes = figures.canvas(width, foot + k * cell + longest)
    levels = (alpha / 50, alpha / 5, alpha)
    for i in range(k):
        y = foot + (k - 1 - i) * cell
        axes.text(
            longest - 0.1,
            y + cell / 2,
            names[i],
            ha="right",
            va="center",
            **figures.ink(9),
        )
        x = longest + i * cell
        axes.text(
            x + cell / 2,
            foot + k * cell + 0.1,
            names[i],
            rotation=90,
            ha="center",
            va="bottom",
            **figures.ink(9),
        )
        for j in range(k):
            _p_cell(
                axes, longest + j * cell, y, cell, pvalues[i, j], levels, told, i == j
            )
    for step, (level, shade) in enumerate(zip(levels, _SHADES, strict=True)):
        x = 0.15 + 1.45 * step
        _square(axes, x, 0.15, 0.22, shade)
        if not told:
            _dot(axes, x + 0.11, 0.26, step)
        axes.text(x + 0.3, 0.26, f"p ≤ {level:g}", va="center", **figures.ink(9))
    return figures.literal(fig)


def _p_cell(axes, x, y, cell, p, levels, told, diagonal):
    if diagonal:
        return _square(axes, x, y, cell, 0, hatch="////")
    step = next((s for s, level in enumerate(levels) if p <= level), None)
    _square(axes, x, y, cell, 0 if step is None else _SHADES[step])
    if told:
        shown = "–" if math.isnan(p) else tables.p_text(p)
        axes.text(
            x + cell / 2,
            y + cell / 2,
            shown,
            ha="center",
            va="center",
            **figures.ink(7),
        )
    elif step is not None:
        _dot(axes, x + cell / 2, y + cell / 2, step)
    elif math.isnan(p):
        axes.text(
            x + cell / 2, y + cell / 2, "–", ha="center", va="center", **figures.ink(7)
        )
    return None


def _dot(axes, x, y, step):
    axes.plot(x, y, "o", color=figures.INK, markersize=5.5 - 1.6 * step)


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
        if math.isfinite(p)
        else "–"
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


def power(
    seeds: Sequence[int],
    datasets: Sequence[int],
    grid: Float[np.ndarray, "seeds datasets"],
    *,
    target: float = 0.8,
    labels: tuple[str, str] = ("seeds", "data sets"),
) -> mpl_figure.Figure:
    """Draws the power by numbers of seeds and data sets; framed where it is `target`."""
    cell, left, foot = 0.5, 0.85, 0.95
    width = max(left + cell * len(datasets) + 0.2, 3.4)
    fig, axes = figures.canvas(width, foot + cell * len(seeds) + 0.15)
    enough: Bool[np.ndarray, "seeds datasets"] = np.asarray(grid) >= target
    middle = {"ha": "center", "va": "center"}
    for i, number in enumerate(seeds):
        y = foot + cell * i
        axes.text(
            left - 0.1,
            y + cell / 2,
            str(number),
            ha="right",
            va="center",
            **figures.ink(9),
        )
        for j in range(len(datasets)):
            x, share = left + cell * j, float(grid[i][j])
            finite = math.isfinite(share)
            _square(axes, x, y, cell, 0.75 * share if finite else 0)
            told = f"{share:.2f}" if finite else "–"
            axes.text(x + cell / 2, y + cell / 2, told, **middle, **figures.ink())
            if enough[i, j]:
                inner = (x + 0.03, y + 0.03), cell - 0.06, cell - 0.06
                axes.add_patch(
                    patches.Rectangle(*inner, fill=False, edgecolor=figures.INK, lw=1.3)
                )
    for j, number in enumerate(datasets):
        x = left + cell * (j + 0.5)
        axes.text(x, foot - 0.1, str(number), ha="center", va="top", **figures.ink(9))
    across = left + cell * len(datasets) / 2
    axes.text(across, foot - 0.35, labels[1], ha="center", va="top", **figures.ink(9))
    up = foot + cell * len(seeds) / 2
    axes.text(
        0.15, up, labels[0], rotation=90, ha="left", va="center", **figures.ink(9)
    )
    axes.text(0.15, 0.2, f"framed: power ≥ {target:g}", va="center", **figures.ink())
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


def _square(axes, x, y, side, shade, *, hatch=None):
    """Draws a cell; a shade of 0 is none."""
    axes.add_patch(
        patches.Rectangle((x, y), side, side, facecolor=_COLOUR, alpha=shade, lw=0)
    )
    axes.add_patch(
        patches.Rectangle(
            (x, y),
            side,
            side,
            fill=False,
            edgecolor=figures.FAINT,
            lw=0.6,
            hatch=hatch,
        )
    )
