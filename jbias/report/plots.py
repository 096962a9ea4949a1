"""Figures of a report, as functions of arrays and frames, without global state.

Rows keep their height and names their room, so a figure of many algorithms grows; the
page scrolls it. Lengths are in inches.
"""

import io
import math
import re
import textwrap
import types
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Any

import markupsafe
import matplotlib as mpl
import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib import artist as mpl_artist
from matplotlib import colors, font_manager, lines, patches, text
from matplotlib import figure as mpl_figure
from matplotlib.backends import backend_agg

from jbias.report import tables

Figure = mpl_figure.Figure
# Replaced by the page's own colours where a figure stands in the page.
INK, FAINT = "#1c2128", "#d0d5db"
COLOURS = ("#3b7fd1", "#dd7a12", "#2a9d6a", "#c94f7c")
COLOURS += ("#8a63d2", "#1aa0b0", "#a9782a", "#d1493f")
ROW, LETTER = 0.27, 0.078
PHONE = 3.4  # What a phone shows side by side.
SMALL = 8.5  # Points: 11 pixels on a page, where it is not scaled.
MARKERS = "osD^vP*X<>ph"
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
_DEPTHS = ["white", COLOURS[0], "#123a66"]
SHADES = colors.LinearSegmentedColormap.from_list("depth", _DEPTHS)
_FONT = {"font.family": "DejaVu Sans", "font.size": 9, "pdf.fonttype": 42}
_SVG = {"svg.fonttype": "path", "svg.hashsalt": "jbias"}
STYLE = types.MappingProxyType(_FONT | _SVG)


def style_of(i: int) -> dict:
    """Gives the i-th algorithm's colour and dash; both repeat late."""
    dash = DASHES[i // len(COLOURS) % len(DASHES)]
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": dash}


def styles(names: Iterable[str]) -> dict[str, dict]:
    """Gives each name's colour and dash."""
    return {name: style_of(i) for i, name in enumerate(names)}


def to_svg(fig: Figure) -> str:
    """Gives SVG without dates, the same for the same figure."""
    nothing = ("Creator", "Date", "Format", "Type")
    return _saved(fig, "svg", nothing, transparent=True).decode()


def to_pdf(fig: Figure) -> bytes:
    return _saved(fig, "pdf", ["CreationDate"])


def to_png(fig: Figure) -> bytes:
    """Gives pixels on white, for slides."""
    return _saved(fig, "png", ["Software"], dpi=200, facecolor="white")


def _saved(fig: Figure, form: str, nothing: Sequence[str], **how) -> bytes:
    """Gives a file, in which `nothing` names what is not said of how it was made."""
    out, metadata = io.BytesIO(), dict.fromkeys(nothing)
    with mpl.rc_context(dict(STYLE)):
        fig.savefig(out, format=form, metadata=metadata, **how)
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
) -> Figure:
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
    frame: pd.DataFrame,
    looks: Mapping[str, Mapping],
    labels: tuple[str, str],
    *,
    finish: Callable[[Any, pd.DataFrame], None] = lambda axes, rows: None,
    **cells,
) -> Figure:
    """Draws lines of tidy numbers, a panel a value of "panel", a line a value of "line".

    frame: panel, line, x, value and, where lines have bands, std or low and high. looks: of
    lines, in the order of the legend. labels: of the axes x and y. finish: what else is done
    to axes with the rows of their panel. cells: as `grid` takes them.
    """
    if "std" in frame:
        ends = {"low": frame["value"] - frame["std"].fillna(0)}
        frame = frame.assign(**ends, high=2 * frame["value"] - ends["low"])

    def draw(axes, rows: pd.DataFrame) -> None:
        for name, line in rows.groupby("line", sort=False, observed=True):
            look = dict(marker="o" if len(line) == 1 else "") | looks[name]
            line = line.sort_values("x", kind="stable")
            axes.plot(line["x"], line["value"], lw=1.5, ms=4, mew=0, label=name, **look)
            if "low" in line:
                band = dict(color=look["color"], alpha=0.15, lw=0)
                axes.fill_between(line["x"], line["low"], line["high"], **band)
        finish(axes, rows)

    panels = dict(iter(frame.groupby("panel", sort=False, observed=True)))
    legend = {name: lines.Line2D([], [], **look) for name, look in looks.items()}
    return multiples(panels, draw, labels, legend, **cells)


