"""Corruptions of ImageNet-C-bar in NumPy: random fields, and shapes that cover or bend.

Each is a function of an image (h, w, 3) of bytes, a generator and a level. Lengths scale
with the side of the image. Source: Mintun, Kirillov and Xie, NeurIPS 2021,
https://arxiv.org/abs/2102.11273. Reference code:
https://github.com/facebookresearch/augmentation-corruption at ba4d5a5. Deviation of all:
another generator; with the same draws the images are the same.
"""

import dataclasses

import numpy as np
from jaxtyping import Float, Int
from scipy import ndimage

from jbias.data import corruption_kernels as arrays
from jbias.data.corruption_kernels import Image, Plane


def to_bytes(values: Float[np.ndarray, "h w 3"]) -> Image:
    """Clips values on the scale of bytes and cuts fractions off."""
    return np.clip(values, 0, 255).astype(np.uint8)


def single_frequency_greyscale(
    image: Image, rng: np.random.Generator, level: float
) -> Image:
    """Adds 19.6 level sin(u x + v y + phase), the same to each channel.

    One of u, v, either evenly, is drawn from U(-pi, pi), the other from U within plus
    and minus its size.
    """
    first = rng.uniform(-np.pi, np.pi)
    second = rng.uniform(-abs(first), abs(first))
    u, v = rng.permutation([first, second])
    phase = rng.uniform(0, 2 * np.pi)
    y, x = np.mgrid[: len(image), : len(image)]
    wave = np.sin(u * x + v * y + phase)
    return to_bytes(image + 19.6 * level * wave[..., None])


def cocentric_sine_waves(image: Image, rng: np.random.Generator, level: float) -> Image:
    """Adds 12.8 level (((d + a sin(k t)) mod w) / w - 1/2): wavy rings about a point.

    d and t, polar about U(0, side)^2, t from the y axis; k of U(0, 10), a and w of
    U(0, side / 10). The name is spelled as published.
    """
    side = len(image)
    centre = rng.uniform(0, side, 2)
    k = rng.uniform(0, 10)
    a, w = rng.uniform(0, side / 10, 2)
    y, x = np.mgrid[:side, :side]
    x, y = x - centre[0], y - centre[1]
    rings = (np.hypot(x, y) + a * np.sin(k * np.arctan2(x, y))) % w / w - 0.5
    return to_bytes(image + 12.8 * level * rings[..., None])


def warped_waves(
    side: int, time: float, rounds: int, sharpness: float, scale: float
) -> Float[np.ndarray, "side side 3"]:
    """Gives three sines of coordinates that were themselves moved by sines, in [-1, 1].

    In each round (x, y) moves by r + 0.3 (-r_y, r_x), r = (cos(p y + t / q),
    sin(p x + t / q)) / s; then p, q and s grow by 1.93, 1.15 and 2.25 - sharpness. The
    reference has a phase besides, which is always 0.
    """
    y, x = np.mgrid[:side, :side] / scale
    p, q, s = 1.0, 1.0, 1.0
    for _ in range(rounds):
        right = np.cos(p * y + time / q) / s
        down = np.sin(p * x + time / q) / s
        x, y = x + right - 0.3 * down, y + down + 0.3 * right
        p, q, s = p * 1.93, q * 1.15, s * (2.25 - sharpness)
    red, blue = np.sin(x - time), np.sin(y + time)
    green = np.sin((x + y + np.sin(time)) * 0.5)
    return np.stack([red, green, blue], -1)


def plasma_noise(image: Image, rng: np.random.Generator, level: float) -> Image:
    """Mixes (1 - i / 255) x + i n, i = 6.4 level, with warped waves n of random form."""
    waves = warped_waves(
        len(image),
        time=rng.uniform(0, 6 * np.pi),
        rounds=int(rng.integers(4, 7)),
        sharpness=rng.uniform(0.5, 1),
        scale=rng.uniform(0.075, 0.2) * len(image),
    )
    strength = 6.4 * level
    return to_bytes((1 - strength / 255) * image + strength * waves)


@dataclasses.dataclass(frozen=True)
class Lattice:
    """Gradients of a noise of 256 x 256 cells, after Perlin 1985, periodic."""

    gradients: Float[np.ndarray, "256 2"]  # Of length 1.
    order: Int[np.ndarray, "256"]  # A permutation.

    def noise(self, x: Plane, y: Plane) -> Plane:
        """Gives 1.5 times the noise, 0 on the lattice. Smoothstep 3 t^2 - 2 t^3.

        All columns of gradients are one permuted list, from different places on, as in
        the reference.
        """
        column, row = np.floor(x).astype(int), np.floor(y).astype(int)
        right, down = x - column, y - row

        def corner(i: int, j: int) -> Plane:
            start = self.order[(column + i) % 256]
            gradient = self.gradients[self.order[(start + row + j) % 256]]
            return gradient[..., 0] * (right - i) + gradient[..., 1] * (down - j)

        across, along = (t**2 * (3 - 2 * t) for t in (right, down))
        near = corner(0, 0) + across * (corner(1, 0) - corner(0, 0))
        far = corner(0, 1) + across * (corner(1, 1) - corner(0, 1))
        return 1.5 * (near + along * (far - near))


