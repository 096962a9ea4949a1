"""Figures of an audit: drop curves, accuracies by level, probabilities, pairs that flip."""

import math
from collections.abc import Iterator

import matplotlib as mpl
import numpy as np
from matplotlib import figure as mpl_figure
from matplotlib import lines, ticker
from matplotlib.backends import backend_agg

from jbias.evals import attribute_audit
from jbias.report import audit_tables, audited, image_sheets, plots

_MOST = 8  # Attributes in one figure.
_IN, _OUT = plots.COLOURS[0], plots.COLOURS[1]

Drawn = Iterator[tuple[str, str, mpl_figure.Figure, str]]


def of(found: audited.Audited) -> Drawn:
    """Gives names, sections, figures and captions."""
    tested = [one for one in found.candidates if one.kind]
    if not tested:
        return
    yield (
        "drops",
        "curves",
        drops(found, tested[:_MOST]),
        "Accuracy in distribution minus out of it, in points, by level; bands: 95 %"
        " intervals. The first attributes of the table"
        + (f", {_MOST} of {len(tested)}." if len(tested) > _MOST else "."),
    )
    for one in found.shown:
        yield from _one(found, one)


def _one(found: audited.Audited, one: attribute_audit.Candidate) -> Drawn:
    """The figures of one attribute."""
    yield (
        f"levels_{one.name}",
        "curves",
        levels(one),
        (
            f"{one.name}: accuracy in distribution (line) and out of it (dashes), by level;"
            " cross-fitted."
        ),
    )
    told = (
        f"{one.name}: images by the probability of their right class, on sets of the"
        f" extreme level of the {one.kind} shift, in distribution and out of it; dots are"
        " means. A network that does not rely on it has both alike."
    )
    yield f"likelihood_{one.name}", "likelihood", likelihood(found, one), told
    if one.name in found.examples:
        told = (
            f"{one.name}: images of one class, right where the value agrees with it"
            " (above) and wrong where not (below), with the value, how probable the right"
            " class is, and what was decided, how probable that is. Of"
            f" {found.networks[0]}; the most wrong are chosen, each with the image that"
            " shares most other attributes."
        )
        yield f"flips_{one.name}", "flips", flips(found, one), told


def drops(
    found: audited.Audited, some: list[attribute_audit.Candidate]
) -> mpl_figure.Figure:
    """Drop curves of several attributes, a panel for each kind."""
    fig, panels = _panels(len(found.kinds), len(some))
    for axes, kind in zip(panels, found.kinds, strict=True):
        for i, one in enumerate(some):
            curve, style = one.result.kinds[kind].curve, plots.style_of(i)
            share = [point.share for point in curve]
            drop, low, high = 100 * np.array([(p.drop, p.low, p.high) for p in curve]).T
            axes.plot(share, drop, linewidth=1.5, marker="o", markersize=2.5, **style)
            axes.fill_between(share, low, high, color=style["color"], alpha=0.12, lw=0)
        axes.axhline(100 * found.tau, color=plots.INK, lw=0.7, ls=(0, (2, 2)))
        _levels(axes, kind, curve)
    panels[0].set_ylabel("drop, points", color=plots.INK, fontsize=8)
    handles = [lines.Line2D([], [], **plots.style_of(i)) for i in range(len(some))]
    names = [one.name for one in some]
    handles.append(lines.Line2D([], [], color=plots.INK, lw=0.7, ls=(0, (2, 2))))
    return _finished(fig, handles, [*names, f"{100 * found.tau:g} points"])


def levels(one: attribute_audit.Candidate) -> mpl_figure.Figure:
    """Both accuracies of one attribute, a panel for each kind."""
    kinds = one.result.kinds
    fig, panels = _panels(len(kinds), 2)
    for axes, kind in zip(panels, kinds, strict=True):
        curve = kinds[kind].curve
        share = [point.share for point in curve]
        for key, colour, dash in (("within", _IN, "-"), ("outside", _OUT, "--")):
            values = [100 * getattr(point, key) for point in curve]
            look = dict(color=colour, ls=dash, marker="o", markersize=3)
            axes.plot(share, values, linewidth=1.5, **look)
        axes.set_ylim(0, 102)
        _levels(axes, kind, curve)
    panels[0].set_ylabel("accuracy, %", color=plots.INK, fontsize=8)
    handles = [
        lines.Line2D([], [], color=colour, ls=dash)
        for colour, dash in ((_IN, "-"), (_OUT, "--"))
    ]
    return _finished(fig, handles, ["in distribution", "out of distribution"])


