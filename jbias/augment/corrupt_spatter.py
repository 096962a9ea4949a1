"""Spatter of ImageNet-C on the device: splashes of water or of mud.

What it is stands in data.corruption_kernels. Water is lit by what OpenCV's Canny,
distance transform and equalisation make of the drops: here they work on whole numbers,
so that drops of the same bytes give the same light.
Source: Hendrycks and Dietterich, ICLR 2019, https://arxiv.org/abs/1903.12261.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from jbias.augment import corrupt_arrays
from jbias.augment.corrupt_arrays import Image, Plane, Settings

Whole = Int[Array, "h w"]

_WATER = np.float32([[[175, 238, 238]]])
_MUD = np.float32([[[63, 42, 20]]])
_WEAK, _STRONG = 50, 150  # Gradients of an edge that goes on, and of one that begins.
_FAR = 20  # Pixels; what lies further is as far.
_UNIT = 1 << 16  # Of distances.
# (rows, columns) and length of the steps a distance is made of: 1, 1.4 and 2.1969.
_STEPS = tuple(
    (i, j, length)
    for i, j in itertools.product(range(-2, 3), repeat=2)
    for length in [
        {(0, 1): 65536, (1, 1): 91750, (1, 2): 143976}.get(
            tuple(sorted((abs(i), abs(j))))
        )
    ]
    if length
)


def draw(key: PRNGKeyArray, side: int) -> tuple[Plane]:
    """N(0, 1) a pixel."""
    return (jax.random.normal(key, (side, side)),)


def spatter(x: Image, drawn: tuple, s: Settings) -> Image:
    """Splashes water, or mud, where blurred N(mean, sigma^2) is at least `least`."""
    layer = corrupt_arrays.filtered(s["mean"] + s["sigma"] * drawn[0], s["blur"])
    layer = jnp.where(layer < s["least"], 0, layer)

    def muddy(x: Image, layer: Plane) -> Image:
        share = corrupt_arrays.filtered(
            (layer > s["least"]).astype(jnp.float32), s["border"]
        )
        share = jnp.where(share < 0.8, 0, share)[..., None]
        return x * (1 - share) + _MUD * share

    def wet(x: Image, layer: Plane) -> Image:
        light = shine((layer * 255).astype(jnp.int32) % 256)
        peak = light.max()
        light = light * (s["strength"] / jnp.where(peak > 0, peak, 1))
        return x + _WATER * light[..., None]

    return jax.lax.cond(s["mud"], muddy, wet, x, layer)


def shine(liquid: Whole) -> Plane:
    """Light of drops, bytes, up to a factor."""
    near = distance(canny(liquid))
    depth = _sum(_around(near, 1, "reflect"), 3) // (9 * _UNIT)
    padded = _around(_equalised(depth), 1, "reflect")
    a = _windows(padded, 3)
    # [[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]
    lit = 2 * (a[2][2] - a[0][0]) + a[1][1] + a[1][2] + a[2][1] - a[0][1] - a[1][0]
    lit = _around(jnp.clip(lit, 0, 255), 1, "reflect")
    return (liquid * ((2 * _sum(lit, 3) + 9) // 18)).astype(jnp.float32)


def canny(x: Whole) -> Bool[Array, "h w"]:
    """Edges of bytes: thin, above _STRONG or joined to such and above _WEAK."""
    a = _windows(_around(x, 1, "edge"), 3)
    dx = (a[0][2] + 2 * a[1][2] + a[2][2]) - (a[0][0] + 2 * a[1][0] + a[2][0])
    dy = (a[2][0] + 2 * a[2][1] + a[2][2]) - (a[0][0] + 2 * a[0][1] + a[0][2])
    size = jnp.abs(dx) + jnp.abs(dy)
    near = _windows(_around(size, 1, "constant"), 3)
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
        around = _windows(_around(edges, 1, "constant"), 3)
        more = weak & jnp.any(jnp.stack([one for row in around for one in row]), 0)
        return more, (more != edges).any()

    edges = weak & (size > _STRONG)
    edges, _ = jax.lax.while_loop(lambda s: s[1], grow, (edges, edges.any()))
    return edges


def distance(edges: Bool[Array, "h w"]) -> Whole:
    """Length of the shortest way to an edge, at most 20 pixels, in 2^-16 pixels.

    Ways go by steps to the 8 neighbours and as a knight does.
    """
    far = _FAR * _UNIT

    def relax(_, x: Whole) -> Whole:
        windows = _windows(jnp.pad(x, 2, constant_values=far), 5)
        for i, j, length in _STEPS:
            x = jnp.minimum(x, windows[i + 2][j + 2] + length)
        return x

    return jax.lax.fori_loop(0, _FAR, relax, jnp.where(edges, 0, far))


def _equalised(x: Whole) -> Whole:
    """Spreads whole numbers up to 20 over the bytes, the least to 0, as OpenCV does."""
    counts = jnp.stack([jnp.sum(x == value) for value in range(_FAR + 1)])
    first = jnp.argmax(counts > 0)
    left = x.size - counts[first]
    scale = 255 / jnp.maximum(left, 1).astype(jnp.float32)
    table = jnp.rint((jnp.cumsum(counts) - counts[first]) * scale).astype(jnp.int32)
    return jnp.where(left == 0, x, corrupt_arrays.take(table, x))


def _around(x: Array, width: int, mode: str) -> Array:
    return jnp.pad(x, width, mode=mode)


def _windows(padded: Array, size: int) -> list[list[Array]]:
    """Views of the padded array, size by size of them."""
    h, w = (length - size + 1 for length in padded.shape)
    return [[padded[i : i + h, j : j + w] for j in range(size)] for i in range(size)]


def _sum(padded: Whole, size: int) -> Whole:
    return sum(one for row in _windows(padded, size) for one in row)
