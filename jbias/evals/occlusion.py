"""Accuracy with a part of each image hidden: CutOcclusion, iOcclusion, and their masks.

Source: Marcu and Pruegel-Bennett, "On the effects of data distortion on model analysis and
training", https://arxiv.org/abs/2110.13968.
Reference code: https://github.com/AntoniaMarcu/Data-Modification at 1cb7717, occlusion.py,
gradcam.py, distortions.py and DI.py; of the rectangles,
https://github.com/pytorchbearer/torchbearer at 0e8484c.

A mask is True where an image is hidden. Each image has its own, by a key from its number in
its set, so that neither batches nor devices matter.
Deviation: the release hides pixels after the normalisation, with 0: its black is the mean
colour of the training set. Here black is black, as the paper has it, and the mean colour is
a fill of its own.

`make` (section 5 of the paper) hides growing fractions; `iocclusion` makes the index of
what is measured on training and test images.
Deviations: as of `grad_cam`. The release tosses a coin for each image whether the most or
the least salient pixels are hidden, and takes the map in 8 bits: the order "random" with
quantise=True does so, the default is the paper's. There the least are floor(i h w) pixels,
and ties are in no order.

`make_cut_occlusion` hides one rectangle, by black, by the mean colour or by another image:
with the shape fixed, the fills show how much the fill has to do with what a network
decides, by the data interference index (Table 3 of the paper).
"""

import functools
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped, UInt8

from jbias.augment import cutmix, fmix, options
from jbias.evals import grad_cam, interference, probe

FILLS = ("black", "mean", "other")
Number = Shaped[Array, ""]
Mask = Bool[Array, "*b h w"]
Fill = Float[Array, "#b #h #w 3"]  # What stands in hidden places.
MEAN = (0.485, 0.456, 0.406)  # Of ImageNet's training images.


def salt(drawn: str) -> np.uint32:
    """What tells draws of one kind from others, as `image_keys` takes it."""
    return np.uint32(zlib.crc32(drawn.encode()))


def image_keys(seed: int, salt: Int[Array, ""], index: Int[Array, "b"]) -> PRNGKeyArray:
    """A key for each image, of its number in its set and of what is drawn."""
    key = jax.random.fold_in(jax.random.key(seed), salt)
    return jax.vmap(jax.random.fold_in, (None, 0))(key, index)


