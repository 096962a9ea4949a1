"""Draws Julia sets and parts of the Mandelbrot set: z -> z^p + c, until it escapes."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Complex, Float

from jbias.data import fractal_paint
from jbias.data.fractal_paint import Image


def _escape(
    z: Complex[np.ndarray, "n"],
    c: Complex[np.ndarray, "n"],
    power: int,
    steps: int,
) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """Iterates until |z| > 32; returns the smooth count (steps if never) and a trap.

    The count is n + 1 - log_p(log|z| / log 32); the trap is the smallest distance that
    z ever had from the axes.
    """
    count, trap = np.full(z.size, float(steps)), np.full(z.size, np.inf)
    at, z, c = np.arange(z.size), z.copy(), c.copy()
    for step in range(steps):
        z = z**power + c if power != 2 else z * z + c
        near = np.minimum(np.abs(z.real), np.abs(z.imag))
        trap[at] = np.minimum(trap[at], near)
        size2 = z.real**2 + z.imag**2
        out = size2 > 1024
        if out.any():
            log = 0.5 * np.log(size2[out]) / np.log(32)
            count[at[out]] = step + 1 - np.log(log) / np.log(power)
            at, z, c = at[~out], z[~out], c[~out]
        if not at.size:
            break
    return count, trap


def _grid(centre: complex, half: float, angle: float, size: int) -> np.ndarray:
    ticks = ((np.arange(size) + 0.5) * (2 / size) - 1) * half
    return centre + np.exp(1j * angle) * (ticks[None, :] + 1j * ticks[:, None]).ravel()


def _busy(count: Float[np.ndarray, "n"], steps: int) -> float:
    """The share of neighbours in a draft that escape at different times."""
    plane = np.log1p(count).reshape(fractal_paint.DRAFT, fractal_paint.DRAFT)
    edges = [np.abs(np.diff(plane, axis=axis)) > 0.05 for axis in (0, 1)]
    return np.mean([edge.mean() for edge in edges]) * (1 - (count >= steps).mean())


def _painted(
    rng: np.random.Generator,
    draw: Callable[[int, int], tuple[np.ndarray, np.ndarray]],
    size: int,
    steps: int,
) -> Image:
    """Colours counts on a scale of their own, and what never escapes by its trap."""
    outside, inside = fractal_paint.palette(rng), fractal_paint.palette(rng)
    waves, offset = rng.uniform(0.5, 2.5), rng.random()
    finer = fractal_paint.finer(size)
    count, trap = (x.reshape(size * finer, -1) for x in draw(size * finer, steps))
    gone = count < steps
    low, high = np.quantile(
        np.log1p(count[gone] if gone.any() else count), [0.02, 0.98]
    )
    image = outside(waves * (np.log1p(count) - low) / max(high - low, 1e-3) + offset)
    shade = inside(np.log1p(40 * trap) * waves + offset)
    shade *= 1 - 0.7 * np.exp(-30 * trap)[..., None]
    return fractal_paint.shrunk(np.where(gone[..., None], image, shade), finer)


def julia(rng: np.random.Generator, size: int) -> Image:
    """z^p + c of a c near the border of the Mandelbrot set, seen at some scale."""

    def view():
        power = int(rng.choice([2, 2, 2, 3, 4]))
        c = _border(rng, power)
        centre = complex(*rng.uniform(-0.7, 0.7, 2))
        half, angle = 1.5 * 2 ** -rng.uniform(0, 4), rng.uniform(0, 2 * np.pi)

        def draw(fine: int, steps: int):
            z = _grid(centre, half, angle, fine)
            return _escape(z, np.full_like(z, c), power, steps)

        return draw

    return _painted(rng, _busiest(view), size, 150)


def mandelbrot(rng: np.random.Generator, size: int) -> Image:
    """A part of the border of the Mandelbrot set, 3 to 3000 times enlarged."""

    def view():
        half = 1.5 / 10 ** rng.uniform(0.5, 3.5)
        centre = _border(rng, 2) + half * complex(*rng.uniform(-0.5, 0.5, 2))
        angle = rng.uniform(0, 2 * np.pi)

        def draw(fine: int, steps: int):
            c = _grid(centre, half, angle, fine)
            return _escape(np.zeros_like(c), c, 2, steps)

        return draw

    return _painted(rng, _busiest(view), size, 250)


def _busiest(view: Callable[[], Callable]) -> Callable:
    """The first view whose draft is busy enough, else the busiest of a few."""
    steps, best, chosen = 80, -1.0, None
    for _ in range(fractal_paint.TRIES):
        draw = view()
        if (busy := _busy(draw(fractal_paint.DRAFT, steps)[0], steps)) > best:
            best, chosen = busy, draw
        if best > 0.4:
            break
    return chosen


def _border(rng: np.random.Generator, power: int) -> complex:
    """A number just outside the set of those that never escape, by bisection."""
    way = np.exp(1j * rng.uniform(0, 2 * np.pi)).item()
    low, high = 0.0, 2.0
    for _ in range(12):
        middle = (low + high) / 2
        z, c = 0j, middle * way
        for _ in range(250):
            z = z**power + c
            if abs(z) > 4:
                high = middle
                break
        else:
            low = middle
    return high * (1 + 10 ** -rng.uniform(1.5, 3)) * way
