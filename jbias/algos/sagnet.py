"""SagNet: train on random styles, and make the styles in the trunk's features uninformative.

One head learns from features of random style. A second head learns from features of random
content, and the trunk learns to confuse the second head.

Source: Nam, Lee, Park, Yoon and Yoo, "Reducing Domain Gap by Reducing Style Bias",
CVPR 2021, https://arxiv.org/abs/1910.11645.
Reference code: https://github.com/hyeonseobnam/sagnet at f87161c.
Deviations: All three gradients are computed at the same weights; the reference updates one
optimiser's weights between two backward passes, which PyTorch refuses since 1.5. Partners are
drawn inside groups of `mix_group` images. A cosine schedule of T steps begins with the full
rate. The reference advances its scheduler before each step: from PyTorch 1.1 on the reference
begins with the rate of step 1 and ends with 0; with PyTorch 1.0, which the reference also
names, the rates are the same as here.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, PRNGKeyArray

from jbias import errors
from jbias.algos import base
from jbias.augment import feature_stats, options


def make(
    net: nn.Module,
    *,
    w_adv: float = 0.1,
    clip: float | None = 0.1,
    dropout: float = 0.5,
    style_stage: int = 3,
    randomise_style: bool = True,
    randomise_content: bool = True,
    double_decay: bool = True,
    copy_net: bool = False,
    variant: str = "",
    mix_group: int = 32,
) -> base.Algo:
    """Return SagNet: a second head, for style, on the net's trunk before `style_stage`.

    Losses: "class", the class loss of the content head, which is the net's head, on
    features of random style; "style", the class loss of the style head on features of
    random content; "adv", w_adv times the cross-entropy between the style head's prediction
    and the uniform distribution. "style" trains the style head; "adv" the scales and biases
    of the trunk's batch norms; "class" the net.

    clip: largest norm of the gradient of "adv".
    dropout: rate before both linear layers.
    style_stage: the first stage of both heads; the trunk is the stem and all earlier stages.
    randomise_style, randomise_content: whether the features of the content head and of the
      style head are randomised.
    double_decay: as in the reference, weights that belong to two optimisers decay in each of them.
      Such weights are in the style head and in the trunk's batch norms, and also belong to the
      optimiser of "class".
    copy_net: initialises the style head's stages as copies of the net's, as in the
      reference for pretrained weights; the style head's linear layer is random.
    variant: "biasbed" is the algorithm of BiasBed's release: contents are not swapped, and
      the three gradients accumulate. The style head and the trunk are then trained by all losses,
      "adv" included. Weights that belong to two optimisers are updated twice.
      The release has no dropout. Its `distributed` mode clips gradients that are still
      multiplied by the loss scale, so that almost nothing remains; here gradients are clipped
      as in the release's other mode.
    mix_group: number of neighbouring images among which styles and contents are exchanged.

    ValueError for a net without batch norm in its trunk unless w_adv is 0, because "adv"
    would train nothing. As in the reference, other normalisations cannot replace batch norm; a
    transformer's LayerNorm normalises each token separately. ValueError also for options out of
    range.

    With w_adv = 0 the "adv" update is left out. If also randomise_style=False and dropout=0, the
    net's training equals ERM bit for bit.
    """
    errors.check_condition("sagnet", "at least 0", w_adv=w_adv)
    errors.check_condition("sagnet", "positive or None", clip=clip)
    errors.check_condition("sagnet", "in [0, 1)", dropout=dropout)
    errors.check_choice(
        "sagnet", variant, ("", "biasbed"), "change variant", name="variant"
    )
    is_biasbed = variant == "biasbed"

    def in_trunk_norm(path: base.Path) -> bool:
        """Return True if a parameter belongs to a batch norm of the trunk."""
        in_trunk = path[0] == "net" and net.stage_of(path[1]) < style_stage
        # Names are "bn1" and "bn_proj" in blocks, "stage1_bn" in nets without blocks.
        return in_trunk and any(word.startswith("bn") for word in path[-2].split("_"))

    has_adversary = not options.is_statically(w_adv, 0)
    if has_adversary and not any(map(in_trunk_norm, base.parameters(net))):
        raise ValueError(
            "sagnet: its adversary trains the batch norms before stage "
            f"{style_stage}, and {type(net).__name__} must have some, got none; take a "
            "model with batch norm, or set w_adv=0 to randomise styles alone"
        )
    net = net.clone(dropout=dropout)
    style = net.clone(tap=None)
    mix = functools.partial(feature_stats.randomise_style, group=mix_group)
    swap = functools.partial(feature_stats.randomise_content, group=mix_group)

    def losses(params, stats, batch, key, static=None):
        """Return the losses "class", "style" and "adv" by name, and `base.Aux` without metrics.

        With variant="biasbed" also "style_adv", the sum of "style" and "adv", and "all", the
        sum of all three.
        """
        k_net, k_mix, k_swap, k_style = jax.random.split(key, 4)
        f, net_stats = base.forward(
            net,
            params["net"],
            stats["net"],
            batch["image"],
            k_net,
            method="features",
            stop=style_stage,
        )
        head = functools.partial(base.forward, method="head_of", start=style_stage)
        mixed = mix(f, k_mix) if randomise_style else f
        content_logits, net_stats = head(net, params["net"], net_stats, mixed, k_net)
        swapped = swap(f, k_swap) if randomise_content and not is_biasbed else f
        style_logits, style_stats = head(
            style, params["style"], stats["style"], swapped, k_style
        )
        named = {
            "class": base.objective(content_logits, batch),
            "style": base.objective(style_logits, batch),
            "adv": w_adv * base.weighted_mean(confusion(style_logits), batch),
        }
        if is_biasbed:
            named["style_adv"] = named["style"] + named["adv"]
            named["all"] = named["style_adv"] + named["class"]
        return named, base.Aux({**stats, "net": net_stats, "style": style_stats}, {})

    def init(key, image, net_variables):
        """Return {"params", "stats"} of the style head; see base.Algo.parts."""
        return _init_style_head(
            key,
            image,
            net_variables,
            style=style,
            style_stage=style_stage,
            copy_net=copy_net,
        )

    if is_biasbed:
        updates = _biasbed_updates(in_trunk_norm, clip)
    else:
        updates = _updates(in_trunk_norm, clip=clip, double_decay=double_decay)
    # The weight decay of an "adv" update would change the trunk even if w_adv is 0.
    updates = tuple(u for u in updates if has_adversary or u.loss != "adv")
    return base.Algo(net, losses, updates, {"style": init}, mix_group=mix_group)


def confusion(logits: Float[Array, "b k"]) -> Float[Array, "b"]:
    """Return mean_k -log(softmax(z)_k + 1e-5) per example; smallest for uniform predictions."""
    return jnp.mean(-jnp.log(jax.nn.softmax(logits) + 1e-5), axis=-1)


def _in_style(path: base.Path) -> bool:
    """Return True if a parameter belongs to the style head."""
    return path[0] == "style"


def _updates(
    in_trunk_norm: Callable[[base.Path], bool],
    *,
    clip: float | None,
    double_decay: bool,
) -> tuple[base.Update, ...]:
    """Return the updates "style", "adv" and "class", in this order; see `make`.

    in_trunk_norm: path of a parameter -> whether it belongs to a batch norm of the trunk.
    clip, double_decay: see `make`.
    """

    def in_class_optimiser(path: base.Path) -> bool:
        """Return True if the optimiser of the loss "class" updates a parameter."""
        return double_decay or not _in_style(path)

    return (
        base.Update("style", _in_style),
        base.Update("adv", in_trunk_norm, clip=clip, decay=double_decay),
        base.Update("class", in_class_optimiser),
    )


def _biasbed_updates(
    in_trunk_norm: Callable[[base.Path], bool], clip: float | None
) -> tuple[base.Update, ...]:
    """Return the updates of BiasBed's variant (see `make`), in the order of their steps.

    in_trunk_norm, clip: see `_updates`.
    """

    def is_other(path: base.Path) -> bool:
        """Return True for a parameter outside of the style head and the trunk's batch norms."""
        return not _in_style(path) and not in_trunk_norm(path)

    norms = base.Update("style_adv", in_trunk_norm, clip=clip, plus="class")
    head = base.Update("all", _in_style)
    # The optimiser of the class loss repeats the updates of the other two.
    return (head, norms, head, norms, base.Update("all", is_other))


def _init_style_head(
    key: PRNGKeyArray,
    image: Float[Array, "b h w c"],
    net_variables: Mapping[str, Any],
    *,
    style: nn.Module,
    style_stage: int,
    copy_net: bool,
) -> dict[str, Any]:
    """Return the initial {"params", "stats"} of the style head, for images of this shape.

    style: the net whose stages from `style_stage` on are the style head. copy_net: see `make`.
    """
    features = functools.partial(style.apply, method="features", stop=style_stage)
    f = jax.eval_shape(features, net_variables, image)
    zeros = jnp.zeros(f.shape, f.dtype)
    variables = style.init(key, zeros, method="head_of", start=style_stage)
    if not copy_net:
        return variables
    copied = {}
    for kind in ("params", "stats"):
        copied[kind] = dict(variables[kind])
        for name in variables[kind].keys() - {"fc"}:
            copied[kind][name] = net_variables[kind][name]
    return copied


ALGOS = {"sagnet": make}
