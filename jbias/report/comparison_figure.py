"""Figure of a Multi-Comparison Matrix: a coloured cell with three lines of text per pair.

After figure 4 of Ismail-Fawaz et al. 2023, https://arxiv.org/abs/2305.11921. Deviation: the colour
follows which method is better, also where smaller scores are better.
"""

import math
from collections.abc import Iterable

import matplotlib as mpl
import numpy as np
from matplotlib import cm, font_manager, textpath

from jbias.report import plots, tables
from jbias.stats import comparison_matrix

MAX_METHODS = 20  # More methods make the figure wider than two pages.
_LARGE_CELLS = 10  # Up to this number of methods, cells have the usual font size.
_SMALL_FONT = 7.0  # Font size in points for more methods.
_LINE = 1.3 / 72  # Height of a line in inches per point.
_LIGHT = 1.6  # Colours end at this multiple of the largest difference: black text is legible.


def draw(
    result: comparison_matrix.ComparisonMatrix,
    *,
    alpha: float,
    digits: int = 2,
    blocks: str = "data sets",
    test: str = "p",
) -> plots.Figure:
    """Return the figure of a matrix, with methods in the order of their means, the best first.

    A cell is the row's method against the column's: the mean difference, "wins / ties / losses" of
    the row, and p; bold where p < alpha. Blue: the row is better; red: the column. The mean follows
    each name. The figure has every method of the result; `result.only` selects up to `MAX_METHODS`.
    alpha: significance level. digits: digits of means and differences after the point. blocks:
    plural noun for what wins are counted over, such as "images". test: label of the p-value.
    """
    result = result.only([result.methods[i] for i in result.order])
    k = len(result.methods)
    is_large = k <= _LARGE_CELLS
    font = plots.SMALL if is_large else _SMALL_FONT
    texts = _cell_texts(result, digits=digits, has_spaces=is_large)
    lines = {line for text in texts.values() for line in text.split("\n")}
    # At least as wide as the label of the colour bar.
    cell_width = max(_widest(lines, font, weight="bold") + 0.1, 2.4 / k)
    cell_height = 3 * font * _LINE + 0.1
    show_mean = tables.digits(digits)
    labels = [
        f"{name}  {show_mean(mean)}"
        for name, mean in zip(plots.plain(result.methods), result.means, strict=True)
    ]
    legend = (
        f"mean difference\nwins / ties / losses\n{test}, bold if < {alpha:g}\n"
        "(row against column)"
    )
    label_width = _widest(labels, plots.SMALL)
    is_turned = _widest(plots.plain(result.methods), plots.SMALL) > cell_width - 0.1
    top = max(label_width if is_turned else 0, 0.6)
    left = max(label_width, _widest(legend.split("\n"), 7.5)) + 0.2
    fig, ((axes,),) = plots.grid(
        1,
        cell=(0, cell_height * k + top + 0.6),
        alone=max(left + cell_width * k + 0.2, plots.PHONE),
    )
    drawn = _draw_cells(axes, result)
    is_significant = result.significant(alpha)
    for (i, j), text in texts.items():
        axes.text(
            j,
            i,
            text,
            ha="center",
            va="center",
            fontsize=font,
            fontweight="bold" if is_significant[i, j] else "normal",
            color="#000000" if math.isfinite(result.differences[i, j]) else plots.INK,
            linespacing=1.25,
        )
    heads = labels
    if not is_turned:
        heads = [label.replace("  ", "\n") for label in labels]
    axes.set_xticks(range(k), heads, rotation=90 if is_turned else 0)
    axes.set_yticks(range(k), labels)
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.annotate(
        legend,
        (0, 1),
        (-6, 6),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="right",
        va="bottom",
        **plots.ink(7.5),
    )
    _add_hover(axes, result, digits=digits, blocks=blocks)
    _add_bar(fig, axes, drawn, width=cell_width * k)
    # Widths of text differ by some pixels between resolutions.
    fig.get_layout_engine().set(w_pad=0.1)
    return plots.laid_out(fig)


