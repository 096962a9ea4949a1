"""Figures of a report, as functions of arrays and frames, without global state.

Rows keep their height and names their room, so a figure of many algorithms grows; the
page scrolls it. Lengths are in inches.
"""

import io
import math
import re
import textwrap
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import markupsafe
import matplotlib as mpl
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from matplotlib import artist as mpl_artist
from matplotlib import figure as mpl_figure
from matplotlib import font_manager, lines, patches, text, ticker
from matplotlib.backends import backend_agg

from jbias.report import tables

# Replaced by the page's own colours where a figure stands in the page.
INK, FAINT = "#1c2128", "#d0d5db"
COLOURS = (
    *("#3b7fd1", "#dd7a12", "#2a9d6a", "#c94f7c"),
    *("#8a63d2", "#1aa0b0", "#a9782a", "#d1493f"),
)
ROW, LETTER = 0.27, 0.078
PHONE = 3.4  # What a phone shows side by side.
SMALL = 8.5  # Points: 11 pixels on a page, where it is not scaled.
_LEGEND = {"frameon": False, "labelcolor": INK, "fontsize": SMALL}
MARKERS = "osD^vP*X<>ph"
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
STYLE = types.MappingProxyType(
    {
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "svg.fonttype": "path",
        "svg.hashsalt": "jbias",
        "pdf.fonttype": 42,
    }
)


