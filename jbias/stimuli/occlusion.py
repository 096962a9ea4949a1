"""Probes that hide a part of each image: CutOcclusion, iOcclusion, and their masks.

Source: Marcu and Pruegel-Bennett, "On the effects of data distortion on model analysis and
training", https://arxiv.org/abs/2110.13968.
Reference code: https://github.com/AntoniaMarcu/Data-Modification at 1cb7717, occlusion.py,
gradcam.py, distortions.py and DI.py; for the rectangles,
https://github.com/pytorchbearer/torchbearer at 0e8484c.

A mask is True for hidden pixels. Random draws for an image use a key that depends on its number
in the set, so that results depend neither on batches nor on devices.
Deviation: the released code hides pixels after the normalisation, with 0, which is the mean
colour of the training set. Here the fill "black" is black, as in the paper, and the mean colour
is the fill "mean".

`make` (section 5 of the paper) hides growing fractions; the module `iocclusion` computes the
index from accuracies on training and test images.
Deviations: see `grad_cam`; also the following. The released code draws for each image whether the
most or the least salient pixels are hidden, and rounds the map to 8 bits. The order "random" with
quantise=True does so, too; the default is as in the paper. In the released code the least salient
are floor(i h w) pixels, and ties are in no fixed order.

`make_cut_occlusion` hides one rectangle by black, by the mean colour or by another image. As
the rectangles are the same, the data interference index shows how much decisions depend on the
fill (Table 3 of the paper).
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped, UInt8

from jbias import errors
from jbias.augment import cutmix, fmix
from jbias.measures import interference
from jbias.stimuli import grad_cam, random_draws, shown

FILLS = ("black", "mean", "other")
Number = Shaped[Array, ""]
Mask = Bool[Array, "*b h w"]
Fill = Float[Array, "#b #h #w 3"]  # Pixels that replace hidden ones.
MEAN = (0.485, 0.456, 0.406)  # Of ImageNet's training images.


def rectangle_mask(
    key: PRNGKeyArray, area: Number, height: int, width: int, *, restricted: bool
) -> Mask:
    """Return a mask of a rectangle with sides round(sqrt(area) h) and round(sqrt(area) w).

    area: the rectangle's share of the image. The rectangle reaches from side // 2 before its
    centre to just before side // 2 after it, so an odd side becomes one pixel shorter. Halves are
    rounded to even. The centre is uniform over all pixels, and the rectangle is cut at the
    border; or, if `restricted`, uniform over round(s / 2) ... n - round(s / 2) - 1 for a side s
    of n pixels, or s // 2 if this range is empty. Then nothing is cut, and as in the released
    code only the largest rectangle hides the last row.
    """
    n = jnp.array([height, width])
    sides = jnp.round(jnp.sqrt(area) * n).astype(jnp.int32)
    if not restricted:
        centre = jax.random.randint(key, (2,), 0, n)
        return cutmix.box_mask(centre, sides, height, width)
    half = jnp.round(sides / 2).astype(jnp.int32)
    has_range = n > 2 * half
    highest = jnp.where(has_range, n - half, half + 1)
    drawn = jax.random.randint(key, (2,), half, highest)
    centre = jnp.where(has_range, drawn, sides // 2)
    return cutmix.box_mask(centre, sides, height, width)


def fourier_mask(key: PRNGKeyArray, count: Number, height: int, width: int) -> Mask:
    """Return a mask of the `count` lowest pixels of FMix's random field, a few large patches.

    height, width: size of the mask in pixels.
    """
    shape = fmix.noise_shape(height, width, "isotropic")
    grey = fmix.field(jax.random.normal(key, shape), height, width)
    return fmix.ranks(grey.ravel()).reshape(height, width) >= grey.size - count


def saliency_ranks(saliency: Float[Array, "h w"]) -> Int[Array, "h w"]:
    """Return for each pixel the number of pixels that are more salient.

    saliency: by pixel, larger for more salient pixels. Of equal pixels the first, row by row,
    is treated as more salient.
    """
    return fmix.ranks(saliency.ravel()).reshape(saliency.shape)


def salient_mask(rank: Int[Array, "h w"], count: Number, least: Number) -> Mask:
    """Return a mask of the `count` most salient pixels, or of the least salient if `least`.

    rank: result of `saliency_ranks`. least: a boolean or 0/1 scalar.
    """
    return jnp.where(least, rank >= rank.size - count, rank < count)


def pixel_count(thousandths: Number, pixels: int) -> Number:
    """Return the number of hidden pixels, ceil(thousandths * pixels / 1000).

    The result is exact up to two million pixels. thousandths: the hidden fraction times 1000.
    pixels: the number of pixels of the image.
    """
    return -(-thousandths * pixels // 1000)


def paste(image: shown.Images, hidden: Mask, fill: Fill) -> shown.Images:
    """Return the images with hidden pixels replaced by pixels of `fill` at the same positions."""
    return jnp.where(hidden[..., None], fill, image)


def replacement(
    params: Mapping[str, Array], keys: PRNGKeyArray, *, other: bool
) -> Fill:
    """Return the pixels that replace hidden ones, in [0, 1].

    params: result of `fill_params`. keys: one per image. other: whether to return a random
    image of params["others"] for each key, instead of the colour params["colour"].
    """
    if not other:
        return params["colour"].reshape(1, 1, 1, 3)
    images = params["others"]
    rows = jax.vmap(lambda key: jax.random.randint(key, (), 0, len(images)))(keys)
    return images[rows].astype(jnp.float32) / 255


def fill_params(
    where: str, fill: str, mean: Sequence[float], others: shown.Partners | None
) -> dict[str, Array]:
    """Return the arrays that `replacement` needs for a fill, by name.

    The names are "colour", which is black unless `fill` is "mean", and, for the fill "other",
    "others", the images.

    where: start of the error message. fill: one of FILLS. mean: the colour for fill "mean",
    in [0, 1]. others: the images for fill "other". ValueError for invalid options.
    """
    errors.check_choice(where, fill, FILLS, "change fill", name="fill")
    colour = np.shape(mean) == (3,) and all(0 <= value <= 1 for value in mean)
    must = "be a colour, three numbers in [0, 1]"
    errors.check(colour, where, must, mean, name="mean")
    if fill != "other":
        return {"colour": np.float32(mean if fill == "mean" else (0, 0, 0))}
    if others is None:
        needs = f"{where}: fill 'other' needs images to put there"
        raise ValueError(f"{needs}, got none; name a set of the suite by others=")
    return {"colour": np.zeros(3, np.float32), "others": images_on_device(others)}


@functools.lru_cache(maxsize=4)
def images_on_device(others: shown.Partners) -> UInt8[Array, "n h w 3"]:
    """Return the images of `others` on the device, read once for all probes that use them."""
    return jnp.asarray(others.read())


MASKS = ("rectangle", "fourier", "grad_cam")
ORDERS = ("most", "least", "random")
FRACTIONS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
# By order, the probability that the least salient pixels are hidden.
_LEAST = {"most": 0.0, "least": 1.0, "random": 0.5}


def make(
    *,
    masks: Sequence[str] = MASKS,
    orders: Sequence[str] = ORDERS,
    fractions: Sequence[float] = FRACTIONS,
    fill: str = "black",
    site: str = "stage3",
    quantise: bool = False,
    mean: Sequence[float] = MEAN,
    others: shown.Partners | None = None,
    classes: Sequence[str] = (),
    seed: int = 0,
) -> shown.Stimuli:
    """Return a probe that hides growing parts of images, by several kinds of masks.

    The condition "" shows unchanged images. Other conditions are named by mask, order (only for
    "grad_cam") and hidden fraction, such as "rectangle 0.3" and "grad_cam most 0.3".

    masks: "rectangle", inside the image, with sides rounded to even numbers of pixels; "fourier",
      large patches, and "grad_cam", both of exactly ceil(i h w) pixels.
    orders: for "grad_cam": hide the "most" or the "least" salient pixels, or one of the two
      at "random" for each image. quantise: round the heatmap down to steps of 1/255.
    fractions: hidden shares i of the pixels, between 0 and 1 with at most three digits.
    fill: one of FILLS: "black"; "mean", the colour `mean`; or "other", the same pixels of one of
      the images `others`, drawn for each image.
    site: the site of models.taps.sites for Grad-CAM. "stage3" has 8 by 8 positions for images of
      32 pixels in a ResNet with the small stem, as published; a VGG has 8 by 8 at "stage1" (2 by
      2 at "stage3"), a BagNet 6 by 6 at "stage2" (2 by 2 or 3 by 3 at "stage3").
    classes: the names of the decision classes; without them the metrics raise ValueError, as
      di_index needs their number. seed: random seed of the masks and of images drawn.

    Metrics: accuracy and di_index, see `interference.numbers`. ValueError for invalid
    options.
    """
    errors.check_choices("occlusion", masks, MASKS, name="masks")
    errors.check_choices("occlusion", orders, ORDERS, name="orders")
    thousandths = _thousandths(fractions)
    common = fill_params("occlusion", fill, mean, others)
    conditions = {"": _params("", 0, common)}
    for mask_name in masks:
        prefixes = [mask_name]
        if mask_name == "grad_cam":
            prefixes = [f"grad_cam {order}" for order in orders]
        for prefix in prefixes:
            for fraction, in_thousandths in thousandths.items():
                name = f"{prefix} {fraction:g}"
                conditions[name] = _params(name, in_thousandths, common)

    def hide(
        rows: shown.Rows, params: Any, make_masks: Callable[[PRNGKeyArray], Mask]
    ) -> shown.Images:
        """Return images with the pixels of a mask replaced by the fill.

        params: a result of `_params`. make_masks: one key per image -> masks, True at hidden
        pixels. `fill`: see the enclosing function.
        """
        keys = random_draws.image_keys(seed, params["salt"], rows.index)
        mask_keys, fill_keys = jax.vmap(lambda key: jax.random.split(key, 2))(keys).T
        fills = replacement(params, fill_keys, other=fill == "other")
        return paste(rows.image, make_masks(mask_keys), fills)

    def show(rows: shown.Rows, params: Any, mask_name: str) -> shown.Images:
        """Return images with a rectangle or Fourier mask hidden, else unchanged.

        mask_name: the first word of the condition's name. params: a result of `_params`.
        """
        if mask_name not in ("rectangle", "fourier"):
            return rows.image  # `move` hides pixels by the network's map.
        height, width = rows.image.shape[1:3]
        in_thousandths = params["thousandths"]
        if mask_name == "rectangle":
            make_mask = lambda key: rectangle_mask(
                key, in_thousandths / 1000, height, width, restricted=True
            )
        else:
            count = pixel_count(in_thousandths, height * width)
            make_mask = lambda key: fourier_mask(key, count, height, width)
        return hide(rows, params, jax.vmap(make_mask))

    def look(rows: shown.Rows) -> Int[Array, "b h w"]:
        """Return `saliency_ranks` of the Grad-CAM heatmaps of the unchanged images."""
        activation, gradient = rows.at(rows.image, site)
        height, width = rows.image.shape[1:3]
        maps = grad_cam.maps(activation, gradient, height, width, site=site)
        return jax.vmap(saliency_ranks)(jnp.floor(255 * maps) if quantise else maps)

    def move(rows: shown.Rows, params: Any, stimuli: shown.Images) -> shown.Images:
        """Return the images of `rows` with their most or least salient pixels hidden.

        rows.seen: result of `look`. params: a result of `_params`. stimuli: used for their size.
        """
        count = pixel_count(params["thousandths"], math.prod(stimuli.shape[1:3]))

        def make_masks(keys: PRNGKeyArray) -> Mask:
            draw = jax.vmap(lambda key: jax.random.bernoulli(key, params["least"]))
            return jax.vmap(salient_mask, (0, None, 0))(rows.seen, count, draw(keys))

        return hide(rows, params, make_masks)

    numbers = functools.partial(interference.numbers, classes=len(classes))
    mask_of = lambda condition: condition.partition(" ")[0]
    without_network = shown.Stimuli(conditions, show, numbers, static=mask_of)
    if "grad_cam" not in masks:
        return without_network
    counts = {name: 1 for name in conditions if name.startswith("grad_cam")}
    steps = shown.NetworkSteps(move, counts, look=look)
    return without_network._replace(network_steps=steps)


def _params(name: str, thousandths: int, common: Mapping[str, Array]) -> dict[str, Any]:
    """Return a condition's arrays "salt", "thousandths" and "least", and the arrays `common`.

    name: the condition's name. thousandths: the hidden fraction times 1000. "least" is the
    probability with which the least salient pixels of an image are hidden.
    """
    order = name.split(" ")[1:-1]
    return {
        "salt": random_draws.salt(name),
        "thousandths": np.int32(thousandths),
        "least": np.float32(_LEAST[order[0]] if order else 0),
        **common,
    }


def _thousandths(fractions: Sequence[float]) -> dict[float, int]:
    """Return a dict from each fraction to the fraction times 1000, a whole number.

    ValueError unless fractions are distinct, between 0 and 1, with at most three digits.
    """
    thousandths = {f: round(1000 * f) for f in fractions}
    are_exact = all(abs(1000 * f - x) < 1e-6 for f, x in thousandths.items())
    are_inside = all(0 < x < 1000 for x in thousandths.values())
    are_valid = are_exact and are_inside and 0 < len(fractions) == len(thousandths)
    must = "be between 0 and 1 with at most three digits, each once, such as 0.3"
    errors.check(are_valid, "occlusion", must, fractions, name="fractions")
    return thousandths


AREAS, PLACEMENTS = ("beta", "uniform"), ("unrestricted", "restricted")


def make_cut_occlusion(
    *,
    area: str | float = "beta",
    placement: str = "unrestricted",
    fills: Sequence[str] = FILLS,
    mean: Sequence[float] = MEAN,
    others: shown.Partners | None = None,
    classes: Sequence[str] = (),
    seed: int = 0,
) -> shown.Stimuli:
    """Return a probe that hides one rectangle of each image, with one condition for each fill.

    Conditions are named after their fills; the condition "" shows unchanged images. All fills
    have the same rectangles.

    area: the rectangle's share of the image: a number in [0, 1] for all images, or drawn for
      each, "beta" from Beta(2, 1), as published, or "uniform".
    placement: "unrestricted", cut at the border, or "restricted" (`rectangle_mask`).
    fills: "black"; "mean", the colour `mean`; and "other", the same pixels of one of the images
      `others`, drawn for each image.
    classes: the names of the decision classes; without them the metrics raise ValueError, as
      di_index needs their number. seed: random seed of the rectangles and of images drawn.

    Metrics: accuracy and di_index, see `interference.numbers`. ValueError for invalid
    options.
    """
    errors.check_choices("cut_occlusion", fills, FILLS, name="fills")
    is_area = area in AREAS or type(area) in (int, float) and 0 <= area <= 1
    if placement not in PLACEMENTS or not is_area:
        must = f"area must be {' or '.join(AREAS)}, or a number in [0, 1]"
        also = f"and placement {' or '.join(PLACEMENTS)}"
        got = f"got {area!r} and {placement!r}"
        raise ValueError(f"cut_occlusion: {must}, {also}, {got}")
    by_fill = {fill: fill_params("cut_occlusion", fill, mean, others) for fill in fills}
    common = {
        "colour": np.zeros(3, np.float32),
        "salt": random_draws.salt(f"{area} {placement}"),
    }
    common |= by_fill.get("other", {})
    conditions = {name: common | by_fill.get(name, {}) for name in ("", *fills)}
    is_restricted = placement == "restricted"

    def show(rows: shown.Rows, params: Any, fill: str) -> shown.Images:
        """Return images with a rectangle replaced.

        fill: "colour", "other", or "" for unchanged images. params: "salt" and the arrays of
        `fill_params`. area, placement: see the enclosing function.
        """
        if not fill:
            return rows.image
        keys = random_draws.image_keys(seed, params["salt"], rows.index)
        split = jax.vmap(lambda key: jax.random.split(key, 3))
        area_keys, mask_keys, fill_keys = split(keys).T

        def make_mask(key: PRNGKeyArray, share: Number) -> Mask:
            height, width = rows.image.shape[1:3]
            return rectangle_mask(key, share, height, width, restricted=is_restricted)

        areas = jax.vmap(_area_sampler(area))(area_keys)
        hidden = jax.vmap(make_mask)(mask_keys, areas)
        fills = replacement(params, fill_keys, other=fill == "other")
        return paste(rows.image, hidden, fills)

    def fill_kind(condition: str) -> str:
        return "colour" if condition in ("black", "mean") else condition

    numbers = functools.partial(interference.numbers, classes=len(classes))
    return shown.Stimuli(conditions, show, numbers, static=fill_kind)


def _area_sampler(area: str | float) -> Callable[[PRNGKeyArray], Number]:
    """Return a function from a key to the hidden share of an image, in [0, 1].

    area: one of AREAS, or a fixed share.
    """
    if area == "beta":  # The distribution function is x^2.
        return lambda key: jnp.sqrt(jax.random.uniform(key))
    return jax.random.uniform if area == "uniform" else lambda key: jnp.float32(area)
