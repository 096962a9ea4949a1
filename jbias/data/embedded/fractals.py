"""Pictures of fractals, to be mixed with images: an embedded data set, drawn by code.

Three kinds, in turn: flames (functions iterated on points at random), Julia sets, and
parts of the Mandelbrot set (z -> z^p + c until it escapes). A picture has random palettes and
structure at many scales. The pictures are for PixMix (Hendrycks et al., CVPR 2022,
https://arxiv.org/abs/2112.05135), whose authors collected about 14,000 fractals and feature
visualisations. This data set has only fractals.
Fractals drawn by formulas as training data: Kataoka et al., ACCV 2020,
https://arxiv.org/abs/2101.08515; contractions with singular values bounded in sum, as here:
Anderson and Farrell, WACV 2022, https://arxiv.org/abs/2110.03091. Flames: Draves and Reckase,
"The fractal flame algorithm", 2003.

A picture depends only on the seed, its index and the size, and looks about the same at every
size. A draft is a picture of DRAFT pixels, used to select a view.
"""

import functools
import itertools
import zlib
from collections.abc import Callable, Mapping

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from jbias import errors
from jbias.data import base, cache, sources
from jbias.data.embedded import shape_scenes, shapes

Rng = np.random.Generator

Image = Float[np.ndarray, "size size 3"]
Plane = Float[np.ndarray, "size size"]
Complex = np.ndarray | complex  # Complex numbers (n), or a number for all points.
# (size, steps) -> count and trap of each pixel; see `_escape`.
Draw = Callable[[int, int], tuple[np.ndarray, np.ndarray]]

TRIES = 10  # Drafts of a picture, of which the first good one is drawn.
DRAFT = 24  # Pixels of a draft.


def random_palette(rng: Rng) -> Callable[[Plane], Image]:
    """Return colour(t) -> RGB colours, m + s cos(2 pi (f t + phase)) / 2, clipped to [0, 1].

    The constants m, s, f and phase are random for each channel.
    """
    phase, middle = rng.random(3), rng.uniform(0.35, 0.65, 3)
    strength = rng.uniform(0.3, 1, 3) * rng.uniform(0.4, 1)
    waves = rng.integers(1, 3, 3)

    def colour(t: Plane) -> Image:
        turns = waves * t[..., None] + phase
        return np.clip(middle + 0.5 * strength * np.cos(2 * np.pi * turns), 0, 1)

    return colour


def downsample(image: Image, factor: int) -> Image:
    """Return the image shrunk by `factor`: means of factor x factor pixels."""
    size = len(image) // factor
    return image.reshape(size, factor, size, factor, 3).mean((1, 3))


def supersampling(size: int) -> int:
    """Return the factor, 1 or 2, by which a picture of `size` pixels is drawn larger at first.

    The larger picture is then averaged down to `size`.
    """
    return 2 if size <= 112 else 1


def _escape(
    z: Complex, c: Complex, power: int, steps: int
) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """Return the smooth escape count and the orbit trap of z -> z^power + c, for each point.

    z: start of the iteration. Points are iterated until |z| > 32, at most `steps` times. A
    point that escapes at step n, counted from 0, has the count n + 1 - log_p(log|z| / log 32),
    p = power; other points have the count `steps`. The trap is the smallest distance of z to
    the axes during the iteration.
    """
    z, c = (x.copy() for x in np.broadcast_arrays(z, c))
    count, trap = np.full(z.size, float(steps)), np.full(z.size, np.inf)
    at = np.arange(z.size)
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


def _grid(centre: complex, half: float, angle: float, size: int) -> Complex:
    """Return the complex numbers of size x size pixels of a rotated square, row by row.

    half: half the square's side. angle: in radians.
    """
    ticks = ((np.arange(size) + 0.5) * (2 / size) - 1) * half
    return centre + np.exp(1j * angle) * (ticks[None, :] + 1j * ticks[:, None]).ravel()


def _busy(count: Float[np.ndarray, "n"], steps: int) -> float:
    """Return a measure, in [0, 1], of the structure in a draft.

    It is the share of neighbouring points that escape at different times, multiplied by the
    share of points that escape. count: the result of `_escape` for all points of a draft.
    steps: the argument `steps` of `_escape`.
    """
    plane = np.log1p(count).reshape(DRAFT, DRAFT)
    edges = [np.abs(np.diff(plane, axis=axis)) > 0.05 for axis in (0, 1)]
    return np.mean([edge.mean() for edge in edges]) * (1 - (count >= steps).mean())


