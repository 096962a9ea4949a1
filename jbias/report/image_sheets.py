"""Figures of images side by side: stimuli of probes, and saliency maps of networks."""

import functools
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from jaxtyping import Bool, Float, Shaped, UInt8
from matplotlib import font_manager

from jbias.report import plots

# Pixels per inch of a PNG: boxes have integer pixels, so that pictures are not resampled.
DPI = 200
GAP, NAME, LINE, EDGE = 8, 180, 26, 8
TITLE, NAMES, HEAD, BELOW = 8, 7, 6, 6  # Points of text.
MAPS = "magma"  # From black, nothing, to nearly white.
MARKS = {None: "", True: "✓ ", False: "✗ "}
COLOURS = {None: plots.INK, True: "#1d7a4f", False: "#b3372f"}
_NOTHING: Mapping = MappingProxyType({})


class Note(NamedTuple):
    """Text lines below a picture; `right` adds a mark to the last line."""

    lines: tuple[str, ...]
    right: bool | None = None


class Seen(NamedTuple):
    """A network's saliency maps of n images, and its decisions."""

    maps: Float[np.ndarray, "n h w"]
    decided: Sequence[str]  # Names of classes.
    chance: Float[np.ndarray, "n"]  # Probability of the decision.
    right: Bool[np.ndarray, "n"]


class Mean(NamedTuple):
    """Mean saliency map of `count` images, of which `empty` have an empty map."""

    map: Float[np.ndarray, "h w"]
    count: int
    empty: int


def saliency(
    images: Float[np.ndarray, "n h w 3"],
    names: Sequence[str],
    seen: Mapping[str, Seen],
    *,
    title: str,
) -> plots.Figure:
    """Draw saliency maps: a row per image, a column per network, decisions below.

    names: names of the images. seen: maps and decisions by name of the network.
    """
    columns, notes = {"as it is": images}, {}
    for label, network_maps in seen.items():
        columns[label] = [*map(overlay, images, network_maps.maps)]
        decided = zip(
            network_maps.decided,
            network_maps.chance,
            network_maps.right.tolist(),
            strict=True,
        )
        notes[label] = [Note((name, f"{p:.0%}"), right) for name, p, right in decided]
    foot = "Light is where the evidence for the decision lies; each map's largest value is 1."
    foot += " Below: the decision and its probability."
    return draw(
        columns, names, notes=notes, title=title, foot=foot, least=180, across=12
    )


def mean_maps(means: Mapping[str, Mean], *, title: str) -> plots.Figure:
    """Draw mean maps of networks side by side, on one colour scale."""
    top, columns, notes = max(m.map.max() for m in means.values()) or 1.0, {}, {}
    for label, m in means.items():
        columns[label] = [m.map / top]
        lines = f"to {m.map.max():.2f}", f"{m.empty} of {m.count} empty"
        notes[label] = [Note(lines)]
    foot = f"From 0, black, to {top:.2f}, nearly white. Empty maps show no evidence."
    return draw(columns, notes=notes, title=title, foot=foot, least=180, across=12)


def overlay(
    image: Float[np.ndarray, "h w 3"], weight: Float[np.ndarray, "h w"]
) -> UInt8[np.ndarray, "h w 3"]:
    """Return a grey version of an image in [0, 1] under a coloured map in [0, 1]."""
    grey = np.asarray(image, np.float64) @ [0.299, 0.587, 0.114]
    colour = mpl.colormaps[MAPS](np.clip(weight, 0, 1))[..., :3]
    return np.rint(255 * (0.4 * grey[..., None] + 0.6 * colour)).astype(np.uint8)


