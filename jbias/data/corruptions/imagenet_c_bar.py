"""The ten corruptions of ImageNet-C-bar: random fields, and shapes that cover or distort.

Arguments: see `operations`; `level` is the published strength. Lengths scale with the side of
the image.

Source: Mintun, Kirillov and Xie, NeurIPS 2021, https://arxiv.org/abs/2102.11273. Reference
code: https://github.com/facebookresearch/augmentation-corruption at ba4d5a5. Deviation of
all ten: another generator; with the same draws the images are the same.
"""

import functools
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from jbias.data.corruptions import operations
from jbias.data.corruptions.operations import (
    Filter,
    Filters,
    Operations,
    Plane,
    Rng,
    Row,
    Settings,
    Unit,
    Values,
)

Pair = Float[Any, "2"]
Gradients, Order = Float[Any, "256 2"], Int[Any, "256"]

_ROUNDS = 6  # The largest number in plasma_noise.


def _grid(xp: ModuleType, side: int) -> tuple[Int[Any, "h 1"], Int[Any, "1 w"]]:
    """Return the row indices (h 1) and the column indices (1 w) of the pixels."""
    along = xp.arange(side)
    return along[:, None], along[None, :]


def single_frequency_greyscale(
    image: Values, rng: Rng, ops: Operations, *, level: float
) -> Values:
    """Return the image plus 19.6 level sin(u x + v y + phase) in all channels.

    x, y: column and row of a pixel. One of u and v, chosen at random, is f ~ U(-pi, pi); the
    second of the two is U(-abs(f), abs(f)). phase ~ U(0, 2 pi).
    """
    xp = image.__array_namespace__()
    first = rng.uniform(-np.pi, np.pi)
    second = rng.uniform(-abs(first), abs(first))
    u, v = rng.permutation([first, second])
    phase = rng.uniform(0, 2 * np.pi)
    y, x = _grid(xp, len(image))
    return image + 19.6 * level * xp.sin(u * x + v * y + phase)[..., None]


def cocentric_sine_waves(
    image: Values, rng: Rng, ops: Operations, *, level: float
) -> Values:
    """Return the image plus wavy rings about a random point.

    The rings are 12.8 level (((d + a sin(k t)) mod w) / w - 1/2) at distance d from the point
    and angle t from the y axis. The point is U(0, side)^2, k ~ U(0, 10), and a and w are
    U(0, side / 10). The name is spelled as published.
    """
    xp, side = image.__array_namespace__(), len(image)
    centre = rng.uniform(0, side, 2)
    k = rng.uniform(0, 10)
    a, w = rng.uniform(0, side / 10, 2)
    y, x = _grid(xp, side)
    x, y = x - centre[0], y - centre[1]
    rings = (xp.hypot(x, y) + a * xp.sin(k * xp.arctan2(x, y))) % w / w - 0.5
    return image + 12.8 * level * rings[..., None]


def warped_grid(
    xp: ModuleType,
    side: int,
    time: float,
    rounds: int,
    sharpness: float,
    scale: float,
) -> tuple[Plane, Plane]:
    """Return the coordinates (x, y) of all pixels, displaced `rounds` times by sines of x and y.

    xp: array namespace. rounds: at most _ROUNDS. scale: pixels per unit of x and y.
    In each round (x, y) moves by r + 0.3 (-r_y, r_x), r = (cos(p y + time / q),
    sin(p x + time / q)) / s; then p, q and s, at first 1, are multiplied by 1.93, 1.15 and
    2.25 - sharpness. The reference also has a phase, which is always 0.
    """
    y, x = xp.broadcast_arrays(*(along / scale for along in _grid(xp, side)))
    p, q, s = 1.0, 1.0, 1.0
    for i in range(_ROUNDS):
        right = xp.cos(p * y + time / q) / s
        down = xp.sin(p * x + time / q) / s
        moves = i < rounds
        x = xp.where(moves, x + right - 0.3 * down, x)
        y = xp.where(moves, y + down + 0.3 * right, y)
        p, q, s = p * 1.93, q * 1.15, s * (2.25 - sharpness)
    return x, y


def plasma_noise(image: Values, rng: Rng, ops: Operations, *, level: float) -> Values:
    """Return (1 - i / 255) image + i n, i = 6.4 level, with warped waves n of random form.

    n is sin(x - t) in red, sin((x + y + sin t) / 2) in green and sin(y + t) in blue, with a
    random time t and the coordinates (x, y) from `warped_grid`.
    """
    xp, side = image.__array_namespace__(), len(image)
    time = rng.uniform(0, 6 * np.pi)
    rounds = rng.integers(4, 7)
    sharpness = rng.uniform(0.5, 1)
    scale = rng.uniform(0.075, 0.2) * side
    warped = functools.partial(warped_grid, xp, side)
    x, y = ops.once(warped, time, rounds, sharpness, scale)
    red, blue = xp.sin(x - time), xp.sin(y + time)
    green = xp.sin((x + y + xp.sin(time)) * 0.5)
    strength = 6.4 * level
    return (1 - strength / 255) * image + strength * xp.stack([red, green, blue], -1)