def rectangle_mask(
    key: PRNGKeyArray, area: Number, height: int, width: int, *, restricted: bool
) -> Mask:
    """Hides a rectangle of sides round(sqrt(area) h) and round(sqrt(area) w).

    It lies from side // 2 before its centre to below side // 2 after it, so an odd side
    loses a pixel. Halves are rounded to even. The centre is uniform over all pixels, and
    what is outside is cut; or, if `restricted`, uniform over round(s / 2) ...
    n - round(s / 2) - 1 for a side s of n pixels, or s // 2 where these are none. Then
    nothing is cut, and as in the release the last row is hidden by the largest alone.
    """
    n = jnp.array([height, width])
    sides = jnp.round(jnp.sqrt(area) * n).astype(jnp.int32)
    if not restricted:
        centre = jax.random.randint(key, (2,), 0, n)
        return cutmix.box_mask(centre, sides, height, width)
    half = jnp.round(sides / 2).astype(jnp.int32)
    there = n > 2 * half
    drawn = jax.random.randint(key, (2,), half, jnp.where(there, n - half, half + 1))
    return cutmix.box_mask(jnp.where(there, drawn, sides // 2), sides, height, width)


def fourier_mask(key: PRNGKeyArray, count: Number, height: int, width: int) -> Mask:
    """Hides so many pixels in a few large patches: the darkest of FMix's field."""
    shape = fmix.noise_shape(height, width, "isotropic")
    grey = fmix.field(jax.random.normal(key, shape), height, width)
    return fmix.ranks(grey.ravel()).reshape(height, width) >= grey.size - count


def saliency_ranks(saliency: Float[Array, "h w"]) -> Int[Array, "h w"]:
    """How many pixels are more salient than each.

    Of equal ones the first, row by row, counts as the more salient.
    """
    return fmix.ranks(saliency.ravel()).reshape(saliency.shape)


def salient_mask(rank: Int[Array, "h w"], count: Number, least: Number) -> Mask:
    """Hides so many of the most salient pixels, or of the least, by their `saliency_ranks`."""
    return jnp.where(least, rank >= rank.size - count, rank < count)


def pixel_count(thousandths: Number, pixels: int) -> Number:
    """ceil(thousandths pixels / 1000), exactly up to two million pixels."""
    return -(-thousandths * pixels // 1000)


def paste(image: probe.Images, hidden: Mask, instead: Fill) -> probe.Images:
    """Puts the pixels of something else, in the same places, where a mask hides."""
    return jnp.where(hidden[..., None], instead, image)


def replacement(given: Mapping[str, Array], keys: PRNGKeyArray, *, other: bool) -> Fill:
    """What stands in hidden places: one of given["others"] for each key, or the colour."""
    if not other:
        return given["colour"].reshape(1, 1, 1, 3)
    images = given["others"]
    rows = jax.vmap(lambda key: jax.random.randint(key, (), 0, len(images)))(keys)
    return images[rows].astype(jnp.float32) / 255


def fill_params(
    where: str, fill: str, mean: Sequence[float], others: probe.Partners | None
) -> dict[str, Array]:
    """What `replacement` takes for a fill. ValueError for one that is not there."""
    options.check_choice(where, "fill", fill, FILLS)
    colour = np.shape(mean) == (3,) and all(0 <= value <= 1 for value in mean)
    must = "mean must be a colour, three numbers in [0, 1]"
    probe.check(colour, where, must, mean)
    if fill != "other":
        return {"colour": np.float32(mean if fill == "mean" else (0, 0, 0))}
    if others is None:
        needs = f"{where}: fill 'other' needs images to put there"
        raise ValueError(f"{needs}, got none; name a set of the suite by others=")
    return {"colour": np.zeros(3, np.float32), "others": images_on_device(others)}


@functools.lru_cache(maxsize=4)
def images_on_device(others: probe.Partners) -> UInt8[Array, "n h w 3"]:
    """Images of another set on the device, read once for all probes that show them."""
    return jnp.asarray(others.read())


MASKS = ("rectangle", "fourier", "grad_cam")
ORDERS = ("most", "least", "random")
FRACTIONS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_LEAST = {"most": 0.0, "least": 1.0, "random": 0.5}  # The chance of the least salient.


def make(
    *,
    masks: Sequence[str] = MASKS,
    orders: Sequence[str] = ORDERS,
    fractions: Sequence[float] = FRACTIONS,
    fill: str = "black",
    site: str = "stage3",
    quantise: bool = False,
    mean: Sequence[float] = MEAN,
    others: probe.Partners | None = None,
    classes: Sequence[str] = (),
    seed: int = 0,
) -> probe.Probe:
    """Conditions "", the image as it is, and "rectangle 0.3", "grad_cam most 0.3", ...

    masks: "rectangle", inside the image (its area is that of whole, even sides);
      "fourier", large patches, and "grad_cam", of exactly ceil(i h w) pixels.
    orders: of "grad_cam": whether the "most" or the "least" salient pixels go, or, for
      each image at "random", one of the two. quantise: the map is in steps of 1/255.
    fractions: i, in thousandths between 0 and 1.
    fill, mean, others: as of `make_cut_occlusion`.
    site: where the network is looked into, of models.taps.sites. "stage3" passes 8 by 8
      places of 32 pixels in a ResNet with the small stem, as published; a VGG has as many
      at "stage1" (2 by 2 at "stage3"), a BagNet 6 by 6 at "stage2" (2 by 2 or 3 by 3).

    Numbers are those of `interference.numbers`: accuracy and di_index. classes: the names
    of the decision classes. ValueError for options that have no meaning.
    """
    probe.check_choices("occlusion", "masks", masks, MASKS)
    probe.check_choices("occlusion", "orders", orders, ORDERS)
    parts = _thousandths(fractions)
    common = fill_params("occlusion", fill, mean, others)
    ways = {"grad_cam": [f"grad_cam {order}" for order in orders]}
    conditions = {"": _params("", 0, common)}
    for way in (way for mask in masks for way in ways.get(mask, [mask])):
        for fraction, part in parts.items():
            name = f"{way} {fraction:g}"
            conditions[name] = _params(name, part, common)

    def hide(rows: probe.Rows, params: Any, mask) -> probe.Images:
        keys = image_keys(seed, params["salt"], rows.index)
        own, which = jax.vmap(lambda key: jax.random.split(key, 2))(keys).T
        instead = replacement(params, which, other=fill == "other")
        return paste(rows.image, mask(own), instead)

    def show(rows: probe.Rows, params: Any, kind: str) -> probe.Images:
        if kind not in ("rectangle", "fourier"):
            return rows.image  # The network is asked first.
        sides, part = rows.image.shape[1:3], params["thousandths"]
        if kind == "rectangle":
            mask = lambda key: rectangle_mask(key, part / 1000, *sides, restricted=True)
        else:
            count = pixel_count(part, math.prod(sides))
            mask = lambda key: fourier_mask(key, count, *sides)
        return hide(rows, params, jax.vmap(mask))

    def look(rows: probe.Rows) -> Int[Array, "b h w"]:
        """Ranks pixels by the map of the image as it is, once for all conditions."""
        seen = rows.at(rows.image, site)
        maps = grad_cam.maps(*seen, *rows.image.shape[1:3], site=site)
        return jax.vmap(saliency_ranks)(jnp.floor(255 * maps) if quantise else maps)

    def move(rows: probe.Rows, params: Any, stimuli: Array) -> Array:
        count = pixel_count(params["thousandths"], math.prod(stimuli.shape[1:3]))

        def mask(keys):
            coin = jax.vmap(lambda key: jax.random.bernoulli(key, params["least"]))
            return jax.vmap(salient_mask, (0, None, 0))(rows.seen, count, coin(keys))

        return hide(rows, params, mask)

    counted = functools.partial(interference.numbers, classes=len(classes))
    made = probe.Probe(conditions, show, counted, static=lambda c: c.partition(" ")[0])
    if "grad_cam" not in masks:
        return made
    steps = {name: 1 for name in conditions if name.startswith("grad_cam")}
    return made._replace(move=move, steps=steps, look=look)


def _params(name: str, thousandths: int, common: dict) -> dict[str, Any]:
    order = name.split(" ")[1:-1]
    least = np.float32(_LEAST[order[0]] if order else 0)
    own = {"thousandths": np.int32(thousandths), "least": least}
    return {"salt": salt(name), **own, **common}


def _thousandths(fractions: Sequence[float]) -> dict[float, int]:
    parts = {f: round(1000 * f) for f in fractions}
    exact = all(abs(1000 * f - part) < 1e-6 for f, part in parts.items())
    inside = all(0 < part < 1000 for part in parts.values())
    once = exact and inside and 0 < len(fractions) == len(parts)
    must = "fractions must be between 0 and 1 with at most three digits, each once"
    probe.check(once, "occlusion", f"{must}, such as 0.3", fractions)
    return parts


AREAS, PLACEMENTS = ("beta", "uniform"), ("unrestricted", "restricted")


def make_cut_occlusion(
    *,
    area: str | float = "beta",
    placement: str = "unrestricted",
    fills: Sequence[str] = FILLS,
    mean: Sequence[float] = MEAN,
    others: probe.Partners | None = None,
    classes: Sequence[str] = (),
    seed: int = 0,
) -> probe.Probe:
    """Conditions "", the image as it is, and the fills' names; rectangles are the same.

    area: the rectangle's share of the image, a number in [0, 1] for all, or drawn for
      each, "beta" from Beta(2, 1), as published, or "uniform".
    placement: "unrestricted", cut at the border, or "restricted" (`rectangle_mask`).
    fills: "black", "mean", the colour `mean`, and "other", the same places of one of the
      images `others`, drawn anew for each.

    Numbers are those of `interference.numbers`: accuracy and di_index. classes: the names
    of the decision classes. ValueError for options that have no meaning.
    """
    probe.check_choices("cut_occlusion", "fills", fills, FILLS)
    known = area in AREAS or type(area) in (int, float) and 0 <= area <= 1
    if placement not in PLACEMENTS or not known:
        must = f"area must be {' or '.join(AREAS)}, or a number in [0, 1]"
        also = f"and placement {' or '.join(PLACEMENTS)}"
        got = f"got {area!r} and {placement!r}"
        raise ValueError(f"cut_occlusion: {must}, {also}, {got}")
    by_fill = {fill: fill_params("cut_occlusion", fill, mean, others) for fill in fills}
    common = {"colour": np.zeros(3, np.float32), "salt": salt(f"{area} {placement}")}
    common |= by_fill.get("other", {})
    conditions = {name: common | by_fill.get(name, {}) for name in ("", *fills)}
    inside = placement == "restricted"

    def show(rows: probe.Rows, params: Any, fill: str) -> probe.Images:
        if not fill:
            return rows.image
        keys = image_keys(seed, params["salt"], rows.index)
        size, place, which = jax.vmap(lambda key: jax.random.split(key, 3))(keys).T

        def mask(key, share):
            sides = rows.image.shape[1:3]
            return rectangle_mask(key, share, *sides, restricted=inside)

        hidden = jax.vmap(mask)(place, jax.vmap(_area_sampler(area))(size))
        instead = replacement(params, which, other=fill == "other")
        return paste(rows.image, hidden, instead)

    def how(condition: str) -> str:
        return "colour" if condition in ("black", "mean") else condition

    numbers = functools.partial(interference.numbers, classes=len(classes))
    return probe.Probe(conditions, show, numbers, static=how)


def _area_sampler(area: str | float):
    """The function from a key to the share of an image that is hidden."""
    if area == "beta":  # The distribution function is x^2.
        return lambda key: jnp.sqrt(jax.random.uniform(key))
    return jax.random.uniform if area == "uniform" else lambda key: jnp.float32(area)
