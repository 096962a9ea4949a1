"""The corruptions of ImageNet-C (CORRUPTIONS) and of ImageNet-C-bar (BAR), by name.

    corrupt(image, "fog", severity=3, rng=np.random.default_rng(7))

An image is a square of bytes (h, w, 3). A corrupted image depends only on the image, the name,
the severity and the generator. Pass each image its own generator, so that the result does not
depend on earlier images. jbias.augment.corrupt applies the same functions on a device.

    severities.py (and tables/corruption_severities.json)   the numbers of each severity
    noise.py, blur.py, weather.py, digital.py               ImageNet-C
    imagenet_c_bar.py                                       ImageNet-C-bar
    operations.py                                           what host and device do differently
    host_operations.py                                      by SciPy, OpenCV and Pillow
    device_filters.py                                       filters as arrays, for a device

Sources: Hendrycks and Dietterich, ICLR 2019, https://arxiv.org/abs/1903.12261, numbers and code of
https://github.com/hendrycks/robustness at 8190fe3, ImageNet-C/create_c; Mintun, Kirillov and
Xie, NeurIPS 2021, https://arxiv.org/abs/2102.11273.
Deviation of all: another generator; with the same draws the images are the same. As in the code
that made the published sets, fractions of bytes are cut off, not rounded, unless noted.
Deviations: the published sets were made from different random draws. The sets of 224 and 64
pixels were stored as JPEG of quality 85. CIFAR-10-C-bar has ten different corruptions and
levels, so BAR at 32 pixels does not reproduce CIFAR-10-C-bar.
"""

import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from jbias.data.corruptions import (
    blur,
    device_filters,
    digital,
    host_operations,
    imagenet_c_bar,
    noise,
    severities,
    weather,
)
from jbias.data.corruptions.operations import Filters, Image, Settings, Values

Path = str | pathlib.Path | None

SIDES = severities.SIDES
SEVERITIES = severities.SEVERITIES
severity_settings = severities.severity_settings


class Corruption(NamedTuple):
    """A corruption: its function, its published settings, and the function that makes its filters.

    apply: (image, generator, operations, **settings) -> values from 0 to 255, not yet clipped.
    prepare: (filters, side, row, rows) -> the settings of `apply`, by name. filters: a module that
    is an `operations.Filters`. side: of the images, in pixels. row: the published numbers of one
    severity, by column of corruption_severities.json. rows: the rows of all five severities. None:
    the settings are the row.
    """

    apply: Callable[..., Values]
    published: severities.Published
    prepare: Callable[..., Settings] | None = None

    @property
    def family(self) -> str:
        """Return "noise", "blur", "weather", "digital" or "bar"."""
        return self.published.family

    @property
    def extra(self) -> bool:
        """Return whether the corruption is not in the published mean over fifteen."""
        return self.published.extra


def _by_name(
    *functions: Callable[..., Values] | tuple[Callable[..., Values], Callable],
) -> dict[str, Corruption]:
    """Return {name of the function: its Corruption}; a pair is (function, its `prepare`)."""
    corruptions = {}
    for entry in functions:
        apply, prepare = entry if isinstance(entry, tuple) else (entry, None)
        name = apply.__name__
        corruptions[name] = Corruption(apply, severities.table()[name], prepare)
    return corruptions


CORRUPTIONS: Mapping[str, Corruption] = _by_name(
    noise.gaussian_noise,
    (noise.shot_noise, noise.prepare_shot_noise),
    noise.impulse_noise,
    (blur.defocus_blur, blur.prepare_defocus_blur),
    (blur.glass_blur, blur.prepare_glass_blur),
    (blur.motion_blur, blur.prepare_motion_blur),
    (blur.zoom_blur, blur.prepare_zoom_blur),
    (weather.snow, weather.prepare_snow),
    (weather.frost, weather.prepare_frost),
    weather.fog,
    weather.brightness,
    digital.contrast,
    (digital.elastic_transform, digital.prepare_elastic_transform),
    (digital.pixelate, digital.prepare_pixelate),
    (digital.jpeg_compression, digital.prepare_jpeg_compression),
    noise.speckle_noise,
    (blur.gaussian_blur, blur.prepare_gaussian_blur),
    (weather.spatter, weather.prepare_spatter),
    digital.saturate,
)
BAR: Mapping[str, Corruption] = _by_name(
    imagenet_c_bar.blue_noise_sample,
    imagenet_c_bar.brownish_noise,
    (imagenet_c_bar.caustic_refraction, imagenet_c_bar.prepare_caustic_refraction),
    imagenet_c_bar.checkerboard_cutout,
    imagenet_c_bar.cocentric_sine_waves,
    imagenet_c_bar.inverse_sparkles,
    imagenet_c_bar.perlin_noise,
    imagenet_c_bar.plasma_noise,
    imagenet_c_bar.single_frequency_greyscale,
    imagenet_c_bar.sparkles,
)
KNOWN: Mapping[str, Corruption] = {**CORRUPTIONS, **BAR}


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
    severities.check_name(name)
    settings = _prepared(
        host_operations, name, severity, side=_side(image), table=table, frost=frost
    )
    values = KNOWN[name].apply(image, rng, host_operations, **settings)
    return host_operations.truncated(values)


def settings(
    name: str, severity: int, *, side: int, table: int | None = None, frost: Path = None
) -> Settings:
    """Return the settings of a corruption on the device by name, for augment.corrupt.

    The values are published numbers, in float32 and named after their columns, and filters, which
    are arrays or tuples of arrays made by device_filters. All severities of a corruption have
    settings of the same names, shapes and types, so that one compiled program covers them.

    side: side of the images in pixels. Other arguments and errors: see `corrupt`.
    """
    prepared = _prepared(
        device_filters, name, severity, side=side, table=table, frost=frost
    )
    return {
        key: np.float32(value) if isinstance(value, (int, float)) else value
        for key, value in prepared.items()
    }


def _prepared(
    filters: Filters,
    name: str,
    severity: int,
    *,
    side: int,
    table: int | None,
    frost: Path,
) -> Settings:
    """Return the settings of a corruption by name, as keyword arguments of `Corruption.apply`.

    filters: the module that makes the filters, host_operations or device_filters. Other arguments
    and errors: see `corrupt`.
    """
    published = severities.severity_settings(name, side, table)
    index = severities.severity_index(severity)
    columns = KNOWN[name].published.columns
    rows: list[dict[str, Any]] = [
        dict(zip(columns, row, strict=True)) for row in published
    ]
    row = rows[index] | ({"folder": frost} if name == "frost" else {})
    prepare = KNOWN[name].prepare
    return row if prepare is None else prepare(filters, side, row, rows)


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
