"""Draws pictures whose texture is known apart from what they show."""

import functools
from typing import NamedTuple

import cv2
import numpy as np
from jaxtyping import Float, Int, UInt8

from jbias.data import shape_scenes, textures

SIDE = 32  # Of a picture.
PERIOD = 48  # Of a tile, a multiple of nearly all patterns' periods.
SCALES = (1, 2)  # Patterns as the embedded set has them at 32 and at 64 pixels.
_PATTERNS = tuple(textures.TEXTURES.values())
NO_PATTERN = len(SCALES) * len(_PATTERNS)  # The pattern that is none.
_LEAVES = 6

Planes = Float[np.ndarray, "n h w"]
Images = Float[np.ndarray, "n h w 3"]


class Pictures(NamedTuple):
    """n pictures whose texture is known apart from what they show.

    `carrier` is `image` without its texture and noise. A style transfer can learn from
    them exactly: the target is what one shows, in its flat colours moved to another's,
    under the other's pattern. Half are scenes of the embedded set; the others are layers
    of shapes in flat colours over the whole frame, after the dead leaves model, which
    hold edges, sizes and colours of all kinds.
    """

    image: UInt8[np.ndarray, "n h w 3"]
    carrier: UInt8[np.ndarray, "n h w 3"]
    pattern: Int[np.ndarray, "n"]  # A row of `tiles`, or NO_PATTERN.
    strength: Float[np.ndarray, "n"]  # How far its two tones lie apart, of 1.


@functools.cache
def tiles() -> Float[np.ndarray, "patterns side side"]:
    """Draws every pattern at every scale, and NO_PATTERN, as shares of the second tone."""
    table = np.random.default_rng(7).uniform(-1, 1, (1, 32, 32)).astype(np.float32)
    ticks = np.arange(PERIOD, dtype=np.float32) + np.float32(0.5)
    x, y = np.meshgrid(ticks, -ticks)
    drawn = []
    for scale in SCALES:
        period = np.float32(shape_scenes.PERIOD * SIDE / 2 * scale)
        for pattern in _PATTERNS:
            border = pattern((x / period)[None], (y / period)[None], table)[0]
            drawn.append(np.clip(0.5 - border * period, 0, 1))
    return np.stack([*drawn, np.full((PERIOD, PERIOD), 0.5, np.float32)])


