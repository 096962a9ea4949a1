"""Corruptions of ImageNet-C in NumPy: noise, blur, weather and digital.

Each is a function of an image (h, w, 3) of bytes, a generator and its settings. Those that
ask the image for its namespace serve JAX as well (augment.replay).
Source: Hendrycks and Dietterich, ICLR 2019, https://arxiv.org/abs/1903.12261.
Reference code: https://github.com/hendrycks/robustness at 8190fe3. Deviation of all:
another generator; with the same draws the images are the same. As in the code that made the
published sets, fractions of bytes are cut off, not rounded, unless noted.


Corruptions of ImageNet-C-bar: random fields, and shapes that cover or bend.

Each is a function of an image (h, w, 3) of bytes, a generator and a level, and gives values
on the scale of bytes, to be cut to them. Arrays are NumPy's or JAX's, as the image is; on a
device the generator replays what was drawn before (augment.imagenet_c_bar), and `run` keeps
what many pixels use in memory. Lengths scale with the side of the image.

Source: Mintun, Kirillov and Xie, NeurIPS 2021, https://arxiv.org/abs/2102.11273. Reference
code: https://github.com/facebookresearch/augmentation-corruption at ba4d5a5. Deviation of
all: another generator; with the same draws the images are the same.
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
    """Scales bytes to [0, 1]."""
    return image.astype(dtype) / dtype(255)


def quantise(image: Float[np.ndarray, "h w 3"]) -> Image:
    """Scales [0, 1] to bytes; what lies outside is clipped, fractions are cut off."""
    return (np.clip(image, 0, 1) * 255).astype(np.uint8)


def on_unit_scale(dtype: type = np.float64) -> Callable[[Callable], Callable]:
    """Decorates a function of an image in [0, 1] to be one of bytes, and to give bytes."""

    def decorate(corruption: Callable) -> Callable:
        @functools.wraps(corruption)
        def apply(image: Image, rng: Rng, *row: float) -> Image:
            return quantise(corruption(unit(image, dtype), rng, *row))

        return apply

    return decorate


def blurred(field: Field, sigma: float) -> Field:
    """Convolves with a Gaussian, sigma in pixels, cut at 4 sigma; edges repeat."""
    sigmas = (sigma, sigma, 0)[: field.ndim]
    return ndimage.gaussian_filter(field, sigmas, mode="nearest", truncate=4.0)


def _stretched(field: Field, count: int, start: int, side: int) -> Field:
    """Interpolates the first axis at `count` even places, and keeps `side` of them."""
    place = (start + np.arange(side)) * ((len(field) - 1) / (count - 1))
    low = np.minimum(place.astype(int), len(field) - 2)
    share = (place - low).astype(field.dtype)
    share = share.reshape(-1, *[1] * (field.ndim - 1))
    return field[low] * (1 - share) + field[low + 1] * share


def magnified(field: Field, factor: float) -> Field:
    """Enlarges the middle of the first axis to the whole: linear, ends on ends.

    The middle has ceil(side / factor) entries and grows to round(factor times that); of
    those the middle `side` are kept, and an odd one too many is trimmed at the end.
    """
    side = len(field)
    crop = math.ceil(side / factor)
    top = (side - crop) // 2
    grown = round(crop * factor)
    return _stretched(field[top : top + crop], grown, (grown - side) // 2, side)


def zoomed(field: Field, factor: float) -> Field:
    """Enlarges the centre to the whole square: `magnified` along both axes."""
    rows = np.swapaxes(magnified(field, factor), 0, 1)
    return np.swapaxes(magnified(rows, factor), 0, 1)


def motion_kernel(radius: int, sigma: float) -> Float[np.ndarray, "k"]:
    """Gives exp(-i^2 / (2 sigma^2)), i = 0 .. 2 radius, over their sum: one-sided."""
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    return weights / weights.sum()


def motion_blurred(field: Field, radius: int, sigma: float, degrees: float) -> Field:
    """Blurs as a camera moving in a direction does; values on the scale of bytes.

    out(x, y) = sum_i k_i in(x + ceil(i cos a - 1/2), y + ceil(i sin a - 1/2)); edges
    repeat; y points down. As ImageMagick 6 does it, by which the published sets were
    made: sums are rounded to 16 bits, x 257, and fractions of bytes then cut off.
    """
    kernel = motion_kernel(radius, sigma).astype(np.float32)
    steps = np.arange(len(kernel))
    turn = math.radians(degrees)
    right = np.ceil(steps * math.cos(turn) - 0.5).astype(int)
    down = np.ceil(steps * math.sin(turn) - 0.5).astype(int)
    reach = len(kernel)
    pads = ((reach, reach), (reach, reach), (0, 0))[: field.ndim]
    padded = np.pad(field.astype(np.float32), pads, mode="edge")
    height, width = field.shape[:2]
    out = np.zeros(field.shape, np.float32)
    for weight, x, y in zip(kernel, right + reach, down + reach, strict=True):
        out += weight * padded[y : y + height, x : x + width]
    return np.rint(out * 257) // 257


@on_unit_scale()
def gaussian_noise(x: Unit, rng: Rng, sigma: float) -> Unit:
    """Adds N(0, sigma^2), on the scale of [0, 1], to each value."""
    return x + rng.normal(0, sigma, x.shape)


@on_unit_scale()
def shot_noise(x: Unit, rng: Rng, count: float) -> Unit:
    """Draws Poisson(count x) / count: white is `count` photons."""
    return rng.poisson(x * count) / count


def impulse_noise(image: Image, rng: Rng, chance: float) -> Image:
    """Sets each value, with this chance and alone, to 0 or 255, evenly."""
    xp, draw = image.__array_namespace__(), rng.random(image.shape)
    return xp.where(draw < chance, xp.where(draw < chance / 2, 0, 255), image)


@on_unit_scale()
def speckle_noise(x: Unit, rng: Rng, sigma: float) -> Unit:
    """Adds x N(0, sigma^2) to each value x."""
    return x + x * rng.normal(0, sigma, x.shape)


@on_unit_scale()
def gaussian_blur(x: Unit, rng: Rng, sigma: float) -> Unit:
    """Convolves with a Gaussian of `sigma` pixels; edges repeat."""
    return blurred(x, sigma)


def disk(radius: float, alias: float) -> Float[np.ndarray, "k k"]:
    """Gives a disk of even weight, its border softened by a Gaussian of `alias` pixels.

    The Gaussian has 3 x 3 points, 5 x 5 for a radius beyond 8. A disk that touches the
    kernel's border (radius 8 or 10) is mirrored there, so that the sum is 1.013 or 1.011
    in place of 1 and the picture that much brighter, as in the reference.
    """
    reach = max(8, int(radius))
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    inside = (x**2 + y**2 <= radius**2).astype(np.float32)
    support = (3, 3) if radius <= 8 else (5, 5)
    return cv2.GaussianBlur(inside / inside.sum(), support, sigmaX=alias)


@on_unit_scale()
def defocus_blur(x: Unit, rng: Rng, radius: float, alias: float) -> Unit:
    """Correlates with a disk of `radius` pixels; edges are mirrored."""
    return cv2.filter2D(x, -1, disk(radius, alias))


def glass_origins(
    rows: Int[np.ndarray, "m n"], columns: Int[np.ndarray, "m n"], reach: int, side: int
) -> Int[np.ndarray, "side*side"]:
    """Gives the pixel that each pixel's value is from after one sweep.

    The sweep goes over y and x from side - reach down to reach + 1 and copies to each
    pixel the one `rows` below and `columns` to the right, which by then may itself be a
    copy. So each pixel points at its neighbour's new value if that comes earlier, else
    at its old one; the chains are followed by doubling.
    """
    pixels = np.arange(side * side)
    grid = pixels.reshape(side, side)
    place = slice(side - reach, reach, -1)
    here = grid[place, place]
    there = here + rows * side + columns
    inner = np.zeros(side * side, bool)
    inner[here] = True
    new = pixels.copy()
    new[here] = there + side * side * (inner[there] & (there > here))
    links = np.concatenate([pixels, new])  # Nodes: old values, then new ones.
    while (links >= side * side).any():
        links = links[links]
    return links[side * side :]


def glass_blur(image: Image, rng: Rng, sigma: float, reach: int, sweeps: int) -> Image:
    """Blurs, displaces each pixel by up to `reach` pixels, `sweeps` times, and blurs.

    Offsets are drawn evenly from -reach to reach - 1. The reference means to swap a
    pixel with its neighbour, but its arrays share memory and it copies the neighbour,
    which stays as it was: so here.
    """
    side = len(image)
    x = quantise(blurred(unit(image), sigma)).reshape(-1, 3)
    inner = side - 2 * reach
    for _ in range(sweeps):
        offsets = rng.integers(-reach, reach, (inner, inner, 2))
        x = x[glass_origins(offsets[..., 1], offsets[..., 0], reach, side)]
    x = unit(x.reshape(image.shape))
    return quantise(blurred(x, sigma))


def motion_blur(image: Image, rng: Rng, radius: int, sigma: float) -> Image:
    """Blurs along a line at U(-45, 45) degrees by a one-sided Gaussian."""
    degrees = rng.uniform(-45, 45)
    return motion_blurred(image, radius, sigma, degrees).astype(np.uint8)


def zoom_factors(step: float, count: int) -> Float[np.ndarray, "count"]:
    """Gives 1, 1 + step ...: `count` of them, to the last digit of the reference's."""
    # Not 1 + k step: the last digit decides where a side of 32.5 pixels is rounded to.
    return np.arange(1, 1 + (count - 0.5) * step, step)


