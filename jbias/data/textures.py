"""Textures as two-tone patterns: sixteen tied to the classes, eight held out.

A pattern is a function of points in units of its period (x to the right, y up) and of
a table of random numbers per image; it gives roughly the signed distance, in periods,
to the border between its two tones. About half of the plane has each tone, which tone
is the lighter one is drawn per image, and periods are alike, so that neither the mean
colour nor the contrast nor a frequency band tells a texture: its geometry does.
After those of Hermann and Lampinen 2020, https://arxiv.org/abs/2006.12433.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from jaxtyping import Float

Points = Float[np.ndarray, "n h w"]
Table = Float[np.ndarray, "n t t"]
Pattern = Callable[[Points, Points, Table], Points]

_DIAGONAL = np.float32(np.sqrt(0.5))


def _centred(x: Points) -> Points:
    """Gives the signed distance to the nearest integer, in [-0.5, 0.5]."""
    return x - np.round(x)


def _stripe(x: Points) -> Points:
    return np.abs(_centred(x)) - 0.25


def noise(x: Points, y: Points, table: Table) -> Points:
    """Interpolates a table of random numbers, one per integer point, repeating."""
    size = table.shape[1]
    left, low = np.floor(x), np.floor(y)
    u, v = x - left, y - low
    u, v = u * u * (3 - 2 * u), v * v * (3 - 2 * v)
    i, j = low.astype(np.int32) % size, left.astype(np.int32) % size
    n = np.arange(len(table))[:, None, None]
    up, right = (i + 1) % size, (j + 1) % size
    bottom = table[n, i, j] * (1 - u) + table[n, i, right] * u
    top = table[n, up, j] * (1 - u) + table[n, up, right] * u
    return bottom * (1 - v) + top * v


def _checks(x: Points, y: Points, table: Table) -> Points:
    x, y = _stripe(0.8 * x), _stripe(0.8 * y)
    return np.sign(x) * np.sign(y) * np.minimum(np.abs(x), np.abs(y)) / 0.8


def _dots(x: Points, y: Points, table: Table) -> Points:
    height = 0.866  # Of a triangle: each dot has six neighbours at one period.
    x = x + 0.5 * (np.round(y / height) % 2)
    return np.hypot(_centred(x), height * _centred(y / height)) - 0.371


def _grid(x: Points, y: Points, table: Table) -> Points:
    return np.maximum(np.abs(_centred(x)), np.abs(_centred(y))) - 0.35


def _bricks(x: Points, y: Points, table: Table) -> Points:
    x = x + 0.75 * (np.round(y / 0.8) % 2)
    along, across = 1.5 * _centred(x / 1.5), 0.8 * _centred(y / 0.8)
    return np.maximum(np.abs(along) - 0.58, np.abs(across) - 0.25)


def _scales(x: Points, y: Points, table: Table) -> Points:
    """Rows of discs, each row shifted by half a disc and in front of the one above."""
    lowest = np.ceil((y - 0.75) / 0.5)
    nearest = np.zeros(x.shape, np.float32)
    for row in (lowest + 2, lowest + 1, lowest):
        across = 1.5 * _centred(x / 1.5 + 0.5 * (row % 2))
        radius = np.hypot(across, y - 0.5 * row)
        nearest = np.where(radius < 0.75, radius, nearest)
    return nearest - 0.54


def _rings(x: Points, y: Points, table: Table) -> Points:
    radius = np.hypot(1.5 * _centred(x / 1.5), 1.5 * _centred(y / 1.5))
    return np.abs(radius - 0.5) - 0.17


def _triangles(x: Points, y: Points, table: Table) -> Points:
    height = (y / 1.2) % 1
    return (np.abs(_centred(x / 1.2)) * 2 - height) * 0.5


def _pluses(x: Points, y: Points, table: Table) -> Points:
    x = x + 0.65 * (np.round(y / 1.3) % 2)
    x, y = np.abs(1.3 * _centred(x / 1.3)), np.abs(1.3 * _centred(y / 1.3))
    return np.minimum(np.maximum(x - 0.2, y - 0.56), np.maximum(x - 0.56, y - 0.2))


def _honeycomb(x: Points, y: Points, table: Table) -> Points:
    def centre(x: Points, y: Points) -> Points:
        x, y = np.abs(_centred(x / 1.3) * 1.3), np.abs(_centred(y / 2.25) * 2.25)
        return np.maximum(x, 0.5 * x + 0.866 * y)

    return np.minimum(centre(x, y), centre(x + 0.65, y + 1.125)) - 0.46


def _rain(x: Points, y: Points, table: Table) -> Points:
    column = np.round(x / 0.7)
    y = y + 0.9 * (column % 2)
    return np.maximum(
        np.abs(x - 0.7 * column) - 0.22, np.abs(1.8 * _centred(y / 1.8)) - 0.65
    )


def _weave(x: Points, y: Points, table: Table) -> Points:
    over = (np.round(x / 1.4) + np.round(y / 1.4)) % 2
    return np.where(over == 0, _stripe(x / 0.7), _stripe(y / 0.7)) * 0.7


TEXTURES: Mapping[str, Pattern] = MappingProxyType(
    {
        "rows": lambda x, y, _: _stripe(y),
        "columns": lambda x, y, _: _stripe(x),
        "rising": lambda x, y, _: _stripe((y - x) * _DIAGONAL),
        "falling": lambda x, y, _: _stripe((y + x) * _DIAGONAL),
        "checks": _checks,
        "dots": _dots,
        "grid": _grid,
        "bricks": _bricks,
        "zigzag": lambda x, y, _: _stripe(y + 1.1 * np.abs(_centred(x / 1.6))) * 0.8,
        "waves": lambda x, y, _: _stripe(x + 0.3 * np.sin(y * (2 * np.pi / 1.8))) * 0.8,
        "scales": _scales,
        "rings": _rings,
        "blobs": lambda x, y, table: noise(x * 1.6, y * 1.6, table) * 0.5,
        "speckle": lambda x, y, table: noise(x * 3.2, y * 3.2, table) * 0.3,
        "triangles": _triangles,
        "pluses": _pluses,
    }
)

HELD_OUT: Mapping[str, Pattern] = MappingProxyType(
    {
        "diamonds": lambda x, y, _: (
            (np.abs(_centred(x)) * 1.5 + np.abs(_centred(y / 1.5)) * 1.5 - 0.75) * 0.6
        ),
        "honeycomb": _honeycomb,
        "rain": _rain,
        "weave": _weave,
        "streaks": lambda x, y, table: noise(x * 0.5, y * 2.6, table) * 0.35,
        "marble": lambda x, y, table: (
            _stripe(0.7 * (x + y) + 0.9 * noise(x * 0.8, y * 0.8, table)) * 0.8
        ),
        "trellis": lambda x, y, table: _grid(
            (x + y) * _DIAGONAL, (x - y) * _DIAGONAL, table
        ),
        "ripples": lambda x, y, table: _stripe(
            np.hypot(x - 2 * table[:, :1, :1], y - 2 * table[:, 1:2, 1:2])
        ),
    }
)
