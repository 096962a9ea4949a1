"""The corruptions of ImageNet-C in NumPy: noise, blur, weather and digital.

A corruption is a function of an image (h, w, 3) of bytes, a random generator and settings. It
returns an image of bytes; functions of images in [0, 1] are converted by `on_unit_scale`.
Functions that use the image's array namespace work with JAX, too (augment.replay).
Source: Hendrycks and Dietterich, ICLR 2019, https://arxiv.org/abs/1903.12261.
Reference code: https://github.com/hendrycks/robustness at 8190fe3. Deviation of all:
another generator; with the same draws the images are the same. As in the code that made the
published sets, fractions of bytes are cut off, not rounded, unless noted.
"""

import functools
import io
import math
import pathlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import cv2
import numpy as np
import PIL.Image
from jaxtyping import Float, Int, UInt8
from scipy import ndimage

from jbias.untrusted import opening

Rng = np.random.Generator

Image = UInt8[np.ndarray, "h w 3"]
Unit = Float[Any, "h w 3"]  # [0, 1]; of JAX, too, where a function takes either.
Plane = Float[Any, "h w"]
Field = Float[np.ndarray, "h w *c"]  # A plane, or channels of one.


def unit(image: Image, dtype: type = np.float64) -> Float[np.ndarray, "h w 3"]:
    """Return an image scaled from bytes to [0, 1]; dtype: floating type of the result."""
    return image.astype(dtype) / dtype(255)


def quantise(image: Float[np.ndarray, "h w 3"]) -> Image:
    """Return values in [0, 1] as bytes: values outside are clipped, fractions truncated."""
    return (np.clip(image, 0, 1) * 255).astype(np.uint8)


def on_unit_scale(dtype: type = np.float64) -> Callable[[Callable], Callable]:
    """Return a decorator that lets a corruption of images in [0, 1] take images of bytes.

    dtype: floating type of the images in [0, 1]. Results are converted by `quantise`.
    """

    def decorate(corruption: Callable) -> Callable:
        @functools.wraps(corruption)
        def apply(image: Image, rng: Rng, *row: float) -> Image:
            return quantise(corruption(unit(image, dtype), rng, *row))

        return apply

    return decorate


def blurred(field: Field, sigma: float) -> Field:
    """Return `field` convolved with a Gaussian of `sigma` pixels, truncated at 4 sigma.

    Edge pixels are repeated outside the field.
    """
    sigmas = (sigma, sigma, 0)[: field.ndim]
    return ndimage.gaussian_filter(field, sigmas, mode="nearest", truncate=4.0)


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


def zoomed(field: Field, factor: float) -> Field:
    """Return the centre of a square field, enlarged by `factor` to the field's full size.

    See `magnified`, which is applied to the two axes.
    """
    rows = np.swapaxes(magnified(field, factor), 0, 1)
    return np.swapaxes(magnified(rows, factor), 0, 1)


def motion_kernel(radius: int, sigma: float) -> Float[np.ndarray, "k"]:
    """Return the one-sided Gaussian exp(-i^2 / (2 sigma^2)), i = 0 .. 2 radius, with the sum 1."""
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    return weights / weights.sum()


def motion_blurred(field: Field, radius: int, sigma: float, degrees: float) -> Field:
    """Return `field` with the motion blur of a moving camera, as whole numbers in float32.

    field: values from 0 to 255. radius, sigma: see `motion_kernel`, in pixels. degrees:
    direction a of the motion. out(x, y) = sum_i k_i in(x + ceil(i cos a - 1/2),
    y + ceil(i sin a - 1/2)), where k is the kernel and y points down; edge pixels are
    repeated outside. As in ImageMagick 6, which made the published sets, sums are rounded to
    16 bits (factor 257), and fractions of bytes are then truncated.
    """
    kernel = motion_kernel(radius, sigma).astype(np.float32)
    reach, turn = len(kernel), math.radians(degrees)
    steps = np.arange(reach)
    right = np.ceil(steps * math.cos(turn) - 0.5).astype(int)
    down = np.ceil(steps * math.sin(turn) - 0.5).astype(int)
    pads = ((reach, reach), (reach, reach), (0, 0))[: field.ndim]
    padded = np.pad(field.astype(np.float32), pads, mode="edge")
    height, width = field.shape[:2]
    out = np.zeros(field.shape, np.float32)
    for weight, x, y in zip(kernel, right + reach, down + reach, strict=True):
        out += weight * padded[y : y + height, x : x + width]
    return np.rint(out * 257) // 257


