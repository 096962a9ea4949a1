"""The digital corruptions of ImageNet-C: contrast, elastic_transform, pixelate, jpeg_compression
and saturate.

Arguments and sources: see `operations` and the package's docstring.
"""

from collections.abc import Sequence

import numpy as np

from jbias.data.corruptions import operations
from jbias.data.corruptions.operations import (
    Filter,
    Filters,
    Operations,
    Rng,
    Row,
    Settings,
    Unit,
    Values,
)


@operations.on_unit_scale
def contrast(x: Unit, rng: Rng, ops: Operations, *, scale: float) -> Unit:
    """Return the image with each value's distance from its channel's mean scaled by `scale`."""
    mean = x.mean((0, 1), keepdims=True)
    return (x - mean) * scale + mean


def prepare_elastic_transform(
    filters: Filters, side: int, row: Row, rows: Sequence[Row]
) -> Settings:
    """Return the settings of `elastic_transform`: alpha, smoother (a filter) and jitter.

    row: the published alpha, sigma (of the smoother) and jitter of one severity, in pixels. Other
    arguments: see `Corruption.prepare` of the package.
    """
    smoother = filters.smoother(side, row["sigma"])
    return {"alpha": row["alpha"], "smoother": smoother, "jitter": row["jitter"]}


@operations.on_filter_scale(np.float32)
def elastic_transform(
    x: Unit,
    rng: Rng,
    ops: Operations,
    *,
    alpha: float,
    smoother: Filter,
    jitter: float,
) -> Unit:
    """Return x after a random affine map and a smooth random displacement of its pixels.

    alpha: factor on the displacement, which is U(-1, 1) filtered by `smoother`. jitter:
    largest movement of the affine map's points per axis. Both are in pixels. Interpolation is
    bilinear, and edges are mirrored.
    """
    side = len(x)
    x = ops.sheared(x, rng, jitter)

    def displacement() -> operations.Plane:
        smooth = ops.smoothed(rng.uniform(-1, 1, (side, side)), smoother)
        return (alpha * smooth).astype(np.float32)

    right, down = displacement(), displacement()
    return ops.displaced(x, down, right, border="reflect")


def prepare_pixelate(
    filters: Filters, side: int, row: Row, rows: Sequence[Row]
) -> Settings:
    """Return the settings of `pixelate`: box (a filter).

    row: the published scale of one severity, the side of the shrunk image over the image's side.
    Other arguments: see `Corruption.prepare` of the package.
    """
    return {"box": filters.box(side, row["scale"])}


def pixelate(image: Values, rng: Rng, ops: Operations, *, box: Filter) -> Values:
    """Return the image shrunk and enlarged back by a box filter, see Filters.box."""
    return ops.pixelated(image, box)


def prepare_jpeg_compression(
    filters: Filters, side: int, row: Row, rows: Sequence[Row]
) -> Settings:
    """Return the settings of `jpeg_compression`: jpeg (a filter).

    row: the published quality of one severity, 1 to 95. Other arguments: see `Corruption.prepare`
    of the package.
    """
    return {"jpeg": filters.jpeg(row["quality"])}


def jpeg_compression(
    image: Values, rng: Rng, ops: Operations, *, jpeg: Filter
) -> Values:
    """Return the image after Pillow's JPEG compression, 4:2:0, with the standard tables."""
    return ops.compressed(image, jpeg)


@operations.on_unit_scale
def saturate(x: Unit, rng: Rng, ops: Operations, *, times: float, plus: float) -> Unit:
    """Return the image with the saturation S of HSV changed to clip(S * times + plus, 0, 1).

    Hue and value do not change. Greys have the hue 0, so that a positive `plus` makes them
    red, as in the reference. Deviation: rounding, as in weather.brightness; 3.6 % of the bytes
    differ at severity 3, at most 10 % in one photograph, and 0.5 to 0.7 % at other severities.
    """
    xp = x.__array_namespace__()
    value, least = x.max(-1, keepdims=True), x.min(-1, keepdims=True)
    # Red has the smallest value, the share 1, in green and blue.
    grey, red = value == least, np.float32([[[0, 1, 1]]])
    share = xp.where(grey, red, (value - x) / xp.where(grey, 1, value - least))
    old = (value - least) / xp.where(value == 0, 1, value)
    return value - value * xp.clip(old * times + plus, 0, 1) * share