def _painted(rng: Rng, draw: Draw, size: int, steps: int) -> Image:
    """Return a picture coloured by escape count, or by orbit trap where points never escape.

    `_escape` defines count and trap. draw: (size, steps) -> count and trap of each pixel.
    size: side of the picture in pixels.
    """
    outside, inside = random_palette(rng), random_palette(rng)
    waves, offset = rng.uniform(0.5, 2.5), rng.random()
    finer = supersampling(size)
    count, trap = (x.reshape(size * finer, -1) for x in draw(size * finer, steps))
    escaped = count < steps
    log_count = np.log1p(count[escaped] if escaped.any() else count)
    low, high = np.quantile(log_count, [0.02, 0.98])
    image = outside(waves * (np.log1p(count) - low) / max(high - low, 1e-3) + offset)
    shade = inside(np.log1p(40 * trap) * waves + offset)
    shade *= 1 - 0.7 * np.exp(-30 * trap)[..., None]
    return downsample(np.where(escaped[..., None], image, shade), finer)


def julia(rng: Rng, size: int) -> Image:
    """Return a picture of a random part of a Julia set, of z -> z^p + c.

    The constant c is near the border of the Mandelbrot set of the same power p, 2, 3 or 4.
    """

    def view():
        """Return draw(size, steps) of a random square of a random Julia set.

        draw returns the count and the trap of size x size points, see `_escape`. The random
        numbers are from `rng`, an argument of `julia`.
        """
        power = int(rng.choice([2, 2, 2, 3, 4]))
        c = _border(rng, power)
        centre = complex(*rng.uniform(-0.7, 0.7, 2))
        half, angle = 1.5 * 2 ** -rng.uniform(0, 4), rng.uniform(0, 2 * np.pi)
        grid = functools.partial(_grid, centre, half, angle)
        return lambda fine, steps: _escape(grid(fine), c, power, steps)

    return _painted(rng, _busiest(view), size, 150)


def mandelbrot(rng: Rng, size: int) -> Image:
    """Return a picture of a part of the Mandelbrot set's border, enlarged 3 to 3000 times."""

    def view():
        half = 1.5 / 10 ** rng.uniform(0.5, 3.5)
        centre = _border(rng, 2) + half * complex(*rng.uniform(-0.5, 0.5, 2))
        grid = functools.partial(_grid, centre, half, rng.uniform(0, 2 * np.pi))
        return lambda fine, steps: _escape(0j, grid(fine), 2, steps)

    return _painted(rng, _busiest(view), size, 250)


def _busiest(view: Callable[[], Draw]) -> Draw:
    """Return the first random view with `_busy` above 0.4, else the busiest of TRIES.

    view: () -> draw(size, steps) of a random view of the fractal.
    """
    steps, most_busy, best = 80, -1.0, None
    for _ in range(TRIES):
        draw = view()
        busy = _busy(draw(DRAFT, steps)[0], steps)
        if busy > most_busy:
            most_busy, best = busy, draw
        if most_busy > 0.4:
            break
    return best


def _border(rng: Rng, power: int) -> complex:
    """Return a random c just outside the set where z -> z^power + c from 0 never escapes.

    Computed by bisection along a random direction.
    """
    direction = np.exp(1j * rng.uniform(0, 2 * np.pi)).item()
    low, high = 0.0, 2.0
    for _ in range(12):
        middle = (low + high) / 2
        z, c = 0j, middle * direction
        for _ in range(250):
            z = z**power + c
            if abs(z) > 4:
                high = middle
                break
        else:
            low = middle
    return high * (1 + 10 ** -rng.uniform(1.5, 3)) * direction


Points = Float[np.ndarray, "2 n"]


def _sphere(p: Points) -> Points:
    """Return the points, each divided by its squared radius plus 0.1."""
    return p / (np.sum(p * p, 0) + 0.1)


def _swirl(p: Points) -> Points:
    """Return the points, each rotated by pi / 2 minus its squared radius."""
    r2 = np.sum(p * p, 0)
    s, c = np.sin(r2), np.cos(r2)
    return np.stack([p[0] * s - p[1] * c, p[0] * c + p[1] * s])


