"""Functions that draw the figures of a report from arrays and frames, without global state.

Rows have a fixed height, so a figure with many algorithms is tall; the page scrolls such a
figure. Lengths are in inches.
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
from matplotlib import axes as mpl_axes
from matplotlib import (
    cm,
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

Figure, Axes = mpl_figure.Figure, mpl_axes.Axes
# Colours of text and of lines; in a page, they become the colours of the page.
INK, FAINT = "#1c2128", "#d0d5db"
COLOURS = (
    "#3b7fd1",
    "#dd7a12",
    "#2a9d6a",
    "#c94f7c",
    "#8a63d2",
    "#1aa0b0",
    "#a9782a",
    "#d1493f",
)
ROW, LETTER = 0.27, 0.078  # Height of a row, width of a letter.
_HOVER = "hover:"  # Start of a link's address that holds the text shown on hover.
_MAX_HOVER = 1200  # Marks of a figure with text on hover; more make the page heavy.
PHONE = 3.4  # Width of a phone.
PAGE = 11.5  # Width of a page of 1280 pixels.
SMALL = 8.5  # Font size in points: 11 pixels on a page without scaling.
_LETTERS_PER_INCH = 12  # Of a title of 9 points.
MARKERS = "osD^vP*X<>ph"
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
_DEPTHS = ["white", COLOURS[0], "#123a66"]
SHADES = colors.LinearSegmentedColormap.from_list("depth", _DEPTHS)
_FONT = {"font.family": "DejaVu Sans", "font.size": 9, "pdf.fonttype": 42}
_SVG = {"svg.fonttype": "path", "svg.hashsalt": "jbias"}
STYLE = types.MappingProxyType(_FONT | _SVG)


def style_of(i: int) -> dict[str, Any]:
    """Return the colour and line style of the i-th algorithm, as arguments of matplotlib."""
    dash = DASHES[i // len(COLOURS) % len(DASHES)]
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": dash}


def styles(names: Iterable[str]) -> dict[str, dict]:
    """Return the style of each name, by name: `style_of(i)` for the i-th name."""
    return {name: style_of(i) for i, name in enumerate(names)}


def to_svg(fig: Figure) -> str:
    """Return the figure as SVG text without dates: equal figures give equal text."""
    omitted = ("Creator", "Date", "Format", "Type")
    svg = _saved(fig, "svg", omitted, transparent=True).decode()
    # matplotlib draws a mark with text as a link; browsers show the text of a title on hover.
    # matplotlib puts an address that contains double quotes in single quotes.
    for quote in ('"', "'"):
        titled = rf"<a xlink:href={quote}{_HOVER}([^{quote}]*){quote}[^>]*>"
        svg = re.sub(titled, r'<g pointer-events="all"><title>\1</title>', svg)
    svg = svg.replace("</a>", "</g>")
    # matplotlib names clips after coordinates, whose last bits differ between processes.
    names = re.findall(r'<clipPath id="(p\w+)"', svg)
    numbered = {name: f"clip{number}" for number, name in enumerate(names, 1)}
    return re.sub(r"\bp\w+\b", lambda match: numbered.get(match[0], match[0]), svg)


def hover_boxes(
    axes: Axes, boxes: Sequence[tuple[float, float, float, float]], words: Sequence[str]
) -> None:
    """Add invisible rectangles that show a text on hover; only SVG has these texts.

    axes: matplotlib axes. boxes: (x, y, width, height) in coordinates of the data. words: the text
    of each rectangle.
    """
    shapes = [patches.Rectangle((x, y), width, height) for x, y, width, height in boxes]
    _add_hover(axes, collections.PatchCollection(shapes), words)


def hover_points(
    axes: Axes,
    x: Sequence[float],
    y: Sequence[float],
    words: Sequence[str],
    *,
    transform: transforms.Transform | None = None,
) -> None:
    """Add invisible discs at points (x, y) that show a text on hover; only SVG has these texts.

    axes: matplotlib axes. words: the text of each point. transform: coordinate system of the
    points; None for the coordinates of the data.
    """
    offsets = np.stack([np.asarray(x, float), np.asarray(y, float)], axis=1)
    marks = collections.PathCollection(
        [paths.Path.unit_circle()],
        [60.0],  # Square points: 10 pixels across on a page.
        offsets=offsets,
        offset_transform=transform or axes.transData,
    )
    marks.set_transform(transforms.IdentityTransform())
    _add_hover(axes, marks, words)


def _add_hover(axes: Axes, marks: collections.Collection, words: Sequence[str]) -> None:
    """Make marks invisible and add them to axes, with a text on hover for each mark.

    The limits of the axes are unchanged. words: the text of each mark.
    """
    marks.set(facecolor=(0, 0, 0, 0), edgecolor=(0, 0, 0, 0), linewidth=0, zorder=9)
    marks.set_urls([f"{_HOVER}{text}" for text in words])
    marks.set_in_layout(False)
    axes.add_collection(marks, autolim=False)


def to_pdf(fig: Figure) -> bytes:
    """Return the figure as PDF bytes without a date."""
    return _saved(fig, "pdf", ["CreationDate"])


def to_png(fig: Figure) -> bytes:
    """Return the figure as PNG bytes on white, for slides."""
    return _saved(fig, "png", ["Software"], dpi=200, facecolor="white")


def _saved(fig: Figure, form: str, omitted: Sequence[str], **options) -> bytes:
    """Return the figure as the bytes of a file of format `form`, such as "png".

    omitted: names of metadata to leave out. options: further arguments of `savefig`.
    """
    out = io.BytesIO()
    metadata = dict.fromkeys(omitted)
    with mpl.rc_context(dict(STYLE)):
        fig.savefig(out, format=form, metadata=metadata, **options)
    return out.getvalue()


def inline(
    svg: str, title: str, *, name: str = "", description: str = ""
) -> markupsafe.Markup:
    """Return an SVG as HTML for a page, with text in the page's colour.

    svg: text as returned by `to_svg`. title, description: texts for screen readers. name: unique
    name of the figure on the page (default: the title).
    """
    svg = svg[svg.index("<svg") :]
    svg = svg.replace(INK, "currentColor").replace(FAINT, "var(--line)")
    # Without the prefix, glyphs and clips of several figures would have equal ids.
    encode = lambda match: f"_{ord(match[0]):x}_"
    prefix = "f" + re.sub(r"\W", encode, name or title) + "-"
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = svg.replace('href="#', f'href="#{prefix}').replace("url(#", f"url(#{prefix}")
    end = svg.index(">") + 1
    width = re.search(r'\bwidth="([\d.]+pt)"', svg)[1]
    title = markupsafe.escape(title)
    description = markupsafe.escape(description)
    # Browsers show the title on hover, so it is short.
    texts = f"<title>{title}</title><desc>{description}</desc>"
    tag = f'<svg role="img" aria-label="{title}" style="--natural:{width}"'
    described = f"{svg[:end]}{texts}{svg[end:]}"
    return markupsafe.Markup(described.replace("<svg", tag, 1))


def critical_difference(
    names: Sequence[str],
    ranks: np.ndarray,
    cliques: Sequence[Sequence[int]],
    difference: float,
    *,
    alpha: float,
    colours: Sequence[str],
) -> Figure:
    """Return Demsar's diagram: mean ranks on an axis; bars join algorithms that do not differ.

    names, ranks: at least two algorithms and their mean ranks. cliques: indices of the algorithms
    that a bar joins. difference: the critical difference of mean ranks. alpha: its significance
    level. colours: one per algorithm.

    The best rank is on the left. The better half of the algorithms has its names on the left, the
    best on top; the other half has its names on the right, the worst on top. The bar above the axis
    is as long as the critical difference. Source: Demsar, JMLR 2006, figure 1.
    """
    k = len(names)
    line_height = 0.16
    gap = 0.07
    order = [int(i) for i in np.argsort(ranks, kind="stable")]
    half = math.ceil(k / 2)
    sides = order[:half], order[half:][::-1]
    name_lines = [textwrap.wrap(name, 26) or [""] for name in plain(names)]
    side_widths = [
        LETTER * max((len(line) for i in side for line in name_lines[i]), default=0)
        + 0.6
        for side in sides
    ]
    left = side_widths[0] + 0.1
    length = max(5.0, 8.6 - sum(side_widths))
    right = left + length
    clique_ranks = [ranks[list(clique)] for clique in cliques]
    spans = [(min(members), max(members)) for members in clique_ranks]
    lanes = _lanes(sorted(spans))
    row_heights = [
        line_height * len(lines_of_name) + gap for lines_of_name in name_lines
    ]
    side_height = max(sum(row_heights[i] for i in side) for side in sides)
    bars_height = 0.12 + 0.1 * len(lanes) + 0.08
    height = 0.75 + bars_height + side_height + 0.05
    fig, axes = canvas(right + side_widths[1] + 0.1, height)
    top = height - 0.75

    def x_of(rank: float) -> float:
        return left + (rank - 1) / (k - 1) * length

    _difference_bar(axes, (x_of(1), top + 0.45), length, difference, k=k, alpha=alpha)
    axes.plot([left, right], [top] * 2, color=INK, linewidth=1.2)
    step = math.ceil(0.24 * (k - 1) / length)
    for rank in range(1, k + 1):
        axes.plot([x_of(rank)] * 2, [top, top + 0.06], color=INK, linewidth=1)
        if (rank - 1) % step == 0:
            axes.text(
                x_of(rank), top + 0.09, str(rank), ha="center", va="bottom", **ink(9)
            )
    for i, lane in enumerate(lanes):
        y = top - 0.12 - 0.1 * i
        for low, high in lane:
            axes.plot(
                [x_of(low), x_of(high)],
                [y] * 2,
                color=INK,
                linewidth=3.6,
                solid_capstyle="round",
            )
    for clique, span in zip(cliques, spans, strict=True):
        low, high = span
        clique_names = ", ".join(plain(names[i] for i in clique))
        lane_number = next(i for i, lane in enumerate(lanes) if span in lane)
        y = top - 0.12 - 0.1 * lane_number
        box = x_of(low) - 0.04, y - 0.04, x_of(high) - x_of(low) + 0.08, 0.08
        hover_boxes(axes, [box], [f"not significantly different: {clique_names}"])
    for side, outer, sign in zip(sides, (left, right), (-1, 1), strict=True):
        y = top - bars_height
        edge = outer + sign * (side_widths[sign > 0] - 0.05)
        alignment = "right" if sign < 0 else "left"
        for i in side:
            row_height = row_heights[i]
            middle = y - row_height / 2
            x = x_of(ranks[i])
            axes.plot(
                [x, x, outer + 0.04 * sign],
                [top, middle, middle],
                color=colours[i],
                linewidth=1.1,
            )
            axes.plot(x, top, "o", color=colours[i], markersize=4.5)
            mean_rank = f"{ranks[i]:.2f}"
            name = "\n".join(name_lines[i])
            for distance, text_of_row in ((0.1, mean_rank), (0.56, name)):
                axes.text(
                    outer + distance * sign,
                    middle,
                    text_of_row,
                    ha=alignment,
                    va="center",
                    **ink(9),
                )
            words = f"{plain([names[i]])[0]}: mean rank {ranks[i]:.3f}"
            name_box = (
                min(x, edge),
                middle - row_height / 2,
                abs(edge - x),
                row_height,
            )
            dot_box = (x - 0.06, top - 0.06, 0.12, 0.12)
            hover_boxes(axes, [name_box, dot_box], [words] * 2)
            y -= row_height
    return literal(fig)


def _difference_bar(
    axes: Axes,
    start: tuple[float, float],
    length: float,
    difference: float,
    *,
    k: int,
    alpha: float,
) -> None:
    """Draw the critical difference of k mean ranks as a bar on matplotlib axes.

    start: left end of the bar as (x, y), in inches. length: length of the axis of ranks 1 to k, in
    inches. difference: the critical difference in ranks. alpha: its significance level.
    """
    x, y = start
    words = f"CD = {difference:.2f} (α = {alpha:g})"
    if difference > k - 1:
        words += ": wider than the axis, no pair can differ"
    end = x + min(difference / (k - 1), 1) * length
    axes.plot([x, end], [y] * 2, color=INK, linewidth=1.6, marker="|")
    axes.text(x, y + 0.08, words, va="bottom", **ink(9))


def _lanes(spans: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """Return the intervals of each lane; intervals in one lane are more than 0.5 apart.

    spans: intervals (low, high), sorted.
    """
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
    **options,
) -> Figure:
    """Return a figure with a panel per value of "panel" and a curve per value of "line".

    frame: columns panel, line, x, value and, for curves with bands, std (NaN counts as 0) or low
    and high. looks: style by curve, in the order of the legend. labels: labels of the x and y axes.
    finish: function (axes, rows of their panel) that changes the axes at the end. options:
    arguments of `grid`.
    """
    if "std" in frame:
        low = frame["value"] - frame["std"].fillna(0)
        frame = frame.assign(low=low, high=2 * frame["value"] - low)

    def draw(axes: Axes, rows: pd.DataFrame) -> None:
        for name, line in rows.groupby("line", sort=False, observed=True):
            look = {"marker": "o" if len(line) == 1 else ""} | looks[name]
            line = line.sort_values("x", kind="stable")
            axes.plot(line["x"], line["value"], lw=1.5, ms=4, mew=0, label=name, **look)
            if "low" in line:
                axes.fill_between(
                    line["x"],
                    line["low"],
                    line["high"],
                    color=look["color"],
                    alpha=0.15,
                    lw=0,
                )
            points = line.iloc[:: math.ceil(len(frame) / _MAX_HOVER)]
            words = [
                f"{name}: {value:.4g} at {labels[0]} {x:g}"
                for x, value in zip(points["x"], points["value"], strict=True)
            ]
            hover_points(axes, points["x"], points["value"], words)
        finish(axes, rows)

    panels = dict(iter(frame.groupby("panel", sort=False, observed=True)))
    legend = {name: lines.Line2D([], [], **look) for name, look in looks.items()}
    return multiples(panels, draw, labels, legend, **options)


def histograms(
    panels: Mapping[str, Mapping[str, tuple]], looks: Mapping[str, Mapping], x: str
) -> Figure:
    """Return a figure of histograms of values in [0, 1], in % of images, with a dot at each mean.

    A histogram has 20 bins of equal width. panels: (values, weights or None) by title of the panel,
    then by name. looks: style by name. x: label of the x axis.
    """
    edges = np.linspace(0, 1, 21)

    def draw(axes: Axes, panel: Mapping[str, tuple]) -> None:
        for name, (values, weights) in panel.items():
            look = looks[name]
            counts, _ = np.histogram(values, edges, weights=weights)
            share = 100 * counts / counts.sum()
            axes.stairs(share, edges, color=look["color"], alpha=0.25, fill=True, lw=0)
            axes.stairs(share, edges, lw=1.4, **look)
            transform = axes.get_xaxis_transform()
            mean = np.average(values, weights=weights)
            axes.plot(
                mean,
                1,
                "o",
                color=look["color"],
                markersize=6,
                transform=transform,
                clip_on=False,
            )
            words = [f"{name}: mean {mean:.3f}"]
            hover_points(axes, [mean], [1], words, transform=transform)
        axes.set(xlim=(0, 1), ylim=(0, None))

    legend = {name: lines.Line2D([], [], **look) for name, look in looks.items()}
    return multiples(panels, draw, (x, "images, %"), legend)


def matrix(
    axes: Axes,
    frame: pd.DataFrame,
    *,
    colours: colors.Colormap = SHADES,
    limits: tuple[float, float] = (0, 100),
    form: str = "{:.0f}",
    every: int = 1,
    least: float | None = -math.inf,
    axis_names: tuple[str, str] = ("", ""),
) -> cm.ScalarMappable:
    """Draw a table as coloured cells on matplotlib axes; return the drawn cells, for a colour bar.

    frame: the numbers, NaN for empty cells, which show a dash. colours: matplotlib colour map.
    limits: values of the first and last colour. form: format of numbers. every: only every n-th row
    and column is named. least: smallest value that is written in its cell; None for no numbers.
    axis_names: names of rows and columns, for the text on hover.
    """
    values = frame.to_numpy(float)
    low, high = limits
    if least is None:  # A table with many cells is a smaller file as an image.
        cells = axes.imshow(values, aspect="auto", cmap=colours, vmin=low, vmax=high)
    else:
        y_edges, x_edges = (np.arange(count + 1) - 0.5 for count in values.shape)
        cells = axes.pcolormesh(
            x_edges,
            y_edges,
            values,
            ec="white",
            lw=0.8,
            cmap=colours,
            vmin=low,
            vmax=high,
        )
        axes.set_ylim(y_edges[-1], -0.5)
        _write_numbers(axes, values, cells, form=form, least=least)
    if values.size <= _MAX_HOVER:
        _add_hover_to_cells(axes, frame, axis_names)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    for set_ticks, names in (
        (axes.set_xticks, frame.columns),
        (axes.set_yticks, frame.index),
    ):
        set_ticks(range(0, len(names), every), plain(map(str, names))[::every])
    return cells


def _write_numbers(
    axes: Axes, values: np.ndarray, cells: cm.ScalarMappable, *, form: str, least: float
) -> None:
    """Write the values >= `least` into their cells, and a dash for NaN.

    cells: the drawn cells, for their colours. form: format of numbers.
    """
    for (i, j), value in np.ndenumerate(values):
        if math.isnan(value):
            label = "–"
            colour = INK
        elif value >= least:
            # Black, not INK, on light cells: INK becomes light on a dark page.
            brightness = np.dot(cells.to_rgba(value)[:3], (0.299, 0.587, 0.114))
            colour = "white" if brightness < 0.58 else "#000000"
            number = form.format(value)
            label = number.replace("-", "−" if number.strip("-0.") else "")
        else:
            continue
        axes.text(j, i, label, color=colour, ha="center", va="center", fontsize=SMALL)


def _add_hover_to_cells(
    axes: Axes, frame: pd.DataFrame, axis_names: tuple[str, str]
) -> None:
    """Add a text on hover with row, column and value to each cell of a matrix.

    axes: axes with the cells of `frame`. axis_names: names of rows and columns, as in `matrix`.
    """
    row_axis, column_axis = (f"{name} " if name else "" for name in axis_names)
    words = [
        f"{row_axis}{row}, {column_axis}{column}: "
        f"{'–' if math.isnan(value) else f'{value:.4g}'}"
        for row, row_values in zip(frame.index, frame.to_numpy(float), strict=True)
        for column, value in zip(frame.columns, row_values, strict=True)
    ]
    boxes = [(j - 0.5, i - 0.5, 1, 1) for i, j in np.ndindex(frame.shape)]
    hover_boxes(axes, boxes, words)


def blocks(frame: pd.DataFrame, labels: Sequence[int]) -> Figure:
    """Return a figure of a matrix of correlations in [-1, 1] with framed blocks.

    Rows and columns are numbered from 1. Numbers are written into the cells for up to 30 rows.
    frame: symmetric, with neighbouring rows in a block. labels: number of the block of each row.
    """
    n = len(frame)
    names = [f"{name} {i}" for i, name in enumerate(frame.index, 1)]
    # Beyond 30 rows there is no space for a number in each cell.
    every = math.ceil(n / 30)
    size = 0.37 * min(n, 30)
    width = max(size + LETTER * max(map(len, names)) + 0.3, PHONE)
    fig, ((axes,),) = grid(1, cell=(0, 0.8 * size + 0.3), alone=width)
    matrix(
        axes,
        frame.set_axis(names).set_axis(range(1, n + 1), axis=1),
        colours=mpl.colormaps["RdBu"],
        form="{:.2f}",
        every=every,
        # Beyond these limits colours are too dark for text.
        limits=(-1.19, 1.19),
        least=-math.inf if every == 1 else None,
    )
    axes.tick_params(labelbottom=False, labeltop=True)
    ends = [*np.flatnonzero(np.diff(labels)) + 1, n]
    for start, end in zip([0, *ends], ends):
        square = patches.Rectangle(
            (start - 0.5, start - 0.5),
            end - start,
            end - start,
            fill=False,
            edgecolor=INK,
            lw=1.8,
            clip_on=False,
        )
        axes.add_patch(square)
    return laid_out(fig)


def blank(width: float, height: float, layout: str | None = None) -> Figure:
    """Return a figure without axes.

    width, height: in inches. layout: layout engine of matplotlib; None: no layout.
    """
    with mpl.rc_context(dict(STYLE)):
        fig = Figure(figsize=(width, height), layout=layout)
        backend_agg.FigureCanvasAgg(fig)
    return fig


def ink(size: float = SMALL) -> dict[str, Any]:
    """Return colour and font size of text, as arguments of matplotlib.

    size: font size in points.
    """
    return {"color": INK, "fontsize": size}


def canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """Return (figure, axes): axes that fill the figure and have inches as unit.

    width, height: in inches.
    """
    fig = blank(width, height)
    with mpl.rc_context(dict(STYLE)):
        axes = fig.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.set_axis_off()
    return fig, axes


def literal(fig: Figure) -> Figure:
    """Return the figure, changed in place, with dollar signs in texts shown literally."""
    for label in fig.findobj(text.Text):
        label.set_parse_math(False)
    return fig


def plain(names: Iterable[str]) -> list[str]:
    """Return names on one line each, with U+FFFD for letters that the font lacks."""
    font = font_manager.get_font(font_manager.findfont(STYLE["font.family"]))
    charmap = font.get_charmap()

    def on_one_line(name: str) -> str:
        line = " ".join(name.split())
        return "".join(
            letter if ord(letter) in charmap else "\ufffd" for letter in line
        )

    return [on_one_line(name) for name in names]


def intervals(
    names: Sequence[str],
    point: Float[np.ndarray, "k"],
    low: Float[np.ndarray, "k"],
    high: Float[np.ndarray, "k"],
    *,
    label: str = "",
    digits: int = 2,
) -> Figure:
    """Return a figure with a row per name: a dot with an interval, and the numbers as text.

    point, low, high: the dots and the ends of the intervals; NaN is not drawn. label: label of the
    x axis. digits: number of digits after the point.
    """
    show = tables.interval(tables.digits(digits))
    fig, axes = rows(names, x=label)
    for i, (value, start, end) in enumerate(zip(point, low, high, strict=True)):
        if math.isfinite(value):
            axes.plot([start, end], [i, i], color=COLOURS[0], linewidth=1.8)
        axes.plot(value, i, "o", color=COLOURS[0], markersize=4.5)
        axes.text(
            1.03,
            i,
            show(value, start, end),
            va="center",
            transform=axes.get_yaxis_transform(),
            **ink(9),
        )
    finite = [i for i, value in enumerate(point) if math.isfinite(value)]
    words = [f"{names[i]}: {show(point[i], low[i], high[i])}" for i in finite]
    hover_points(axes, [point[i] for i in finite], finite, words)
    return laid_out(fig)


def variability(
    names: Sequence[str], kinds: Mapping[str, Sequence[np.ndarray]], *, label: str
) -> Figure:
    """Return a figure of box plots of deviations, a row per algorithm and a box per kind.

    Boxes span the quartiles, whiskers all values; values that are not finite are left out. names:
    algorithms. kinds: by kind of deviation, an array of deviations for each algorithm. label: label
    of the x axis.
    """
    looks = {
        kind: {"facecolor": colour, "edgecolor": colour, "alpha": 0.6}
        for kind, colour in zip(kinds, COLOURS)
    }
    fig, axes = rows(names, tuple(kinds), x=label, row=0.42)
    for lane, (kind, arrays) in enumerate(kinds.items()):
        deviations = [np.asarray(array)[np.isfinite(array)] for array in arrays]
        positions = np.arange(len(names)) + 0.38 * lane - 0.19
        axes.boxplot(
            deviations,
            positions=positions,
            orientation="horizontal",
            showfliers=False,
            manage_ticks=False,
            patch_artist=True,
            boxprops=looks[kind],
            whis=(0, 100),
            widths=0.26,
            medianprops={"color": INK},
            whiskerprops={"color": INK},
            capprops={"color": INK},
        )
        for name, y, values in zip(names, positions, deviations, strict=True):
            if len(values):
                low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
                words = f"{name}, {kind}: median {median:.3g}, quartiles {low:.3g} to {high:.3g}"
                hover_boxes(axes, [(low, y - 0.13, high - low, 0.26)], [words])
    legend_above(fig, {kind: patches.Patch(**look) for kind, look in looks.items()})
    return laid_out(fig)


def rows(
    names: Sequence[str],
    legend: Sequence[str] = (),
    *,
    x: str = "",
    row: float = ROW,
    room: float = 0.6,
) -> tuple[Figure, Axes]:
    """Return (figure, axes) with a row for each name, the first on top.

    legend: names that `legend_above` will show. x: label of the x axis. row: height of a row in
    inches. room: height of the other parts of the axes in inches.
    """
    width = 6.5 + LETTER * max(map(len, names))
    cell = 0, row * len(names) + room
    fig, ((axes,),) = grid(1, legend, cell=cell, alone=width)
    axes.set(ylim=(len(names) - 0.5, -0.5))
    axes.set_yticks(range(len(names)), plain(names))
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(x, **ink())
    return fig, axes


def in_lanes(
    axes: Axes,
    order: Sequence[str],
    estimates: Mapping[str, Mapping[str, tuple[float, float, float]]],
    looks: Mapping,
    *,
    unit: float = 100,
) -> dict[str, lines.Line2D]:
    """Draw values with intervals in rows, with a lane in each row for every name of `estimates`.

    Returns the markers for a legend, by name. axes: matplotlib axes, see `rows`. order: names of
    the rows. estimates: (value, low, high) by name, then row; a missing row has no mark. The ends
    may be NaN, and the interval need not contain the value. looks: style by name. unit: factor of
    all numbers; the default turns fractions into per cent.
    """
    legend = {}
    width = 1.0 if len(estimates) > 1 else 1.6
    for lane, (name, by_row) in enumerate(estimates.items()):
        rows = [i for i, row in enumerate(order) if row in by_row]
        numbers = np.reshape([by_row[order[i]] for i in rows], (-1, 3)).astype(float)
        value, low, high = unit * numbers.T
        y = np.array(rows, float) + 0.75 * ((lane + 0.5) / len(estimates) - 0.5)
        has_interval = ~(np.isnan(low) | np.isnan(high))
        axes.hlines(
            y[has_interval],
            low[has_interval],
            high[has_interval],
            colors=looks[name]["color"],
            linewidth=width,
        )
        look = {"ms": 5, "mew": 0, "ls": "", "clip_on": False} | looks[name]
        (legend[name],) = axes.plot(value, y, **look)
        words = [f"{order[i]}, {name}: {x:.4g}" for i, x in zip(rows, value)]
        hover_points(axes, value, y, words)
    return legend


def power(powers: pd.DataFrame, *, target: float, labels: tuple[str, str]) -> Figure:
    """Return a figure of a matrix of power, with a frame around values of at least `target`.

    powers: power from 0 to 1, rows by number of seeds, columns by number of data sets. labels:
    labels of the x and y axes.
    """
    height, width = np.array([0.4, 1.2]) * powers.shape
    fig, ((axes,),) = grid(1, cell=(0, height + 0.6), alone=max(width + 0.8, PHONE))
    matrix(axes, powers, limits=(0, 1), form="{:.2f}", axis_names=labels[::-1])
    for i, j in np.argwhere(powers.to_numpy() >= target):
        frame = patches.Rectangle(
            (j - 0.47, i - 0.47), 0.94, 0.94, fill=False, edgecolor=INK, lw=1.3
        )
        axes.add_patch(frame)
    axes.set_xlabel(labels[0], **ink(9))
    axes.set_ylabel(labels[1], **ink(9))
    return laid_out(fig)


def marked(k: int) -> dict[str, Any]:
    """Return marker and colour of the k-th category, as arguments of matplotlib."""
    return {"marker": MARKERS[k % len(MARKERS)], "color": style_of(k)["color"]}


def marks(
    names: Iterable[str], present: Container[str] | None = None
) -> dict[str, dict]:
    """Return marker and colour, see `marked`, by category.

    names: all categories, which determine markers and colours. present: categories to return; None
    for all.
    """
    return {
        name: marked(k)
        for k, name in enumerate(dict.fromkeys(names))
        if present is None or name in present
    }


def handles(looks: Mapping[str, Mapping]) -> dict[str, lines.Line2D]:
    """Return a marker for the legend by category. looks: styles as returned by `marks`."""
    return {
        name: lines.Line2D([], [], ls="", markersize=5.5, mew=0, **look)
        for name, look in looks.items()
    }


def dress(axes: Axes, rho: float | None = None) -> None:
    """Give matplotlib axes the colours, grid and ticks that all figures have.

    rho: a number to write above the axes; None: no number.
    """
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
    cell: tuple[float, float] = (3.1, 2.3),
    alone: float = 5.0,
    **options,
) -> tuple[Figure, np.ndarray]:
    """Return (figure, axes by row and column) for a number of panels; spare axes are hidden.

    legend: names that `legend_above` will show, for which space is reserved. across: maximal
    number of columns. cell: width and height of a panel in inches. alone: width of a single column
    in inches. options: arguments of `Figure.subplots`, such as sharey=True.
    """
    columns = min(across, panels)
    rows = math.ceil(panels / columns)
    width = cell[0] * columns + 0.2 if columns > 1 else alone
    legend_lines = math.ceil(len(legend) / _legend_columns(legend, width))
    height = cell[1] * rows + 0.2 * legend_lines + 0.2
    fig = blank(width, height, layout="constrained")
    with mpl.rc_context(dict(STYLE)):
        cells = fig.subplots(rows, columns, squeeze=False, **options)
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
    **options,
) -> Figure:
    """Return a figure with one panel per item of `panels`.

    panels: data by title; a title that is wider than its panel is broken into lines. draw: function that draws the data of a panel on axes, called as
    `draw(axes, data)`. labels: labels of the x and y axes. legend: artist by name. options:
    arguments of `grid`.
    """
    fig, cells = grid(len(panels), tuple(legend), **options)
    columns = max(16, int(_LETTERS_PER_INCH * fig.get_figwidth() / cells.shape[1]))
    for axes, (title, data) in zip(cells.flat, panels.items(), strict=False):
        draw(axes, data)
        (line,) = plain([str(title)])
        axes.set_title(textwrap.fill(line, columns), loc="left", **ink(9))
    label_edges(cells, len(panels), x=labels[0], y=labels[1])
    legend_above(fig, legend)
    return laid_out(fig)


def label_edges(cells: np.ndarray, panels: int, x: str, y: str) -> None:
    """Label the axes of a grid at its left and bottom; an empty label is left out.

    cells: axes as returned by `grid`. panels: number of panels. x, y: labels.
    """
    for axes in list(cells.flat)[max(panels - cells.shape[1], 0) : panels] if x else ():
        axes.set_xlabel(x, **ink())
    for axes in cells[:, 0] if y else ():
        axes.set_ylabel(y, **ink())


def legend_above(fig: Figure, legend: Mapping[str, mpl_artist.Artist]) -> None:
    """Add a legend above the panels of a figure, with as many columns as the width allows.

    legend: artist by name.
    """
    fig.legend(
        [*legend.values()],
        plain(legend),
        loc="outside upper left",
        frameon=False,
        labelcolor=INK,
        fontsize=SMALL,
        ncols=_legend_columns(legend, fig.get_size_inches()[0]),
    )


def _legend_columns(names: Collection[str], width: float) -> int:
    """Return the number of columns of a legend. width: width of the figure in inches."""
    return max(1, int(width / (0.55 + 0.072 * max(map(len, names), default=1))))


def laid_out(fig: Figure) -> Figure:
    """Return the figure, changed in place, with a fixed layout and literal dollar signs.

    The layout is computed here once, not again for every file format.
    """
    with mpl.rc_context(dict(STYLE)):
        literal(fig).get_layout_engine().execute(fig)
    fig.set_layout_engine("none")
    return fig
