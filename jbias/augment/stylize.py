"""Replaces a share of the images by stylised ones; labels stay those of the content.

Source: Geirhos et al., ICLR 2019, https://arxiv.org/abs/1811.12231.
Reference code: https://github.com/rgeirhos/Stylized-ImageNet at 3d58825.
Deviations: images are stylised anew in every epoch (the reference stores one stylised
copy of each); styles are the images of the batch, as in BiasBed's paper, or those of a
second source, which may be paintings as in the reference.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jbias.augment import options, sampling


def make(
    *,
    transfer: Callable,
    p: float = 1.0,
    alpha: float = 1.0,
    styles: str = "batch",
    mix_group: int = 32,
) -> Callable:
    """Stylises the same share `p` of every group of `mix_group` examples.

    transfer: (batch, permute, alpha, style=None) -> image, as models.TRANSFERS make.
    p: a fixed number of each group, drawn anew for each batch, so that what is not
      stylised costs nothing. alpha: how far the features move to the style's.
    styles: "batch", the stylised images of the group exchange styles, fixed points
      allowed; "other", row i takes that of row i of batch["other"].

    All rows of one example (its "views") are stylised together. The result is cut to
    [0, 1]. At p = 0 the batch is returned as it is.
    """
    options.check_range("stylize", 0, 1, p=p, alpha=alpha)
    options.check_choice("stylize", "styles", styles, ("batch", "other"))
    count = _count(p, mix_group, alone=styles == "other")

    stylised = functools.partial(_stylised, transfer, styles, alpha)

    def some(batch, k_which, k_style):
        views = batch.get("views", 1)
        take = functools.partial(sampling.reorder, views=views)
        place = jnp.arange(batch["image"].shape[0] // views) % mix_group
        order = sampling.permute(place, k_which, group=mix_group)
        order = order.reshape(-1, mix_group)
        first, others = order[:, :count], order[:, count:]
        chosen = jax.tree.map(lambda x: take(x, first) if jnp.ndim(x) else x, batch)
        new = stylised(chosen, k_style, count)
        rest = take(batch["image"], others)
        both = (x.reshape(len(order), -1, *x.shape[1:]) for x in (new, rest))
        mixed = jnp.concatenate(tuple(both), axis=1).reshape(batch["image"].shape)
        return take(mixed, jnp.argsort(order, axis=1))

    def apply(batch, key):
        if not count:
            return batch
        k_which, k_style = jax.random.split(key)
        if count == mix_group:
            return {**batch, "image": stylised(batch, k_style, mix_group)}
        return {**batch, "image": some(batch, k_which, k_style)}

    return apply


def _stylised(transfer, styles, alpha, batch, key, group) -> Float[Array, "b h w c"]:
    """The images of a batch in each other's styles, inside groups, or in others'."""
    if styles == "batch":
        views = batch.get("views", 1)
        swap = functools.partial(sampling.permute, key=key, group=group, views=views)
        image = transfer(batch, functools.partial(jax.tree.map, swap), alpha)
    elif "other" in batch:
        image = transfer(batch, lambda tree: tree, alpha, style=batch["other"])
    else:
        must = "stylize: styles='other' must have a second source"
        raise ValueError(f"{must}, got none; give train.other or use styles='batch'")
    height, width = batch["image"].shape[1:3]
    return jnp.clip(image[:, :height, :width], 0, 1)


def _count(p: float, mix_group: int, *, alone: bool) -> int:
    """How many of each group; refused if not whole, or 1 that could only meet itself."""
    count = round(p * mix_group)
    few = count == 1 < mix_group and not alone
    if few or abs(count - p * mix_group) > 1e-3:
        near = (count if alone else max(2, count)) / mix_group
        must = f"stylize: p must make a whole number of mix_group={mix_group} examples"
        least = "at least 2 with styles='batch'"
        raise ValueError(f"{must}, {least}, got p={p}; try p={near:g}")
    return count
