"""The corruptions of ImageNet-C on the device: noise, blur, weather and digital.

Each corruption is a pair of functions: the first draws an image's random numbers, the second
applies them to the image. `corrupt.CORRUPTIONS` lists the pairs by name. For corruptions that
run the host's code, only the functions that draw random numbers are here. The host versions in
jbias.data document the corruptions. Values are float32 on the scale of bytes, 0 to 255.

Every corruption here is a function (x, drawn, s) of a square image x, of the random numbers
that its draw function returned, and of the settings s of data.corruptions.settings.

The light on water in `spatter` is computed by OpenCV's Canny, distance transform and
equalisation. Here the three functions work on integers, so that equal drops give equal light.
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
Settings = Mapping[str, Array]  # From data.corruptions.

# Largest rounding error of float32 at a whole number; steps of corruptions are larger.
_ROUNDING = 1 / 8192


def to_bytes(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return x clipped to 0 ... 255 and truncated, as in the published sets.

    A value within 1/8192 below a whole number becomes that number, so that float32 rounding
    does not change the result by one level.
    """
    return jnp.floor(jnp.clip(x, 0, 255) + _ROUNDING)


def filter_both_axes(x: Field, matrix: Float[Array, "h h"]) -> Field:
    """Return M x M^T, a map (h h) or square image x filtered by a matrix M along both axes."""
    rows = jnp.einsum("ij,jw...->iw...", matrix, x, precision="highest")
    return jnp.einsum("ij,hj...->hi...", matrix, rows, precision="highest")


