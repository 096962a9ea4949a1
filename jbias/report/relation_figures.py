"""Figures of correlations: heat maps, and small multiples of models."""

import math
from collections.abc import Iterator, Mapping, Sequence

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import figure as mpl_figure
from matplotlib import patches

from jbias.report import plots, relations, tables

UNIT = 26.0  # Area of a marker in square points.


def draw(study: relations.Study) -> Iterator[tuple[str, str, mpl_figure.Figure]]:
    """Gives names, captions and figures of a study of relations."""
    options = study.options
    sign = f"{options.method.capitalize()}'s {relations.SIGN[options.method]}"
    marked = f"Hatched: p > {options.alpha:g} {relations.WORDS[options.adjust]}"
    panels = {
        f"{name} (n = {family.n})": (family.statistic, study.significant(name))
        for name, family in study.families.items()
    }
    yield "correlations", f"{sign} of measures. {marked}.", heat(panels)
    for i, one in enumerate(study.among, start=1):
        panel = {f"n = {one.n}": (one.statistic, study.tested(one))}
        yield f"among_{i}", f"{sign} among measures {i}. {marked}.", heat(panel)
    told = "Models, one a marker, coloured by category."
    if options.size:
        told += f" Markers grow with {options.size}; models without it have one size."
    grid = [[(x, y) for x in options.x] for y in options.y]
    asked = dict(category=options.category, size=options.size)
    rho = study.families["all"].statistic
    yield "models", told, scatter(study.frame, grid, rho=rho, **asked)


def heat(
    panels: Mapping[str, tuple[pd.DataFrame, pd.DataFrame]],
) -> mpl_figure.Figure:
    """Draws correlations (rows by columns) side by side; hatches what is not significant.

    A panel is a table of correlations and one of booleans; NaN is grey, and so is the
    diagonal of a table of measures among themselves.
    """
    rows, columns = next(iter(panels.values()))[0].shape
    words = max(len(name) for table, _ in panels.values() for name in table.index)
    top = max(len(name) for table, _ in panels.values() for name in table)
    cell = 0.5
    left, above = 0.15 + 0.075 * words, 0.2 + 0.047 * top
    step = max(columns * cell, *(0.069 * len(title) for title in panels)) + 0.25
    width = left + len(panels) * step + max(0.25, 0.052 * top - 0.2)
    height = above + rows * cell + 0.65
    fig = plots.blank(width, height)
    for i, (title, (table, passed)) in enumerate(panels.items()):
        x = left + i * step
        place = (x / width, 0.65 / height, columns * cell / width, rows * cell / height)
        axes = fig.add_axes(place)
        _cells(axes, table, passed)
        axes.set_yticks(np.arange(rows), list(table.index) if i == 0 else [""] * rows)
        names = list(table)
        axes.set_xticks(np.arange(columns), names, rotation=40, ha="left")
        axes.tick_params(
            length=0, labelcolor=plots.INK, labelsize=8, top=False, labeltop=True
        )
        axes.tick_params(axis="x", labelbottom=False, pad=1)
        axes.spines[:].set_visible(False)
        axes.set_xlabel(title, fontsize=9, color=plots.INK, labelpad=4)
    _scale(fig, left / width, width, height)
    return plots.literal(fig)


def _cells(axes, table: pd.DataFrame, passed: pd.DataFrame) -> None:
    colours = mpl.colormaps["RdBu"]
    rows, columns = table.shape
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5), facecolor="none")
    axes.hlines(np.arange(rows + 1) - 0.5, -0.5, columns - 0.5, color="w", lw=0.8)
    axes.vlines(np.arange(columns + 1) - 0.5, -0.5, rows - 0.5, color="w", lw=0.8)
    for i, row in enumerate(table.index):
        for j, column in enumerate(table):
            value = table.iloc[i, j]
            known = np.isfinite(value) and row != column
            # A little short of the ends, where text would not be read.
            face = colours(0.5 + 0.42 * value) if known else "#c9ced4"
            dark = np.dot(mpl.colors.to_rgb(face), (0.299, 0.587, 0.114)) < 0.5
            ink = "#ffffff" if dark else "#000000"
            hatch = "" if not known or passed.loc[row, column] else "////"
            axes.add_patch(
                patches.Rectangle(
                    (j - 0.5, i - 0.5),
                    1,
                    1,
                    facecolor=face,
                    edgecolor="#8b939c",
                    hatch=hatch,
                    linewidth=0,
                    hatch_linewidth=0.5,
                )
            )
            told = tables.digits(2)(value) if known else "–"
            box = dict(facecolor=face, edgecolor="none", pad=0.8) if hatch else None
            axes.text(
                j, i, told, ha="center", va="center", fontsize=8, color=ink, bbox=box
            )


