"""Images with their tiles, the cells of a square grid, in another order."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jbias import errors


def arrange(
    image: Float[Array, "h w c"], order: Int[Array, "g*g"], *, g: int
) -> Float[Array, "h w c"]:
    """Return an image of g by g tiles, whose position i (row by row) shows tile order[i].

    Tiles have floor(h / g) by floor(w / g) pixels; pixels outside of tiles are black.
    ValueError if a tile has no pixel.
    """
    h, w = (side // g for side in image.shape[:2])
    must = f"have {g} pixels a side or more, for {g} by {g} tiles"
    errors.check(h * w > 0, "grid_shuffle", must, image.shape[:2], name="images")
    tiles = image[: g * h, : g * w].reshape(g, h, g, w, -1).swapaxes(1, 2)
    tiles = tiles.reshape(g * g, h, w, -1)[order]
    inside = tiles.reshape(g, g, h, w, -1).swapaxes(1, 2).reshape(g * h, g * w, -1)
    remainders = [(0, side - used) for side, used in zip(image.shape, inside.shape)]
    return jnp.pad(inside, remainders)


def rearrange(
    image: Float[Array, "h w c"], order: Int[Any, "g*g"], *, g: int
) -> Float[Array, "h w c"]:
    """Return an image of g by g tiles, whose position i (row by row) shows tile order[i].

    Pixels outside of tiles, at the right and bottom borders, do not change. Otherwise as `arrange`.
    """
    h, w = (side // g * g for side in image.shape[:2])
    arranged = arrange(image, order, g=g)
    return image.at[:h, :w].set(arranged[:h, :w])