def draw(
    rng: np.random.Generator, n: int, photos: UInt8[np.ndarray, "m h w 3"] | None = None
) -> Pictures:
    """Draws n pictures in a random order, a third from `photos` where there are some.

    Photographs of at least SIDE pixels give windows, whose fine detail is taken out
    before a pattern is put on.
    """
    kinds = [_scenes, _leaves]
    if photos is not None:
        kinds.append(functools.partial(_windows, photos))
    counts = np.bincount(np.arange(n) % (2 * len(kinds)), minlength=2 * len(kinds))
    parts = []
    for i, count in enumerate(counts):
        scale = i % len(SCALES)
        texture = rng.integers(0, len(_PATTERNS), count)
        image, carrier, strength = kinds[i // len(SCALES)](rng, SCALES[scale], texture)
        pattern = np.where(strength > 0, texture + scale * len(_PATTERNS), NO_PATTERN)
        noise = rng.standard_normal(image.shape, np.float32)
        image = image + noise * rng.uniform(0, 0.03, (count, 1, 1, 1))
        quantised = (shape_scenes.quantise(x) for x in (image, carrier))
        parts.append((*quantised, pattern, strength))
    order = rng.permutation(n)
    image, carrier, pattern, strength = (
        np.concatenate(x)[order] for x in zip(*parts, strict=True)
    )
    return Pictures(
        image, carrier, pattern.astype(np.int32), strength.astype(np.float32)
    )


def _scenes(rng: np.random.Generator, scale: int, texture: Int[np.ndarray, "n"]):
    """Scenes of the embedded set; in those the texture may fill the shape alone."""
    size, n = SIDE * scale, len(texture)
    scenes, shape = shape_scenes.draw(rng, n), rng.integers(0, 16, n)
    share = shape_scenes.shares(scenes, texture, size)
    plain = np.full_like(share, 0.5)
    drawn = (shape_scenes.composed(scenes, shape, s, size) for s in (share, plain))
    image, carrier = _cut(rng, *drawn)
    strength = 0.6 * np.abs(scenes.tones[:, 1] - scenes.tones[:, 0])
    return image, carrier, strength + 0.4 * np.abs(scenes.echo)


def _leaves(rng: np.random.Generator, scale: int, texture: Int[np.ndarray, "n"]):
    """Shapes of any size over each other, each in a colour of its own, and shading."""
    size, n = SIDE * scale, len(texture)
    x, y = shape_scenes.axes(n, size)
    carrier = _colour(rng, n) * np.ones((n, size, size, 1), np.float32)
    for _ in range(_LEAVES):
        shape, field = rng.integers(0, 16, n), np.empty((n, size, size), np.float32)
        pose = dict(
            scale=np.exp(rng.uniform(np.log(0.12), 0, n)).astype(np.float32),
            angle=rng.uniform(0, 2 * np.pi, n).astype(np.float32),
            shift=rng.uniform(-1, 1, (n, 2)).astype(np.float32),
        )
        for k, kind in enumerate(shape_scenes.SHAPES):
            rows = np.flatnonzero(shape == k)
            some = {name: value[rows] for name, value in pose.items()}
            axes = shape_scenes.axes(len(rows), size)
            field[rows] = shape_scenes.signed_distance(kind, *axes, **some)
        there = rng.random((n, 1, 1)) < 0.7
        over = (shape_scenes.coverage(field, size) * there)[..., None]
        carrier = carrier * (1 - over) + over * _colour(rng, n)
    slope = rng.uniform(-0.15, 0.15, (2, n, 1, 1)).astype(np.float32)
    carrier = carrier + (slope[0] * x + slope[1] * y)[..., None]
    share = shape_scenes.shares(shape_scenes.draw(rng, n), texture, size)
    return _patterned(rng, *_cut(rng, carrier, share))


def _windows(photos, rng, scale: int, texture: Int[np.ndarray, "n"]):
    """Windows of photographs, smoothed inside their edges."""
    n, (height, width) = len(texture), photos.shape[1:3]
    which = rng.integers(0, len(photos), n)
    top, left = rng.integers(0, (height - SIDE + 1, width - SIDE + 1), (n, 2)).T
    carrier = np.empty((n, SIDE, SIDE, 3), np.float32)
    for i in range(n):
        window = photos[which[i], top[i] :, left[i] :][:SIDE, :SIDE]
        smooth = cv2.pyrMeanShiftFiltering(np.ascontiguousarray(window), 4, 24)
        carrier[i] = smooth.astype(np.float32) / 255
    share = shape_scenes.shares(shape_scenes.draw(rng, n), texture, SIDE * scale)
    return _patterned(rng, carrier, *_cut(rng, share))


def _patterned(rng, carrier: Images, share: Planes):
    """Puts a pattern on the whole of a picture, on some not."""
    n = len(carrier)
    strength = rng.uniform(0.05, 0.6, n) * (rng.random(n) < 0.85)
    lighter = (strength[:, None, None] * (share - 0.5))[..., None]
    return carrier + lighter, carrier, strength


def _colour(rng: np.random.Generator, n: int) -> Images:
    tint = shape_scenes.tints(rng, n, ((0.0, 360.0),), -1.0)
    return (rng.uniform(0, 1, (n, 1)) * tint).astype(np.float32)[:, None, None]


def _cut(rng: np.random.Generator, *planes: np.ndarray) -> tuple[np.ndarray, ...]:
    """Cuts the same random window of SIDE pixels out of each."""
    n, size = planes[0].shape[:2]
    corner = rng.integers(0, size - SIDE + 1, (n, 2, 1))
    rows, columns = (corner + np.arange(SIDE)).swapaxes(0, 1)
    image = np.arange(n)[:, None, None]
    return tuple(x[image, rows[:, :, None], columns[:, None, :]] for x in planes)