def draw(
    columns: Mapping[str, Sequence[Shaped[np.ndarray, "h w *c"]]],
    names: Sequence[str] = (),
    *,
    notes: Mapping[str, Sequence[Note]] = _NOTHING,
    title: str = "",
    foot: str = "",
    least: int = 128,
    across: int = 20,
) -> plots.Figure:
    """Draw pictures in a grid: a row per image, a column per condition.

    columns: pictures by title of the column, equally many each: images (h, w, 3) in [0, 1] or
      uint8, maps (h, w) in [0, 1] (coloured), or masks (h, w) of bool (white where True).
    names: names of the rows. notes: texts below the pictures of some columns.
    least: least width of a picture in pixels of the PNG; pixels become squares. across: most
      columns in one band; further columns follow below.
    Raises ValueError for columns of different lengths, and without columns.
    """
    counts = {len(column) for column in (*columns.values(), *notes.values())}
    if len(counts) != 1 or 0 in counts or names and {len(names)} != counts:
        raise ValueError(
            "image_sheets: columns must be of the same number of pictures, at least one, and "
            f"names as many, got {sorted(counts)} and {len(names)}"
        )
    shapes = [np.shape(one) for column in columns.values() for one in column]
    tall, wide = (max(shape[i] for shape in shapes) for i in (0, 1))
    scale = math.ceil(least / wide)
    tall, wide = scale * tall, scale * wide
    below = {name: [_below(x, wide) for x in each] for name, each in notes.items()}
    most = max((len(told) for one in below.values() for told, _ in one), default=0)
    row = tall + LINE * most + GAP
    bands, left = _bands(columns, across), NAME if names else EDGE
    width = max(left + max(map(len, bands)) * (wide + GAP) + EDGE, 3 * NAME)
    room = width - 2 * EDGE
    over, under = wrapped(title, room, TITLE), wrapped(foot, room, NAMES)
    heads = {name: wrapped(name, wide + 4, HEAD) for name in columns}
    tops = [LINE * max(len(heads[name]) for name in band) + GAP for band in bands]
    body = counts.pop() * row + GAP
    height = 2 * EDGE + sum(tops) + len(bands) * body + LINE * len(over + under)
    page = _Page(plots.blank(width / DPI, height / DPI), width, height)
    page.text(EDGE, EDGE, over, TITLE)
    y = EDGE + LINE * len(over)
    for band, top in zip(bands, tops):
        y += top
        for i, name in enumerate(names):
            told = wrapped(name, left - 2 * GAP, NAMES)
            place = left - GAP, y + i * row + tall // 2
            page.text(*place, told, ha="right", va="center")
        for j, name in enumerate(band):
            x = left + j * (wide + GAP)
            middle = x + wide // 2
            page.text(middle, y - GAP // 2, heads[name], HEAD, ha="center", va="bottom")
            for i, one in enumerate(columns[name]):
                page.picture(x, y + i * row, wide, tall, np.asarray(one))
            for i, (told, colour) in enumerate(below.get(name, ())):
                foot_y = y + i * row + tall + 2
                page.text(middle, foot_y, told, BELOW, ha="center", color=colour)
        y += body
    page.text(EDGE, y, under)
    return plots.literal(page.fig)


class _Page(NamedTuple):
    """A figure with positions in pixels from the upper left corner."""

    fig: plots.Figure
    width: int
    height: int

    def text(self, x, y, lines, size=NAMES, *, ha="left", va="top", color=plots.INK):
        """Draw lines of text at a position in pixels; size: in points."""
        place = x / self.width, 1 - y / self.height
        look = dict(ha=ha, va=va, fontsize=size, color=color, linespacing=1.1)
        if lines:
            self.fig.text(*place, "\n".join(plots.plain(lines)), **look)

    def picture(self, x, y, wide, tall, picture: np.ndarray):
        """Draw a picture with square pixels, so that small images stay sharp."""
        kind = {}
        if picture.ndim == 2:
            kind = dict(cmap="gray" if picture.dtype == bool else MAPS, vmin=0, vmax=1)
        elif picture.dtype != np.uint8:
            picture = np.rint(255 * np.clip(picture, 0, 1)).astype(np.uint8)
        corner = x / self.width, 1 - (y + tall) / self.height
        axes = self.fig.add_axes((*corner, wide / self.width, tall / self.height))
        axes.imshow(picture, interpolation="none", **kind)
        axes.set_axis_off()


def _below(note: Note, width: int) -> tuple[list[str], str]:
    """Return a note's lines of at most `width` pixels, with its mark, and its colour."""
    marked = [*note.lines[:-1], f"{MARKS[note.right]}{note.lines[-1]}"]
    lines = [line for text in marked for line in wrapped(text, width, BELOW)]
    return lines, COLOURS[note.right]


def wrapped(text: str, width: float, size: float) -> list[str]:
    """Return text in lines of at most `width` pixels, cut at spaces and after _, / and -.

    size: in points. Longer words are cut anywhere; empty text has no lines.
    """
    lines = [""]
    for part in re.findall(r"\s+|\S+?(?:[_/-](?=[^\W\d])|(?=\s|$))", text.strip()):
        if lines[-1] and _wide(lines[-1] + part.rstrip(), size) > width:
            lines.append("")
            part = part.lstrip()
        while _wide(part, size) > width and len(part) > 1:
            fits = sum(_wide(part[:n], size) <= width for n in range(1, len(part)))
            lines[-1], part = part[: fits or 1], part[fits or 1 :]
            lines.append("")
        lines[-1] += part
    return [line.rstrip() for line in lines if line.strip()]


@functools.cache
def _wide(text: str, size: float) -> float:
    """Return the width of a line of text in pixels; size: in points."""
    font = font_manager.get_font(font_manager.findfont(plots.STYLE["font.family"]))
    font.set_size(size, DPI)
    font.set_text(*plots.plain([text]))
    return font.get_width_height()[0] / 64


def _bands(names: Iterable[str], across: int) -> list[list[str]]:
    """Return names of columns in bands of at most `across`.

    Names that differ only in the last number stay in one band if possible.
    """
    bands: list[list[str]] = [[]]
    for _, kind in itertools.groupby(names, lambda x: re.sub(r"[\s-][\d.]+$", "", x)):
        several = list(kind)
        for start in range(0, len(several), across):
            part = several[start : start + across]
            if len(bands[-1]) + len(part) > across:
                bands.append([])
            bands[-1] += part
    return bands