@on_unit_scale()
def gaussian_noise(x: Unit, rng: Rng, sigma: float) -> Unit:
    """Return x plus N(0, sigma^2) noise for each value."""
    return x + rng.normal(0, sigma, x.shape)


@on_unit_scale()
def shot_noise(x: Unit, rng: Rng, count: float) -> Unit:
    """Return the image with photon noise: Poisson(count x) / count for each value x.

    count: number of photons of a white pixel.
    """
    return rng.poisson(x * count) / count


def impulse_noise(image: Image, rng: Rng, chance: float) -> Image:
    """Return the image with each value set to 0 or 255, each with probability chance / 2."""
    xp, draw = image.__array_namespace__(), rng.random(image.shape)
    return xp.where(draw < chance, xp.where(draw < chance / 2, 0, 255), image)


@on_unit_scale()
def speckle_noise(x: Unit, rng: Rng, sigma: float) -> Unit:
    """Return x plus x N(0, sigma^2) for each value x."""
    return x + x * rng.normal(0, sigma, x.shape)


@on_unit_scale()
def gaussian_blur(x: Unit, rng: Rng, sigma: float) -> Unit:
    """Return the image convolved with a Gaussian of `sigma` pixels; edge pixels are repeated."""
    return blurred(x, sigma)


def disk(radius: float, alias: float) -> Float[np.ndarray, "k k"]:
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


@on_unit_scale()
def defocus_blur(x: Unit, rng: Rng, radius: float, alias: float) -> Unit:
    """Return the image correlated with the kernel disk(radius, alias); edges are mirrored."""
    return cv2.filter2D(x, -1, disk(radius, alias))


def glass_origins(
    rows: Int[np.ndarray, "m n"], columns: Int[np.ndarray, "m n"], reach: int, side: int
) -> Int[np.ndarray, "side*side"]:
    """Return the index of the pixel from which each pixel's value comes after one sweep.

    rows, columns: offsets in pixels of each swept pixel, in the order of the sweep. reach:
    largest offset. side: side of the image in pixels. Pixels are numbered row by row.

    The sweep goes over y and x from side - reach down to reach + 1. It copies to each pixel
    the value of the pixel `rows` below and `columns` to the right, which may already be a
    copy. So each pixel has its neighbour's new value if the sweep visits the neighbour
    earlier, else the neighbour's old value. Chains of copies are followed by pointer doubling.
    """
    pixels = np.arange(side * side)
    grid = pixels.reshape(side, side)
    place = slice(side - reach, reach, -1)
    target = grid[place, place]
    neighbour = target + rows * side + columns
    is_inner = np.zeros(side * side, bool)
    is_inner[target] = True
    new = pixels.copy()
    is_earlier = is_inner[neighbour] & (neighbour > target)
    new[target] = neighbour + side * side * is_earlier
    links = np.concatenate([pixels, new])  # Nodes: old values, then new ones.
    while (links >= side * side).any():
        links = links[links]
    return links[side * side :]


def glass_blur(image: Image, rng: Rng, sigma: float, reach: int, sweeps: int) -> Image:
    """Return the image blurred, with pixels displaced `sweeps` times, and blurred again.

    sigma: width of the Gaussian blurs in pixels. reach: largest displacement in pixels.
    Offsets are uniform from -reach to reach - 1. The reference is written to swap a pixel with
    its neighbour. Because the arrays of the reference share memory, the neighbour is copied to
    the pixel and does not change. This function does the same.
    """
    side = len(image)
    x = quantise(blurred(unit(image), sigma)).reshape(-1, 3)
    inner = side - 2 * reach
    for _ in range(sweeps):
        offsets = rng.integers(-reach, reach, (inner, inner, 2))
        x = x[glass_origins(offsets[..., 1], offsets[..., 0], reach, side)]
    return quantise(blurred(unit(x.reshape(image.shape)), sigma))


