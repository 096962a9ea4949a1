"""The random numbers of corruptions on the device, drawn before a corruption is applied.

DRAWS has a function (key, side) -> tuple of arrays for each corruption: the numbers in the
order in which the corruption uses them (replay.Replay). They are mostly U(0, 1) or N(0, 1).
Their shapes depend only on the image's side in pixels, not on the severity.
"""

from collections.abc import Callable, Mapping

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.augment import random_numbers

Plane = Float[Array, "h w"]
Draw = Callable[[PRNGKeyArray, int], tuple]

_MAX_SWEEPS = 3  # Largest number of sweeps of glass_blur.
_MAX_FIELDS = 40  # Largest number of fields of a checkerboard along an axis.
_MAX_RAYS = 199  # Largest number of rays of a star.


def draw_each(distribution: Callable, *channels: int) -> Draw:
    """Return a function draw(key, side) -> (numbers,), of the shape (side, side, *channels).

    distribution: (key, shape) -> random numbers, such as jax.random.normal.
    channels: the number of channels; no argument for one number per pixel.
    """
    return lambda key, side: (distribution(key, (side, side, *channels)),)


def draw_numbers(count: int) -> Draw:
    """Return a function draw(key, side) -> tuple of `count` U(0, 1) scalars; side is not used."""
    return lambda key, side: tuple(jax.random.uniform(key, (count,)))


draw_nothing = draw_numbers(0)
draw_normals = draw_each(jax.random.normal, 3)
draw_uniforms = draw_each(jax.random.uniform, 3)


def draw_glass(key: PRNGKeyArray, side: int) -> tuple[Float[Array, "3 h w 2"]]:
    """Return (offsets,): U(0, 1) numbers of shape (sweeps, side, side, 2).

    The last axis is (column, row): `glass_blur` scales the numbers to offsets in pixels, one pair
    per sweep and pixel.
    """
    return (jax.random.uniform(key, (_MAX_SWEEPS, side, side, 2)),)


def draw_snow(key: PRNGKeyArray, side: int) -> tuple[Plane, Float[Array, ""]]:
    """Return (flakes, direction), the random numbers of `snow`.

    flakes: N(0, 1) numbers of shape (side, side), scaled by `snow` to the brightness of each pixel.
    direction: a U(0, 1) scalar, scaled by `snow` to the angle of motion.
    """
    flakes, direction = jax.random.split(key)
    return jax.random.normal(flakes, (side, side)), jax.random.uniform(direction)


def draw_fog(key: PRNGKeyArray, side: int) -> tuple[Float[Array, "3 n n"], ...]:
    """Return one array of U(0, 1) numbers for each level of weather.plasma, the coarsest first.

    The array of level i has the shape (3, 2^i, 2^i): one plane each for the centres, the upper
    edges and the left edges of the level's squares. weather.plasma scales the numbers to heights.
    """
    levels = (side - 1).bit_length()
    return tuple(
        random_numbers.uniforms(key, *((3, 1 << i, 1 << i) for i in range(levels)))
    )


def draw_elastic(
    key: PRNGKeyArray, side: int
) -> tuple[Float[Array, "3 2"], Plane, Plane]:
    """Return (points, right, down), the U(0, 1) numbers of `elastic_transform`.

    points: (3, 2), for the movement (x, y) of the three points that define the affine map.
    right, down: (side, side), for the movement of each pixel to the right and down.
    `elastic_transform` scales the numbers to pixels, and smooths right and down.
    """
    k_points, k_right, k_down = jax.random.split(key, 3)
    points = jax.random.uniform(k_points, (3, 2))
    right = jax.random.uniform(k_right, (side, side))
    down = jax.random.uniform(k_down, (side, side))
    return points, right, down


def _draw_rings(key: PRNGKeyArray, side: int) -> tuple[Float[Array, "..."], ...]:
    """Return (centre, k, amplitude_and_width), the U(0, 1) numbers of `cocentric_sine_waves`.

    centre: (2,), for the centre (x, y). k: a scalar. amplitude_and_width: (2,), for a and w. The
    corruption scales the numbers. side: not used.
    """
    u = jax.random.uniform(key, (5,))
    return u[:2], u[2], u[3:]


def _draw_uniforms(*shapes: tuple[int, ...]) -> Draw:
    """Return draw(key, side) -> tuple of U(0, 1) arrays of the given shapes; side is not used."""
    return lambda key, side: tuple(random_numbers.uniforms(key, *shapes))


def _draw_phases(num_fields: int) -> Draw:
    """Return a function draw(key, side) -> tuple of U(0, 1) arrays, one for each field.

    An array has the shape (side, side - side // 2), for the phases of the left half of a field.
    num_fields: number of fields.
    """

    def draw(key: PRNGKeyArray, side: int) -> tuple[Float[Array, "h half"], ...]:
        return tuple(jax.random.uniform(key, (num_fields, side, side - side // 2)))

    return draw


def _draw_stars(num_stars: int) -> Draw:
    """Return a function draw(key, side) -> (centres, rays, *lengths), random numbers for stars.

    centres: U(0, 1) (n 2), row and column. rays: U(0, 1) (n), for the numbers of rays.
    lengths: N(0, 1), an array of _MAX_RAYS for each star. With one star, `centres` is (2) and
    `rays` a scalar.
    """
    axis = () if num_stars == 1 else (num_stars,)

    def draw(key: PRNGKeyArray, side: int) -> tuple[Array, ...]:
        k_places, k_lengths = jax.random.split(key)
        centres, rays = random_numbers.uniforms(k_places, (*axis, 2), axis)
        lengths = jax.random.normal(k_lengths, (num_stars, _MAX_RAYS))
        return centres, rays, *lengths

    return draw


DRAWS: Mapping[str, Draw] = {
    "gaussian_noise": draw_normals,
    "shot_noise": draw_uniforms,
    "impulse_noise": draw_uniforms,
    "defocus_blur": draw_nothing,
    "glass_blur": draw_glass,
    "motion_blur": draw_numbers(1),  # For the direction.
    "zoom_blur": draw_nothing,
    "snow": draw_snow,
    "frost": draw_numbers(3),  # The photograph, and the crop's top and left.
    "fog": draw_fog,
    "brightness": draw_nothing,
    "contrast": draw_nothing,
    "elastic_transform": draw_elastic,
    "pixelate": draw_nothing,
    "jpeg_compression": draw_nothing,
    "speckle_noise": draw_normals,
    "gaussian_blur": draw_nothing,
    "spatter": draw_each(jax.random.normal),
    "saturate": draw_nothing,
    "blue_noise_sample": _draw_phases(1),
    "brownish_noise": _draw_phases(3),
    "caustic_refraction": draw_numbers(2),  # Time and size.
    # The angle, the size of a field, and each field.
    "checkerboard_cutout": _draw_uniforms((), (), (_MAX_FIELDS, _MAX_FIELDS)),
    "cocentric_sine_waves": _draw_rings,
    "inverse_sparkles": _draw_stars(1),
    # For the gradients, and for their order, which sorts these numbers.
    "perlin_noise": _draw_uniforms((256, 2), (256,)),
    "plasma_noise": draw_numbers(4),  # Time, rounds, sharpness, scale.
    # The two components of the frequency, their order, and the phase.
    "single_frequency_greyscale": draw_numbers(4),
    "sparkles": _draw_stars(5),
}
