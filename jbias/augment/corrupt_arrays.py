"""What several corruptions do to images on the device: filters, motion, reading between.

Values are on the scale of bytes, 0 to 255, as float32.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Image = Float[Array, "h w 3"]  # 0 to 255.
Plane = Float[Array, "h w"]
Settings = Mapping[str, Array]  # Of data.corruption_operators.

# Float32 may miss a whole number by this; no corruption has steps as fine.
_ROUNDING = 1 / 8192


def cut(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Clips to 0 ... 255 and cuts fractions off, as the published sets were made.

    What is within 1/8192 below a whole number counts as that number, so that rounding
    of float32 does not cost a level.
    """
    return jnp.floor(jnp.clip(x, 0, 255) + _ROUNDING)


def filtered(
    x: Float[Array, "h w *c"], matrix: Float[Array, "h h"]
) -> Float[Array, "h w *c"]:
    """Multiplies columns and rows by a matrix: a filter along both axes of a square."""
    rows = jnp.einsum("ij,jw...->iw...", matrix, x, precision="highest")
    return jnp.einsum("ij,hj...->hi...", matrix, rows, precision="highest")


def moved(
    field: Float[Array, "h w *c"],
    kernel: Float[Array, "k"],
    taps: Int[Array, ""],
    degrees: Float[Array, ""],
) -> Float[Array, "h w *c"]:
    """Blurs along a line: data.corruption_kernels.motion_blurred, the first `taps` of a kernel."""
    height, width = field.shape[:2]
    reach = len(kernel)
    turn = jnp.deg2rad(degrees)
    pads = ((reach, reach), (reach, reach), (0, 0))[: field.ndim]
    padded = jnp.pad(field, pads, mode="edge")

    def add(i: Int[Array, ""], total: Array) -> Array:
        right = jnp.ceil(i * jnp.cos(turn) - 0.5).astype(jnp.int32) + reach
        down = jnp.ceil(i * jnp.sin(turn) - 0.5).astype(jnp.int32) + reach
        start = (down, right, 0)[: field.ndim]
        sizes = (height, width, 3)[: field.ndim]
        return total + kernel[i] * jax.lax.dynamic_slice(padded, start, sizes)

    total = jax.lax.fori_loop(0, taps, add, jnp.zeros_like(field))
    return (jnp.rint(total * 257).astype(jnp.int32) // 257).astype(jnp.float32)


class Between(NamedTuple):
    """A whole number of pixels and what is left, in [0, 1)."""

    low: Int[Array, "h w"]
    share: Float[Array, "h w"]


def between(place: Plane) -> Between:
    """Splits positions in pixels."""
    low = jnp.floor(place)
    return Between(low.astype(jnp.int32), place - low)


def bilinear(x: Image, row: Between, column: Between, border: str) -> Image:
    """Mixes the four nearest pixels.

    border: "reflect" repeats the last pixel when mirrored, "reflect_101" does not,
    "black" is 0 beyond it.
    """
    side = len(x)
    flat = x.reshape(-1, 3)

    def corner(i: int, j: int) -> Image:
        rows, columns = row.low + i, column.low + j
        if border == "black":
            inside = (rows >= 0) & (rows < side) & (columns >= 0) & (columns < side)
            index = jnp.clip(rows, 0, side - 1) * side + jnp.clip(columns, 0, side - 1)
            return jnp.where(inside[..., None], take(flat, index), 0)
        mirror = _mirrors[border]
        return take(flat, mirror(rows, side) * side + mirror(columns, side))

    across, down = column.share[..., None], row.share[..., None]
    top = corner(0, 0) * (1 - across) + corner(0, 1) * across
    bottom = corner(1, 0) * (1 - across) + corner(1, 1) * across
    return top * (1 - down) + bottom * down


def take(table: Float[Array, "n *c"], index: Int[Array, "..."]) -> Float[Array, "..."]:
    """table[index], for indices that are known to be in range."""
    return table.at[index].get(mode="promise_in_bounds")


def _reflect(i: Int[Array, "h w"], side: int) -> Int[Array, "h w"]:
    i = i % (2 * side)
    return jnp.minimum(i, 2 * side - 1 - i)


def _reflect_101(i: Int[Array, "h w"], side: int) -> Int[Array, "h w"]:
    i = i % (2 * side - 2)
    return jnp.minimum(i, 2 * side - 2 - i)


_mirrors = {"reflect": _reflect, "reflect_101": _reflect_101}
