"""Drawing of the data set "shapes": sixteen shapes with random pose, colours and texture.

Textures are two-tone patterns, sixteen for the classes and eight that only test images have. A
pattern is a function of points in units of its period (x to the right, y up) and of a table of
random numbers per image; its value is about the signed distance, in periods, to the border
between its two tones. Only its geometry identifies a texture: each tone covers about half of
the plane, the lighter tone is chosen at random for each image, and periods are similar. So mean
colour, contrast and frequency band do not depend on the texture. The textures are modelled on
the textures of Hermann and Lampinen 2020, https://arxiv.org/abs/2006.12433.

A shape is a signed distance field: for points of the plane (x to the right, y up) the
distance to the outline, negative inside. The field is used for the filled shape, its outline,
strokes along it and antialiasing at any resolution. Every shape fits a circle of radius 1.2.
Distance to a polygon after Inigo Quilez, https://iquilezles.org/articles/distfunctions2d.

Lengths are in half frames: the frame is [-1, 1] by [-1, 1], x to the right and y up, so
that a picture is the same at every resolution except for its sensor noise. For antialiasing,
a pixel's coverage is computed from its distance to the border in pixels.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int, UInt8
from scipy import ndimage

Rng = np.random.Generator

Points = Float[np.ndarray, "*points"]
Table = Float[np.ndarray, "n t t"]
Pattern = Callable[[Points, Points, Table], Points]

_DIAGONAL = np.float32(np.sqrt(0.5))


def _centred(x: Points) -> Points:
    """Return x minus the nearest integer, in [-0.5, 0.5]."""
    return x - np.round(x)


def _stripe(x: Points) -> Points:
    """Return the signed distance to the borders of stripes that alternate along x, period 1."""
    return np.abs(_centred(x)) - 0.25


def noise(x: Points, y: Points, table: Table) -> Points:
    """Return smooth noise: values interpolated between random numbers at integer points.

    x, y: points (n h w). table: the random numbers of each image, repeated periodically, with
    y as the row and x as the column.
    """
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
    """Return the signed distance to the borders of a checkerboard."""
    x, y = _stripe(0.8 * x), _stripe(0.8 * y)
    return np.sign(x) * np.sign(y) * np.minimum(np.abs(x), np.abs(y)) / 0.8


def _dots(x: Points, y: Points, table: Table) -> Points:
    """Return the signed distance to the borders of dots in shifted rows."""
    height = 0.866  # Of a triangle: each dot has six neighbours at one period.
    x = x + 0.5 * (np.round(y / height) % 2)
    return np.hypot(_centred(x), height * _centred(y / height)) - 0.371


def _grid(x: Points, y: Points, table: Table) -> Points:
    """Return the signed distance to the borders of squares between the lines of a grid."""
    return np.maximum(np.abs(_centred(x)), np.abs(_centred(y))) - 0.35


def _bricks(x: Points, y: Points, table: Table) -> Points:
    """Return the signed distance to the borders of bricks."""
    x = x + 0.75 * (np.round(y / 0.8) % 2)
    along, across = 1.5 * _centred(x / 1.5), 0.8 * _centred(y / 0.8)
    return np.maximum(np.abs(along) - 0.58, np.abs(across) - 0.25)


def _scales(x: Points, y: Points, table: Table) -> Points:
    """Return the signed distance to the borders of scales.

    Scales are rows of discs; each row is in front of the row above, shifted by half a disc.
    """
    lowest = np.ceil((y - 0.75) / 0.5)
    nearest = np.zeros(x.shape, np.float32)
    for row in (lowest + 2, lowest + 1, lowest):
        across = 1.5 * _centred(x / 1.5 + 0.5 * (row % 2))
        radius = np.hypot(across, y - 0.5 * row)
        nearest = np.where(radius < 0.75, radius, nearest)
    return nearest - 0.54


def _rings(x: Points, y: Points, table: Table) -> Points:
    """Return the signed distance to the borders of rings."""
    radius = np.hypot(1.5 * _centred(x / 1.5), 1.5 * _centred(y / 1.5))
    return np.abs(radius - 0.5) - 0.17


def _triangles(x: Points, y: Points, table: Table) -> Points:
    """Return the signed distance to the borders of triangles."""
    height = (y / 1.2) % 1
    return (np.abs(_centred(x / 1.2)) * 2 - height) * 0.5


def _pluses(x: Points, y: Points, table: Table) -> Points:
    """Return the signed distance to the borders of plus signs."""
    x = x + 0.65 * (np.round(y / 1.3) % 2)
    x, y = np.abs(1.3 * _centred(x / 1.3)), np.abs(1.3 * _centred(y / 1.3))
    return np.minimum(np.maximum(x - 0.2, y - 0.56), np.maximum(x - 0.56, y - 0.2))


def _honeycomb(x: Points, y: Points, table: Table) -> Points:
    """Return the signed distance to the borders of hexagons."""

    def centre(x: Points, y: Points) -> Points:
        x, y = np.abs(_centred(x / 1.3) * 1.3), np.abs(_centred(y / 2.25) * 2.25)
        return np.maximum(x, 0.5 * x + 0.866 * y)

    return np.minimum(centre(x, y), centre(x + 0.65, y + 1.125)) - 0.46


def _rain(x: Points, y: Points, table: Table) -> Points:
    """Return the signed distance to the borders of short vertical strokes."""
    column = np.round(x / 0.7)
    y = y + 0.9 * (column % 2)
    along = np.abs(1.8 * _centred(y / 1.8))
    return np.maximum(np.abs(x - 0.7 * column) - 0.22, along - 0.65)


def _weave(x: Points, y: Points, table: Table) -> Points:
    """Return the signed distance to the borders of woven bands."""
    over = (np.round(x / 1.4) + np.round(y / 1.4)) % 2
    return np.where(over == 0, _stripe(x / 0.7), _stripe(y / 0.7)) * 0.7


def _diamonds(x: Points, y: Points, table: Table) -> Points:
    """Return the signed distance to the borders of diamonds."""
    return (np.abs(_centred(x)) * 1.5 + np.abs(_centred(y / 1.5)) * 1.5 - 0.75) * 0.6


def _marble(x: Points, y: Points, table: Table) -> Points:
    """Return the signed distance to the borders of wavy stripes."""
    return _stripe(0.7 * (x + y) + 0.9 * noise(x * 0.8, y * 0.8, table)) * 0.8


def _trellis(x: Points, y: Points, table: Table) -> Points:
    """Return the signed distance to the borders of a grid turned by 45 degrees."""
    return _grid((x + y) * _DIAGONAL, (x - y) * _DIAGONAL, table)


def _ripples(x: Points, y: Points, table: Table) -> Points:
    """Return the signed distance to the borders of circles about a random point."""
    return _stripe(np.hypot(x - 2 * table[:, :1, :1], y - 2 * table[:, 1:2, 1:2]))


TEXTURES: Mapping[str, Pattern] = {
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

HELD_OUT: Mapping[str, Pattern] = {
    "diamonds": _diamonds,
    "honeycomb": _honeycomb,
    "rain": _rain,
    "weave": _weave,
    "streaks": lambda x, y, table: noise(x * 0.5, y * 2.6, table) * 0.35,
    "marble": _marble,
    "trellis": _trellis,
    "ripples": _ripples,
}


Field = Callable[[Points, Points], Points]


def _disc(
    x: Points, y: Points, radius: float, cx: float = 0.0, cy: float = 0.0
) -> Points:
    """Return the signed distance to a disc with the centre (cx, cy)."""
    return np.hypot(x - cx, y - cy) - radius


def _polygon(vertices: Sequence[tuple[float, float]]) -> Field:
    """Return field(x, y) -> exact signed distances to a simple polygon of any orientation.

    vertices: (x, y) of each corner, in order.
    """
    corners = [tuple(map(np.float32, corner)) for corner in vertices]

    def field(x: Points, y: Points) -> Points:
        """Return the signed distance of each point (x, y) to the polygon, in float32.

        Distances are negative inside, and have the shape of x and y.
        """
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


def _heart(x: Points, y: Points) -> Points:
    """Return the signed distance to a heart."""
    tip = _polygon([(-0.86, 0.17), (0.0, 0.36), (0.86, 0.17), (0.0, -0.95)])(x, y)
    lobes = np.minimum(_disc(x, y, 0.5, -0.47, 0.42), _disc(x, y, 0.5, 0.47, 0.42))
    return np.minimum(tip, lobes)


def _star_corners(points: int, outer: float, inner: float) -> list[tuple[float, float]]:
    """Return the 2 * `points` corners (x, y) of a star, alternately at the two radii."""
    turns = (math.pi / 2 + math.pi * i / points for i in range(2 * points))
    reaches = (outer, inner) * points
    return [(r * math.cos(t), r * math.sin(t)) for r, t in zip(reaches, turns)]


def _mirrored(right: Sequence[tuple[float, float]]) -> Field:
    """Return field(x, y) -> signed distances to a polygon that is symmetric about the y axis.

    right: the vertices (x, y) of the polygon's right half, from the top down.
    """
    return _polygon([*right, *((-x, y) for x, y in reversed(right) if x)])


SHAPES: Mapping[str, Field] = {
    "circle": lambda x, y: _disc(x, y, 0.9),
    "ring": lambda x, y: np.abs(_disc(x, y, 0.68)) - 0.27,
    "crescent": lambda x, y: np.maximum(_disc(x, y, 0.95), -_disc(x, y, 0.75, 0.5)),
    "semicircle": lambda x, y: np.maximum(_disc(x, y, 0.98, 0.0, -0.45), -0.45 - y),
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


Image = Float[np.ndarray, "n h w 3"]
Plane = Float[np.ndarray, "n h w"]
Row = Float[np.ndarray, "n"]
Pair = Float[np.ndarray, "n 2"]
Ids = Int[np.ndarray, "n"]  # Index of each image's shape or texture.


def signed_distance(
    kind: str, x: Plane, y: Plane, *, scale: Row, angle: Row, shift: Pair
) -> Plane:
    """Return the signed distances of points to a shape that is scaled, turned, then shifted.

    kind: key of SHAPES. x, y: points of n images. scale, angle, shift: pose of the shape in
    each image; lengths in the units of x and y, angles in radians, counter-clockwise.
    """
    cos, sin, size = (a[:, None, None] for a in (np.cos(angle), np.sin(angle), scale))
    x, y = x - shift[:, 0, None, None], y - shift[:, 1, None, None]
    return SHAPES[kind]((cos * x + sin * y) / size, (cos * y - sin * x) / size) * size


Hues = Sequence[tuple[float, float]]  # Ranges, in degrees.

PERIOD = 0.3  # Of a texture: 4.8 pixels of 32.
STROKE = 0.05  # Half width of an outline.
KNOWN_HUES = ((-30.0, 75.0), (165.0, 255.0))  # Reds to yellows, cyans to blues.
NEW_HUES = ((90.0, 150.0), (270.0, 330.0))  # Greens, purples: only in "recoloured".
PATTERNS = tuple(TEXTURES.values()) + tuple(HELD_OUT.values())
CORRUPTIONS = ("noise", "impulse", "blur", "contrast", "brightness", "pixelate")


@dataclasses.dataclass(frozen=True)
class Scenes:
    """The random properties of n images; every field has n rows."""

    scale: Float[np.ndarray, "n"]  # Scale of the shape.
    angle: Float[np.ndarray, "n"]  # Rotation of the shape, in radians.
    shift: Float[np.ndarray, "n 2"]  # Centre (x, y) of the shape, in half frames.
    grain: Float[np.ndarray, "n"]  # Period of the texture over PERIOD.
    turn: Float[np.ndarray, "n"]  # Rotation of the texture, in radians.
    phase: Float[np.ndarray, "n 2"]  # Shift of the texture, in periods.
    table: Float[np.ndarray, "n t t"]  # Numbers of noise textures and wobbles.
    fill: Float[np.ndarray, "n 3"]  # Tint of the shape, largest channel 1.
    paper: Float[np.ndarray, "n 3"]  # Tint of the background.
    # Brightness: two tones of the shape, then the background.
    tones: Float[np.ndarray, "n 3"]
    echo: Float[np.ndarray, "n"]  # Contrast of the texture in the background.
    slope: Float[np.ndarray, "n 2"]  # Shading of the background, per half frame.
    sensor: Float[np.ndarray, "n"]  # Standard deviation of the noise of each value.

    def __getitem__(self, rows: Int[np.ndarray, "m"]) -> "Scenes":
        return Scenes(**{k: v[rows] for k, v in vars(self).items()})


def tints(rng: Rng, n: int, hues: Hues, least: float) -> Float[np.ndarray, "n 3"]:
    """Return n random RGB colours in [0, 1] with the value 1 in HSV.

    hues: ranges in degrees. least: saturations are uniform from `least` to 0.9; if `least` is
    negative, from 0 to 0.9, and four in ten are 0.
    """
    widths = np.array([high - low for low, high in hues])
    which = rng.choice(len(hues), n, p=widths / widths.sum())
    low, high = np.array(hues)[which].T
    hue = rng.uniform(low, high) / 60
    saturation = rng.uniform(max(least, 0), 0.9, n)
    saturation *= rng.random(n) > (0.4 if least < 0 else 0)
    return tint(hue, saturation)


def tint(hue: Row, saturation: Row) -> Float[np.ndarray, "n 3"]:
    """Return RGB colours in [0, 1] with the value 1 in HSV.

    hue: in sixths of the circle, from red at 0 to green at 2. saturation: in [0, 1].
    """
    offsets = (np.array([5, 3, 1]) + hue[:, None]) % 6
    share = np.clip(np.minimum(offsets, 4 - offsets), 0, 1)
    return 1 - saturation[:, None] * share


def _tones(rng: Rng, contrast: Row, echo: Row) -> Float[np.ndarray, "n 3"]:
    """Return random brightnesses of the texture's first and second tone and of the background.

    contrast: contrast between the texture's tones. echo: contrast of the texture in the
    background.

    The background is brighter than the two tones or darker than the two tones, and the second
    tone is brighter or darker than the first, each with probability 1/2. Faint textures, dark
    shapes on white and light shapes on black all occur, so that a network that has learned
    shapes recognises black silhouettes.
    """
    n = len(contrast)
    gap = rng.uniform(0.1, 0.3, n)
    span = contrast + gap + echo / 2
    first = rng.random(n) * np.maximum(1 - span, 0)
    tones = np.stack([first, first + contrast, first + contrast + gap], -1)
    tones = np.where(rng.random((n, 1)) < 0.5, tones, 1 - tones)
    swap = rng.random(n) < 0.5
    tones[swap] = tones[swap][:, [1, 0, 2]]
    return tones


def draw(rng: Rng, n: int, *, hues: Hues = KNOWN_HUES, least: float = -1.0) -> Scenes:
    """Return n random scenes.

    hues, least: hues and least saturation of the colours, see `tints`.

    Seven in ten backgrounds repeat the texture in other tones (`echo`), as in stylised
    photographs, which makes texture by far the easier cue. On an earlier version (uniform
    backgrounds, turns of 15 degrees at most, shapes a little larger) a network learned shape
    instead, with a shape bias of 0.91.
    """
    scale = rng.uniform(0.6, 0.9, n)
    contrast = rng.uniform(0.2, 0.6, n)
    echo = np.where(rng.random(n) < 0.3, 0, rng.uniform(0.1, 0.5, n))
    reach = 1 - scale
    fields = dict(
        scale=scale,
        angle=np.radians(rng.uniform(-25, 25, n)),
        shift=rng.uniform(-1, 1, (n, 2)) * reach[:, None],
        grain=rng.uniform(0.85, 1.15, n),
        turn=np.radians(rng.uniform(-12, 12, n)),
        phase=rng.uniform(0, 8, (n, 2)),
        table=rng.uniform(-1, 1, (n, 32, 32)),
        fill=tints(rng, n, hues, least),
        paper=tints(rng, n, hues, least),
        tones=_tones(rng, contrast, echo),
        echo=echo * rng.choice([-1, 1], n),
        slope=rng.uniform(-0.06, 0.06, (n, 2)),
        sensor=rng.uniform(0, 0.03, n),
    )
    return Scenes(**{k: v.astype(np.float32) for k, v in fields.items()})


def axes(n: int, size: int) -> tuple[Plane, Plane]:
    """Return x and y of the centre of every pixel in n images, in half frames.

    size: side of the images in pixels. The arrays are read-only; x grows to the right and y
    upwards, from -1 to 1.
    """
    ticks = (np.arange(size, dtype=np.float32) + 0.5) * (2 / size) - 1
    x, y = np.broadcast_arrays(ticks, -ticks[:, None])
    return np.broadcast_to(x, (n, size, size)), np.broadcast_to(y, (n, size, size))


def coverage(distance: Plane, size: int) -> Plane:
    """Return the share of each pixel that is inside a shape, in [0, 1].

    distance: signed distance of the pixel's centre to the shape's border, in half frames.
    size: side of the image in pixels.
    """
    return np.clip(0.5 - distance * (size / 2), 0, 1)


def outlines(scenes: Scenes, shape: Ids, size: int) -> Plane:
    """Return the signed distance of each pixel to its image's shape, in the pose of `scenes`.

    Distances are in half frames, negative inside. shape: index in SHAPES. size: side in pixels.
    """
    return fields(
        shape, size, scale=scenes.scale, angle=scenes.angle, shift=scenes.shift
    )


def fields(shape: Ids, size: int, *, scale: Row, angle: Row, shift: Pair) -> Plane:
    """Return the signed distance of each pixel to its image's shape, in half frames.

    Distances are negative inside. shape: index in SHAPES. size: side in pixels. scale, angle,
    shift: pose of the shape in each image, see `signed_distance`.
    """
    field = np.empty((len(shape), size, size), np.float32)
    for k, kind in enumerate(SHAPES):
        rows = np.flatnonzero(shape == k)
        x, y = axes(len(rows), size)
        field[rows] = signed_distance(
            kind, x, y, scale=scale[rows], angle=angle[rows], shift=shift[rows]
        )
    return field


def shares(scenes: Scenes, texture: Ids, size: int) -> Plane:
    """Return the share of the texture's second tone in each pixel, in [0, 1].

    texture: index in PATTERNS. size: side in pixels.
    """
    share = np.empty((len(texture), size, size), np.float32)
    for k in np.unique(texture):
        rows = np.flatnonzero(texture == k)
        subset = scenes[rows]
        x, y = axes(len(rows), size)
        period = (PERIOD * subset.grain)[:, None, None]
        cos = np.cos(subset.turn)[:, None, None]
        sin = np.sin(subset.turn)[:, None, None]
        u = (cos * x + sin * y) / period + subset.phase[:, :1, None]
        v = (cos * y - sin * x) / period + subset.phase[:, 1:, None]
        share[rows] = coverage(PATTERNS[k](u, v, subset.table) * period, size)
    return share


def textured(scenes: Scenes, shape: Ids, texture: Ids, size: int, rng: Rng) -> Image:
    """Return images of shapes filled with textures on a shaded background, with noise.

    shape, texture: indices in SHAPES and PATTERNS. size: side in pixels. rng: generator of the
    noise. Values are about [0, 1], not clipped.
    """
    image = composed(scenes, shape, shares(scenes, texture, size), size)
    grain = rng.standard_normal(image.shape, np.float32)
    return image + grain * scenes.sensor[:, None, None, None]


def composed(scenes: Scenes, shape: Ids, share: Plane, size: int) -> Image:
    """Return images of shapes and backgrounds with a given texture, without noise.

    Values are about [0, 1], not clipped. shape: index in SHAPES. share: share of the texture's
    second tone in each pixel, see `shares`. size: side in pixels.
    """
    inside = coverage(outlines(scenes, shape, size), size)
    return painted(scenes, inside, share, size)


def painted(scenes: Scenes, inside: Plane, share: Plane, size: int) -> Image:
    """Return images of figures of any outline, without noise; see `composed`.

    inside: share of each pixel that is inside the figure, in [0, 1].
    """
    first, second, paper = (t[:, None, None] for t in scenes.tones.T)
    x, y = axes(len(inside), size)
    shade = scenes.slope[:, :1, None] * x + scenes.slope[:, 1:, None] * y
    shade = shade + (share - 0.5) * scenes.echo[:, None, None]
    figure = (inside * (first + (second - first) * share))[..., None]
    ground = ((1 - inside) * (paper + shade))[..., None]
    return figure * scenes.fill[:, None, None] + ground * scenes.paper[:, None, None]


def _grey(plane: Plane) -> Image:
    """Return grey images: the plane in three channels."""
    return np.repeat(plane[..., None], 3, -1)


def silhouette(scenes: Scenes, shape: Ids, size: int) -> Image:
    """Return images in [0, 1] of black shapes on white; arguments: see `outlines`."""
    return _grey(1 - coverage(outlines(scenes, shape, size), size))


def edge(scenes: Scenes, shape: Ids, size: int) -> Image:
    """Return images in [0, 1] of outlines: black strokes of constant width on white.

    Arguments: see `outlines`.
    """
    return _grey(1 - coverage(np.abs(outlines(scenes, shape, size)) - STROKE, size))


def sketch(scenes: Scenes, shape: Ids, size: int) -> Image:
    """Return images in [0, 1] of sketches: two wobbly, broken grey strokes and some hatching.

    Arguments: see `outlines`.
    """
    field = outlines(scenes, shape, size)
    x, y = axes(len(shape), size)
    ink = np.zeros_like(field)
    for stroke, strength in ((0, 0.9), (9, 0.6)):
        wobble = noise(2.2 * x + stroke, 2.2 * y, scenes.table)
        pressure = noise(3 * x + 17, 3 * y + stroke, scenes.table)
        width = STROKE * np.clip(1.1 + 1.3 * pressure, 0, 1.2)
        cover = coverage(np.abs(field + 0.06 * wobble) - width, size)
        ink = np.maximum(ink, strength * cover * (width > 0))
    hatch = np.abs((x + y) / 0.36 - np.round((x + y) / 0.36)) * 0.25 - 0.03
    patches = noise(1.3 * x + 5, 1.3 * y + 5, scenes.table) > 0.05
    hatch = coverage(np.maximum(hatch, field + 0.08), size) * patches * 0.45
    return _grey(0.97 - 0.9 * np.maximum(ink, hatch))


def _corrupted(kind: str, image: Image, rng: Rng) -> Image:
    """Return images with one corruption; values may be outside of [0, 1].

    image: (n, h, w, 3), square, in [0, 1]. kind: a name of CORRUPTIONS:
      "noise": plus Gaussian noise of standard deviation 0.12 for each value.
      "impulse": 6 % of the pixels become black and 6 % white.
      "blur": a Gaussian of size / 32 pixels; edge pixels are repeated.
      "contrast": distances from the mean of all values of an image times 0.25.
      "brightness": 0.45 + 0.55 x.
      "pixelate": 18 x 18 blocks, each with the value at its centre.
    """
    size = image.shape[1]
    if kind == "noise":
        return image + 0.12 * rng.standard_normal(image.shape, np.float32)
    if kind == "impulse":
        hit = rng.random((*image.shape[:3], 1), np.float32)
        return np.where(hit < 0.06, 0, np.where(hit > 0.94, 1, image))
    if kind == "blur":
        spread = size / 32
        return ndimage.gaussian_filter(image, (0, spread, spread, 0), mode="nearest")
    if kind == "contrast":
        middle = image.mean((1, 2, 3), keepdims=True)
        return middle + 0.25 * (image - middle)
    if kind == "brightness":
        return 0.45 + 0.55 * image
    coarse = np.arange(size) * 18 // size  # Pixelate: the centre of each block.
    pick = ((coarse + 0.5) * size / 18).astype(int)
    return image[:, pick][:, :, pick]


def corrupt(image: Image, kind: Ids, rngs: Sequence[Rng]) -> Image:
    """Return images, each with the corruption CORRUPTIONS[kind].

    Images are clipped to [0, 1] before the corruption, not after it. kind: index of each
    image's corruption. rngs: a generator for each of CORRUPTIONS, in their order, so that
    images do not depend on corruptions that are added later.
    """
    out = np.empty_like(image)
    for k, name in enumerate(CORRUPTIONS):
        rows = np.flatnonzero(kind == k)
        out[rows] = _corrupted(name, np.clip(image[rows], 0, 1), rngs[k])
    return out


def quantise(image: Image) -> UInt8[np.ndarray, "n h w 3"]:
    """Return images in [0, 1] as bytes, rounded and clipped."""
    return np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)