def histograms(
    panels: Mapping[str, Mapping[str, tuple]], looks: Mapping[str, Mapping], x: str
) -> Figure:
    """Draws which share of images has which value in [0, 1], and a dot at each mean.

    panels: by title and name values, and their weights, or None.
    """
    edges = np.linspace(0, 1, 21)

    def draw(axes, panel: Mapping[str, tuple]) -> None:
        for name, (values, weights) in panel.items():
            look, counts = looks[name], np.histogram(values, edges, weights=weights)[0]
            share = 100 * counts / counts.sum()
            axes.stairs(share, edges, color=look["color"], alpha=0.25, fill=True, lw=0)
            axes.stairs(share, edges, lw=1.4, **look)
            where = dict(transform=axes.get_xaxis_transform(), clip_on=False)
            mean = np.average(values, weights=weights)
            axes.plot(mean, 1, "o", color=look["color"], markersize=6, **where)
        axes.set(xlim=(0, 1), ylim=(0, None))

    legend = {name: lines.Line2D([], [], **look) for name, look in looks.items()}
    return multiples(panels, draw, (x, "images, %"), legend)


def matrix(
    axes,
    frame: pd.DataFrame,
    *,
    colours=SHADES,
    limits: tuple[float, float] = (0, 100),
    form: str = "{:.0f}",
    every: int = 1,
    least: float | None = -math.inf,
):
    """Draws a table as cells, which say their numbers from `least` on, or none; gives these.

    every: so many rows and columns have a name together.
    """
    values, (low, high) = frame.to_numpy(float), limits
    shades = dict(cmap=colours, vmin=low, vmax=high)
    if least is None:  # So many cells are smaller as an image.
        drawn = axes.imshow(values, aspect="auto", **shades)
    else:
        down, across = (np.arange(count + 1) - 0.5 for count in values.shape)
        drawn = axes.pcolormesh(across, down, values, ec="white", lw=0.8, **shades)
        axes.set_ylim(down[-1], -0.5)
    look = dict(ha="center", va="center", fontsize=SMALL)
    for (i, j), value in np.ndenumerate(values) if least is not None else ():
        if math.isnan(value):
            axes.text(j, i, "–", color=INK, **look)
        elif value >= least:  # Black on light cells, on a dark page, too.
            dark = np.dot(drawn.to_rgba(value)[:3], (0.299, 0.587, 0.114)) < 0.58
            told = form.format(value)
            told = told.replace("-", "−" if told.strip("-0.") else "")
            axes.text(j, i, told, color="white" if dark else "#000000", **look)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    ticks = {axes.set_xticks: frame.columns, axes.set_yticks: frame.index}
    for put, names in ticks.items():
        put(range(0, len(names), every), plain(map(str, names))[::every])
    return drawn


def blocks(frame: pd.DataFrame, labels: Sequence[int]) -> Figure:
    """Draws correlations, -1 to 1, and frames rows of one label; columns are numbered."""
    n, names = len(frame), [f"{name} {i}" for i, name in enumerate(frame.index, 1)]
    every, room = math.ceil(n / 30), 0.37 * min(n, 30)  # More have no room for numbers.
    wide = max(room + LETTER * max(map(len, names)) + 0.3, PHONE)
    fig, ((axes,),) = grid(1, cell=(0, 0.8 * room + 0.3), alone=wide)
    look = dict(colours=mpl.colormaps["RdBu"], form="{:.2f}", every=every)
    # Colours end a little short of where text would not be read.
    look |= dict(limits=(-1.19, 1.19), least=-math.inf if every == 1 else None)
    matrix(axes, frame.set_axis(names).set_axis(range(1, n + 1), axis=1), **look)
    axes.tick_params(labelbottom=False, labeltop=True)
    ends = [*np.flatnonzero(np.diff(labels)) + 1, n]
    for start, end in zip([0, *ends], ends):
        square = (start - 0.5, start - 0.5), end - start, end - start
        look = dict(fill=False, edgecolor=INK, lw=1.8, clip_on=False)
        axes.add_patch(patches.Rectangle(*square, **look))
    return laid_out(fig)


