"""Figures of one measure: cues and classes, sureness, what is taken for what."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib import colors, lines, patches
from matplotlib import figure as mpl_figure

from jbias.evals import calibration, cue_conflict, decisions
from jbias.report import plots

_LETTER, _ROW = 0.078, 0.27  # Inches, as all lengths here.
_MARKERS = "sD^vP*X<>ph"
_TOLD = 20  # Classes up to which a cell of a matrix says its number.
PEOPLE = "humans"
ON_LIGHT = "#000000"  # Words on light cells, on a dark page, too.
SHADES = colors.LinearSegmentedColormap.from_list(
    "depth", ["white", plots.COLOURS[0], "#123a66"]
)


def cue_decisions(
    by_class: Mapping[str, Mapping[int, cue_conflict.ShapeBias]],
    classes: Sequence[str],
) -> mpl_figure.Figure:
    """Draws, by class, which share of decisions for a cue was for the texture.

    by_class: by decision maker, what cue_conflict.by_class gives; "humans" are drawn
      first, as red circles. A vertical line is the share over all classes together, which
      is not the mean of those of the classes. A class without a decision for either cue
      is left out. As figure 4 of Geirhos et al. 2019.
    """
    names = plots.plain(classes)
    k = len(names)
    makers = sorted(by_class, key=lambda name: name != PEOPLE)
    left, foot, head = _LETTER * max(map(len, names)) + 0.3, 0.6, 0.6
    width, columns = left + 4.6, max(1, int(4.6 / _widest(makers)))
    rows = math.ceil(len(makers) / columns)
    height = foot + _ROW * k + head + 0.2 * rows
    fig, axes = _axes(width, height, (left, foot, 4.4, _ROW * k))
    looks = _looks(makers)
    for name in makers[::-1]:
        each, (colour, marker) = by_class[name], looks[name]
        n_shape = sum(one.n_shape for one in each.values())
        n_texture = sum(one.n_texture for one in each.values())
        if n_shape + n_texture:
            pooled = n_texture / (n_shape + n_texture)
            axes.axvline(pooled, color=colour, linewidth=1.3, zorder=1)
        told = {c: one for c, one in each.items() if not math.isnan(one.value)}
        axes.scatter(
            [1 - one.value for one in told.values()],
            list(told),
            marker=marker,
            s=42,
            color=colour,
            edgecolors="white",
            linewidths=0.5,
            zorder=3,
            clip_on=False,
        )
    axes.set(xlim=(0, 1), ylim=(k - 0.5, -0.5), yticks=range(k), yticklabels=names)
    axes.set_xlabel("share of texture decisions", **plots.ink())
    top = axes.secondary_xaxis("top", functions=(lambda x: 1 - x, lambda x: 1 - x))
    top.tick_params(colors=plots.FAINT, labelcolor=plots.INK, labelsize=8)
    top.spines["top"].set_color(plots.FAINT)
    top.set_xlabel("share of shape decisions", **plots.ink())
    handles = [_handle(*looks[name]) for name in makers]
    _legend(fig, handles, plots.plain(makers), columns)
    return plots.literal(fig)


def reliability(
    found: Mapping[str, calibration.Reliability], *, columns: int = 3
) -> mpl_figure.Figure:
    """Draws accuracy over confidence by bins, and below it how many images these hold.

    found: the bins of each network, a panel each. The gap to the diagonal is filled:
    below it the network is surer than it is right. The expected calibration error is
    told.
    """
    columns = min(columns, len(found))
    rows, side = math.ceil(len(found) / columns), 3.4 if columns == 1 else 2.6
    tall = side + 1.75
    fig = plots.blank(columns * (side + 0.75) + 0.1, rows * tall)
    for i, (name, one) in enumerate(found.items()):
        down, across = divmod(i, columns)
        foot, left = (rows - 1 - down) * tall, 0.65 + across * (side + 0.75)
        axes = plots.axes_at(fig, (left, foot + 1.5, side, side - 0.1))
        _surer(axes, one)
        axes.set_title(
            f"{plots.plain([name])[0]}  ECE {one.error:.3f}".strip(),
            fontsize=9,
            loc="left",
            color=plots.INK,
        )
        below = plots.axes_at(fig, (left, foot + 0.55, side, 0.8))
        low, high = one.edges[:-1], one.edges[1:]
        share = one.count / one.count.sum()
        look = dict(color=plots.COLOURS[0], ec="white", lw=0.5)
        below.bar(low, share, high - low, align="edge", **look)
        below.set(xlim=(0, 1), ylim=(0, None))
        below.locator_params(axis="y", nbins=3)
        below.set_xlabel("confidence", **plots.ink())
        if not across:
            axes.set_ylabel("accuracy", **plots.ink())
            below.set_ylabel("share of images", **plots.ink())
    return plots.literal(fig)


def _surer(axes, found: calibration.Reliability) -> None:
    """Draws the curve, the diagonal, and the gap between them."""
    there = found.count > 0
    low, high = found.edges[:-1][there], found.edges[1:][there]
    middle, accuracy = found.confidence[there], found.accuracy[there]
    axes.plot([0, 1], [0, 1], color=plots.INK, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.bar(
        low,
        accuracy - middle,
        high - low,
        bottom=middle,
        align="edge",
        color=plots.COLOURS[1],
        alpha=0.35,
        linewidth=0,
    )
    axes.plot(middle, accuracy, "o-", color=plots.COLOURS[0], lw=1.4, ms=4.5)
    axes.set(xlim=(0, 1), ylim=(0, 1), xticklabels=[])


def accuracies(
    counts: Mapping[str, Mapping[str, tuple[int, int]]],
    *,
    best_first: bool = False,
    most: int = 40,
) -> mpl_figure.Figure:
    """Draws accuracy by set or by class, with Wilson intervals of 95 %.

    counts: by network, then by set or class, right and shown. best_first: the rows of the
    largest mean over networks come first; dashed lines are of all images together. A
    network without any keeps its colour for other figures, and is not drawn. Of
    more than `most` rows the middle ones are left out, and the gap says how many.
    """
    order = list(dict.fromkeys(name for each in counts.values() for name in each))
    if best_first:
        order.sort(key=lambda name: -_mean_share(counts, name))
    left_out = max(0, len(order) - most)
    shown = order[: most // 2] + order[-(most // 2) :] if left_out else order
    names = plots.plain(shown)
    places = np.arange(len(shown), dtype=float)
    if left_out:
        places[most // 2 :] += 1
    known = [i for i, each in enumerate(counts.values()) if each]
    several, row = len(counts) > 1, max(_ROW, 0.1 * len(known) + 0.1)
    columns = max(1, int(4.6 / _widest(list(counts))))
    head = 0.1 + 0.17 * math.ceil(len(known) / columns) if several else 0.0
    left, rows = _LETTER * max(map(len, names)) + 0.3, places[-1] + 1
    tall = row * rows
    fig, axes = _axes(left + 4.0, 0.7 + tall + head, (left, 0.6, 3.7, tall))
    for i, each in enumerate(counts.values()):
        if not each:
            continue
        colour = plots.style_of(i)["color"]
        off = (known.index(i) + 0.5) / len(known) - 0.5
        marker = plots.marker_of(i)
        for name, place in zip(shown, places + 0.75 * off, strict=True):
            if name not in each:
                continue
            right, n = each[name]
            ends = [100 * end for end in decisions.wilson_interval(right, n)]
            axes.plot(ends, [place] * 2, color=colour, lw=1.0 if several else 1.6)
            look = dict(color=colour, marker=marker, ms=5, mew=0, clip_on=False)
            axes.plot(100 * right / n, place, **look)
        if best_first:
            right, n = (sum(column) for column in zip(*each.values(), strict=True))
            dashed = dict(color=colour if several else plots.INK, ls=(0, (3, 2)))
            axes.axvline(100 * right / n, linewidth=0.8, **dashed)
    if left_out:
        text = f"{left_out} classes between"
        axes.text(1, most // 2, text, va="center", **plots.ink())
    axes.set(xlim=(0, 100), ylim=(rows - 0.5, -0.5), yticks=places, yticklabels=names)
    label = "accuracy in %; dashed: of all images" if best_first else "accuracy in %"
    axes.set_xlabel(label, **plots.ink())
    if several:
        told = plots.plain(counts)
        present = {told[i] for i in known}
        look = dict(present=present, where="upper left")
        plots.legend(fig, told, columns, **look)
    return plots.literal(fig)


def _mean_share(counts: Mapping, name: str) -> float:
    each = [one[name] for one in counts.values() if name in one]
    return sum(right / n for right, n in each) / len(each)


def confusion(
    matrix: Float[np.ndarray, "rows k"], classes: Sequence[str]
) -> mpl_figure.Figure:
    """Draws which per cent of each class (a column) got which response (a row).

    A row more than there are classes is that of no response. Columns of classes without
    images are hatched.
    """
    rows, k = matrix.shape
    columns = plots.plain(classes)
    names = columns + ["no response"] * (rows - k)
    cell = 0.34 if k <= _TOLD else max(0.1, 6.5 / k)
    longest = _LETTER * max(map(len, names)) + 0.35
    box = (longest, 0.55, cell * k, cell * rows)
    width, height = longest + cell * k + 0.9, 0.55 + cell * rows + longest
    fig, axes = _axes(width, height, box)
    drawn = axes.imshow(matrix, cmap=SHADES, vmin=0, vmax=100, aspect="auto")
    for j in range(k):
        if np.isnan(matrix[:, j]).any():
            hatch = dict(fill=False, hatch="////", ec=plots.FAINT, lw=0)
            axes.add_patch(patches.Rectangle((j - 0.5, -0.5), 1, rows, **hatch))
        for i in range(rows) if k <= _TOLD else ():
            if matrix[i, j] >= 0.5:
                colour = "white" if matrix[i, j] > 45 else ON_LIGHT
                told = dict(ha="center", va="center", fontsize=6.5, color=colour)
                axes.text(j, i, f"{matrix[i, j]:.0f}", **told)
    axes.grid(visible=False)
    every = 1 if cell > 0.14 else math.ceil(0.14 / cell)
    axes.set_yticks(range(0, rows, every), names[::every])
    axes.set_xticks(range(0, k, every), columns[::every], rotation=90)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_ylabel("response", **plots.ink())
    axes.set_xlabel("class of the image", **plots.ink())
    bar = plots.axes_at(fig, (longest + cell * k + 0.2, 0.55, 0.15, cell * rows))
    fig.colorbar(drawn, cax=bar).set_label("% of the class", **plots.ink())
    bar.grid(visible=False)
    return plots.literal(fig)


def _looks(makers: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each; people are red circles, as in the published figure."""
    others = [name for name in makers if name != PEOPLE]
    free = [colour for colour in plots.COLOURS if colour != plots.COLOURS[7]]
    found = {
        name: (free[i % len(free)], _MARKERS[i % len(_MARKERS)])
        for i, name in enumerate(others)
    }
    return found | {PEOPLE: (plots.COLOURS[7], "o")}


def _handle(colour: str, marker: str) -> lines.Line2D:
    look = dict(marker=marker, markersize=6, markeredgecolor="white")
    return lines.Line2D([], [], color=colour, linewidth=1.3, **look)


def _widest(names: Sequence[str]) -> float:
    return _LETTER * max(map(len, names)) + 0.55


def _legend(fig, handles, names: Sequence[str], columns: int) -> None:
    fig.legend(
        handles,
        names,
        loc="upper left",
        bbox_to_anchor=(0.01, 0.995),
        ncols=columns,
        frameon=False,
        labelcolor=plots.INK,
        fontsize=8,
        handlelength=1.6,
        borderpad=0.2,
    )


def _axes(width: float, height: float, box: tuple[float, float, float, float]):
    fig = plots.blank(width, height)
    return fig, plots.axes_at(fig, box)
