"""Weather of ImageNet-C: snow, frost, fog and spatter.

Each is a function of an image (h, w, 3) of bytes, a generator and its settings.
Source: Hendrycks and Dietterich, ICLR 2019, https://arxiv.org/abs/1903.12261.
Reference code: https://github.com/hendrycks/robustness at 8190fe3. Deviation of all:
another generator; with the same draws the images are the same.
"""

import functools
import pathlib

import cv2
import numpy as np

from jbias.data import corruption_arrays as arrays
from jbias.data.corruption_arrays import Image, Plane

# The reference has a sixth, frost6.jpg, which its draw never reaches.
FROSTS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
WATER = np.float32([175, 238, 238]) / 255
MUD = np.float32([63, 42, 20]) / 255
_KINK = np.float32([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])


def snow(
    image: Image,
    rng: np.random.Generator,
    mean: float,
    sigma: float,
    zoom: float,
    least: float,
    radius: int,
    blur: float,
    keep: float,
) -> Image:
    """Whitens the image and adds flakes that fall, and the same turned upside down.

    Flakes: N(mean, sigma^2), zoomed, set to 0 below `least`, moved by (radius, blur) at
    U(-135, -45) degrees. Image: keep x + (1 - keep) max(x, 1.5 grey + 0.5).
    """
    side = len(image)
    layer = arrays.zoomed(rng.normal(mean, sigma, (side, side)), zoom)
    layer[layer < least] = 0
    layer = np.floor(np.clip(layer, 0, 1) * 255)
    layer = arrays.moved(layer, radius, blur, rng.uniform(-135, -45))[..., None] / 255
    x = arrays.unit(image, np.float32)
    white = cv2.cvtColor(x, cv2.COLOR_RGB2GRAY)[..., None] * 1.5 + 0.5
    x = keep * x + (1 - keep) * np.maximum(x, white)
    return arrays.quantise(x + layer + np.rot90(layer, 2))


@functools.lru_cache(maxsize=len(FROSTS))
def _frost(path: pathlib.Path, scale: float) -> Image:
    """Reads a photograph as RGB, bilinearly scaled without antialias."""
    photograph = cv2.imread(str(path))
    if photograph is None:
        raise ValueError(f"{path}: must be an image, got a file that cannot be decoded")
    if scale != 1:
        photograph = cv2.resize(photograph, (0, 0), fx=scale, fy=scale)
    return cv2.cvtColor(photograph, cv2.COLOR_BGR2RGB)


def photographs(folder: str | pathlib.Path | None) -> list[pathlib.Path]:
    """Gives the files of frost's photographs. Raises ValueError without them."""
    remedy = (
        f"pass a folder with {', '.join(FROSTS)}, found in ImageNet-C/create_c of"
        " https://github.com/hendrycks/robustness"
    )
    if folder is None:
        raise ValueError(
            "data.corrupt: 'frost' must have its photographs, which are not shipped,"
            f" got frost=None (--frost of the command); {remedy}; or leave frost out"
        )
    paths = [pathlib.Path(folder).resolve() / name for name in FROSTS]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise ValueError(
            f"data.corrupt: frost={str(folder)!r} must hold all photographs, got none"
            f" named {', '.join(missing)}; {remedy}"
        )
    return paths


def ice(path: pathlib.Path, scale: float, side: int) -> Image:
    """Gives a photograph, scaled. Raises ValueError if `side` pixels do not fit in."""
    photograph = _frost(path, scale)
    if min(photograph.shape[:2]) <= side:
        raise ValueError(
            f"data.corrupt: photographs of frost must be larger than {side} pixels at"
            f" scale {scale}, got {photograph.shape[1]}x{photograph.shape[0]}; use the"
            " original files"
        )
    return photograph


