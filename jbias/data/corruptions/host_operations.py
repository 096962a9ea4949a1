"""The operations and filters of corruptions on the host: NumPy, SciPy, OpenCV and Pillow.

This module is an `operations.Operations` and an `operations.Filters`, which document the
functions. Filters are the published numbers, or what the libraries need. All results are those
of the reference code, https://github.com/hendrycks/robustness at 8190fe3.
"""

import functools
import io
import math
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import cv2
import numpy as np
import PIL.Image
from jaxtyping import Float, Int
from scipy import ndimage

from jbias.data.corruptions.operations import Field, Image, Line, Plane, Unit, Values
from jbias.untrusted import opening

Rng = np.random.Generator

WHITE = 1
# The reference has a sixth, frost6.jpg, which its draw never reaches.
FROSTS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
_KINK = np.float32([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
_BORDERS = {"reflect": "reflect", "black": "grid-constant"}  # SciPy's names.


class Gaussian(NamedTuple):
    """A Gaussian of `sigma` pixels; mode: SciPy's name of the treatment of edges."""

    sigma: float
    mode: str


class Photographs(NamedTuple):
    """Paths of photographs, and the factor by which the photographs are scaled."""

    paths: tuple[pathlib.Path, ...]
    scale: float


def gaussian(side: int, sigma: float, mode: str = "nearest") -> Gaussian:
    """Return the width and the mode: see operations.Filters."""
    return Gaussian(sigma, mode)


def disk(side: int, radius: float, alias: float) -> Float[np.ndarray, "k k"]:
    """Return the kernel of a disk of `radius` pixels, softened by a Gaussian of `alias` pixels.

    All pixels of the disk have the same weight before softening.
    The Gaussian has 3 x 3 points, 5 x 5 for a radius above 8. The kernel has a side of
    2 max(8, int(radius)) + 1. A disk that touches its border (radius 8 or 10) is mirrored
    there, as in the reference: the weights then sum to 1.013 or 1.011 instead of 1, and the
    picture becomes brighter by this factor.
    """
    reach = max(8, int(radius))
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    inside = (x**2 + y**2 <= radius**2).astype(np.float32)
    support = (3, 3) if radius <= 8 else (5, 5)
    return cv2.GaussianBlur(inside / inside.sum(), support, sigmaX=alias)


def motion_kernel(radius: int, sigma: float) -> Float[np.ndarray, "k"]:
    """Return the one-sided Gaussian exp(-i^2 / (2 sigma^2)), i = 0 .. 2 radius, with the sum 1."""
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    return weights / weights.sum()


def line(radius: int, sigma: float) -> Line:
    """Return `motion_kernel` in float32."""
    kernel = motion_kernel(radius, sigma).astype(np.float32)
    return Line(kernel, len(kernel))


def zoom(side: int, factor: float) -> float:
    """Return the factor."""
    return factor


def zooms(
    side: int, step: float, count: int, *, most: int = 0
) -> Float[np.ndarray, "count"]:
    """Return `count` factors 1, 1 + step, ..., equal to the reference's to the last digit."""
    # Not 1 + k step: the last digit decides where a side of 32.5 pixels is rounded to.
    return np.arange(1, 1 + (count - 0.5) * step, step)


@functools.cache
def smoother(side: int, sigma: float) -> Float[np.ndarray, "side side"]:
    """Return the read-only matrix of a Gaussian filter, mirrored at edges, truncated at 3 sigma.

    sigma: in pixels. A matrix is used because at the largest sigma (171 pixels of 224) the
    filter has 1025 weights.
    """
    matrix = ndimage.gaussian_filter(
        np.eye(side), (sigma, 0), mode="reflect", truncate=3.0
    )
    matrix.flags.writeable = False
    return matrix


def box(side: int, scale: float) -> int:
    """Return the side of the shrunk image."""
    return int(side * scale)


def jpeg(quality: int) -> int:
    """Return the quality."""
    return quality


def photons(count: float, *, most: float = 0) -> float:
    """Return the number of photons of a white pixel."""
    return count


def photographs(
    side: int, folder: str | pathlib.Path | None, scale: float
) -> Photographs:
    """Return the absolute paths of the five photographs of frost in `folder`, and the scale.

    ValueError without a folder (None), and for a folder that lacks a photograph.
    """
    source = "ImageNet-C/create_c of https://github.com/hendrycks/robustness"
    remedy = f"pass a folder with {', '.join(FROSTS)}, found in {source}"
    if folder is None:
        must = "data.corrupt: 'frost' must have its photographs, which are not shipped"
        got = "got frost=None (--frost of the command)"
        raise ValueError(f"{must}, {got}; {remedy}; or leave frost out")
    paths = [pathlib.Path(folder).resolve() / name for name in FROSTS]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        must = f"data.corrupt: frost={str(folder)!r} must hold all photographs"
        raise ValueError(f"{must}, got none named {', '.join(missing)}; {remedy}")
    return Photographs(tuple(paths), scale)


def scaled(image: Values, dtype: type) -> Unit:
    """Return an image scaled from bytes to [0, 1] in `dtype`."""
    return image.astype(dtype) / dtype(255)


def truncated(x: Field) -> Field:
    """Return values as bytes: values outside are clipped, fractions truncated."""
    if x.dtype == np.uint8:
        return x
    return np.clip(x, 0, 255).astype(np.uint8)


def filtered(x: Field, gaussian: Gaussian) -> Field:
    """Return x convolved with a Gaussian, truncated at 4 sigma."""
    sigmas = (gaussian.sigma, gaussian.sigma, 0)[: x.ndim]
    return ndimage.gaussian_filter(x, sigmas, mode=gaussian.mode, truncate=4.0)


def correlated(x: Unit, disk: Float[np.ndarray, "k k"]) -> Unit:
    """Return x correlated with the kernel `disk`; edges are mirrored."""
    return cv2.filter2D(x, -1, disk)


def _stretched(field: Field, count: int, start: int, side: int) -> Field:
    """Return `field` with its first axis resampled linearly to `count` entries, then sliced.

    The slice is start : start + side. Resampling does not change the end points.
    """
    place = (start + np.arange(side)) * ((len(field) - 1) / (count - 1))
    low = np.minimum(place.astype(int), len(field) - 2)
    share = (place - low).astype(field.dtype)
    share = share.reshape(-1, *[1] * (field.ndim - 1))
    return field[low] * (1 - share) + field[low + 1] * share


def magnified(field: Field, factor: float) -> Field:
    """Return the middle of `field` along its first axis, enlarged linearly to the full length.

    With `side` the length of the axis, the middle n = ceil(side / factor) entries become
    round(factor n) entries with the same end points, of which the middle `side` are returned.
    If the number of surplus entries is odd, one more entry is cut off at the end.
    """
    side = len(field)
    crop = math.ceil(side / factor)
    top = (side - crop) // 2
    grown = round(crop * factor)
    return _stretched(field[top : top + crop], grown, (grown - side) // 2, side)


def zoomed(x: Field, zoom: float) -> Field:
    """Return the centre of a square map, enlarged by the factor `zoom` to the map's full size.

    See `magnified`, which is applied to the two axes.
    """
    rows = np.swapaxes(magnified(x, zoom), 0, 1)
    return np.swapaxes(magnified(rows, zoom), 0, 1)


def smoothed(x: Plane, smoother: Float[np.ndarray, "h h"]) -> Plane:
    """Return M x M^T for the matrix M of `smoother`."""
    return smoother @ x @ smoother.T


def displaced(x: Unit, down: Plane, right: Plane, *, border: str) -> Unit:
    """Return x read at displaced positions by SciPy: see operations.Operations."""
    side, mode = len(x), _BORDERS[border]
    place = np.mgrid[:side, :side] + np.stack([down, right])
    read = functools.partial(ndimage.map_coordinates, order=1, mode=mode)
    return np.stack([read(x[..., channel], place) for channel in range(3)], -1)


def sheared(x: Unit, rng: Rng, jitter: float) -> Unit:
    """Return x after a random affine map by OpenCV: see operations.Operations."""
    side = len(x)
    q = side // 3
    points = np.float32(side // 2) + np.float32([[q, q], [q, -q], [-q, -q]])
    moved = points + rng.uniform(-jitter, jitter, (3, 2)).astype(np.float32)
    matrix = cv2.getAffineTransform(points, moved)
    return cv2.warpAffine(x, matrix, (side, side), borderMode=cv2.BORDER_REFLECT_101)


def window(x: Field, down: int, right: int, *, side: int) -> Field:
    """Return side x side pixels of x, from row `down` and column `right` on."""
    return x[down : down + side, right : right + side]


def grey(x: Unit) -> Plane:
    """Return the luma of a float32 image by OpenCV."""
    return cv2.cvtColor(x, cv2.COLOR_RGB2GRAY)


def water_light(depth: Int[np.ndarray, "h w"]) -> Plane:
    """Return the light on drops, depth times brightness, by OpenCV: see operations.Operations."""
    liquid = depth.astype(np.uint8)
    distance = cv2.distanceTransform(255 - cv2.Canny(liquid, 50, 150), cv2.DIST_L2, 5)
    distance = cv2.blur(np.minimum(distance, 20), (3, 3)).astype(np.uint8)
    lit = cv2.filter2D(cv2.equalizeHist(distance), cv2.CV_8U, _KINK)
    return liquid * cv2.blur(lit, (3, 3)).astype(np.float32)


def pixelated(image: Image, box: int) -> Image:
    """Return an image shrunk to box x box pixels and enlarged back by Pillow's box filter."""
    side, resample = len(image), PIL.Image.Resampling.BOX
    shrunk = PIL.Image.fromarray(image).resize((box, box), resample)
    return np.array(shrunk.resize((side, side), resample))


def compressed(image: Image, jpeg: int) -> Image:
    """Return an image after Pillow's JPEG compression with the quality `jpeg`."""
    stream = io.BytesIO()
    PIL.Image.fromarray(image).save(stream, "JPEG", quality=jpeg)
    with opening.open_image(stream) as picture:
        return np.array(picture.convert("RGB"))


def photon_noise(x: Unit, rng: Rng, photons: float) -> Unit:
    """Return Poisson(count x) / count for each value x, where `photons` is the count."""
    return rng.poisson(x * photons) / photons


def glass_offsets(
    rng: Rng, reach: int, sweeps: int, *, side: int
) -> Int[np.ndarray, "sweeps h w 2"]:
    """Return the offsets of glass_blur: see operations.Operations."""
    inner = side - 2 * reach
    offsets = np.zeros((sweeps, side, side, 2), np.int32)
    swept = slice(side - reach, reach, -1)
    for sweep in offsets:
        sweep[swept, swept] = rng.integers(-reach, reach, (inner, inner, 2))
    return offsets


@functools.lru_cache(maxsize=len(FROSTS))
def _frost(path: pathlib.Path, scale: float) -> Image:
    """Return a photograph in RGB, scaled by `scale`, bilinearly and without antialias.

    ValueError for a file that cannot be decoded.
    """
    photograph = cv2.imread(str(path))
    if photograph is None:
        raise ValueError(f"{path}: must be an image, got a file that cannot be decoded")
    if scale != 1:
        photograph = cv2.resize(photograph, (0, 0), fx=scale, fy=scale)
    return cv2.cvtColor(photograph, cv2.COLOR_BGR2RGB)


def photograph(path: pathlib.Path, scale: float, side: int) -> Image:
    """Return a photograph of frost, scaled by `scale`.

    ValueError unless the height and the width of the scaled photograph exceed `side` pixels.
    """
    ice = _frost(path, scale)
    if min(ice.shape[:2]) <= side:
        must = f"data.corrupt: photographs of frost must be larger than {side} pixels"
        got = f"got {ice.shape[1]}x{ice.shape[0]}; use the original files"
        raise ValueError(f"{must} at scale {scale}, {got}")
    return ice


def crop_photograph(photographs: Photographs, rng: Rng, side: int) -> Image:
    """Return a random crop of a random photograph. ValueError: see `photograph`."""
    path = photographs.paths[rng.integers(len(photographs.paths))]
    ice = photograph(path, photographs.scale, side)
    top, left = (rng.integers(length - side) for length in ice.shape[:2])
    return window(ice, top, left, side=side)


def repeat(count: int, step: Callable[[int, Any], Any], state: Any) -> Any:
    """Return the state after `count` steps."""
    for i in range(count):
        state = step(i, state)
    return state


def repeat_while(
    condition: Callable[[Any], Any], step: Callable[[Any], Any], state: Any
) -> Any:
    """Return the state after steps as long as condition(state) holds."""
    while condition(state):
        state = step(state)
    return state


def choose(
    condition: Any,
    if_true: Callable[..., Any],
    if_false: Callable[..., Any],
    *args: Any,
) -> Any:
    """Return if_true(*args) or if_false(*args)."""
    return if_true(*args) if condition else if_false(*args)


def take(x: np.ndarray, index: Int[np.ndarray, "*shape"]) -> np.ndarray:
    """Return x[index]."""
    return x[index]


def once(function: Callable[..., Any], *args: Any) -> Any:
    """Return function(*args)."""
    return function(*args)