def likelihood(
    found: audited.Audited, one: attribute_audit.Candidate
) -> mpl_figure.Figure:
    """Images by the probability of their right class, in and out of distribution."""
    data = audit_tables.likelihood(found, one)
    edges = [*data["low"], 1.0]
    with mpl.rc_context(dict(plots.STYLE)):
        fig = mpl_figure.Figure(figsize=(5.2, 2.7), layout="constrained")
        backend_agg.FigureCanvasAgg(fig)
        axes = fig.subplots()
        for key, colour, dash in (("within", _IN, "-"), ("outside", _OUT, "--")):
            shares = 100 * data[key].to_numpy()
            axes.stairs(shares, edges, color=colour, alpha=0.25, fill=True, lw=0)
            axes.stairs(shares, edges, color=colour, lw=1.4, ls=dash)
        _plain(axes)
        axes.set_xlim(0, 1)
        axes.set_xlabel("probability of the right class", color=plots.INK, fontsize=8)
        axes.set_ylabel("images, %", color=plots.INK, fontsize=8)
        top = axes.get_ylim()[1]
        for row, colour in zip(audit_tables.means(found, one), (_IN, _OUT)):
            axes.plot(row, top, "o", color=colour, markersize=6, clip_on=False)
    handles = [
        lines.Line2D([], [], color=colour, ls=dash)
        for colour, dash in ((_IN, "-"), (_OUT, "--"))
    ]
    return _finished(fig, handles, ["in distribution", "out of distribution"])


def flips(found: audited.Audited, one: attribute_audit.Candidate) -> mpl_figure.Figure:
    """Pairs side by side; below each what is decided, and how probable that is."""
    shown = found.examples[one.name]
    column, values = found.columns[one.name], found.values[one.name]
    pictures, notes = {}, {}
    for pair, *both in zip(shown.pairs, shown.agrees, shown.disagrees, strict=True):
        right = found.classes[found.label[pair.agrees]]
        name = right
        while name in pictures:  # A class may have several.
            name += " "
        pictures[name], notes[name] = both, []
        for i in pair[:2]:
            decided = found.answers[found.prediction[0, i]]
            words = [values[column[i]], f"{decided} {found.confidence[0, i]:.2f}"]
            if not found.correct[0, i]:
                words.insert(1, f"{right} {found.likelihood[0, i]:.2f}")
            notes[name].append(
                image_sheets.Note(tuple(words), bool(found.correct[0, i]))
            )
    rows, title = ("agrees", "disagrees"), f"{one.name} flips the answer"
    return image_sheets.draw(pictures, rows, notes=notes, title=title, across=8)


def _panels(count: int, entries: int):
    rows = math.ceil(entries / 4)
    with mpl.rc_context(dict(plots.STYLE)):
        size = max(3.07 * count, 5), 2.7 + 0.24 * rows
        fig = mpl_figure.Figure(figsize=size, layout="constrained")
        backend_agg.FigureCanvasAgg(fig)
        panels = fig.subplots(1, count, sharey=True, squeeze=False)[0]
    for axes in panels:
        _plain(axes)
    return fig, panels


def _plain(axes) -> None:
    axes.set_facecolor("none")
    axes.grid(color=plots.FAINT, linewidth=0.6)
    axes.tick_params(colors=plots.FAINT, labelcolor=plots.INK, labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(plots.FAINT)
    axes.yaxis.set_major_locator(ticker.MaxNLocator(5))


def _levels(axes, kind: str, curve) -> None:
    """Names levels where they stand; of two that are close the lower is left out."""
    axes.set_title(kind, fontsize=9, color=plots.INK, loc="left")
    names, right = [], 9.0
    for point in reversed(curve):
        near = right - point.share < 0.06
        names.insert(0, "" if near else point.level)
        right = right if near else point.share
    axes.set_xticks([point.share for point in curve], names)


def _finished(fig, handles, names) -> mpl_figure.Figure:
    with mpl.rc_context(dict(plots.STYLE)):
        fig.legend(
            handles,
            plots.plain(names),
            loc="outside upper left",
            ncols=min(len(names), 5),
            frameon=False,
            labelcolor=plots.INK,
        )
        plots.literal(fig).draw_without_rendering()
    fig.set_layout_engine("none")  # Laid out once, not again for every format.
    return fig
