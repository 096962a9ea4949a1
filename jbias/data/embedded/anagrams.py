"""Pairs of pictures of the same sixteen tiles in two orders; each picture shows a shape.

The pictures are for the configural shape score (Doshi, Fel, Konkle and Alvarez, NeurIPS 2025,
https://arxiv.org/abs/2507.00493), whose authors made pairs of animals with a diffusion model.
Here no network is used, and the stimuli differ from the authors'.

Shapes and poses are as in the embedded data set "shapes", in black on white. For two shapes,
tiles are assigned to each other so that the sum of squared differences is minimal,
and each tile of a picture is the mean of the two tiles, grey where they differ. The margin of a
picture is the squared distance to the nearest other shape in any pose, minus the squared
distance to its own shape. Among many pairs of poses, the search selects the pair that
maximises the smaller of the two pictures' margins. The search is the same for every size.
"""

import itertools
import zlib

import numpy as np
from jaxtyping import Float, Int, UInt8

from jbias import errors
from jbias.data import base, cache, sources
from jbias.data.embedded import shape_scenes, shapes

VERSION = 1  # Of the drawing: change it with any change of a pixel.
SPLITS = ("test",)
GRID = 4
POSES = 32  # Of each shape in a block.
TRIES = 32  # Pairs of poses that are matched: those with the lowest bounds.
DRAFT = 32  # Pixels at which poses are selected and tiles matched.
PAIRS = tuple(itertools.combinations(range(len(shapes.CLASSES)), 2))  # In a block.

Tiles = Float[np.ndarray, "n t s s"]


def cut(planes: Float[np.ndarray, "n h w"]) -> Tiles:
    """Return the GRID x GRID tiles of each plane, row by row."""
    n, side = len(planes), planes.shape[1] // GRID
    tiles = planes.reshape(n, GRID, side, GRID, side).swapaxes(2, 3)
    return tiles.reshape(n, GRID**2, side, side)


def join(tiles: Tiles) -> Float[np.ndarray, "n h w"]:
    """Return planes from their GRID x GRID tiles, listed row by row: the inverse of `cut`."""
    n, _, side, _ = tiles.shape
    rows = tiles.reshape(n, GRID, GRID, side, side).swapaxes(2, 3)
    return rows.reshape(n, GRID * side, GRID * side)


def make(split: str, *, size: int = 32, n: int = 480, seed: int = 0) -> base.Source:
    """Return the source of n pictures, drawn or from the cache.

    Columns: "label", the shape, and "pair", the index of the pair; the two pictures of a pair
    are consecutive. All combinations of two shapes have equally many pairs.

    split: "test". size: side in pixels, a multiple of 4 from 32 to 224. n: a multiple of 240;
    picture i does not depend on n. ValueError for arguments outside their range.
    """
    shapes.check_drawing("anagrams", split, splits=SPLITS, size=size, seed=seed)
    for name, value, unit in (("n", n, 2 * len(PAIRS)), ("size", size, GRID)):
        errors.check_whole("anagrams", value, low=1, name=name)
        if value % unit:
            must = f"{name} must be a multiple of {unit}"
            near = max(1, round(value / unit)) * unit
            raise ValueError(f"anagrams: {must}, got {value}; try {near}")
    words = f"anagrams {VERSION} {int(n)} {int(size)} {int(seed)}"
    arrays = cache.remember("anagrams", words, _draw, n, size, seed)
    return sources.ArraySource(
        **shapes.source_fields("anagrams", split, size, arrays, words),
        classes=shapes.CLASSES,
        columns={key: arrays[key] for key in ("label", "pair")},
        note="after the idea of the authors' object anagrams, not these",
    )


def _draw(n: int, size: int, seed: int) -> dict[str, np.ndarray]:
    """Return {"image": (n size size 3), "label", "pair": (n)} of the first n pictures."""
    images = [_block(block, size, seed) for block in range(n // (2 * len(PAIRS)))]
    label = np.tile(np.ravel(PAIRS), len(images))
    columns = {"label": label, "pair": np.arange(n) // 2}
    columns = {name: column.astype(np.int32) for name, column in columns.items()}
    return {"image": np.concatenate(images), **columns}


def _block(block: int, size: int, seed: int) -> UInt8[np.ndarray, "m size size 3"]:
    """Return the images of one block: two consecutive images for each of PAIRS.

    block: index of the block. The first image shows the first shape of the pair, the
    second image the second shape.
    """
    rng = np.random.default_rng([seed, zlib.crc32(b"anagrams"), block])
    poses = shape_scenes.draw(rng, POSES)
    draft, tiles_of = _pose_tiles(poses, DRAFT), _pose_tiles(poses, size)
    pictures = []
    for a, b in PAIRS:
        p, q, order = _match(draft, a, b)
        tiles = (tiles_of[a, p] + tiles_of[b, q][order]) / 2
        pictures += [tiles, tiles[np.argsort(order)]]
    planes = 1 - join(np.stack(pictures))
    return shape_scenes.quantise(np.repeat(planes[..., None], 3, -1))


def _pose_tiles(
    poses: shape_scenes.Scenes, size: int
) -> Float[np.ndarray, "k p t s s"]:
    """Return the tiles t of each shape k in each pose p: 1 inside the shape, 0 outside.

    size: side of a picture in pixels.
    """
    k = len(shapes.CLASSES)
    rows, shape = np.tile(np.arange(POSES), k), np.repeat(np.arange(k), POSES)
    field = shape_scenes.outlines(poses[rows], shape, size)
    tiles = cut(shape_scenes.coverage(field, size))
    return tiles.reshape(k, POSES, *tiles.shape[1:])


def _match(
    draft: Float[np.ndarray, "k p t s s"], a: int, b: int
) -> tuple[int, int, Int[np.ndarray, "t"]]:
    """Return (pose of a, pose of b, order): the selected poses, and an order of the tiles.

    Poses are indices. order: for each tile of a, the index of the tile of b with which it is
    averaged. Of the TRIES pairs of poses with the smallest lower bounds on the tiles'
    differences, the pair with the largest margin is returned, see the module's docstring.
    draft: tiles of each shape in each pose, at a low resolution. a, b: indices of shapes.
    """
    from scipy import optimize  # Slow to import; only needed to draw.

    draft = draft.reshape(*draft.shape[:3], -1)
    first, second = draft[a], draft[b]
    first_squares, second_squares = (first**2).sum(-1), (second**2).sum(-1)
    product = np.einsum("pit,qjt->pqij", first, second, optimize=True)
    cost = first_squares[:, None, :, None] + second_squares[:, None] - 2 * product
    bound = np.maximum(cost.min(2).sum(-1), cost.min(3).sum(-1))
    pictures = draft.reshape(*draft.shape[:2], -1)
    squares = (pictures**2).sum(-1)

    def margin(tiles: np.ndarray, shape: int) -> float:
        """Return the margin of a picture with the given tiles; see the module's docstring."""
        distance = (squares - 2 * pictures @ tiles.ravel()).min(1)
        return np.delete(distance, shape).min() - distance[shape]

    best_margin, best = -np.inf, None
    for index in np.argsort(bound, axis=None, kind="stable")[:TRIES]:
        p, q = divmod(int(index), POSES)
        _, order = optimize.linear_sum_assignment(cost[p, q])
        tiles = (first[p] + second[q][order]) / 2
        smaller = min(margin(tiles, a), margin(tiles[np.argsort(order)], b))
        if smaller > best_margin:
            best_margin, best = smaller, (p, q, order)
    return best
