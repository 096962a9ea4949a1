"""ImageNet-C-bar on the device: what covers or bends.

Each has the draws of an image and what they do to it; data.corruption_bar says
what that is. Lengths follow the side of the image.
Source: Mintun, Kirillov and Xie, NeurIPS 2021, https://arxiv.org/abs/2102.11273.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jbias.augment import corrupt_arrays, draws, memory
from jbias.augment.corrupt_arrays import Image, Plane, Settings

_INDEX = 4.0  # Of refraction.
_FIELDS = 40  # The most of a checkerboard, along an axis.
_STARS = 5
_RAYS = 199  # The most of a star.


def draw_caustics(key: PRNGKeyArray, side: int) -> tuple[Float[Array, ""], ...]:
    """U(0, 1) for time and size."""
    del side
    return tuple(jax.random.uniform(key, (2,)))


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
    light = memory.written(lit, 0.5 + 1.5 * drawn[0], (0.75 + 0.5 * drawn[1]) * side)
    light = jnp.pad(corrupt_arrays.filtered(light, s["blur"]), 1)
    down = light[2:, 1:-1] - light[:-2, 1:-1]
    right = light[1:-1, 2:] - light[1:-1, :-2]
    way = _bent(jnp.hypot(down, right)) * (s["level"] * side / 20)
    along = jnp.arange(side, dtype=jnp.float32)

    def reading(start: Float[Array, "h w"], slope: Plane) -> corrupt_arrays.Between:
        return corrupt_arrays.between(start + jnp.rint(slope * way * 1000) / 1000)

    row, column = reading(along[:, None], down), reading(along[None, :], right)
    seen = corrupt_arrays.bilinear(x, row, column, "black")
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
    del side
    angle, size, filled = draws.uniforms(key, (), (), (_FIELDS, _FIELDS))
    return angle, size, filled


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
    filled = corrupt_arrays.take(drawn[2].reshape(-1), row * _FIELDS + column)
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
    here = corrupt_arrays.take(lengths, ray % rays)
    length = here * (1 - u) + corrupt_arrays.take(lengths, (ray + 1) % rays) * u
    glow = (jnp.square(length) / (jnp.square(x) + jnp.square(y) + 1e-4)) ** power
    return jnp.clip((1 - jnp.square(u - 0.5)) * glow, 0, 1)


def draw_sparkles(key: PRNGKeyArray, side: int) -> tuple[Array, Array, Array]:
    """U(0, 1) for centres (row, column) and rays, N(0, 1) for lengths, of five stars."""
    del side
    places, lengths = jax.random.split(key)
    centres, rays = draws.uniforms(places, (_STARS, 2), (_STARS,))
    return centres, rays, jax.random.normal(lengths, (_STARS, _RAYS))


def sparkles(x: Image, drawn: tuple, s: Settings) -> Image:
    """Lays five white stars over it."""
    side = len(x)
    centres, rays, normals = drawn
    lengths = jnp.maximum(s["level"] * side / 100 * (1 + 0.25 * normals), 1)
    for i in range(_STARS):
        count = 50 + draws.below(rays[i], 150)
        strength = star(side, side * centres[i], lengths[i], count, 1.0)
        x = x + strength[..., None] * (255 - x)
    return x


def draw_inverse_sparkles(key: PRNGKeyArray, side: int) -> tuple[Array, Array, Array]:
    """U(0, 1) for the centre (row, column) and rays, N(0, 1) for lengths."""
    del side
    places, lengths = jax.random.split(key)
    centre, rays = draws.uniforms(places, (2,), ())
    return centre, rays, jax.random.normal(lengths, (_RAYS,))


def inverse_sparkles(x: Image, drawn: tuple, s: Settings) -> Image:
    """Whitens all but a star."""
    side = len(x)
    centre, rays, normals = drawn
    lengths = side / 4 * (1 + 0.25 * normals)
    centre = (0.25 + 0.5 * centre) * side
    count = 50 + draws.below(rays, 150)
    seen = star(side, centre, lengths, count, 6.5 * s["level"] / 50)
    return 255 + seen[..., None] * (x - 255)
