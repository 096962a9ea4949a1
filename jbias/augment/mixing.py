"""The common part of MixUp, CutMix and FMix: each image and label is mixed with a partner's.

x' = M x + (1 - M) x_partner,  target' = lam y + (1 - lam) y_partner,  with a mask M, the
share of the image in each pixel. Cross-entropy is linear in its target, so the loss is
lam CE(z, y) + (1 - lam) CE(z, y_partner). The reformulated loss is CE(z, y), with a
distribution of lam that favours the image; over random partners the two losses have the same
mean. The transforms differ in the distributions of M and lam.

Deviation of all three: partners are drawn inside groups of `mix_group` images, so that results
do not depend on the number of devices; the references draw them inside one GPU's batch.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jbias import errors
from jbias.augment import batch_permutations, options


class Mix(NamedTuple):
    """The weights of an image in its mixture; the partner has 1 minus the weights.

    mask: share of the image in each pixel of the mixed image, in [0, 1].
    lam: share of the image's label in the mixed label, in [0, 1].
    """

    mask: Float[Array, "#b #h #w 1"]
    lam: Float[Array, ""]


# (key, batch, keep_label) -> Mix; with keep_label=True labels are not mixed.
Sampler = Callable[[PRNGKeyArray, options.Batch, bool], Mix]


def draw_lambda(key: PRNGKeyArray, alpha: float, keep_label: bool) -> Float[Array, ""]:
    """Return lam ~ Beta(alpha, alpha), or Beta(alpha + 1, alpha) if `keep_label`."""
    # In closed form, because the sampler takes a second to compile.
    if options.is_statically(alpha, 1):
        uniform = jax.random.uniform(key)
        return jnp.sqrt(uniform) if keep_label else uniform
    return jax.random.beta(key, alpha + keep_label, alpha)


def make(
    where: str,
    draw: Sampler,
    *,
    alpha: float,
    reformulated: bool,
    p: float,
    partner: str,
    mix_group: int,
) -> options.Transform:
    """Return a transform that mixes images and labels with partners' images and labels.

    where: start of error messages.
    draw: (key, batch, keep_label) -> Mix; with keep_label=True labels are not mixed.
    alpha: parameter of `draw`'s distribution of lam, at least 0; here only checked.
    reformulated: True: labels are not mixed and lam ~ Beta(alpha + 1, alpha).
    p: probability that a batch is mixed.
    partner: "batch": partners are of the same group of `mix_group` images. "other":
      row i is mixed with row i of batch["other"], a second source in random order. Labels of
      batch["other"] are not used, and the loss is always the reformulated loss (inter-dataset
      mixing).
    mix_group: number of consecutive images of a group; it must divide the batch size.

    All rows of one example (its "views") are mixed with the same view of the partner. The
    entry "renders" is removed; weights and other entries do not change. If alpha or p is the
    number 0, the batch is returned unchanged. ValueError for an invalid option; the transform
    raises ValueError for partner="batch" if `mix_group` does not divide the number of examples,
    and for partner="other" as `other_images` does.
    """
    errors.check_range(where, 0, math.inf, alpha=alpha)
    errors.check_range(where, 0, 1, p=p)
    errors.check_choice(
        where, partner, ("batch", "other"), "change partner", name="partner"
    )
    keep_label = reformulated or partner == "other"

    def mixed(batch, key):
        """Return the mixed images (b h w c) and the targets (b k) of a batch.

        Targets are unchanged if `reformulated` or partner="other". key: random key.
        """
        k_draw, k_order = jax.random.split(key)

        def permute(x):
            views = batch.get("views", 1)
            return batch_permutations.permute(x, k_order, group=mix_group, views=views)

        image, target = batch["image"], batch["target"]
        mask, lam = draw(k_draw, batch, keep_label)
        if partner == "other":
            partner_image = other_images(where, batch)
        else:
            partner_image = permute(image)
        image = mask * image + (1 - mask) * partner_image
        if not keep_label:
            target = lam * target + (1 - lam) * permute(target)
        return image, target

    def apply(batch, key):
        """Return the batch with images and targets mixed with probability p, without "renders".

        If p or alpha is the number 0, return the batch itself. key: random key.
        """
        if options.is_statically(p, 0) or options.is_statically(alpha, 0):
            return batch
        k_gate, k_mix = jax.random.split(key)
        if options.is_statically(p, 1):
            image, target = mixed(batch, k_mix)
        else:
            image, target = jax.lax.cond(
                jax.random.bernoulli(k_gate, p),
                lambda: mixed(batch, k_mix),
                lambda: (batch["image"], batch["target"]),
            )
        # Renders show the image without the partner.
        entries = {name: x for name, x in batch.items() if name != "renders"}
        return {**entries, "image": image, "target": target}

    return apply


def other_images(where: str, batch: options.Batch) -> Float[Array, "b h w c"]:
    """Return batch["other"]["image"]; ValueError if missing or of a different shape.

    where: start of the message.
    """
    if "other" not in batch:
        must = f"{where}: partner='other' must have a second source"
        raise ValueError(f"{must}, got none; give train.other or use partner='batch'")
    image = batch["other"]["image"]
    if image.shape != batch["image"].shape:
        must = f"{where}: images of the second source must have shape"
        got = f"{batch['image'].shape}, got {image.shape}"
        raise ValueError(f"{must} {got}; let both pass the same crops")
    return image