def lattice(xp: ModuleType, rng: Rng) -> tuple[Gradients, Order]:
    """Return 256 random gradients of length 1, and their random order, for Perlin's noise.

    xp: array namespace. Each gradient is the direction of a random point in a square, so that
    directions are not uniform. Source: Perlin 1985.
    """
    points = rng.integers(-256, 256, (256, 2)).astype(float)
    zero = (points == 0).all(-1, keepdims=True)
    points = xp.where(zero, 1.0, points)  # One in 262144; the reference divides by 0.
    length = xp.linalg.norm(points, axis=-1, keepdims=True)
    return points / length, rng.permutation(256)


def lattice_noise(
    xp: ModuleType, side: int, octave: int, gradients: Gradients, order: Order
) -> Plane:
    """Return 1.5 times Perlin's noise of side x side pixels.

    Pixel (row, column) is at the position 7 octave / side times (row, column), and the noise is
    0 at whole positions. xp: array namespace. gradients, order: the results of `lattice`. The
    lattice has 256 x 256 cells and is periodic; the gradient at (i, j) has the index
    order[(order[i] + j) mod 256], as in the reference. Interpolation is by the smoothstep 3 t^2
    - 2 t^3.
    """
    place = octave * (np.arange(side) * (7 / side))
    cell = np.floor(place).astype(int)
    near = (place - cell).astype(gradients.dtype)
    smooth = near**2 * (3 - 2 * near)
    ends = np.arange(cell[-1] + 2)
    table = gradients[order[(order[ends % 256][:, None] + ends[None, :]) % 256]]
    # The gradients of a cell's four corners are joined, so that one lookup reads all four.
    corners = [table[:-1, :-1], table[:-1, 1:], table[1:, :-1], table[1:, 1:]]
    fetched = xp.concatenate(corners, -1)[cell][:, cell]

    def corner(i: int, j: int) -> Plane:
        gradient = fetched[..., 2 * (2 * i + j) :]
        away = near[:, None] - i, near[None, :] - j
        return gradient[..., 0] * away[0] + gradient[..., 1] * away[1]

    across, along = smooth[:, None], smooth[None, :]
    first = corner(0, 0) + across * (corner(1, 0) - corner(0, 0))
    second = corner(0, 1) + across * (corner(1, 1) - corner(0, 1))
    return 1.5 * (first + along * (second - first))


def perlin_noise(image: Values, rng: Rng, ops: Operations, *, level: float) -> Values:
    """Return (1 - a) image + 255 a min(1/2 + t / 2, 1), a = level / 20, with turbulence t.

    t is the sum of abs(n_f) / f over f = 1, 2, 4, 8, 16, where n_f is `lattice_noise` of the
    octave f.
    """
    xp, side = image.__array_namespace__(), len(image)
    gradients, order = lattice(xp, rng)
    turbulence = sum(
        abs(ops.once(functools.partial(lattice_noise, xp, side, f), gradients, order))
        / f
        for f in (1, 2, 4, 8, 16)
    )
    clouds = xp.minimum(0.5 + 0.5 * turbulence, 1)
    share = level / 20
    return (1 - share) * image + 255 * share * clouds[..., None]


def spectral_noise(xp: ModuleType, rng: Rng, amplitude: Plane) -> Plane:
    """Return a random field of unit standard deviation with the given Fourier amplitudes.

    xp: array namespace. amplitude: Fourier amplitudes, with the constant term in the middle.

    As in the reference, phases are U(0, 2 pi) in the left half. The right half is the left half
    rotated by 180 degrees about the middle of the array. The imaginary part of the sum is
    dropped. So frequencies k and -k - 1 have equal phases, and the field is partly symmetric:
    values at x and -x are almost equal near the corners, and almost opposite and small near the
    middle of an edge.
    """
    side = len(amplitude)
    half = side // 2
    left = rng.uniform(0, 2 * np.pi, (side, side - half))
    phases = xp.concatenate([left, left[::-1, half - 1 :: -1]], 1)
    field = xp.fft.ifft2(xp.fft.ifftshift(amplitude * xp.exp(1j * phases))).real
    return field / field.std()


