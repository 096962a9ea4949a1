"""Images side by side: what a probe shows of a few, or where the evidence lies in them."""

import functools
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from jaxtyping import Float, Shaped, UInt8
from matplotlib import figure as mpl_figure
from matplotlib import font_manager
from matplotlib.backends import backend_agg

from jbias.report import plots

# Pixels of a PNG: all boxes are whole ones, so that no picture is resampled there.
DPI = 200
GAP, NAME, LINE, EDGE = 8, 180, 26, 8
TITLE, NAMES, HEAD, BELOW = 8, 7, 6, 6  # Points of text.
MAPS = "magma"  # From black, nothing, to nearly white.
MARKS = {None: "", True: "✓ ", False: "✗ "}
COLOURS = {None: plots.INK, True: "#1d7a4f", False: "#b3372f"}


class Note(NamedTuple):
    """What stands below a picture, a line each; `right` marks the last."""

    lines: tuple[str, ...]
    right: bool | None = None

    def wrapped(self, width: int) -> "Note":
        """The same in lines of at most so many pixels, with the mark."""
        marked = [*self.lines[:-1], f"{MARKS[self.right]}{self.lines[-1]}"]
        lines = itertools.chain(*(wrapped(one, width, BELOW) for one in marked))
        return self._replace(lines=tuple(lines))


def draw(
    columns: Mapping[str, Sequence[Shaped[np.ndarray, "h w *c"]]],
    names: Sequence[str] = (),
    *,
    notes: Mapping[str, Sequence[Note]] | None = None,
    title: str = "",
    foot: str = "",
    least: int = 128,
    across: int = 20,
) -> mpl_figure.Figure:
    """Draws a row an image and a column a condition, under its name.

    columns: by name, each with as many pictures: images (h, w, 3) in [0, 1] or of bytes,
      maps (h, w) in [0, 1], in colours, or masks (h, w) of bools, white where True.
    names: of the rows. notes: of some columns, below each picture.
    least: a pixel of a picture is a square of as many of the PNG's as make the picture at
      least so wide. across: more columns go on below.
    ValueError for columns of other lengths, and for none.
    """
    notes = notes or {}
    _check([*columns.values(), *notes.values()], names)
    cell, below = _cell(columns, least), {}
    for name, column in notes.items():
        below[name] = [one.wrapped(cell.width) for one in column]
    lines = max((len(one.lines) for of in below.values() for one in of), default=0)
    cell = cell._replace(below=LINE * lines)
    bands, left = _bands(list(columns), across), NAME if names else EDGE
    width = left + max(map(len, bands)) * (cell.width + GAP) + EDGE
    width = max(width, 3 * NAME)
    above = wrapped(title, width - 2 * EDGE, TITLE)
    under = wrapped(foot, width - 2 * EDGE, NAMES)
    heads = [[wrapped(name, cell.width + 4, HEAD) for name in band] for band in bands]
    tops = [LINE * max(map(len, head)) + GAP for head in heads]
    body = len(next(iter(columns.values()))) * cell.row + GAP
    height = 2 * EDGE + sum(tops) + len(bands) * body + LINE * len(above + under)
    with mpl.rc_context(dict(plots.STYLE)):
        fig = mpl_figure.Figure(figsize=(width / DPI, height / DPI), dpi=DPI)
        backend_agg.FigureCanvasAgg(fig)
        page, y = _Page(fig, width, height), EDGE
        page.text(EDGE, y, above, ha="left", size=TITLE)
        y += LINE * len(above)
        for band, head, top in zip(bands, heads, tops):
            y += top
            for i, name in enumerate(names):
                told = wrapped(name, left - 2 * GAP, NAMES)
                middle = y + i * cell.row + cell.height // 2
                page.text(left - GAP, middle, told, ha="right", va="center")
            for j, name in enumerate(band):
                x = left + j * (cell.width + GAP)
                page.head(x, y, cell, head[j])
                page.column(x, y, cell, columns[name], below.get(name, ()))
            y += body
        page.text(EDGE, y, under, ha="left")
    return plots.literal(fig)


def over(
    image: Float[np.ndarray, "h w 3"], weight: Float[np.ndarray, "h w"]
) -> UInt8[np.ndarray, "h w 3"]:
    """Lays a map in [0, 1], in its colours, over a grey image in [0, 1]."""
    grey = np.asarray(image, np.float64) @ [0.299, 0.587, 0.114]
    colour = mpl.colormaps[MAPS](np.clip(weight, 0, 1))[..., :3]
    return np.rint(255 * (0.4 * grey[..., None] + 0.6 * colour)).astype(np.uint8)


