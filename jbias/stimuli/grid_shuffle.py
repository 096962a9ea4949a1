"""Probe that shuffles the tiles of an image, without changing the inside of tiles.

Source: Marcu and Pruegel-Bennett, "On the effects of data distortion on model analysis and
training", https://arxiv.org/abs/2110.13968, section 3.
Reference code: https://github.com/AntoniaMarcu/Data-Modification at 1cb7717,
distortions.py (patch_shuffle).
Deviation: if g does not divide a side, the release shows an image that is smaller by the
remainder; here the size does not change, and the remainder, at the right and bottom, is
black.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from jbias import errors
from jbias.measures import interference
from jbias.stimuli import random_draws, shown, tiles

GRIDS = (2, 4, 8)


def make(
    *, grids: Sequence[int] = GRIDS, classes: Sequence[str] = (), seed: int = 0
) -> shown.Stimuli:
    """Return a probe with conditions "" (unchanged) and, by default, "2x2", "4x4" and "8x8".

    Under "4x4", an image's 4 by 4 tiles are in random order. grids: numbers of tiles per side,
    one condition for each. classes: the names of the decision classes; without them the
    metrics raise ValueError, as di_index needs their number. seed: random seed of the orders.
    Metrics: accuracy and di_index, see `interference.numbers`. ValueError unless grids are
    distinct whole numbers of at least 2.
    """
    are_grids = errors.are_distinct(grids) and all(
        type(g) is int and g > 1 for g in grids
    )
    must = "be whole numbers of at least 2, each once"
    errors.check(are_grids, "grid_shuffle", must, grids, name="grids")
    by_name = {"": 1, **{f"{g}x{g}": g for g in grids}}
    conditions = {name: random_draws.salt(name) for name in by_name}

    def show(rows: shown.Rows, salt: Any, g: int) -> shown.Images:
        keys = random_draws.image_keys(seed, salt, rows.index)
        return jax.vmap(functools.partial(shuffle, g=g))(rows.image, keys)

    numbers = functools.partial(interference.numbers, classes=len(classes))
    return shown.Stimuli(conditions, show, numbers, static=by_name.get)


def shuffle(
    image: Float[Array, "h w c"], key: PRNGKeyArray, *, g: int
) -> Float[Array, "h w c"]:
    """Return an image with its g by g tiles in a random order, drawn uniformly by `key`.

    The original order is possible. Tiles have floor(h / g) by floor(w / g) pixels; pixels
    outside of tiles are black. ValueError if a tile has no pixel.
    """
    if g == 1:
        return image
    return tiles.arrange(image, jax.random.permutation(key, g * g), g=g)