def frequency(side: int) -> Float[np.ndarray, "h w"]:
    """Return the Fourier amplitude of blue noise: the frequency in periods per side.

    The frequency is 0 in the middle of the array.
    """
    y, x = np.mgrid[:side, :side] - side / 2
    return np.hypot(x, y)


def brownish(side: int) -> Float[np.ndarray, "h w"]:
    """Return the Fourier amplitude 1 / (f^2 + 1) at frequency f, in periods per side.

    The constant term is 1, so that the noise has a random mean.
    """
    return 1 / (frequency(side) ** 2 + 1)


def blue_noise_sample(
    image: Values, rng: Rng, ops: Operations, *, level: float
) -> Values:
    """Return the image with black pixels where blue noise is at most 0.3 level - 2.5."""
    xp = image.__array_namespace__()
    keep = spectral_noise(xp, rng, frequency(len(image))) > 0.3 * level - 2.5
    return xp.where(keep[..., None], image, 0)


def brownish_noise(image: Values, rng: Rng, ops: Operations, *, level: float) -> Values:
    """Return the image plus 6.4 level times brownish noise, drawn separately for each channel."""
    xp, amplitude = image.__array_namespace__(), brownish(len(image))
    fields = [spectral_noise(xp, rng, amplitude) for _ in range(3)]
    return image + 6.4 * level * xp.stack(fields, -1)


INDEX = 4.0  # Refractive index of the water.


def caustics(xp: ModuleType, side: int, time: float, size: float) -> Plane:
    """Return the light in [0, 1] on the floor of a pool, in side x side pixels.

    xp: array namespace. time: time of the waves, which changes the pattern. size: period of
    the pattern in pixels.
    """
    y, x = (along / size % 1 * (2 * np.pi) - 250 for along in _grid(xp, side))
    down, right = y, x
    total = 1.0
    for n in range(1, 6):
        t = time * (1 - 3.5 / n)
        down, right = (
            y + (xp.cos(t - down) + xp.sin(t + right)),
            x + (xp.sin(t - right) + xp.cos(t + down)),
        )
        slope = xp.hypot(y / xp.sin(down + t), x / xp.cos(right + t))
        total = total + 200 / slope
    return xp.clip(abs(1.17 - (total / 5) ** 1.4) ** 8, 0, 1)


def draw_caustics(image: Values, rng: Rng, ops: Operations) -> Plane:
    """Return the light of `caustics`, with a random time and size.

    image: only the side and the array namespace are used.
    """
    xp, side = image.__array_namespace__(), len(image)
    time = rng.uniform(0.5, 2)
    size = rng.uniform(0.75, 1.25) * side
    return ops.once(functools.partial(caustics, xp, side), time, size)


def refraction(down: Plane, right: Plane) -> Plane:
    """Return the sideways displacement of a vertical ray of length 1, divided by the slope.

    down, right: slopes of the water's surface along the axes; the slope is their norm.
    The refracted ray has the angle o to the normal, sin(o) = sin(i) / INDEX, with i the
    normal's angle to the vertical. The displacement along the slope is sin(i - o), or 0 where
    cos(i) is at least 0.999.
    """
    xp = down.__array_namespace__()
    steep = xp.hypot(down, right)
    angle = xp.arctan(steep)
    out = xp.arcsin(xp.sin(angle) / INDEX)
    reach = xp.where(xp.cos(angle) >= 0.999, 0, xp.sin(angle - out))
    return reach / xp.where(steep == 0, 1, steep)


def water(light: Plane, level: float) -> tuple[Plane, Plane, Plane]:
    """Return (rows, columns, light): the displacement of each pixel's source, and the added light.

    light: light of `caustics`; 0 is used outside the image. The slopes of the light are central
    differences, not halved. The displacement in pixels is level * side / 20 times the
    displacement of a ray, see `refraction`. The added light, on the scale of [0, 1], is the
    difference of the two slopes times level / 5, and may be negative.
    """
    xp, side = light.__array_namespace__(), len(light)
    light = xp.pad(light, 1)
    down = light[2:, 1:-1] - light[:-2, 1:-1]
    right = light[1:-1, 2:] - light[1:-1, :-2]
    bent, reach = refraction(down, right), level * side / 20
    rows, columns = (xp.round(slope * bent * reach, 3) for slope in (down, right))
    return rows, columns, (down - right) * (level / 5)


def prepare_caustic_refraction(
    filters: Filters, side: int, row: Row, rows: Sequence[Row]
) -> Settings:
    """Return the settings of `caustic_refraction`: blur (a filter) and level.

    row: the published level of one severity. Other arguments: see `Corruption.prepare` of the
    package.
    """
    return {"blur": filters.gaussian(side, 1, "reflect"), "level": row["level"]}


