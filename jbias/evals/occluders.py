"""What hides a part of an image: masks, and what is put there instead.

A mask is True where an image is hidden. Each image's own comes of a key of its own, from
its number in its set, so that neither batches nor devices matter.
Source: Marcu and Pruegel-Bennett, "On the effects of data distortion on model analysis and
training", https://arxiv.org/abs/2110.13968.
Reference code: https://github.com/AntoniaMarcu/Data-Modification at 1cb7717,
distortions.py; of the rectangles, https://github.com/pytorchbearer/torchbearer at 0e8484c.
Deviation: the release hides pixels after the normalisation, with 0: its black is the mean
colour of the training set. Here black is black, as the paper has it, and the mean colour
is a fill of its own.
"""

import functools
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt8

from jbias.augment import cutmix, fmix, options
from jbias.evals import probe

FILLS = ("black", "mean", "other")
MEAN = (0.485, 0.456, 0.406)  # Of ImageNet's training images.


def keys(seed: int, salt: Int[Array, ""], index: Int[Array, "b"]) -> PRNGKeyArray:
    """A key for each image, of its number in its set and of what is drawn."""
    key = jax.random.fold_in(jax.random.key(seed), salt)
    return jax.vmap(jax.random.fold_in, (None, 0))(key, index)


def rectangle(
    key: PRNGKeyArray,
    area: Float[Array, ""],
    height: int,
    width: int,
    *,
    restricted: bool,
) -> Bool[Array, "h w"]:
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


def fourier(
    key: PRNGKeyArray, count: Int[Array, ""], height: int, width: int
) -> Bool[Array, "h w"]:
    """Hides so many pixels in a few large patches: the darkest of FMix's field."""
    shape = fmix.noise_shape(height, width, "isotropic")
    grey = fmix.field(jax.random.normal(key, shape), height, width)
    return fmix.ranks(grey.ravel()).reshape(height, width) >= grey.size - count


def ranks(saliency: Float[Array, "h w"]) -> Int[Array, "h w"]:
    """How many pixels are more salient than each.

    Of equal ones the first, row by row, counts as the more salient.
    """
    return fmix.ranks(saliency.ravel()).reshape(saliency.shape)


def salient(
    rank: Int[Array, "h w"], count: Int[Array, ""], least: Bool[Array, ""]
) -> Bool[Array, "h w"]:
    """Hides so many of the most salient pixels, or of the least, by their `saliency_ranks`."""
    return jnp.where(least, rank >= rank.size - count, rank < count)


def count(thousandths: Int[Array, ""], pixels: int) -> Int[Array, ""]:
    """ceil(thousandths pixels / 1000), exactly up to two million pixels."""
    return -(-thousandths * pixels // 1000)


def fill(
    image: Float[Array, "b h w 3"],
    hidden: Bool[Array, "b h w"],
    instead: Float[Array, "#b #h #w 3"],
) -> Float[Array, "b h w 3"]:
    """Puts the pixels of something else, in the same places, where a mask hides."""
    return jnp.where(hidden[..., None], instead, image)


def instead(
    params: Mapping[str, Array], keys: PRNGKeyArray, *, other: bool
) -> Float[Array, "#b #h #w 3"]:
    """What stands in hidden places: one of params["others"] for each key, or the colour."""
    if not other:
        return params["colour"].reshape(1, 1, 1, 3)
    images = params["others"]
    rows = jax.vmap(lambda key: jax.random.randint(key, (), 0, len(images)))(keys)
    return images[rows].astype(jnp.float32) / 255


def params(
    where: str, fill: str, mean: Sequence[float], others: probe.Others | None
) -> dict[str, Array]:
    """What `replacement` takes for a fill. ValueError for one that is not there."""
    options.check_choice(where, "fill", fill, FILLS)
    if np.shape(mean) != (3,) or not all(0 <= value <= 1 for value in mean):
        raise ValueError(
            f"{where}: mean must be a colour, three numbers in [0, 1], got {mean!r}"
        )
    if fill != "other":
        return {"colour": np.float32(mean if fill == "mean" else (0, 0, 0))}
    if others is None:
        raise ValueError(
            f"{where}: fill 'other' needs images to put there, got none; name a set of "
            "the suite by others="
        )
    return {"colour": np.zeros(3, np.float32), "others": held(others)}


@functools.lru_cache(maxsize=4)
def held(others: probe.Others) -> UInt8[Array, "n h w 3"]:
    """Images of another set on the device, read once for all probes that show them."""
    return jnp.asarray(others.read())