def _horseshoe(p: Points) -> Points:
    """Return the points with doubled angles and the same radius."""
    r = np.hypot(p[0], p[1]) + 1e-6
    return np.stack([(p[0] - p[1]) * (p[0] + p[1]), 2 * p[0] * p[1]]) / r


def _polar(p: Points) -> Points:
    """Return (angle / pi, radius - 1) of each point; angles are to the y axis."""
    theta, r = np.arctan2(p[0], p[1]), np.hypot(p[0], p[1])
    return np.stack([theta / np.pi, r - 1])


def _disc(p: Points) -> Points:
    """Return (a sin(pi r), a cos(pi r)) of each point.

    r: the radius. a: the angle from the y axis divided by pi.
    """
    theta, r = np.arctan2(p[0], p[1]) / np.pi, np.pi * np.hypot(p[0], p[1])
    return np.stack([theta * np.sin(r), theta * np.cos(r)])


_VARIATIONS = (np.sin, _sphere, _swirl, _horseshoe, _polar, _disc)


def _contractions(
    rng: Rng, k: int
) -> tuple[Float[np.ndarray, "k 2 2"], Float[np.ndarray, "k 2 1"]]:
    """Return the matrices and the shifts of k random affine maps.

    For singular values s1 >= s2, the sum of s1 + 2 s2 over all maps is between (5 + k) / 2 and
    (6 + k) / 2, as in Anderson and Farrell's; if none of 4000 draws fits, the draw with the
    largest sum is used. Shifts are U(-1, 1).
    """
    first = rng.random((4000, k))
    second = first * rng.random((4000, k))
    total = np.sum(first + 2 * second, 1)
    fits = np.flatnonzero((total >= (5 + k) / 2) & (total <= (6 + k) / 2))
    pick = fits[0] if fits.size else np.argmax(total)
    scale = np.stack([first[pick], second[pick] * rng.choice([-1, 1], k)], 1)
    turns = rng.uniform(0, 2 * np.pi, (2, k))
    cos, sin = np.cos(turns), np.sin(turns)
    a, b = np.stack([[cos, -sin], [sin, cos]]).transpose(2, 3, 0, 1)
    return a * scale[:, None] @ b, rng.uniform(-1, 1, (k, 2, 1))


def _walk(rng: Rng) -> Callable[[int, int], tuple[Points, Plane]]:
    """Return walk(walkers, steps) -> (points, tints), random walks by random functions.

    walkers: number of points that are iterated. The result has the points of all steps,
    (2, walkers * steps). Tints, in [0, 1], depend on the last functions applied.
    """
    k = int(rng.integers(2, 5))
    linear, shift = _contractions(rng, k)
    bend = _VARIATIONS[rng.integers(len(_VARIATIONS))]
    share = rng.uniform(0, 1) * (rng.random() < 0.75)
    weights = np.abs(np.linalg.det(linear)) + 0.1
    shares = np.cumsum(weights / weights.sum())
    tints = rng.permutation(np.linspace(0, 1, k))
    seed = int(rng.integers(2**32))

    def walk(walkers: int, steps: int) -> tuple[Points, Plane]:
        """Return the points (2, n) and tints (n) of `steps` steps, after twelve unused steps.

        n = walkers * steps. All calls of one `walk` use the same functions and random seed.
        """
        rng = np.random.default_rng(seed)
        p, tint = rng.uniform(-1, 1, (2, walkers)), np.full(walkers, 0.5)
        order = rng.permutation(walkers)
        ends = [0, *np.round(shares * walkers).astype(int)]
        steps_taken = []
        for step in range(12 + steps):
            new, shade = np.empty_like(p), np.empty_like(tint)
            for i, part in enumerate(map(slice, ends[:-1], ends[1:])):
                q = linear[i] @ p[:, part] + shift[i]
                new[:, part] = (1 - share) * q + share * bend(q) if share else q
                shade[part] = (tint[part] + tints[i]) / 2
            roll = np.roll(order, 977 * step)  # Every walker meets every function.
            p, tint = np.clip(new[:, roll], -50, 50), shade[roll]
            steps_taken.append((p, tint))
        points, colours = zip(*steps_taken[12:])
        return np.concatenate(points, 1), np.concatenate(colours)

    return walk