@on_unit_scale(np.float32)
def zoom_blur(x: Unit, rng: Rng, step: float, count: int) -> Unit:
    """Averages the image and its zooms by 1, 1 + step ...: `count` of them.

    The first factor is 1, so that the image itself counts twice: as in the reference.
    Deviation: interpolated in float32, which a few bytes in a thousand show, by 1.
    """
    total = x.copy()
    for factor in zoom_factors(step, count):
        total += zoomed(x, factor)
    return total / np.float32(count + 1)


@on_unit_scale()
def brightness(x: Unit, rng: Rng, more: float) -> Unit:
    """Adds `more` to the value V of HSV, which is cut at 1; hue and saturation stay.

    So each colour is scaled by V' / V, and black turns to the grey of `more`. Deviation:
    rounding differs before fractions are cut off. Of twenty photographs at 224 pixels 0.5
    to 3.0 % of the bytes are off by 1, by severity, and at most 6.0 % of one's.
    """
    xp = x.__array_namespace__()
    value = x.max(-1, keepdims=True)
    lifted = xp.minimum(value + more, 1)
    black = value == 0
    scaled = x * (lifted / xp.where(black, 1, value))
    return xp.where(black, lifted, scaled)


@on_unit_scale()
def saturate(x: Unit, rng: Rng, times: float, plus: float) -> Unit:
    """Makes the saturation S of HSV clip(S times + plus, 0, 1); hue and value stay.

    A grey has the hue 0: with a `plus` it turns red, as in the reference. Deviation: as
    for brightness, 3.6 % at severity 3 and at most 10 % of one's, else 0.5 to 0.7 %.
    """
    xp = x.__array_namespace__()
    value, least = x.max(-1, keepdims=True), x.min(-1, keepdims=True)
    grey, red = value == least, np.float32([[[0, 1, 1]]])  # 1: the least one.
    share = xp.where(grey, red, (value - x) / xp.where(grey, 1, value - least))
    old = (value - least) / xp.where(value == 0, 1, value)
    return value - value * xp.clip(old * times + plus, 0, 1) * share


