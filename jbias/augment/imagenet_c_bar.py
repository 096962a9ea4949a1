"""The corruptions of ImageNet-C-bar on the device.

First those that add or multiply by a random field, then those that cover or bend the image.
Each is a pair of functions, as in `imagenet_c`; what it means is documented with its host
version in jbias.data. Lengths scale with the side of the image.
Source: Mintun, Kirillov and Xie, NeurIPS 2021, https://arxiv.org/abs/2102.11273.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jbias.augment import imagenet_c, memory, sampling
from jbias.augment.imagenet_c import Image, Plane, Settings

_ROUNDS = 6  # The most of plasma_noise.
_OCTAVES = (1, 2, 4, 8, 16)


# U(0, 1): one component, the other, which is which, phase.
draw_single_frequency = imagenet_c.draw_numbers(4)
# U(0, 1): centre (x, y), k, a, w.
draw_rings = imagenet_c.draw_numbers(5)
# U(0, 1): time, rounds, sharpness, scale.
draw_waves = imagenet_c.draw_numbers(4)


def single_frequency_greyscale(x: Image, drawn: tuple, s: Settings) -> Image:
    """Adds 19.6 level sin(u x + v y + phase), the same to each channel."""
    first = math.pi * (2 * drawn[0] - 1)
    second = jnp.abs(first) * (2 * drawn[1] - 1)
    turned = drawn[2] >= 0.5
    u, v = jnp.where(turned, second, first), jnp.where(turned, first, second)
    along = jnp.arange(len(x))
    wave = jnp.sin(u * along[None, :] + v * along[:, None] + 2 * math.pi * drawn[3])
    return x + 19.6 * s["level"] * wave[..., None]


def cocentric_sine_waves(x: Image, drawn: tuple, s: Settings) -> Image:
    """Adds 12.8 level (((d + a sin(k t)) mod w) / w - 1/2): wavy rings."""
    side = len(x)
    k, a, w = 10 * drawn[2], drawn[3] * side / 10, drawn[4] * side / 10
    along = jnp.arange(side)
    across, down = along[None, :] - side * drawn[0], along[:, None] - side * drawn[1]
    angle = jnp.arctan2(across, down)
    turns = (jnp.hypot(across, down) + a * jnp.sin(k * angle)) / w
    return x + 12.8 * s["level"] * (turns - jnp.floor(turns) - 0.5)[..., None]


def plasma_noise(x: Image, drawn: tuple, s: Settings) -> Image:
    """Mixes (1 - i / 255) x + i n, i = 6.4 level, with warped waves n."""
    strength = 6.4 * s["level"]
    moved = functools.partial(_warped, side=len(x))
    right, down = memory.materialize(moved, drawn)
    time = 6 * math.pi * drawn[0]
    green = jnp.sin((right + down + jnp.sin(time)) * 0.5)
    waves = jnp.stack([jnp.sin(right - time), green, jnp.sin(down + time)], -1)
    return (1 - strength / 255) * x + strength * waves


def _warped(drawn: tuple, side: int) -> tuple[Plane, Plane]:
    """Coordinates that were moved by sines of themselves, several times."""
    time, rounds = 6 * math.pi * drawn[0], 4 + sampling.integers(drawn[1], 3)
    sharpness, scale = 0.5 + 0.5 * drawn[2], (0.075 + 0.125 * drawn[3]) * side
    along = jnp.arange(side) / scale
    right = jnp.broadcast_to(along[None, :], (side, side))
    down = jnp.broadcast_to(along[:, None], (side, side))
    p, q, size = 1.0, 1.0, 1.0
    for i in range(_ROUNDS):
        across = jnp.cos(p * down + time / q) / size
        along = jnp.sin(p * right + time / q) / size
        more = i < rounds
        right = right + jnp.where(more, across - 0.3 * along, 0)
        down = down + jnp.where(more, along + 0.3 * across, 0)
        p, q, size = p * 1.93, q * 1.15, size * (2.25 - sharpness)
    return right, down


def draw_perlin(
    key: PRNGKeyArray, side: int
) -> tuple[Float[Array, "256 2"], Float[Array, "256"]]:
    """U(0, 1) for the gradients, and for their order: from the least on."""
    return tuple(sampling.uniforms(key, (256, 2), (256,)))


def perlin_noise(x: Image, drawn: tuple, s: Settings) -> Image:
    """Mixes (1 - a) x + 255 a min(1/2 + turbulence / 2, 1), a = level / 20."""
    side, share = len(x), s["level"] / 20
    points = jnp.floor(512 * drawn[0]) - 256
    points = jnp.where((points == 0).all(-1, keepdims=True), 1.0, points)
    gradients = points / jnp.linalg.norm(points, axis=-1, keepdims=True)
    order = jnp.argsort(drawn[1])
    clouds = jnp.zeros((side, side))
    for f in _OCTAVES:
        draw = functools.partial(_lattice_noise, side=side, f=f)
        noise = memory.materialize(draw, gradients, order)
        clouds += jnp.abs(noise) / f
    clouds = jnp.minimum(0.5 + 0.5 * clouds, 1)
    return (1 - share) * x + 255 * share * clouds[..., None]


def _lattice_noise(
    gradients: Float[Array, "256 2"], order: Int[Array, "256"], side: int, f: int
) -> Plane:
    """1.5 times the noise at 7 f / side (row, column), 0 where these are whole.

    Rows of pixels are columns of the lattice, as in the reference.
    """
    place = f * (np.arange(side) * (7 / side))
    cell = np.floor(place).astype(int)
    near = (place - cell).astype(np.float32)
    smooth = near**2 * (3 - 2 * near)
    ends = np.arange(cell[-1] + 2)
    table = gradients[order[(order[ends % 256][:, None] + ends[None, :]) % 256]]
    # Those of a cell's four corners side by side are fetched at once.
    corners = [table[:-1, :-1], table[:-1, 1:], table[1:, :-1], table[1:, 1:]]
    fetched = jnp.concatenate(corners, -1)[cell][:, cell]

    def corner(i: int, j: int) -> Plane:
        gradient = fetched[..., 2 * (2 * i + j) :]
        away = near[:, None] - i, near[None, :] - j
        return gradient[..., 0] * away[0] + gradient[..., 1] * away[1]

    across, along = smooth[:, None], smooth[None, :]
    first = corner(0, 0) + across * (corner(1, 0) - corner(0, 0))
    second = corner(0, 1) + across * (corner(1, 1) - corner(0, 1))
    return 1.5 * (first + along * (second - first))


def draw_phases(key: PRNGKeyArray, side: int) -> tuple[Float[Array, "h half"]]:
    """U(0, 1) for the phases of the left half."""
    return (jax.random.uniform(key, (side, side - side // 2)),)


def draw_three_phases(key: PRNGKeyArray, side: int) -> tuple[Float[Array, "h half"]]:
    """The same for each channel."""
    return tuple(jax.random.uniform(key, (3, side, side - side // 2)))


def spectral_field(
    u: Float[Array, "h half"], amplitude: Float[np.ndarray, "h h"]
) -> Plane:
    """A field of unit deviation with these amplitudes, the mean's at the middle."""
    half = len(amplitude) // 2
    angles = 2 * math.pi * jnp.concatenate([u, u[::-1, half - 1 :: -1]], 1)
    waves = amplitude * jax.lax.complex(jnp.cos(angles), jnp.sin(angles))
    field = jnp.fft.ifft2(jnp.fft.ifftshift(waves)).real
    return field / field.std()


