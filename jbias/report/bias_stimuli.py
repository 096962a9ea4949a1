"""What the spectral biases show a network: photographs, low- and high-pass filtered.

Source: Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509, section 3.
"""

import pathlib
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib import figure as mpl_figure
from matplotlib.backends import backend_agg
from PIL import Image

from jbias.report import figures

SIDE = 224  # Pixels.
CUTS = (0.1, 0.2, 0.3, 0.4, 0.5)
_ENDINGS = frozenset({".jpg", ".jpeg", ".png"})


def load(folder: str, most: int = 3) -> list[Float[np.ndarray, "224 224 3"]]:
    """Reads the first photographs of a folder: shorter side to 256, centre cropped, in [0, 1].

    Raises ValueError where there is none, or one that cannot be read.
    """
    found = sorted(
        path
        for path in pathlib.Path(folder).rglob("*")
        if path.suffix.lower() in _ENDINGS
    )
    if not found:
        raise ValueError(f"{folder}: must hold .jpg or .png files, got none")
    return [_photograph(path) for path in found[:most]]


def _photograph(path: pathlib.Path) -> np.ndarray:
    try:
        with Image.open(path) as file:
            image = file.convert("RGB")
    except OSError as error:
        raise ValueError(f"{path}: must be an image, got {error}") from None
    short = min(image.size)
    width, height = (int(256 * size / short) for size in image.size)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = round((width - SIDE) / 2), round((height - SIDE) / 2)
    return np.asarray(image.crop((left, top, left + SIDE, top + SIDE))) / 255


def filtered(
    image: Float[np.ndarray, "h w c"], cut: float, *, high: bool
) -> Float[np.ndarray, "h w c"]:
    """Keeps the inner share `cut` of the frequencies of each axis, or the outer one.

    The box holds frequencies -r to r - 1, r = int(cut * half the side); of the high-pass it is
    what goes, with 1 - cut. The real part is clipped to [0, 1].
    """
    spectrum = np.fft.fftshift(np.fft.fft2(image, axes=(0, 1)), axes=(0, 1))
    box = np.zeros(image.shape[:2], bool)
    middle = [size // 2 for size in box.shape]
    radii = [int((1 - cut if high else cut) * half) for half in middle]
    (y, x), (ry, rx) = middle, radii
    box[y - ry : y + ry, x - rx : x + rx] = True
    kept = spectrum * (~box if high else box)[..., None]
    back = np.fft.ifft2(np.fft.ifftshift(kept, axes=(0, 1)), axes=(0, 1))
    return np.clip(back.real, 0, 1)


def draw(images: Sequence[Float[np.ndarray, "h w c"]]) -> mpl_figure.Figure:
    """Draws each photograph and, beside it, what filters leave of it."""
    side, name, head = 1.15, 0.8, 0.3
    rows, columns = 2 * len(images), 1 + len(CUTS)
    width, height = name + columns * side, head + rows * side
    with mpl.rc_context(dict(figures.STYLE)):
        fig = mpl_figure.Figure(figsize=(width, height))
        backend_agg.FigureCanvasAgg(fig)
        for i, image in enumerate(images):
            for k, kind in enumerate(("low-pass", "high-pass")):
                row = 2 * i + k
                y = 1 - (head + (row + 1) * side) / height
                fig.text(
                    (name - 0.08) / width,
                    y + side / 2 / height,
                    kind,
                    ha="right",
                    va="center",
                    fontsize=8,
                    color=figures.INK,
                )
                shown = [image, *(filtered(image, c, high=k == 1) for c in CUTS)]
                for j, one in enumerate(shown):
                    place = (name + j * side) / width, y, side / width, side / height
                    _picture(fig, place, one)
        for j, told in enumerate(["as it is", *(f"{100 * c:g} %" for c in CUTS)]):
            x = (name + (j + 0.5) * side) / width
            y = 1 - head / 2 / height
            ink = dict(ha="center", va="center", fontsize=8, color=figures.INK)
            fig.text(x, y, told, **ink)
    return figures.literal(fig)


def _picture(fig, place, image: np.ndarray) -> None:
    axes = fig.add_axes(place)
    pixels = Image.fromarray((255 * image + 0.5).astype(np.uint8))
    # Half the side: a page of photographs shall stay small.
    small = pixels.resize((SIDE // 2, SIDE // 2), Image.Resampling.BOX)
    axes.imshow(small, interpolation="nearest")
    axes.set_axis_off()
