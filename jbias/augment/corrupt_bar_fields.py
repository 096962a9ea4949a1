"""ImageNet-C-bar on the device: what adds or multiplies by a random field.

Each has the draws of an image and what they do to it; data.corruption_bar says
what that is. Settings are a level alone. Lengths follow the side of the image.
Source: Mintun, Kirillov and Xie, NeurIPS 2021, https://arxiv.org/abs/2102.11273.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jbias.augment import draws, memory
from jbias.augment.corrupt_arrays import Image, Plane, Settings

_ROUNDS = 6  # The most of plasma_noise.
_OCTAVES = (1, 2, 4, 8, 16)


def _numbers(count: int):
    def draw(key: PRNGKeyArray, side: int) -> tuple[Float[Array, ""], ...]:
        del side
        return tuple(jax.random.uniform(key, (count,)))

    return draw


# U(0, 1): one component, the other, which is which, phase.
draw_single_frequency = _numbers(4)
# U(0, 1): centre (x, y), k, a, w.
draw_rings = _numbers(5)
# U(0, 1): time, rounds, sharpness, scale.
draw_waves = _numbers(4)


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
    right, down = memory.written(moved, drawn)
    time = 6 * math.pi * drawn[0]
    green = jnp.sin((right + down + jnp.sin(time)) * 0.5)
    waves = jnp.stack([jnp.sin(right - time), green, jnp.sin(down + time)], -1)
    return (1 - strength / 255) * x + strength * waves


def _warped(drawn: tuple, side: int) -> tuple[Plane, Plane]:
    """Coordinates that were moved by sines of themselves, several times."""
    time, rounds = 6 * math.pi * drawn[0], 4 + draws.below(drawn[1], 3)
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
    del side
    return tuple(draws.uniforms(key, (256, 2), (256,)))


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
        noise = memory.written(draw, gradients, order)
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


def spectral(u: Float[Array, "h half"], amplitude: Float[np.ndarray, "h h"]) -> Plane:
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
    noise = spectral(drawn[0], _distance(len(x)))
    return jnp.where((noise > 0.3 * s["level"] - 2.5)[..., None], x, 0)


def brownish_noise(x: Image, drawn: tuple, s: Settings) -> Image:
    """Adds 6.4 level times brownish noise, another to each channel."""
    amplitude = 1 / (_distance(len(x)) ** 2 + 1)
    fields = [spectral(u, amplitude) for u in drawn]
    return x + 6.4 * s["level"] * jnp.stack(fields, -1)
