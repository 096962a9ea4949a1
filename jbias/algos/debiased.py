"""Shape-texture debiased training: images in another's style, labelled by both.

Source: Li et al., "Shape-Texture Debiased Neural Network Training", ICLR 2021,
https://arxiv.org/abs/2010.05981.
Reference code: https://github.com/LiYingwei/ShapeTextureDebiasedTraining at afdb8b7; of
variant="biasbed" https://github.com/D1noFuzi/BiasBed at 499b912.
Deviations: styles are drawn inside groups of `mix_group` images; features are computed
once for content and style; the grid of sizes goes by the number of the step, the
reference's by that of the batch in its epoch; auxiliary normalisation is right whatever
the number of devices, which the reference's is in its multi-grid recipes only; a warm-up
of W steps begins with rate 0, the reference's with 1 / W of the full one, as it moves its
scheduler before each step (at PyTorch 1.4): step i + 1 here has its rate of step i.
BiasBed's
16-bit arithmetic, and its skipping of batches that it overflows in, are left out.
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

from jbias.algos import base, erm
from jbias.augment import options, sampling
from jbias.models import taps

VARIANTS = ("", "biasbed")
PICTURES = ("image", "renders")  # What a batch may hold of its images.


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
    """L = 1/2 [CE(z, y) + gamma CE(z', y) + (1 - gamma) CE(z', y')], z' of the stylised.

    Each image is also shown in the style of another of its group, whose label is y'.

    transfer: (batch, permute, alpha) -> image, as models.TRANSFERS make; no gradient
      passes it, and its output is not cut to [0, 1].
    gamma: the share of the shape's label; 1 is the shape-biased variant, 0 the
      texture-biased. alpha: how far features move to the style.
    stylised: without, this is ERM.
    aux_bn: the stylised images have batch norms of their own (scale, bias, statistics),
      which evaluation does not use. Without, they follow the clean ones through the
      net's; a net that has no batch norm must go without.
    mix: (batch, key) -> batch for the clean half alone, as AUGMENTS make; in a config
      such as dict(name="mixup", alpha=0.4), which gets this mix_group.
    multi_grid: images are made smaller before they are stylised, their side divided by
      sqrt(2) at even steps and by sqrt(2) in the first half of every phase of the
      learning rate, but not below `min_size` pixels. Phases end at `milestones`, shares
      of the training.
    variant: "biasbed" gives clean images, too, the label of a stranger: all 2n have
      (1 + gamma) / 2 of y and (1 - gamma) / 2 of y'. The transfer gets images with the
      net's mean and deviation taken off, and the net the transfer's output without.
    """
    options.check_range("debiased", 0, 1, gamma=gamma, alpha=alpha)
    options.check_choice("debiased", "variant", variant, VARIANTS)
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
        options.check_range("debiased", 0, 1, milestones=share)
    if not stylised:
        return erm.make(net)
    if aux_bn and not taps.shapes(net).variables.get("stats"):
        raise ValueError(
            f"debiased: aux_bn must be False for {type(net).__name__}, which has no "
            "batch norm, got True"
        )
    make_pair = _biasbed if variant else _pair
    pair = functools.partial(make_pair, net, transfer, gamma, alpha, mix_group)

    def losses(params, stats, batch, key, static=None):
        k_clean, k_styled, k_pair, k_mix = jax.random.split(key, 4)
        clean, styled = pair(batch, _shrunk(batch, static or 0, min_size), k_pair)
        if mix is not None:
            clean = mix(clean, k_mix)
        plain = params["net"], stats["net"]
        logits, seen = base.forward(net, *plain, clean["image"], k_clean)
        weights, noted = params["net"], seen
        if aux_bn:
            weights, noted = _overlay(params["net"], params["aux"]), stats["aux"]
        run = functools.partial(base.forward, net, weights, noted)
        styled_logits, noted = run(styled["image"], k_styled)
        new = {"net": seen, "aux": noted} if aux_bn else {"net": noted}
        own = base.objective(logits, clean)
        theirs = base.objective(styled_logits, styled)
        metrics = {"loss_clean": own, "loss_stylised": theirs}
        return {"class": (own + theirs) / 2}, base.Aux({**stats, **new}, metrics)

    static = functools.partial(_grid, milestones) if multi_grid else base.no_static
    parts = {"aux": _init} if aux_bn else {}
    return base.Algo(net, losses, parts=parts, static=static, mix_group=mix_group)


def _pair(net, transfer, gamma, alpha, mix_group, batch, small, key) -> tuple:
    """The clean batch, and the stylised one with both labels."""
    own, views = batch["target"], batch.get("views", 1)
    swap = functools.partial(sampling.permute, key=key, group=mix_group, views=views)
    image = transfer(small, functools.partial(jax.tree.map, swap), alpha)
    target = gamma * own + (1 - gamma) * swap(own)
    image = jax.lax.stop_gradient(image)
    return batch, {**batch, "image": image, "target": target}


def _biasbed(net, transfer, gamma, alpha, mix_group, batch, small, key) -> tuple:
    """The same in BiasBed: the mean of all losses meets the mean of all weights."""
    mean, std = np.float32([net.mean, net.std])[:, None, None, None]
    small = {**small, "image": (small["image"] - mean) / std}
    share = (1 + gamma) / 2
    clean, styled = _pair(net, transfer, share, alpha, mix_group, batch, small, key)
    # The net's first layer takes mean and deviation off again.
    image = styled["image"] * std + mean
    return {**clean, "target": styled["target"]}, {**styled, "image": image}


def _grid(milestones: Sequence[float], step: int, steps: int) -> int:
    """How often a step divides the side of its images by sqrt(2): 0, 1 or 2."""
    ends = [0, *(math.floor(steps * share) for share in sorted(milestones)), steps]
    phases = itertools.pairwise(ends)
    first = any(start <= step < (start + end) / 2 for start, end in phases)
    return int(step % 2 == 0) + int(first)


def _shrunk(batch: base.Batch, halvings: int, least: int) -> dict[str, Any]:
    """Makes the images of a batch smaller: pixel i is pixel floor(i old / new)."""
    batch = dict(batch)
    for name in PICTURES if halvings else ():
        if name in batch:
            for axis in (-3, -2):
                old = batch[name].shape[axis]
                new = min(old, max(int(old / 2 ** (halvings / 2) + 0.5), least))
                read = np.arange(new) * old // new
                batch[name] = jnp.take(batch[name], read, axis=axis)
    return batch


def _init(key, image, net_variables) -> dict[str, Any]:
    """Copies the net's batch norms: the modules that keep statistics."""
    stats = net_variables["stats"]
    params = traverse_util.flatten_dict(net_variables["params"])
    norms = {path[:-1] for path in traverse_util.flatten_dict(stats)}
    own = {path: value for path, value in params.items() if path[:-1] in norms}
    copied = {"params": traverse_util.unflatten_dict(own), "stats": stats}
    return jax.tree.map(jnp.copy, copied)  # Donated buffers must not meet twice.


def _overlay(tree: Mapping, top: Mapping) -> dict[str, Any]:
    """Lays one tree over another; what it lacks stays."""
    below, above = map(traverse_util.flatten_dict, (tree, top))
    return traverse_util.unflatten_dict({**below, **above})