def _distance(side: int) -> Float[np.ndarray, "h h"]:
    y, x = np.mgrid[:side, :side] - side / 2
    return np.hypot(x, y).astype(np.float32)


def blue_noise_sample(x: Image, drawn: tuple, s: Settings) -> Image:
    """Blackens the pixels where blue noise is not above 0.3 level - 2.5."""
    noise = spectral_field(drawn[0], _distance(len(x)))
    return jnp.where((noise > 0.3 * s["level"] - 2.5)[..., None], x, 0)


def brownish_noise(x: Image, drawn: tuple, s: Settings) -> Image:
    """Adds 6.4 level times brownish noise, another to each channel."""
    amplitude = 1 / (_distance(len(x)) ** 2 + 1)
    fields = [spectral_field(u, amplitude) for u in drawn]
    return x + 6.4 * s["level"] * jnp.stack(fields, -1)


_INDEX = 4.0  # Of refraction.
_FIELDS = 40  # The most of a checkerboard, along an axis.
_STARS = 5
_RAYS = 199  # The most of a star.


draw_caustics = imagenet_c.draw_numbers(2)  # For time and size.


def caustics(side: int, time: Float[Array, ""], size: Float[Array, ""]) -> Plane:
    """Light [0, 1] on the floor of a pool of `size` pixels, periodic."""
    along = jnp.arange(side) / size
    along = (along - jnp.floor(along)) * (2 * math.pi) - 250
    down = jnp.broadcast_to(along[:, None], (side, side))
    across = down.T
    first, second = down, across
    total = 1.0
    for n in range(1, 6):
        t = time * (1 - 3.5 / n)
        first, second = (
            down + jnp.cos(t - first) + jnp.sin(t + second),
            across + jnp.sin(t - second) + jnp.cos(t + first),
        )
        slope = jnp.hypot(down / jnp.sin(first + t), across / jnp.cos(second + t))
        total = total + 200 / slope
    return jnp.clip(jnp.abs(1.17 - (total / 5) ** 1.4) ** 8, 0, 1)


