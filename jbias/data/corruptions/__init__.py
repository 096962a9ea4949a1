"""The corruptions of ImageNet-C (CORRUPTIONS) and of ImageNet-C-bar (BAR), by name.

    corrupt(image, "fog", severity=3, rng=np.random.default_rng(7))

An image is a square of bytes (h, w, 3). A corrupted image depends only on the image, the name,
the severity and the generator. Pass each image its own generator, so that the result does not
depend on earlier images.

The settings of a corruption are a row of numbers for each side and each of five severities.
Sides are 224 for ImageNet-C, 64 for Tiny-ImageNet-C, 32 for CIFAR-10-C and CIFAR-100-C, and 0
for ImageNet-C-bar, whose settings fit all sides. The numbers of a row are the arguments of the
function with the corruption's name. The numbers of elastic_transform are already multiplied
by the side, with 244 for 224 as in the reference.

Sources: Hendrycks and Dietterich, ICLR 2019, https://arxiv.org/abs/1903.12261, numbers of
https://github.com/hendrycks/robustness at 8190fe3, ImageNet-C/create_c; Mintun, Kirillov and
Xie, NeurIPS 2021, https://arxiv.org/abs/2102.11273.
Deviations: the published sets were made from different random draws. The sets of 224 and 64
pixels were stored as JPEG of quality 85. CIFAR-10-C-bar has ten different corruptions and
levels, so BAR at 32 pixels does not reproduce CIFAR-10-C-bar.

`settings` returns a row as arrays, for corrupting images on a device:

    settings("fog", 3, side=224)  # {"thick": 2.5, "decay": 1.7}

All severities of a corruption have arrays of the same names, shapes and types: filters
are matrices, kernels are padded with zeros to the longest one.
"""

import dataclasses
import functools
import inspect
import io
import pathlib
from collections.abc import Callable, Mapping

import numpy as np
import PIL.Image
from jaxtyping import Float, Int
from scipy import ndimage, special

from jbias import errors
from jbias.data import tables
from jbias.data.corruptions import imagenet_c_bar, kernels
from jbias.data.corruptions.kernels import Image
from jbias.untrusted import opening

Rows = tuple[tuple[float, ...], ...]  # Of all severities.
Path = str | pathlib.Path | None

SIDES = (32, 64, 224)  # Those with settings of their own.
SEVERITIES = (1, 2, 3, 4, 5)


@dataclasses.dataclass(frozen=True)
class Corruption:
    """A corruption: its function, family and settings.

    apply(image, generator, *row) -> image on the scale of bytes, not yet clipped.
    """

    apply: Callable[..., Image]
    family: str  # "noise", "blur", "weather", "digital" or "bar".
    settings: Mapping[int, Rows]  # {side: a row for each severity}; side 0: all sides.
    extra: bool = False  # True: not in the published mean over fifteen corruptions.


def _by_name(*functions: Callable[..., Image]) -> dict[str, Corruption]:
    """Return {name of the function: its Corruption}, with settings of corruption_severities.json."""
    rows, corruptions = tables.read("corruption_severities"), {}
    for function in functions:
        row = rows[function.__name__]
        settings = {
            int(side): tuple(map(tuple, side_rows))
            for side, side_rows in row.pop("settings").items()
        }
        corruptions[function.__name__] = Corruption(function, settings=settings, **row)
    return corruptions