@operations.on_filter_scale(np.float64)
def caustic_refraction(
    x: Unit, rng: Rng, ops: Operations, *, blur: Filter, level: float
) -> Unit:
    """Return the image refracted as by water with caustics, plus the light from `water`.

    blur: of the caustics, a Gaussian of 1 pixel. Pixels are interpolated bilinearly, with black
    outside the image.
    """
    light = ops.filtered(draw_caustics(x, rng, ops), blur)
    rows, columns, lit = water(light, level)
    refracted = ops.displaced(x, rows, columns, border="black")
    return refracted + ops.WHITE * lit[..., None]


def checkerboard_cutout(
    image: Values, rng: Rng, ops: Operations, *, level: float
) -> Values:
    """Return the image with fields of a rotated checkerboard filled with the grey 128.

    Each field of one colour is filled with probability level / 10. All fields have the same
    side, U(0.1, 0.25) times the image's side, and are rotated by U(0, 2 pi) about the first
    pixel. Two fields that meet at an axis through the first pixel have the same random draw, as
    in the reference.
    """
    xp, side = image.__array_namespace__(), len(image)
    angle = rng.uniform(0, 2 * np.pi)
    field = rng.uniform(0.1, 0.25) * side
    count = xp.floor_divide(4 * side, field).astype(int)
    filled = rng.random((count, count)) < level / 10
    y, x = (along / field for along in _grid(xp, side))
    u = xp.cos(angle) * y + xp.sin(angle) * x
    v = xp.cos(angle) * x - xp.sin(angle) * y
    is_first_colour = xp.floor(u) % 2 == xp.floor(v) % 2
    # Towards 0; below it, counted from the end.
    cover = is_first_colour & filled[u.astype(int) % count, v.astype(int) % count]
    return xp.where(cover[..., None], 128, image)


def star(
    side: int, centre: Pair, lengths: Float[Any, "most"], rays: int, amount: float
) -> Plane:
    """Return the strength of a star in each of side x side pixels, in [0, 1].

    centre: (row, column). lengths: lengths of the rays in pixels; the first `rays` are used.
    The strength is clip((1 - (u - 1/2)^2) (L^2 / (d^2 + 1e-4))^((100 - amount) / 50), 0, 1)
    at distance d from the centre. Here u in [0, 1) is the position between two neighbouring
    rays, and L is interpolated between the lengths of these rays.
    """
    xp = lengths.__array_namespace__()
    y, x = _grid(xp, side)
    y, x = y - centre[0], x - centre[1]
    turn = (xp.arctan2(x, y) + np.pi) / (2 * np.pi) * rays
    ray = turn.astype(int)
    u = turn - ray
    length = lengths[ray % rays] * (1 - u) + lengths[(ray + 1) % rays] * u
    glow = (length**2 / (x**2 + y**2 + 1e-4)) ** ((100 - amount) / 50)
    return xp.clip((1 - (u - 0.5) ** 2) * glow, 0, 1)


def _lengths(rng: Rng, radius: float, rays: int) -> Float[Any, "rays"]:
    """Return `rays` random lengths from N(radius, (radius / 4)^2), in pixels."""
    return radius * (1 + 0.25 * rng.standard_normal(rays))


def sparkles(image: Values, rng: Rng, ops: Operations, *, level: float) -> Values:
    """Return the image with five white stars of 50 to 199 rays at random positions.

    Positions are U(0, side)^2. Lengths of rays are normal with the mean level * side / 100 and
    a standard deviation of a quarter of the mean; they are at least 1 pixel.
    """
    xp, side = image.__array_namespace__(), len(image)
    centres = rng.uniform(0, side, (5, 2))
    counts = rng.integers(50, 200, 5)
    for centre, rays in zip(centres, counts, strict=True):
        lengths = xp.maximum(_lengths(rng, level * side / 100, rays), 1)
        image = image + star(side, centre, lengths, rays, 50)[..., None] * (255 - image)
    return image


def inverse_sparkles(
    image: Values, rng: Rng, ops: Operations, *, level: float
) -> Values:
    """Return the image, turned white except inside a star of 50 to 199 rays.

    The star is at U(side / 4, 3 side / 4)^2. Lengths of rays are normal with the mean side / 4
    and a standard deviation of a quarter of the mean. The `amount` of `star` is
    100 - 6.5 level.
    """
    side = len(image)
    centre = rng.uniform(0.25, 0.75, 2) * side
    rays = rng.integers(50, 200)
    lengths = _lengths(rng, side / 4, rays)
    light = star(side, centre, lengths, rays, 100 - 6.5 * level)[..., None]
    return 255 + light * (image - 255.0)
