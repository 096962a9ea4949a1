"""The MixUp transform: a weighted mean of two images, and of their labels.

Source: Zhang, Cisse, Dauphin and Lopez-Paz, ICLR 2018, https://arxiv.org/abs/1710.09412.
Reference code: https://github.com/facebookresearch/mixup-cifar10 at eaff31a; for the
reformulated loss https://github.com/ecs-vlc/FMix at e5991dc.
Deviation: partners are drawn inside groups (`jbias.augment.mixing`).
"""

from jbias.augment import mixing, options


def make(
    *,
    alpha: float = 1.0,
    reformulated: bool = False,
    p: float = 1.0,
    partner: str = "batch",
    mix_group: int = 32,
) -> options.Transform:
    """Return the MixUp transform: x' = lam x + (1 - lam) x_partner.

    Each batch has one lam ~ Beta(alpha, alpha), which also weights the labels.
    reformulated, p, partner, mix_group: see mixing.make. ValueError for an invalid option.
    """
    return mixing.make(
        "mixup",
        mix_sampler(alpha),
        alpha=alpha,
        reformulated=reformulated,
        p=p,
        partner=partner,
        mix_group=mix_group,
    )


def mix_sampler(alpha: float) -> mixing.Sampler:
    """Return a function draw(key, batch, keep_label) -> mixing.Mix, with the constant mask lam.

    alpha: parameter of lam's distribution, see mixing.draw_lambda.
    """

    def draw(key, batch, keep_label):
        lam = mixing.draw_lambda(key, alpha, keep_label)
        return mixing.Mix(lam.reshape(1, 1, 1, 1), lam)

    return draw
