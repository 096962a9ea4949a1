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
from matplotlib import (
    collections,
    colors,
    font_manager,
    lines,
    patches,
    text,
    transforms,
)
from matplotlib import figure as mpl_figure
from matplotlib import path as paths
from matplotlib.backends import backend_agg

from jbias.report import tables

Figure = mpl_figure.Figure
# Replaced by the page's own colours where a figure stands in the page.
INK, FAINT = "#1c2128", "#d0d5db"
COLOURS = ("#3b7fd1", "#dd7a12", "#2a9d6a", "#c94f7c")
COLOURS += ("#8a63d2", "#1aa0b0", "#a9782a", "#d1493f")
ROW, LETTER = 0.27, 0.078
_HOVER = "hover:"  # In an address: words that a mark shows on hover.
_HOVERED = 1200  # Points of a figure that show words; more make a page heavy.
PHONE = 3.4  # What a phone shows side by side.
PAGE = 11.5  # What a page of 1280 pixels shows side by side.
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
    svg = _saved(fig, "svg", nothing, transparent=True).decode()
    # A mark with words is drawn as a link; what a pointer shows is a title.
    # An address with a double quote stands in single ones.
    for quote in ('"', "'"):
        titled = rf"<a xlink:href={quote}{_HOVER}([^{quote}]*){quote}[^>]*>"
        svg = re.sub(titled, r'<g pointer-events="all"><title>\1</title>', svg)
    return svg.replace("</a>", "</g>")


def hover_boxes(
    axes, boxes: Sequence[tuple[float, float, float, float]], words: Sequence[str]
) -> None:
    """Add rectangles (x, y, width, height) that are not seen and show words on hover.

    Only SVG has the words; the other forms show nothing.
    """
    shapes = [patches.Rectangle(box[:2], *box[2:]) for box in boxes]
    _add_hover(axes, collections.PatchCollection(shapes), words)


def hover_points(
    axes, x: Sequence[float], y: Sequence[float], words: Sequence[str], **where: Any
) -> None:
    """Add discs at points that are not seen and show words on hover, as `hover_boxes`.

    where: `transform`, the coordinates of the points, those of the data by default.
    """
    offsets = np.stack([np.asarray(x, float), np.asarray(y, float)], axis=1)
    marks = collections.PathCollection(
        [paths.Path.unit_circle()],
        [60.0],  # Square points: 10 pixels across on a page.
        offsets=offsets,
        offset_transform=where.get("transform", axes.transData),
    )
    marks.set_transform(transforms.IdentityTransform())
    _add_hover(axes, marks, words)


def _add_hover(axes, marks: collections.Collection, words: Sequence[str]) -> None:
    marks.set(facecolor=(0, 0, 0, 0), edgecolor=(0, 0, 0, 0), linewidth=0, zorder=9)
    marks.set_urls([f"{_HOVER}{text}" for text in words])
    marks.set_in_layout(False)
    axes.add_collection(marks, autolim=False)


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
    """Draw Demsar's diagram: mean ranks on an axis, bars under it join what does not differ.

    The best rank is on the left. The better half of the algorithms has its names on the
    left, the best on top; the other half on the right, the worst on top. The bar above the
    axis is as long as the critical difference. Source: Demsar, JMLR 2006, figure 1.
    """
    k, line, gap = len(names), 0.16, 0.07
    order = [int(i) for i in np.argsort(ranks, kind="stable")]
    half = math.ceil(k / 2)
    sides = order[:half], order[half:][::-1]
    broken = [textwrap.wrap(name, 26) or [""] for name in plain(names)]
    rooms = [
        LETTER * max((len(part) for i in side for part in broken[i]), default=0) + 0.6
        for side in sides
    ]
    left, length = rooms[0] + 0.1, max(5.0, 8.6 - sum(rooms))
    right = left + length
    ends = [(min(ranks[list(some)]), max(ranks[list(some)])) for some in cliques]
    lanes = _lanes(sorted(ends))
    rows = [[line * len(broken[i]) + gap for i in side] for side in sides]
    under = 0.12 + 0.1 * len(lanes) + 0.08
    height = 0.75 + under + max(map(sum, rows)) + 0.05
    fig, axes = canvas(right + rooms[1] + 0.1, height)
    top = height - 0.75

    def place(rank):
        return left + (rank - 1) / (k - 1) * length

    _difference_bar(axes, (place(1), top + 0.45), length, difference, k=k, alpha=alpha)
    axes.plot([left, right], [top] * 2, color=INK, linewidth=1.2)
    step = math.ceil(0.24 * (k - 1) / length)
    for rank in range(1, k + 1):
        axes.plot([place(rank)] * 2, [top, top + 0.06], color=INK, linewidth=1)
        if (rank - 1) % step == 0:
            where = {"ha": "center", "va": "bottom"}
            axes.text(place(rank), top + 0.09, str(rank), **where, **ink(9))
    for i, bars in enumerate(lanes):
        y = top - 0.12 - 0.1 * i
        for low, high in bars:
            look = {"linewidth": 3.6, "solid_capstyle": "round"}
            axes.plot([place(low), place(high)], [y] * 2, color=INK, **look)
    for group, (low, high) in zip(cliques, ends, strict=True):
        alike = ", ".join(plain(names[i] for i in group))
        y = top - 0.12 - 0.1 * next(i for i, x in enumerate(lanes) if (low, high) in x)
        box = place(low) - 0.04, y - 0.04, place(high) - place(low) + 0.08, 0.08
        hover_boxes(axes, [box], [f"not significantly different: {alike}"])
    for side, outer, sign in zip(sides, (left, right), (-1, 1), strict=True):
        y = top - under
        for member in side:
            tall = line * len(broken[member]) + gap
            middle, x = y - tall / 2, place(ranks[member])
            look = {"color": colours[member], "linewidth": 1.1}
            axes.plot([x, x, outer + 0.04 * sign], [top, middle, middle], **look)
            axes.plot(x, top, "o", color=colours[member], markersize=4.5)
            where = {"ha": "right" if sign < 0 else "left", "va": "center"}
            mean = f"{ranks[member]:.2f}"
            axes.text(outer + 0.1 * sign, middle, mean, **where, **ink(9))
            name = "\n".join(broken[member])
            axes.text(outer + 0.56 * sign, middle, name, **where, **ink(9))
            words = f"{plain([names[member]])[0]}: mean rank {ranks[member]:.3f}"
            edge = outer + sign * (rooms[sign > 0] - 0.05)
            boxes = [(min(x, edge), middle - tall / 2, abs(edge - x), tall)]
            boxes.append((x - 0.06, top - 0.06, 0.12, 0.12))
            hover_boxes(axes, boxes, [words] * 2)
            y -= tall
    return literal(fig)


