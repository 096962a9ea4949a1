"""Functions that draw images side by side: stimuli of probes, and saliency maps of networks."""

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
MAPS = "magma"  # Colour map from black (0) to nearly white (1).
MARKS = {None: "", True: "✓ ", False: "✗ "}
COLOURS = {None: plots.INK, True: "#1d7a4f", False: "#b3372f"}
_NOTHING: Mapping = MappingProxyType({})


class PictureNote(NamedTuple):
    """Text lines below a picture; `is_correct` adds ✓ or ✗ to the last line, None adds nothing."""

    lines: tuple[str, ...]
    is_correct: bool | None = None


class NetworkMaps(NamedTuple):
    """A network's saliency maps of n images, and its decisions."""

    maps: Float[np.ndarray, "n h w"]
    decisions: Sequence[str]  # Names of classes.
    confidence: Float[np.ndarray, "n"]  # Probability of the decision.
    is_correct: Bool[np.ndarray, "n"]


class MeanMap(NamedTuple):
    """Mean saliency map of `count` images; `empty` is the number of images with an empty map."""

    map: Float[np.ndarray, "h w"]
    count: int
    empty: int


def saliency(
    images: Float[np.ndarray, "n h w 3"],
    names: Sequence[str],
    network_maps: Mapping[str, NetworkMaps],
    *,
    title: str,
) -> plots.Figure:
    """Return a figure of saliency maps: a row per image, a column per network.

    The first column has the images. Below a map are the decision and its probability, with a mark
    for correct or wrong. images: in [0, 1]. names: names of the images. network_maps: maps in
    [0, 1] and decisions, by name of the network. title: title of the figure.
    """
    columns = {"unchanged": images}
    notes = {}
    for network, shown in network_maps.items():
        columns[network] = [
            overlay(image, weight)
            for image, weight in zip(images, shown.maps, strict=True)
        ]
        notes[network] = [
            PictureNote((decision, f"{confidence:.0%}"), is_correct)
            for decision, confidence, is_correct in zip(
                shown.decisions,
                shown.confidence,
                shown.is_correct.tolist(),
                strict=True,
            )
        ]
    foot = "Light pixels are evidence for the decision; the largest value of each map is 1."
    foot += " Below: the decision and its probability."
    return draw(
        columns, names, notes=notes, title=title, foot=foot, min_width=180, across=12
    )


def mean_maps(means: Mapping[str, MeanMap], *, title: str) -> plots.Figure:
    """Return a figure of the mean maps of networks side by side, on one colour scale.

    The scale ends at the largest value of all maps. Below a map are its largest value and the
    number of empty maps. means: mean map by name of the network. title: title of the figure.
    """
    largest = max(mean.map.max() for mean in means.values()) or 1.0
    columns = {}
    notes = {}
    for network, mean in means.items():
        columns[network] = [mean.map / largest]
        lines = f"to {mean.map.max():.2f}", f"{mean.empty} of {mean.count} empty"
        notes[network] = [PictureNote(lines)]
    foot = (
        f"From 0, black, to {largest:.2f}, nearly white. Empty maps show no evidence."
    )
    return draw(columns, notes=notes, title=title, foot=foot, min_width=180, across=12)


def overlay(
    image: Float[np.ndarray, "h w 3"], weight: Float[np.ndarray, "h w"]
) -> UInt8[np.ndarray, "h w 3"]:
    """Return a blend of the grey version of an image in [0, 1] and a coloured map.

    weight: the map, with colours from black (0) to nearly white (1); values are clipped to [0, 1].
    """
    grey = np.asarray(image, np.float64) @ [0.299, 0.587, 0.114]
    colour = mpl.colormaps[MAPS](np.clip(weight, 0, 1))[..., :3]
    return np.rint(255 * (0.4 * grey[..., None] + 0.6 * colour)).astype(np.uint8)


