"""Figures without global state: a critical-difference diagram and curves over epochs."""

import io
import math
import re
import types
from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import figure as mpl_figure
from matplotlib import font_manager, lines, text, ticker
from matplotlib.backends import backend_agg

# Replaced by the page's own colours where a figure stands in the page.
INK, FAINT = "#1c2128", "#d0d5db"
COLOURS = (
    *("#3b7fd1", "#dd7a12", "#2a9d6a", "#c94f7c"),
    *("#8a63d2", "#1aa0b0", "#a9782a", "#d1493f"),
)
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


def inline(svg: str, title: str, *, name: str = "", told: str = "") -> str:
    """Makes an SVG part of a page: text in the page's colour, named for readers.

    `title` and `told`, what it shows, are HTML already; `name` is the figure's alone.
    """
    svg = svg[svg.index("<svg") :]
    svg = svg.replace(INK, "currentColor").replace(FAINT, "var(--line)")
    # Glyphs and clips of several figures would share their names otherwise.
    prefix = "f" + re.sub(r"\W", "", name or title) + "-"
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = svg.replace('href="#', f'href="#{prefix}').replace("url(#", f"url(#{prefix}")
    end = svg.index(">") + 1
    width = re.search(r'\bwidth="([\d.]+pt)"', svg)[1]
    # The browser shows a title where the pointer rests, so it is short.
    named = f"{svg[:end]}<title>{title}</title><desc>{told}</desc>{svg[end:]}"
    mark = f'<svg role="img" aria-label="{title}" style="--natural:{width}"'
    return named.replace("<svg", mark, 1)


def critical_difference(
    names: Sequence[str],
    ranks: np.ndarray,
    cliques: Sequence[Sequence[int]],
    difference: float,
    *,
    alpha: float,
    colours: Sequence[str],
) -> mpl_figure.Figure:
    """Draws Demsar's diagram: mean ranks on an axis, bars over what does not differ."""
    names = plain(names)
    k, row, bar = len(names), 0.25, 0.12
    longest = max(len(name) for name in names)
    margin = 0.35 + 0.078 * (longest + 6)
    span = max(4.6, 0.15 * (k - 1))
    width, step = 2 * margin + span, math.ceil(0.28 * (k - 1) / span)
    lower = 0.3 + bar * len(cliques) + row * math.ceil(k / 2)
    height = lower + 0.95
    fig, axes = canvas(width, height)

    def place(rank):
        return margin + (rank - 1) / (k - 1) * span

    top = lower
    axes.plot([place(1), place(k)], [top, top], color=INK, linewidth=1.2)
    for rank in range(1, k + 1):
        axes.plot([place(rank)] * 2, [top, top + 0.07], color=INK, linewidth=1)
        if (rank - 1) % step == 0:
            told = {"ha": "center", "va": "bottom", "color": INK}
            axes.text(place(rank), top + 0.12, str(rank), **told)
    _difference_bar(axes, place, top + 0.5, difference, alpha=alpha, k=k)
    for i, clique in enumerate(cliques):
        ends = [place(min(ranks[list(clique)])), place(max(ranks[list(clique)]))]
        y = top - 0.16 - bar * i
        ends = [ends[0] - 0.05, ends[1] + 0.05]
        axes.plot(ends, [y, y], color=INK, linewidth=3.6, solid_capstyle="round")
    first = top - 0.3 - bar * len(cliques)
    order = np.argsort(ranks, kind="stable")
    half = math.ceil(k / 2)
    sides = [
        ("right", margin, order[:half]),
        ("left", margin + span, order[half:][::-1]),
    ]
    for align, edge, members in sides:
        outward = -1 if align == "right" else 1
        for i, member in enumerate(members):
            x, y = place(ranks[member]), first - row * i
            elbow = ([x, x, edge + 0.1 * outward], [top, y, y])
            axes.plot(*elbow, color=colours[member], linewidth=1.1)
            axes.plot(x, top, "o", color=colours[member], markersize=4.5)
            told = [names[member], f"{ranks[member]:.2f}"]
            told = "  ".join(told if align == "right" else told[::-1])
            axes.text(edge + 0.16 * outward, y, told, ha=align, va="center", color=INK)
    return literal(fig)


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
    columns = min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    legend_columns = max(2, columns)
    legend_rows = math.ceil(len(algorithms) / legend_columns)
    width = 3.15 * columns + 0.2 if columns > 1 else 5.2
    height = 2.15 * rows + 0.24 * legend_rows + 0.15
    with mpl.rc_context(dict(STYLE)):
        fig = mpl_figure.Figure(figsize=(width, height), layout="constrained")
        backend_agg.FigureCanvasAgg(fig)
        grid = fig.subplots(rows, columns, squeeze=False)
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        for axes, (title, table) in zip(grid.flat, panels, strict=False):
            _panel(axes, title, table, algorithms, styles, scale, tops.get(title))
        for axes in list(grid.flat)[len(panels) - columns : len(panels)]:
            axes.set_xlabel(label, color=INK, fontsize=8)
        handles = [lines.Line2D([], [], **style) for style in styles]
        fig.legend(
            handles,
            plain(algorithms),
            loc="outside upper left",
            ncols=legend_columns,
            frameon=False,
            labelcolor=INK,
        )
        literal(fig).draw_without_rendering()
    fig.set_layout_engine("none")  # Laid out once, not again for every format.
    return fig


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
    axes.set_facecolor("none")
    axes.grid(color=FAINT, linewidth=0.6)
    axes.tick_params(colors=FAINT, labelcolor=INK, labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.xaxis.set_major_locator(ticker.MaxNLocator(5, integer=True))
    axes.yaxis.set_major_locator(ticker.MaxNLocator(5))


def _difference_bar(axes, place, y, difference, *, alpha, k):
    told = f"CD = {difference:.2f} (α = {alpha:g})"
    if difference > k - 1:
        told += ": wider than the axis, no pair can differ"
    ends = [place(1), place(1 + min(difference, k - 1))]
    axes.plot(ends, [y, y], color=INK, linewidth=1.6)
    for end in ends:
        axes.plot([end, end], [y - 0.05, y + 0.05], color=INK, linewidth=1.6)
    axes.text(ends[0], y + 0.1, told, ha="left", va="bottom", color=INK)


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
    axes.set_facecolor("none")
    axes.grid(color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=FAINT, labelcolor=INK, labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    return axes


def ink(size: float = 8) -> dict:
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
