"""Blurs of ImageNet-C on the device: Gaussian, defocus, glass, motion and zoom.

Each has the draws of an image and what they do to it; data.corruption_kernels says what
that is. Source: Hendrycks and Dietterich, ICLR 2019, https://arxiv.org/abs/1903.12261.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jbias.augment import corrupt_arrays
from jbias.augment.corrupt_arrays import Image, Settings

_SWEEPS = 3  # The most there are.


def nothing(key: PRNGKeyArray, side: int) -> tuple[()]:
    """For what is not random."""
    del key, side
    return ()


def gaussian_blur(x: Image, drawn: tuple, s: Settings) -> Image:
    """Convolves with a Gaussian; edges repeat."""
    del drawn
    return corrupt_arrays.filtered(x, s["blur"])


def defocus_blur(x: Image, drawn: tuple, s: Settings) -> Image:
    """Correlates with a disk; edges are mirrored.

    `chords` (most, w, w) filter rows of pixels by the rows of the disk, from the middle
    on; `count` of them are not 0. Above the middle the disk is as below.
    """
    del drawn
    side, reach = len(x), len(s["chords"]) - 1
    padded = jnp.pad(x, ((reach, reach), (0, 0), (0, 0)), mode="reflect")

    def row(start: Int[Array, ""]) -> Image:
        return jax.lax.dynamic_slice_in_dim(padded, start, side)

    def add(i: Int[Array, ""], total: Image) -> Image:
        both = row(reach - i) + jnp.where(i > 0, row(reach + i), 0)
        return total + jnp.einsum(
            "ij,hjc->hic", s["chords"][i], both, precision="highest"
        )

    return jax.lax.fori_loop(0, s["count"], add, jnp.zeros_like(x))


def draw_glass(key: PRNGKeyArray, side: int) -> tuple[Float[Array, "3 h w 2"]]:
    """U(0, 1) for the columns and the rows to go, for each pixel in each sweep."""
    return (jax.random.uniform(key, (_SWEEPS, side, side, 2)),)


def glass_blur(x: Image, drawn: tuple, s: Settings) -> Image:
    """Blurs, displaces pixels in sweeps and blurs; copies as the reference does."""
    side, reach = len(x), s["reach"]
    x = corrupt_arrays.cut(corrupt_arrays.filtered(x, s["blur"])).reshape(-1, 3)

    def sweep(i: Int[Array, ""], x: Float[Array, "n 3"]) -> Float[Array, "n 3"]:
        offsets = jnp.floor(drawn[0][i] * (2 * reach)).astype(jnp.int32) - reach
        return corrupt_arrays.take(x, glass_origins(offsets, reach))

    x = jax.lax.fori_loop(0, s["sweeps"], sweep, x)
    return corrupt_arrays.filtered(x.reshape(side, side, 3), s["blur"])


def glass_origins(
    offsets: Int[Array, "h w 2"], reach: Int[Array, ""]
) -> Int[Array, "h*w"]:
    """Which pixel each one's value is from after a sweep of copies.

    Offsets are (columns, rows) to a neighbour. The sweep goes upwards from pixel
    side - reach to reach + 1 along both axes, so that a neighbour above or left is still
    its old self, one below or right already a copy: chains are followed by doubling.
    """
    side = len(offsets)
    pixels = jnp.arange(side * side).reshape(side, side)
    row, column = jnp.arange(side)[:, None], jnp.arange(side)[None, :]

    def swept(row: Int[Array, "h w"], column: Int[Array, "h w"]) -> Array:
        inside = (row > reach) & (row <= side - reach)
        return inside & (column > reach) & (column <= side - reach)

    there_row, there_column = row + offsets[..., 1], column + offsets[..., 0]
    there = there_row * side + there_column
    earlier = swept(there_row, there_column) & (there > pixels)
    # A value of n or more stands for what pixel - n has become.
    n = side * side
    links = jnp.where(swept(row, column), there + n * earlier, pixels).reshape(-1)

    def follow(links: Int[Array, "n"]) -> Int[Array, "n"]:
        return jnp.where(links < n, links, corrupt_arrays.take(links, links % n))

    return jax.lax.while_loop(lambda links: (links >= n).any(), follow, links)


def draw_motion(key: PRNGKeyArray, side: int) -> tuple[Float[Array, ""]]:
    """U(0, 1) for the direction."""
    del side
    return (jax.random.uniform(key),)


def motion_blur(x: Image, drawn: tuple, s: Settings) -> Image:
    """Blurs along a line at U(-45, 45) degrees by a one-sided Gaussian."""
    return corrupt_arrays.moved(x, s["kernel"], s["taps"], 90 * drawn[0] - 45)


def zoom_blur(x: Image, drawn: tuple, s: Settings) -> Image:
    """Averages the image and `count` of its zooms; zooms are matrices, (most, h, h)."""
    del drawn

    def add(i: Int[Array, ""], total: Image) -> Image:
        return total + corrupt_arrays.filtered(x, s["zooms"][i])

    total = jax.lax.fori_loop(0, s["count"], add, x)
    return total / (s["count"] + 1)
