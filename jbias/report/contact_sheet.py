"""Images side by side: what a probe shows of a few, or where the evidence lies in them."""

import itertools
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from jaxtyping import Float, Shaped, UInt8
from matplotlib import figure as mpl_figure
from matplotlib.backends import backend_agg

from jbias.report import figures

# Pixels of a PNG: all boxes are whole ones, so that no picture is resampled there.
DPI = 200
GAP, NAME, LINE, EDGE = 8, 180, 26, 8
LETTER = 12, 10  # Of text of 7 points, and of 6.5, on average.
MAPS = "magma"  # From black, nothing, to nearly white.
RIGHT, WRONG = "✓", "✗"


class Note(NamedTuple):
    """What stands below a picture, a line each; `right` marks the last."""

    lines: tuple[str, ...]
    right: bool | None = None


def draw(
    columns: Mapping[str, Sequence[Shaped[np.ndarray, "h w *c"]]],
    names: Sequence[str] = (),
    *,
    notes: Mapping[str, Sequence[Note]] | None = None,
    title: str = "",
    foot: str = "",
    least: int = 112,
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
    shapes = [one.shape for one in map(np.asarray, itertools.chain(*columns.values()))]
    high, wide = (max(shape[i] for shape in shapes) for i in (0, 1))
    scale = math.ceil(least / wide)
    cell = _Cell(
        scale * wide,
        scale * high,
        below=LINE
        * max((len(n.lines) for of in notes.values() for n in of), default=0),
    )
    count, left = len(next(iter(columns.values()))), NAME if names else EDGE
    bands = _bands(list(columns), across)
    width = left + max(map(len, bands)) * (cell.width + GAP) + EDGE
    width = max(width, 3 * NAME)
    letters = (width - 2 * EDGE) // LETTER[0]
    above, under = (textwrap.wrap(text, letters) for text in (title, foot))
    heads = [
        [wrapped(name, (cell.width + GAP) // LETTER[1]) for name in band]
        for band in bands
    ]
    tops = [LINE * max(map(len, head)) + GAP for head in heads]
    body = count * (cell.height + cell.below + GAP)
    height = EDGE + sum(tops) + len(bands) * (body + GAP)
    height += LINE * (len(above) + len(under)) + GAP
    with mpl.rc_context(dict(figures.STYLE)):
        fig = mpl_figure.Figure(figsize=(width / DPI, height / DPI))
        backend_agg.FigureCanvasAgg(fig)
        page = _Page(fig, width, height)
        page.text(EDGE, EDGE, above, ha="left", size=8)
        y = EDGE + LINE * len(above) + GAP * bool(above)
        for band, head, top in zip(bands, heads, tops):
            for i, name in enumerate(names):
                middle = y + top + i * (cell.height + cell.below + GAP)
                middle += cell.height // 2
                page.text(
                    left - GAP, middle, wrapped(name, 14), ha="right", va="center"
                )
            for j, (name, told) in enumerate(zip(band, head)):
                x = left + j * (cell.width + GAP)
                middle = x + cell.width // 2
                page.text(
                    middle, y + top - GAP, told, ha="center", va="bottom", size=6.5
                )
                for i, one in enumerate(columns[name]):
                    row = y + top + i * (cell.height + cell.below + GAP)
                    page.picture(x, row, cell, np.asarray(one))
                    if name in notes:
                        page.note(middle, row + cell.height, notes[name][i])
            y += top + body + GAP
        page.text(EDGE, y, under, ha="left")
    return figures.literal(fig)


def over(
    image: Float[np.ndarray, "h w 3"], weight: Float[np.ndarray, "h w"]
) -> UInt8[np.ndarray, "h w 3"]:
    """Lays a map in [0, 1], in its colours, over a grey image in [0, 1]."""
    grey = np.asarray(image, np.float64) @ [0.299, 0.587, 0.114]
    colour = mpl.colormaps[MAPS](np.clip(weight, 0, 1))[..., :3]
    return np.rint(255 * (0.4 * grey[..., None] + 0.6 * colour)).astype(np.uint8)


def wrapped(name: str, letters: int) -> list[str]:
    """A name in lines of at most so many letters, cut at spaces and after _, / and - within words."""
    lines = [""]
    for part in re.findall(r"\s+|\S+?(?:[_/-](?=[^\W\d])|(?=\s|$))", name):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > letters:
            lines.append("")
        part = part if lines[-1] else part.lstrip()
        while len(part) > letters:
            lines[-1], part = part[:letters], part[letters:]
            lines.append("")
        lines[-1] += part
    return [line.rstrip() for line in lines if line.strip()] or [""]


class _Cell(NamedTuple):
    """Pixels of a picture, and of what stands below it."""

    width: int
    height: int
    below: int


class _Page(NamedTuple):
    """A figure whose unit is a pixel, from the upper left."""

    fig: mpl_figure.Figure
    width: int
    height: int

    def text(self, x, y, lines, *, ha, va="top", size=7, color=figures.INK) -> None:
        place = (x / self.width, 1 - y / self.height)
        look = dict(ha=ha, va=va, fontsize=size, color=color, linespacing=1.1)
        if lines:
            self.fig.text(*place, "\n".join(figures.plain(lines)), **look)

    def note(self, x: int, y: int, note: Note) -> None:
        mark = {None: "", True: f"{RIGHT} ", False: f"{WRONG} "}[note.right]
        lines = [*note.lines[:-1], f"{mark}{note.lines[-1]}"]
        colour = {None: figures.INK, True: "#1d7a4f", False: "#b3372f"}[note.right]
        self.text(x, y + 2, lines, ha="center", size=6, color=colour)

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