def _difference_bar(
    axes, start: tuple[float, float], length: float, difference: float, *, k: int, alpha
) -> None:
    """Draw the critical difference of k mean ranks as a bar that begins at `start`."""
    x, y = start
    words = f"CD = {difference:.2f} (α = {alpha:g})"
    if difference > k - 1:
        words += ": wider than the axis, no pair can differ"
    end = x + min(difference / (k - 1), 1) * length
    axes.plot([x, end], [y] * 2, color=INK, linewidth=1.6, marker="|")
    axes.text(x, y + 0.08, words, va="bottom", **ink(9))


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
            chosen = line.iloc[:: math.ceil(len(frame) / _HOVERED)]
            words = [
                f"{name}: {value:.4g} at {labels[0]} {x:g}"
                for x, value in zip(chosen["x"], chosen["value"], strict=True)
            ]
            hover_points(axes, chosen["x"], chosen["value"], words)
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
            words = [f"{name}: mean {mean:.3f}"]
            hover_points(axes, [mean], [1], words, transform=where["transform"])
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
    axis_names: tuple[str, str] = ("", ""),
):
    """Draws a table as cells, which say their numbers from `least` on, or none; gives these.

    every: so many rows and columns have a name together. axis_names: of rows and columns,
    for the words on hover.
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
    if values.size <= _HOVERED:
        names = [(str(row), str(head)) for row in frame.index for head in frame.columns]
        numbers = ["–" if math.isnan(x) else f"{x:.4g}" for x in values.ravel()]
        rows_are, columns_are = (f"{name} " if name else "" for name in axis_names)
        words = [
            f"{rows_are}{row}, {columns_are}{head}: {number}"
            for (row, head), number in zip(names, numbers, strict=True)
        ]
        cells = [(j - 0.5, i - 0.5, 1, 1) for i, j in np.ndindex(values.shape)]
        hover_boxes(axes, cells, words)
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
    known = [i for i, middle in enumerate(point) if math.isfinite(middle)]
    words = [f"{names[i]}: {shown(point[i], low[i], high[i])}" for i in known]
    hover_points(axes, [point[i] for i in known], known, words)
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
        for name, place, one in zip(names, where, each, strict=True):
            if len(one):
                low, median, high = np.quantile(one, [0.25, 0.5, 0.75])
                words = f"{name}, {kind}: median {median:.3g}, quartiles {low:.3g} to {high:.3g}"
                box = low, place - 0.13, high - low, 0.26
                hover_boxes(axes, [box], [words])
    legend_above(fig, {kind: patches.Patch(**look) for kind, look in looks.items()})
    return laid_out(fig)


def rows(names, legend=(), *, x: str = "", row: float = ROW, room: float = 0.6):
    """Gives a figure and axes with a row for each name, the first on top."""
    wide = 6.5 + LETTER * max(map(len, names))
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
        words = [f"{order[int(i)]}, {name}: {x:.4g}" for (i, *_), x in zip(rows, value)]
        hover_points(axes, value, place, words)
    return legend


def power(grid_of: pd.DataFrame, *, target: float, labels: tuple[str, str]) -> Figure:
    """Draws the power by numbers of data sets and seeds; framed where it is `target`."""
    tall, wide = np.array([0.4, 1.2]) * grid_of.shape
    fig, ((axes,),) = grid(1, cell=(0, tall + 0.6), alone=max(wide + 0.8, PHONE))
    matrix(axes, grid_of, limits=(0, 1), form="{:.2f}", axis_names=labels[::-1])
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
        literal(fig).get_layout_engine().execute(fig)
    fig.set_layout_engine("none")
    return fig