def wrapped(text: str, width: float, size: float) -> list[str]:
    """Text in lines of at most so many pixels, cut at spaces, and after _, / and - in words.

    size: in points. What is longer still is cut anywhere; no text is no line.
    """
    lines = [""]
    for part in re.findall(r"\s+|\S+?(?:[_/-](?=[^\W\d])|(?=\s|$))", text.strip()):
        if lines[-1] and _wide(lines[-1] + part.rstrip(), size) > width:
            lines.append("")
            part = part.lstrip()
        while _wide(part, size) > width and len(part) > 1:
            fits = max(
                1, sum(_wide(part[:n], size) <= width for n in range(1, len(part)))
            )
            lines[-1], part = part[:fits], part[fits:]
            lines.append("")
        lines[-1] += part
    return [line.rstrip() for line in lines if line.strip()]


@functools.cache
def _wide(text: str, size: float) -> float:
    """How many pixels a line of text takes."""
    font = font_manager.get_font(font_manager.findfont(plots.STYLE["font.family"]))
    font.set_size(size, DPI)
    font.set_text(*plots.plain([text]))
    return font.get_width_height()[0] / 64


class _Cell(NamedTuple):
    """Pixels of a picture, and of what stands below it."""

    width: int
    height: int
    below: int = 0

    @property
    def row(self) -> int:
        return self.height + self.below + GAP


class _Page(NamedTuple):
    """A figure whose unit is a pixel, from the upper left."""

    fig: mpl_figure.Figure
    width: int
    height: int

    def text(self, x, y, lines, *, ha, va="top", size=NAMES, color=plots.INK) -> None:
        place = (x / self.width, 1 - y / self.height)
        look = dict(ha=ha, va=va, fontsize=size, color=color, linespacing=1.1)
        if lines:
            self.fig.text(*place, "\n".join(plots.plain(lines)), **look)

    def head(self, x: int, y: int, cell: _Cell, lines: list[str]) -> None:
        look = dict(ha="center", va="bottom", size=HEAD)
        self.text(x + cell.width // 2, y - GAP // 2, lines, **look)

    def column(self, x: int, y: int, cell: _Cell, pictures, notes) -> None:
        for i, one in enumerate(pictures):
            self.picture(x, y + i * cell.row, cell, np.asarray(one))
        for i, note in enumerate(notes):
            place = x + cell.width // 2, y + i * cell.row + cell.height + 2
            look = dict(ha="center", size=BELOW, color=COLOURS[note.right])
            self.text(*place, note.lines, **look)

    def picture(self, x: int, y: int, cell: _Cell, one: np.ndarray) -> None:
        """Draws pixels as squares, so that small images stay sharp."""
        if one.ndim == 2:
            kind = dict(cmap="gray" if one.dtype == bool else MAPS, vmin=0, vmax=1)
        else:
            kind = {}
            if one.dtype != np.uint8:
                one = np.rint(255 * np.clip(one, 0, 1)).astype(np.uint8)
        low = self.height - y - cell.height
        box = (x / self.width, low / self.height)
        box += (cell.width / self.width, cell.height / self.height)
        axes = self.fig.add_axes(box)
        axes.imshow(one, interpolation="none", **kind)
        axes.set_axis_off()


def _cell(columns: Mapping[str, Sequence], least: int) -> _Cell:
    shapes = [np.shape(one) for one in itertools.chain(*columns.values())]
    high, wide = (max(shape[i] for shape in shapes) for i in (0, 1))
    scale = math.ceil(least / wide)
    return _Cell(scale * wide, scale * high)


def _check(several: Sequence[Sequence], names: Sequence[str]) -> None:
    counts = {len(column) for column in several}
    if len(counts) != 1 or 0 in counts or names and {len(names)} != counts:
        raise ValueError(
            "contact_sheet: columns must be of the same number of pictures, at least one,"
            f" and names as many, got {sorted(counts)} and {len(names)}"
        )


def _bands(names: Sequence[str], across: int) -> list[list[str]]:
    """Columns by bands: those that differ in the last number alone stay together."""
    bands: list[list[str]] = [[]]
    for _, several in itertools.groupby(names, _kind):
        kind = list(several)
        if bands[-1] and len(bands[-1]) + len(kind) > across:
            bands.append([])
        while len(bands[-1]) + len(kind) > across:
            bands[-1] += kind[:across]
            kind = kind[across:]
            bands.append([])
        bands[-1] += kind
    return [band for band in bands if band]


def _kind(name: str) -> str:
    return re.sub(r"[\s-][\d.]+$", "", name)