def blank(width: float, height: float, layout: str | None = None) -> Figure:
    """Gives a figure of so many inches, without axes."""
    with mpl.rc_context(dict(STYLE)):
        fig = Figure(figsize=(width, height), layout=layout)
        backend_agg.FigureCanvasAgg(fig)
    return fig


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


def literal(fig: Figure) -> Figure:
    """Makes names with dollars plain text: matplotlib would read them as formulas."""
    for found in fig.findobj(text.Text):
        found.set_parse_math(False)
    return fig


def plain(names: Iterable[str]) -> list[str]:
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
) -> Figure:
    """Draws a line from low to high with a dot at the point, a row a name, and the numbers.

    NaN draws nothing.
    """
    shown = tables.interval(tables.digits(digits))
    fig, axes = rows(names, x=label)
    for i, (middle, *ends) in enumerate(zip(point, low, high, strict=True)):
        if math.isfinite(middle):
            axes.plot(ends, [i, i], color=COLOURS[0], linewidth=1.8)
        axes.plot(middle, i, "o", color=COLOURS[0], markersize=4.5)
        beside = dict(va="center", transform=axes.get_yaxis_transform(), **ink(9))
        axes.text(1.03, i, shown(middle, *ends), **beside)
    return laid_out(fig)


def variability(
    names: Sequence[str], kinds: Mapping[str, Sequence[np.ndarray]], *, label: str
) -> Figure:
    """Draws the deviations of each algorithm as boxes from quartile to quartile.

    kinds: by what they are called, so many for each name. Whiskers reach the ends.
    """
    each = zip(kinds, COLOURS)
    looks = {k: dict(facecolor=x, edgecolor=x, alpha=0.6) for k, x in each}
    fig, axes = rows(names, tuple(kinds), x=label, row=0.42)
    for lane, (kind, values) in enumerate(kinds.items()):
        each = [np.asarray(one)[np.isfinite(one)] for one in values]
        where = np.arange(len(names)) + 0.38 * lane - 0.19
        look = dict(showfliers=False, manage_ticks=False, patch_artist=True)
        look |= dict(boxprops=looks[kind], whis=(0, 100), widths=0.26)
        inked = ("medianprops", "whiskerprops", "capprops")
        look |= {key: {"color": INK} for key in inked}
        axes.boxplot(each, positions=where, orientation="horizontal", **look)
    legend_above(fig, {kind: patches.Patch(**look) for kind, look in looks.items()})
    return laid_out(fig)


def rows(names, legend=(), *, x: str = "", row: float = ROW, room: float = 0.6):
    """Gives a figure and axes with a row for each name, the first on top."""
    wide = 4.2 + LETTER * max(map(len, names))
    cell = 0, row * len(names) + room
    fig, ((axes,),) = grid(1, legend, cell=cell, alone=wide)
    axes.set(ylim=(len(names) - 0.5, -0.5))
    axes.set_yticks(range(len(names)), plain(names))
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(x, **ink())
    return fig, axes


def in_lanes(
    axes, order: Sequence[str], found: Mapping, looks: Mapping, *, unit: float = 100
) -> dict:
    """Draws values with their intervals, in a lane of the rows for each of `found`.

    found: by name, then row, the value and its ends, which may be NaN and need not be about
      it. unit: what they are multiplied by, into per cent. Gives markers for a legend.
    """
    legend = {}
    for lane, (name, each) in enumerate(found.items()):
        rows = [(i, *each[row]) for i, row in enumerate(order) if row in each]
        place, *shown = np.reshape(rows, (-1, 4)).astype(float).T
        place += 0.75 * ((lane + 0.5) / len(found) - 0.5)
        value, *ends = unit * np.array(shown)
        known, width = ~np.isnan(ends).any(0), 1.0 if len(found) > 1 else 1.6
        bars = (x[known] for x in (place, *ends))
        axes.hlines(*bars, colors=looks[name]["color"], linewidth=width)
        look = dict(ms=5, mew=0, ls="", clip_on=False) | looks[name]
        (legend[name],) = axes.plot(value, place, **look)
    return legend


