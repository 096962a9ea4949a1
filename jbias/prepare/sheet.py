"""Contact sheets: rows and columns of small images, pixel for pixel."""

import os
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import UInt8
from matplotlib import figure

_DPI = 100


def write(
    path: str,
    rows: Mapping[str, Sequence[UInt8[np.ndarray, "h w 3"]]],
    *,
    titles: Sequence[str] = (),
    foot: str = "",
) -> None:
    """Writes a figure: a named row of images for each entry, titles over the columns."""
    cell = next(iter(rows.values()))[0].shape[0]
    cell *= max(1, 64 // cell)  # Whole pixels on whole pixels: nothing is resampled.
    columns = max(len(images) for images in rows.values())
    # A letter of this font is at most nine pixels wide.
    left, top, gap = max(90, 9 * max(map(len, rows)) + 12), 24 if titles else 6, 3
    wide = left + columns * (cell + gap)
    high = top + len(rows) * (cell + gap) + 18
    drawing = figure.Figure(figsize=(wide / _DPI, high / _DPI), dpi=_DPI)
    for i, (name, images) in enumerate(rows.items()):
        for j, image in enumerate(images):
            x, y = left + j * (cell + gap), high - top - cell - i * (cell + gap)
            ax = drawing.add_axes((x / wide, y / high, cell / wide, cell / high))
            ax.imshow(image, interpolation="nearest")
            ax.set_axis_off()
            if i == 0 and titles:
                ax.set_title(titles[j], fontsize=8, pad=4)
        middle = (y + cell / 2) / high
        drawing.text((left - 6) / wide, middle, name, ha="right", va="center", size=9)
    drawing.text(1 - 4 / wide, 5 / high, foot, ha="right", size=5)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    drawing.savefig(path, dpi=_DPI)
