"""Tiles of an image in random order: what is local stays, where it was is lost.

Source: Marcu and Pruegel-Bennett, "On the effects of data distortion on model analysis and
training", https://arxiv.org/abs/2110.13968, section 3.
Reference code: https://github.com/AntoniaMarcu/Data-Modification at 1cb7717,
distortions.py (patch_shuffle).
Deviation: where g does not divide a side, the release shows an image that is smaller by
the remainder; here it has its size, with the remainder black, at the right and below.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jbias.evals import interference, occlusion, probe

GRIDS = (2, 4, 8)


def make(
    *, grids: Sequence[int] = GRIDS, classes: Sequence[str] = (), seed: int = 0
) -> probe.Probe:
    """Conditions "", the image as it is, and "4x4": its 4 by 4 tiles in random order.

    Numbers are those of `interference.numbers`: accuracy and di_index. classes: the names
    of the decision classes. ValueError for grids that are not whole numbers of 2 or more.
    """
    whole = probe.are_distinct(grids) and all(type(g) is int and g > 1 for g in grids)
    must = "grids must be whole numbers of at least 2, each once"
    probe.check(whole, "grid_shuffle", must, grids)
    by_name = {"": 1, **{f"{g}x{g}": g for g in grids}}
    conditions = {name: occlusion.salt(name) for name in by_name}

    def show(rows: probe.Rows, salt: Any, g: int) -> probe.Images:
        keys = occlusion.image_keys(seed, salt, rows.index)
        return jax.vmap(functools.partial(shuffle, g=g))(rows.image, keys)

    numbers = functools.partial(interference.numbers, classes=len(classes))
    return probe.Probe(conditions, show, numbers, static=by_name.get)


def shuffle(
    image: Float[Array, "h w c"], key: PRNGKeyArray, *, g: int
) -> Float[Array, "h w c"]:
    """Puts g by g tiles of floor(h / g) by floor(w / g) pixels in a uniform order.

    It may be the order they had. What is left of the sides is black. ValueError where a
    tile has no pixel.
    """
    return image if g == 1 else arrange(image, jax.random.permutation(key, g * g), g=g)


def arrange(
    image: Float[Array, "h w c"], order: Int[Array, "g*g"], *, g: int
) -> Float[Array, "h w c"]:
    """Puts at each place, row by row, the tile of the place that `order` has there."""
    h, w = (side // g for side in image.shape[:2])
    must = f"{g} by {g} tiles need as many pixels a side"
    probe.check(h * w > 0, "grid_shuffle", must, image.shape[:2])
    tiles = image[: g * h, : g * w].reshape(g, h, g, w, -1).swapaxes(1, 2)
    tiles = tiles.reshape(g * g, h, w, -1)[order]
    inside = tiles.reshape(g, g, h, w, -1).swapaxes(1, 2).reshape(g * h, g * w, -1)
    rest = [(0, side - had) for side, had in zip(image.shape, inside.shape)]
    return jnp.pad(inside, rest)
