"""The corruptions of ImageNet-C (CORRUPTIONS) and of ImageNet-C-bar (BAR), by name.

    corrupt(image, "fog", severity=3, rng=np.random.default_rng(7))

An image is a square of bytes (h, w, 3). A corrupted image depends on image, name, severity
and generator alone; pass each image its own generator, so that it does not depend on the
images before it.

SETTINGS has five severities for each name and side: 224 for ImageNet-C, 64 for
Tiny-ImageNet-C, 32 for CIFAR-10-C and CIFAR-100-C. The function of that name documents what
the numbers of a row mean. The third number of frost scales the photographs; those of
elastic_transform were multiplied by the side, with 244 for 224 as in the reference.

Sources: Hendrycks and Dietterich, ICLR 2019, https://arxiv.org/abs/1903.12261, numbers of
https://github.com/hendrycks/robustness at 8190fe3, ImageNet-C/create_c; Mintun, Kirillov and
Xie, NeurIPS 2021, https://arxiv.org/abs/2102.11273.
Deviations: the published sets hold other draws of the same corruptions; those of 224
and 64 pixels were stored as JPEG of quality 85 (`as_published`). CIFAR-10-C-bar is made of
another ten corruptions and levels, so BAR at 32 pixels is not that set.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from jbias.data import base, tables
from jbias.data import corruption_bar as fields
from jbias.data import corruption_bar as shapes
from jbias.data import corruption_kernels as blur
from jbias.data import corruption_kernels as digital
from jbias.data import corruption_kernels as noise
from jbias.data import corruption_kernels as weather
from jbias.data.corruption_kernels import Image

Row = tuple[float, ...]
Table = Mapping[int, tuple[Row, Row, Row, Row, Row]]

SETTINGS: Mapping[str, Table] = MappingProxyType(
    {
        name: MappingProxyType(
            {int(side): tuple(map(tuple, rows)) for side, rows in sides.items()}
        )
        for name, sides in tables.read("corruptions").items()
    }
)

SIDES = (32, 64, 224)  # Those with settings of their own.
SEVERITIES = (1, 2, 3, 4, 5)
CITE = (
    "Hendrycks and Dietterich: Benchmarking Neural Network Robustness to Common"
    " Corruptions and Perturbations. ICLR 2019, https://arxiv.org/abs/1903.12261; Mintun,"
    " Kirillov and Xie: On Interaction Between Augmentations and Corruptions in Natural"
    " Corruption Robustness. NeurIPS 2021, https://arxiv.org/abs/2102.11273"
)


@dataclasses.dataclass(frozen=True)
class Corruption:
    """A function of (image, generator, *settings) and its settings."""

    apply: Callable[..., Image]
    family: str
    settings: Mapping[int, tuple[Row, ...]]  # By side; 0: the same for all.
    extra: bool = False  # Beside the fifteen whose mean is reported.


def _listed(
    family: str, *functions: Callable[..., Image], extra: bool = False
) -> dict[str, Corruption]:
    return {
        f.__name__: Corruption(f, family, SETTINGS[f.__name__], extra)
        for f in functions
    }


CORRUPTIONS: Mapping[str, Corruption] = MappingProxyType(
    {
        **_listed("noise", noise.gaussian_noise, noise.shot_noise, noise.impulse_noise),
        **_listed(
            "blur", blur.defocus_blur, blur.glass_blur, blur.motion_blur, blur.zoom_blur
        ),
        **_listed("weather", weather.snow, weather.frost, weather.fog),
        **_listed("weather", digital.brightness),  # So in the paper.
        **_listed(
            "digital",
            digital.contrast,
            digital.elastic_transform,
            digital.pixelate,
            digital.jpeg_compression,
        ),
        **_listed("noise", noise.speckle_noise, extra=True),
        **_listed("blur", blur.gaussian_blur, extra=True),
        **_listed("weather", weather.spatter, extra=True),
        **_listed("digital", digital.saturate, extra=True),
    }
)


def _bar(apply: Callable[..., Image], *levels: float) -> Corruption:
    return Corruption(apply, "bar", MappingProxyType({0: tuple((x,) for x in levels)}))


BAR: Mapping[str, Corruption] = MappingProxyType(
    {
        "blue_noise_sample": _bar(fields.blue_noise_sample, 0.8, 1.6, 2.4, 4, 5.6),
        "brownish_noise": _bar(fields.brownish_noise, 1, 2, 3, 4, 5),
        "caustic_refraction": _bar(
            shapes.caustic_refraction, 2.35, 3.2, 4.9, 6.6, 9.15
        ),
        "checkerboard_cutout": _bar(shapes.checkerboard_cutout, 2, 3, 4, 5, 6),
        "cocentric_sine_waves": _bar(fields.cocentric_sine_waves, 3, 5, 8, 9, 10),
        "inverse_sparkles": _bar(shapes.inverse_sparkles, 1, 2, 4, 9, 10),
        "perlin_noise": _bar(fields.perlin_noise, 4.6, 5.2, 5.8, 7.6, 8.8),
        "plasma_noise": _bar(fields.plasma_noise, 4.75, 7, 8.5, 9.25, 10),
        "single_frequency_greyscale": _bar(
            fields.single_frequency_greyscale, 1, 1.5, 2, 4.5, 5
        ),
        "sparkles": _bar(shapes.sparkles, 1, 2, 3, 5, 6),
    }
)


def corrupt(
    image: Image,
    name: str,
    severity: int,
    rng: np.random.Generator,
    *,
    table: int | None = None,
    frost: str | pathlib.Path | None = None,
) -> Image:
    """Corrupts one image by the name of a corruption, at severity 1 to 5.

    Settings of CORRUPTIONS are those of the image's side, 32, 64 or 224 pixels. Other
    sides, from 32 on, are only taken with `table`, the side whose settings to use, as
    they are: lengths in pixels do not grow. Those of BAR follow any side by themselves.
    `frost` is the folder of photographs that the corruption of that name needs. Raises
    ValueError for anything else.
    """
    entry = _entry(name)
    row = severity_settings(name, _side(image), table)[severity_index(severity)]
    options = {"folder": frost} if name == "frost" else {}
    return entry.apply(image, rng, *row, **options)


def severity_settings(
    name: str, side: int, table: int | None = None
) -> tuple[Row, ...]:
    """Gives the settings of all severities; `table` as in `corrupt`."""
    return _entry(name).settings[0 if name in BAR else _table(side, table)]


def severity_index(severity: int) -> int:
    """Gives the place of a severity among SEVERITIES. Raises ValueError for others."""
    if severity not in SEVERITIES:
        raise ValueError(
            f"data.corrupt: severity must be one of {SEVERITIES}, got {severity!r};"
            " 0 would be the image itself"
        )
    return SEVERITIES.index(severity)


def as_published(image: Image) -> Image:
    """Gives what is left of a corrupted image stored as JPEG of quality 85.

    So the published sets of 224 and 64 pixels were stored; those of CIFAR were not.
    """
    return digital.jpeg(image, 85)


def _entry(name: str) -> Corruption:
    known = {**CORRUPTIONS, **BAR}
    if name not in known:
        raise ValueError(
            f"data.corrupt: the corruption must be a known one, got {name!r};"
            f" {base.did_you_mean(name, known)}"
        )
    return known[name]


def _side(image: Image) -> int:
    array = isinstance(image, np.ndarray)
    shape = image.shape if array else ()
    square = len(shape) == 3 and shape[0] == shape[1] >= min(SIDES) and shape[2] == 3
    if not square or image.dtype != np.uint8:
        got = f"{image.dtype} {shape}" if array else f"a {type(image).__name__}"
        raise ValueError(
            "data.corrupt: an image must be a uint8 array (h, w, 3) with h = w of at"
            f" least {min(SIDES)}, got {got}; crop or resize it first"
        )
    return shape[0]


def _table(side: int, table: int | None) -> int:
    if table is None:
        table = side
        if side not in SIDES:
            raise ValueError(
                f"data.corrupt: the side must be one of {SIDES}, for which there are"
                f" settings, got {side}; resize, or pass table=224 to use those of 224"
            )
    if table not in SIDES:
        raise ValueError(
            f"data.corrupt: table must be one of {SIDES}, got {table!r}; name the side"
            " whose settings to use"
        )
    return table
