"""Images with all of their sixteen tiles moved, in random pairs; see `measures.configural`."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jbias.measures import configural
from jbias.stimuli import grid_shuffle, occlusion, shown

GRID = 4


def make(*, seed: int = 0) -> shown.Stimuli:
    """Return a probe with the conditions "" (unchanged images) and "swapped" (tiles moved).

    Each of an image's 4 by 4 tiles is swapped with another tile. seed: seed of the random pairs
    of tiles. Metrics: see `configural.order_numbers`.
    """
    swap_of_condition = {"": 0, "swapped": 1}
    conditions = {name: occlusion.salt(name) for name in swap_of_condition}

    def show(rows: shown.Rows, salt: Any, swap: int) -> shown.Images:
        """Return images with random pairs of tiles swapped.

        swap: 0 for unchanged images, 1 for all tiles; see `swaps`. salt: salt of the random draws.
        """

        def swap_tiles(image: Array, key: PRNGKeyArray) -> Array:
            return rearrange(image, swaps(jax.random.permutation(key, GRID**2), swap))

        keys = occlusion.image_keys(seed, salt, rows.index)
        return jax.vmap(swap_tiles)(rows.image, keys)

    return shown.Stimuli(
        conditions, show, configural.order_numbers, static=swap_of_condition.get
    )


def rearrange(
    image: Float[Array, "h w c"], order: Int[Any, "16"]
) -> Float[Array, "h w c"]:
    """Return the image with its 4 by 4 tiles rearranged.

    order: for each position, row by row, the index of the tile to put there (16 integers). Pixels
    at the right and bottom borders that are in no tile do not change.
    """
    h, w = (side // GRID * GRID for side in image.shape[:2])
    arranged = grid_shuffle.arrange(image, order, g=GRID)
    return image.at[:h, :w].set(arranged[:h, :w])


def swaps(places: Int[Any, "16"], swap: int) -> Int[Any, "16"]:
    """Return an order of 16 tiles, for `rearrange`, in which pairs of tiles are swapped.

    places: a permutation of 0 ... 15, in NumPy or JAX. swap: 1 ... 15; 0 changes nothing.
    Position s[i] gets the tile from position s[i ^ swap], where s is `places`. Two orders with
    the same `places` and different `swap` therefore differ at all positions.
    """
    return places[np.arange(GRID**2) ^ swap][places.argsort()]
