"""The blurs of ImageNet-C: gaussian_blur, defocus_blur, glass_blur, motion_blur and zoom_blur.

Arguments and sources: see `operations` and the package's docstring.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from jbias.data.corruptions import operations
from jbias.data.corruptions.operations import (
    Field,
    Filter,
    Filters,
    Line,
    Operations,
    Rng,
    Row,
    Settings,
    Unit,
    Values,
)

Links = Int[Any, "h*w"]  # For each pixel, the number of another one.
Colours = Float[Any, "h*w 3"]


def prepare_gaussian_blur(
    filters: Filters, side: int, row: Row, rows: Sequence[Row]
) -> Settings:
    """Return the settings of `gaussian_blur`: gaussian (a filter).

    row: the published sigma of one severity, in pixels. Other arguments: see `Corruption.prepare`
    of the package.
    """
    return {"gaussian": filters.gaussian(side, row["sigma"])}


@operations.on_filter_scale(np.float64)
def gaussian_blur(x: Unit, rng: Rng, ops: Operations, *, gaussian: Filter) -> Unit:
    """Return the image convolved with a Gaussian; edge pixels are repeated."""
    return ops.filtered(x, gaussian)


def prepare_defocus_blur(
    filters: Filters, side: int, row: Row, rows: Sequence[Row]
) -> Settings:
    """Return the settings of `defocus_blur`: disk (a filter).

    row: the published radius and alias (sigma of the disk's softening) of one severity, in pixels.
    Other arguments: see `Corruption.prepare` of the package.
    """
    return {"disk": filters.disk(side, row["radius"], row["alias"])}


@operations.on_filter_scale(np.float64)
def defocus_blur(x: Unit, rng: Rng, ops: Operations, *, disk: Filter) -> Unit:
    """Return the image correlated with a soft disk; edges are mirrored."""
    return ops.correlated(x, disk)


def glass_origins(offsets: Int[Any, "h w 2"], reach: int, ops: Operations) -> Links:
    """Return the index of the pixel from which each pixel's value comes after one sweep.

    offsets: columns and rows from each pixel to the neighbour that is copied. reach: largest
    offset in pixels. Pixels are numbered row by row.

    The sweep goes over rows and columns from side - reach down to reach + 1. It copies to each
    pixel the value of its neighbour, which may already be a copy. So each pixel has its
    neighbour's new value if the sweep visits the neighbour earlier (it is below, or right of
    the pixel), else the neighbour's old value. Chains of copies are followed by pointer
    doubling.
    """
    xp, side = offsets.__array_namespace__(), len(offsets)
    n, along = side * side, xp.arange(side)
    pixels = xp.arange(n)
    inside = (along > reach) & (along <= side - reach)
    is_swept = (inside[:, None] & inside[None, :]).reshape(-1)
    neighbour = pixels + (offsets[..., 1] * side + offsets[..., 0]).reshape(-1)
    source = xp.where(is_swept, neighbour, pixels)
    is_copy = ops.take(is_swept, source) & (source > pixels)
    links = source + n * is_copy  # n + i stands for the new value of pixel i.

    def follow(links: Links) -> Links:
        return xp.where(links < n, links, ops.take(links, xp.maximum(links - n, 0)))

    return ops.repeat_while(lambda links: (links >= n).any(), follow, links)


def prepare_glass_blur(
    filters: Filters, side: int, row: Row, rows: Sequence[Row]
) -> Settings:
    """Return the settings of `glass_blur`: gaussian (a filter), reach and sweeps (int32).

    row: the published sigma and reach, in pixels, and number of sweeps, of one severity. Other
    arguments: see `Corruption.prepare` of the package.
    """
    return {
        "gaussian": filters.gaussian(side, row["sigma"]),
        "reach": np.int32(row["reach"]),
        "sweeps": np.int32(row["sweeps"]),
    }


def glass_blur(
    image: Values,
    rng: Rng,
    ops: Operations,
    *,
    gaussian: Filter,
    reach: int,
    sweeps: int,
) -> Values:
    """Return the image blurred, with pixels displaced `sweeps` times, and blurred again.

    gaussian: of both blurs. reach: largest displacement in pixels; offsets are uniform from
    -reach to reach - 1. The reference is written to swap a pixel with its neighbour. Because
    the arrays of the reference share memory, the neighbour is copied to the pixel and does not
    change. This function does the same.
    """
    side = len(image)
    offsets = ops.glass_offsets(rng, reach, sweeps, side=side)

    def sweep(i: Any, x: Colours) -> Colours:
        return ops.take(x, glass_origins(offsets[i], reach, ops))

    x = ops.truncated(gaussian_blur(image, rng, ops, gaussian=gaussian))
    x = ops.repeat(sweeps, sweep, x.reshape(-1, 3))
    return gaussian_blur(x.reshape(side, side, 3), rng, ops, gaussian=gaussian)


def along_line(field: Field, ops: Operations, line: Line, degrees: float) -> Field:
    """Return a square map with the motion blur of a moving camera, as whole numbers in float32.

    field: values from 0 to 255. line: the kernel k, see Filters.line. degrees: direction a of
    the motion, from the x axis towards y, which points down. out(x, y) =
    sum_i k_i in(x + ceil(i cos a - 1/2), y + ceil(i sin a - 1/2)); edge pixels are repeated
    outside. As in ImageMagick 6, which made the published sets, sums are rounded to 16 bits
    (factor 257), and fractions of bytes are then truncated.
    """
    xp, side = field.__array_namespace__(), len(field)
    reach, angle = len(line.kernel), xp.deg2rad(degrees)
    pads = ((reach, reach), (reach, reach), (0, 0))[: field.ndim]
    padded = xp.pad(field.astype(xp.float32), pads, mode="edge")
    cosine, sine = xp.cos(angle), xp.sin(angle)

    def add(i: Any, total: Field) -> Field:
        right = xp.ceil(i * cosine - 0.5).astype(xp.int32) + reach
        down = xp.ceil(i * sine - 0.5).astype(xp.int32) + reach
        return total + line.kernel[i] * ops.window(padded, down, right, side=side)

    total = ops.repeat(line.taps, add, xp.zeros(field.shape, xp.float32))
    return (xp.rint(total * 257).astype(xp.int32) // 257).astype(xp.float32)


def prepare_motion_blur(
    filters: Filters, side: int, row: Row, rows: Sequence[Row]
) -> Settings:
    """Return the settings of `motion_blur`: line (an `operations.Line`).

    row: the published radius and sigma of one severity, in pixels. Other arguments: see
    `Corruption.prepare` of the package.
    """
    return {"line": filters.line(row["radius"], row["sigma"])}


def motion_blur(image: Values, rng: Rng, ops: Operations, *, line: Line) -> Values:
    """Return the image blurred along a line at U(-45, 45) degrees, see `along_line`."""
    return along_line(image, ops, line, rng.uniform(-45, 45))


def prepare_zoom_blur(
    filters: Filters, side: int, row: Row, rows: Sequence[Row]
) -> Settings:
    """Return the settings of `zoom_blur`: zooms (a filter per factor) and count (int32).

    row: the published step between factors and count of factors of one severity. rows: the rows of
    all severities, which give the largest count. Other arguments: see `Corruption.prepare` of the
    package.
    """
    most = int(max(other["count"] for other in rows))
    zooms = filters.zooms(side, row["step"], row["count"], most=most)
    return {"zooms": zooms, "count": np.int32(row["count"])}


@operations.on_filter_scale(np.float32)
def zoom_blur(x: Unit, rng: Rng, ops: Operations, *, zooms: Filter, count: int) -> Unit:
    """Return the mean of the image and of its zooms by the first `count` factors of `zooms`.

    As the first factor is 1, the image itself counts twice, as in the reference. Deviation:
    interpolation in float32; a few bytes in a thousand differ by 1.
    """
    xp = x.__array_namespace__()

    def add(i: Any, total: Unit) -> Unit:
        return total + ops.zoomed(x, zooms[i])

    return ops.repeat(count, add, x) / xp.float32(count + 1)