CORRUPTIONS: Mapping[str, Corruption] = _by_name(
    kernels.gaussian_noise,
    kernels.shot_noise,
    kernels.impulse_noise,
    kernels.defocus_blur,
    kernels.glass_blur,
    kernels.motion_blur,
    kernels.zoom_blur,
    kernels.snow,
    kernels.frost,
    kernels.fog,
    kernels.brightness,
    kernels.contrast,
    kernels.elastic_transform,
    kernels.pixelate,
    kernels.jpeg_compression,
    kernels.speckle_noise,
    kernels.gaussian_blur,
    kernels.spatter,
    kernels.saturate,
)
BAR: Mapping[str, Corruption] = _by_name(
    imagenet_c_bar.blue_noise_sample,
    imagenet_c_bar.brownish_noise,
    imagenet_c_bar.caustic_refraction,
    imagenet_c_bar.checkerboard_cutout,
    imagenet_c_bar.cocentric_sine_waves,
    imagenet_c_bar.inverse_sparkles,
    imagenet_c_bar.perlin_noise,
    imagenet_c_bar.plasma_noise,
    imagenet_c_bar.single_frequency_greyscale,
    imagenet_c_bar.sparkles,
)


def corrupt(
    image: Image,
    name: str,
    severity: int,
    rng: np.random.Generator,
    *,
    table: int | None = None,
    frost: Path = None,
) -> Image:
    """Return a corrupted image of bytes, of the same size.

    image: square, at least 32 pixels a side.
    name: name of the corruption, a key of CORRUPTIONS or BAR. severity: 1 to 5.
    table: side for which the settings of CORRUPTIONS were made: 32, 64 or 224. Default: the
      image's side; images of other sides need `table`. Lengths in pixels do not grow with
      the image. Settings of BAR fit all sides.
    frost: the folder of photographs, required for the corruption "frost".
    ValueError for arguments outside their range, and for missing or too small photographs.
    """
    entry = _entry(name)
    row = severity_settings(name, _side(image), table)[severity_index(severity)]
    options = {"folder": frost} if name == "frost" else {}
    return np.clip(entry.apply(image, rng, *row, **options), 0, 255).astype(np.uint8)


def severity_settings(name: str, side: int, table: int | None = None) -> Rows:
    """Return a corruption's settings for images of `side` pixels, a row for each severity.

    name, table: see `corrupt`. `table` replaces `side`; BAR ignores `table` and `side`.
    ValueError for an unknown name and a side or a table without settings.
    """
    sides = _entry(name).settings
    if name in BAR:
        return sides[0]
    where, must = "data.corrupt", f"be one of {SIDES}"
    if table is None and side not in SIDES:
        remedy = "resize, or pass table=224 to use those of 224"
        must = f"{must}, which have settings"
        errors.refuse(where, must, side, remedy, name="the side")
    if table is not None and table not in SIDES:
        remedy = "name the side whose settings to use"
        errors.refuse(where, must, table, remedy, name="table")
    return sides[side if table is None else table]


def severity_index(severity: int) -> int:
    """Return the index of a severity in SEVERITIES; ValueError if it is not 1 to 5."""
    is_known, must = severity in SEVERITIES, f"be one of {SEVERITIES}"
    remedy = "0 would be the image itself"
    errors.check(is_known, "data.corrupt", must, severity, remedy, name="severity")
    return SEVERITIES.index(severity)


def _entry(name: str) -> Corruption:
    """Return the corruption `name` of CORRUPTIONS or BAR; ValueError if unknown."""
    known = {**CORRUPTIONS, **BAR}
    errors.check_known(
        "data.corrupt", name, known, "the corruption", must="be a known one"
    )
    return known[name]


def _side(image: Image) -> int:
    """Return the side of a square image in pixels.

    ValueError unless the image is uint8 (h, h, 3) with h of at least 32.
    """
    is_array, smallest = isinstance(image, np.ndarray), min(SIDES)
    shape = image.shape if is_array else ()
    is_square = len(shape) == 3 and shape[0] == shape[1] >= smallest and shape[2] == 3
    if not is_square or image.dtype != np.uint8:
        got = f"{image.dtype} {shape}" if is_array else f"a {type(image).__name__}"
        must = "data.corrupt: an image must be a uint8 array (h, w, 3) with h = w of at"
        raise ValueError(f"{must} least {smallest}, got {got}; crop or resize it first")
    return shape[0]


Arrays = dict[str, np.ndarray]

_KERNEL = 41  # Points of the longest motion.
_DISK = 21


