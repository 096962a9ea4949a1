"""Stimuli of feature suppression: images without shape, texture or colour, on the device.

The metrics are in the module `suppression`.

Reference code: https://github.com/tomburgert/feature-reliance at bdb101b, transform.py,
where filters are OpenCV's and tiles are shuffled by Albumentations. As in that code, each step
maps bytes to bytes.
Deviations: filters are those that OpenCV documents, without the fixed-point numbers that its
blur (errors up to 1.7), non-local means (0.5) and resizing use. Random draws depend on the
image's number and on the step, so that the same tiles are moved in conditions with and without
colours. Bytes differ from OpenCV's by at most one level, in few pixels.
Lengths in pixels are for sides of 224 pixels, and are scaled to other sides, to at least one
pixel; for sides of `reference` pixels they are as published.
"""

import functools
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy import ndimage

from jbias import errors
from jbias.augment import corruption_operations
from jbias.measures import cue_reliance
from jbias.stimuli import octave_noise, random_draws, shown

Image = Float[Array, "h w 3"]  # Whole numbers, 0 to 255.
Settings = Mapping[str, Any]  # Arrays of a step, of `settings`.
MAX_GRID = max(cue_reliance.GRIDS)
SMALLEST = 2 * MAX_GRID  # Side in pixels with tiles of two pixels.
SPACE_SIGMA = 75  # Of the bilateral filter, in pixels, for sides of 224 pixels.
TEMPLATE, SEARCH = 7, 10  # Radii of non-local means: windows of 15 (for 14) and 21.
LEAST_WEIGHT = 0.001  # Of non-local means; smaller weights are 0.


