"""The corruptions of ImageNet-C-bar on the device, by the functions of data.corruptions.imagenet_c_bar.

This module draws the random numbers of each corruption, in the order in which the
corruption uses them. Only the caustics have their own code, because the host filters them
by SciPy.
Source: Mintun, Kirillov and Xie, NeurIPS 2021, https://arxiv.org/abs/2102.11273.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.augment import imagenet_c, memory, replay, sampling
from jbias.augment.imagenet_c import Image, Settings
from jbias.data.corruptions import imagenet_c_bar as bar

_MAX_FIELDS = 40  # Largest number of fields of a checkerboard along an axis.
_MAX_RAYS = 199  # Largest number of rays of a star.


def caustic_refraction(x: Image, drawn: tuple, s: Settings) -> Image:
    """Return the image refracted and lit by caustics, as seen through wavy water.

    x: values 0 to 255. drawn: two U(0, 1) numbers, for time and size. s: the settings "blur"
    (h, h), the blur as a matrix, and "level", the argument `level` of bar.water.
    """
    light = bar.draw_caustics(x, replay.Replay(drawn), memory.materialize)
    light = imagenet_c.filter_both_axes(light, s["blur"])
    rows, columns, lit = bar.water(light, s["level"])
    along = jnp.arange(len(x), dtype=jnp.float32)
    refracted = imagenet_c.bilinear(
        x, along[:, None] + rows, along[None, :] + columns, border="black"
    )
    return refracted + 255 * lit[..., None]


def _draw_rings(key: PRNGKeyArray, side: int) -> tuple[Float[Array, "..."], ...]:
    """Return the U(0, 1) numbers of bar.cocentric_sine_waves, in the order of their use.

    The result is an array of 2 for the centre (x, y), a scalar for k, and an array of 2 for a
    and w. side: of the image, not used.
    """
    u = jax.random.uniform(key, (5,))
    return u[:2], u[2], u[3:]


def _draw_uniforms(*shapes: tuple[int, ...]) -> Callable:
    """Return draw(key, side) -> tuple of U(0, 1) arrays of the given shapes; side is not used."""
    return lambda key, side: tuple(sampling.uniforms(key, *shapes))


def _draw_phases(num_fields: int) -> Callable:
    """Return a function draw(key, side) -> U(0, 1) numbers for the phases of `num_fields` fields.

    The result is a tuple of arrays (side, side - side // 2): the left half of each field.
    """

    def draw(key: PRNGKeyArray, side: int) -> tuple[Float[Array, "h half"], ...]:
        return tuple(jax.random.uniform(key, (num_fields, side, side - side // 2)))

    return draw


def _draw_stars(num_stars: int) -> Callable:
    """Return a function draw(key, side) -> (centres, rays, *lengths), random numbers for stars.

    centres: U(0, 1) (n 2), row and column. rays: U(0, 1) (n), for the numbers of rays.
    lengths: N(0, 1), an array of _MAX_RAYS for each star. With one star, `centres` is (2) and
    `rays` a scalar.
    """
    axis = () if num_stars == 1 else (num_stars,)

    def draw(key: PRNGKeyArray, side: int) -> tuple[Array, ...]:
        k_places, k_lengths = jax.random.split(key)
        centres, rays = sampling.uniforms(k_places, (*axis, 2), axis)
        lengths = jax.random.normal(k_lengths, (num_stars, _MAX_RAYS))
        return centres, rays, *lengths

    return draw


_DRAWS = (
    (_draw_phases(1), bar.blue_noise_sample),
    (_draw_phases(3), bar.brownish_noise),
    # The angle, the size of a field, and each field.
    (_draw_uniforms((), (), (_MAX_FIELDS, _MAX_FIELDS)), bar.checkerboard_cutout),
    (_draw_rings, bar.cocentric_sine_waves),
    (_draw_stars(1), bar.inverse_sparkles),
    # For the gradients, and for their order, which sorts these numbers.
    (_draw_uniforms((256, 2), (256,)), bar.perlin_noise),
    # Time, rounds, sharpness, scale.
    (imagenet_c.draw_numbers(4), bar.plasma_noise),
    # The two components of the frequency, their order, and the phase.
    (imagenet_c.draw_numbers(4), bar.single_frequency_greyscale),
    (_draw_stars(5), bar.sparkles),
)
PAIRS = (  # Of (draw, apply); see corrupt.DeviceCorruption.
    *((draw, replay.from_host(corruption)) for draw, corruption in _DRAWS),
    (imagenet_c.draw_numbers(2), caustic_refraction),  # Time and size.
)