def motion_blur(image: Image, rng: Rng, radius: int, sigma: float) -> Image:
    """Return the image blurred along a line at U(-45, 45) degrees by a one-sided Gaussian.

    radius, sigma: see `motion_kernel`, in pixels.
    """
    return motion_blurred(image, radius, sigma, rng.uniform(-45, 45)).astype(np.uint8)


def zoom_factors(step: float, count: int) -> Float[np.ndarray, "count"]:
    """Return `count` factors 1, 1 + step, ..., equal to the reference's to the last digit."""
    # Not 1 + k step: the last digit decides where a side of 32.5 pixels is rounded to.
    return np.arange(1, 1 + (count - 0.5) * step, step)


@on_unit_scale(np.float32)
def zoom_blur(x: Unit, rng: Rng, step: float, count: int) -> Unit:
    """Return the mean of the image and its zooms by the `count` factors 1, 1 + step, ...

    As the first factor is 1, the image itself counts twice, as in the reference. Deviation:
    interpolation in float32; a few bytes in a thousand differ by 1.
    """
    total = x.copy()
    for factor in zoom_factors(step, count):
        total += zoomed(x, factor)
    return total / np.float32(count + 1)


@on_unit_scale()
def brightness(x: Unit, rng: Rng, more: float) -> Unit:
    """Return the image with `more` added to the value V of HSV, clipped at 1.

    Hue and saturation do not change: each colour is scaled by the ratio of new to old V.
    Black becomes grey with V = `more`. Deviation: floating-point rounding differs from the
    reference code's before the values are truncated to bytes. In twenty photographs of 224 pixels, 0.5 to 3.0 % of the bytes (by severity)
    differ by 1, and at most 6.0 % in one photograph.
    """
    xp = x.__array_namespace__()
    value = x.max(-1, keepdims=True)
    lifted = xp.minimum(value + more, 1)
    black = value == 0
    scaled = x * (lifted / xp.where(black, 1, value))
    return xp.where(black, lifted, scaled)


@on_unit_scale()
def saturate(x: Unit, rng: Rng, times: float, plus: float) -> Unit:
    """Return the image with the saturation S of HSV changed to clip(S * times + plus, 0, 1).

    Hue and value do not change. Greys have the hue 0, so that a positive `plus` makes them
    red, as in the reference. Deviation: rounding, as in `brightness`; 3.6 % of the bytes
    differ at severity 3, at most 10 % in one photograph, and 0.5 to 0.7 % at other severities.
    """
    xp = x.__array_namespace__()
    value, least = x.max(-1, keepdims=True), x.min(-1, keepdims=True)
    # Red has the smallest value, the share 1, in green and blue.
    grey, red = value == least, np.float32([[[0, 1, 1]]])
    share = xp.where(grey, red, (value - x) / xp.where(grey, 1, value - least))
    old = (value - least) / xp.where(value == 0, 1, value)
    return value - value * xp.clip(old * times + plus, 0, 1) * share


@on_unit_scale()
def contrast(x: Unit, rng: Rng, scale: float) -> Unit:
    """Return the image with each value's distance from its channel's mean scaled by `scale`."""
    mean = x.mean((0, 1), keepdims=True)
    return (x - mean) * scale + mean


def pixelate(image: Image, rng: Rng, scale: float) -> Image:
    """Return the image, shrunk to int(side * scale) pixels and enlarged back by a box filter."""
    side, box = len(image), PIL.Image.Resampling.BOX
    small = (int(side * scale),) * 2
    picture = PIL.Image.fromarray(image).resize(small, box).resize((side, side), box)
    return np.array(picture)


def jpeg_compression(image: Image, rng: Rng, quality: int) -> Image:
    """Return the image after Pillow's JPEG compression, 4:2:0, with the standard tables.

    quality: 1 to 95.
    """
    stream = io.BytesIO()
    PIL.Image.fromarray(image).save(stream, "JPEG", quality=quality)
    with opening.open_image(stream) as picture:
        return np.array(picture.convert("RGB"))


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


def _displacement(rng: Rng, side: int, alpha: float, sigma: float) -> Plane:
    """Return one component of a random displacement in pixels: alpha times smoothed U(-1, 1).

    side: side of the image in pixels. sigma: see `smoother`.
    """
    matrix = smoother(side, sigma)
    return np.float32(alpha * (matrix @ rng.uniform(-1, 1, (side, side)) @ matrix.T))


