"""Images without shape, texture or colour, on the device; what it is for: `suppression`.

Reference code: https://github.com/tomburgert/feature-reliance at bdb101b, transform.py,
where filters are OpenCV's and tiles are shuffled by Albumentations. Each step takes bytes
and gives bytes, as there.
Deviations: filters are as OpenCV defines them, without the fixed-point numbers that its
blur (up to 1.7 off), non-local means (0.5) and resizing use. An image's draws are those of
its number and of the step, so that the same tiles are moved with colours and without. Their
lengths in pixels are for 224 a side, and follow other sides in proportion, but are never
less than one pixel; of `reference` pixels a side they are as published.
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

from jbias.augment import imagenet_c, options
from jbias.evals import critical_band_stimuli, occlusion, probe, suppression

Image = Float[Array, "h w 3"]  # Whole numbers, 0 to 255.
Settings = Mapping[str, Any]
MOST = max(suppression.GRIDS)
SMALLEST = 2 * MOST  # Pixels a side, for tiles of two pixels.
SPACE_SIGMA = 75  # Of the bilateral filter, in pixels of 224 a side.
TEMPLATE, SEARCH = 7, 10  # Radii of non-local means: 14 is taken for 15, and 21.
LEAST_WEIGHT = 0.001  # Of non-local means; a smaller one is 0.


def make(
    *,
    side: int = suppression.SIDE,
    families: Sequence[str] = tuple(suppression.FAMILIES),
    reference: int = suppression.SIDE,
    classes: Sequence[str] = (),
    draws: int = 1000,
    seed: int = 0,
) -> probe.Probe:
    """Images as they are, and under the conditions of these families of suppression.FAMILIES.

    side: of the images, in pixels. reference: the side whose lengths are the published
    ones. classes: the names of the decision classes. draws: of the bootstrap over images.
    ValueError for others.
    """
    large = isinstance(side, int) and side >= SMALLEST
    must = f"side must be at least {SMALLEST} pixels, for {MOST} by {MOST} tiles of two"
    probe.check(large, "suppression", must, side)
    probe.check_choices("suppression", "families", families, suppression.FAMILIES)
    probe.check_class_names("suppression: classes", classes)
    options.check_plain("suppression", "at least 1", reference=reference, draws=draws)
    scale = side / reference
    names = itertools.chain(*(suppression.FAMILIES[name] for name in families))
    names = [suppression.CLEAN, *dict.fromkeys(names)]
    onto = {  # The filter takes long, and is the first step of many.
        name: first
        for first in suppression.FAMILIES["bilateral"]
        for name in names
        if first in names and name.startswith(f"{first} ")
    }
    rest = {name: name.removeprefix(onto.get(name, "")) for name in names}
    steps = {name: suppression.steps(left) for name, left in rest.items()}
    conditions = {
        name: tuple(settings(*step, side, scale) for step in each)
        for name, each in steps.items()
    }
    reach = max(_radius(d // 2, scale) for d in suppression.BILATERAL)
    radii = dict(template=_radius(TEMPLATE, scale), search=_radius(SEARCH, scale))
    apply: dict[str, Callable[..., Image]] = {
        "shuffle": shuffle_tiles,
        "rotation": rotate_tiles,
        "bilateral": functools.partial(bilateral, reach=reach),
        "blur": blur,
        "non_local_means": functools.partial(non_local_means, **radii),
        "grey": grey,
        "channel_shuffle": shuffle_channels,
    }

    def show(rows: probe.Rows, params: tuple[Settings, ...], kinds: tuple[str, ...]):
        image = jnp.round(rows.image * 255)
        for kind, one in zip(kinds, params, strict=True):
            keys = occlusion.image_keys(seed, one["salt"], rows.index)
            image = jax.vmap(functools.partial(apply[kind], s=one))(image, keys)
        return image / 255

    counting = dict(classes=len(classes), draws=draws, seed=seed)
    counted = functools.partial(suppression.numbers, **counting)
    kinds = lambda name: tuple(kind for kind, _ in steps[name])
    slow = re.compile(r"(bilateral|non_local_means) \S+").fullmatch
    how = dict(static=kinds, onto=onto, slow=[*filter(slow, names)])
    return probe.Probe(conditions, show, counted, **how)


def settings(kind: str, strength: float, side: int, scale: float) -> Settings:
    """What a step takes; `salt` of its draws is the same in every condition that has it."""
    if kind == "shuffle":
        found = _tiles(side, int(strength))
    elif kind == "rotation":
        found = _tiles(math.ceil(side / strength) * int(strength), int(strength))
    elif kind == "bilateral":
        found = _bilateral(int(strength), scale)
    elif kind == "blur":
        found = {"matrix": _blur_matrix(int(strength), side, scale)}
    else:
        found = {"strength": np.float32(strength)}
    return found | {"salt": occlusion.salt(f"{kind} {strength:g}")}


def _radius(published: int, scale: float) -> int:
    return max(1, round(published * scale))


# Shape: tiles are moved.


def _tiles(side: int, g: int) -> dict[str, np.ndarray]:
    """How g by g tiles lie, at most MOST by MOST, with edges at floor(i side / g).

    tile, within: of each row of pixels, the tile it is in and its place there. start,
    length: of each tile. Columns are alike. group: of tiles by rows, those of one size;
    order: tiles by their groups.
    """
    edges = np.arange(g + 1) * side // g
    length = np.diff(edges)
    tile = np.repeat(np.arange(g), length)
    kinds = np.full((MOST, MOST), 4)  # There are no such tiles.
    large = length > length.min()
    kinds[:g, :g] = 2 * large[:, None] + large
    start = np.zeros(MOST, int)
    start[:g] = edges[:-1]
    found = dict(tile=tile, within=np.arange(side) - edges[tile], start=start)
    found |= dict(length=length[0], group=kinds.ravel())
    found |= dict(order=np.argsort(found["group"], kind="stable"))
    return {key: np.int32(value) for key, value in found.items()}


def shuffle_tiles(image: Image, key: PRNGKeyArray, *, s: Settings) -> Image:
    """Puts tiles in a uniform order among those of the same height and width."""
    drawn = jnp.lexsort((jax.random.uniform(key, s["group"].shape), s["group"]))
    source = jnp.zeros_like(drawn).at[s["order"]].set(drawn).reshape(MOST, MOST)
    source = source[s["tile"][:, None], s["tile"][None]]
    row = s["start"][source // MOST] + s["within"][:, None]
    column = s["start"][source % MOST] + s["within"][None]
    return image[row, column]


def rotate_tiles(image: Image, key: PRNGKeyArray, *, s: Settings) -> Image:
    """Turns each tile by a multiple of 90 degrees, all four as likely.

    For sides that the tiles do not divide the image is enlarged, and reduced again.
    """
    side, whole = len(image), len(s["tile"])
    turns = jax.random.randint(key, (MOST, MOST), 0, 4)
    turns = turns[s["tile"][:, None], s["tile"][None]]
    down, right = jnp.meshgrid(s["within"], s["within"], indexing="ij")
    up, left = s["length"] - 1 - down, s["length"] - 1 - right
    start = s["start"][s["tile"]]
    row = start[:, None] + jnp.choose(turns, [down, right, up, left], mode="clip")
    column = start[None] + jnp.choose(turns, [right, up, left, down], mode="clip")
    return _resized(_resized(image, whole)[row, column], side)


def _resized(image: Image, side: int) -> Image:
    """Bilinear without antialiasing, as OpenCV resizes."""
    shape = side, side, 3
    if image.shape == shape:
        return image
    return jnp.round(jax.image.resize(image, shape, "linear", antialias=False))


# Texture: what is smooth stays.


def _bilateral(d: int, scale: float) -> dict[str, np.ndarray]:
    """Offsets within the radius, as many as `count`, with their weights by distance."""
    reach = max(_radius(one // 2, scale) for one in suppression.BILATERAL)
    radius = _radius(d // 2, scale)
    around = np.arange(-reach, reach + 1)
    offsets = np.stack(np.meshgrid(around, around, indexing="ij"), -1).reshape(-1, 2)
    squared = (offsets**2).sum(1)
    order = np.argsort(squared, kind="stable")
    space = np.exp(-squared / (2 * (SPACE_SIGMA * scale) ** 2))
    return {
        "offset": np.int32(offsets[order]),
        "space": np.float32(space[order]),
        "count": np.int32((squared <= radius**2).sum()),
        "sigma": np.float32(suppression.BILATERAL[d]),
    }


def bilateral(image: Image, key: PRNGKeyArray, *, s: Settings, reach: int) -> Image:
    """Means of what is near in place and in colour, all channels together.

    Weights are exp(-L^2 / 2 sigma^2 - (i^2 + j^2) / 2 space^2), L the sum over channels of
    absolute differences. Edges are mirrored without repeating the last pixel.
    """
    planes = jnp.moveaxis(image, -1, 0)
    wide = _mirrored(planes, reach)

    def add(k: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
        near = _shifted(wide, *(reach + s["offset"][k]), planes.shape)
        apart = jnp.abs(near - planes).sum(0)
        weight = s["space"][k] * jnp.exp(-((apart / s["sigma"]) ** 2) / 2)
        return sums[0] + weight[None] * near, sums[1] + weight

    return _means(jax.lax.fori_loop(0, s["count"], add, _nothing(planes)))


def _blur_matrix(k: int, side: int, scale: float) -> Float[np.ndarray, "n n"]:
    """A Gaussian of k points of `side`, sum 1, mirrored without repeating the edge."""
    radius = _radius(k // 2, scale)
    at = np.arange(-radius, radius + 1) / (suppression.BLUR[k] * scale)
    kernel = np.exp(-(at**2) / 2)
    weights = kernel / kernel.sum()
    return np.float32(ndimage.correlate1d(np.eye(side), weights, 0, mode="mirror"))


def blur(image: Image, key: PRNGKeyArray, *, s: Settings) -> Image:
    """Convolves rows and columns with a Gaussian."""
    return jnp.round(imagenet_c.filter_both_axes(image, s["matrix"]))


def non_local_means(
    image: Image, key: PRNGKeyArray, *, s: Settings, template: int, search: int
) -> Image:
    """Means over a square of pixels, by how alike the squares about them are.

    Weights are exp(-D / 3 h^2), h the strength, D the mean over the square of radius
    `template` of squared differences summed over channels. Edges as of `bilateral`.
    """
    planes = jnp.moveaxis(image, -1, 0)
    wide = _mirrored(planes, search + template)
    around = wide[:, search:-search, search:-search]
    across = 2 * search + 1

    def add(k: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
        other = _shifted(wide, k // across, k % across, around.shape)
        apart = _square_means(((other - around) ** 2).sum(0), 2 * template + 1)
        weight = jnp.exp(-apart / (3 * s["strength"] ** 2))
        weight = jnp.where(weight < LEAST_WEIGHT, 0, weight)
        near = other[:, template:-template, template:-template]
        return sums[0] + weight[None] * near, sums[1] + weight

    return _means(jax.lax.fori_loop(0, across**2, add, _nothing(planes)))


def _square_means(plane: Float[Array, "h w"], size: int) -> Float[Array, "m n"]:
    """Means over all squares that lie inside."""
    for axis in (0, 1):
        length = plane.shape[axis] - size + 1
        cut = functools.partial(jax.lax.slice_in_dim, axis=axis)
        plane = sum(cut(plane, k, k + length) for k in range(size))
        plane = jax.lax.optimization_barrier(plane)  # Not summed again for each sum.
    return plane / size**2


def _mirrored(planes: Float[Array, "3 h w"], by: int) -> Float[Array, "3 m n"]:
    return jnp.pad(planes, ((0, 0), (by, by), (by, by)), mode="reflect")


def _shifted(wide: Float[Array, "3 m n"], down: Array, right: Array, shape) -> Array:
    return jax.lax.dynamic_slice(wide, (jnp.zeros_like(down), down, right), shape)


def _nothing(planes: Float[Array, "3 h w"]) -> tuple[Array, Array]:
    return jnp.zeros_like(planes), jnp.zeros_like(planes[0])


def _means(sums: tuple[Array, Array]) -> Image:
    total, weight = sums
    return jnp.moveaxis(jnp.round(total / weight[None]), 0, -1)


# Colour.


def grey(image: Image, key: PRNGKeyArray, *, s: Settings) -> Image:
    """(1 - a) x + a grey, a the strength, cut to whole numbers."""
    levels = critical_band_stimuli.grey(image / 255)[..., None]
    return imagenet_c.to_bytes((1 - s["strength"]) * image + s["strength"] * levels)


def shuffle_channels(image: Image, key: PRNGKeyArray, *, s: Settings) -> Image:
    """Puts the channels in one of their six orders, all as likely."""
    return image[..., jax.random.permutation(key, 3)]