@on_unit_scale()
def contrast(x: Unit, rng: Rng, scale: float) -> Unit:
    """Scales the distance of each value to the mean of its channel."""
    mean = x.mean((0, 1), keepdims=True)
    return (x - mean) * scale + mean


def pixelate(image: Image, rng: Rng, scale: float) -> Image:
    """Shrinks the side to int(side scale) and back, by Pillow's box filter."""
    side = len(image)
    small = (int(side * scale),) * 2
    box = PIL.Image.Resampling.BOX
    picture = PIL.Image.fromarray(image).resize(small, box).resize((side, side), box)
    return np.array(picture)


def jpeg_compression(image: Image, rng: Rng, quality: int) -> Image:
    """Writes JPEG of that quality by Pillow and reads it."""
    return jpeg(image, quality)


def jpeg(image: Image, quality: int) -> Image:
    """Gives what Pillow reads of the JPEG it wrote, 4:2:0, with its standard tables."""
    stream = io.BytesIO()
    PIL.Image.fromarray(image).save(stream, "JPEG", quality=quality)
    with opening.image(stream) as picture:
        return np.array(picture.convert("RGB"))


@functools.cache
def smoother(side: int, sigma: float) -> Float[np.ndarray, "side side"]:
    """Gives the matrix of a Gaussian filter, mirrored at the edges, cut at 3 sigma.

    A matrix, for with the largest sigma (171 pixels of 224) the filter's support is
    1025 long.
    """
    matrix = ndimage.gaussian_filter(
        np.eye(side), (sigma, 0), mode="reflect", truncate=3.0
    )
    matrix.flags.writeable = False
    return matrix