def _cell_texts(
    result: comparison_matrix.ComparisonMatrix, *, digits: int, has_spaces: bool
) -> dict[tuple[int, int], str]:
    """Return the three lines of each cell off the diagonal, by (row, column)."""
    show = tables.digits(digits, plus=True)
    slash = " / " if has_spaces else "/"
    texts = {}
    for i, j in zip(*np.nonzero(~np.eye(len(result.methods), dtype=bool)), strict=True):
        counts = (result.wins[i, j], result.ties[i, j], result.losses[i, j])
        texts[int(i), int(j)] = "\n".join(
            [
                show(result.differences[i, j]),
                slash.join(f"{count:,}" for count in counts),
                tables.p_text(result.pvalues[i, j]),
            ]
        )
    return texts


def _widest(lines: Iterable[str], size: float, *, weight: str = "normal") -> float:
    """Return the width of the widest line in inches. size: font size in points."""
    font = font_manager.FontProperties(
        family=plots.STYLE["font.family"], weight=weight, size=size
    )
    measure = textpath.text_to_path.get_text_width_height_descent
    widths = [measure(line, font, ismath=False)[0] for line in lines]
    return max(widths, default=0) / 72


def _draw_cells(
    axes: plots.Axes, result: comparison_matrix.ComparisonMatrix
) -> cm.ScalarMappable:
    """Draw the coloured cells of all pairs on axes; return the cells, for a colour bar.

    Cells on the diagonal, and of pairs without a shared block, have no colour.
    """
    k = len(result.methods)
    advantage = np.where(np.eye(k, dtype=bool), math.nan, result.differences)
    advantage = advantage if result.larger_is_better else -advantage
    sizes = np.abs(advantage)[np.isfinite(advantage)]
    limit = _LIGHT * sizes.max(initial=0) or 1.0
    edges = np.arange(k + 1) - 0.5
    drawn = axes.pcolormesh(
        edges,
        edges,
        advantage,
        cmap=mpl.colormaps["RdBu"],
        vmin=-limit,
        vmax=limit,
        ec="white",
        lw=0.8,
    )
    axes.set_ylim(edges[-1], -0.5)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    return drawn


def _add_hover(
    axes: plots.Axes,
    result: comparison_matrix.ComparisonMatrix,
    *,
    digits: int,
    blocks: str,
) -> None:
    """Add a text on hover with names and numbers to each cell off the diagonal."""
    show = tables.digits(digits, plus=True)
    boxes, words = [], []
    for i, j in zip(*np.nonzero(~np.eye(len(result.methods), dtype=bool)), strict=True):
        boxes.append((j - 0.5, i - 0.5, 1, 1))
        words.append(
            f"{result.methods[i]} against {result.methods[j]}: mean difference "
            f"{show(result.differences[i, j])}; better on {result.wins[i, j]:,} {blocks}, equal "
            f"on {result.ties[i, j]:,}, worse on {result.losses[i, j]:,}; "
            f"p {tables.p_text(result.pvalues[i, j])}"
        )
    plots.hover_boxes(axes, boxes, words)


def _add_bar(
    fig: plots.Figure, axes: plots.Axes, drawn: cm.ScalarMappable, *, width: float
) -> None:
    """Add a colour bar below the cells, up to the largest difference.

    drawn: the result of `_draw_cells`. width: width of the cells in inches.
    """
    bar = fig.colorbar(
        drawn,
        ax=axes,
        location="bottom",
        shrink=min(1, 3 / width),
        anchor=(0, 0),
        aspect=24,
        pad=0.02,
    )
    limit = drawn.norm.vmax / _LIGHT
    bar.ax.set_xlim(-limit, limit)
    bar.locator = mpl.ticker.MaxNLocator(nbins=4, symmetric=True)
    bar.update_ticks()
    bar.set_label("mean difference in favour of the row", **plots.ink(7.5))
    bar.outline.set_visible(False)
    # As shapes, not as an image, which a page may not embed; edges close the gaps between them.
    bar.solids.set(rasterized=False, edgecolor="face")
    bar.ax.tick_params(length=0, labelsize=7.5, labelcolor=plots.INK)