def caustic_refraction(x: Image, drawn: tuple, s: Settings) -> Image:
    """Looks at the image through water of wavy light, and lights it."""
    side = len(x)
    lit = functools.partial(caustics, side)
    light = memory.materialize(
        lit, 0.5 + 1.5 * drawn[0], (0.75 + 0.5 * drawn[1]) * side
    )
    light = jnp.pad(imagenet_c.filter_both_axes(light, s["blur"]), 1)
    down = light[2:, 1:-1] - light[:-2, 1:-1]
    right = light[1:-1, 2:] - light[1:-1, :-2]
    way = _bent(jnp.hypot(down, right)) * (s["level"] * side / 20)
    along = jnp.arange(side, dtype=jnp.float32)

    def reading(start: Float[Array, "h w"], slope: Plane) -> imagenet_c.PixelPosition:
        return imagenet_c.split_position(start + jnp.rint(slope * way * 1000) / 1000)

    row, column = reading(along[:, None], down), reading(along[None, :], right)
    seen = imagenet_c.bilinear(x, row, column, "black")
    return seen + ((down - right) * (255 * s["level"] / 5))[..., None]


def _bent(steep: Plane) -> Plane:
    """How far a vertical ray of length 1 goes aside, for each unit of slope.

    sin(i - o) / steep by i = arctan(steep) and sin(o) = sin(i) / INDEX; 0 where cos(i)
    is at least 0.999.
    """
    cosine = jax.lax.rsqrt(1 + jnp.square(steep))
    sine = steep * cosine
    reach = sine * jnp.sqrt(1 - jnp.square(sine / _INDEX)) - cosine * sine / _INDEX
    return jnp.where(cosine >= 0.999, 0, reach / jnp.where(steep == 0, 1, steep))


def draw_checkerboard(key: PRNGKeyArray, side: int) -> tuple[Array, Array, Array]:
    """U(0, 1) for the angle, the size of a field, and each field."""
    return tuple(sampling.uniforms(key, (), (), (_FIELDS, _FIELDS)))


def checkerboard_cutout(x: Image, drawn: tuple, s: Settings) -> Image:
    """Fills level / 10 of one colour of a turned checkerboard with the grey 128."""
    side, angle = len(x), 2 * math.pi * drawn[0]
    field = 0.1 + 0.15 * drawn[1]
    count = jnp.floor(4 / field).astype(jnp.int32)
    along = jnp.arange(side) / (field * side)
    y, x_ = along[:, None], along[None, :]
    u = jnp.cos(angle) * y + jnp.sin(angle) * x_
    v = jnp.cos(angle) * x_ - jnp.sin(angle) * y
    same = (jnp.floor(u) - jnp.floor(v)).astype(jnp.int32) % 2 == 0
    # Towards 0; below it, counted from the end.
    row, column = (jnp.trunc(w).astype(jnp.int32) % count for w in (u, v))
    filled = imagenet_c.take(drawn[2].reshape(-1), row * _FIELDS + column)
    return jnp.where((same & (filled < s["level"] / 10))[..., None], 128.0, x)


def star(
    side: int,
    centre: Float[Array, "2"],
    lengths: Float[Array, "most"],
    rays: Int[Array, ""],
    power: Float[Array, ""] | float,
) -> Plane:
    """Strength [0, 1] of a star of so many rays, lengths in pixels, about (row, column)."""
    along = jnp.arange(side)
    y, x = along[:, None] - centre[0], along[None, :] - centre[1]
    turn = (jnp.arctan2(x, y) + math.pi) / (2 * math.pi) * rays
    ray = jnp.floor(turn).astype(jnp.int32)
    u = turn - ray
    here = imagenet_c.take(lengths, ray % rays)
    length = here * (1 - u) + imagenet_c.take(lengths, (ray + 1) % rays) * u
    glow = (jnp.square(length) / (jnp.square(x) + jnp.square(y) + 1e-4)) ** power
    return jnp.clip((1 - jnp.square(u - 0.5)) * glow, 0, 1)


def _draw_stars(*stars: int) -> Callable:
    """U(0, 1) for centres (row, column) and rays, N(0, 1) for lengths, of each star."""

    def draw(key: PRNGKeyArray, side: int) -> tuple[Array, Array, Array]:
        places, lengths = jax.random.split(key)
        centres, rays = sampling.uniforms(places, (*stars, 2), stars)
        return centres, rays, jax.random.normal(lengths, (*stars, _RAYS))

    return draw


draw_sparkles, draw_inverse_sparkles = _draw_stars(_STARS), _draw_stars()


def sparkles(x: Image, drawn: tuple, s: Settings) -> Image:
    """Lays five white stars over it."""
    side = len(x)
    centres, rays, normals = drawn
    lengths = jnp.maximum(s["level"] * side / 100 * (1 + 0.25 * normals), 1)
    for i in range(_STARS):
        count = 50 + sampling.integers(rays[i], 150)
        strength = star(side, side * centres[i], lengths[i], count, 1.0)
        x = x + strength[..., None] * (255 - x)
    return x


def inverse_sparkles(x: Image, drawn: tuple, s: Settings) -> Image:
    """Whitens all but a star."""
    side = len(x)
    centre, rays, normals = drawn
    lengths = side / 4 * (1 + 0.25 * normals)
    centre = (0.25 + 0.5 * centre) * side
    count = 50 + sampling.integers(rays, 150)
    seen = star(side, centre, lengths, count, 6.5 * s["level"] / 50)
    return 255 + seen[..., None] * (x - 255)