def _displacement(rng, side, alpha, sigma) -> Plane:
    """Draws alpha times smoothed U(-1, 1): one component (side, side) in pixels."""
    matrix = smoother(side, sigma)
    return np.float32(alpha * (matrix @ rng.uniform(-1, 1, (side, side)) @ matrix.T))


def _sheared(x: Unit, rng: Rng, jitter: float) -> Unit:
    """Maps affinely by moving three points U(-jitter, jitter) pixels each way.

    They are the centre, half the side, plus (q, q), (q, -q) and (-q, -q), q a third.
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
    """Maps affinely, then displaces each pixel by a smooth random field.

    Lengths in pixels: `jitter` of the affine map's points, `sigma` of the smoothing of
    U(-1, 1), times `alpha`. Bilinear, mirrored at the edges.
    """
    side = len(x)
    x = _sheared(x, rng, jitter)
    right = _displacement(rng, side, alpha, sigma)
    down = _displacement(rng, side, alpha, sigma)
    rows, columns = np.mgrid[:side, :side]
    place = np.stack([rows + down, columns + right])
    return sampled(x, place, "reflect")


def sampled(x: Unit, place: Float[np.ndarray, "2 h w"], mode: str) -> Unit:
    """Reads each pixel at a place, bilinearly; `mode` as of SciPy says how x goes on."""
    planes: list[Plane] = [
        ndimage.map_coordinates(x[..., channel], place, order=1, mode=mode)
        for channel in range(3)
    ]
    return np.stack(planes, -1)


# The reference has a sixth, frost6.jpg, which its draw never reaches.
FROSTS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
WATER = np.float32([175, 238, 238]) / 255
MUD = np.float32([63, 42, 20]) / 255
_KINK = np.float32([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])


@on_unit_scale(np.float32)
def snow(x: Unit, rng: Rng, mean, sigma, zoom, least, radius, blur, keep) -> Unit:
    """Whitens the image and adds flakes that fall, and the same turned upside down.

    Flakes: N(mean, sigma^2), zoomed, set to 0 below `least`, moved by (radius, blur) at
    U(-135, -45) degrees. Image: keep x + (1 - keep) max(x, 1.5 grey + 0.5).
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


def frost(image: Image, rng: Rng, keep, add, scale, *, folder) -> Image:
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


def plasma(
    xp: ModuleType, rng: Rng, levels: int, decay: float
) -> Float[Any, "side side"]:
    """Draws a fractal height map on a torus, [0, 1], of 2^levels pixels a side.

    Diamond-square: squares, then diamonds, get the mean of four neighbours plus
    U(-w^2, w^2); w is 100 at first and falls by `decay` each time the step halves. That
    the width is squared is so in the reference.
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
    """Adds `thick` times a plasma and scales by max(x) / (max(x) + thick).

    The plasma's side is the least power of two that holds the image: 256 for 224.
    """
    side, brightest = len(x), x.max()
    mist = plasma(x.__array_namespace__(), rng, (side - 1).bit_length(), decay)
    mist = mist[:side, :side, None]
    return (x + thick * mist) * brightest / (brightest + thick)


@on_unit_scale(np.float32)
def spatter(x: Unit, rng: Rng, mean, sigma, blur, least, strength, mud) -> Unit:
    """Splashes water, or mud, where blurred N(mean, sigma^2) is at least `least`.

    `strength` is the brightness of water, the blur of mud's borders in pixels. Water
    above 1 (rare, and only on small images) wraps around to 0, as in the reference.
    Deviation: where no drop falls, the image is kept; the reference divides by 0.
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


