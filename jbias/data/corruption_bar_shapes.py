"""Corruptions of ImageNet-C-bar that cover or bend: caustics, checkerboard, sparkles.

Each is a function of an image (h, w, 3) of bytes, a generator and a level. Lengths
follow the side of the image. Source: Mintun, Kirillov and Xie, NeurIPS 2021,
https://arxiv.org/abs/2102.11273. Reference code:
https://github.com/facebookresearch/augmentation-corruption at ba4d5a5. Deviation of
all: another generator; with the same draws the images are the same.
"""

import numpy as np
from jaxtyping import Float
from scipy import ndimage

from jbias.data import corruption_arrays as arrays
from jbias.data.corruption_arrays import Image, Plane
from jbias.data.corruption_bar_fields import cut

INDEX = 4.0  # Of refraction.


def caustics(side: int, time: float, size: float) -> Plane:
    """Gives the light [0, 1] on the floor of a pool of `size` pixels, periodic."""
    p = (np.mgrid[:side, :side] / size % 1) * (2 * np.pi) - 250
    q = p
    total = 1.0
    for n in range(1, 6):
        t = time * (1 - 3.5 / n)
        q = p + np.stack(
            [
                np.cos(t - q[0]) + np.sin(t + q[1]),
                np.sin(t - q[1]) + np.cos(t + q[0]),
            ]
        )
        slope = np.hypot(p[0] / np.sin(q[0] + t), p[1] / np.cos(q[1] + t))
        total = total + 200 / slope
    return np.clip(np.abs(1.17 - (total / 5) ** 1.4) ** 8, 0, 1)


def bent(slopes: Float[np.ndarray, "2 h w"]) -> Float[np.ndarray, "2 h w"]:
    """Gives how far a vertical ray of length 1 goes aside in a surface of these slopes.

    The ray leaves at sin(o) = sin(i) / INDEX to the normal, i the normal's angle to the
    vertical: sin(i - o) along the slope; 0 where cos(i) is at least 0.999.
    """
    steep = np.hypot(*slopes)
    angle = np.arctan(steep)
    out = np.arcsin(np.sin(angle) / INDEX)
    reach = np.where(np.cos(angle) >= 0.999, 0, np.sin(angle - out))
    return slopes * (reach / np.where(steep == 0, 1, steep))


def caustic_refraction(image: Image, rng: np.random.Generator, level: float) -> Image:
    """Looks at the image through water of wavy light, and lights it.

    Slopes are central differences, not halved, of caustics blurred by 1 pixel, 0 outside
    the image. Pixels are fetched from level side / 20 times the ray's way aside, bilinear,
    black outside; the difference of both slopes times level / 5 is added.
    """
    side = len(image)
    light = caustics(side, rng.uniform(0.5, 2), rng.uniform(0.75, 1.25) * side)
    light = np.pad(ndimage.gaussian_filter(light, 1), 1)
    down = light[2:, 1:-1] - light[:-2, 1:-1]
    right = light[1:-1, 2:] - light[1:-1, :-2]
    aside = np.round(bent(np.stack([down, right])) * (level * side / 20), 3)
    place = np.mgrid[:side, :side] + aside
    x = arrays.unit(image)
    planes = [
        ndimage.map_coordinates(x[..., c], place, order=1, mode="grid-constant")
        for c in range(3)
    ]
    lit = np.stack(planes, -1) + ((down - right) * (level / 5))[..., None]
    return arrays.quantise(lit)


def checkerboard_cutout(image: Image, rng: np.random.Generator, level: float) -> Image:
    """Fills level / 10 of one colour of a turned checkerboard with the grey 128.

    Fields of U(0.1, 0.25) side, turned by U(0, 2 pi) about the first pixel. A field and
    the one across an axis through that pixel share their draw, as in the reference.
    """
    side = len(image)
    angle = rng.uniform(0, 2 * np.pi)
    field = rng.uniform(0.1, 0.25) * side
    count = int(4 * side // field)
    filled = rng.random((count, count)) < level / 10
    y, x = np.mgrid[:side, :side] / field
    u = np.cos(angle) * y + np.sin(angle) * x
    v = np.cos(angle) * x - np.sin(angle) * y
    same = np.floor(u) % 2 == np.floor(v) % 2
    cover = same & filled[u.astype(int), v.astype(int)]  # Towards 0; below it, wrapped.
    return np.where(cover[..., None], np.uint8(128), image)


def star(
    side: int,
    centre: Float[np.ndarray, "2"],
    lengths: Float[np.ndarray, "rays"],
    amount: float,
) -> Plane:
    """Gives the strength [0, 1] of a star with rays of these lengths in pixels.

    clip((1 - (u - 1/2)^2) (L^2 / (d^2 + 1e-4))^((100 - amount) / 50), 0, 1) at distance
    d, u between two rays, of which L is interpolated. `centre` is (row, column).
    """
    y, x = np.mgrid[:side, :side] - centre[:, None, None]
    turn = (np.arctan2(x, y) + np.pi) / (2 * np.pi) * len(lengths)
    ray = turn.astype(int)
    u = turn - ray
    rays = len(lengths)
    length = lengths[ray % rays] * (1 - u) + lengths[(ray + 1) % rays] * u
    glow = (length**2 / (x**2 + y**2 + 1e-4)) ** ((100 - amount) / 50)
    return np.clip((1 - (u - 0.5) ** 2) * glow, 0, 1)


def _lengths(
    rng: np.random.Generator, radius: float, rays: int
) -> Float[np.ndarray, "rays"]:
    """Draws lengths of N(radius, (radius / 4)^2) pixels."""
    return radius * (1 + 0.25 * rng.standard_normal(rays))


def sparkles(image: Image, rng: np.random.Generator, level: float) -> Image:
    """Lays five white stars at U(0, side)^2 over it, of 50 to 199 rays each.

    Their lengths are about level side / 100, with a deviation of a quarter.
    """
    side = len(image)
    x = image.astype(float)
    centres = rng.uniform(0, side, (5, 2))
    counts = rng.integers(50, 200, 5)
    for centre, rays in zip(centres, counts, strict=True):
        lengths = np.maximum(_lengths(rng, level * side / 100, rays), 1)
        x += star(side, centre, lengths, 50)[..., None] * (255 - x)
    return cut(x)


def inverse_sparkles(image: Image, rng: np.random.Generator, level: float) -> Image:
    """Whitens all but a star at U(side / 4, 3 side / 4)^2 of 50 to 199 rays.

    Their lengths are about side / 4; its amount is 100 - 6.5 level.
    """
    side = len(image)
    centre = rng.uniform(0.25, 0.75, 2) * side
    lengths = _lengths(rng, side / 4, rng.integers(50, 200))
    seen = star(side, centre, lengths, 100 - 6.5 * level)[..., None]
    return cut(255 + seen * (image - 255.0))
