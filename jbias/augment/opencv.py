"""OpenCV's image operations on the device, computed in integers.

Equal drops of water give equal light, see `corruption_operations.water_light`. Reference code:
https://github.com/opencv/opencv, whose Canny, distanceTransform, equalizeHist and blur are
followed.
"""

import itertools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from jbias.augment.pillow import take

Integers = Int[Array, "h w"]

_WEAK, _STRONG = 50, 150  # Gradients that continue and that start an edge.
FAR = 20  # Largest distance in pixels.
UNIT = 1 << 16  # Distances are in 2^-16 pixels.
# Steps (rows, columns) of a path to an edge and their lengths: 1, 1.4 and 2.1969 pixels.
_LENGTHS = {(0, 1): 65536, (1, 1): 91750, (1, 2): 143976}
_STEPS = tuple(
    (i, j, _LENGTHS[step])
    for i, j in itertools.product(range(-2, 3), repeat=2)
    if (step := tuple(sorted((abs(i), abs(j))))) in _LENGTHS
)


def canny(x: Integers) -> Bool[Array, "h w"]:
    """Return a mask of Canny's thin edges of a map of whole numbers, as in OpenCV.

    Edges are thin ridges of the gradient above _STRONG, or above _WEAK and connected to a ridge
    above _STRONG. x: whole numbers from 0 to 255.
    """
    a = windows(jnp.pad(x, 1, "edge"), 3)
    dx = (a[0][2] + 2 * a[1][2] + a[2][2]) - (a[0][0] + 2 * a[1][0] + a[2][0])
    dy = (a[2][0] + 2 * a[2][1] + a[2][2]) - (a[0][0] + 2 * a[0][1] + a[0][2])
    size = jnp.abs(dx) + jnp.abs(dy)
    near = windows(jnp.pad(size, 1, "constant"), 3)
    across, along = jnp.abs(dx), jnp.abs(dy) << 15
    low = across * 13573  # tan(22.5 degrees).
    high = low + (across << 16)
    level = (size > near[1][0]) & (size >= near[1][2])
    upright = (size > near[0][1]) & (size >= near[2][1])
    falling = (size > near[0][0]) & (size > near[2][2])
    rising = (size > near[0][2]) & (size > near[2][0])
    slanted = jnp.where((dx ^ dy) < 0, rising, falling)
    thin = jnp.where(along < low, level, jnp.where(along > high, upright, slanted))
    weak = thin & (size > _WEAK)

    def grow(state: tuple) -> tuple:
        edges, _ = state
        around = windows(jnp.pad(edges, 1, "constant"), 3)
        neighbours = [window for row in around for window in row]
        grown = weak & jnp.any(jnp.stack(neighbours), 0)
        return grown, (grown != edges).any()

    edges = weak & (size > _STRONG)
    edges, _ = jax.lax.while_loop(lambda s: s[1], grow, (edges, edges.any()))
    return edges


def distance_to_edges(edges: Bool[Array, "h w"]) -> Integers:
    """Return the length of the shortest path from each pixel to an edge, at most 20 pixels.

    The unit is 2^-16 pixels. Paths consist of steps to the 8 neighbours and of steps by
    (1, 2) or (2, 1) pixels. All distances are 20 pixels if there is no edge.
    """
    far = FAR * UNIT

    def relax(_, x: Integers) -> Integers:
        shifted = windows(jnp.pad(x, 2, constant_values=far), 5)
        for i, j, length in _STEPS:
            x = jnp.minimum(x, shifted[i + 2][j + 2] + length)
        return x

    return jax.lax.fori_loop(0, FAR, relax, jnp.where(edges, 0, far))


def equalised(x: Integers) -> Integers:
    """Return the map after histogram equalisation, from 0 to 255, as in OpenCV.

    x: whole numbers from 0 to 20. A map of a single value does not change.
    """
    counts = jnp.stack([jnp.sum(x == value) for value in range(FAR + 1)])
    first = jnp.argmax(counts > 0)
    left = x.size - counts[first]
    scale = 255 / jnp.maximum(left, 1).astype(jnp.float32)
    table = jnp.rint((jnp.cumsum(counts) - counts[first]) * scale).astype(jnp.int32)
    return jnp.where(left == 0, x, take(table, x))


def windows(padded: Array, size: int) -> list[list[Array]]:
    """Return size x size shifted views of a padded map; view [i][j] starts at row i, column j."""
    h, w = (length - size + 1 for length in padded.shape)
    return [[padded[i : i + h, j : j + w] for j in range(size)] for i in range(size)]


def box_sum(padded: Integers, size: int) -> Integers:
    """Return the sum over size x size pixels around each pixel."""
    return sum(window for row in windows(padded, size) for window in row)
