"""Images with all of their sixteen tiles moved, in random pairs; see `measures.configural`."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from jbias.measures import configural
from jbias.stimuli import random_draws, shown, tiles

GRID = 4


def make(*, seed: int = 0) -> shown.Stimuli:
    """Return a probe with the conditions "" (unchanged images) and "swapped" (tiles moved).

    Each of an image's 4 by 4 tiles is swapped with another tile. seed: seed of the random pairs
    of tiles. Metrics: see `configural.order_numbers`.
    """
    swap_of_condition = {"": 0, "swapped": 1}
    conditions = {name: random_draws.salt(name) for name in swap_of_condition}

    def show(rows: shown.Rows, salt: Any, swap: int) -> shown.Images:
        """Return images with random pairs of tiles swapped.

        swap: 0 for unchanged images, 1 for all tiles; see `swaps`. salt: salt of the random draws.
        """

        def swap_tiles(image: Array, key: PRNGKeyArray) -> Array:
            order = swaps(jax.random.permutation(key, GRID**2), swap)
            return tiles.rearrange(image, order, g=GRID)

        keys = random_draws.image_keys(seed, salt, rows.index)
        return jax.vmap(swap_tiles)(rows.image, keys)

    return shown.Stimuli(
        conditions, show, configural.order_numbers, static=swap_of_condition.get
    )


def swaps(places: Int[Any, "16"], swap: int) -> Int[Any, "16"]:
    """Return an order of 16 tiles, for `tiles.rearrange`, in which pairs of tiles are swapped.

    places: a permutation of 0 ... 15, in NumPy or JAX. swap: 1 ... 15; 0 changes nothing.
    Position s[i] gets the tile from position s[i ^ swap], where s is `places`. Two orders with
    the same `places` and different `swap` therefore differ at all positions.
    """
    return places[np.arange(GRID**2) ^ swap][places.argsort()]
