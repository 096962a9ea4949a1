"""The corruptions of ImageNet-C-bar on the device: those of data.corruptions.bar.

Here is what each draws, in the order in which it asks for it. Light through water alone is
cast in another way, since the host filters by SciPy.
Source: Mintun, Kirillov and Xie, NeurIPS 2021, https://arxiv.org/abs/2102.11273.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.augment import imagenet_c, memory, replay, sampling
from jbias.augment.imagenet_c import Image, Settings
from jbias.data.corruptions import bar

_FIELDS = 40  # The most of a checkerboard, along an axis.
_RAYS = 199  # The most of a star.


def caustic_refraction(x: Image, drawn: tuple, s: Settings) -> Image:
    """Looks at the image through water of wavy light, and lights it."""
    light = bar.draw_caustics(x, replay.Replay(drawn), memory.materialize)
    light = imagenet_c.filter_both_axes(light, s["blur"])
    rows, columns, lit = bar.water(light, s["level"])
    along = jnp.arange(len(x), dtype=jnp.float32)
    place = along[:, None] + rows, along[None, :] + columns
    return imagenet_c.bilinear(x, *place, "black") + 255 * lit[..., None]


def _draw_rings(key: PRNGKeyArray, side: int) -> tuple[Float[Array, "..."], ...]:
    """The centre (x, y); k; a and w."""
    u = jax.random.uniform(key, (5,))
    return u[:2], u[2], u[3:]


def _draw_uniforms(*shapes: tuple[int, ...]) -> Callable:
    """Numbers of these shapes."""
    return lambda key, side: tuple(sampling.uniforms(key, *shapes))


def _draw_phases(*fields: int) -> Callable:
    """For the phases of the left half of each field."""

    def draw(key: PRNGKeyArray, side: int) -> tuple[Float[Array, "h half"], ...]:
        u = jax.random.uniform(key, (*fields, side, side - side // 2))
        return tuple(u) if fields else (u,)

    return draw


def _draw_stars(*stars: int) -> Callable:
    """U(0, 1) for centres (row, column) and rays, N(0, 1) for lengths, of each star."""

    def draw(key: PRNGKeyArray, side: int) -> tuple[Array, ...]:
        places, lengths = jax.random.split(key)
        centres, rays = sampling.uniforms(places, (*stars, 2), stars)
        lengths = jax.random.normal(lengths, (*stars, _RAYS))
        return centres, rays, *(lengths if stars else (lengths,))

    return draw


_DRAWS = (
    (_draw_phases(), bar.blue_noise_sample),
    (_draw_phases(3), bar.brownish_noise),
    # The angle, the size of a field, and each field.
    (_draw_uniforms((), (), (_FIELDS, _FIELDS)), bar.checkerboard_cutout),
    (_draw_rings, bar.cocentric_sine_waves),
    (_draw_stars(), bar.inverse_sparkles),
    # For the gradients, and for their order: from the least on.
    (_draw_uniforms((256, 2), (256,)), bar.perlin_noise),
    # Time, rounds, sharpness, scale.
    (imagenet_c.draw_numbers(4), bar.plasma_noise),
    # One component, the other, which is which, phase.
    (imagenet_c.draw_numbers(4), bar.single_frequency_greyscale),
    (_draw_stars(5), bar.sparkles),
)
PAIRS = (  # Draws and applies.
    *((draw, replay.from_host(corruption)) for draw, corruption in _DRAWS),
    (imagenet_c.draw_numbers(2), caustic_refraction),  # Time and size.
)
