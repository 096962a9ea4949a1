"""Pairs of pictures of the same sixteen tiles in two orders, each of which shows a shape.

Meant for the configural shape score (Doshi, Fel, Konkle and Alvarez, NeurIPS 2025,
https://arxiv.org/abs/2507.00493), whose authors had a diffusion model paint pairs of
animals: these are not their stimuli, only made after the same idea, without a network.

Shapes are those of the embedded set, in its poses, black on white. For two of them, tiles
are assigned to each other so that the squares of their differences sum to the least, and a
tile is the mean of the two: grey where they differ. Of many poses those are taken whose
pictures are told apart best: by the margin, in squares, that either is nearer to its own
shape than to any other, in whatever pose. It is the same search for every size.
"""

import itertools
import zlib

import numpy as np
from jaxtyping import Float, Int

from jbias.data import base, cache, sources
from jbias.data.embedded import shape_scenes, shapes

VERSION = 1  # Of the drawing: change it with any change of a pixel.
SPLITS = ("test",)
GRID = 4
POSES = 32  # Of each shape in a block.
TRIES = 32  # Pairs of poses that are matched, those with the least bound of all.
DRAFT = 32  # Pixels at which poses are chosen and tiles matched.
PAIRS = tuple(itertools.combinations(range(len(shapes.CLASSES)), 2))  # In a block.

Tiles = Float[np.ndarray, "n t s s"]


def cut(planes: Float[np.ndarray, "n h w"]) -> Tiles:
    """The tiles of each plane, row by row."""
    n, side = len(planes), planes.shape[1] // GRID
    tiles = planes.reshape(n, GRID, side, GRID, side).swapaxes(2, 3)
    return tiles.reshape(n, GRID**2, side, side)


def join(tiles: Tiles) -> Float[np.ndarray, "n h w"]:
    """Planes of tiles, row by row."""
    n, _, side, _ = tiles.shape
    rows = tiles.reshape(n, GRID, GRID, side, side).swapaxes(2, 3)
    return rows.reshape(n, GRID * side, GRID * side)


def make(split: str, *, size: int = 32, n: int = 480, seed: int = 0) -> base.Source:
    """Draws, or reads from the cache, n pictures, of each two shapes as many pairs.

    Column "pair" numbers the pairs; the two pictures of one follow each other. n is a
    multiple of 240, size one of 4; picture i does not depend on n. Raises ValueError, one
    line, for arguments outside their range.
    """
    shapes.check_drawing("anagrams", split, SPLITS, size, seed)
    for name, value, unit in (("n", n, 2 * len(PAIRS)), ("size", size, GRID)):
        base.check_int(f"anagrams: {name}", value, 1)
        if value % unit:
            must = f"{name} must be a multiple of {unit}"
            near = max(1, round(value / unit)) * unit
            raise ValueError(f"anagrams: {must}, got {value}; try {near}")
    words = f"anagrams {VERSION} {int(n)} {int(size)} {int(seed)}"
    arrays = cache.remember("anagrams", words, _draw, n, size, seed)
    about = shapes.describe("anagrams", split, size, arrays, words)
    about["columns"] = {key: arrays[key] for key in ("label", "pair")}
    note = "after the idea of the authors' object anagrams, not these"
    return sources.ArraySource(classes=shapes.CLASSES, note=note, **about)


def _draw(n: int, size: int, seed: int) -> dict[str, np.ndarray]:
    images = [_block(block, size, seed) for block in range(n // (2 * len(PAIRS)))]
    label = np.tile(np.ravel(PAIRS), len(images))
    columns = {"label": label, "pair": np.arange(n) // 2}
    columns = {name: column.astype(np.int32) for name, column in columns.items()}
    return {"image": np.concatenate(images), **columns}


def _block(block: int, size: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng([seed, zlib.crc32(b"anagrams"), block])
    poses = shape_scenes.draw(rng, POSES)
    draft, drawn = (_drawn(poses, side) for side in (DRAFT, size))
    found = []
    for a, b in PAIRS:
        p, q, order = _match(draft, a, b)
        tiles = (drawn[a, p] + drawn[b, q][order]) / 2
        found += [tiles, tiles[np.argsort(order)]]
    planes = 1 - join(np.stack(found))
    return shape_scenes.quantise(np.repeat(planes[..., None], 3, -1))


def _drawn(poses: shape_scenes.Scenes, size: int) -> Float[np.ndarray, "k p t s s"]:
    """The tiles of each shape in each pose, 1 inside."""
    k = len(shapes.CLASSES)
    rows, shape = np.tile(np.arange(POSES), k), np.repeat(np.arange(k), POSES)
    field = shape_scenes.outlines(poses[rows], shape, size)
    tiles = cut(shape_scenes.coverage(field, size))
    return tiles.reshape(k, POSES, *tiles.shape[1:])


def _match(
    draft: Float[np.ndarray, "k p t s s"], a: int, b: int
) -> tuple[int, int, Int[np.ndarray, "t"]]:
    """Poses of two shapes, and which tile of the second goes with each of the first."""
    from scipy import optimize  # Takes 0.2 s, which no start of training waits for.

    draft = draft.reshape(*draft.shape[:3], -1)
    one, other = draft[a], draft[b]
    squares = [(x**2).sum(-1) for x in (one, other)]
    both = np.einsum("pit,qjt->pqij", one, other, optimize=True)
    cost = squares[0][:, None, :, None] + squares[1][:, None] - 2 * both
    bound = np.maximum(*(cost.min(axis).sum(-1) for axis in (2, 3)))
    pictures = draft.reshape(*draft.shape[:2], -1)
    length, best = (pictures**2).sum(-1), (-np.inf,)

    def margin(tiles: np.ndarray, own: int) -> float:
        away = (length - 2 * pictures @ tiles.ravel()).min(1)
        return np.delete(away, own).min() - away[own]

    for at in np.argsort(bound, axis=None, kind="stable")[:TRIES]:
        p, q = divmod(int(at), POSES)
        _, order = optimize.linear_sum_assignment(cost[p, q])
        tiles = (one[p] + other[q][order]) / 2
        worse = min(margin(tiles, a), margin(tiles[np.argsort(order)], b))
        best = max(best, (worse, p, q, order), key=lambda found: found[0])
    return best[1:]