def style_of(i: int) -> dict:
    """Gives the i-th algorithm's colour and dash; both repeat late."""
    dash = DASHES[i // len(COLOURS) % len(DASHES)]
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": dash}


def to_svg(fig: mpl_figure.Figure) -> str:
    """Gives SVG without dates, the same for the same figure."""
    out = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with mpl.rc_context(dict(STYLE)):
        fig.savefig(out, format="svg", metadata=nothing, transparent=True)
    return out.getvalue()


def to_pdf(fig: mpl_figure.Figure) -> bytes:
    out = io.BytesIO()
    with mpl.rc_context(dict(STYLE)):
        fig.savefig(out, format="pdf", metadata={"CreationDate": None})
    return out.getvalue()


def to_png(fig: mpl_figure.Figure) -> bytes:
    """Gives pixels on white, for slides."""
    out = io.BytesIO()
    with mpl.rc_context(dict(STYLE)):
        fig.savefig(
            out, format="png", dpi=200, facecolor="white", metadata={"Software": None}
        )
    return out.getvalue()


def inline(
    svg: str, title: str, *, name: str = "", told: str = ""
) -> markupsafe.Markup:
    """Makes an SVG part of a page: text in the page's colour, named for readers.

    `title` and `told`, what it shows, are words; `name` is the figure's alone.
    """
    svg = svg[svg.index("<svg") :]
    svg = svg.replace(INK, "currentColor").replace(FAINT, "var(--line)")
    # Glyphs and clips of several figures would share their names otherwise.
    prefix = "f" + re.sub(r"\W", lambda m: f"_{ord(m[0]):x}_", name or title) + "-"
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = svg.replace('href="#', f'href="#{prefix}').replace("url(#", f"url(#{prefix}")
    end = svg.index(">") + 1
    width = re.search(r'\bwidth="([\d.]+pt)"', svg)[1]
    title, told = markupsafe.escape(title), markupsafe.escape(told)
    # The browser shows a title where the pointer rests, so it is short.
    named = f"{svg[:end]}<title>{title}</title><desc>{told}</desc>{svg[end:]}"
    mark = f'<svg role="img" aria-label="{title}" style="--natural:{width}"'
    return markupsafe.Markup(named.replace("<svg", mark, 1))


def critical_difference(
    names: Sequence[str],
    ranks: np.ndarray,
    cliques: Sequence[Sequence[int]],
    difference: float,
    *,
    alpha: float,
    colours: Sequence[str],
) -> mpl_figure.Figure:
    """Draws Demsar's diagram upright: mean ranks on an axis, bars by what does not differ.

    It is no wider than a phone: bars that lie apart share a lane, and long names break.
    """
    k, line, axis = len(names), 0.16, 0.55
    order = np.argsort(ranks, kind="stable")
    ends = [(min(ranks[list(some)]), max(ranks[list(some)])) for some in cliques]
    lanes = _lanes(sorted(ends))
    lane = min(0.1, 0.7 / max(len(lanes), 1))
    bend = axis + 0.12 + lane * len(lanes)
    left = bend + 0.25  # Of the words.
    room = int((PHONE - left - 0.45) / LETTER)
    broken = [textwrap.wrap(name, room) for name in plain(names)]
    longest = max(len(part) for name in broken for part in name)
    width = max(left + 0.5 + LETTER * longest, 2.4)
    told = f"CD = {difference:.2f} (α = {alpha:g})"
    if difference > k - 1:
        told += ": wider than the axis, no pair can differ"
    told = textwrap.wrap(told, int(width / LETTER))
    rows = np.array([line * len(broken[i]) + 0.06 for i in order])
    rows += max(1.0 - rows.sum(), 0) / k
    length = rows.sum()
    top = length + 0.1
    fig, axes = canvas(width, top + 0.15 + line * len(told))

    def place(rank):
        return top - (rank - 1) / (k - 1) * length

    axes.text(0.07, top + 0.12, "\n".join(told), va="bottom", **ink(9))
    ends = [place(1), place(1 + min(difference, k - 1))]
    axes.plot([0.12] * 2, ends, color=INK, linewidth=1.6, marker="_")
    axes.plot([axis] * 2, [place(1), place(k)], color=INK, linewidth=1.2)
    step = math.ceil(line * (k - 1) / length)
    for rank in range(1, k + 1):
        axes.plot([axis - 0.06, axis], [place(rank)] * 2, color=INK, linewidth=1)
        if (rank - 1) % step == 0:
            where = {"ha": "right", "va": "center"}
            axes.text(axis - 0.1, place(rank), str(rank), **where, **ink(9))
    for i, bars in enumerate(lanes):
        for low, high in bars:
            x, ends = axis + 0.12 + lane * (i + 0.5), [place(low), place(high)]
            look = {"linewidth": 36 * lane, "solid_capstyle": "round"}
            axes.plot([x] * 2, ends, color=INK, **look)
    for member, y in zip(order, top - np.cumsum(rows) + rows / 2, strict=True):
        start, colour = place(ranks[member]), colours[member]
        elbow = [axis, bend + 0.05, left - 0.06], [start, start, y]
        axes.plot(*elbow, color=colour, linewidth=1.1)
        axes.plot(axis, start, "o", color=colour, markersize=4.5)
        axes.text(left, y, f"{ranks[member]:.2f}", va="center", **ink(9))
        name = "\n".join(broken[member])
        axes.text(left + 0.42, y, name, va="center", **ink(9))
    return literal(fig)


def _lanes(spans: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """Gives spans, in order, lanes in each of which they lie apart."""
    lanes: list[list[tuple[float, float]]] = []
    for low, high in spans:
        free = [lane for lane in lanes if lane[-1][1] + 0.5 < low]
        if not free:
            lanes.append([])
        (free or lanes[-1:])[0].append((low, high))
    return lanes


def curves(
    panels: Sequence[tuple[str, pd.DataFrame]],
    algorithms: Sequence[str],
    *,
    scale: float,
    places: Sequence[int] | None = None,
    label: str = "epoch",
    tops: Mapping[str, float] = types.MappingProxyType({}),
) -> mpl_figure.Figure:
    """Draws small multiples over epochs: means over seeds, bands of ± one deviation.

    A panel is a title and a table algorithm, epoch, mean, std; what else than epochs these
    are `label` says. `places` are those of the algorithms among all, so that each keeps its
    colour. `tops` has, by title, where an axis from 0 ends: a triangle at the edge is a point
    that lies above it.
    """
    styles = [style_of(i) for i in places or range(len(algorithms))]
    fig, cells = grid(len(panels), algorithms)
    for axes, (title, table) in zip(cells.flat, panels, strict=False):
        _panel(axes, title, table, algorithms, styles, scale, tops.get(title))
    label_edges(cells, len(panels), label, "")
    legend_above(fig, [lines.Line2D([], [], **style) for style in styles], algorithms)
    return laid_out(fig)


def _panel(axes, title, table, algorithms, styles, scale, top):
    for name, style in zip(algorithms, styles, strict=True):
        mine = table[table["algorithm"] == name].sort_values("epoch")
        epochs, mean = mine["epoch"].to_numpy(), scale * mine["mean"].to_numpy()
        std = scale * mine["std"].fillna(0).to_numpy()
        alone = {"marker": "o", "markersize": 3} if len(mine) == 1 else {}
        axes.plot(epochs, mean, linewidth=1.5, **style, **alone)
        axes.fill_between(
            epochs, mean - std, mean + std, color=style["color"], alpha=0.16, lw=0
        )
        if top is not None:
            above = epochs[mean > top]
            if len(above):  # Unclipped lines without points have no room.
                look = dict(color=style["color"], markersize=7, clip_on=False)
                axes.plot(above, np.full(len(above), top), "^", **look)
            axes.set_ylim(0, top)
    axes.set_title(plain([title])[0], fontsize=9, color=INK, loc="left")
    axes.xaxis.set_major_locator(ticker.MaxNLocator(5, integer=True))
    axes.yaxis.set_major_locator(ticker.MaxNLocator(5))


def blank(width: float, height: float) -> mpl_figure.Figure:
    """Gives a figure of so many inches, without axes."""
    with mpl.rc_context(dict(STYLE)):
        fig = mpl_figure.Figure(figsize=(width, height))
        backend_agg.FigureCanvasAgg(fig)
    return fig


def axes_at(fig: mpl_figure.Figure, box: tuple[float, float, float, float]):
    """Gives plain axes at a place (left, foot, width, height), in inches."""
    width, height = fig.get_size_inches()
    x, y, w, h = box
    with mpl.rc_context(dict(STYLE)):
        axes = fig.add_axes((x / width, y / height, w / width, h / height))
    _make_plain(axes, 0.6)
    return axes


def ink(size: float = SMALL) -> dict:
    """Gives how a figure's words look."""
    return {"color": INK, "fontsize": size}


def canvas(width: float, height: float):
    """Gives axes whose unit is an inch, filling the figure."""
    fig = blank(width, height)
    with mpl.rc_context(dict(STYLE)):
        axes = fig.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.set_axis_off()
    return fig, axes


def literal(fig: mpl_figure.Figure) -> mpl_figure.Figure:
    """Makes names with dollars plain text: matplotlib would read them as formulas."""
    for found in fig.findobj(text.Text):
        found.set_parse_math(False)
    return fig


def plain(names: Sequence[str]) -> list[str]:
    """Gives names on one line, with a sign for letters that the font lacks."""
    font = font_manager.get_font(font_manager.findfont(STYLE["font.family"]))
    known = font.get_charmap()
    lines_of = (" ".join(name.split()) for name in names)
    return ["".join(c if ord(c) in known else "\ufffd" for c in n) for n in lines_of]


def intervals(
    names: Sequence[str],
    point: Float[np.ndarray, "k"],
    low: Float[np.ndarray, "k"],
    high: Float[np.ndarray, "k"],
    *,
    label: str = "",
    digits: int = 2,
) -> mpl_figure.Figure:
    """Draws a line from low to high with a dot at the point, a row a name, and the numbers.

    NaN draws nothing.
    """
    names, k, shown = plain(names), len(names), tables.digits(digits)
    told = [
        shown(p) + (f" [{shown(a)}, {shown(b)}]" if math.isfinite(a) else "")
        for p, a, b in zip(point, low, high, strict=True)
    ]
    left = LETTER * max(map(len, names)) + 0.25
    right = LETTER * max(map(len, told)) + 0.25
    fig, axes = _rows(names, left=left, span=3.6, right=right, label=label)
    beside = {"va": "center", "transform": axes.get_yaxis_transform(), **ink(9)}
    for i in range(k):
        if math.isfinite(point[i]):
            axes.plot([low[i], high[i]], [i, i], color=COLOURS[0], linewidth=1.8)
        axes.plot(point[i], i, "o", color=COLOURS[0], markersize=4.5)
        axes.text(1 + 0.1 / 3.6, i, told[i], **beside)
    return literal(fig)


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
    names = plain(names)
    longest = LETTER * max(map(len, names)) + 0.5
    columns = max(1, min(len(names), int(6.2 / longest)))
    rows = math.ceil(len(names) / columns)
    width, foot = max(6.4, longest + 0.2), 0.6
    height = foot + 3.1 + 0.2 + rows * 0.18
    fig = blank(width, height)
    axes = axes_at(fig, (0.65, foot, width - 0.85, 3.1))
    axes.xaxis.set_major_locator(ticker.MaxNLocator(5))
    for i in range(len(names)):
        axes.plot(thresholds, shares[i], linewidth=1.5, **style_of(i))
        if low is not None:
            colour = style_of(i)["color"]
            axes.fill_between(
                thresholds, low[i], high[i], color=colour, alpha=0.14, lw=0
            )
    axes.set(ylim=(-0.02, 1.02), yticks=np.linspace(0, 1, 6))
    axes.set_xlabel(label, **ink())
    axes.set_ylabel("share of runs above", **ink())
    handles = [lines.Line2D([], [], **style_of(i)) for i in range(len(names))]
    fig.legend(
        handles,
        names,
        loc="upper left",
        bbox_to_anchor=(0.02, 1 - 0.03 / height),
        ncols=columns,
        **_LEGEND | dict(handlelength=1.8, labelspacing=0.35, borderpad=0),
    )
    return literal(fig)


def variability(
    names: Sequence[str],
    intra: Sequence[Float[np.ndarray, "runs"]],
    inter: Sequence[Float[np.ndarray, "sets"]],
    *,
    label: str = "standard deviation",
) -> mpl_figure.Figure:
    """Draws deviations of each algorithm as dots, with a box over their quartiles.

    Dots above are `intra`, those below, in another colour and form, are `inter`.
    """
    names = plain(names)
    left = LETTER * max(map(len, names)) + 0.25
    fig, axes = _rows(names, left=left, span=4.6, right=0.25, label=label, row=0.42)
    looks = (intra, -0.19, "o", COLOURS[0]), (inter, 0.19, "D", COLOURS[1])
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
    place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 2}
    axes.legend(handles, ("within a run", "between runs"), **place, **_LEGEND)
    axes.autoscale_view()
    return literal(fig)


def _rows(names, *, left, span, right, label, row=ROW):
    """Gives axes with a row for each name, the first on top."""
    foot, head, k = 0.6, 0.3, len(names)
    width, height = left + span + right, foot + head + row * k
    fig = blank(width, height)
    axes = axes_at(fig, (left, foot, span, row * k))
    axes.xaxis.set_major_locator(ticker.MaxNLocator(5))
    axes.set(ylim=(k - 0.5, -0.5))
    axes.set_yticks(range(k), list(names), fontsize=9)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(label, **ink())
    return fig, axes


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
    fig, axes = canvas(width, foot + cell * len(seeds) + 0.15)
    enough: Bool[np.ndarray, "seeds datasets"] = np.asarray(grid) >= target
    middle, beside = {"ha": "center", "va": "center"}, {"ha": "right", "va": "center"}
    for i, number in enumerate(seeds):
        y = foot + cell * i
        axes.text(left - 0.1, y + cell / 2, str(number), **beside, **ink(9))
        for j in range(len(datasets)):
            x, share = left + cell * j, float(grid[i][j])
            finite = math.isfinite(share)
            shade = {"facecolor": COLOURS[0], "alpha": 0.75 * share if finite else 0}
            for look in (shade | {"lw": 0}, dict(fill=False, edgecolor=FAINT, lw=0.6)):
                axes.add_patch(patches.Rectangle((x, y), cell, cell, **look))
            told = f"{share:.2f}" if finite else "–"
            axes.text(x + cell / 2, y + cell / 2, told, **middle, **ink())
            if enough[i, j]:
                inner = (x + 0.03, y + 0.03), cell - 0.06, cell - 0.06
                axes.add_patch(
                    patches.Rectangle(*inner, fill=False, edgecolor=INK, lw=1.3)
                )
    for j, number in enumerate(datasets):
        x = left + cell * (j + 0.5)
        axes.text(x, foot - 0.1, str(number), ha="center", va="top", **ink(9))
    across = left + cell * len(datasets) / 2
    axes.text(across, foot - 0.35, labels[1], ha="center", va="top", **ink(9))
    up = foot + cell * len(seeds) / 2
    axes.text(0.15, up, labels[0], rotation=90, ha="left", va="center", **ink(9))
    axes.text(0.15, 0.2, f"framed: power ≥ {target:g}", va="center", **ink())
    return literal(fig)


def marker_of(k: int) -> str:
    """Gives the form of the k-th category; with its colour both repeat late."""
    return MARKERS[k % len(MARKERS)]


def handle(k: int) -> lines.Line2D:
    """Gives how a legend shows the k-th category."""
    look = {"marker": marker_of(k), "color": style_of(k)["color"], "linestyle": ""}
    return lines.Line2D([], [], **look, markersize=5.5, markeredgewidth=0)


def dress(axes, rho: float | None = None) -> None:
    """Makes axes plain, with the number over them if one is given."""
    if rho is not None:
        axes.set_title(
            tables.digits(2)(rho), fontsize=SMALL, color=INK, loc="right", pad=2
        )
    _make_plain(axes, 0.5)
    axes.locator_params(nbins=4)


def _make_plain(axes, linewidth: float) -> None:
    axes.set_facecolor("none")
    axes.grid(color=FAINT, linewidth=linewidth)
    axes.set_axisbelow(True)
    axes.tick_params(colors=FAINT, labelcolor=INK, labelsize=SMALL)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)


