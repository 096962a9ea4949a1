"""MixUp: a weighted mean of two images, and of their labels.

Source: Zhang, Cisse, Dauphin and Lopez-Paz, ICLR 2018, https://arxiv.org/abs/1710.09412.
Reference code: https://github.com/facebookresearch/mixup-cifar10 at eaff31a; of the
reformulated loss https://github.com/ecs-vlc/FMix at e5991dc.
Deviation: partners inside groups (`jbias.augment.mixing`).
"""

from collections.abc import Callable

from jbias.augment import mixing


def make(
    *,
    alpha: float = 1.0,
    reformulated: bool = False,
    p: float = 1.0,
    partner: str = "batch",
    mix_group: int = 32,
) -> Callable:
    """x' = lam x + (1 - lam) x_partner, with one lam ~ Beta(alpha, alpha) a batch.

    reformulated: lam ~ Beta(alpha + 1, alpha), and the own label alone. partner: of the
    same "batch", or of the "other" source, then always reformulated (inter-dataset
    MixUp). p is the chance of a batch to be mixed.
    """
    sample = mix_sampler(alpha)
    return mixing.make("mixup", sample, alpha, reformulated, p, partner, mix_group)


def mix_sampler(alpha: float) -> Callable:
    """Builds (key, batch, own) -> Mix with the same share of every pixel."""

    def draw(key, batch, own):
        lam = mixing.draw_lambda(key, alpha, own)
        return mixing.Mix(lam.reshape(1, 1, 1, 1), lam)

    return draw