def _scale(fig, left: float, width: float, height: float) -> None:
    axes = fig.add_axes((left, 0.3 / height, 1.6 / width, 0.09 / height))
    values = 0.5 + 0.42 * np.linspace(-1, 1, 42)
    for i, value in enumerate(values):
        axes.add_patch(
            patches.Rectangle((i, 0), 1.02, 1, facecolor=mpl.colormaps["RdBu"](value))
        )
    axes.set(xlim=(0, 42), ylim=(0, 1), yticks=[])
    axes.set_xticks([0, 21, 42], ["−1", "0", "1"])
    axes.tick_params(length=0, labelsize=7, labelcolor=plots.INK, pad=2)
    axes.spines[:].set_visible(False)


def scatter(
    frame: pd.DataFrame,
    grid: Sequence[Sequence[tuple[str, str]]],
    *,
    category: str,
    size: str | None = None,
    rho: pd.DataFrame | None = None,
    panel: tuple[float, float] = (1.55, 1.45),
    order: Sequence[str] | None = None,
) -> mpl_figure.Figure:
    """Draws y over x in each place of a grid: one marker a model, a form a category.

    rho: a table x by y with the number over each place. panel: inches of a place. order:
    categories that a figure of more models has, so that each keeps its form. Axes are
    shared along columns and rows where they are of one measure.
    """
    kinds = frame[category].astype(str)
    names = list(order or dict.fromkeys(kinds))
    areas = areas_of(frame[size] if size else pd.Series(index=frame.index))
    rows, columns = len(grid), len(grid[0])
    width = max(5.0, panel[0] * columns + 0.7)
    aside = max(1, int(width / (0.45 + 0.07 * max(map(len, names)))))
    height = panel[1] * rows + 0.5 + 0.24 * math.ceil(len(names) / aside)
    fig = plots.blank(width, height)
    fig.set_layout_engine("constrained")
    with mpl.rc_context(dict(plots.STYLE)):
        shared = dict(
            sharex="col" if _alike(zip(*grid, strict=True), 0) else False,
            sharey="row" if _alike(grid, 1) else False,
        )
        cells = fig.subplots(rows, columns, squeeze=False, **shared)
        for i, row in enumerate(grid):
            for j, (x, y) in enumerate(row):
                _markers(cells[i, j], frame, x, y, kinds, names, areas)
                plots.dress(cells[i, j], None if rho is None else rho.loc[x, y])
                if i == rows - 1 or not shared["sharex"]:
                    cells[i, j].set_xlabel(x, color=plots.INK, fontsize=8)
                if j == 0 or not shared["sharey"]:
                    cells[i, j].set_ylabel(y, color=plots.INK, fontsize=8)
        plots.legend(fig, names, aside, present=set(kinds))
        plots.literal(fig).draw_without_rendering()
    fig.set_layout_engine("none")  # Laid out once, not again for every format.
    return fig


def _alike(rows, place: int) -> bool:
    """Says whether the measures at a place of each row's pairs are one."""
    return all(len({pair[place] for pair in row}) == 1 for row in rows)


def _markers(axes, frame, x: str, y: str, kinds, names, areas) -> None:
    for k, name in enumerate(names):
        mine = (kinds == name).to_numpy()
        axes.scatter(
            frame[x][mine],
            frame[y][mine],
            s=areas[mine],
            marker=plots.marker_of(k),
            color=plots.style_of(k)["color"],
            alpha=0.75,
            linewidths=0,
        )


def areas_of(sizes: pd.Series) -> np.ndarray:
    """Gives 0.2 to 1.8 units by size, and 1 without one.

    For attack strengths up to 8 that is (epsilon + 1) / 5 units, as Gavrikov and Keuper draw.
    """
    values = sizes.to_numpy(np.float64)
    most = np.nanmax(values) if np.isfinite(values).any() else 0
    shares = 0.2 + 1.6 * values / most if most > 0 else np.full(len(values), np.nan)
    return UNIT * np.where(np.isfinite(shares), np.clip(shares, 0.2, None), 1)