def _shine(liquid: np.ndarray) -> Plane:
    """Gives the light (h, w) of drops (h, w) of bytes, up to a factor.

    Distances to the drops' edges, cut at 20 pixels, equalised, and lit from one side.
    """
    edges = cv2.Canny(liquid, 50, 150)
    distance = cv2.distanceTransform(255 - edges, cv2.DIST_L2, 5)
    distance = cv2.blur(np.minimum(distance, 20), (3, 3)).astype(np.uint8)
    lit = cv2.filter2D(cv2.equalizeHist(distance), cv2.CV_8U, _KINK)
    return liquid * cv2.blur(lit, (3, 3)).astype(np.float32)


Values = Float[Any, "h w 3"]  # Of bytes, or 0 to 255.


_ROUNDS = 6  # The most of plasma_noise.


def _call(function: Callable, *args: Any) -> Any:
    return function(*args)


def _grid(xp: ModuleType, side: int) -> tuple[Int[Any, "h 1"], Int[Any, "1 w"]]:
    """Gives the row and the column of each pixel."""
    along = xp.arange(side)
    return along[:, None], along[None, :]


def single_frequency_greyscale(image: Values, rng: Rng, level: float) -> Values:
    """Adds 19.6 level sin(u x + v y + phase), the same to each channel.

    One of u, v, either evenly, is drawn from U(-pi, pi), the other from U within plus
    and minus its size.
    """
    xp = image.__array_namespace__()
    first = rng.uniform(-np.pi, np.pi)
    second = rng.uniform(-abs(first), abs(first))
    u, v = rng.permutation([first, second])
    phase = rng.uniform(0, 2 * np.pi)
    y, x = _grid(xp, len(image))
    wave = xp.sin(u * x + v * y + phase)
    return image + 19.6 * level * wave[..., None]


def cocentric_sine_waves(image: Values, rng: Rng, level: float) -> Values:
    """Adds 12.8 level (((d + a sin(k t)) mod w) / w - 1/2): wavy rings about a point.

    d and t, polar about U(0, side)^2, t from the y axis; k of U(0, 10), a and w of
    U(0, side / 10). The name is spelled as published.
    """
    xp, side = image.__array_namespace__(), len(image)
    centre = rng.uniform(0, side, 2)
    k = rng.uniform(0, 10)
    a, w = rng.uniform(0, side / 10, 2)
    y, x = _grid(xp, side)
    x, y = x - centre[0], y - centre[1]
    rings = (xp.hypot(x, y) + a * xp.sin(k * xp.arctan2(x, y))) % w / w - 0.5
    return image + 12.8 * level * rings[..., None]


def warped_grid(xp, side, time, rounds, sharpness, scale) -> tuple[Plane, Plane]:
    """Gives coordinates (x, y) that were moved by sines of themselves, several times.

    In each round (x, y) moves by r + 0.3 (-r_y, r_x), r = (cos(p y + t / q),
    sin(p x + t / q)) / s; then p, q and s grow by 1.93, 1.15 and 2.25 - sharpness. The
    reference has a phase besides, which is always 0.
    """
    y, x = xp.broadcast_arrays(*(along / scale for along in _grid(xp, side)))
    p, q, s = 1.0, 1.0, 1.0
    for i in range(_ROUNDS):
        right = xp.cos(p * y + time / q) / s
        down = xp.sin(p * x + time / q) / s
        moves = i < rounds
        x = xp.where(moves, x + right - 0.3 * down, x)
        y = xp.where(moves, y + down + 0.3 * right, y)
        p, q, s = p * 1.93, q * 1.15, s * (2.25 - sharpness)
    return x, y


