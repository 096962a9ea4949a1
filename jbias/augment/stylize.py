"""The transform `stylize`: replaces a share of the images by stylised images; labels stay.

Source: Geirhos et al., ICLR 2019, https://arxiv.org/abs/1811.12231.
Reference code: https://github.com/rgeirhos/Stylized-ImageNet at 3d58825.
Deviations: images are stylised again in every epoch (the reference stores one stylised
copy of each image); styles are images of the batch, as in BiasBed's paper, or of a second
source, for example paintings, as in the reference.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jbias import errors
from jbias.augment import batch_permutations, options


def make(
    *,
    transfer: Callable,
    p: float = 1.0,
    alpha: float = 1.0,
    styles: str = "batch",
    mix_group: int = 32,
) -> options.Transform:
    """Return a transform that stylises a share `p` of every group of examples.

    transfer: (batch, permute, alpha, style=None) -> images, from models.TRANSFERS.
      `permute` maps a tree of arrays with a row per image to the rows of the images' styles.
    p: p * mix_group must be a whole number: all groups have the same number of stylised
      examples, drawn for each batch, so that the transfer is computed only for them.
    alpha: strength of the style transfer, from 0 (none) to 1.
    styles: "batch": the stylised images of a group exchange styles, and an image may keep its
      own; "other": row i gets the style of row i of batch["other"].
    mix_group: size of a group.

    All rows of one example (its "views") are stylised together. The result is clipped to
    [0, 1]. At p = 0 the batch is returned unchanged. ValueError for an invalid option, also
    if p would make a single stylised example in a group, unless styles="other".
    """
    errors.check_range("stylize", 0, 1, p=p, alpha=alpha)
    errors.check_choice(
        "stylize", styles, ("batch", "other"), "change styles", name="styles"
    )
    count = _count_stylised(p, mix_group, allow_one=styles == "other")

    def stylise(batch, key, group):
        return _stylise(
            batch, key, transfer=transfer, styles=styles, alpha=alpha, group=group
        )

    def stylise_some(batch, k_which, k_style):
        """Return the batch's images (b h w c), with `count` stylised examples in each group.

        k_which: random key of the choice of examples. k_style: of the order of styles.
        """
        views = batch.get("views", 1)
        select = functools.partial(batch_permutations.reorder, views=views)
        place = jnp.arange(batch["image"].shape[0] // views) % mix_group
        order = batch_permutations.permute(place, k_which, group=mix_group)
        order = order.reshape(-1, mix_group)
        stylised, unchanged = order[:, :count], order[:, count:]
        chosen = jax.tree.map(
            lambda x: select(x, stylised) if jnp.ndim(x) else x, batch
        )
        images = stylise(chosen, k_style, count), select(batch["image"], unchanged)
        grouped = [x.reshape(len(order), -1, *x.shape[1:]) for x in images]
        mixed = jnp.concatenate(grouped, axis=1).reshape(batch["image"].shape)
        return select(mixed, jnp.argsort(order, axis=1))

    def apply(batch, key):
        """Return the batch with `count` examples of each group stylised, drawn at random.

        If `count` is 0, return the batch itself; if it is mix_group, stylise all. key: random
        key.
        """
        if not count:
            return batch
        k_which, k_style = jax.random.split(key)
        if count == mix_group:
            return {**batch, "image": stylise(batch, k_style, mix_group)}
        return {**batch, "image": stylise_some(batch, k_which, k_style)}

    return apply


def _stylise(
    batch: options.Batch,
    key: PRNGKeyArray,
    *,
    transfer: Callable,
    styles: str,
    alpha: float,
    group: int,
) -> Float[Array, "b h w c"]:
    """Return the stylised images of a batch, clipped to [0, 1].

    ValueError if styles="other" and the batch has no "other".
    key: determines the order of styles. transfer, styles, alpha: see `make`. group: number
    of consecutive examples that exchange styles.
    """
    if styles == "batch":
        views = batch.get("views", 1)
        swap = functools.partial(
            batch_permutations.permute, key=key, group=group, views=views
        )
        image = transfer(batch, functools.partial(jax.tree.map, swap), alpha)
    elif "other" in batch:
        image = transfer(batch, lambda tree: tree, alpha, style=batch["other"])
    else:
        must = "stylize: styles='other' must have a second source"
        raise ValueError(f"{must}, got none; give train.other or use styles='batch'")
    height, width = batch["image"].shape[1:3]
    return jnp.clip(image[:, :height, :width], 0, 1)


def _count_stylised(p: float, mix_group: int, *, allow_one: bool) -> int:
    """Return p * mix_group, the number of stylised examples per group.

    ValueError if the number is not whole, or, unless `allow_one`, if it is 1 in a group of
    more examples: a single stylised example has no partner for its style.
    """
    count = round(p * mix_group)
    too_few = count == 1 < mix_group and not allow_one
    if too_few or abs(count - p * mix_group) > 1e-3:
        nearest = (count if allow_one else max(2, count)) / mix_group
        must = f"stylize: p must make a whole number of mix_group={mix_group} examples"
        least = "" if allow_one else ", at least 2 with styles='batch'"
        raise ValueError(f"{must}{least}, got p={p}; try p={nearest:g}")
    return count
