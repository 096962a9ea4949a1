"""Figures of measured networks: accuracies, cues, calibration, confusion, probes."""

import itertools
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib import patches

from jbias.evals import calibration, cue_conflict, decisions
from jbias.report import plots

Figure = plots.Figure
PEOPLE = "humans"
_RED = plots.COLOURS[7]  # People's.
_TOLD = 20  # Classes up to which a cell of a matrix says its number.
_WIDE = 9.5  # Inches that panels side by side may take.
_DASHED, _DOTTED = (0, (4, 2)), (0, (1, 1.5))
_TITLE = dict(loc="left", pad=5) | plots.ink(9)


Biases = Mapping[int, cue_conflict.ShapeBias]  # By class.


def cue_decisions(by_class: Mapping[str, Biases], classes: Sequence[str]) -> Figure:
    """Draw the share of texture decisions among decisions for either cue, by class.

    by_class: results of cue_conflict.by_class by decision maker; "humans" are drawn first, as
      red circles. Vertical lines are shares over the images of all classes, not means of the
      classes' shares. Classes without a decision for either cue are left out. As figure 4 of Geirhos et al. 2019.
    """
    free = itertools.cycle([one for one in plots.COLOURS if one != _RED])
    others = [name for name in by_class if name != PEOPLE]
    looks = {PEOPLE: (_RED, "o")} if PEOPLE in by_class else {}
    looks |= dict(zip(others, zip(free, itertools.cycle(plots.MARKERS[1:]))))
    fig, axes = plots.rows(classes, [*looks], room=1.0)
    points: dict = {}
    for name, (colour, marker) in reversed(looks.items()):
        each = by_class[name]
        texture = sum(one.n_texture for one in each.values())
        n = texture + sum(one.n_shape for one in each.values())
        if n:
            axes.axvline(texture / n, color=colour, linewidth=1.3, zorder=1)
        known = {c: one.value for c, one in each.items() if not math.isnan(one.value)}
        shares = [1 - value for value in known.values()]
        look = dict(s=42, edgecolors="white", linewidths=0.5, zorder=3, clip_on=False)
        look |= dict(marker=marker, color=colour)
        points[name] = axes.scatter(shares, [*known], **look)
    axes.set(xlim=(0, 1))
    top = axes.secondary_xaxis("top", functions=(lambda x: 1 - x, lambda x: 1 - x))
    top.tick_params(colors=plots.FAINT, labelcolor=plots.INK, labelsize=plots.SMALL)
    top.spines["top"].set_color(plots.FAINT)
    top.set_xlabel("share of shape decisions", **plots.ink())
    axes.set_xlabel("share of texture decisions", **plots.ink())
    plots.legend_above(fig, {name: points[name] for name in looks})
    return plots.laid_out(fig)


def reliability(found: Mapping[str, calibration.Reliability]) -> Figure:
    """Draw accuracy against confidence by bin, and the number of images per bin below.

    found: bins by network, one panel per network. The gap to the diagonal is filled; below the
    diagonal, confidence exceeds accuracy. Titles have the expected calibration error.
    """
    across = min(3, len(found))
    rows = math.ceil(len(found) / across)
    ratios = dict(height_ratios=(3, 1) * rows)
    size = dict(across=across, cell=(3.0, 2.1), gridspec_kw=ratios)
    fig, cells = plots.grid(2 * rows * across, **size)
    # A network has a panel and the one below it.
    pairs = cells.reshape(rows, 2, across).swapaxes(1, 2).reshape(-1, 2)
    for (axes, below), (name, one) in zip(pairs, found.items()):
        there = one.count > 0
        low, width = one.edges[:-1], np.diff(one.edges)
        middle, right = one.confidence[there], one.accuracy[there]
        axes.plot([0, 1], [0, 1], color=plots.INK, linewidth=0.8, linestyle=_DASHED)
        gap = dict(bottom=middle, align="edge", color=plots.COLOURS[1], alpha=0.35)
        axes.bar(low[there], right - middle, width[there], **gap)
        axes.plot(middle, right, "o-", color=plots.COLOURS[0], lw=1.4, ms=4.5)
        axes.set(xlim=(0, 1), ylim=(0, 1), xticklabels=[])
        axes.set_title(plots.plain([f"{name} (ECE {one.error:.3f})"])[0], **_TITLE)
        look = dict(align="edge", color=plots.COLOURS[0], ec="white", lw=0.5)
        below.bar(low, one.count / one.count.sum(), width, **look)
        below.set(xlim=(0, 1))
        below.set_xlabel("confidence", **plots.ink())
    for axes, below in pairs[::across]:
        axes.set_ylabel("accuracy", **plots.ink())
        below.set_ylabel("share of images", **plots.ink())
    for axes in pairs[len(found) :].flat:
        axes.set_axis_off()
    return plots.laid_out(fig)