def power(grid_of: pd.DataFrame, *, target: float, labels: tuple[str, str]) -> Figure:
    """Draws the power by numbers of data sets and seeds; framed where it is `target`."""
    tall, wide = 0.5 * np.array(grid_of.shape)
    fig, ((axes,),) = grid(1, cell=(0, tall + 0.6), alone=max(wide + 0.8, PHONE))
    matrix(axes, grid_of, limits=(0, 1), form="{:.2f}")
    for i, j in np.argwhere(grid_of.to_numpy() >= target):
        corner = (j - 0.47, i - 0.47), 0.94, 0.94
        axes.add_patch(patches.Rectangle(*corner, fill=False, edgecolor=INK, lw=1.3))
    axes.set_xlabel(labels[0], **ink(9))
    axes.set_ylabel(labels[1], **ink(9))
    return laid_out(fig)


def marked(k: int) -> dict:
    """Gives the form and colour of the k-th category; both repeat late."""
    return {"marker": MARKERS[k % len(MARKERS)], "color": style_of(k)["color"]}


def marks(names: Iterable[str], there: Container[str] | None = None) -> dict[str, dict]:
    """Gives each category's form and colour; of all names, those that are there."""
    every = enumerate(dict.fromkeys(names))
    return {name: marked(k) for k, name in every if there is None or name in there}


def handles(looks: Mapping[str, Mapping]) -> dict[str, lines.Line2D]:
    """Gives how a legend shows categories."""
    look = dict(ls="", markersize=5.5, mew=0)
    return {name: lines.Line2D([], [], **look, **one) for name, one in looks.items()}


def dress(axes, rho: float | None = None) -> None:
    """Makes axes plain, with the number over them if one is given."""
    if rho is not None:
        axes.set_title(tables.digits(2)(rho), loc="right", pad=2, **ink())
    axes.set_facecolor("none")
    axes.grid(color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(colors=FAINT, labelcolor=INK, labelsize=SMALL)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.locator_params(nbins=4)


def grid(
    panels: int,
    legend: Sequence[str] = (),
    *,
    across: int = 3,
    cell=(3.1, 2.3),
    alone: float = 5.0,
    **shared,
) -> tuple[Figure, np.ndarray]:
    """Gives a figure that lays itself out, and axes (rows, columns), those left over off.

    legend: the names that `legend_above` will have, for which there is room. alone: the
    width in inches of a single column. shared: such as sharey=True.
    """
    columns = min(across, panels)
    rows = math.ceil(panels / columns)
    width = cell[0] * columns + 0.2 if columns > 1 else alone
    lines_above = math.ceil(len(legend) / _beside(legend, width))
    fig = blank(width, cell[1] * rows + 0.2 * lines_above + 0.2, layout="constrained")
    with mpl.rc_context(dict(STYLE)):
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
) -> Figure:
    """Draws a panel under each title, by `draw(axes, what)`.

    labels: of the axes x and y. legend: how names look. cells: as `grid` takes them.
    """
    fig, every = grid(len(panels), tuple(legend), **cells)
    for axes, (title, what) in zip(every.flat, panels.items(), strict=False):
        draw(axes, what)
        axes.set_title(plain([str(title)])[0], loc="left", **ink(9))
    label_edges(every, len(panels), *labels)
    legend_above(fig, legend)
    return laid_out(fig)


def label_edges(cells: np.ndarray, panels: int, x: str, y: str) -> None:
    """Names the axes of a grid at its left and its foot, unless names are empty."""
    for axes in list(cells.flat)[max(panels - cells.shape[1], 0) : panels] if x else ():
        axes.set_xlabel(x, **ink())
    for axes in cells[:, 0] if y else ():
        axes.set_ylabel(y, **ink())


def legend_above(fig: Figure, legend: Mapping[str, mpl_artist.Artist]) -> None:
    """Puts a legend above a grid, as many names side by side as it has room for."""
    beside = _beside(legend, fig.get_size_inches()[0])
    look = dict(frameon=False, labelcolor=INK, fontsize=SMALL, ncols=beside)
    names = plain(legend)
    fig.legend([*legend.values()], names, loc="outside upper left", **look)


def _beside(names: Collection[str], width: float) -> int:
    """Gives how many names of a legend stand side by side."""
    return max(1, int(width / (0.55 + 0.072 * max(map(len, names), default=1))))


def laid_out(fig: Figure) -> Figure:
    """Lays a constrained figure out once, not again for every format."""
    with mpl.rc_context(dict(STYLE)):
        literal(fig).draw_without_rendering()
    fig.set_layout_engine("none")
    return fig
