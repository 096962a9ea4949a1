"""Functions that draw heat maps, intervals and scatter plots of correlations between measures."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import patches

from jbias.report import plots, tables
from jbias.report.pages.correlations import model_correlations

UNIT = 26.0  # Area of a marker in square points.


def plain_and_partial(study: model_correlations.Correlations) -> plots.Figure:
    """Return a figure of plain and partial correlations with intervals, a row per pair.

    There is a panel per subset of models. study: a study with partial correlations (`given`).
    """
    given = f"given {tables.join(study.options.given)}"
    kinds = {"plain": study, given: study.given}
    pairs = [*itertools.product(study.options.x, study.options.y)]
    names = [f"{x}, {y}" for x, y in pairs]
    wide = 2.2 + plots.LETTER * max(map(len, names)) / len(study.families)
    fig, (all_axes,) = plots.grid(
        len(study.families),
        tuple(kinds),
        across=3,
        cell=(wide, 0.4 * len(names) + 0.7),
        alone=wide + 2,
        sharey=True,
    )
    looks = plots.marks(kinds)
    for axes, choice in zip(all_axes, study.families, strict=True):
        axes.axvline(0, color=plots.INK, lw=0.8)
        estimates = {}
        for kind, correlations in kinds.items():
            rows = correlations.pairs[correlations.pairs["models"] == choice].set_index(
                ["x", "y"]
            )
            cells = rows.reindex(columns=["statistic", "low", "high"]).loc[pairs]
            estimates[kind] = dict(zip(names, cells.to_numpy(), strict=True))
        legend = plots.in_lanes(axes, names, estimates, looks, unit=1)
        axes.set(xlim=(-1.05, 1.05), ylim=(len(names) - 0.5, -0.5))
        axes.set_xlabel(f"ρ, {choice} ({study.families[choice].n})", **plots.ink())
    all_axes[0].set_yticks(range(len(names)), plots.plain(names))
    plots.legend_above(fig, legend)
    return plots.laid_out(fig)


def all_pairs(study: model_correlations.Correlations) -> plots.Figure:
    """Return a figure of scatter plots of every y against every x, one panel per pair."""
    options = study.options
    grid = [[(x, y) for x in options.x] for y in options.y]
    rho = study.families["all"].statistic
    return scatter(
        study.frame, grid, rho=rho, category=options.category, size=options.size
    )


def heat(
    study: model_correlations.Correlations,
    families: Mapping[str, model_correlations.Matrix],
) -> plots.Figure:
    """Return a figure of heat maps of correlations; cells that are not significant are hatched.

    families: matrices by title of the panel. NaN and the diagonal of measures among themselves are
    grey.
    """
    sizes = {name: f"n = {family.n}" for name, family in families.items()}
    titles = [f"{name} ({n})" if name else n for name, n in sizes.items()]
    first = next(iter(families.values())).statistic
    count = len(families)
    rows, columns = first.shape
    cell = 0.5  # Inches.
    row_length = max(map(len, first.index))
    column_length = max(map(len, first))
    label_width = (
        0.052 * column_length - 0.2
    )  # Of the slanted label of the last column.
    step = max(
        columns * cell + max(label_width, 0.2),
        *(0.071 * len(text) for text in titles),
    )
    wide = step + 0.075 * row_length / count
    tall = 0.75 + 0.05 * column_length + rows * cell
    fig, (all_axes,) = plots.grid(
        count, across=count, cell=(wide, tall), alone=wide + 0.2, sharey=True
    )
    for axes, title, family in zip(all_axes, titles, families.values(), strict=True):
        mesh = _cells(axes, family.statistic, study.tested(family))
        axes.set_xlabel(title, **plots.ink(9))
    bar = fig.colorbar(
        mesh,
        cax=None,
        ax=all_axes,
        shrink=min(1, 1.6 / (count * step)),
        location="bottom",
        anchor=(0, 0),
        aspect=18,
        ticks=[-1, 0, 1],
    )
    bar.ax.set_xlim(-1, 1)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=plots.SMALL, labelcolor=plots.INK)
    return plots.laid_out(fig)


def _cells(axes: plots.Axes, table: pd.DataFrame, passed: pd.DataFrame) -> Any:
    """Draw a table of correlations as coloured cells; return the mesh, for a colour bar.

    table: correlations, NaN where undefined. passed: mask of the significant cells; other cells
    with a number are hatched. A cell whose row and column have one name is left empty.
    """
    values = table.mask(np.equal.outer(table.index, table.columns)).astype(float)
    # Limits beyond ±1 avoid the darkest colours, on which text is illegible.
    drawn = plots.matrix(
        axes,
        values,
        limits=(-1.19, 1.19),
        form="{:.2f}",
        colours=mpl.colormaps["RdBu"].with_extremes(bad="#c9ced4"),
    )
    for i, j in np.argwhere((values.notna() & ~passed).to_numpy()):
        hatched = patches.Rectangle(
            (j - 0.48, i - 0.48),
            0.96,
            0.96,
            fill=False,
            hatch="////",
            lw=0,
            hatch_linewidth=0.5,
            ec="#8b939c",
        )
        axes.add_patch(hatched)
        face = drawn.to_rgba(values.iloc[i, j])
        label = axes.texts[i * table.shape[1] + j]
        label.set_bbox(dict(facecolor=face, edgecolor="none", pad=0.8))
    axes.set_xticks(
        np.arange(table.shape[1]),
        table.columns,
        rotation=40,
        ha="left",
        rotation_mode="anchor",
    )
    axes.tick_params(axis="x", labelbottom=False, labeltop=True)
    return drawn


def scatter(
    frame: pd.DataFrame,
    grid: Sequence[Sequence[tuple[str, str]]],
    *,
    category: str,
    size: str | None = None,
    rho: pd.DataFrame | None = None,
    panel: tuple[float, float] = (1.75, 1.45),
    order: Sequence[str] | None = None,
) -> plots.Figure:
    """Return a figure of scatter plots: one marker per model, one marker style per category.

    frame: one row per model. grid: rows of pairs (x, y) of columns of `frame`. category: column
    with the category. size: column with the size of the marker; None for equal sizes. rho: numbers
    above the panels, x in rows and y in columns. panel: width and height of a panel in inches.
    order: all categories, so that figures of different models use the same marker styles. Axes are
    shared along columns and rows of panels with the same measure.
    """
    kinds = frame[category].astype(str)
    looks = plots.marks(order or kinds, {*kinds})
    areas = areas_of(frame[size] if size else pd.Series(index=frame.index))
    shares_x = all(
        len({x for x, _ in column}) == 1 for column in zip(*grid, strict=True)
    )
    shares_y = all(len({y for _, y in row}) == 1 for row in grid)
    rows = len(grid)
    columns = len(grid[0])
    cell = max(panel[0], 4.8 / columns), panel[1]
    fig, cells = plots.grid(
        rows * columns,
        tuple(looks),
        across=columns,
        cell=cell,
        sharex="col" if shares_x else False,
        sharey="row" if shares_y else False,
    )
    for (i, j), axes in np.ndenumerate(cells):
        x, y = grid[i][j]
        for name, look in looks.items():
            in_category = (kinds == name).to_numpy()
            axes.scatter(
                frame[x][in_category],
                frame[y][in_category],
                areas[in_category],
                **(look | {"alpha": 0.75, "lw": 0}),
            )
        plots.dress(axes, None if rho is None else rho.loc[x, y])
        if i == rows - 1 or not shares_x:
            axes.set_xlabel(x, **plots.ink())
        if j == 0 or not shares_y:
            axes.set_ylabel(y, **plots.ink())
    plots.legend_above(fig, plots.handles(looks))
    return plots.laid_out(fig)


def areas_of(sizes: pd.Series) -> np.ndarray:
    """Return the areas of markers in square points: 0.2 to 1.8 units by size, 1 unit for NaN.

    One unit is `UNIT`, 26 square points. sizes: size of each model, such as the strength of
    adversarial training; if the largest size is 0, all areas are 1 unit. For attack strengths up to
    8, areas are (epsilon + 1) / 5 units, as in Gavrikov and Keuper.
    """
    values = sizes.to_numpy(np.float64)
    largest = np.nanmax(values, initial=0)
    shares = 0.2 + 1.6 * values / (largest or math.nan)
    return UNIT * np.where(np.isfinite(shares), np.clip(shares, 0.2, None), 1)
