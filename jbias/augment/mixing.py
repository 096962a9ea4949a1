"""Mixes each image with a partner's, and their labels: MixUp, CutMix, FMix and others.

x' = M x + (1 - M) x_partner,  target' = lam y + (1 - lam) y_partner,  with a mask M of
the image's own share of each pixel. Cross-entropy is linear in its target, so this is
the loss lam CE(z, y) + (1 - lam) CE(z, y_partner). The reformulated loss is CE(z, y),
with lam drawn to favour the image itself; over random partners both have the same mean.
The transforms differ in how M and lam are drawn.

Deviation of all: partners are drawn inside groups of `mix_group` images, so that the
meaning does not depend on the number of devices; the references draw them inside one
GPU's batch.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.augment import options, sampling


class Mix(NamedTuple):
    """How much of an image stays its own, pixel by pixel, and how much of its label."""

    mask: Float[Array, "#b #h #w 1"]
    lam: Float[Array, ""]


def draw_lambda(key: PRNGKeyArray, alpha: float, own: bool) -> Float[Array, ""]:
    """Draws lam ~ Beta(alpha, alpha), or Beta(alpha + 1, alpha) for the own label."""
    # In closed form; the sampler compiles for a second.
    if options.is_statically(alpha, 1):
        uniform = jax.random.uniform(key)
        return jnp.sqrt(uniform) if own else uniform
    return jax.random.beta(key, alpha + own, alpha)


def make(where, draw, alpha, reformulated, p, partner, mix_group) -> Callable:
    """Mixes, with probability p a batch, by draw(key, batch, own) -> Mix.

    own: labels stay the images' own. So it is where the loss is the reformulated one,
    and with partner="other": the images of batch["other"], in their own random order,
    whose labels are not used. All rows of one example (its "views") meet the same view
    of the partner. Weights and other columns stay. alpha is what `draw` draws with; at
    alpha = 0 or p = 0, plain numbers, the batch is returned as it is.
    """
    options.check_range(where, 0, math.inf, alpha=alpha)
    options.check_range(where, 0, 1, p=p)
    options.check_choice(where, "partner", partner, ("batch", "other"))
    own = reformulated or partner == "other"

    def mixed(batch, key):
        k_draw, k_order = jax.random.split(key)

        def theirs(x):
            views = batch.get("views", 1)
            return sampling.permute(x, k_order, group=mix_group, views=views)

        image, target = batch["image"], batch["target"]
        mask, lam = draw(k_draw, batch, own)
        beside = other_images(where, batch) if partner == "other" else theirs(image)
        image = mask * image + (1 - mask) * beside
        return image, target if own else lam * target + (1 - lam) * theirs(target)

    def apply(batch, key):
        if options.is_statically(p, 0) or options.is_statically(alpha, 0):
            return batch
        k_gate, k_mix = jax.random.split(key)
        ways = lambda: mixed(batch, k_mix), lambda: (batch["image"], batch["target"])
        if options.is_statically(p, 1):
            image, target = ways[0]()
        else:
            image, target = jax.lax.cond(jax.random.bernoulli(k_gate, p), *ways)
        # Drawings of the one image have no part of the partner.
        kept = {name: x for name, x in batch.items() if name != "renders"}
        return {**kept, "image": image, "target": target}

    return apply


def other_images(where: str, batch) -> Float[Array, "b h w c"]:
    """The images of the second source; ValueError where there are none like these."""
    if "other" not in batch:
        must = f"{where}: partner='other' must have a second source"
        raise ValueError(f"{must}, got none; give train.other or use partner='batch'")
    image = batch["other"]["image"]
    if image.shape != batch["image"].shape:
        must = f"{where}: images of the second source must have shape"
        got = f"{batch['image'].shape}, got {image.shape}"
        raise ValueError(f"{must} {got}; let both pass the same crops")
    return image
