"""Sixteen shapes as signed distance fields, the classes of the embedded set.

A field gives, for points of the plane (x to the right, y up), the distance to the
outline, negative inside. One field serves the filled shape, its outline, strokes along
it and antialiasing at any resolution. Every shape fits a circle of radius 1.2. Distance
to a polygon after Inigo Quilez, https://iquilezles.org/articles/distfunctions2d.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from jaxtyping import Float

Plane = Float[np.ndarray, "*points"]
Field = Callable[[Plane, Plane], Plane]


def _disc(x: Plane, y: Plane, radius: float, cx: float = 0.0, cy: float = 0.0) -> Plane:
    return np.hypot(x - cx, y - cy) - radius


def _polygon(vertices: Sequence[tuple[float, float]]) -> Field:
    """Makes the exact signed distance to a simple polygon, of either orientation."""
    corners = [tuple(map(np.float32, corner)) for corner in vertices]

    def field(x: Plane, y: Plane) -> Plane:
        squared = np.full(x.shape, np.inf, np.float32)
        inside = np.zeros(x.shape, bool)
        for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1], strict=True):
            ex, ey = bx - ax, by - ay
            wx, wy = x - ax, y - ay
            along = np.clip((wx * ex + wy * ey) / (ex * ex + ey * ey), 0, 1)
            apart = (wx - ex * along) ** 2 + (wy - ey * along) ** 2
            squared = np.minimum(squared, apart)
            # A ray to the right crosses this side: even-odd rule.
            inside ^= ((y >= ay) != (y >= by)) & ((wx * ey < wy * ex) == (ey > 0))
        return np.where(inside, -1, 1).astype(np.float32) * np.sqrt(squared)

    return field


def _circle(x: Plane, y: Plane) -> Plane:
    return _disc(x, y, 0.9)


def _ring(x: Plane, y: Plane) -> Plane:
    return np.abs(_disc(x, y, 0.68)) - 0.27


def _crescent(x: Plane, y: Plane) -> Plane:
    return np.maximum(_disc(x, y, 0.95), -_disc(x, y, 0.75, 0.5))


def _semicircle(x: Plane, y: Plane) -> Plane:
    return np.maximum(_disc(x, y, 0.98, 0.0, -0.45), -0.45 - y)


def _heart(x: Plane, y: Plane) -> Plane:
    tip = _polygon([(-0.86, 0.17), (0.0, 0.36), (0.86, 0.17), (0.0, -0.95)])(x, y)
    lobes = np.minimum(_disc(x, y, 0.5, -0.47, 0.42), _disc(x, y, 0.5, 0.47, 0.42))
    return np.minimum(tip, lobes)


def _star_corners(points: int, outer: float, inner: float) -> list[tuple[float, float]]:
    turns = (math.pi / 2 + math.pi * i / points for i in range(2 * points))
    return [
        (
            (inner if i % 2 else outer) * math.cos(t),
            (inner if i % 2 else outer) * math.sin(t),
        )
        for i, t in enumerate(turns)
    ]


def _mirrored(right: Sequence[tuple[float, float]]) -> Field:
    """Closes a right half, listed from the top down, with its mirror image."""
    return _polygon([*right, *((-x, y) for x, y in reversed(right) if x)])


SHAPES: Mapping[str, Field] = MappingProxyType(
    {
        "circle": _circle,
        "ring": _ring,
        "crescent": _crescent,
        "semicircle": _semicircle,
        "square": _mirrored([(0.74, 0.74), (0.74, -0.74)]),
        "triangle": _mirrored([(0.0, 0.95), (0.93, -0.72)]),
        "rhombus": _mirrored([(0.0, 1.02), (0.6, 0.0), (0.0, -1.02)]),
        "star": _polygon(_star_corners(5, 1.05, 0.45)),
        "plus": _mirrored(
            [(0.29, 0.95), (0.29, 0.29), (0.95, 0.29)]
            + [(0.95, -0.29), (0.29, -0.29), (0.29, -0.95)]
        ),
        "arrow": _polygon(
            [(-0.95, 0.26), (0.05, 0.26), (0.05, 0.8), (1.0, 0.0)]
            + [(0.05, -0.8), (0.05, -0.26), (-0.95, -0.26)]
        ),
        "tee": _mirrored([(0.85, 0.85), (0.85, 0.3), (0.28, 0.3), (0.28, -0.95)]),
        "ell": _polygon(
            [(-0.7, 0.95), (-0.12, 0.95), (-0.12, -0.3)]
            + [(0.75, -0.3), (0.75, -0.85), (-0.7, -0.85)]
        ),
        "aitch": _mirrored(
            [(0.25, 0.25), (0.25, 0.82), (0.78, 0.82)]
            + [(0.78, -0.82), (0.25, -0.82), (0.25, -0.25)]
        ),
        "hourglass": _mirrored([(0.75, 0.9), (0.16, 0.0), (0.75, -0.9)]),
        "heart": _heart,
        "chevron": _mirrored([(0.0, 0.85), (0.9, -0.15), (0.9, -0.75), (0.0, 0.15)]),
    }
)


def distance(
    kind: str,
    x: Float[np.ndarray, "n h w"],
    y: Float[np.ndarray, "n h w"],
    *,
    scale: Float[np.ndarray, "n"],
    angle: Float[np.ndarray, "n"],
    shift: Float[np.ndarray, "n 2"],
) -> Float[np.ndarray, "n h w"]:
    """Gives the field of a shape that is scaled, turned, then shifted.

    Lengths in the units of x and y, angles in radians, counter-clockwise.
    """
    cos, sin, size = (a[:, None, None] for a in (np.cos(angle), np.sin(angle), scale))
    x, y = x - shift[:, 0, None, None], y - shift[:, 1, None, None]
    field = SHAPES[kind]((cos * x + sin * y) / size, (cos * y - sin * x) / size)
    return field * size
