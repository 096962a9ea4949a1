"""Figures of many models by category: curves, spreads, pairs; and filtered photographs."""

import functools
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float, UInt8

from jbias.data import decoding
from jbias.data.forms import listing
from jbias.evals import spectral
from jbias.report import image_sheets, plots, relations, tables

Figure, Image = plots.Figure, Float[np.ndarray, "h w c"]
GAIN = 6  # High-pass images are nearly black, and drawn so many times brighter.
_PREPROCESS = decoding.Preprocess(size=224, short=256)


def curves(panels: Mapping, kinds: pd.Series, labels, *, doubling=False) -> Figure:
    """Draw panels of lines: thin lines are models, thick lines the means of categories.

    panels: by title places on the x axis, and a frame of models with a column for each of
    them; NaN leaves a gap. kinds: the models' categories. labels: of x and y. doubling: equal
    steps of the x axis double the place.
    """
    looks = plots.marks(kinds)

    def draw(axes, panel: tuple[Sequence[float], pd.DataFrame]) -> None:
        places, frame = panel
        for name, look in looks.items():
            mine = frame[(kinds == name).to_numpy()]
            axes.plot(places, mine.T, color=look["color"], lw=0.5, alpha=0.35)
            axes.plot(places, mine.mean(), lw=1.5, ms=4.5, mew=0, **look)
        if doubling:
            axes.set_xscale("log", base=2)
            axes.set_xticks(places, [f"{place:g}" for place in places])
        else:
            axes.locator_params(nbins=6)

    how = dict(cell=(4.1, 3.1), alone=4.4, sharey=True)
    return plots.multiples(panels, draw, labels, plots.handles(looks), **how)


def spread(frame: pd.DataFrame, names, kinds: pd.Series, *, x: str) -> Figure:
    """Draw one row per measure: a box over the quartiles, and models in lanes of categories."""
    looks, rows = plots.marks(kinds), np.arange(len(names))
    cell = (0, 0.5 * len(names) + 0.3)
    fig, ((axes,),) = plots.grid(1, tuple(looks), cell=cell, alone=7.6)
    low, middle, high = frame[names].quantile([0.25, 0.5, 0.75]).to_numpy()
    axes.barh(rows, high - low, 0.8, low, color=plots.FAINT, alpha=0.6)
    axes.vlines(middle, rows - 0.4, rows + 0.4, color=plots.INK, lw=1)
    for k, (name, look) in enumerate(looks.items()):
        lane = rows + 0.72 * ((k + 0.5) / len(looks) - 0.5)
        mine = frame.loc[(kinds == name).to_numpy(), names].to_numpy(float)
        places = mine.ravel(), np.tile(lane, len(mine))
        axes.plot(*places, ls="", ms=3.6, mew=0, alpha=0.85, **look)
    axes.grid(visible=False, axis="y")
    axes.set(ylim=(len(names) - 0.45, -0.55))
    axes.set_yticks(rows, plots.plain(names), fontsize=plots.SMALL)
    axes.tick_params(axis="y", length=0)
    axes.locator_params(axis="x", nbins=8)
    axes.set_xlabel(x, **plots.ink())
    plots.legend_above(fig, plots.handles(looks))
    return plots.laid_out(fig)


def pairs(frame, names, kinds, sizes: pd.Series, rho: pd.DataFrame) -> Figure:
    """Draw scatter plots of all pairs of measures below the diagonal, and rho above it.

    The diagonal names the measure of its row and column, and its range, which fills a cell.
    Cells have side 1, the first on top.
    """
    looks, n = plots.marks(kinds), len(names)
    side = n * max(0.9, min(1.5, 10 / n))
    fig, ((axes,),) = plots.grid(1, tuple(looks), cell=(0, side), alone=side)
    axes.set_axis_off()
    axes.set(xlim=(0, n), ylim=(n, 0))
    for draw in (axes.hlines, axes.vlines):
        draw(range(n + 1), 0, n, color=plots.FAINT, lw=0.7, clip_on=False)
    values = frame[names].to_numpy(float)
    low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    middle = dict(color=plots.INK, ha="center", va="center")
    for i, name in enumerate(names):
        for below, text in ((0.41, name), (0.62, f"{low[i]:.1f} to {high[i]:.1f}")):
            axes.text(i + 0.5, i + below, text, fontsize=plots.SMALL, **middle)
        for j in range(i + 1, n):
            told = tables.digits(2)(rho.loc[name, names[j]])
            axes.text(j + 0.5, i + 0.5, told, fontsize=9, **middle)
    places = 0.1 + 0.8 * (values - low) / np.where(high > low, high - low, 1)
    areas, (i, j) = relations.areas_of(sizes) / 2, np.tril_indices(n, -1)
    for name, look in looks.items():
        mine = (kinds == name).to_numpy()
        x, y = j + places[mine][:, j], i + 1 - places[mine][:, i]
        area = np.broadcast_to(areas[mine, None], x.shape)
        axes.scatter(x, y, s=area, alpha=0.75, linewidths=0, **look)
    plots.legend_above(fig, plots.handles(looks))
    return plots.laid_out(fig)


def read_photographs(folder: str) -> list[Image]:
    """Return the first three photographs of a folder in [0, 1], cropped as for networks.

    Raises ValueError where there is none, or one that cannot be read.
    """
    paths = pathlib.Path(folder).rglob("*")
    found = sorted(path for path in paths if listing.is_image(path.name))
    if not found:
        raise ValueError(
            f"{folder}: must hold .jpg or .png files, or other images, got none"
        )
    return [decoding.read(str(path), _PREPROCESS) / 255 for path in found[:3]]


def stimuli(images: Sequence[Image]) -> Figure:
    """Draw each photograph before and after filtering."""
    columns: dict[str, list] = {"as it is": [*map(_bytes, images)]}
    for kind, high in (("low-pass", False), (f"high-pass, × {GAIN}:", True)):
        for cut in spectral.CONVENTIONS[""]:
            kept = functools.partial(filtered, cut=cut, high=high)
            # Half the pixels hold all that low frequencies have, and make a smaller page.
            step, gain = (1, GAIN) if high else (2, 1)
            shown = [gain * kept(image)[::step, ::step] for image in images]
            columns[f"{kind} {cut:g}"] = [*map(_bytes, shown)]
    return image_sheets.draw(columns, across=6)


def _bytes(image: np.ndarray) -> UInt8[np.ndarray, "h w c"]:
    return np.rint(255 * np.clip(image, 0, 1)).astype(np.uint8)


def filtered(image: Image, cut: float, *, high: bool) -> Image:
    """Return images with the inner share `cut` of each axis' frequencies, or the outer one.

    The box holds frequencies -r to r - 1, r = int(cut * half the side); of the high-pass it is
    what goes, with 1 - cut. The real part is clipped to [0, 1].
    Source: Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509, section 3.
    """
    spectrum = np.fft.fftshift(np.fft.fft2(image, axes=(0, 1)), axes=(0, 1))
    box = np.zeros(image.shape[:2], bool)
    (y, x), sides = np.array(box.shape) // 2, box.shape
    ry, rx = (spectral.radius(cut, side, high=high) for side in sides)
    box[y - ry : y + ry, x - rx : x + rx] = True
    spectrum *= (box ^ high)[..., None]
    back = np.fft.ifft2(np.fft.ifftshift(spectrum, axes=(0, 1)), axes=(0, 1))
    return np.clip(back.real, 0, 1)
