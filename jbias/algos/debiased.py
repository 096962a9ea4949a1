"""Shape-texture debiased training: stylised images, labelled by content and style.

Source: Li et al., "Shape-Texture Debiased Neural Network Training", ICLR 2021,
https://arxiv.org/abs/2010.05981.
Reference code: https://github.com/LiYingwei/ShapeTextureDebiasedTraining at afdb8b7; of
variant="biasbed" https://github.com/D1noFuzi/BiasBed at 499b912.
Deviations: Styles are drawn inside groups of `mix_group` images. Features are computed once
for content and style. The grid of sizes follows the number of the step; in the reference the grid
follows the number of the batch in its epoch. Auxiliary normalisation is correct for any
number of devices; the reference is correct only in its multi-grid recipes. A warm-up of W steps
begins with rate 0; the reference begins with 1 / W of the full rate, because it advances its
scheduler before each step (at PyTorch 1.4), so that step i + 1 here has the reference's rate
of step i. BiasBed's 16-bit arithmetic, which skips batches that overflow, is left out.
"""

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import traverse_util
from jaxtyping import PRNGKeyArray

from jbias import errors
from jbias.algos import base, erm
from jbias.augment import batch_permutations
from jbias.models import taps

VARIANTS = ("", "biasbed")
PICTURES = ("image", "renders")  # Entries of a batch that are images.


def make(
    net: nn.Module,
    *,
    transfer: Callable | None = None,
    gamma: float = 0.8,
    alpha: float = 0.5,
    stylised: bool = True,
    aux_bn: bool = True,
    mix: Callable | None = None,
    multi_grid: bool = False,
    milestones: Sequence[float] = (0.3, 0.6, 0.9),
    min_size: int = 0,
    variant: str = "",
    mix_group: int = 32,
) -> base.Algo:
    """Return debiased training, which trains on clean and stylised images.

    L = 1/2 [CE(z, y) + gamma CE(z', y) + (1 - gamma) CE(z', y')], where z' are the logits of
    the image in the style of a second image of the same group, and y' is the label of the
    second image.

    transfer: (batch, permute, alpha) -> image, from models.TRANSFERS. Its output has no
      gradient and is not clipped to [0, 1].
    gamma: share of the content's label; 1 is the shape-biased variant, 0 the texture-biased.
    alpha: strength of the style transfer, in [0, 1].
    stylised: False: return ERM.
    aux_bn: stylised images have separate batch norms (scale, bias, statistics), which
      evaluation does not use. If False, stylised images pass the net's batch norms after the
      clean images. Must be False for a net without batch norm.
    mix: (batch, key) -> batch, from AUGMENTS, applied to the clean images only; in a config
      a dict such as dict(name="mixup", alpha=0.4), which gets this mix_group.
    multi_grid: images are downsampled before they are stylised: the side of an image is divided
      by sqrt(2) at even steps, and again by sqrt(2) in the first half of every phase of the
      learning rate, but not below `min_size` pixels. Phases end at `milestones`, fractions of
      the training.
    variant: "biasbed" also gives clean images a second label: all 2n images have
      (1 + gamma) / 2 of y and (1 - gamma) / 2 of y'. The transfer gets images normalised
      by the net's mean and std, and the net does not normalise the transfer's output.
    mix_group: number of neighbouring images among which styles are exchanged.

    ValueError for an option out of range, for stylised images without a transfer, for aux_bn
    with a net without batch norm, and for a mix that the other options exclude.
    """
    errors.check_range("debiased", 0, 1, gamma=gamma, alpha=alpha)
    errors.check_choice("debiased", variant, VARIANTS, "change variant", name="variant")
    if stylised and transfer is None:
        raise ValueError(
            'debiased: transfer must be set, got None; such as transfer=dict(name="small")'
        )
    if mix is not None and (variant or not stylised):
        raise ValueError(
            "debiased: mix must be None with a variant or without stylised images, got"
            f" variant={variant!r}, stylised={stylised}; drop one"
        )
    for share in milestones:
        errors.check_range("debiased", 0, 1, milestones=share)
    if not stylised:
        return erm.make(net)
    if aux_bn and not taps.shapes(net).variables.get("stats"):
        raise ValueError(
            f"debiased: aux_bn must be False for {type(net).__name__}, which has no "
            "batch norm, got True"
        )

    def stylise(batch, content, key) -> tuple[base.Batch, base.Batch]:
        """Return (clean batch, stylised batch).

        content: the batch with images of the size at which they are stylised, the result of
        `_shrink`; stylised images have this size. The clean batch is `batch` itself; with
        `variant`, it is a copy with mixed labels. key: selects the image that gives each image its
        style. All other arguments are those of the enclosing `make`.
        """
        if variant:
            return _biasbed_batches(
                batch,
                content,
                key,
                net=net,
                transfer=transfer,
                gamma=gamma,
                alpha=alpha,
                mix_group=mix_group,
            )
        styled = _stylise(
            batch,
            content,
            key,
            transfer=transfer,
            gamma=gamma,
            alpha=alpha,
            mix_group=mix_group,
        )
        return batch, styled

    def losses(params, stats, batch, key, static=None):
        """Return {"class": loss} and `base.Aux`; see base.Algo.

        Metrics: "loss_clean" and "loss_stylised". static: the number of shrinks.
        """
        k_clean, k_styled, k_pair, k_mix = jax.random.split(key, 4)
        content = _shrink(batch, static or 0, min_size)
        clean, styled = stylise(batch, content, k_pair)
        if mix is not None:
            clean = mix(clean, k_mix)
        logits, net_stats = base.forward(
            net, params["net"], stats["net"], clean["image"], k_clean
        )
        styled_params, styled_stats = params["net"], net_stats
        if aux_bn:
            styled_params = _overlay(params["net"], params["aux"])
            styled_stats = stats["aux"]
        styled_logits, styled_stats = base.forward(
            net, styled_params, styled_stats, styled["image"], k_styled
        )
        if aux_bn:
            new_stats = {**stats, "net": net_stats, "aux": styled_stats}
        else:
            new_stats = {**stats, "net": styled_stats}
        clean_loss = base.objective(logits, clean)
        styled_loss = base.objective(styled_logits, styled)
        metrics = {"loss_clean": clean_loss, "loss_stylised": styled_loss}
        loss = (clean_loss + styled_loss) / 2
        return {"class": loss}, base.Aux(new_stats, metrics)

    static = base.no_static
    if multi_grid:
        static = functools.partial(_num_shrinks, milestones)
    parts = {"aux": _init_aux} if aux_bn else {}
    return base.Algo(net, losses, parts=parts, static=static, mix_group=mix_group)


