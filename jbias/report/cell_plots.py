"""Matrices of numbers with names, as shaded cells: p-values of pairs, and power."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float
from matplotlib import figure as mpl_figure
from matplotlib import patches

from jbias.report import figures, tables

LETTER = 0.078  # Inches; so are all lengths here.
_COLOUR = figures.COLOURS[0]

_SHADES = (0.75, 0.5, 0.28)  # How much colour: ink stays legible on all, light or dark.
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
