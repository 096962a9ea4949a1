"""The weather of ImageNet-C: snow, frost, fog, spatter and brightness.

Arguments and sources: see `operations` and the package's docstring.
"""

from collections.abc import Sequence
from types import ModuleType

import numpy as np

from jbias.data.corruptions import blur as blurs
from jbias.data.corruptions import operations
from jbias.data.corruptions.operations import (
    Filter,
    Filters,
    Line,
    Operations,
    Plane,
    Rng,
    Row,
    Settings,
    Unit,
    Values,
)

_WATER = np.float32([[[175, 238, 238]]])
_MUD = np.float32([[[63, 42, 20]]])


def prepare_snow(
    filters: Filters, side: int, row: Row, rows: Sequence[Row]
) -> Settings:
    """Return the settings of `snow`: mean, sigma, zoom and line (filters), least and keep.

    row: the published mean, sigma, zoom (a factor), least, radius and blur (sigma) of the line, and
    keep, of one severity. Other arguments: see `Corruption.prepare` of the package.
    """
    return {
        "mean": row["mean"],
        "sigma": row["sigma"],
        "zoom": filters.zoom(side, row["zoom"]),
        "least": row["least"],
        "line": filters.line(row["radius"], row["blur"]),
        "keep": row["keep"],
    }


@operations.on_filter_scale(np.float32)
def snow(
    x: Unit,
    rng: Rng,
    ops: Operations,
    *,
    mean: float,
    sigma: float,
    zoom: Filter,
    least: float,
    line: Line,
    keep: float,
) -> Unit:
    """Return the whitened image plus falling flakes plus the same flakes upside down.

    Flakes are N(mean, sigma^2) noise, enlarged by `zoom`, set to 0 below `least`, and blurred
    by `line` at U(-135, -45) degrees (blur.along_line). The whitened image is
    keep x + (1 - keep) max(x, 1.5 grey + 0.5), on the scale of [0, 1].
    """
    xp, side = x.__array_namespace__(), len(x)
    layer = ops.zoomed(rng.normal(mean, sigma, (side, side)), zoom)
    layer = ops.truncated(255 * xp.where(layer < least, 0, layer))
    layer = blurs.along_line(layer, ops, line, rng.uniform(-135, -45))[..., None]
    layer = layer / (255 / ops.WHITE)
    white = ops.grey(x)[..., None] * 1.5 + 0.5 * ops.WHITE
    x = keep * x + (1 - keep) * xp.maximum(x, white)
    return x + layer + layer[::-1, ::-1]


def prepare_frost(
    filters: Filters, side: int, row: Row, rows: Sequence[Row]
) -> Settings:
    """Return the settings of `frost`: keep, add and photographs (a filter).

    row: the published keep, add and scale (of the photographs) of one severity, and "folder", the
    folder of the photographs. Other arguments: see `Corruption.prepare` of the package. ValueError
    if the folder is None or lacks a photograph.
    """
    photographs = filters.photographs(side, row["folder"], row["scale"])
    return {"keep": row["keep"], "add": row["add"], "photographs": photographs}


def frost(
    image: Values,
    rng: Rng,
    ops: Operations,
    *,
    keep: float,
    add: float,
    photographs: Filter,
) -> Values:
    """Return keep * image + add * ice, with a random crop of one of the photographs as ice."""
    return keep * image + add * ops.crop_photograph(photographs, rng, len(image))


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


@operations.on_unit_scale
def fog(x: Unit, rng: Rng, ops: Operations, *, thick: float, decay: float) -> Unit:
    """Return (x + thick p) max(x) / (max(x) + thick), where p is a crop of a `plasma`.

    decay: see `plasma`. The plasma's side is the smallest power of two that is at least the
    image's side: 256 for 224.
    """
    side, brightest = len(x), x.max()
    mist = plasma(x.__array_namespace__(), rng, (side - 1).bit_length(), decay)
    mist = mist[:side, :side, None]
    return (x + thick * mist) * brightest / (brightest + thick)


def prepare_spatter(
    filters: Filters, side: int, row: Row, rows: Sequence[Row]
) -> Settings:
    """Return the settings of `spatter`, whose docstring describes them.

    Keys: mean, sigma, least, strength, blur and border (filters), and mud (bool). row: the
    published mean, sigma, blur (a sigma), least, strength and mud of one severity. The published
    strength is the brightness of water, and for mud the sigma of the blur of its borders. Other
    arguments: see `Corruption.prepare` of the package.
    """
    return {
        "mean": row["mean"],
        "sigma": row["sigma"],
        "blur": filters.gaussian(side, row["blur"]),
        "least": row["least"],
        "strength": row["strength"],
        "border": filters.gaussian(side, row["strength"] if row["mud"] else 0),
        "mud": np.bool_(row["mud"]),
    }


@operations.on_filter_scale(np.float32)
def spatter(
    x: Unit,
    rng: Rng,
    ops: Operations,
    *,
    mean: float,
    sigma: float,
    blur: Filter,
    least: float,
    strength: float,
    border: Filter,
    mud: bool,
) -> Unit:
    """Return the image with water, or mud, where blurred N(mean, sigma^2) >= `least`.

    blur: of the noise. strength: brightness of water. border: blur of mud's borders. mud:
    True for mud, False for water. Values of the noise above 1 (rare, and only on small images)
    wrap around to 0 for water, as in the reference. Deviation: without any drop the image is
    returned unchanged; the reference divides by 0.
    """
    xp, side = x.__array_namespace__(), len(x)
    layer = ops.filtered(rng.normal(mean, sigma, (side, side)), blur)
    layer = xp.where(layer < least, 0, layer)

    def muddy(x: Unit, layer: Plane) -> Unit:
        share = ops.filtered((layer > least).astype(xp.float32), border)
        share = xp.where(share < 0.8, 0, share)[..., None]
        return x * (1 - share) + _MUD / (255 / ops.WHITE) * share

    def wet(x: Unit, layer: Plane) -> Unit:
        light = ops.water_light((layer * 255).astype(xp.int32) % 256)
        peak = light.max()
        light = light * (strength / xp.where(peak > 0, peak, 1))
        return x + _WATER / (255 / ops.WHITE) * light[..., None]

    return ops.choose(mud, muddy, wet, x, layer)


@operations.on_unit_scale
def brightness(x: Unit, rng: Rng, ops: Operations, *, more: float) -> Unit:
    """Return the image with `more` added to the value V of HSV, clipped at 1.

    Hue and saturation do not change: each colour is scaled by the ratio of new to old V.
    Black becomes grey with V = `more`. Deviation: floating-point rounding differs from the
    reference code's before the values are truncated to bytes. In twenty photographs of 224
    pixels, 0.5 to 3.0 % of the bytes (by severity) differ by 1, and at most 6.0 % in one
    photograph.
    """
    xp = x.__array_namespace__()
    value = x.max(-1, keepdims=True)
    lifted = xp.minimum(value + more, 1)
    black = value == 0
    scaled = x * (lifted / xp.where(black, 1, value))
    return xp.where(black, lifted, scaled)