def settings(
    name: str, severity: int, *, side: int, table: int | None = None, frost: Path = None
) -> Arrays:
    """Return {name: array}, the settings of a corruption for images of `side` pixels.

    Each parameter of the corruption's function is a float32 number under the parameter's name.
    Arrays made from the parameters are added, for example by `_motion`, and replace a parameter
    of the same name: `_spatter` makes "blur" a matrix and "mud" a bool, `_zoom` makes "count" an
    int32. For "frost", the arrays of `_ice` are added. augment.corrupt uses these arrays. Other
    arguments and errors: see `corrupt`.
    """
    rows = severity_settings(name, side, table)
    row = rows[severity_index(severity)]
    names = [*inspect.signature(_entry(name).apply).parameters][2:]
    arrays = {key: np.float32(value) for key, value in zip(names, row)}
    if name == "frost":
        return arrays | _ice(tuple(kernels.photographs(frost)), row[2], side)
    if name in _BUILDERS:
        arrays |= _BUILDERS[name](side, *row)
    if name == "zoom_blur":
        missing = int(max(count for _, count in rows)) - len(arrays["zooms"])
        arrays["zooms"] = np.pad(arrays["zooms"], ((0, missing), (0, 0), (0, 0)))
    if name == "shot_noise":
        arrays["photons"] = _photons(row[0], int(max(count for (count,) in rows)))
    return arrays


def _gaussian(
    side: int, sigma: float, mode: str = "nearest"
) -> Float[np.ndarray, "side side"]:
    """Return the matrix of a Gaussian filter of `sigma` pixels, truncated at 4 sigma.

    mode: SciPy's name of the treatment of edges.
    """
    matrix = ndimage.gaussian_filter(np.eye(side), (sigma, 0), mode=mode, truncate=4.0)
    return matrix.astype(np.float32)


def _photons(count: float, most: int) -> Float[np.ndarray, "256 n"]:
    """Return the probability of at most j photons (column) for each byte x (row).

    The number of photons of a byte x has the distribution Poisson(count x / 255). Columns j are
    0, 1, ..., n - 1; n is large enough for a mean of `most` photons.
    """
    length = 1 << int(most + 8 * most**0.5).bit_length()
    means = np.arange(256)[:, None] * (count / 255)
    return special.pdtr(np.arange(length), means).astype(np.float32)


