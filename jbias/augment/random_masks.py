"""RM: FMix with a few fixed masks, drawn once a run.

Source: Marcu and Prügel-Bennett, "On the Effects of Artificial Data Modification", ICML
2022 (before: "On the Effects of Data Distortion on Model Analysis and Training"),
https://arxiv.org/abs/2110.13968.
Reference code: https://github.com/AntoniaMarcu/Data-Modification at 1cb7717 has it as
bytecode alone.
Deviation: partners inside groups (`jbias.augment.mixing`); masks have the size of the
images, not 32 pixels. The authors' masks have the "released" spectrum of FMix.
"""

from collections.abc import Callable

import jax

from jbias.augment import fmix, mixing


def make(
    *,
    count: int = 3,
    alpha: float = 1.0,
    decay: float = 3.0,
    max_soft: float = 0.0,
    spectrum: str = "isotropic",
    reformulated: bool = False,
    p: float = 1.0,
    partner: str = "batch",
    mix_group: int = 32,
) -> Callable:
    """FMix whose (lam, mask) is one of `count`, each batch's chosen uniformly.

    They are functions of the seed (batch["once"]), the same at every step, and other
    ones for other seeds. lam is uniform at alpha = 1, so a seed can have three very
    unequal masks. reformulated, partner and p are those of FMix.
    """
    if count < 1:
        raise ValueError(
            f"random_masks: count must be 1 or more, got {count}; change count"
        )
    fmix.check("random_masks", max_soft, spectrum)
    sample = fmix.drawing(alpha, decay=decay, max_soft=max_soft, spectrum=spectrum)

    def draw(key, batch, own):
        if "once" not in batch:
            raise ValueError(
                "random_masks: the batch must have the key 'once', got none; add one "
                "that is the same at every step"
            )
        choice = jax.random.randint(key, (), 0, count)
        return sample(jax.random.fold_in(batch["once"], choice), batch, own)

    return mixing.make(
        "random_masks",
        draw,
        alpha=alpha,
        p=p,
        mix_group=mix_group,
        partner=partner,
        reformulated=reformulated,
    )
