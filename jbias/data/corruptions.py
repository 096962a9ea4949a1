"""The corruptions of ImageNet-C (CORRUPTIONS) and of ImageNet-C-bar (BAR), by name.

    corrupt(image, "fog", severity=3, rng=np.random.default_rng(7))

An image is a square of bytes (h, w, 3). A corrupted image depends on image, name, severity
and generator alone; pass each image its own generator, so that it does not depend on the
images before it.

SETTINGS has five severities for each name and side: 224 for ImageNet-C, 64 for
Tiny-ImageNet-C, 32 for CIFAR-10-C and CIFAR-100-C, 0 for all sides of ImageNet-C-bar. The
function of that name documents what the numbers of a row mean. The third number of frost
scales the photographs; those of elastic_transform were multiplied by the side, with 244 for
224 as in the reference.

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
from jbias.data import corruption_bar as bar
from jbias.data import corruption_kernels as host
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


@dataclasses.dataclass(frozen=True)
class Corruption:
    """A function of (image, generator, *settings), before its values are cut to bytes."""

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
    _listed("noise", host.gaussian_noise, host.shot_noise, host.impulse_noise)
    | _listed(
        "blur", host.defocus_blur, host.glass_blur, host.motion_blur, host.zoom_blur
    )
    # Brightness is so in the paper.
    | _listed("weather", host.snow, host.frost, host.fog, host.brightness)
    | _listed("digital", host.contrast, host.elastic_transform)
    | _listed("digital", host.pixelate, host.jpeg_compression)
    | _listed("noise", host.speckle_noise, extra=True)
    | _listed("blur", host.gaussian_blur, extra=True)
    | _listed("weather", host.spatter, extra=True)
    | _listed("digital", host.saturate, extra=True)
)
BAR: Mapping[str, Corruption] = MappingProxyType(
    _listed("bar", bar.blue_noise_sample, bar.brownish_noise, bar.caustic_refraction)
    | _listed("bar", bar.checkerboard_cutout, bar.cocentric_sine_waves)
    | _listed("bar", bar.inverse_sparkles, bar.perlin_noise, bar.plasma_noise)
    | _listed("bar", bar.single_frequency_greyscale, bar.sparkles)
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
    made = entry.apply(image, rng, *row, **options)
    return np.clip(made, 0, 255).astype(np.uint8)


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
    return host.jpeg(image, 85)


def _entry(name: str) -> Corruption:
    known = {**CORRUPTIONS, **BAR}
    what = "data.corrupt: the corruption must be a known one"
    base.check_known(what, name, known)
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
