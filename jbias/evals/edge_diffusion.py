"""Edge-enhancing diffusion, which leaves edges, and shuffled Voronoi cells, which do not.

Source: Heinert, Rottmann, Maag and Kahl, ECAI 2024, https://arxiv.org/abs/2402.09530.
Reference code: https://github.com/eheinert/Reducing-Texture-Bias-of-Dnns-Via-EED at 8e98d5a
(eed_tensorblur); the cells are those of felixstillger/synth2real-nir-segmentation at
e3c21eb. Deviations: no image is stretched to the whole range of brightness at the end; a
cell is the pixels whose nearest point it has, and its shift is a uniform whole number.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.augment import options
from jbias.evals import cue_decomposition, occlusion, probe

STEPS, POINTS = 512, 64  # The least that are published.
_STEP = 0.2  # Of time.
_CONTRAST = 1 / 15
_ALPHA = 0.49
_KERNEL = np.exp(-(np.arange(-2, 3) ** 2) / 10)  # A Gaussian whose variance is 5.
_NARROWEST = 3  # Pixels that are mirrored at a border.


def make(
    *, steps: int = STEPS, points: int = POINTS, draws: int = 1000, seed: int = 0
) -> probe.Probe:
    """Conditions "", the image as it is, "diffused", and "cells", shuffled ones.

    steps: of `diffuse`; published are 512 to 5792, for photographs of streets of a million
      pixels. points: of `shuffle_cells`; published are 64 and 128, likewise. draws, seed: of
      the bootstrap over images; seed, of the cells, too.
    """
    options.check_plain("cue_decomposition", "at least 0", steps=steps)
    options.check_plain("cue_decomposition", "at least 1", points=points, draws=draws)
    names = ("", cue_decomposition.DIFFUSED, cue_decomposition.SHUFFLED)
    salt = occlusion.salt(f"cells {points}")

    def show(rows: probe.Rows, steps: Any, kind: str) -> probe.Images:
        if kind == cue_decomposition.DIFFUSED:
            return diffuse(rows.image, steps)
        if kind == cue_decomposition.SHUFFLED:
            keys = occlusion.image_keys(seed, salt, rows.index)
            shuffled = functools.partial(shuffle_cells, points=points)
            return jax.lax.map(lambda one: shuffled(*one), (rows.image, keys))
        return rows.image

    conditions = dict.fromkeys(names, np.int32(steps))
    numbers = functools.partial(cue_decomposition.numbers, draws=draws, seed=seed)
    how = dict(static=lambda name: name, slow=names[1:])
    return probe.Probe(conditions, show, numbers, **how)


def diffuse(image: probe.Images, steps: int | Array) -> probe.Images:
    """Takes steps of 0.2 of du/dt = 2 div(D grad u), by one D for all channels.

    D has the eigenvectors of the smoothed structure tensor of 255 u, smoothed itself, and
    1 / sqrt(1 + (m / l)^2) for its eigenvalues m, l = 1/15: little passes an edge, much along
    it. Images are mirrored at their borders, so that little leaves them.
    ValueError for sides of less than three pixels.
    """
    sides = image.shape[1:3]
    must = f"sides must be of at least {_NARROWEST} pixels"
    probe.check(min(sides) >= _NARROWEST, "cue_decomposition", must, sides)
    step = lambda _, u: u + _STEP * _flow(u, *_tensor(255 * u))
    return jnp.clip(jax.lax.fori_loop(0, steps, step, image), 0, 1)


def _mirrored(x: Float[Array, "b h w c"], width: int) -> Float[Array, "b h2 w2 c"]:
    return jnp.pad(x, ((0, 0), (width,) * 2, (width,) * 2, (0, 0)), mode="symmetric")


def _smooth(x: Float[Array, "b h w c"]) -> Float[Array, "b h-4 w-4 c"]:
    """Means weighted by the kernel, of places that have all their neighbours."""
    weights = _KERNEL / _KERNEL.sum()
    for axis in (1, 2):
        n = x.shape[axis] - 4
        cut = functools.partial(jax.lax.slice_in_dim, x, axis=axis)
        x = sum(weight * cut(i, i + n) for i, weight in enumerate(weights))
    return x


def _tensor(u: Float[Array, "b h w c"]) -> tuple[Float[Array, "b h+1 w+1 1"], ...]:
    """D at the corners of pixels: of both axes, horizontal and vertical, and mixed."""
    u = _smooth(_mirrored(u, 3))
    across, down = jnp.diff(u, axis=2), jnp.diff(u, axis=1)
    x1, x2, y1, y2 = across[:, :-1], across[:, 1:], down[:, :, :-1], down[:, :, 1:]
    square = lambda p, q: (1 - _ALPHA) / 2 * (p**2 + q**2) + _ALPHA * p * q
    parts = square(x1, x2), square(y1, y2), (x1 + x2) * (y1 + y2) / 4
    parts = jnp.stack([part.sum(-1) for part in parts], -1)
    a, c, b = jnp.split(_smooth(_mirrored(parts, 2)), 3, -1)
    gap = jnp.sqrt(4 * b**2 + (a - c) ** 2)
    steep = (((a + c + sign * gap) / 2 / _CONTRAST) ** 2 for sign in (-1, 1))
    low, high = (1 / jnp.sqrt(1 + square) for square in steep)
    alike = gap < 1e-6  # No direction: as on a plane, in all of them.
    turn = (high - low) / 2 / jnp.where(alike, 1, gap)
    mean = (low + high) / 2
    found = mean + turn * (a - c), mean - turn * (a - c), 2 * turn * b
    return tuple(jnp.where(alike, x, y) for x, y in zip((1, 1, 0), found))


def _flow(u: Float[Array, "b h w c"], a: Array, c: Array, b: Array) -> Array:
    """2 div(D grad u), to each pixel what its four corners' other three pixels give."""
    u = _mirrored(u, 1)
    left, right = u[:, :, :-1], u[:, :, 1:]
    # By number: its first bit says that a pixel is the right one, its second the lower.
    around = left[:, :-1], right[:, :-1], left[:, 1:], right[:, 1:]
    along, upright = (1 - _ALPHA) * a - _ALPHA * c, (1 - _ALPHA) * c - _ALPHA * a

    def given(number: int) -> Array:
        own, *others = (around[number ^ other] for other in range(4))
        beside, below, opposite = (other - own for other in others)
        diagonal = _ALPHA * (a + c) + (b if number in (0, 3) else -b)
        return along * beside + upright * below + diagonal * opposite

    upper = given(3)[:, :-1, :-1] + given(2)[:, :-1, 1:]
    return upper + given(1)[:, 1:, :-1] + given(0)[:, 1:, 1:]


def shuffle_cells(
    image: Float[Array, "h w c"], key: PRNGKeyArray, *, points: int
) -> Float[Array, "h w c"]:
    """Fills the Voronoi cell of each of some uniform points from elsewhere in the image.

    A cell shows the same image, shifted by whole pixels: uniform among the shifts that leave
    the cell inside. What is in it stays connected, and where it was is lost.
    """
    place, move = jax.random.split(key)
    sides = jnp.array([image.shape[:2]])
    centres = jax.random.uniform(place, (points, 2)) * sides
    grid = jnp.stack(jnp.indices(image.shape[:2]), -1)
    away = ((grid[:, :, None] + 0.5 - centres[None, None]) ** 2).sum(-1)
    cell = away.argmin(-1)
    pixels, of = grid.reshape(-1, 2), cell.ravel()
    first = jax.ops.segment_min(pixels, of, points)
    last = jax.ops.segment_max(pixels, of, points)
    shift = jax.random.randint(move, (points, 2), -first, sides - last)
    rows, columns = jnp.moveaxis(grid + shift[cell], -1, 0)
    return image[rows, columns]
