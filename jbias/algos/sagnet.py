"""SagNet: one head sees random styles, another random contents and misleads the trunk.

Source: Nam, Lee, Park, Yoon and Yoo, "Reducing Domain Gap by Reducing Style Bias",
CVPR 2021, https://arxiv.org/abs/1910.11645.
Reference code: https://github.com/hyeonseobnam/sagnet at f87161c.
Deviations: all three gradients are taken at the same weights (the reference steps one
optimiser between two backward passes, which PyTorch refuses since 1.5); partners are
drawn inside groups of `mix_group` images; a cosine of T steps begins with the full rate,
the reference's, which moves its scheduler before each step, from PyTorch 1.1 on with that
of step 1, and ends with 0 (under 1.0, which it names as well, it is as here).
"""

import functools

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

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
    """Splits the net before `style_stage` and trains a second, style, head on the trunk.

    Losses: "class" of the content head, which is the net's own, on features of random
    style; "style", the class loss of the style head on features of random content;
    "adv" = w_adv times the style head's distance from knowing nothing. "style" trains
    the style head, "adv" the scales and biases of the trunk's batch norms with a
    gradient of norm `clip` at most, "class" the net.

    dropout: rate before both linear layers.
    double_decay: as in the reference, every weight that two optimisers hold decays in
      both: the style head in that of the class loss too, and the trunk's batch norms.
    copy_net: starts the style head's stages as copies of the net's (the reference does
      so for pretrained weights); its linear layer is drawn.
    variant: "biasbed" is the algorithm of BiasBed's release: contents are not swapped,
      and the three gradients pile up, so that the style head learns to confuse itself,
      the trunk follows all losses, and what two optimisers hold is stepped twice. Its
      release has no dropout either. With its `distributed` it clips gradients that are
      still multiplied by the loss scale, so that next to nothing of them is left; here
      they are clipped as without.

    A net without batch norm in its trunk is refused unless w_adv is 0: its adversary
    would train nothing. As in the reference, no other normalisation counts; LayerNorm,
    of transformers, scales the channels of each word by themselves.

    With w_adv = 0 the "adv" update is left out; with randomise_style=False and
    dropout=0 too, the net learns as in ERM to the bit.
    """
    options.check_plain("sagnet", "at least 0", w_adv=w_adv)
    options.check_plain("sagnet", "positive or None", clip=clip)
    options.check_plain("sagnet", "in [0, 1)", dropout=dropout)
    options.check_choice("sagnet", "variant", variant, ("", "biasbed"))
    released = variant == "biasbed"

    def in_trunk_norm(path: base.Path) -> bool:
        trunk = path[0] == "net" and net.stage_of(path[1]) < style_stage
        # "bn1" and "bn_proj" in blocks, "stage1_bn" where a net has none.
        return trunk and any(part.startswith("bn") for part in path[-2].split("_"))

    opposed = not options.is_statically(w_adv, 0)
    if opposed and not any(map(in_trunk_norm, base.parameters(net))):
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
        k_net, k_mix, k_swap, k_style = jax.random.split(key, 4)
        own = params["net"], stats["net"]
        trunk = dict(method="features", stop=style_stage)
        f, seen = base.forward(net, *own, batch["image"], k_net, **trunk)
        head = functools.partial(base.forward, method="head_of", start=style_stage)
        mixed = mix(f, k_mix) if randomise_style else f
        content, seen = head(net, params["net"], seen, mixed, k_net)
        swapped = swap(f, k_swap) if randomise_content and not released else f
        texture, noted = head(style, params["style"], stats["style"], swapped, k_style)
        named = {
            "class": base.objective(content, batch),
            "style": base.objective(texture, batch),
            "adv": w_adv * base.weighted_mean(confusion(texture), batch),
        }
        if released:
            named["style_adv"] = named["style"] + named["adv"]
            named["all"] = named["style_adv"] + named["class"]
        return named, base.Aux({**stats, "net": seen, "style": noted}, {})

    init = functools.partial(_init, style, style_stage, copy_net)
    updates = _updates(in_trunk_norm, clip, double_decay, released)
    # Kept, the weight decay of "adv" would still move the trunk.
    updates = tuple(u for u in updates if opposed or u.loss != "adv")
    return base.Algo(net, losses, updates, {"style": init}, mix_group=mix_group)


def confusion(logits: Float[Array, "b k"]) -> Float[Array, "b"]:
    """Returns mean_k -log(softmax(z)_k + 1e-5): least where all classes are equal."""
    return jnp.mean(-jnp.log(jax.nn.softmax(logits) + 1e-5), axis=-1)


def _updates(in_trunk_norm, clip, double_decay, released) -> tuple[base.Update, ...]:
    def in_style(path: base.Path) -> bool:
        return path[0] == "style"

    def by_class(path: base.Path) -> bool:
        return double_decay or not in_style(path)

    def elsewhere(path: base.Path) -> bool:
        return not in_style(path) and not in_trunk_norm(path)

    if released:
        # The second of two equal ones is the class loss's optimiser.
        norms = base.Update("style_adv", in_trunk_norm, clip, plus="class")
        head = base.Update("all", in_style)
        return (head, norms, head, norms, base.Update("all", elsewhere))
    adversary = base.Update("adv", in_trunk_norm, clip, decay=double_decay)
    return base.Update("style", in_style), adversary, base.Update("class", by_class)


def _init(style, style_stage, copy_net, key, image, net_variables) -> dict:
    """Draws the style head for features of the shape that this image gives."""
    features = functools.partial(style.apply, method="features", stop=style_stage)
    f = jax.eval_shape(features, net_variables, image)
    zeros = jnp.zeros(f.shape, f.dtype)
    drawn = style.init(key, zeros, method="head_of", start=style_stage)
    if not copy_net:
        return drawn
    own = {kind: drawn[kind].keys() - {"fc"} for kind in ("params", "stats")}
    return {
        kind: {**drawn[kind], **{name: net_variables[kind][name] for name in names}}
        for kind, names in own.items()
    }
