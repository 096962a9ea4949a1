"""Functions that draw figures of measured networks: accuracies, cues, calibration, confusion."""

import itertools
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib import patches

from jbias.measures import calibration, cue_conflict, decisions
from jbias.report import plots

Figure = plots.Figure
PEOPLE = "humans"
_PEOPLE_COLOUR = plots.COLOURS[7]  # Red.
_MAX_LABELLED_CLASSES = 20  # Cells of larger confusion matrices show no numbers.
_MAX_WIDTH = 9.5  # Width in inches of panels side by side.
_DASHED, _DOTTED = (0, (4, 2)), (0, (1, 1.5))


def _set_title(axes: plots.Axes, title: str) -> None:
    """Set the title of a panel. axes: matplotlib axes of the panel."""
    axes.set_title(plots.plain([title])[0], loc="left", pad=5, **plots.ink(9))


Biases = Mapping[int, cue_conflict.ShapeBias]  # By class.


def cue_decisions(by_class: Mapping[str, Biases], classes: Sequence[str]) -> Figure:
    """Return a figure of texture decisions as a share of shape and texture decisions, by class.

    by_class: results of cue_conflict.by_class, by network; "humans" are red circles, first in the
    legend and on top. classes: names of the classes, by index.

    Vertical lines are shares over the images of all classes, not means of the shares of classes.
    Classes without a shape or texture decision are left out. The layout is as in figure 4 of
    Geirhos et al. 2019.
    """
    colours = itertools.cycle([x for x in plots.COLOURS if x != _PEOPLE_COLOUR])
    markers = itertools.cycle(plots.MARKERS[1:])
    networks = [name for name in by_class if name != PEOPLE]
    looks = {PEOPLE: (_PEOPLE_COLOUR, "o")} if PEOPLE in by_class else {}
    looks |= dict(zip(networks, zip(colours, markers)))
    fig, axes = plots.rows(classes, [*looks], room=1.0)
    points: dict = {}
    for name, (colour, marker) in reversed(looks.items()):
        biases = by_class[name]
        texture = sum(bias.n_texture for bias in biases.values())
        n = texture + sum(bias.n_shape for bias in biases.values())
        if n:
            axes.axvline(texture / n, color=colour, linewidth=1.3, zorder=1)
        defined = {
            k: bias.value for k, bias in biases.items() if not math.isnan(bias.value)
        }
        points[name] = axes.scatter(
            [1 - value for value in defined.values()],
            [*defined],
            s=42,
            edgecolors="white",
            linewidths=0.5,
            zorder=3,
            clip_on=False,
            marker=marker,
            color=colour,
        )
    axes.set(xlim=(0, 1))
    top = axes.secondary_xaxis("top", functions=(lambda x: 1 - x, lambda x: 1 - x))
    top.tick_params(colors=plots.FAINT, labelcolor=plots.INK, labelsize=plots.SMALL)
    top.spines["top"].set_color(plots.FAINT)
    top.set_xlabel("share of shape decisions", **plots.ink())
    axes.set_xlabel("share of texture decisions", **plots.ink())
    plots.legend_above(fig, {name: points[name] for name in looks})
    return plots.laid_out(fig)


def reliability(reliabilities: Mapping[str, calibration.Reliability]) -> Figure:
    """Return a figure of accuracy against confidence, with the number of images per bin.

    reliabilities: bins by network, one panel per network. The gap to the diagonal is filled;
    below the diagonal, confidence exceeds accuracy. Titles have the expected calibration error.
    """
    across = min(3, len(reliabilities))
    rows = math.ceil(len(reliabilities) / across)
    fig, cells = plots.grid(
        2 * rows * across,
        across=across,
        cell=(3.0, 2.1),
        gridspec_kw={"height_ratios": (3, 1) * rows},
    )
    # Each network has two panels, one below the other.
    pairs = cells.reshape(rows, 2, across).swapaxes(1, 2).reshape(-1, 2)
    for (axes, below), (name, bins) in zip(pairs, reliabilities.items()):
        has_images = bins.count > 0
        low = bins.edges[:-1]
        width = np.diff(bins.edges)
        confidence = bins.confidence[has_images]
        accuracy = bins.accuracy[has_images]
        axes.plot([0, 1], [0, 1], color=plots.INK, linewidth=0.8, linestyle=_DASHED)
        axes.bar(
            low[has_images],
            accuracy - confidence,
            width[has_images],
            bottom=confidence,
            align="edge",
            color=plots.COLOURS[1],
            alpha=0.35,
        )
        axes.plot(confidence, accuracy, "o-", color=plots.COLOURS[0], lw=1.4, ms=4.5)
        axes.set(xlim=(0, 1), ylim=(0, 1), xticklabels=[])
        _set_title(axes, f"{name} (ECE {bins.error:.3f})")
        below.bar(
            low,
            bins.count / bins.count.sum(),
            width,
            align="edge",
            color=plots.COLOURS[0],
            ec="white",
            lw=0.5,
        )
        below.set(xlim=(0, 1))
        below.set_xlabel("confidence", **plots.ink())
    for axes, below in pairs[::across]:
        axes.set_ylabel("accuracy", **plots.ink())
        below.set_ylabel("share of images", **plots.ink())
    for axes in pairs[len(reliabilities) :].flat:
        axes.set_axis_off()
    return plots.laid_out(fig)