Counts = Mapping[str, tuple[int, int]]  # Right and shown, by set or class.


def accuracies(
    counts: Mapping[str, Counts], *, best_first: bool = False, most: int = 40
) -> Figure:
    """Draw accuracy by set or by class, with 95 % Wilson intervals.

    counts: numbers of right and of all images, by network and set or class. best_first: sort
    rows by the mean over networks; dashed lines are accuracies over all images. A network
    without counts is not drawn but keeps its colour for other figures. Of more than `most`
    rows, the middle ones are left out, and the gap has their number.
    """
    order = [*dict.fromkeys(itertools.chain(*counts.values()))]

    def mean_share(name: str) -> float:
        pairs = [each[name] for each in counts.values() if name in each]
        return np.mean([right / n for right, n in pairs])

    if best_first:
        order.sort(key=mean_share, reverse=True)
    if len(order) > most:
        gap = f"{len(order) - most} classes between"
        order[most // 2 : -(most // 2)] = [gap]
    several = len(counts) > 1
    looks = plots.marks(counts, [name for name in counts if counts[name]])
    label = "accuracy in %" + "; dashed: of all images" * best_first
    fig, axes = _rows(order, looks, label, told=several)
    share = lambda right, n: (right / n, *decisions.wilson_interval(right, n))
    shares = {x: {k: share(*of) for k, of in counts[x].items()} for x in looks}
    legend = plots.in_lanes(axes, order, shares, looks)
    for name in looks if best_first else ():
        right, n = (sum(column) for column in zip(*counts[name].values(), strict=True))
        dashed = dict(color=looks[name]["color"] if several else plots.INK)
        axes.axvline(100 * right / n, linewidth=0.8, linestyle=_DASHED, **dashed)
    axes.set(xlim=(0, 100))
    if several:
        plots.legend_above(fig, legend)
    return plots.laid_out(fig)


def _rows(order: Sequence[str], looks: Mapping, label: str, *, told: bool = True):
    """Return a figure and axes with a row per name and a lane per network.

    told: whether to reserve room for the legend.
    """
    row = max(plots.ROW, 0.1 * len(looks) + 0.1)
    return plots.rows(order, [*looks] if told else [], x=label, row=row)


Ends = tuple[float, float, float]  # A share and the ends of its interval.


def relative_accuracies(found: Mapping[str, Mapping[str, Ends]]) -> Figure:
    """Draw the share of accuracy that a network retains, one row per condition.

    found: share and ends of its interval, by network and condition. "humans" are red circles.
      Networks without shares are not drawn, as in `accuracies`.
    """
    order = [*dict.fromkeys(itertools.chain(*found.values()))]
    looks = plots.marks(found, [name for name in found if found[name]])
    if PEOPLE in looks:
        looks[PEOPLE] = {"marker": "o", "color": _RED}
    label = "relative accuracy, % of that on images as they are"
    fig, axes = _rows(order, looks, label)
    axes.axvline(100, color=plots.INK, linewidth=0.8, linestyle=_DASHED)
    legend = plots.in_lanes(axes, order, {name: found[name] for name in looks}, looks)
    axes.set_xlim(left=min(0, axes.get_xlim()[0]))
    plots.legend_above(fig, legend)
    return plots.laid_out(fig)


def confusion(matrix: Float[np.ndarray, "rows k"], classes: Sequence[str]) -> Figure:
    """Draw responses (rows) in % of the images of each class (columns).

    A row beyond the classes is "no response". Columns of classes without images are hatched.
    """
    rows, k = matrix.shape
    names = [*classes, *["no response"] * (rows - k)]
    cell = 0.34 if k <= _TOLD else max(0.1, 6.5 / k)
    longest = plots.LETTER * max(map(len, names)) + 0.5
    size = dict(cell=(0, cell * rows + longest), alone=cell * k + longest + 1.0)
    fig, cells = plots.grid(1, **size)
    axes, every = cells[0, 0], 1 if cell > 0.14 else math.ceil(0.14 / cell)
    frame = pd.DataFrame(matrix, names, classes)
    drawn = plots.matrix(axes, frame, every=every, least=0.5 if k <= _TOLD else None)
    for j in np.flatnonzero(np.isnan(matrix).any(axis=0)):
        hatch = dict(fill=False, hatch="////", ec=plots.FAINT, lw=0)
        axes.add_patch(patches.Rectangle((j - 0.5, -0.5), 1, rows, **hatch))
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.tick_params(axis="x", rotation=90)
    bar = fig.colorbar(drawn, ax=axes, aspect=30)
    bar.set_label("% of the class", **plots.ink())
    bar.ax.tick_params(colors=plots.FAINT, labelcolor=plots.INK, labelsize=plots.SMALL)
    plots.label_edges(cells, 1, "class of the image", "response")
    return plots.laid_out(fig)


class Band(NamedTuple):
    """A critical band in units of the columns of a heat map."""

    low: float
    centre: float
    high: float


def heat(
    panels: Mapping[str, pd.DataFrame],
    *,
    across: str,
    down: str,
    cell: tuple[float, float],
    bands: Mapping[str, Band | None] = MappingProxyType({}),
) -> Figure:
    """Draw heat maps of shares in %, one panel per network.

    panels: tables with the same rows; NaN: not measured. across, down: labels of columns and
    rows. bands: bars above the cells of a panel, with a dot at the centre.
    """
    rows, columns = (max(frame.shape[i] for frame in panels.values()) for i in (0, 1))
    names = [str(name) for frame in panels.values() for name in frame.index]
    left = plots.LETTER * max(map(len, names)) + 0.5
    wide = max(cell[0] * columns, plots.LETTER * max(map(len, panels))) + 0.25
    aside = min(len(panels), max(1, int((_WIDE - left) / wide)))
    size = dict(cell=(wide + left / aside, cell[1] * rows + 0.8), alone=left + wide)
    fig, cells = plots.grid(len(panels), across=aside, sharey=True, **size)
    for axes, (title, frame) in zip(cells.flat, panels.items()):
        plots.matrix(axes, 100 * frame)
        axes.set_title(plots.plain([title])[0], **_TITLE)
        if bands:  # There is room above the cells.
            axes.set(xlim=(-0.5, frame.shape[1] - 0.5), ylim=(rows - 0.5, -1.4))
        if band := bands.get(title):
            ends = [[band.centre - band.low], [band.high - band.centre]]
            look = dict(elinewidth=2.2, capsize=4, capthick=2.2, markersize=5)
            look |= dict(fmt="o", color=plots.COLOURS[1])
            axes.errorbar(band.centre, -0.95, xerr=ends, **look)
    plots.label_edges(cells, len(panels), across, down)
    return plots.laid_out(fig)


_FACTORS = ("shape", "texture")


def decodability(numbers: Sequence[decisions.Number], *, title: str = "") -> Figure:
    """Draw decoding accuracy by site, from input to output.

    numbers: results of linear_decoding.measure for one network on one set. Shuffled labels are
    dashed; chance is a dotted line per distinct level. Raises ValueError without sites.
    """
    by = {(one.metric, one.condition): one.value for one in numbers}
    sites = [c for m, c in by if m == "shape_decoding"]
    if not sites:
        told = (
            "must hold shape_decoding at a site, as linear_decoding.measure gives them"
        )
        raise ValueError(f"decodability: numbers {told}, got {len(numbers)} without")
    parts = [
        (f"{factor}{words}", [by[f"{factor}_decoding{end}", site] for site in sites])
        for words, end in (("", ""), (", labels shuffled", "_shuffled"))
        for factor in _FACTORS
    ]
    frame = pd.DataFrame(dict(parts)).rename_axis("x").mul(100).reset_index()
    frame = frame.melt("x", var_name="line").assign(panel=title)
    looks = {name: plots.marked(i % 2) for i, (name, _) in enumerate(parts)}
    for name, _ in parts[2:]:
        looks[name] |= {"ls": _DASHED, "marker": ""}
    chance = dict(color=plots.INK, linewidth=0.9, linestyle=_DOTTED)
    tall, wide = 2.75 + 0.06 * max(map(len, sites)), max(5.0, 0.9 + 0.2 * len(sites))

    def finish(axes, rows: pd.DataFrame) -> None:
        for share in sorted({by[f"{x}_decoding_chance", ""] for x in _FACTORS}):
            axes.axhline(100 * share, **chance)
        axes.set_xticks(range(len(sites)), plots.plain(sites), rotation=90)
        axes.set(ylim=(0, 102), xlim=(-0.5, len(sites) - 0.5))

    looks, labels = looks | {"chance": chance}, ("", "decoded, % of images")
    return plots.curves(frame, looks, labels, finish=finish, cell=(0, tall), alone=wide)