def plasma_noise(
    image: Values, rng: Rng, level: float, run: Callable = _call
) -> Values:
    """Mixes (1 - i / 255) x + i n, i = 6.4 level, with warped waves n of random form.

    The waves are three sines, in [-1, 1], of coordinates that are `warped_grid`'s.
    """
    xp, side = image.__array_namespace__(), len(image)
    time = rng.uniform(0, 6 * np.pi)
    rounds = rng.integers(4, 7)
    sharpness = rng.uniform(0.5, 1)
    scale = rng.uniform(0.075, 0.2) * side
    warped = functools.partial(warped_grid, xp, side)
    x, y = run(warped, time, rounds, sharpness, scale)
    red, blue = xp.sin(x - time), xp.sin(y + time)
    green = xp.sin((x + y + xp.sin(time)) * 0.5)
    strength = 6.4 * level
    waves = xp.stack([red, green, blue], -1)
    return (1 - strength / 255) * image + strength * waves


def lattice(xp: ModuleType, rng: Rng) -> tuple[Float[Any, "256 2"], Int[Any, "256"]]:
    """Draws gradients of length 1, and their order, of a noise after Perlin 1985.

    Gradients go towards points spread evenly in a square, not a circle.
    """
    points = rng.integers(-256, 256, (256, 2)).astype(float)
    zero = (points == 0).all(-1, keepdims=True)
    points = xp.where(zero, 1.0, points)  # One in 262144; the reference divides by 0.
    length = xp.linalg.norm(points, axis=-1, keepdims=True)
    return points / length, rng.permutation(256)


def lattice_noise(
    xp: ModuleType,
    side: int,
    octave: int,
    gradients: Float[Any, "256 2"],
    order: Int[Any, "256"],
) -> Plane:
    """Gives 1.5 times the noise at 7 octave / side (row, column), 0 where these are whole.

    Rows of pixels are columns of the lattice of 256 x 256 cells, which is periodic. All
    columns of gradients are one permuted list, from different places on, as in the
    reference. Smoothstep 3 t^2 - 2 t^3.
    """
    place = octave * (np.arange(side) * (7 / side))
    cell = np.floor(place).astype(int)
    near = (place - cell).astype(gradients.dtype)
    smooth = near**2 * (3 - 2 * near)
    ends = np.arange(cell[-1] + 2)
    table = gradients[order[(order[ends % 256][:, None] + ends[None, :]) % 256]]
    # Those of a cell's four corners side by side are fetched at once.
    corners = [table[:-1, :-1], table[:-1, 1:], table[1:, :-1], table[1:, 1:]]
    fetched = xp.concatenate(corners, -1)[cell][:, cell]

    def corner(i: int, j: int) -> Plane:
        gradient = fetched[..., 2 * (2 * i + j) :]
        away = near[:, None] - i, near[None, :] - j
        return gradient[..., 0] * away[0] + gradient[..., 1] * away[1]

    across, along = smooth[:, None], smooth[None, :]
    first = corner(0, 0) + across * (corner(1, 0) - corner(0, 0))
    second = corner(0, 1) + across * (corner(1, 1) - corner(0, 1))
    return 1.5 * (first + along * (second - first))


def perlin_noise(
    image: Values, rng: Rng, level: float, run: Callable = _call
) -> Values:
    """Mixes (1 - a) x + 255 a min(1/2 + t / 2, 1), a = level / 20, with turbulence t.

    t is the sum of abs(noise(f p)) / f over f = 1, 2, 4, 8, 16; p in sevenths of the side.
    """
    xp, side = image.__array_namespace__(), len(image)
    cells = lattice(xp, rng)
    turbulence = sum(
        abs(run(functools.partial(lattice_noise, xp, side, f), *cells)) / f
        for f in (1, 2, 4, 8, 16)
    )
    clouds = xp.minimum(0.5 + 0.5 * turbulence, 1)
    share = level / 20
    return (1 - share) * image + 255 * share * clouds[..., None]


def spectral_noise(
    xp: ModuleType, rng: Rng, amplitude: Float[np.ndarray, "h w"]
) -> Plane:
    """Draws a field of unit deviation with these amplitudes, the mean's at the middle.

    Phases are U(0, 2 pi) in the left half; the right half is the left one turned about
    the middle of the array, and the imaginary part of the sum is dropped, as in the
    reference. So phases k and -k - 1 are the same, and where amplitudes hardly change
    between them, the fields at x and -x are alike near the corners, opposite near the
    middle of an edge, and there almost 0.
    """
    side = len(amplitude)
    half = side // 2
    left = rng.uniform(0, 2 * np.pi, (side, side - half))
    phases = xp.concatenate([left, left[::-1, half - 1 :: -1]], 1)
    waves = amplitude * xp.exp(1j * phases)
    field = xp.fft.ifft2(xp.fft.ifftshift(waves)).real
    return field / field.std()