def grid(
    panels: int,
    legend: Sequence[str] = (),
    *,
    across: int = 3,
    cell=(3.1, 2.3),
    alone: float = 5.0,
    **shared,
) -> tuple[mpl_figure.Figure, np.ndarray]:
    """Gives a figure that lays itself out, and axes (rows, columns), those left over off.

    legend: the names that `legend_above` will have, for which there is room. alone: the
    width in inches of a single column. shared: such as sharey=True.
    """
    columns = min(across, panels)
    rows = math.ceil(panels / columns)
    width = cell[0] * columns + 0.2 if columns > 1 else alone
    lines_above = math.ceil(len(legend) / _beside(legend, width))
    size = width, cell[1] * rows + 0.2 * lines_above + 0.2
    with mpl.rc_context(dict(STYLE)):
        fig = mpl_figure.Figure(figsize=size, layout="constrained")
        backend_agg.FigureCanvasAgg(fig)
        cells = fig.subplots(rows, columns, squeeze=False, **shared)
    for axes in cells.flat:
        dress(axes)
    for axes in cells.flat[panels:]:
        axes.set_axis_off()
    return fig, cells


def multiples(
    panels: Mapping[str, Any],
    draw: Callable[[Any, Any], None],
    labels: tuple[str, str],
    legend: Mapping[str, mpl_artist.Artist],
    **cells,
) -> mpl_figure.Figure:
    """Draws a panel under each title, by `draw(axes, what)`.

    labels: of the axes x and y. legend: how names look. cells: as `grid` takes them.
    """
    fig, every = grid(len(panels), tuple(legend), **cells)
    for axes, (title, what) in zip(every.flat, panels.items(), strict=False):
        draw(axes, what)
        axes.set_title(plain([title])[0], loc="left", **ink(9))
    label_edges(every, len(panels), *labels)
    legend_above(fig, list(legend.values()), tuple(legend))
    return laid_out(fig)