def frost(
    image: Image,
    rng: np.random.Generator,
    keep: float,
    add: float,
    scale: float,
    *,
    folder: str | pathlib.Path | None,
) -> Image:
    """Mixes keep x + add ice, a random crop of one of five photographs in `folder`.

    The photographs are first scaled by `scale`. Raises ValueError without them.
    """
    paths = photographs(folder)
    side = len(image)
    layer = ice(paths[rng.integers(len(paths))], scale, side)
    top = rng.integers(layer.shape[0] - side)
    left = rng.integers(layer.shape[1] - side)
    layer = layer[top : top + side, left : left + side]
    return np.clip(keep * image + add * layer, 0, 255).astype(np.uint8)


def plasma(rng: np.random.Generator, side: int, decay: float) -> Plane:
    """Draws a fractal height map on a torus, [0, 1]; `side` is a power of two.

    Diamond-square: squares, then diamonds, get the mean of four neighbours plus
    U(-w^2, w^2); w is 100 at first and falls by `decay` each time the step halves. That
    the width is squared is so in the reference.
    """
    heights = np.zeros((side, side))
    step, width = side, 100.0

    def noise():
        return width * rng.uniform(-width, width, (side // step, side // step))

    while step >= 2:
        half = step // 2
        corners = heights[::step, ::step]
        rows = corners + np.roll(corners, -1, 0)
        centres = (rows + np.roll(rows, -1, 1)) / 4 + noise()
        heights[half::step, half::step] = centres
        across = corners + np.roll(corners, -1, 1) + centres + np.roll(centres, 1, 0)
        down = corners + np.roll(corners, -1, 0) + centres + np.roll(centres, 1, 1)
        heights[::step, half::step] = across / 4 + noise()
        heights[half::step, ::step] = down / 4 + noise()
        step, width = half, width / decay
    heights -= heights.min()
    return heights / heights.max()


def fog(image: Image, rng: np.random.Generator, thick: float, decay: float) -> Image:
    """Adds `thick` times a plasma and scales by max(x) / (max(x) + thick).

    The plasma's side is the least power of two that holds the image: 256 for 224.
    """
    side = len(image)
    x = arrays.unit(image)
    brightest = x.max()
    mist = plasma(rng, 1 << (side - 1).bit_length(), decay)[:side, :side, None]
    return arrays.quantise((x + thick * mist) * brightest / (brightest + thick))


def spatter(
    image: Image,
    rng: np.random.Generator,
    mean: float,
    sigma: float,
    blur: float,
    least: float,
    strength: float,
    mud: bool,
) -> Image:
    """Splashes water, or mud, where blurred N(mean, sigma^2) is at least `least`.

    `strength` is the brightness of water, the blur of mud's borders in pixels. Water
    above 1 (rare, and only on small images) wraps around to 0, as in the reference.
    Deviation: where no drop falls, the image is kept; the reference divides by 0.
    """
    side = len(image)
    layer = arrays.blurred(rng.normal(mean, sigma, (side, side)), blur)
    layer[layer < least] = 0
    x = arrays.unit(image, np.float32)
    if mud:
        share = arrays.blurred((layer > least).astype(np.float32), strength)
        share[share < 0.8] = 0
        return arrays.quantise(x * (1 - share[..., None]) + MUD * share[..., None])
    shine = _shine((layer * 255).astype(int).astype(np.uint8))
    peak = shine.max()
    if peak > 0:
        shine = shine * (strength / peak)
    return arrays.quantise(x + WATER * shine[..., None])


def _shine(liquid: np.ndarray) -> Plane:
    """Gives the light (h, w) of drops (h, w) of bytes, up to a factor.

    Distances to the drops' edges, cut at 20 pixels, equalised, and lit from one side.
    """
    edges = cv2.Canny(liquid, 50, 150)
    distance = cv2.distanceTransform(255 - edges, cv2.DIST_L2, 5)
    distance = cv2.blur(np.minimum(distance, 20), (3, 3)).astype(np.uint8)
    lit = cv2.filter2D(cv2.equalizeHist(distance), cv2.CV_8U, _KINK)
    return liquid * cv2.blur(lit, (3, 3)).astype(np.float32)