def draw(
    columns: Mapping[str, Sequence[Shaped[np.ndarray, "h w *c"]]],
    names: Sequence[str] = (),
    *,
    notes: Mapping[str, Sequence[PictureNote]] = _NOTHING,
    title: str = "",
    foot: str = "",
    min_width: int = 128,
    across: int = 20,
) -> plots.Figure:
    """Return a figure of pictures in a grid: a row per image, a column per condition.

    columns: pictures by title of the column, the same number in each: images (h, w, 3) in [0, 1]
    or uint8, maps (h, w) in [0, 1] (coloured), or masks (h, w) of bool (white where True).
    names: names of the rows; () for none. notes: texts below the pictures, by title of the column.
    title, foot: text above and below all pictures. min_width: minimal width of a picture in pixels
    of the PNG; pixels become squares. across: maximal number of columns in one band; further
    columns follow below.
    Small pictures are enlarged to the size of the largest. Raises ValueError unless all columns,
    all notes and `names` (if given) have the same length, at least 1.
    """
    counts = {len(column) for column in (*columns.values(), *notes.values())}
    if len(counts) != 1 or 0 in counts or names and {len(names)} != counts:
        raise ValueError(
            "image_sheets: columns must have the same number of pictures, at least one, and "
            f"names the same number, got {sorted(counts)} and {len(names)}"
        )
    shapes = [np.shape(picture) for column in columns.values() for picture in column]
    tall = max(shape[0] for shape in shapes)
    wide = max(shape[1] for shape in shapes)
    scale = math.ceil(min_width / wide)
    tall = scale * tall
    wide = scale * wide
    below = {
        name: [_below(note, wide) for note in column_notes]
        for name, column_notes in notes.items()
    }
    note_lines = [len(lines) for texts in below.values() for lines, _ in texts]
    row = tall + LINE * max(note_lines, default=0) + GAP
    bands = _bands(columns, across)
    left = NAME if names else EDGE
    width = max(left + max(map(len, bands)) * (wide + GAP) + EDGE, 3 * NAME)
    room = width - 2 * EDGE
    over = wrapped(title, room, TITLE)
    under = wrapped(foot, room, NAMES)
    heads = {name: wrapped(name, wide + 4, HEAD) for name in columns}
    tops = [LINE * max(len(heads[name]) for name in band) + GAP for band in bands]
    body = counts.pop() * row + GAP
    height = 2 * EDGE + sum(tops) + len(bands) * body + LINE * len(over + under)
    page = _SheetPage(plots.blank(width / DPI, height / DPI), width, height)
    page.text(EDGE, EDGE, over, TITLE)
    y = EDGE + LINE * len(over)
    for band, top in zip(bands, tops):
        y += top
        for i, name in enumerate(names):
            lines = wrapped(name, left - 2 * GAP, NAMES)
            middle = y + i * row + tall // 2
            page.text(left - GAP, middle, lines, ha="right", va="center")
        for j, name in enumerate(band):
            x = left + j * (wide + GAP)
            middle = x + wide // 2
            page.text(middle, y - GAP // 2, heads[name], HEAD, ha="center", va="bottom")
            for i, picture in enumerate(columns[name]):
                top_edge = y + i * row
                page.picture(np.asarray(picture), x=x, y=top_edge, wide=wide, tall=tall)
            for i, (lines, colour) in enumerate(below.get(name, ())):
                foot_y = y + i * row + tall + 2
                page.text(middle, foot_y, lines, BELOW, ha="center", color=colour)
        y += body
    page.text(EDGE, y, under)
    return plots.literal(page.fig)


class _SheetPage(NamedTuple):
    """A figure of width x height pixels; positions are pixels from the upper left corner."""

    fig: plots.Figure
    width: int
    height: int

    def text(
        self,
        x: float,
        y: float,
        lines: Sequence[str],
        size: float = NAMES,
        *,
        ha: str = "left",
        va: str = "top",
        color: str = plots.INK,
    ) -> None:
        """Draw lines of text at the position (x, y) in pixels; do nothing without lines.

        size: font size in points. ha, va: alignment of the text at the position, as in matplotlib.
        """
        if lines:
            self.fig.text(
                x / self.width,
                1 - y / self.height,
                "\n".join(plots.plain(lines)),
                ha=ha,
                va=va,
                fontsize=size,
                color=color,
                linespacing=1.1,
            )

    def picture(
        self, picture: np.ndarray, *, x: int, y: int, wide: int, tall: int
    ) -> None:
        """Draw a picture with square pixels, so that small images stay sharp.

        picture: see `draw`. x, y: position of the upper left corner in pixels. wide, tall: width
        and height in pixels.
        """
        colours = {}
        if picture.ndim == 2:
            cmap = "gray" if picture.dtype == bool else MAPS
            colours = {"cmap": cmap, "vmin": 0, "vmax": 1}
        elif picture.dtype != np.uint8:
            picture = np.rint(255 * np.clip(picture, 0, 1)).astype(np.uint8)
        left, bottom = x / self.width, 1 - (y + tall) / self.height
        axes = self.fig.add_axes((left, bottom, wide / self.width, tall / self.height))
        axes.imshow(picture, interpolation="none", **colours)
        axes.set_axis_off()


def _below(note: PictureNote, width: int) -> tuple[list[str], str]:
    """Return (lines of a note with its mark, colour of the text).

    width: maximal width of a line in pixels.
    """
    marked = [*note.lines[:-1], f"{MARKS[note.is_correct]}{note.lines[-1]}"]
    lines = [line for text in marked for line in wrapped(text, width, BELOW)]
    return lines, COLOURS[note.is_correct]


def wrapped(text: str, width: float, size: float) -> list[str]:
    """Return text in lines of at most `width` pixels, cut at spaces and after _, / and -.

    A cut after _, / or - is made before a letter only. size: font size in points. Longer words are
    cut anywhere; empty text has no lines.
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
    """Return the width of a line of text in pixels; size: font size in points."""
    font = font_manager.get_font(font_manager.findfont(plots.STYLE["font.family"]))
    font.set_size(size, DPI)
    font.set_text(*plots.plain([text]))
    return font.get_width_height()[0] / 64


def _bands(names: Iterable[str], across: int) -> list[list[str]]:
    """Return names of columns in lists of at most `across` names, one list per band.

    Names that differ only in the last number stay in one band if possible.
    """
    bands: list[list[str]] = [[]]
    for _, kind in itertools.groupby(names, lambda x: re.sub(r"[\s-][\d.]+$", "", x)):
        similar = list(kind)
        for start in range(0, len(similar), across):
            chunk = similar[start : start + across]
            if len(bands[-1]) + len(chunk) > across:
                bands.append([])
            bands[-1] += chunk
    return bands
