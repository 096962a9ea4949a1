"""The operations of corruptions on the device, in JAX.

This module is a data.corruptions.operations.Operations, which documents the functions. Filters
are arrays of data.corruptions.device_filters. Values are float32 on the scale of bytes, 0 to
255. Shapes do not depend on a severity, so that all severities share a compiled program.
Source: Hendrycks and Dietterich, ICLR 2019, https://arxiv.org/abs/1903.12261.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jbias.augment import jpeg as jpeg_codec
from jbias.augment import memory, opencv, pillow, replay
from jbias.data.corruptions import device_filters

Image = Float[Array, "h w 3"]  # 0 to 255.
Plane = Float[Array, "h w"]
Field = Float[Array, "h w *c"]
Number = Int[Array, ""]

WHITE = 255
# Largest rounding error of float32 at a whole number; steps of corruptions are larger.
_ROUNDING = 1 / 8192


def scaled(image: Image, dtype: type) -> Image:
    """Return the image itself: in float32 bytes are exact; `dtype` is the host's."""
    return image


def truncated(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return x clipped to 0 ... 255 and truncated, as in the published sets.

    A value within 1/8192 below a whole number becomes that number, so that float32 rounding
    does not change the result by one level.
    """
    return jnp.floor(jnp.clip(x, 0, 255) + _ROUNDING)


def filtered(x: Field, gaussian: Float[Array, "h h"]) -> Field:
    """Return M x M^T, a map (h h) or square image x filtered by a matrix M along both axes."""
    rows = jnp.einsum("ij,jw...->iw...", gaussian, x, precision="highest")
    return jnp.einsum("ij,hj...->hi...", gaussian, rows, precision="highest")


def zoomed(x: Field, zoom: Float[Array, "h h"]) -> Field:
    """Return a square map enlarged by a matrix along both axes."""
    return filtered(x, zoom)


def smoothed(x: Plane, smoother: Float[Array, "h h"]) -> Plane:
    """Return a map filtered by a matrix along both axes."""
    return filtered(x, smoother)


def correlated(x: Image, disk: device_filters.Disk) -> Image:
    """Return the image blurred by a disk, row by row of the disk; edges are mirrored."""
    side, reach = len(x), len(disk.chords) - 1
    padded = jnp.pad(x, ((reach, reach), (0, 0), (0, 0)), mode="reflect")

    def row(start: Number) -> Image:
        return jax.lax.dynamic_slice_in_dim(padded, start, side)

    def add(i: Number, total: Image) -> Image:
        both = row(reach - i) + jnp.where(i > 0, row(reach + i), 0)
        chord = disk.chords[i]
        return total + jnp.einsum("ij,hjc->hic", chord, both, precision="highest")

    return jax.lax.fori_loop(0, disk.count, add, jnp.zeros_like(x))


def displaced(x: Image, down: Plane, right: Plane, *, border: str) -> Image:
    """Return x read at displaced positions: see operations.Operations."""
    along = jnp.arange(len(x), dtype=jnp.float32)
    return _bilinear(x, along[:, None] + down, along[None, :] + right, border=border)


def sheared(x: Image, rng: replay.Replay, jitter: Array) -> Image:
    """Return the image after a random affine map: see operations.Operations."""
    rows, columns = _affine(jitter * rng.uniform(-1, 1, (3, 2)), len(x))
    return _bilinear(x, rows, columns, border="reflect_101")


def _bilinear(x: Image, rows: Plane, columns: Plane, *, border: str) -> Image:
    """Return a square image sampled at positions (rows, columns) by bilinear interpolation.

    rows, columns: positions in pixels for each pixel of the result; may be fractions.
    border: pixels outside are mirrored with ("reflect") or without ("reflect_101") a
      repetition of the last pixel, or 0 ("black").
    """
    side, flat = len(x), x.reshape(-1, 3)
    top, left = jnp.floor(rows), jnp.floor(columns)

    def corner(i: int, j: int) -> Image:
        """Return for each position the pixel of x at (top + i, left + j).

        Pixels outside x are mirrored or 0, see `border`.
        """
        row, column = top.astype(jnp.int32) + i, left.astype(jnp.int32) + j
        if border == "black":
            inside = (row >= 0) & (row < side) & (column >= 0) & (column < side)
            index = jnp.clip(row, 0, side - 1) * side + jnp.clip(column, 0, side - 1)
            return jnp.where(inside[..., None], take(flat, index), 0)
        row, column = (_mirrored(k, side, border) for k in (row, column))
        return take(flat, row * side + column)

    down, across = (rows - top)[..., None], (columns - left)[..., None]
    upper = corner(0, 0) * (1 - across) + corner(0, 1) * across
    lower = corner(1, 0) * (1 - across) + corner(1, 1) * across
    return upper * (1 - down) + lower * down


def _mirrored(i: Int[Array, "h w"], side: int, border: str) -> Int[Array, "h w"]:
    """Return indices mirrored into [0, side); border: "reflect" or "reflect_101"."""
    repeats_last = border == "reflect"
    last = 2 * side - 2 + repeats_last
    i = i % (last + repeats_last)
    return jnp.minimum(i, last - i)


def _affine(moves: Float[Array, "3 2"], side: int) -> tuple[Plane, Plane]:
    """Return the positions (rows, columns) from which pixels come when three points move.

    The affine map is determined by the displacements `moves` (x, y) of three points: the
    centre plus (q, q), (q, -q) and (-q, -q), with q a third of the side.
    """
    centre, q = side // 2, side // 3
    # The displacement is `at` at the centre and grows by `slopes` per pixel.
    slopes = jnp.stack([moves[1] - moves[2], moves[0] - moves[1]], -1) / (2 * q)
    at = (moves[0] + moves[2]) / 2
    a, b = 1 + slopes[0, 0], slopes[0, 1]
    c, d = slopes[1, 0], 1 + slopes[1, 1]
    inverse = jnp.stack([d, -b, -c, a]).reshape(2, 2) / (a * d - b * c)
    offsets = jnp.arange(side, dtype=jnp.float32) - centre

    def position(axis: int) -> Plane:
        by_x, by_y = inverse[axis]
        x, y = offsets[None, :] - at[0], offsets[:, None] - at[1]
        return centre + by_x * x + by_y * y

    return position(1), position(0)


def window(x: Field, down: Number, right: Number, *, side: int) -> Field:
    """Return side x side pixels of x, from row `down` and column `right` on."""
    start = (down, right, 0)[: x.ndim]
    return jax.lax.dynamic_slice(x, start, (side, side, *x.shape[2:]))


def grey(x: Image) -> Plane:
    """Return the luma of an image."""
    # Accelerators round the factors of a product by default.
    return jnp.matmul(x, jnp.array([0.299, 0.587, 0.114]), precision="highest")


def water_light(depth: Int[Array, "h w"]) -> Plane:
    """Return the light on drops, depth times brightness: see operations.Operations.

    OpenCV's functions are computed in integers, so that equal drops give equal light.
    """
    near = opencv.distance_to_edges(opencv.canny(depth))
    mean = opencv.box_sum(jnp.pad(near, 1, "reflect"), 3) // (9 * opencv.UNIT)
    a = opencv.windows(jnp.pad(opencv.equalised(mean), 1, "reflect"), 3)
    # [[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]
    lit = 2 * (a[2][2] - a[0][0]) + a[1][1] + a[1][2] + a[2][1] - a[0][1] - a[1][0]
    lit = jnp.pad(jnp.clip(lit, 0, 255), 1, "reflect")
    return (depth * ((2 * opencv.box_sum(lit, 3) + 9) // 18)).astype(jnp.float32)


def pixelated(image: Image, box: device_filters.Box) -> Image:
    """Return the image shrunk and enlarged by a box filter; equal to Pillow's."""

    def along(x: Image) -> Image:
        # Sums of bytes are exact in float32.
        total = jnp.einsum("ij,jwc->iwc", box.mask, x, precision="highest")
        whole = total.astype(jnp.int32) * box.weights[:, None, None] + (1 << 21)
        return (whole >> 22).astype(jnp.float32)

    return along(along(image.swapaxes(0, 1)).swapaxes(0, 1))


def compressed(image: Image, jpeg: Int[Array, "2 8 8"]) -> Image:
    """Return the image after JPEG compression with the quantisation steps `jpeg`."""
    return jpeg_codec.round_trip(image, jpeg)


def photon_noise(
    x: Image, rng: replay.Replay, photons: device_filters.Photons
) -> Image:
    """Return photon noise: see operations.Operations.

    The number of photons of a value is the smallest whose distribution function is above a
    U(0, 1) number, found by bisection.
    """
    table_size = photons.distribution.shape[1]
    distribution = photons.distribution.reshape(-1)
    start = x.astype(jnp.int32) * table_size
    number = rng.random(x.shape)
    count = jnp.zeros_like(start)
    step = table_size // 2
    while step:
        below = take(distribution, start + count + step - 1) <= number
        count += step * below
        step //= 2
    return count * (255 / photons.count)


def glass_offsets(
    rng: replay.Replay, reach: Number, sweeps: Number, *, side: int
) -> Int[Array, "most h w 2"]:
    """Return offsets for the largest number of sweeps: see operations.Operations."""
    return rng.integers(-reach, reach, (sweeps, side, side, 2))


def crop_photograph(
    photographs: device_filters.Photographs, rng: replay.Replay, side: int
) -> Image:
    """Return a random crop of a random photograph: see operations.Operations."""
    which = rng.integers(0, len(photographs.ice))
    height, width = photographs.sizes[which]
    top, left = rng.integers(0, height - side), rng.integers(0, width - side)
    sizes = (1, side, side, 3)
    crop = jax.lax.dynamic_slice(photographs.ice, (which, top, left, 0), sizes)
    return crop[0].astype(jnp.float32)


def repeat(count: Number, step: Callable[[Number, Any], Any], state: Any) -> Any:
    """Return the state after `count` steps."""
    return jax.lax.fori_loop(0, count, step, state)


def repeat_while(
    condition: Callable[[Any], Array], step: Callable[[Any], Any], state: Any
) -> Any:
    """Return the state after steps as long as condition(state) holds."""
    return jax.lax.while_loop(condition, step, state)


def choose(
    condition: Array,
    if_true: Callable[..., Any],
    if_false: Callable[..., Any],
    *args: Any,
) -> Any:
    """Return if_true(*args) or if_false(*args)."""
    return jax.lax.cond(condition, if_true, if_false, *args)


def take(x: Array, index: Int[Array, "*shape"]) -> Array:
    """Return x[index], for indices in range."""
    return pillow.take(x, index)


def once(function: Callable[..., Any], *args: Any) -> Any:
    """Return function(*args), computed once: see memory.materialize."""
    return memory.materialize(function, *args)