def make(
    *,
    side: int = cue_reliance.SIDE,
    families: Sequence[str] = tuple(cue_reliance.FAMILIES),
    reference: int = cue_reliance.SIDE,
    classes: Sequence[str] = (),
    draws: int = 1000,
    seed: int = 0,
) -> shown.Stimuli:
    """Return a probe that shows images unchanged, and under the conditions of some families.

    families: keys of cue_reliance.FAMILIES. side: image side in pixels. reference: side, in pixels,
    of the images that the published lengths are for; lengths are multiplied by side / reference.
    classes: the names of the decision classes. draws: bootstrap samples of the images. seed: random
    seed of the bootstrap and of random steps. Metrics: see `cue_reliance.numbers`. ValueError for
    invalid options.
    """
    is_large = isinstance(side, int) and side >= SMALLEST
    must = f"be at least {SMALLEST} pixels, for {MAX_GRID} by {MAX_GRID} tiles of two"
    errors.check(is_large, "suppression", must, side, name="side")
    errors.check_choices(
        "suppression", families, cue_reliance.FAMILIES, name="families"
    )
    errors.check_class_names("suppression: classes", classes)
    errors.check_condition(
        "suppression", "at least 1", reference=reference, draws=draws
    )
    scale = side / reference
    of_families = itertools.chain(*(cue_reliance.FAMILIES[name] for name in families))
    names = [cue_reliance.CLEAN, *dict.fromkeys(of_families)]
    onto = {  # The bilateral filter is slow, and the first step of many conditions.
        name: first
        for first in cue_reliance.FAMILIES["bilateral"]
        for name in names
        if first in names and name.startswith(f"{first} ")
    }
    steps = {
        name: cue_reliance.steps(name.removeprefix(onto.get(name, "")))
        for name in names
    }
    conditions = {
        name: tuple(settings(kind, strength, side, scale) for kind, strength in pairs)
        for name, pairs in steps.items()
    }
    largest_radius = max(_radius(d // 2, scale) for d in cue_reliance.BILATERAL)
    apply: dict[str, Callable[..., Image]] = {
        "shuffle": shuffle_tiles,
        "rotation": rotate_tiles,
        "bilateral": functools.partial(bilateral, largest_radius=largest_radius),
        "blur": blur,
        "non_local_means": functools.partial(
            non_local_means,
            template=_radius(TEMPLATE, scale),
            search=_radius(SEARCH, scale),
        ),
        "grey": grey,
        "channel_shuffle": shuffle_channels,
    }

    def show(
        rows: shown.Rows, params: tuple[Settings, ...], kinds: tuple[str, ...]
    ) -> shown.Images:
        """Return the images in [0, 1] after some steps, in order.

        kinds: by step, its kind, such as "blur". params: by step, a result of `settings`. Images
        are rounded to bytes before the first step.
        """
        image = jnp.round(rows.image * 255)
        for kind, step_settings in zip(kinds, params, strict=True):
            keys = random_draws.image_keys(seed, step_settings["salt"], rows.index)
            step = functools.partial(apply[kind], s=step_settings)
            image = jax.vmap(step)(image, keys)
        return image / 255

    is_slow = re.compile(r"(bilateral|non_local_means) \S+").fullmatch
    return shown.Stimuli(
        conditions,
        show,
        functools.partial(
            cue_reliance.numbers, classes=len(classes), draws=draws, seed=seed
        ),
        static=lambda name: tuple(kind for kind, _ in steps[name]),
        onto=onto,
        slow=[name for name in names if is_slow(name)],
    )


def settings(kind: str, strength: float, side: int, scale: float) -> Settings:
    """Return the arrays of a step, by name, and "salt", the salt of its random draws.

    Arrays: the result of `_tiles` for "shuffle" and "rotation", the result of `_bilateral`,
    "matrix" for "blur", and "strength" for other kinds. kind: the first word of a step in
    cue_reliance.FAMILIES, such as "blur". strength: the number after that word. side: image side in
    pixels. scale: factor of published lengths. Equal steps have equal random draws in all
    conditions.
    """
    if kind == "shuffle":
        arrays = _tiles(side, int(strength))
    elif kind == "rotation":
        arrays = _tiles(math.ceil(side / strength) * int(strength), int(strength))
    elif kind == "bilateral":
        arrays = _bilateral(int(strength), scale)
    elif kind == "blur":
        arrays = {"matrix": _blur_matrix(int(strength), side, scale)}
    else:
        arrays = {"strength": np.float32(strength)}
    return arrays | {"salt": random_draws.salt(f"{kind} {strength:g}")}


def _radius(published: int, scale: float) -> int:
    """Return a published radius, in pixels, times `scale`, as a whole number of at least 1."""
    return max(1, round(published * scale))


# Shape: tiles are moved.


def _tiles(side: int, g: int) -> dict[str, np.ndarray]:
    """Return the layout of g by g tiles with edges at floor(i side / g), as int32 arrays by name.

    side: image side in pixels. Keys: tile, within: for each row of pixels, the index of its tile
    and its position in the tile. start: the first pixel of each tile. length: the number of
    pixels of the first tile. Columns have the same layout. group: for each of MAX_GRID by
    MAX_GRID tiles, row by row, an index of its size in 0 ... 3, or 4 for no tile; order: tiles
    sorted by group.
    """
    edges = np.arange(g + 1) * side // g
    length = np.diff(edges)
    tile = np.repeat(np.arange(g), length)
    group = np.full((MAX_GRID, MAX_GRID), 4)
    is_large = length > length.min()
    group[:g, :g] = 2 * is_large[:, None] + is_large
    group = group.ravel()
    start = np.zeros(MAX_GRID, int)
    start[:g] = edges[:-1]
    return {
        "tile": np.int32(tile),
        "within": np.int32(np.arange(side) - edges[tile]),
        "start": np.int32(start),
        "length": np.int32(length[0]),
        "group": np.int32(group),
        "order": np.int32(np.argsort(group, kind="stable")),
    }


def shuffle_tiles(image: Image, key: PRNGKeyArray, *, s: Settings) -> Image:
    """Return an image whose tiles are permuted at random among tiles of equal height and width.

    s: result of `settings` for "shuffle".
    """
    drawn = jnp.lexsort((jax.random.uniform(key, s["group"].shape), s["group"]))
    source = jnp.zeros_like(drawn).at[s["order"]].set(drawn).reshape(MAX_GRID, MAX_GRID)
    source = source[s["tile"][:, None], s["tile"][None]]
    row = s["start"][source // MAX_GRID] + s["within"][:, None]
    column = s["start"][source % MAX_GRID] + s["within"][None]
    return image[row, column]


def rotate_tiles(image: Image, key: PRNGKeyArray, *, s: Settings) -> Image:
    """Return an image with each tile rotated by a random multiple of 90 degrees.

    If tiles do not divide the side, the image is enlarged before and reduced after. s: result
    of `settings` for "rotation".
    """
    side, enlarged_side = len(image), len(s["tile"])
    turns = jax.random.randint(key, (MAX_GRID, MAX_GRID), 0, 4)
    turns = turns[s["tile"][:, None], s["tile"][None]]
    down, right = jnp.meshgrid(s["within"], s["within"], indexing="ij")
    up, left = s["length"] - 1 - down, s["length"] - 1 - right
    start = s["start"][s["tile"]]
    row = start[:, None] + jnp.choose(turns, [down, right, up, left], mode="clip")
    column = start[None] + jnp.choose(turns, [right, up, left, down], mode="clip")
    return _resize(_resize(image, enlarged_side)[row, column], side)


def _resize(image: Image, side: int) -> Image:
    """Return a square image resized bilinearly to `side` pixels without antialiasing, as by OpenCV.

    Values are rounded to whole numbers.
    """
    shape = side, side, 3
    if image.shape == shape:
        return image
    return jnp.round(jax.image.resize(image, shape, "linear", antialias=False))


# Texture: smooth regions stay.


def _bilateral(d: int, scale: float) -> dict[str, np.ndarray]:
    """Return the arrays of `bilateral`, by name.

    "offset": (row, column) offsets of neighbours by distance, of which the first "count" are
    used; "space": their weights by distance; "sigma": sigma of colour differences. d: the
    published diameter, a key of cue_reliance.BILATERAL. scale: factor of published lengths.
    """
    largest_radius = max(_radius(x // 2, scale) for x in cue_reliance.BILATERAL)
    radius = _radius(d // 2, scale)
    around = np.arange(-largest_radius, largest_radius + 1)
    offsets = np.stack(np.meshgrid(around, around, indexing="ij"), -1).reshape(-1, 2)
    squared = (offsets**2).sum(1)
    order = np.argsort(squared, kind="stable")
    space = np.exp(-squared / (2 * (SPACE_SIGMA * scale) ** 2))
    return {
        "offset": np.int32(offsets[order]),
        "space": np.float32(space[order]),
        "count": np.int32((squared <= radius**2).sum()),
        "sigma": np.float32(cue_reliance.BILATERAL[d]),
    }


def bilateral(
    image: Image, key: PRNGKeyArray, *, s: Settings, largest_radius: int
) -> Image:
    """Return a bilaterally filtered image: means of near pixels, weighted by similar colour.

    s: result of `_bilateral`. largest_radius: the largest radius of all strengths, in pixels.
    key: unused. Weights are exp(-L^2 / 2 sigma^2 - (i^2 + j^2) / 2 space^2), with L the sum
    over channels of absolute differences. Edges are mirrored without repeating the last
    pixel.
    """
    planes = jnp.moveaxis(image, -1, 0)
    padded = _mirror(planes, largest_radius)

    def add(k: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
        down, right = largest_radius + s["offset"][k]
        neighbour = _shift(padded, down, right, planes.shape)
        difference = jnp.abs(neighbour - planes).sum(0)
        weight = s["space"][k] * jnp.exp(-((difference / s["sigma"]) ** 2) / 2)
        return sums[0] + weight[None] * neighbour, sums[1] + weight

    return _weighted_mean(jax.lax.fori_loop(0, s["count"], add, _zero_sums(planes)))


def _blur_matrix(k: int, side: int, scale: float) -> Float[np.ndarray, "n n"]:
    """Return the matrix that convolves `side` pixels with a Gaussian of k points.

    k: a key of cue_reliance.BLUR. scale: factor of published lengths. Ends are mirrored
    without repeating the edge.
    """
    radius = _radius(k // 2, scale)
    at = np.arange(-radius, radius + 1) / (cue_reliance.BLUR[k] * scale)
    kernel = np.exp(-(at**2) / 2)
    weights = kernel / kernel.sum()
    return np.float32(ndimage.correlate1d(np.eye(side), weights, 0, mode="mirror"))


def blur(image: Image, key: PRNGKeyArray, *, s: Settings) -> Image:
    """Return an image convolved with a Gaussian along both axes, as whole numbers.

    s: result of `settings` for "blur". key: unused.
    """
    return jnp.round(corruption_operations.filtered(image, s["matrix"]))


def non_local_means(
    image: Image, key: PRNGKeyArray, *, s: Settings, template: int, search: int
) -> Image:
    """Return an image filtered by non-local means, as whole numbers.

    Each pixel is a weighted mean over a window. Weights are exp(-D / 3 h^2), or 0 if that is below
    LEAST_WEIGHT, with h the strength and D the mean, over the square of radius `template`, of
    squared differences summed over channels. search: radius of the window, in pixels. s: result of
    `settings` for "non_local_means". key: unused. Edges are mirrored without repeating the last
    pixel.
    """
    planes = jnp.moveaxis(image, -1, 0)
    padded = _mirror(planes, search + template)
    centre = padded[:, search:-search, search:-search]
    window = 2 * search + 1

    def add(k: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
        shifted = _shift(padded, k // window, k % window, centre.shape)
        difference = _square_means(((shifted - centre) ** 2).sum(0), 2 * template + 1)
        weight = jnp.exp(-difference / (3 * s["strength"] ** 2))
        weight = jnp.where(weight < LEAST_WEIGHT, 0, weight)
        neighbour = shifted[:, template:-template, template:-template]
        return sums[0] + weight[None] * neighbour, sums[1] + weight

    return _weighted_mean(jax.lax.fori_loop(0, window**2, add, _zero_sums(planes)))


def _square_means(plane: Float[Array, "h w"], size: int) -> Float[Array, "m n"]:
    """Return the mean of each window of `size` by `size` pixels, with stride 1 and no padding.

    m = h - size + 1, n = w - size + 1.
    """
    for axis in (0, 1):
        length = plane.shape[axis] - size + 1
        cut = functools.partial(jax.lax.slice_in_dim, axis=axis)
        plane = sum(cut(plane, k, k + length) for k in range(size))
        # Keeps XLA from computing the row sums again for each column sum.
        plane = jax.lax.optimization_barrier(plane)
    return plane / size**2


def _mirror(planes: Float[Array, "3 h w"], width: int) -> Float[Array, "3 m n"]:
    """Return planes with a border of `width` mirrored pixels, without repeating the edge."""
    return jnp.pad(planes, ((0, 0), (width, width), (width, width)), mode="reflect")


def _shift(
    padded: Float[Array, "3 m n"], down: Array, right: Array, shape: tuple[int, ...]
) -> Float[Array, "3 h w"]:
    """Return the part of padded planes with upper left pixel (down, right) and the given shape."""
    return jax.lax.dynamic_slice(padded, (jnp.zeros_like(down), down, right), shape)


def _zero_sums(planes: Float[Array, "3 h w"]) -> tuple[Array, Array]:
    """Return (zeros for the weighted sum of pixels, zeros for the sum of weights)."""
    return jnp.zeros_like(planes), jnp.zeros_like(planes[0])


def _weighted_mean(sums: tuple[Array, Array]) -> Image:
    """Return the image of the weighted sum divided by the sum of weights, rounded.

    sums: (weighted sum of pixels, sum of weights).
    """
    total, weight = sums
    return jnp.moveaxis(jnp.round(total / weight[None]), 0, -1)


# Colour.


def grey(image: Image, key: PRNGKeyArray, *, s: Settings) -> Image:
    """Return an image x with part of its colour removed: (1 - a) x + a grey(x), as whole numbers.

    a is s["strength"]. key: unused.
    """
    levels = octave_noise.grey(image / 255)[..., None]
    return corruption_operations.truncated(
        (1 - s["strength"]) * image + s["strength"] * levels
    )


def shuffle_channels(image: Image, key: PRNGKeyArray, *, s: Settings) -> Image:
    """Return an image with its channels in random order; s: unused."""
    return image[..., jax.random.permutation(key, 3)]