def flame(rng: Rng, size: int) -> Image:
    """Return a picture of a fractal flame, coloured by the functions last applied.

    The flame is the attractor of two to four random contractions. With probability 3/4 they are
    blended with a random function of _VARIATIONS.
    """
    finer, best, best_view = supersampling(size), -1.0, None
    for _ in range(TRIES):
        walk = _walk(rng)
        points, _ = walk(1024, 6)
        centre = np.median(points, 1, keepdims=True)
        reach = np.quantile(np.abs(points - centre), 0.9) * rng.uniform(0.5, 1)
        filled = len(np.unique(_pixels(points, centre, reach, DRAFT)[0]))
        if filled > best:
            best, best_view = filled, (walk, centre, reach)
        if best > 0.4 * DRAFT**2:
            break
    walk, centre, reach = best_view
    if size <= 64:
        points, tint = walk(4096, 16)
    else:
        points, tint = walk(8192, 64)
    index, inside = _pixels(points, centre, reach, size * finer)
    shape = size * finer, size * finer
    count = np.bincount(index, minlength=shape[0] ** 2)
    total = np.bincount(index, tint[inside], shape[0] ** 2)
    mean = (total / np.maximum(count, 1)).reshape(shape)
    return downsample(_glow(rng, count.reshape(shape), mean), finer)


def _pixels(
    points: Points, centre: Float[np.ndarray, "2 1"], reach: float, size: int
) -> tuple[Int[np.ndarray, "m"], Bool[np.ndarray, "n"]]:
    """Return the pixel index of each point inside the image, and a mask: True for points inside.

    centre, reach: centre and half the side of the image, in the units of the points.
    size: side in pixels; pixels are numbered row by row.
    """
    place = np.floor(((points - centre) / reach + 1) * (size / 2))
    inside = ((place >= 0) & (place < size)).all(0)
    x, y = place[:, inside].astype(int)
    return y * size + x, inside


def _glow(rng: Rng, count: Plane, tint: Plane) -> Image:
    """Return a picture, in [0, 1], whose brightness is the log density of points.

    The background is a random colour. Points have the colours of a random palette at wide * tint +
    offset, with random `wide` and `offset`.

    count: number of points in each pixel. tint: mean tint of the points in each pixel, in [0, 1].
    """
    palette = random_palette(rng)
    ground = palette(np.full((1, 1), rng.random())) * rng.choice([0.15, 0.3, 0.9])
    wide, offset = rng.uniform(0.5, 2), rng.random()
    density = np.log1p(count * (30 / max(count.mean(), 1e-9)))
    light = np.clip(density / np.quantile(density, 0.995), 0, 1)[..., None] ** 0.8
    return ground * (1 - light) + palette(wide * tint + offset) * light


VERSION = 1  # Of the drawing: change it with any change of a pixel.
SPLITS = ("train",)
# (generator, size) -> picture.
KINDS: Mapping[str, Callable] = {f.__name__: f for f in (flame, julia, mandelbrot)}


def make(split: str, *, size: int = 32, n: int = 512, seed: int = 0) -> base.Source:
    """Return the source of n pictures, drawn or from the cache; the classes are KINDS.

    split: "train". size: side in pixels, 32 to 224. n: at least 1; picture i does not depend
    on n. ValueError for arguments outside their range.
    """
    shapes.check_drawing("fractals", split, splits=SPLITS, size=size, seed=seed)
    errors.check_whole("fractals", n, low=1, name="n")
    words = f"fractals {VERSION} {int(n)} {int(size)} {int(seed)}"
    arrays = cache.remember("fractals", words, _draw, n, size, seed)
    return sources.ArraySource(
        **shapes.source_fields("fractals", split, size, arrays, words),
        classes=tuple(KINDS),
        columns={"label": (np.arange(n) % len(KINDS)).astype(np.int32)},
        note="in the spirit of PixMix's mixing set, not that set",
    )


def _draw(n: int, size: int, seed: int) -> dict[str, UInt8[np.ndarray, "n ..."]]:
    """Return {"image": the first n pictures (n size size 3)}."""
    images = []
    for i, kind in zip(range(n), itertools.cycle(KINDS)):
        rng = np.random.default_rng([seed, zlib.crc32(kind.encode()), i])
        images.append(shape_scenes.quantise(KINDS[kind](rng, size)))
    return {"image": np.stack(images)}