def _sheared(x: Unit, rng: Rng, jitter: float) -> Unit:
    """Return x after an affine map that moves three points by U(-jitter, jitter) per axis.

    jitter: in pixels. The points are the centre plus (q, q), (q, -q) and (-q, -q), where q is
    a third of the side. Edges are mirrored.
    """
    side = len(x)
    q = side // 3
    points = np.float32(side // 2) + np.float32([[q, q], [q, -q], [-q, -q]])
    moved = points + rng.uniform(-jitter, jitter, (3, 2)).astype(np.float32)
    matrix = cv2.getAffineTransform(points, moved)
    return cv2.warpAffine(x, matrix, (side, side), borderMode=cv2.BORDER_REFLECT_101)


@on_unit_scale(np.float32)
def elastic_transform(
    x: Unit, rng: Rng, alpha: float, sigma: float, jitter: float
) -> Unit:
    """Return x after a random affine map and a smooth random displacement of its pixels.

    alpha: factor on the displacement, which is U(-1, 1) smoothed by a Gaussian. sigma: width of
    this Gaussian. jitter: largest movement of the affine map's points per axis. All are in
    pixels. Interpolation is bilinear, and edges are mirrored.
    """
    side = len(x)
    x = _sheared(x, rng, jitter)
    right, down = (_displacement(rng, side, alpha, sigma) for _ in range(2))
    return sampled(x, np.mgrid[:side, :side] + np.stack([down, right]), "reflect")


def sampled(x: Unit, place: Float[np.ndarray, "2 h w"], mode: str) -> Unit:
    """Return x at the positions `place` (rows, columns) in pixels, interpolated bilinearly.

    mode: SciPy's name of the treatment of positions outside the image.
    """
    read = functools.partial(ndimage.map_coordinates, order=1, mode=mode)
    return np.stack([read(x[..., channel], place) for channel in range(3)], -1)


# The reference has a sixth, frost6.jpg, which its draw never reaches.
FROSTS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
WATER = np.float32([175, 238, 238]) / 255
MUD = np.float32([63, 42, 20]) / 255
_KINK = np.float32([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])


@on_unit_scale(np.float32)
def snow(
    x: Unit,
    rng: Rng,
    mean: float,
    sigma: float,
    zoom: float,
    least: float,
    radius: int,
    blur: float,
    keep: float,
) -> Unit:
    """Return the whitened image plus falling flakes plus the same flakes upside down.

    Flakes are N(mean, sigma^2) noise, enlarged by `zoom`, set to 0 below `least`, and blurred
    by `motion_blurred` with the arguments `radius` and `blur`, at U(-135, -45) degrees. The
    whitened image is keep x + (1 - keep) max(x, 1.5 grey + 0.5).
    """
    side = len(x)
    layer = zoomed(rng.normal(mean, sigma, (side, side)), zoom)
    layer[layer < least] = 0
    layer = np.floor(np.clip(layer, 0, 1) * 255)
    layer = motion_blurred(layer, radius, blur, rng.uniform(-135, -45))[..., None] / 255
    white = cv2.cvtColor(x, cv2.COLOR_RGB2GRAY)[..., None] * 1.5 + 0.5
    x = keep * x + (1 - keep) * np.maximum(x, white)
    return x + layer + np.rot90(layer, 2)


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


def photographs(folder: str | pathlib.Path | None) -> list[pathlib.Path]:
    """Return the absolute paths of the five photographs of frost in `folder`.

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
    return paths


def ice(path: pathlib.Path, scale: float, side: int) -> Image:
    """Return a photograph of frost, scaled by `scale`.

    ValueError unless the height and the width of the scaled photograph exceed `side` pixels.
    """
    photograph = _frost(path, scale)
    if min(photograph.shape[:2]) <= side:
        must = f"data.corrupt: photographs of frost must be larger than {side} pixels"
        got = f"got {photograph.shape[1]}x{photograph.shape[0]}; use the original files"
        raise ValueError(f"{must} at scale {scale}, {got}")
    return photograph


def frost(
    image: Image,
    rng: Rng,
    keep: float,
    add: float,
    scale: float,
    *,
    folder: str | pathlib.Path | None,
) -> Image:
    """Return keep * image + add * ice, with a random crop of one of five photographs as ice.

    scale: factor by which photographs are scaled. folder: folder of the photographs.
    ValueError as `photographs` and `ice` do.
    """
    paths = photographs(folder)
    side = len(image)
    layer = ice(paths[rng.integers(len(paths))], scale, side)
    top, left = (rng.integers(length - side) for length in layer.shape[:2])
    layer = layer[top : top + side, left : left + side]
    return np.clip(keep * image + add * layer, 0, 255).astype(np.uint8)


def plasma(xp: ModuleType, rng: Rng, levels: int, decay: float) -> Plane:
    """Return a random fractal height map on a torus, in [0, 1], of 2^levels pixels a side.

    xp: array namespace, such as numpy. The method is diamond-square: centres of squares, then
    of diamonds, get the mean of four neighbours plus U(-w^2, w^2). At first w is 100; it is
    divided by `decay` each time the step halves. The square of w is as in the reference.
    """
    heights, width = xp.zeros((1, 1)), 100.0
    for i in range(levels):
        n = 1 << i
        noise = width * rng.uniform(-width, width, (3, n, n))
        rows = heights + xp.roll(heights, -1, 0)
        centres = (rows + xp.roll(rows, -1, 1)) / 4 + noise[0]
        across = heights + xp.roll(heights, -1, 1) + centres + xp.roll(centres, 1, 0)
        down = heights + xp.roll(heights, -1, 0) + centres + xp.roll(centres, 1, 1)
        upper = xp.stack([heights, across / 4 + noise[1]], -1)
        lower = xp.stack([down / 4 + noise[2], centres], -1)
        heights = xp.stack([upper, lower], 1).reshape(2 * n, 2 * n)
        width = width / decay
    heights = heights - heights.min()
    return heights / heights.max()


@on_unit_scale()
def fog(x: Unit, rng: Rng, thick: float, decay: float) -> Unit:
    """Return (x + thick p) max(x) / (max(x) + thick), where p is a crop of a `plasma`.

    decay: see `plasma`. The plasma's side is the smallest power of two that is at least the
    image's side: 256 for 224.
    """
    side, brightest = len(x), x.max()
    mist = plasma(x.__array_namespace__(), rng, (side - 1).bit_length(), decay)
    mist = mist[:side, :side, None]
    return (x + thick * mist) * brightest / (brightest + thick)


@on_unit_scale(np.float32)
def spatter(
    x: Unit,
    rng: Rng,
    mean: float,
    sigma: float,
    blur: float,
    least: float,
    strength: float,
    mud: int,
) -> Unit:
    """Return the image with water, or mud, where blurred N(mean, sigma^2) >= `least`.

    blur: blur of the noise in pixels. strength: brightness of water, or the blur of mud's
    borders in pixels. mud: 1 for mud, 0 for water. Values of the noise above 1 (rare, and only on
    small images) wrap around to 0 for water, as in the reference. Deviation: without any drop
    the image is returned unchanged; the reference divides by 0.
    """
    side = len(x)
    layer = blurred(rng.normal(mean, sigma, (side, side)), blur)
    layer[layer < least] = 0
    if mud:
        share = blurred((layer > least).astype(np.float32), strength)
        share[share < 0.8] = 0
        return x * (1 - share[..., None]) + MUD * share[..., None]
    shine = _shine((layer * 255).astype(int).astype(np.uint8))
    peak = shine.max()
    if peak > 0:
        shine = shine * (strength / peak)
    return x + WATER * shine[..., None]


def _shine(liquid: UInt8[np.ndarray, "h w"]) -> Plane:
    """Return the brightness of the light on drops, up to a factor.

    liquid: depth of the drops. The light is computed from distances to the drops' edges, which
    are clipped at 20 pixels, histogram-equalised and filtered as if lit from one side.
    """
    distance = cv2.distanceTransform(255 - cv2.Canny(liquid, 50, 150), cv2.DIST_L2, 5)
    distance = cv2.blur(np.minimum(distance, 20), (3, 3)).astype(np.uint8)
    lit = cv2.filter2D(cv2.equalizeHist(distance), cv2.CV_8U, _KINK)
    return liquid * cv2.blur(lit, (3, 3)).astype(np.float32)
