"""Transforms of labels, of views and of halves of images, and a choice between transforms.

    dict(name="views", views=2)  # Each image twice, for SimCLR.
    dict(name="half", which="top", mix=dict(name="flip"))

`half` is for images stacked on top of each other, as in the data set `stacked`: each half
can have its own crops, flips or mixing.

`one_of` draws a mixing transform per batch. Source: MixUp or CutMix as in the training
recipes of timm and torchvision, see Wightman, Touvron and Jegou, "ResNet strikes back",
https://arxiv.org/abs/2110.00476; FMix with MixUp or CutMix in Harris et al., 2020,
https://arxiv.org/abs/2002.12047.
Deviation: partners are drawn inside groups (`jbias.augment.mixing`); FMix's released code
alternates between the methods instead of drawing one (https://github.com/ecs-vlc/FMix at
e5991dc).

`smooth_labels`: Szegedy et al., "Rethinking the Inception Architecture", CVPR 2016,
https://arxiv.org/abs/1512.00567.
`binary_targets`: Beyer et al., "Are we done with ImageNet?", 2020,
https://arxiv.org/abs/2006.07159; with a threshold in Wightman, Touvron and Jegou, as above.
Deviation: the loss is the mean over classes (`jbias.algos.base.objective`), as in timm;
Beyer et al. take the sum.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp

from jbias import errors
from jbias.augment import cutmix, fmix, mixing, mixup, options


def views(*, views: int = 2) -> options.Transform:
    """Return a transform that repeats each image in `views` consecutive rows (`repeat_views`).

    Later crops, flips and noise are drawn for each row; mixing keeps the rows of an image
    together. ValueError if `views` is below 1.
    """
    errors.check_condition("views", "1 or more", views=views)

    def apply(batch, key):
        return repeat_views(batch, views)

    return apply


def repeat_views(batch: options.Batch, views: int) -> options.Batch:
    """Return a batch with every row repeated `views` times, each next to its copies.

    The entry "views", 1 if missing, is multiplied by `views`; other scalars do not change. The
    rows of batch["other"] are repeated, too. With views=1, return the batch itself.
    """
    if views == 1:
        return batch
    rows = {name: x for name, x in batch.items() if name != "other"}
    repeat = lambda x: jnp.repeat(x, views, axis=0) if jnp.ndim(x) else x
    repeated = jax.tree.map(repeat, rows)
    if "other" in batch:
        repeated["other"] = repeat_views(batch["other"], views)
    return {**repeated, "views": views * batch.get("views", 1)}


def repeat_unweighted(batch: options.Batch, views: int) -> options.Batch:
    """Return a batch with every row repeated `views` times; the copies have weight 0.

    The first row of each image keeps its weight, 1 if the batch has no "weight".
    """
    rows = len(batch["image"])
    weight = batch.get("weight", jnp.ones(rows))
    batch = repeat_views({**batch, "weight": weight}, views)
    first = jnp.tile(jnp.arange(views) == 0, rows)
    return {**batch, "weight": jnp.where(first, batch["weight"], 0)}


HALVES = ("top", "bottom")


def half(
    *, mix: options.Transform, which: str, mix_group: int = 32
) -> options.Transform:
    """Return a transform that applies `mix` to one half of each image, and keeps the other half.

    which: "top" or "bottom".
    mix: the transform to apply to the half, in a config for example
      `mix=dict(name="flip")`. `mix` may change labels and other entries of the batch.
    mix_group: number of images among which `mix` draws partners.

    ValueError for an unknown `which`. Applied to images of odd height, or if `mix` changes the
    shape of the half, the transform raises ValueError.
    """
    errors.check_choice("half", which, HALVES, "change which", name="which")

    def apply(batch, key):
        """Return the batch with `mix` applied to one half of its images (b h w c).

        Other entries are the results of `mix`. ValueError for an odd height, and if `mix`
        changes the shape of the half. key: random key of `mix`.
        """
        height = batch["image"].shape[1]
        if height % 2:
            raise ValueError(
                f"half: images must have an even height, got {height}; change their size"
            )
        halves, index = jnp.split(batch["image"], 2, 1), HALVES.index(which)
        shape = halves[index].shape
        changed = mix({**batch, "image": halves[index]}, key)
        if changed["image"].shape != shape:
            raise ValueError(
                f"half: the transform must keep the shape {shape}, got "
                f"{changed['image'].shape}; take another"
            )
        halves[index] = changed["image"]
        return {**changed, "image": jnp.concatenate(halves, 1)}

    return apply


def replace() -> options.Transform:
    """Return a transform that replaces images by the images of batch["other"]; labels stay.

    Applied to a batch, the transform raises ValueError if "other" is missing or if its images
    have a different shape.
    """

    def apply(batch, key):
        return {**batch, "image": mixing.other_images("replace", batch)}

    return apply


MIX_SAMPLERS: Mapping[str, Callable[..., mixing.Sampler]] = {
    "mixup": mixup.mix_sampler,
    "cutmix": cutmix.mix_sampler,
    "fmix": fmix.mix_sampler,
}


def one_of(
    *,
    kinds: Sequence[str] = ("mixup", "cutmix"),
    alphas: Sequence[float] = (0.2, 1.0),
    shares: Sequence[float] = (0.5, 0.5),
    reformulated: bool = False,
    p: float = 1.0,
    partner: str = "batch",
    mix_group: int = 32,
) -> options.Transform:
    """Return a transform that mixes each batch by one of several methods, drawn at random.

    kinds: names of the methods: "mixup", "cutmix" or "fmix", with their default options.
    alphas: for each method, the parameter of Beta(alpha, alpha), from which lam is drawn;
      positive.
    shares: for each method, its probability, up to a common factor; positive.
    reformulated, p, partner, mix_group: see mixing.make.

    ValueError for an invalid option, or unless kinds, alphas and shares have the same
    length, at least 1.
    """
    for kind in kinds:
        errors.check_choice("one_of", kind, MIX_SAMPLERS, "change kinds", name="kinds")
    if not len(kinds) == len(alphas) == len(shares) > 0:
        must = "one_of: kinds, alphas and shares must have the same length, at least 1"
        got = f"got {len(kinds)}, {len(alphas)} and {len(shares)}"
        raise ValueError(f"{must}, {got}; give one alpha and one share per kind")
    for alpha, share in zip(alphas, shares):
        errors.check_range("one_of", 1e-6, math.inf, alphas=alpha, shares=share)
    samplers = [MIX_SAMPLERS[kind](alpha) for kind, alpha in zip(kinds, alphas)]

    def draw(key, batch, keep_label):
        """Return the Mix of one method, drawn with probabilities in proportion to `shares`.

        Its mask is (1 h w 1). key, batch, keep_label: see mixing.Sampler.
        """
        k_which, k_draw = jax.random.split(key)
        _, height, width, _ = batch["image"].shape

        def draw_by(sampler):
            mask, lam = sampler(k_draw, batch, keep_label)
            return mixing.Mix(jnp.broadcast_to(mask, (1, height, width, 1)), lam)

        log_shares = jnp.log(jnp.asarray(shares, jnp.float32))
        which = jax.random.categorical(k_which, log_shares)
        branches = [functools.partial(draw_by, sampler) for sampler in samplers]
        return jax.lax.switch(which, branches)

    return mixing.make(
        "one_of",
        draw,
        alpha=1.0,
        reformulated=reformulated,
        p=p,
        partner=partner,
        mix_group=mix_group,
    )


def smooth_labels(*, smoothing: float = 0.1) -> options.Transform:
    """Return a transform that smooths labels: target' = (1 - e) target + e / k.

    e is `smoothing`; k is the number of classes. ValueError unless e is in [0, 1].
    """
    errors.check_range("smooth_labels", 0, 1, smoothing=smoothing)

    def apply(batch, key):
        if options.is_statically(smoothing, 0):
            return batch
        target = batch["target"]
        smooth = (1 - smoothing) * target + smoothing / target.shape[-1]
        return {**batch, "target": smooth}

    return apply


def binary_targets(*, threshold: float | None = None) -> options.Transform:
    """Return a transform that selects the binary cross-entropy of each class as the loss.

    The transform sets batch["binary"] to True.
    threshold: in [0, 1]; targets above the threshold become 1 and all other targets 0, so that
      the two classes of a mixed image may have the target 1. None keeps the targets. ValueError
      outside [0, 1].
    """
    errors.check_range("binary_targets", 0, 1, threshold=threshold)

    def apply(batch, key):
        target = batch["target"]
        if threshold is not None:
            target = (target > threshold).astype(target.dtype)
        return {**batch, "target": target, "binary": True}

    return apply
