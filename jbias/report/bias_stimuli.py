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

from jbias.evals import spectral
from jbias.report import plots
from jbias.untrusted import opening

SIDE = 224  # Pixels.
CUTS = (0.1, 0.2, 0.3, 0.4, 0.5)
GAIN = 6  # Of high-pass images, which are nearly black, as they are drawn.
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
        with opening.image(path) as file:
            image = file.convert("RGB")
    except (OSError, ValueError) as error:
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
    radii = [spectral.radius(cut, size, high=high) for size in box.shape]
    (y, x), (ry, rx) = middle, radii
    box[y - ry : y + ry, x - rx : x + rx] = True
    kept = spectrum * (~box if high else box)[..., None]
    back = np.fft.ifft2(np.fft.ifftshift(kept, axes=(0, 1)), axes=(0, 1))
    return np.clip(back.real, 0, 1)


def draw(images: Sequence[Float[np.ndarray, "h w c"]]) -> mpl_figure.Figure:
    """Draws each photograph and, beside it, what filters leave of it."""
    side, gap, name, head = 1.15, 0.03, 0.95, 0.3
    step = side + gap
    width = name + (1 + len(CUTS)) * step
    height = head + 2 * len(images) * step
    with mpl.rc_context(dict(plots.STYLE)):
        fig = mpl_figure.Figure(figsize=(width, height))
        backend_agg.FigureCanvasAgg(fig)
        ink = dict(va="center", fontsize=8, color=plots.INK)
        for j, told in enumerate(["as it is", *(f"{100 * c:g} %" for c in CUTS)]):
            x = (name + j * step + side / 2) / width
            fig.text(x, 1 - head / 2 / height, told, ha="center", **ink)
        kinds = ("low-pass", f"high-pass, × {GAIN}")
        for i, image in enumerate(images):
            for high, kind in enumerate(kinds):
                y = height - head - (2 * i + high + 1) * step
                middle = (y + side / 2) / height
                fig.text((name - 0.08) / width, middle, kind, ha="right", **ink)
                shown = [filtered(image, cut, high=bool(high)) for cut in CUTS]
                shown = [image if not high else None, *shown]
                for j, one in enumerate(shown):
                    x = name + j * step
                    place = (x / width, y / height, side / width, side / height)
                    if one is not None:
                        _picture(
                            fig, place, one * GAIN if high else one, small=not high
                        )
    return plots.literal(fig)


def _picture(fig, place, image: np.ndarray, *, small: bool) -> None:
    """Draws an image; half its side, where nothing fine is lost, keeps a page small."""
    axes = fig.add_axes(place)
    pixels = Image.fromarray((255 * np.clip(image, 0, 1) + 0.5).astype(np.uint8))
    if small:
        pixels = pixels.resize((SIDE // 2, SIDE // 2), Image.Resampling.BOX)
    axes.imshow(pixels, interpolation="nearest")
    axes.set_axis_off()