def lattice(rng: np.random.Generator) -> Lattice:
    """Draws gradients towards points spread evenly in a square, not a circle."""
    points = rng.integers(-256, 256, (256, 2)).astype(float)
    points[(points == 0).all(-1)] = 1.0  # One in 262144; the reference divides by 0.
    length = np.linalg.norm(points, axis=-1, keepdims=True)
    return Lattice(points / length, rng.permutation(256))


def turbulence(cells: Lattice, side: int) -> Plane:
    """Sums abs(noise(f p)) / f over f = 1, 2, 4, 8, 16; p in sevenths of the side."""
    x, y = np.mgrid[:side, :side] * (7 / side)
    return sum(np.abs(cells.noise(f * x, f * y)) / f for f in (1, 2, 4, 8, 16))


def perlin_noise(image: Image, rng: np.random.Generator, level: float) -> Image:
    """Mixes (1 - a) x + 255 a min(1/2 + turbulence / 2, 1), a = level / 20."""
    clouds = np.minimum(0.5 + 0.5 * turbulence(lattice(rng), len(image)), 1)
    share = level / 20
    return to_bytes((1 - share) * image + 255 * share * clouds[..., None])


def spectral_noise(rng: np.random.Generator, amplitude: Plane) -> Plane:
    """Draws a field of unit deviation with these amplitudes, the mean's at the middle.

    Phases are U(0, 2 pi) in the left half; the right half is the left one turned about
    the middle of the array, and the imaginary part of the sum is dropped, as in the
    reference. So phases k and -k - 1 are the same, and where amplitudes hardly change
    between them, the fields at x and -x are alike near the corners, opposite near the
    middle of an edge, and there almost 0.
    """
    side = len(amplitude)
    half = side // 2
    left = rng.uniform(0, 2 * np.pi, (side, side - half))
    phases = np.concatenate([left, left[::-1, half - 1 :: -1]], 1)
    field = np.fft.ifft2(np.fft.ifftshift(amplitude * np.exp(1j * phases))).real
    return field / field.std()


def _distance(side: int) -> Plane:
    y, x = np.mgrid[:side, :side] - side / 2
    return np.hypot(x, y)


def blue_noise(rng: np.random.Generator, side: int) -> Plane:
    """Draws noise whose amplitude is the frequency: mean 0, deviation 1."""
    return spectral_noise(rng, _distance(side))


def brownish_noise_field(rng: np.random.Generator, side: int) -> Plane:
    """Draws noise of amplitude 1 / (f^2 + 1), f in periods a side: deviation 1.

    Its mean is random too, for the amplitude at 0 is not 0.
    """
    return spectral_noise(rng, 1 / (_distance(side) ** 2 + 1))


def blue_noise_sample(image: Image, rng: np.random.Generator, level: float) -> Image:
    """Blackens the pixels where blue noise is not above 0.3 level - 2.5."""
    keep = blue_noise(rng, len(image)) > 0.3 * level - 2.5
    return image * keep[..., None]


def brownish_noise(image: Image, rng: np.random.Generator, level: float) -> Image:
    """Adds 6.4 level times brownish noise, another to each channel."""
    fields = [brownish_noise_field(rng, len(image)) for _ in range(3)]
    return to_bytes(image + 6.4 * level * np.stack(fields, -1))


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


def refraction(slopes: Float[np.ndarray, "2 h w"]) -> Float[np.ndarray, "2 h w"]:
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
    aside = np.round(refraction(np.stack([down, right])) * (level * side / 20), 3)
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
    return to_bytes(x)


def inverse_sparkles(image: Image, rng: np.random.Generator, level: float) -> Image:
    """Whitens all but a star at U(side / 4, 3 side / 4)^2 of 50 to 199 rays.

    Their lengths are about side / 4; its amount is 100 - 6.5 level.
    """
    side = len(image)
    centre = rng.uniform(0.25, 0.75, 2) * side
    lengths = _lengths(rng, side / 4, rng.integers(50, 200))
    seen = star(side, centre, lengths, 100 - 6.5 * level)[..., None]
    return to_bytes(255 + seen * (image - 255.0))