def label_edges(cells: np.ndarray, panels: int, x: str, y: str) -> None:
    """Names the axes of a grid at its left and its foot."""
    for axes in list(cells.flat)[max(panels - cells.shape[1], 0) : panels]:
        axes.set_xlabel(x, **ink())
    for axes in cells[:, 0]:
        axes.set_ylabel(y, **ink())


def legend_above(
    fig: mpl_figure.Figure, handles: Sequence[lines.Line2D], names: Sequence[str]
) -> None:
    """Puts a legend above a grid, as many names side by side as it has room for."""
    fig.legend(
        handles,
        plain(names),
        loc="outside upper left",
        ncols=_beside(names, fig.get_size_inches()[0]),
        **_LEGEND,
    )


def marker_legend(fig: mpl_figure.Figure, names: Sequence[str]) -> None:
    """Says above a grid how each category is marked."""
    legend_above(fig, [handle(k) for k in range(len(names))], names)


def _beside(names: Sequence[str], width: float) -> int:
    """Gives how many names of a legend stand side by side."""
    return max(1, int(width / (0.55 + 0.072 * max(map(len, names), default=1))))


def laid_out(fig: mpl_figure.Figure) -> mpl_figure.Figure:
    """Lays a constrained figure out once, not again for every format."""
    with mpl.rc_context(dict(STYLE)):
        literal(fig).draw_without_rendering()
    fig.set_layout_engine("none")
    return fig
