"""Stimuli of cue decomposition: diffused images (edges only) and shuffled cells (texture only).

Source: Heinert, Rottmann, Maag and Kahl, ECAI 2024, https://arxiv.org/abs/2402.09530.
Reference code: https://github.com/eheinert/Reducing-Texture-Bias-of-Dnns-Via-EED at 8e98d5a
(eed_tensorblur); cells as in felixstillger/synth2real-nir-segmentation at e3c21eb.
Deviations: images are not stretched to the whole range of brightness at the end; a cell
consists of the pixels that are nearest to its point, and is shifted by whole pixels, drawn
uniformly.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jbias import errors
from jbias.measures import cue_decomposition
from jbias.stimuli import random_draws, shown

STEPS, POINTS = 512, 64  # The smallest published values.
_TIME_STEP = 0.2
_CONTRAST = 1 / 15
_ALPHA = 0.49
_KERNEL = np.exp(-(np.arange(-2, 3) ** 2) / 10)  # A Gaussian with variance 5.
_MIN_SIDE = 3  # Pixels that are mirrored at a border.


def make(
    *, steps: int = STEPS, points: int = POINTS, draws: int = 1000, seed: int = 0
) -> shown.Stimuli:
    """Return a probe with the conditions "" (unchanged), "diffused" and "cells" (shuffled cells).

    steps: time steps of `diffuse`; published values are 512 to 5792, for photographs of streets
      with a million pixels. points: number of cells in `shuffle_cells`; published values are 64
      and 128, for the same images. draws: bootstrap samples of the images. seed: random seed of
      the bootstrap and of the cells.

    Metrics: see `cue_decomposition.numbers`. ValueError for counts that are too small.
    """
    errors.check_condition("cue_decomposition", "at least 0", steps=steps)
    errors.check_condition(
        "cue_decomposition", "at least 1", points=points, draws=draws
    )
    names = ("", cue_decomposition.DIFFUSED, cue_decomposition.SHUFFLED)
    salt = random_draws.salt(f"cells {points}")

    def show(rows: shown.Rows, steps: Int[Array, ""], kind: str) -> shown.Images:
        """Return the images of the condition `kind`: diffused, with shuffled cells, or unchanged.

        steps: time steps of `diffuse`.
        """
        if kind == cue_decomposition.DIFFUSED:
            return diffuse(rows.image, steps)
        if kind == cue_decomposition.SHUFFLED:
            keys = random_draws.image_keys(seed, salt, rows.index)
            return jax.lax.map(
                lambda image_and_key: shuffle_cells(
                    image_and_key[0], image_and_key[1], points=points
                ),
                (rows.image, keys),
            )
        return rows.image

    return shown.Stimuli(
        dict.fromkeys(names, np.int32(steps)),
        show,
        functools.partial(cue_decomposition.numbers, draws=draws, seed=seed),
        static=lambda name: name,
        slow=names[1:],
    )


def diffuse(image: shown.Images, steps: int | Array) -> shown.Images:
    """Return images diffused by du/dt = 2 div(D grad u) in time steps of 0.2, clipped to [0, 1].

    image: the images u at the start, in [0, 1]. steps: the number of time steps. All channels have
    the same D. D has the eigenvectors of the smoothed structure tensor of the smoothed 255 u, and
    1 / sqrt(1 + (m / l)^2) for its eigenvalues m, with l = 1/15: diffusion is weak across edges and
    strong along them. Images are mirrored at their borders, so that little flows out. ValueError
    for sides of less than three pixels.
    """
    sides = image.shape[1:3]
    must = f"be of at least {_MIN_SIDE} pixels"
    errors.check(
        min(sides) >= _MIN_SIDE, "cue_decomposition", must, sides, name="sides"
    )

    def step(_, u: Array) -> Array:
        xx, yy, xy = _diffusion_tensor(255 * u)
        return u + _TIME_STEP * _flow(u, xx, yy, xy)

    return jnp.clip(jax.lax.fori_loop(0, steps, step, image), 0, 1)


def _mirror(
    x: Float[Array, "b h w c"], width: int
) -> Float[Array, "b h+2*width w+2*width c"]:
    """Return images with a border of `width` mirrored pixels; edge pixels are repeated."""
    return jnp.pad(x, ((0, 0), (width,) * 2, (width,) * 2, (0, 0)), mode="symmetric")


def _smooth(x: Float[Array, "b h w c"]) -> Float[Array, "b h-4 w-4 c"]:
    """Return images smoothed by _KERNEL along both axes, without two pixels at each border."""
    weights = _KERNEL / _KERNEL.sum()
    for axis in (1, 2):
        n = x.shape[axis] - 4
        cut = functools.partial(jax.lax.slice_in_dim, x, axis=axis)
        x = sum(weight * cut(i, i + n) for i, weight in enumerate(weights))
    return x


def _diffusion_tensor(
    u: Float[Array, "b h w c"],
) -> tuple[Float[Array, "b h+1 w+1 1"], ...]:
    """Return the diffusion tensor D at the corners of pixels, as its entries (xx, yy, xy).

    u: images in [0, 255].
    """
    u = _smooth(_mirror(u, 3))
    across, down = jnp.diff(u, axis=2), jnp.diff(u, axis=1)
    x1, x2, y1, y2 = across[:, :-1], across[:, 1:], down[:, :, :-1], down[:, :, 1:]
    square = lambda p, q: (1 - _ALPHA) / 2 * (p**2 + q**2) + _ALPHA * p * q
    entries = square(x1, x2), square(y1, y2), (x1 + x2) * (y1 + y2) / 4
    structure = jnp.stack([entry.sum(-1) for entry in entries], -1)
    a, c, b = jnp.split(_smooth(_mirror(structure, 2)), 3, -1)  # xx, yy and xy.
    gap = jnp.sqrt(4 * b**2 + (a - c) ** 2)
    squares = (((a + c + sign * gap) / 2 / _CONTRAST) ** 2 for sign in (-1, 1))
    low, high = (1 / jnp.sqrt(1 + square) for square in squares)
    is_isotropic = gap < 1e-6  # As on a plane.
    turn = (high - low) / 2 / jnp.where(is_isotropic, 1, gap)
    mean = (low + high) / 2
    return (
        jnp.where(is_isotropic, 1, mean + turn * (a - c)),
        jnp.where(is_isotropic, 1, mean - turn * (a - c)),
        jnp.where(is_isotropic, 0, 2 * turn * b),
    )


def _flow(
    u: Float[Array, "b h w c"],
    xx: Float[Array, "b h+1 w+1 1"],
    yy: Float[Array, "b h+1 w+1 1"],
    xy: Float[Array, "b h+1 w+1 1"],
) -> Float[Array, "b h w c"]:
    """Return 2 div(D grad u): the flow into each pixel from its eight neighbours.

    xx, yy, xy: entries of D at the corners of pixels.
    """
    u = _mirror(u, 1)
    left, right = u[:, :, :-1], u[:, :, 1:]
    # The four pixels around each corner: upper left, upper right, lower left, lower right.
    # Number 1 and number 2 differ from 0 by the column and the row: so do n ^ 1 and n ^ 2.
    around = left[:, :-1], right[:, :-1], left[:, 1:], right[:, 1:]
    horizontal = (1 - _ALPHA) * xx - _ALPHA * yy
    vertical = (1 - _ALPHA) * yy - _ALPHA * xx

    def flow_to(number: int) -> Array:
        """Return, for each corner, the flow to one of its four pixels from the other three.

        number: index of the pixel in `around`.
        """
        pixel = around[number]
        beside = around[number ^ 1] - pixel
        below = around[number ^ 2] - pixel
        opposite = around[number ^ 3] - pixel
        diagonal = _ALPHA * (xx + yy) + (xy if number in (0, 3) else -xy)
        return horizontal * beside + vertical * below + diagonal * opposite

    upper = flow_to(3)[:, :-1, :-1] + flow_to(2)[:, :-1, 1:]
    return upper + flow_to(1)[:, 1:, :-1] + flow_to(0)[:, 1:, 1:]


def shuffle_cells(
    image: Float[Array, "h w c"], key: PRNGKeyArray, *, points: int
) -> Float[Array, "h w c"]:
    """Return an image whose Voronoi cells show other parts of the same image.

    points: the number of cells, of uniformly drawn points. Each cell shows the image shifted
    by whole pixels, drawn uniformly among the shifts that leave the cell inside the image.
    This preserves the texture inside a cell, but not its position in the image.
    """
    centre_key, shift_key = jax.random.split(key)
    sides = jnp.array([image.shape[:2]])
    centres = jax.random.uniform(centre_key, (points, 2)) * sides
    grid = jnp.stack(jnp.indices(image.shape[:2]), -1)
    distance = ((grid[:, :, None] + 0.5 - centres[None, None]) ** 2).sum(-1)
    cell = distance.argmin(-1)
    pixels, cell_of_pixel = grid.reshape(-1, 2), cell.ravel()
    first = jax.ops.segment_min(pixels, cell_of_pixel, points)
    last = jax.ops.segment_max(pixels, cell_of_pixel, points)
    shift = jax.random.randint(shift_key, (points, 2), -first, sides - last)
    rows, columns = jnp.moveaxis(grid + shift[cell], -1, 0)
    return image[rows, columns]
