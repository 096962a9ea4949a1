"""Images side by side: what a probe shows of a few, or where the evidence lies in them."""

import textwrap
from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from jaxtyping import Shaped
from matplotlib import figure as mpl_figure
from matplotlib.backends import backend_agg

from jbias.report import figures

SIDE, GAP, NAME, LINE = 0.62, 0.04, 0.9, 0.13  # Inches.
MAPS = "magma"  # From black, nothing, to nearly white.


def draw(
    columns: Mapping[str, Sequence[Shaped[np.ndarray, "h w *c"]]],
    names: Sequence[str] = (),
) -> mpl_figure.Figure:
    """Draws a row an image and a column a condition, under its name.

    columns: by name, each with as many pictures: images (h, w, 3) in [0, 1] or of bytes,
      maps (h, w) in [0, 1], in colours, or masks (h, w) of bools, white where True.
    names: of the rows. ValueError for columns of other lengths, and for none.
    """
    counts = {len(column) for column in columns.values()}
    count = max(counts, default=0)
    if len(counts) != 1 or not count or names and len(names) != count:
        raise ValueError(
            "contact_sheet: columns must be of the same number of pictures, at least one,"
            f" and names as many, got {sorted(counts)} and {len(names)}"
        )
    titles = [textwrap.wrap(title, 10, break_long_words=False) for title in columns]
    head = LINE * max(1, *map(len, titles)) + GAP
    left = NAME if names else 0
    shapes = [len(one) / len(one[0]) for one in next(iter(columns.values()))]
    tall = SIDE * max(shapes)  # All rows alike, whatever an image's proportion.
    width = left + len(columns) * (SIDE + GAP)
    height = head + count * (tall + GAP)
    with mpl.rc_context(dict(figures.STYLE)):
        fig = mpl_figure.Figure(figsize=(width, height))
        backend_agg.FigureCanvasAgg(fig)
        ink = dict(fontsize=7, color=figures.INK)
        for i, name in enumerate(names):
            y = 1 - (head + i * (tall + GAP) + tall / 2) / height
            fig.text((left - 0.06) / width, y, name, ha="right", va="center", **ink)
        for j, (title, column) in enumerate(zip(titles, columns.values())):
            x = left + j * (SIDE + GAP)
            place = ((x + SIDE / 2) / width, 1 - (head - GAP) / height)
            fig.text(*place, "\n".join(title), ha="center", va="bottom", **ink)
            for i, one in enumerate(column):
                y = height - head - i * (tall + GAP) - tall
                box = (x / width, y / height, SIDE / width, tall / height)
                _picture(fig.add_axes(box), np.asarray(one))
    return figures.literal(fig)


def _picture(axes, one: np.ndarray) -> None:
    """Draws pixels as squares, so that small images stay sharp."""
    if one.ndim == 2:
        kind = dict(cmap="gray" if one.dtype == bool else MAPS, vmin=0, vmax=1)
    else:
        kind = {}
        one = one if one.dtype == np.uint8 else np.clip(one, 0, 1)
    axes.imshow(one, interpolation="nearest", **kind)
    axes.set_axis_off()