Counts = Mapping[str, tuple[int, int]]  # Correct and all images, by set or class.


def accuracies(
    counts: Mapping[str, Counts], *, best_first: bool = False, max_rows: int = 40
) -> Figure:
    """Return a figure of accuracy by data set or by class, with 95 % Wilson intervals.

    counts: (correct, all) images, by network, then by set or class. best_first: True to sort rows
    by the mean over networks, the highest on top; dashed lines are then accuracies over all
    images. A network without counts is not drawn but keeps its colour for other figures. If there
    are more than `max_rows` rows, the middle rows are replaced by a row with their number.
    """
    order = [*dict.fromkeys(itertools.chain(*counts.values()))]

    def mean_accuracy(name: str) -> float:
        pairs = [by_row[name] for by_row in counts.values() if name in by_row]
        return np.mean([correct / n for correct, n in pairs])

    if best_first:
        order.sort(key=mean_accuracy, reverse=True)
    if len(order) > max_rows:
        gap = f"{len(order) - max_rows} classes between"
        order[max_rows // 2 : -(max_rows // 2)] = [gap]
    has_legend = len(counts) > 1
    looks = plots.marks(counts, [name for name in counts if counts[name]])
    label = "accuracy in %" + ("; dashed: of all images" if best_first else "")
    fig, axes = _rows(order, looks, label, has_legend=has_legend)
    shares = {
        name: {row: _share(correct, n) for row, (correct, n) in counts[name].items()}
        for name in looks
    }
    legend = plots.in_lanes(axes, order, shares, looks)
    for name in looks if best_first else ():
        correct = sum(correct for correct, _ in counts[name].values())
        n = sum(n for _, n in counts[name].values())
        axes.axvline(
            100 * correct / n,
            linewidth=0.8,
            linestyle=_DASHED,
            color=looks[name]["color"] if has_legend else plots.INK,
        )
    axes.set(xlim=(0, 100))
    if has_legend:
        plots.legend_above(fig, legend)
    return plots.laid_out(fig)


def _rows(
    order: Sequence[str], looks: Mapping, label: str, *, has_legend: bool = True
) -> tuple[Figure, plots.Axes]:
    """Return (figure, axes) with a row per name of `order` and a lane per network.

    looks: style by network. label: label of the x axis. has_legend: True to reserve room for the
    legend.
    """
    height = max(plots.ROW, 0.1 * len(looks) + 0.1)
    return plots.rows(order, [*looks] if has_legend else [], x=label, row=height)


Share = tuple[float, float, float]  # A share and the ends of its interval.


def _share(count: int, n: int) -> Share:
    """Return the share count / n and the ends of its 95 % Wilson interval."""
    low, high = decisions.wilson_interval(count, n)
    return count / n, low, high


def relative_accuracies(shares: Mapping[str, Mapping[str, Share]]) -> Figure:
    """Return a figure of the share of accuracy that networks retain, a row per condition.

    shares: (share, low, high) by network and condition, as fractions; the figure has per cent.
    "humans" are red circles. Networks without shares are not drawn, as in `accuracies`.
    """
    order = [*dict.fromkeys(itertools.chain(*shares.values()))]
    looks = plots.marks(shares, [name for name in shares if shares[name]])
    if PEOPLE in looks:
        looks[PEOPLE] = {"marker": "o", "color": _PEOPLE_COLOUR}
    fig, axes = _rows(order, looks, "relative accuracy, % of that on unchanged images")
    axes.axvline(100, color=plots.INK, linewidth=0.8, linestyle=_DASHED)
    legend = plots.in_lanes(axes, order, {name: shares[name] for name in looks}, looks)
    axes.set_xlim(left=min(0, axes.get_xlim()[0]))
    plots.legend_above(fig, legend)
    return plots.laid_out(fig)


def confusion(matrix: Float[np.ndarray, "rows k"], classes: Sequence[str]) -> Figure:
    """Return a figure of responses (rows) in % of the images of each class (columns).

    matrix: the percentages. classes: names of the classes. A row beyond the classes is "no
    response". Columns of classes without images (NaN) are hatched. Up to 20 classes, cells of at
    least 0.5 % have their number.
    """
    rows, k = matrix.shape
    names = [*classes, *["no response"] * (rows - k)]
    has_numbers = k <= _MAX_LABELLED_CLASSES
    cell = 0.34 if has_numbers else max(0.1, 6.5 / k)
    label_width = plots.LETTER * max(map(len, names)) + 0.5
    fig, cells = plots.grid(
        1,
        cell=(0, cell * rows + label_width),
        alone=cell * k + label_width + 1.0,
    )
    axes = cells[0, 0]
    drawn = plots.matrix(
        axes,
        pd.DataFrame(matrix, names, classes),
        every=1 if cell > 0.14 else math.ceil(0.14 / cell),
        least=0.5 if has_numbers else None,
    )
    for j in np.flatnonzero(np.isnan(matrix).any(axis=0)):
        hatched = patches.Rectangle(
            (j - 0.5, -0.5), 1, rows, fill=False, hatch="////", ec=plots.FAINT, lw=0
        )
        axes.add_patch(hatched)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.tick_params(axis="x", rotation=90)
    bar = fig.colorbar(drawn, ax=axes, aspect=30)
    bar.set_label("% of the class", **plots.ink())
    bar.ax.tick_params(colors=plots.FAINT, labelcolor=plots.INK, labelsize=plots.SMALL)
    plots.label_edges(cells, 1, "class of the image", "response")
    return plots.laid_out(fig)


class Band(NamedTuple):
    """A critical band on the x axis of a heat map, whose first column is at 0, the next at 1."""

    low: float
    centre: float
    high: float


def heat(
    panels: Mapping[str, pd.DataFrame],
    *,
    x_label: str,
    y_label: str,
    cell: tuple[float, float],
    bands: Mapping[str, Band | None] = MappingProxyType({}),
) -> Figure:
    """Return a figure of heat maps of shares in %, one panel per network.

    panels: table of shares from 0 to 1 by network, all with the same rows; NaN: not measured.
    x_label, y_label: labels of the axes. cell: width and height of a cell in inches. bands: bars
    above the cells of a panel, with a dot at the centre, by network; None: no bar.
    """
    rows = max(frame.shape[0] for frame in panels.values())
    columns = max(frame.shape[1] for frame in panels.values())
    names = [str(name) for frame in panels.values() for name in frame.index]
    label_width = plots.LETTER * max(map(len, names)) + 0.5
    wide = max(cell[0] * columns, plots.LETTER * max(map(len, panels))) + 0.25
    across = min(len(panels), max(1, int((_MAX_WIDTH - label_width) / wide)))
    fig, cells = plots.grid(
        len(panels),
        across=across,
        sharey=True,
        cell=(wide + label_width / across, cell[1] * rows + 0.8),
        alone=label_width + wide,
    )
    for axes, (title, frame) in zip(cells.flat, panels.items()):
        plots.matrix(axes, 100 * frame)
        _set_title(axes, title)
        if bands:  # Leave room above the cells.
            axes.set(xlim=(-0.5, frame.shape[1] - 0.5), ylim=(rows - 0.5, -1.4))
        band = bands.get(title)
        if band:
            axes.errorbar(
                band.centre,
                -0.95,
                xerr=[[band.centre - band.low], [band.high - band.centre]],
                fmt="o",
                color=plots.COLOURS[1],
                elinewidth=2.2,
                capsize=4,
                capthick=2.2,
                markersize=5,
            )
    plots.label_edges(cells, len(panels), x_label, y_label)
    return plots.laid_out(fig)


_FACTORS = ("shape", "texture")


def decodability(numbers: Sequence[decisions.Number], *, title: str = "") -> Figure:
    """Return a figure of decoding accuracy by site, from input to output.

    numbers: results of linear_decoding.measure for one network on one set; sites are the conditions
    of shape_decoding, in the order of `numbers`. title: title of the figure. Lines are for shape
    and texture, dashed with shuffled labels; chance is a dotted line per distinct level. Raises
    ValueError without sites.
    """
    values = {(number.metric, number.condition): number.value for number in numbers}
    sites = [site for metric, site in values if metric == "shape_decoding"]
    if not sites:
        raise ValueError(
            "decodability: numbers must include shape_decoding at a site, as returned by "
            f"linear_decoding.measure, got {len(numbers)} without"
        )
    lines = {}
    looks = {}
    for i, factor in enumerate(_FACTORS):
        lines[factor] = [values[f"{factor}_decoding", site] for site in sites]
        looks[factor] = plots.marked(i)
    for i, factor in enumerate(_FACTORS):
        name = f"{factor}, labels shuffled"
        lines[name] = [values[f"{factor}_decoding_shuffled", site] for site in sites]
        looks[name] = plots.marked(i) | {"ls": _DASHED, "marker": ""}
    chance_look = {"color": plots.INK, "linewidth": 0.9, "linestyle": _DOTTED}
    looks["chance"] = chance_look
    frame = pd.DataFrame(lines).rename_axis("x").mul(100).reset_index()
    frame = frame.melt("x", var_name="line").assign(panel=title)

    def finish(axes: plots.Axes, rows: pd.DataFrame) -> None:
        shares = {values[f"{factor}_decoding_chance", ""] for factor in _FACTORS}
        for share in sorted(shares):
            axes.axhline(100 * share, **chance_look)
        axes.set_xticks(range(len(sites)), plots.plain(sites), rotation=90)
        axes.set(ylim=(0, 102), xlim=(-0.5, len(sites) - 0.5))

    return plots.curves(
        frame,
        looks,
        ("", "decoded, % of images"),
        finish=finish,
        cell=(0, 2.75 + 0.06 * max(map(len, sites))),
        alone=max(5.0, 0.9 + 0.2 * len(sites)),
    )
