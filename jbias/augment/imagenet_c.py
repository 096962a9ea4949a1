"""The corruptions of ImageNet-C on the device: noise, blur, weather and digital.

Each corruption is a pair of functions, one that draws an image's random numbers and one
that applies them; `corrupt.CORRUPTIONS` lists them by name. Of those that are computed as on
the host only the draws are here. What a corruption means is documented with its host version
in jbias.data. Values are on the scale of bytes, 0 to 255,
as float32.

Water in `spatter` is lit by what OpenCV's Canny, distance transform and equalisation make
of the drops. Here they work on integers, so that equal drops give equal light.
Source: Hendrycks and Dietterich, ICLR 2019, https://arxiv.org/abs/1903.12261.
"""

import itertools
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jbias.augment import jpeg, sampling
from jbias.augment.pillow import take

Image = Float[Array, "h w 3"]  # 0 to 255.
Plane = Float[Array, "h w"]
Field = Float[Array, "h w *c"]
Number = Int[Array, ""]
Settings = Mapping[str, Array]  # Of data.corruptions.

# Float32 may miss a whole number by this; no corruption has steps as fine.
_ROUNDING = 1 / 8192


def to_bytes(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Clips to 0 ... 255 and cuts fractions off, as the published sets were made.

    What is within 1/8192 below a whole number counts as that number, so that rounding
    of float32 does not cost a level.
    """
    return jnp.floor(jnp.clip(x, 0, 255) + _ROUNDING)


def filter_both_axes(x: Field, matrix: Float[Array, "h h"]) -> Field:
    """Multiplies columns and rows by a matrix: a filter along both axes of a square."""
    rows = jnp.einsum("ij,jw...->iw...", matrix, x, precision="highest")
    return jnp.einsum("ij,hj...->hi...", matrix, rows, precision="highest")


def blur_along_line(
    field: Field, kernel: Float[Array, "k"], taps: Number, degrees: Array
) -> Field:
    """Blurs along a line: data.corruptions.kernels.motion_blurred, the first `taps` of a kernel."""
    height, width = field.shape[:2]
    reach = len(kernel)
    turn = jnp.deg2rad(degrees)
    pads = ((reach, reach), (reach, reach), (0, 0))[: field.ndim]
    padded = jnp.pad(field, pads, mode="edge")

    def add(i: Number, total: Array) -> Array:
        right = jnp.ceil(i * jnp.cos(turn) - 0.5).astype(jnp.int32) + reach
        down = jnp.ceil(i * jnp.sin(turn) - 0.5).astype(jnp.int32) + reach
        start = (down, right, 0)[: field.ndim]
        sizes = (height, width, 3)[: field.ndim]
        return total + kernel[i] * jax.lax.dynamic_slice(padded, start, sizes)

    total = jax.lax.fori_loop(0, taps, add, jnp.zeros_like(field))
    return (jnp.rint(total * 257).astype(jnp.int32) // 257).astype(jnp.float32)


def bilinear(x: Image, rows: Plane, columns: Plane, border: str) -> Image:
    """Mixes the four pixels that are nearest to the place that each one reads.

    border: "reflect" repeats the last pixel when mirrored, "reflect_101" does not,
    "black" is 0 beyond it.
    """
    side, flat = len(x), x.reshape(-1, 3)
    top, left = jnp.floor(rows), jnp.floor(columns)

    def corner(i: int, j: int) -> Image:
        row, column = top.astype(jnp.int32) + i, left.astype(jnp.int32) + j
        if border == "black":
            inside = (row >= 0) & (row < side) & (column >= 0) & (column < side)
            index = jnp.clip(row, 0, side - 1) * side + jnp.clip(column, 0, side - 1)
            return jnp.where(inside[..., None], take(flat, index), 0)
        row, column = (_mirrored(k, side, border) for k in (row, column))
        return take(flat, row * side + column)

    down, across = (rows - top)[..., None], (columns - left)[..., None]
    upper = corner(0, 0) * (1 - across) + corner(0, 1) * across
    lower = corner(1, 0) * (1 - across) + corner(1, 1) * across
    return upper * (1 - down) + lower * down


def _mirrored(i: Int[Array, "h w"], side: int, border: str) -> Int[Array, "h w"]:
    again = border == "reflect"
    last = 2 * side - 2 + again
    i = i % (last + again)
    return jnp.minimum(i, last - i)


def draw_each(law: Callable, *channels: int) -> Callable:
    """Builds (key, side) -> one number a pixel, or a value, by jax.random's `law`."""
    return lambda key, side: (law(key, (side, side, *channels)),)


def draw_numbers(count: int) -> Callable:
    """Builds (key, side) -> so many numbers of U(0, 1) for an image."""
    return lambda key, side: tuple(jax.random.uniform(key, (count,)))


draw_normals = draw_each(jax.random.normal, 3)
draw_uniforms = draw_each(jax.random.uniform, 3)


def shot_noise(x: Image, drawn: tuple, s: Settings) -> Image:
    """Draws Poisson(count x / 255) photons: the first whose distribution is above u.

    `photons` (256, n), n a power of two, is the distribution function for each byte.
    """
    photons = s["photons"]
    most = photons.shape[1]
    start = x.astype(jnp.int32) * most
    count = jnp.zeros_like(start)
    step = most // 2
    while step:
        below = take(photons.reshape(-1), start + count + step - 1) <= drawn[0]
        count += step * below
        step //= 2
    return count * (255 / s["count"])


_SWEEPS = 3  # The most there are.


draw_nothing = draw_numbers(0)


def gaussian_blur(x: Image, drawn: tuple, s: Settings) -> Image:
    """Convolves with a Gaussian; edges repeat."""
    return filter_both_axes(x, s["blur"])


def defocus_blur(x: Image, drawn: tuple, s: Settings) -> Image:
    """Correlates with a disk; edges are mirrored.

    `chords` (most, w, w) filter rows of pixels by the rows of the disk, from the middle
    on; `count` of them are not 0. Above the middle the disk is as below.
    """
    side, reach = len(x), len(s["chords"]) - 1
    padded = jnp.pad(x, ((reach, reach), (0, 0), (0, 0)), mode="reflect")

    def row(start: Number) -> Image:
        return jax.lax.dynamic_slice_in_dim(padded, start, side)

    def add(i: Number, total: Image) -> Image:
        both = row(reach - i) + jnp.where(i > 0, row(reach + i), 0)
        chord = s["chords"][i]
        return total + jnp.einsum("ij,hjc->hic", chord, both, precision="highest")

    return jax.lax.fori_loop(0, s["count"], add, jnp.zeros_like(x))


def draw_glass(key: PRNGKeyArray, side: int) -> tuple[Float[Array, "3 h w 2"]]:
    """U(0, 1) for the columns and the rows to go, for each pixel in each sweep."""
    return (jax.random.uniform(key, (_SWEEPS, side, side, 2)),)


def glass_blur(x: Image, drawn: tuple, s: Settings) -> Image:
    """Blurs, displaces pixels in sweeps and blurs; copies as the reference does."""
    side, reach = len(x), s["reach"]
    x = to_bytes(filter_both_axes(x, s["blur"])).reshape(-1, 3)

    def sweep(i: Number, x: Float[Array, "n 3"]) -> Float[Array, "n 3"]:
        offsets = jnp.floor(drawn[0][i] * (2 * reach)).astype(jnp.int32) - reach
        return take(x, glass_origins(offsets, reach))

    x = jax.lax.fori_loop(0, s["sweeps"], sweep, x)
    return filter_both_axes(x.reshape(side, side, 3), s["blur"])


def glass_origins(offsets: Int[Array, "h w 2"], reach: Number) -> Int[Array, "h*w"]:
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
        return jnp.where(links < n, links, take(links, links % n))

    return jax.lax.while_loop(lambda links: (links >= n).any(), follow, links)


def motion_blur(x: Image, drawn: tuple, s: Settings) -> Image:
    """Blurs along a line at U(-45, 45) degrees by a one-sided Gaussian."""
    return blur_along_line(x, s["kernel"], s["taps"], 90 * drawn[0] - 45)


def zoom_blur(x: Image, drawn: tuple, s: Settings) -> Image:
    """Averages the image and `count` of its zooms; zooms are matrices, (most, h, h)."""

    def add(i: Number, total: Image) -> Image:
        return total + filter_both_axes(x, s["zooms"][i])

    total = jax.lax.fori_loop(0, s["count"], add, x)
    return total / (s["count"] + 1)


def draw_snow(key: PRNGKeyArray, side: int) -> tuple[Plane, Float[Array, ""]]:
    """N(0, 1) for the flakes, U(0, 1) for where they fall to."""
    flakes, direction = jax.random.split(key)
    return jax.random.normal(flakes, (side, side)), jax.random.uniform(direction)


def snow(x: Image, drawn: tuple, s: Settings) -> Image:
    """Whitens the image and adds moved flakes, and the same turned upside down."""
    layer = filter_both_axes(s["mean"] + s["sigma"] * drawn[0], s["zoom"])
    layer = to_bytes(255 * jnp.where(layer < s["least"], 0, layer))
    degrees = 90 * drawn[1] - 135
    layer = blur_along_line(layer, s["kernel"], s["taps"], degrees)[..., None]
    # Accelerators round the factors of a product unless told not to.
    grey = jnp.matmul(x, jnp.array([0.299, 0.587, 0.114]), precision="highest")
    white = grey[..., None] * 1.5 + 127.5
    x = s["keep"] * x + (1 - s["keep"]) * jnp.maximum(x, white)
    return x + layer + layer[::-1, ::-1]


def frost(x: Image, drawn: tuple, s: Settings) -> Image:
    """Mixes keep x + add ice, a crop of one of the photographs `ice` (n, h, w, 3).

    They are padded to one size; `sizes` (n, 2) says how large each is.
    """
    side = len(x)
    which = sampling.integers(drawn[0], len(s["ice"]))
    rooms = zip(drawn[1:], s["sizes"][which])
    top, left = (sampling.integers(u, room - side) for u, room in rooms)
    crop = jax.lax.dynamic_slice(s["ice"], (which, top, left, 0), (1, side, side, 3))
    return s["keep"] * x + s["add"] * crop[0].astype(jnp.float32)


def draw_fog(key: PRNGKeyArray, side: int) -> tuple[Float[Array, "3 n n"], ...]:
    """U(0, 1) for centres, rights and lowers of each level of `plasma`."""
    levels = (side - 1).bit_length()
    return tuple(sampling.uniforms(key, *((3, 1 << i, 1 << i) for i in range(levels))))


Integers = Int[Array, "h w"]

_WATER = np.float32([[[175, 238, 238]]])
_MUD = np.float32([[[63, 42, 20]]])
_WEAK, _STRONG = 50, 150  # Gradients of an edge that goes on, and of one that begins.
_FAR = 20  # Pixels; what lies further is as far.
_UNIT = 1 << 16  # Of distances.
# (rows, columns) and length of the steps a distance is made of: 1, 1.4 and 2.1969.
_LENGTHS = {(0, 1): 65536, (1, 1): 91750, (1, 2): 143976}
_STEPS = tuple(
    (i, j, _LENGTHS[step])
    for i, j in itertools.product(range(-2, 3), repeat=2)
    if (step := tuple(sorted((abs(i), abs(j))))) in _LENGTHS
)


def spatter(x: Image, drawn: tuple, s: Settings) -> Image:
    """Splashes water, or mud, where blurred N(mean, sigma^2) is at least `least`."""
    layer = filter_both_axes(s["mean"] + s["sigma"] * drawn[0], s["blur"])
    layer = jnp.where(layer < s["least"], 0, layer)

    def muddy(x: Image, layer: Plane) -> Image:
        share = filter_both_axes((layer > s["least"]).astype(jnp.float32), s["border"])
        share = jnp.where(share < 0.8, 0, share)[..., None]
        return x * (1 - share) + _MUD * share

    def wet(x: Image, layer: Plane) -> Image:
        light = water_light((layer * 255).astype(jnp.int32) % 256)
        peak = light.max()
        light = light * (s["strength"] / jnp.where(peak > 0, peak, 1))
        return x + _WATER * light[..., None]

    return jax.lax.cond(s["mud"], muddy, wet, x, layer)


def water_light(liquid: Integers) -> Plane:
    """Light of drops, bytes, up to a factor."""
    near = distance_to_edges(canny(liquid))
    depth = _sum(jnp.pad(near, 1, "reflect"), 3) // (9 * _UNIT)
    padded = jnp.pad(_equalised(depth), 1, "reflect")
    a = _windows(padded, 3)
    # [[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]
    lit = 2 * (a[2][2] - a[0][0]) + a[1][1] + a[1][2] + a[2][1] - a[0][1] - a[1][0]
    lit = jnp.pad(jnp.clip(lit, 0, 255), 1, "reflect")
    return (liquid * ((2 * _sum(lit, 3) + 9) // 18)).astype(jnp.float32)


def canny(x: Integers) -> Bool[Array, "h w"]:
    """Edges of bytes: thin, above _STRONG or joined to such and above _WEAK."""
    a = _windows(jnp.pad(x, 1, "edge"), 3)
    dx = (a[0][2] + 2 * a[1][2] + a[2][2]) - (a[0][0] + 2 * a[1][0] + a[2][0])
    dy = (a[2][0] + 2 * a[2][1] + a[2][2]) - (a[0][0] + 2 * a[0][1] + a[0][2])
    size = jnp.abs(dx) + jnp.abs(dy)
    near = _windows(jnp.pad(size, 1, "constant"), 3)
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
        around = _windows(jnp.pad(edges, 1, "constant"), 3)
        more = weak & jnp.any(jnp.stack([one for row in around for one in row]), 0)
        return more, (more != edges).any()

    edges = weak & (size > _STRONG)
    edges, _ = jax.lax.while_loop(lambda s: s[1], grow, (edges, edges.any()))
    return edges


def distance_to_edges(edges: Bool[Array, "h w"]) -> Integers:
    """Length of the shortest way to an edge, at most 20 pixels, in 2^-16 pixels.

    Ways go by steps to the 8 neighbours and as a knight does.
    """
    far = _FAR * _UNIT

    def relax(_, x: Integers) -> Integers:
        windows = _windows(jnp.pad(x, 2, constant_values=far), 5)
        for i, j, length in _STEPS:
            x = jnp.minimum(x, windows[i + 2][j + 2] + length)
        return x

    return jax.lax.fori_loop(0, _FAR, relax, jnp.where(edges, 0, far))


def _equalised(x: Integers) -> Integers:
    """Spreads whole numbers up to 20 over the bytes, the least to 0, as OpenCV does."""
    counts = jnp.stack([jnp.sum(x == value) for value in range(_FAR + 1)])
    first = jnp.argmax(counts > 0)
    left = x.size - counts[first]
    scale = 255 / jnp.maximum(left, 1).astype(jnp.float32)
    table = jnp.rint((jnp.cumsum(counts) - counts[first]) * scale).astype(jnp.int32)
    return jnp.where(left == 0, x, take(table, x))


def _windows(padded: Array, size: int) -> list[list[Array]]:
    """Views of the padded array, size by size of them."""
    h, w = (length - size + 1 for length in padded.shape)
    return [[padded[i : i + h, j : j + w] for j in range(size)] for i in range(size)]


def _sum(padded: Integers, size: int) -> Integers:
    return sum(one for row in _windows(padded, size) for one in row)


def pixelate(x: Image, drawn: tuple, s: Settings) -> Image:
    """Shrinks by a box filter and enlarges by the nearest, to Pillow's bytes.

    `boxes` (h, h) are of zeros and ones; `weights` (h) is 2^22 over their number.
    """

    def along(x: Image) -> Image:
        # Sums of bytes are exact in float32.
        total = jnp.einsum("ij,jwc->iwc", s["boxes"], x, precision="highest")
        whole = total.astype(jnp.int32) * s["weights"][:, None, None] + (1 << 21)
        return (whole >> 22).astype(jnp.float32)

    return along(along(x.swapaxes(0, 1)).swapaxes(0, 1))


def jpeg_compression(x: Image, drawn: tuple, s: Settings) -> Image:
    """Codes and decodes as JPEG."""
    return jpeg.round_trip(x, s["tables"])


def draw_elastic(key: PRNGKeyArray, side: int) -> tuple[Array, Plane, Plane]:
    """U(0, 1) for the three points (x, y), and for the ways right and down."""
    points, right, down = jax.random.split(key, 3)
    ways = (jax.random.uniform(key, (side, side)) for key in (right, down))
    return jax.random.uniform(points, (3, 2)), *ways


def elastic_transform(x: Image, drawn: tuple, s: Settings) -> Image:
    """Maps affinely, then displaces each pixel by a smooth random field."""
    side = len(x)
    points, *ways = drawn
    x = bilinear(x, *_affine(s["jitter"] * (2 * points - 1), side), "reflect_101")
    fields = (filter_both_axes(2 * u - 1, s["smoother"]) for u in ways)
    right, down = (s["alpha"] * field for field in fields)
    along = jnp.arange(side, dtype=jnp.float32)
    return bilinear(x, along[:, None] + down, along[None, :] + right, "reflect")


def _affine(moves: Float[Array, "3 2"], side: int) -> tuple[Plane, Plane]:
    """Where each pixel reads, rows and columns, when three points move like that.

    The points (x, y) are the centre plus (q, q), (q, -q) and (-q, -q), q a third of the
    side.
    """
    centre, q = side // 2, side // 3
    # What moves by `at` at the centre, and by `slopes` (x or y, for each of x and y).
    slopes = jnp.stack([moves[1] - moves[2], moves[0] - moves[1]], -1) / (2 * q)
    at = (moves[0] + moves[2]) / 2
    a, b = 1 + slopes[0, 0], slopes[0, 1]
    c, d = slopes[1, 0], 1 + slopes[1, 1]
    inverse = jnp.stack([d, -b, -c, a]).reshape(2, 2) / (a * d - b * c)
    offsets = jnp.arange(side, dtype=jnp.float32) - centre

    def reading(which: int) -> Plane:
        by_x, by_y = inverse[which]
        x, y = offsets[None, :] - at[0], offsets[:, None] - at[1]
        return centre + by_x * x + by_y * y

    return reading(1), reading(0)
