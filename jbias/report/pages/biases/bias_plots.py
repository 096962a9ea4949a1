"""Functions that draw figures of many models by category, and filtered photographs."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, UInt8

from jbias.data import decoding
from jbias.data.forms import listing
from jbias.measures import spectral_bias
from jbias.report import image_sheets, plots, tables
from jbias.report.pages.correlations import correlation_plots

Figure, Image = plots.Figure, Float[np.ndarray, "h w c"]
GAIN = (
    6  # High-pass images are nearly black, so they are drawn brighter by this factor.
)
_PREPROCESS = decoding.Preprocess(size=224, short=256)


class Curves(NamedTuple):
    """Curves of one panel: x values, and a frame with one row per model and one column per x."""

    x: Sequence[float]
    frame: pd.DataFrame  # One row per model, one column per x; NaN leaves a gap.


def curves(
    panels: Mapping[str, Curves],
    categories: pd.Series,
    labels: tuple[str, str],
    *,
    is_log: bool = False,
) -> Figure:
    """Return a figure of curves: thin lines for models, thick lines for means over a category.

    panels: curves by title of the panel. categories: category of each model, in the order of the
    rows of the frames. labels: labels of the x and y axes. is_log: True for an x axis to base 2
    with a tick at each x.
    """
    looks = plots.marks(categories)

    def draw(axes: plots.Axes, panel: Curves) -> None:
        for name, look in looks.items():
            values = panel.frame[(categories == name).to_numpy()]
            axes.plot(panel.x, values.T, color=look["color"], lw=0.5, alpha=0.35)
            axes.plot(panel.x, values.mean(), lw=1.5, ms=4.5, mew=0, **look)
        if is_log:
            axes.set_xscale("log", base=2)
            axes.set_xticks(panel.x, [f"{x:g}" for x in panel.x])
        else:
            axes.locator_params(nbins=6)

    return plots.multiples(
        panels,
        draw,
        labels,
        plots.handles(looks),
        cell=(4.1, 3.1),
        alone=4.4,
        sharey=True,
    )


def spread(
    frame: pd.DataFrame, names: Sequence[str], categories: pd.Series, *, x: str
) -> Figure:
    """Return a figure with a row per measure, with a box of the quartiles and a marker per model.

    Within a row, each category of models has its own lane.

    frame: one row per model. names: columns of the measures. categories: category of each model,
    indexed as `frame`. x: label of the x axis.
    """
    looks = plots.marks(categories)
    rows = np.arange(len(names))
    cell = (0, 0.5 * len(names) + 0.3)
    fig, ((axes,),) = plots.grid(1, tuple(looks), cell=cell, alone=7.6)
    low, middle, high = frame[names].quantile([0.25, 0.5, 0.75]).to_numpy()
    axes.barh(rows, high - low, 0.8, low, color=plots.FAINT, alpha=0.6)
    axes.vlines(middle, rows - 0.4, rows + 0.4, color=plots.INK, lw=1)
    for k, (name, look) in enumerate(looks.items()):
        lane = rows + 0.72 * ((k + 0.5) / len(looks) - 0.5)
        in_category = (categories == name).to_numpy()
        values = frame.loc[in_category, names].to_numpy(float)
        lanes = np.tile(lane, len(values))
        axes.plot(values.ravel(), lanes, ls="", ms=3.6, mew=0, alpha=0.85, **look)
    axes.grid(visible=False, axis="y")
    axes.set(ylim=(len(names) - 0.45, -0.55))
    axes.set_yticks(rows, plots.plain(names), fontsize=plots.SMALL)
    axes.tick_params(axis="y", length=0)
    axes.locator_params(axis="x", nbins=8)
    axes.set_xlabel(x, **plots.ink())
    plots.legend_above(fig, plots.handles(looks))
    return plots.laid_out(fig)


def pairs(
    frame: pd.DataFrame,
    names: Sequence[str],
    categories: pd.Series,
    *,
    sizes: pd.Series,
    rho: pd.DataFrame,
) -> Figure:
    """Return a figure of scatter plots of all pairs of measures, with rho above the diagonal.

    frame: one row per model. names: columns of the measures. categories: category of each model.
    sizes: size of each model for its marker, as in `correlation_plots.areas_of`; NaN for the usual
    size. rho: rank correlations, indexed by measure in rows and columns.

    Cells on the diagonal have the name and the range of a measure; each scatter plot spans the
    ranges of its two measures.
    """
    looks = plots.marks(categories)
    n = len(names)
    side = n * max(0.9, min(1.5, 10 / n))
    fig, ((axes,),) = plots.grid(1, tuple(looks), cell=(0, side), alone=side)
    axes.set_axis_off()
    axes.set(xlim=(0, n), ylim=(n, 0))
    for draw in (axes.hlines, axes.vlines):
        draw(range(n + 1), 0, n, color=plots.FAINT, lw=0.7, clip_on=False)
    values = frame[names].to_numpy(float)
    low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)

    def write(x: float, y: float, text: str, size: float) -> None:
        axes.text(x, y, text, fontsize=size, color=plots.INK, ha="center", va="center")

    for i, name in enumerate(names):
        write(i + 0.5, i + 0.41, name, plots.SMALL)
        write(i + 0.5, i + 0.62, f"{low[i]:.1f} to {high[i]:.1f}", plots.SMALL)
        for j in range(i + 1, n):
            write(j + 0.5, i + 0.5, tables.digits(2)(rho.loc[name, names[j]]), 9)
    scaled = 0.1 + 0.8 * (values - low) / np.where(high > low, high - low, 1)
    areas = correlation_plots.areas_of(sizes) / 2
    i, j = np.tril_indices(n, -1)
    for name, look in looks.items():
        in_category = (categories == name).to_numpy()
        x, y = j + scaled[in_category][:, j], i + 1 - scaled[in_category][:, i]
        area = np.broadcast_to(areas[in_category, None], x.shape)
        axes.scatter(x, y, s=area, alpha=0.75, linewidths=0, **look)
    plots.legend_above(fig, plots.handles(looks))
    return plots.laid_out(fig)


def read_photographs(folder: str) -> list[Image]:
    """Return the first three photographs of a folder by path, each (224, 224, 3) in [0, 1].

    The short side is resized to 256 pixels, then the centre is cropped. Folders in `folder` are
    searched, too; the list is shorter for fewer photographs. Raises ValueError for a folder without
    images, and for an image that cannot be read.
    """
    files = pathlib.Path(folder).rglob("*")
    paths = sorted(path for path in files if listing.is_image(path.name))
    if not paths:
        raise ValueError(
            f"{folder}: must hold .jpg or .png files, or other images, got none"
        )
    return [decoding.read(str(path), _PREPROCESS) / 255 for path in paths[:3]]


def stimuli(images: Sequence[Image]) -> Figure:
    """Return a figure of photographs: unchanged, and after each low-pass and high-pass filter.

    There is a row per photograph and a column per filter. Low-pass images have every second pixel,
    high-pass images are multiplied by `GAIN`. images: (h, w, c) in [0, 1].
    """
    columns: dict[str, list] = {"unchanged": [_to_bytes(image) for image in images]}
    for cut in spectral_bias.CONVENTIONS[""]:
        # Every second pixel is enough for low frequencies, and makes a smaller page.
        columns[f"low-pass {cut:g}"] = [
            _to_bytes(filtered(image, cut, high=False)[::2, ::2]) for image in images
        ]
    for cut in spectral_bias.CONVENTIONS[""]:
        columns[f"high-pass, × {GAIN}: {cut:g}"] = [
            _to_bytes(GAIN * filtered(image, cut, high=True)) for image in images
        ]
    return image_sheets.draw(columns, across=6)


def _to_bytes(image: Image) -> UInt8[np.ndarray, "h w c"]:
    """Return an image as bytes from 0 to 255; values are clipped to [0, 1] first."""
    return np.rint(255 * np.clip(image, 0, 1)).astype(np.uint8)


def filtered(image: Image, cut: float, *, high: bool) -> Image:
    """Return a filtered image: low-pass, or high-pass if `high`.

    image: (h, w, c) in [0, 1]. cut: share of each axis' frequencies that remains, from 0 to 1. A
    low-pass filter keeps the frequencies -r to r - 1 with r = int(cut * (side // 2)); a high-pass
    filter removes these frequencies, with r = int((1 - cut) * (side // 2)). The real part is
    clipped to [0, 1]. Source: Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509,
    section 3.
    """
    spectrum = np.fft.fftshift(np.fft.fft2(image, axes=(0, 1)), axes=(0, 1))
    height, width = image.shape[:2]
    box = np.zeros((height, width), bool)
    y, x = height // 2, width // 2
    ry = spectral_bias.radius(cut, height, high=high)
    rx = spectral_bias.radius(cut, width, high=high)
    box[y - ry : y + ry, x - rx : x + rx] = True
    spectrum *= (box ^ high)[..., None]
    image = np.fft.ifft2(np.fft.ifftshift(spectrum, axes=(0, 1)), axes=(0, 1))
    return np.clip(image.real, 0, 1)
