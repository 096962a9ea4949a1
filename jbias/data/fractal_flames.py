"""Draws flames: where points end that walk by a few functions, drawn at random.

Source: Draves and Reckase, "The fractal flame algorithm", 2003; contractions after
Anderson and Farrell, WACV 2022, https://arxiv.org/abs/2110.03091.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

from jbias.data import fractal_paint
from jbias.data.fractal_paint import Image, Plane

Points = Float[np.ndarray, "2 n"]


def _sine(p: Points) -> Points:
    return np.sin(p)


def _sphere(p: Points) -> Points:
    return p / (np.sum(p * p, 0) + 0.1)


def _swirl(p: Points) -> Points:
    r2 = np.sum(p * p, 0)
    s, c = np.sin(r2), np.cos(r2)
    return np.stack([p[0] * s - p[1] * c, p[0] * c + p[1] * s])


def _horseshoe(p: Points) -> Points:
    r = np.hypot(*p) + 1e-6
    return np.stack([(p[0] - p[1]) * (p[0] + p[1]), 2 * p[0] * p[1]]) / r


def _polar(p: Points) -> Points:
    return np.stack([np.arctan2(*p) / np.pi, np.hypot(*p) - 1])


def _disc(p: Points) -> Points:
    theta, r = np.arctan2(*p) / np.pi, np.pi * np.hypot(*p)
    return np.stack([theta * np.sin(r), theta * np.cos(r)])


_VARIATIONS = (_sine, _sphere, _swirl, _horseshoe, _polar, _disc)


def _contractions(
    rng: np.random.Generator, k: int
) -> tuple[Float[np.ndarray, "k 2 2"], Float[np.ndarray, "k 2 1"]]:
    """Draws k affine maps whose singular values s1 >= s2 sum as Anderson and Farrell's.

    sum (s1 + 2 s2) is between (5 + k) / 2 and (6 + k) / 2.
    """
    first = rng.random((4000, k))
    second = first * rng.random((4000, k))
    total = np.sum(first + 2 * second, 1)
    fits = np.flatnonzero((total >= (5 + k) / 2) & (total <= (6 + k) / 2))
    pick = fits[0] if fits.size else np.argmax(total)
    scale = np.stack([first[pick], second[pick] * rng.choice([-1, 1], k)], 1)
    turns = rng.uniform(0, 2 * np.pi, (2, k))
    (a, b) = (
        np.stack([[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]]).transpose(2, 0, 1)
        for t in turns
    )
    return a * scale[:, None] @ b, rng.uniform(-1, 1, (k, 2, 1))


class _Walk:
    """Some drawn functions, and points that walk by them."""

    def __init__(self, rng: np.random.Generator):
        k = int(rng.integers(2, 5))
        self.linear, self.shift = _contractions(rng, k)
        self.bend = _VARIATIONS[rng.integers(len(_VARIATIONS))]
        self.share = rng.uniform(0, 1) * (rng.random() < 0.75)
        weights = np.abs(np.linalg.det(self.linear)) + 0.1
        self.shares = np.cumsum(weights / weights.sum())
        self.tints = rng.permutation(np.linspace(0, 1, k))
        self.seed = int(rng.integers(2**32))

    def __call__(self, walkers: int, steps: int) -> tuple[Points, Plane]:
        """Points and their colours, of so many steps after the first twelve."""
        rng = np.random.default_rng(self.seed)
        p, tint = rng.uniform(-1, 1, (2, walkers)), np.full(walkers, 0.5)
        order = rng.permutation(walkers)
        ends = [0, *np.round(self.shares * walkers).astype(int)]
        seen, tints = [], []
        for step in range(12 + steps):
            new, shade = np.empty_like(p), np.empty_like(tint)
            for i, part in enumerate(map(slice, ends[:-1], ends[1:])):
                q = self.linear[i] @ p[:, part] + self.shift[i]
                if self.share:
                    q = (1 - self.share) * q + self.share * self.bend(q)
                new[:, part] = q
                shade[part] = (tint[part] + self.tints[i]) / 2
            roll = np.roll(order, 977 * step)  # Every walker meets every function.
            p, tint = np.clip(new[:, roll], -50, 50), shade[roll]
            if step >= 12:
                seen.append(p)
                tints.append(tint)
        return np.concatenate(seen, 1), np.concatenate(tints)


def flame(rng: np.random.Generator, size: int) -> Image:
    """The attractor of a few bent contractions, coloured by the last steps to it."""
    finer, best, chosen = fractal_paint.finer(size), -1.0, None
    for _ in range(fractal_paint.TRIES):
        walk = _Walk(rng)
        points, _ = walk(1024, 6)
        centre = np.median(points, 1, keepdims=True)
        reach = np.quantile(np.abs(points - centre), 0.9) * rng.uniform(0.5, 1)
        filled = len(np.unique(_pixels(points, centre, reach, fractal_paint.DRAFT)[0]))
        if filled > best:
            best, chosen = filled, (walk, centre, reach)
        if best > 0.4 * fractal_paint.DRAFT**2:
            break
    walk, centre, reach = chosen
    points, tint = walk(*((4096, 16) if size <= 64 else (8192, 64)))
    index, inside = _pixels(points, centre, reach, size * finer)
    shape = size * finer, size * finer
    count = np.bincount(index, minlength=shape[0] ** 2)
    total = np.bincount(index, tint[inside], shape[0] ** 2)
    mean = (total / np.maximum(count, 1)).reshape(shape)
    return fractal_paint.shrunk(_glow(rng, count.reshape(shape), mean), finer)


def _pixels(
    points: Points, centre: Points, reach: float, size: int
) -> tuple[Int[np.ndarray, "m"], Bool[np.ndarray, "n"]]:
    """Places of the points in an image, row by row, and which are inside."""
    place = np.floor(((points - centre) / reach + 1) * (size / 2))
    inside = ((place >= 0) & (place < size)).all(0)
    x, y = place[:, inside].astype(int)
    return y * size + x, inside


def _glow(rng: np.random.Generator, count: Plane, tint: Plane) -> Image:
    """Brightness by the logarithm of the density, on a ground that is dark or light."""
    palette = fractal_paint.palette(rng)
    ground = palette(np.full((1, 1), rng.random())) * rng.choice([0.15, 0.3, 0.9])
    wide, offset = rng.uniform(0.5, 2), rng.random()
    density = np.log1p(count * (30 / max(count.mean(), 1e-9)))
    light = np.clip(density / np.quantile(density, 0.995), 0, 1)[..., None] ** 0.8
    return ground * (1 - light) + palette(wide * tint + offset) * light