def frequency(side: int) -> Float[np.ndarray, "h w"]:
    """Gives periods a side, 0 at the middle: the amplitude of blue noise."""
    y, x = np.mgrid[:side, :side] - side / 2
    return np.hypot(x, y)


def brownish(side: int) -> Float[np.ndarray, "h w"]:
    """Gives 1 / (f^2 + 1) of the frequency f; noise of it has a random mean, too."""
    return 1 / (frequency(side) ** 2 + 1)


def blue_noise_sample(image: Values, rng: Rng, level: float) -> Values:
    """Blackens the pixels where blue noise is not above 0.3 level - 2.5."""
    xp = image.__array_namespace__()
    keep = spectral_noise(xp, rng, frequency(len(image))) > 0.3 * level - 2.5
    return xp.where(keep[..., None], image, 0)


def brownish_noise(image: Values, rng: Rng, level: float) -> Values:
    """Adds 6.4 level times brownish noise, another to each channel."""
    xp, amplitude = image.__array_namespace__(), brownish(len(image))
    fields = [spectral_noise(xp, rng, amplitude) for _ in range(3)]
    return image + 6.4 * level * xp.stack(fields, -1)


INDEX = 4.0  # Of refraction.


def caustics(xp: ModuleType, side: int, time: float, size: float) -> Plane:
    """Gives the light [0, 1] on the floor of a pool of `size` pixels, periodic."""
    y, x = (along / size % 1 * (2 * np.pi) - 250 for along in _grid(xp, side))
    down, right = y, x
    total = 1.0
    for n in range(1, 6):
        t = time * (1 - 3.5 / n)
        down, right = (
            y + (xp.cos(t - down) + xp.sin(t + right)),
            x + (xp.sin(t - right) + xp.cos(t + down)),
        )
        slope = xp.hypot(y / xp.sin(down + t), x / xp.cos(right + t))
        total = total + 200 / slope
    return xp.clip(abs(1.17 - (total / 5) ** 1.4) ** 8, 0, 1)


def draw_caustics(image: Values, rng: Rng, run: Callable = _call) -> Plane:
    """Draws the light on an image of its size."""
    side = len(image)
    times = rng.uniform(0.5, 2), rng.uniform(0.75, 1.25) * side
    return run(functools.partial(caustics, image.__array_namespace__(), side), *times)


def refraction(down: Plane, right: Plane) -> Plane:
    """Gives how far a vertical ray of length 1 goes aside in a surface, over its slope.

    The ray leaves at sin(o) = sin(i) / INDEX to the normal, i the normal's angle to the
    vertical: sin(i - o) along the slope; 0 where cos(i) is at least 0.999.
    """
    xp = down.__array_namespace__()
    steep = xp.hypot(down, right)
    angle = xp.arctan(steep)
    out = xp.arcsin(xp.sin(angle) / INDEX)
    reach = xp.where(xp.cos(angle) >= 0.999, 0, xp.sin(angle - out))
    return reach / xp.where(steep == 0, 1, steep)


def water(light: Plane, level: float) -> tuple[Plane, Plane, Plane]:
    """Gives from how far aside each pixel is fetched, rows and columns, and its light.

    Slopes are central differences, not halved, of `light`, 0 outside the image. Pixels
    are fetched from level side / 20 times the ray's way aside; the light, on the scale
    of [0, 1], is the difference of both slopes times level / 5.
    """
    xp, side = light.__array_namespace__(), len(light)
    light = xp.pad(light, 1)
    down = light[2:, 1:-1] - light[:-2, 1:-1]
    right = light[1:-1, 2:] - light[1:-1, :-2]
    bent = refraction(down, right)
    rows, columns = (
        xp.round(slope * bent * (level * side / 20), 3) for slope in (down, right)
    )
    return rows, columns, (down - right) * (level / 5)


