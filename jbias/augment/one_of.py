"""Mixes each batch by one of several ways: MixUp or CutMix, FMix or MixUp.

Source: MixUp or CutMix as in the training recipes of timm and torchvision, see
Wightman, Touvron and Jegou, "ResNet strikes back", https://arxiv.org/abs/2110.00476;
FMix with MixUp or CutMix in Harris et al., 2020, https://arxiv.org/abs/2002.12047.
Deviation: partners inside groups (`jbias.augment.mixing`); FMix's released code takes
turns instead of drawing (https://github.com/ecs-vlc/FMix at e5991dc).
"""

import math
import types
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp

from jbias.augment import cutmix, fmix, mixing, mixup, options

KINDS: Mapping[str, Callable] = types.MappingProxyType(
    {"mixup": mixup.drawing, "cutmix": cutmix.drawing, "fmix": fmix.drawing}
)


def make(
    *,
    kinds: Sequence[str] = ("mixup", "cutmix"),
    alphas: Sequence[float] = (0.2, 1.0),
    shares: Sequence[float] = (0.5, 0.5),
    reformulated: bool = False,
    p: float = 1.0,
    partner: str = "batch",
    mix_group: int = 32,
) -> Callable:
    """Mixes a batch by kinds[i], of alphas[i], with probability shares[i].

    Kinds are "mixup", "cutmix" and "fmix" with their defaults; `shares` are divided by
    their sum. reformulated and partner are theirs. p is the chance of a batch to be
    mixed at all.
    """
    for kind in kinds:
        options.one_of("one_of", "kinds", kind, KINDS)
    if not len(kinds) == len(alphas) == len(shares) > 0:
        raise ValueError(
            "one_of: kinds, alphas and shares must be as many, at least one, got "
            f"{len(kinds)}, {len(alphas)} and {len(shares)}; give one of each a kind"
        )
    for alpha, part in zip(alphas, shares):
        options.within("one_of", "alphas", alpha, 1e-6, math.inf)
        options.within("one_of", "shares", part, 1e-6, math.inf)
    ways = [KINDS[kind](alpha) for kind, alpha in zip(kinds, alphas)]

    def draw(key, batch, own):
        k_which, k_draw = jax.random.split(key)
        _, height, width, _ = batch["image"].shape

        def whole(way):
            mask, lam = way(k_draw, batch, own)
            return mixing.Mix(jnp.broadcast_to(mask, (1, height, width, 1)), lam)

        chance = jnp.log(jnp.asarray(shares, jnp.float32))
        which = jax.random.categorical(k_which, chance)
        return jax.lax.switch(which, [lambda way=way: whole(way) for way in ways])

    return mixing.make(
        "one_of",
        draw,
        alpha=1.0,
        p=p,
        mix_group=mix_group,
        partner=partner,
        reformulated=reformulated,
    )