def blur_along_line(
    field: Field, kernel: Float[Array, "k"], taps: Number, degrees: Array
) -> Field:
    """Return a map blurred along a line, as data.corruptions.kernels.motion_blurred does.

    The result has whole numbers. field: values from 0 to 255. kernel: weights along the line;
    the first `taps` are used. degrees: direction of the line, from the x axis towards y,
    which points down.
    """
    height, width = field.shape[:2]
    reach = len(kernel)
    angle = jnp.deg2rad(degrees)
    pads = ((reach, reach), (reach, reach), (0, 0))[: field.ndim]
    padded = jnp.pad(field, pads, mode="edge")

    def add(i: Number, total: Array) -> Array:
        right = jnp.ceil(i * jnp.cos(angle) - 0.5).astype(jnp.int32) + reach
        down = jnp.ceil(i * jnp.sin(angle) - 0.5).astype(jnp.int32) + reach
        start = (down, right, 0)[: field.ndim]
        sizes = (height, width, 3)[: field.ndim]
        return total + kernel[i] * jax.lax.dynamic_slice(padded, start, sizes)

    total = jax.lax.fori_loop(0, taps, add, jnp.zeros_like(field))
    return (jnp.rint(total * 257).astype(jnp.int32) // 257).astype(jnp.float32)


def bilinear(x: Image, rows: Plane, columns: Plane, *, border: str) -> Image:
    """Return a square image sampled at positions (rows, columns) by bilinear interpolation.

    rows, columns: positions in pixels for each pixel of the result; may be fractions.
    border: pixels outside are mirrored with ("reflect") or without ("reflect_101") a
      repetition of the last pixel, or 0 ("black").
    """
    side, flat = len(x), x.reshape(-1, 3)
    top, left = jnp.floor(rows), jnp.floor(columns)

    def corner(i: int, j: int) -> Image:
        """Return for each position the pixel of x at (top + i, left + j).

        Pixels outside x are mirrored or 0, see `border`.
        """
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
    """Return indices mirrored into [0, side); border: "reflect" or "reflect_101"."""
    repeats_last = border == "reflect"
    last = 2 * side - 2 + repeats_last
    i = i % (last + repeats_last)
    return jnp.minimum(i, last - i)


def draw_each(distribution: Callable, *channels: int) -> Callable:
    """Return a function draw(key, side) -> (numbers,), an array (side, side, *channels).

    distribution: (key, shape) -> random numbers, such as jax.random.normal.
    channels: the number of channels; no argument for one number per pixel.
    """
    return lambda key, side: (distribution(key, (side, side, *channels)),)


def draw_numbers(count: int) -> Callable:
    """Return a function draw(key, side) -> tuple of `count` U(0, 1) numbers; side is not used."""
    return lambda key, side: tuple(jax.random.uniform(key, (count,)))


draw_normals = draw_each(jax.random.normal, 3)
draw_uniforms = draw_each(jax.random.uniform, 3)


def shot_noise(x: Image, drawn: tuple, s: Settings) -> Image:
    """Return the image with each value x replaced by 255 n / count, n ~ Poisson(count x / 255).

    n is the smallest number whose distribution function is above a U(0, 1) number.
    drawn: (numbers,), a U(0, 1) number for each value of x.
    Settings: `count`; `photons` (256, m), m a power of two: the distribution functions of n
    for each byte x.
    x and the result are on the scale 0 to 255; the result is not clipped.
    """
    photons = s["photons"]
    table_size = photons.shape[1]
    start = x.astype(jnp.int32) * table_size
    count = jnp.zeros_like(start)
    step = table_size // 2
    while step:
        below = take(photons.reshape(-1), start + count + step - 1) <= drawn[0]
        count += step * below
        step //= 2
    return count * (255 / s["count"])


_MAX_SWEEPS = 3


draw_nothing = draw_numbers(0)


def gaussian_blur(x: Image, drawn: tuple, s: Settings) -> Image:
    """Return the image blurred by a Gaussian; edges repeat.

    drawn: not used. Setting: `blur` (h, h), the filter as a matrix.
    """
    return filter_both_axes(x, s["blur"])


def defocus_blur(x: Image, drawn: tuple, s: Settings) -> Image:
    """Return the image blurred by a disk; edges are mirrored.

    drawn: not used. Settings: `chords` (n, w, w), a matrix for each row of the disk, starting
    at the middle, which filters a row of pixels; `count`, the number of matrices to use,
    starting at the first. The disk is symmetric.
    x and the result are on the scale 0 to 255; the result is not clipped.
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
    """Return (numbers,), the U(0, 1) numbers for the column and row offset per sweep and pixel."""
    return (jax.random.uniform(key, (_MAX_SWEEPS, side, side, 2)),)


def glass_blur(x: Image, drawn: tuple, s: Settings) -> Image:
    """Return the image after a blur, sweeps that displace pixels, and the same blur.

    drawn: from `draw_glass`. Settings: `blur` (h, h), the filter as a matrix; `reach`, the
    largest offset in pixels; `sweeps`, the number of sweeps. Sweeps copy pixels in the order
    of the reference (`glass_origins`).
    x and the result are on the scale 0 to 255; the result is not clipped.
    """
    side, reach = len(x), s["reach"]
    x = to_bytes(filter_both_axes(x, s["blur"])).reshape(-1, 3)

    def sweep(i: Number, x: Float[Array, "n 3"]) -> Float[Array, "n 3"]:
        offsets = jnp.floor(drawn[0][i] * (2 * reach)).astype(jnp.int32) - reach
        return take(x, glass_origins(offsets, reach))

    x = jax.lax.fori_loop(0, s["sweeps"], sweep, x)
    return filter_both_axes(x.reshape(side, side, 3), s["blur"])


def glass_origins(offsets: Int[Array, "h w 2"], reach: Number) -> Int[Array, "h*w"]:
    """Return the flat index of the pixel from which each pixel's value comes after a sweep.

    reach: largest offset in pixels.
    offsets: (columns, rows) to the neighbour that is copied. The sweep goes upwards from
      pixel side - reach to reach + 1 along both axes. A neighbour above or left still has its
      old value; a neighbour below or right is already a copy. Chains of copies are resolved
      by pointer doubling.
    """
    side = len(offsets)
    pixels = jnp.arange(side * side).reshape(side, side)
    row, column = jnp.arange(side)[:, None], jnp.arange(side)[None, :]

    def is_swept(row: Int[Array, "h w"], column: Int[Array, "h w"]) -> Array:
        inside = (row > reach) & (row <= side - reach)
        return inside & (column > reach) & (column <= side - reach)

    source_row, source_column = row + offsets[..., 1], column + offsets[..., 0]
    source = source_row * side + source_column
    is_copy = is_swept(source_row, source_column) & (source > pixels)
    # n + i stands for the new value of pixel i.
    n = side * side
    links = jnp.where(is_swept(row, column), source + n * is_copy, pixels).reshape(-1)

    def follow(links: Int[Array, "n"]) -> Int[Array, "n"]:
        return jnp.where(links < n, links, take(links, links % n))

    return jax.lax.while_loop(lambda links: (links >= n).any(), follow, links)


def motion_blur(x: Image, drawn: tuple, s: Settings) -> Image:
    """Return the image blurred along a line at U(-45, 45) degrees, by half a Gaussian.

    drawn: (number,), a U(0, 1) number for the direction. Settings: `kernel` and `taps`, see
    `blur_along_line`.
    """
    return blur_along_line(x, s["kernel"], s["taps"], 90 * drawn[0] - 45)


def zoom_blur(x: Image, drawn: tuple, s: Settings) -> Image:
    """Return the mean of the image and its zooms.

    drawn: not used. Settings: `zooms` (n, h, h), a matrix for each zoom; the first `count`
    are used.
    x and the result are on the scale 0 to 255; the result is not clipped.
    """

    def add(i: Number, total: Image) -> Image:
        return total + filter_both_axes(x, s["zooms"][i])

    total = jax.lax.fori_loop(0, s["count"], add, x)
    return total / (s["count"] + 1)


def draw_snow(key: PRNGKeyArray, side: int) -> tuple[Plane, Float[Array, ""]]:
    """Return N(0, 1) numbers for the flakes and a U(0, 1) number for their direction."""
    flakes, direction = jax.random.split(key)
    return jax.random.normal(flakes, (side, side)), jax.random.uniform(direction)


def snow(x: Image, drawn: tuple, s: Settings) -> Image:
    """Return the whitened image plus blurred flakes plus the same flakes turned by 180 degrees.

    drawn: from `draw_snow`. Settings: see data.corruptions.kernels.snow; `zoom` (h, h) is
    the enlargement as a matrix; `kernel` and `taps`, see `blur_along_line`.
    x and the result are on the scale 0 to 255; the result is not clipped.
    """
    layer = filter_both_axes(s["mean"] + s["sigma"] * drawn[0], s["zoom"])
    layer = to_bytes(255 * jnp.where(layer < s["least"], 0, layer))
    degrees = 90 * drawn[1] - 135
    layer = blur_along_line(layer, s["kernel"], s["taps"], degrees)[..., None]
    # Accelerators round the factors of a product by default.
    grey = jnp.matmul(x, jnp.array([0.299, 0.587, 0.114]), precision="highest")
    white = grey[..., None] * 1.5 + 127.5
    x = s["keep"] * x + (1 - s["keep"]) * jnp.maximum(x, white)
    return x + layer + layer[::-1, ::-1]


def frost(x: Image, drawn: tuple, s: Settings) -> Image:
    """Return keep * x + add * crop, with a random crop of one of the photographs `ice`.

    drawn: three U(0, 1) numbers: for the photograph, and for the crop's top and left.
    Settings: `keep` and `add`, weights; `ice` (n, h, w, 3), padded to one size; `sizes` (n, 2),
    heights and widths before the padding.
    x and the result are on the scale 0 to 255; the result is not clipped.
    """
    side = len(x)
    u_which, u_top, u_left = drawn
    which = sampling.integers(u_which, len(s["ice"]))
    height, width = s["sizes"][which]
    top = sampling.integers(u_top, height - side)
    left = sampling.integers(u_left, width - side)
    crop = jax.lax.dynamic_slice(s["ice"], (which, top, left, 0), (1, side, side, 3))
    return s["keep"] * x + s["add"] * crop[0].astype(jnp.float32)


def draw_fog(key: PRNGKeyArray, side: int) -> tuple[Float[Array, "3 n n"], ...]:
    """Return U(0, 1) numbers for each level of kernels.plasma, the coarsest first.

    The three planes of level i, of n = 2^i, are for centres, upper edges and left edges of squares.
    """
    levels = (side - 1).bit_length()
    return tuple(sampling.uniforms(key, *((3, 1 << i, 1 << i) for i in range(levels))))


Integers = Int[Array, "h w"]

_WATER = np.float32([[[175, 238, 238]]])
_MUD = np.float32([[[63, 42, 20]]])
_WEAK, _STRONG = 50, 150  # Gradients that continue and that start an edge.
_FAR = 20  # Largest distance in pixels.
_UNIT = 1 << 16  # Distances are in 2^-16 pixels.
# Steps (rows, columns) of a path to an edge and their lengths: 1, 1.4 and 2.1969 pixels.
_LENGTHS = {(0, 1): 65536, (1, 1): 91750, (1, 2): 143976}
_STEPS = tuple(
    (i, j, _LENGTHS[step])
    for i, j in itertools.product(range(-2, 3), repeat=2)
    if (step := tuple(sorted((abs(i), abs(j))))) in _LENGTHS
)


def spatter(x: Image, drawn: tuple, s: Settings) -> Image:
    """Return the image with water or mud where blurred N(mean, sigma^2) noise >= `least`.

    drawn: (numbers,), one N(0, 1) number per pixel. Settings: see
    data.corruptions.kernels.spatter; `blur` and `border` (h, h) are filters as matrices;
    `mud`: True: mud, False: water.
    x and the result are on the scale 0 to 255; the result is not clipped.
    """
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
    """Return the brightness of the light on drops, up to a factor.

    liquid: depth of the drops, from 0 to 255.
    """
    near = distance_to_edges(canny(liquid))
    depth = _sum(jnp.pad(near, 1, "reflect"), 3) // (9 * _UNIT)
    padded = jnp.pad(_equalised(depth), 1, "reflect")
    a = _windows(padded, 3)
    # [[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]
    lit = 2 * (a[2][2] - a[0][0]) + a[1][1] + a[1][2] + a[2][1] - a[0][1] - a[1][0]
    lit = jnp.pad(jnp.clip(lit, 0, 255), 1, "reflect")
    return (liquid * ((2 * _sum(lit, 3) + 9) // 18)).astype(jnp.float32)


def canny(x: Integers) -> Bool[Array, "h w"]:
    """Return a mask of Canny's thin edges of a map of whole numbers, as in OpenCV.

    Edges are thin ridges of the gradient above _STRONG, or above _WEAK and connected to a ridge
    above _STRONG. x: whole numbers from 0 to 255.
    """
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
    far = _FAR * _UNIT

    def relax(_, x: Integers) -> Integers:
        windows = _windows(jnp.pad(x, 2, constant_values=far), 5)
        for i, j, length in _STEPS:
            x = jnp.minimum(x, windows[i + 2][j + 2] + length)
        return x

    return jax.lax.fori_loop(0, _FAR, relax, jnp.where(edges, 0, far))


def _equalised(x: Integers) -> Integers:
    """Return the map after histogram equalisation, from 0 to 255, as in OpenCV.

    x: whole numbers from 0 to 20. A map of a single value does not change.
    """
    counts = jnp.stack([jnp.sum(x == value) for value in range(_FAR + 1)])
    first = jnp.argmax(counts > 0)
    left = x.size - counts[first]
    scale = 255 / jnp.maximum(left, 1).astype(jnp.float32)
    table = jnp.rint((jnp.cumsum(counts) - counts[first]) * scale).astype(jnp.int32)
    return jnp.where(left == 0, x, take(table, x))


def _windows(padded: Array, size: int) -> list[list[Array]]:
    """Return size x size shifted views of a padded map; view [i][j] starts at row i, column j."""
    h, w = (length - size + 1 for length in padded.shape)
    return [[padded[i : i + h, j : j + w] for j in range(size)] for i in range(size)]


def _sum(padded: Integers, size: int) -> Integers:
    """Return the sum over size x size pixels around each pixel."""
    return sum(window for row in _windows(padded, size) for window in row)


def pixelate(x: Image, drawn: tuple, s: Settings) -> Image:
    """Return the image shrunk by a box filter and enlarged by nearest neighbours.

    The result is equal to Pillow's. drawn: not used. Settings: `boxes` (h, h), zeros and ones;
    `weights` (h), 2^22 over the number of ones in each row.
    x and the result are on the scale 0 to 255; the result is not clipped.
    """

    def along(x: Image) -> Image:
        # Sums of bytes are exact in float32.
        total = jnp.einsum("ij,jwc->iwc", s["boxes"], x, precision="highest")
        whole = total.astype(jnp.int32) * s["weights"][:, None, None] + (1 << 21)
        return (whole >> 22).astype(jnp.float32)

    return along(along(x.swapaxes(0, 1)).swapaxes(0, 1))


def jpeg_compression(x: Image, drawn: tuple, s: Settings) -> Image:
    """Return the image after JPEG compression.

    drawn: not used. Setting: `tables`, see jpeg.round_trip.
    """
    return jpeg.round_trip(x, s["tables"])


def draw_elastic(key: PRNGKeyArray, side: int) -> tuple[Array, Plane, Plane]:
    """Return U(0, 1) numbers for the moves of three points, and of each pixel right and down.

    Shapes: (3, 2) for three points (x, y), and (side, side) twice.
    """
    k_points, k_right, k_down = jax.random.split(key, 3)
    points = jax.random.uniform(k_points, (3, 2))
    right = jax.random.uniform(k_right, (side, side))
    down = jax.random.uniform(k_down, (side, side))
    return points, right, down


def elastic_transform(x: Image, drawn: tuple, s: Settings) -> Image:
    """Return the image after a random affine map and a smooth random displacement.

    drawn: from `draw_elastic`. Settings: `jitter` and `alpha` in pixels, see
    data.corruptions.kernels.elastic_transform; `smoother` (h, h), the filter as a matrix.
    x and the result are on the scale 0 to 255; the result is not clipped.
    """
    side = len(x)
    points, *fields = drawn
    rows, columns = _affine(s["jitter"] * (2 * points - 1), side)
    x = bilinear(x, rows, columns, border="reflect_101")
    smoothed = (filter_both_axes(2 * u - 1, s["smoother"]) for u in fields)
    right, down = (s["alpha"] * field for field in smoothed)
    along = jnp.arange(side, dtype=jnp.float32)
    return bilinear(x, along[:, None] + down, along[None, :] + right, border="reflect")


def _affine(moves: Float[Array, "3 2"], side: int) -> tuple[Plane, Plane]:
    """Return the positions (rows, columns) from which pixels come when three points move.

    The affine map is determined by the displacements `moves` (x, y) of three points: the
    centre plus (q, q), (q, -q) and (-q, -q), with q a third of the side.
    """
    centre, q = side // 2, side // 3
    # The displacement is `at` at the centre and grows by `slopes` per pixel.
    slopes = jnp.stack([moves[1] - moves[2], moves[0] - moves[1]], -1) / (2 * q)
    at = (moves[0] + moves[2]) / 2
    a, b = 1 + slopes[0, 0], slopes[0, 1]
    c, d = slopes[1, 0], 1 + slopes[1, 1]
    inverse = jnp.stack([d, -b, -c, a]).reshape(2, 2) / (a * d - b * c)
    offsets = jnp.arange(side, dtype=jnp.float32) - centre

    def position(axis: int) -> Plane:
        by_x, by_y = inverse[axis]
        x, y = offsets[None, :] - at[0], offsets[:, None] - at[1]
        return centre + by_x * x + by_y * y

    return position(1), position(0)