def _stylise(
    batch: base.Batch,
    content: base.Batch,
    key: PRNGKeyArray,
    *,
    transfer: Callable,
    gamma: float,
    alpha: float,
    mix_group: int,
) -> dict[str, Any]:
    """Return the batch with stylised images and labels mixed from content and style.

    content: the same batch with smaller images, from which contents and styles are taken.
    Other arguments: see `make`.
    """
    target, views = batch["target"], batch.get("views", 1)
    swap = functools.partial(
        batch_permutations.permute, key=key, group=mix_group, views=views
    )
    image = transfer(content, functools.partial(jax.tree.map, swap), alpha)
    target = gamma * target + (1 - gamma) * swap(target)
    image = jax.lax.stop_gradient(image)
    return {**batch, "image": image, "target": target}


def _biasbed_batches(
    batch: base.Batch,
    content: base.Batch,
    key: PRNGKeyArray,
    *,
    net: nn.Module,
    transfer: Callable,
    gamma: float,
    alpha: float,
    mix_group: int,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (clean batch, stylised batch) of BiasBed's variant.

    Both are copies of `batch` with another "target", (1 + gamma) / 2 of the image's label and (1 -
    gamma) / 2 of the label of the image that gives the style; the second also has stylised images
    in "image". content: the same batch with smaller images. Other arguments: see `make`.
    """
    mean, std = np.float32([net.mean, net.std])[:, None, None, None]
    content = {**content, "image": (content["image"] - mean) / std}
    styled = _stylise(
        batch,
        content,
        key,
        transfer=transfer,
        gamma=(1 + gamma) / 2,
        alpha=alpha,
        mix_group=mix_group,
    )
    # This undoes the normalisation in the net's first layer.
    image = styled["image"] * std + mean
    return {**batch, "target": styled["target"]}, {**styled, "image": image}


def _num_shrinks(milestones: Sequence[float], step: int, steps: int) -> int:
    """Return the number of times that a step divides its images' side by sqrt(2): 0, 1 or 2.

    milestones: see `make`. step, steps: number of the step, and of all steps of the stage.
    """
    ends = [0, *(math.floor(steps * share) for share in sorted(milestones)), steps]
    phases = itertools.pairwise(ends)
    in_first_half = any(start <= step < (start + end) / 2 for start, end in phases)
    return int(step % 2 == 0) + int(in_first_half)


def _shrink(batch: base.Batch, num_shrinks: int, min_size: int) -> dict[str, Any]:
    """Return a copy of the batch with images made smaller by nearest-neighbour sampling.

    Pixel i of a new side is pixel floor(i * old side / new side) of the old side. The sides of
    "image" and "renders" are divided by sqrt(2) `num_shrinks` times and rounded, but not below
    `min_size` pixels; smaller images are never enlarged.
    """
    batch = dict(batch)
    for name in PICTURES if num_shrinks else ():
        if name in batch:
            for axis in (-3, -2):
                old = batch[name].shape[axis]
                new = min(old, max(int(old / 2 ** (num_shrinks / 2) + 0.5), min_size))
                indices = np.arange(new) * old // new
                batch[name] = jnp.take(batch[name], indices, axis=axis)
    return batch


def _init_aux(key, image, net_variables) -> dict[str, Any]:
    """Return copies of the net's batch norms: {"params": parameters, "stats": statistics}.

    Batch norms are the modules that have statistics. Arguments: see base.Algo.parts.
    """
    stats = net_variables["stats"]
    params = traverse_util.flatten_dict(net_variables["params"])
    norms = {path[:-1] for path in traverse_util.flatten_dict(stats)}
    norm_params = {path: value for path, value in params.items() if path[:-1] in norms}
    variables = {"params": traverse_util.unflatten_dict(norm_params), "stats": stats}
    # Without a copy one buffer would be donated twice.
    return jax.tree.map(jnp.copy, variables)


def _overlay(tree: Mapping, top: Mapping) -> dict[str, Any]:
    """Return a copy of `tree` in which leaves at paths of `top` are the leaves of `top`."""
    below, above = map(traverse_util.flatten_dict, (tree, top))
    return traverse_util.unflatten_dict({**below, **above})


ALGOS = {"debiased": make}