def caustic_refraction(image: Values, rng: Rng, level: float) -> Values:
    """Looks at the image through water of wavy light, and lights it.

    The light is blurred by 1 pixel; pixels are fetched bilinearly, black outside.
    """
    light = ndimage.gaussian_filter(draw_caustics(image, rng), 1)
    rows, columns, lit = water(light, level)
    y, x = np.mgrid[: len(image), : len(image)]
    place = np.stack([y + rows, x + columns])
    seen = sampled(unit(image), place, "grid-constant")
    return 255 * (seen + lit[..., None])


def checkerboard_cutout(image: Values, rng: Rng, level: float) -> Values:
    """Fills level / 10 of one colour of a turned checkerboard with the grey 128.

    Fields of U(0.1, 0.25) side, turned by U(0, 2 pi) about the first pixel. A field and
    the one across an axis through that pixel share their draw, as in the reference.
    """
    xp, side = image.__array_namespace__(), len(image)
    angle = rng.uniform(0, 2 * np.pi)
    field = rng.uniform(0.1, 0.25) * side
    count = xp.floor_divide(4 * side, field).astype(int)
    filled = rng.random((count, count)) < level / 10
    y, x = (along / field for along in _grid(xp, side))
    u = xp.cos(angle) * y + xp.sin(angle) * x
    v = xp.cos(angle) * x - xp.sin(angle) * y
    same = xp.floor(u) % 2 == xp.floor(v) % 2
    # Towards 0; below it, counted from the end.
    cover = same & filled[u.astype(int) % count, v.astype(int) % count]
    return xp.where(cover[..., None], 128, image)


def star(
    side: int,
    centre: Float[Any, "2"],
    lengths: Float[Any, "most"],
    rays: int,
    amount: float,
) -> Plane:
    """Gives the strength [0, 1] of a star with rays of these lengths in pixels.

    clip((1 - (u - 1/2)^2) (L^2 / (d^2 + 1e-4))^((100 - amount) / 50), 0, 1) at distance
    d, u between two rays, of which L is interpolated. `centre` is (row, column).
    """
    xp = lengths.__array_namespace__()
    y, x = _grid(xp, side)
    y, x = y - centre[0], x - centre[1]
    turn = (xp.arctan2(x, y) + np.pi) / (2 * np.pi) * rays
    ray = turn.astype(int)
    u = turn - ray
    length = lengths[ray % rays] * (1 - u) + lengths[(ray + 1) % rays] * u
    glow = (length**2 / (x**2 + y**2 + 1e-4)) ** ((100 - amount) / 50)
    return xp.clip((1 - (u - 0.5) ** 2) * glow, 0, 1)


def _lengths(rng: Rng, radius: float, rays: int) -> Float[Any, "rays"]:
    """Draws lengths of N(radius, (radius / 4)^2) pixels."""
    return radius * (1 + 0.25 * rng.standard_normal(rays))


def sparkles(image: Values, rng: Rng, level: float) -> Values:
    """Lays five white stars at U(0, side)^2 over it, of 50 to 199 rays each.

    Their lengths are about level side / 100, with a deviation of a quarter.
    """
    xp, side = image.__array_namespace__(), len(image)
    centres = rng.uniform(0, side, (5, 2))
    counts = rng.integers(50, 200, 5)
    for centre, rays in zip(centres, counts, strict=True):
        lengths = xp.maximum(_lengths(rng, level * side / 100, rays), 1)
        image = image + star(side, centre, lengths, rays, 50)[..., None] * (255 - image)
    return image


def inverse_sparkles(image: Values, rng: Rng, level: float) -> Values:
    """Whitens all but a star at U(side / 4, 3 side / 4)^2 of 50 to 199 rays.

    Their lengths are about side / 4; its amount is 100 - 6.5 level.
    """
    side = len(image)
    centre = rng.uniform(0.25, 0.75, 2) * side
    rays = rng.integers(50, 200)
    lengths = _lengths(rng, side / 4, rays)
    seen = star(side, centre, lengths, rays, 100 - 6.5 * level)[..., None]
    return 255 + seen * (image - 255.0)
