"""Corruptions of ImageNet-C-bar that add or multiply by a random field.

Each is a function of an image (h, w, 3) of bytes, a generator and a level. Lengths
follow the side of the image. Source: Mintun, Kirillov and Xie, NeurIPS 2021,
https://arxiv.org/abs/2102.11273. Reference code:
https://github.com/facebookresearch/augmentation-corruption at ba4d5a5. Deviation of
all: another generator; with the same draws the images are the same.
"""

import dataclasses

import numpy as np
from jaxtyping import Float, Int

from jbias.data.corruption_arrays import Image, Plane


def cut(values: Float[np.ndarray, "h w 3"]) -> Image:
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
    return cut(image + 19.6 * level * wave[..., None])


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
    return cut(image + 12.8 * level * rings[..., None])


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
    return cut((1 - strength / 255) * image + strength * waves)


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
    return cut((1 - share) * image + 255 * share * clouds[..., None])


def spectral(rng: np.random.Generator, amplitude: Plane) -> Plane:
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
    return spectral(rng, _distance(side))


def brownish_noise_field(rng: np.random.Generator, side: int) -> Plane:
    """Draws noise of amplitude 1 / (f^2 + 1), f in periods a side: deviation 1.

    Its mean is random too, for the amplitude at 0 is not 0.
    """
    return spectral(rng, 1 / (_distance(side) ** 2 + 1))


def blue_noise_sample(image: Image, rng: np.random.Generator, level: float) -> Image:
    """Blackens the pixels where blue noise is not above 0.3 level - 2.5."""
    keep = blue_noise(rng, len(image)) > 0.3 * level - 2.5
    return image * keep[..., None]


def brownish_noise(image: Image, rng: np.random.Generator, level: float) -> Image:
    """Adds 6.4 level times brownish noise, another to each channel."""
    fields = [brownish_noise_field(rng, len(image)) for _ in range(3)]
    return cut(image + 6.4 * level * np.stack(fields, -1))