def _defocus(side: int, radius: float, alias: float) -> Arrays:
    """Return {"chords": a filter matrix per row of a disk (n side side), "count": their number}.

    Rows are counted from the middle of the disk, which is symmetric; filters beyond "count"
    are 0. Edges are mirrored. radius, alias: see kernels.disk.
    """
    disk = kernels.disk(radius, alias)
    reach = len(disk) // 2
    chords = np.zeros((_DISK // 2 + 1, side, side), np.float32)
    for chord, kernel in zip(chords, disk[reach:], strict=False):
        ndimage.correlate1d(np.eye(side), kernel, axis=0, mode="mirror", output=chord)
    return {"chords": chords, "count": np.int32(reach + 1)}


def _motion(radius: int, sigma: float) -> Arrays:
    """Return {"kernel": kernel of a motion blur (_KERNEL), "taps": its length without padding}.

    radius, sigma: see kernels.motion_kernel.
    """
    kernel = kernels.motion_kernel(radius, sigma).astype(np.float32)
    padded = np.pad(kernel, (0, _KERNEL - len(kernel)))
    return {"kernel": padded, "taps": np.int32(len(kernel))}


def _zoom(side: int, step: float, count: int) -> Arrays:
    """Return {"zooms": matrices of a zoom blur (count side side), "count": their number}.

    step, count: see kernels.zoom_factors.
    """
    factors = kernels.zoom_factors(step, count)
    identity = np.eye(side, dtype=np.float32)
    zooms = np.stack([kernels.magnified(identity, factor) for factor in factors])
    return {"zooms": zooms, "count": np.int32(count)}


def _snow(side: int, *row: float) -> Arrays:
    """Return {"zoom": the zoom matrix of snow (side side)} and the arrays of `_motion`.

    row: all settings of kernels.snow, in their order.
    """
    _, _, zoom, _, radius, blur, _ = row
    zoomed = kernels.magnified(np.eye(side), zoom).astype(np.float32)
    return {"zoom": zoomed, **_motion(radius, blur)}


@functools.lru_cache(maxsize=2)
def _ice(paths: tuple[pathlib.Path, ...], scale: float, side: int) -> Arrays:
    """Return {"ice": photographs padded to one size (n h w 3), "sizes": (n 2)}.

    "sizes" has the height and the width of each photograph before padding. scale: scale of the
    photographs. side: side of the images in pixels. ValueError: see kernels.ice.
    """
    photographs = [kernels.ice(path, scale, side) for path in paths]
    sizes = np.int32([photograph.shape[:2] for photograph in photographs])
    padded = np.zeros((len(paths), *sizes.max(0), 3), np.uint8)
    for i, photograph in enumerate(photographs):
        height, width = photograph.shape[:2]
        padded[i, :height, :width] = photograph
    return {"ice": padded, "sizes": sizes}


def _spatter(side: int, *row: float) -> Arrays:
    """Return {"blur", "border": filter matrix of spatter (side side), "mud": True for mud}.

    row: all settings of kernels.spatter, in their order. "border" is the identity for water.
    """
    _, _, blur, _, strength, mud = row
    border = _gaussian(side, strength if mud else 0)
    return {"blur": _gaussian(side, blur), "border": border, "mud": np.bool_(mud)}


def _pixelate(side: int, scale: float) -> Arrays:
    """Return {"boxes": mask of the pixels that each pixel averages (side side), "weights": (side)}.

    "weights" has for each pixel 2^22 over the number of pixels averaged, rounded. scale: the
    shrunk side is int(side scale). Computed by Pillow's box filter on the rows of an identity
    matrix.
    """
    small = int(side * scale)
    box = PIL.Image.Resampling.BOX
    eye = np.eye(side, dtype=np.float32) * 255
    shrunk = PIL.Image.fromarray(eye).resize((side, small), box)
    boxes = np.array(shrunk.resize((side, side), box)) > 0
    weights = np.floor(2**22 / boxes.sum(1) + 0.5)
    return {"boxes": boxes.astype(np.float32), "weights": weights.astype(np.int32)}


@functools.cache
def quantisation_tables(quality: int) -> Int[np.ndarray, "2 8 8"]:
    """Return the JPEG quantisation steps, luma then chroma, that Pillow writes.

    quality: 1 to 95.
    """
    stream = io.BytesIO()
    PIL.Image.new("RGB", (8, 8)).save(stream, "JPEG", quality=quality)
    with opening.open_image(stream) as picture:
        steps = [picture.quantization[i] for i in (0, 1)]
    return np.int32(steps).reshape(2, 8, 8)


_BUILDERS: Mapping[str, Callable[..., Arrays]] = {
    "gaussian_blur": lambda side, sigma: {"blur": _gaussian(side, sigma)},
    "defocus_blur": _defocus,
    "glass_blur": lambda side, sigma, reach, sweeps: {
        "blur": _gaussian(side, sigma),
        "reach": np.int32(reach),
        "sweeps": np.int32(sweeps),
    },
    "motion_blur": lambda side, radius, sigma: _motion(radius, sigma),
    "zoom_blur": _zoom,
    "snow": _snow,
    "spatter": _spatter,
    "elastic_transform": lambda side, _, sigma, __: {
        "smoother": kernels.smoother(side, sigma).astype(np.float32)
    },
    "pixelate": _pixelate,
    "jpeg_compression": lambda _, quality: {"tables": quantisation_tables(quality)},
    "caustic_refraction": lambda side, _: {"blur": _gaussian(side, 1, "reflect")},
}
