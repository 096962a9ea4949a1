"""PGD adversarial training: learns from images that were changed to raise its loss.

Source: Madry, Makelov, Schmidt, Tsipras and Vladu, ICLR 2018,
https://arxiv.org/abs/1706.06083.
Reference code: https://github.com/MadryLab/robustness at a954124.
The defaults are the recipe of Salman, Ilyas, Engstrom, Kapoor and Madry, "Do
Adversarially Robust ImageNet Models Transfer Better?", NeurIPS 2020,
https://arxiv.org/abs/2007.08489: three steps of two thirds of eps.
"""

import jax
from flax import linen as nn

from jbias.algos import base, erm
from jbias.augment import adversarial, options


def make(
    net: nn.Module,
    *,
    norm: str = "linf",
    eps: float = 4 / 255,
    steps: int = 3,
    step_size: float | None = None,
    random_start: bool = False,
    keep_best: bool = True,
) -> base.Algo:
    """ERM on images attacked within `eps`, in the norm "linf" or "l2".

    The attack runs the net as in evaluation, by its running statistics, and changes
    none of them; the training pass that follows sees attacked images only. It raises
    each image's own class loss, whatever weight that has in the batch.

    eps: of images in [0, 1]; with the number 0 this is ERM to the bit.
    step_size: None is 2/3 eps.
    random_start, keep_best: those of adversarial.pgd; `keep_best` costs a forward pass.
    """
    options.check_choice("pgd", "norm", norm, adversarial.BALLS)
    options.check_plain("pgd", "at least 0", eps=eps)
    options.check_plain("pgd", "positive", step_size=step_size)
    options.check_plain("pgd", "at least 1", steps=steps)
    if options.is_statically(eps, 0):
        return erm.make(net)
    step_size = 2 * eps / 3 if step_size is None else step_size
    own = dict(steps=steps, step_size=step_size, random_start=random_start)
    own |= dict(norm=norm, eps=eps, keep_best=keep_best)
    plain = erm.make(net)

    def losses(params, stats, batch, key, static=None):
        k_attack, k_net = jax.random.split(key)
        # Held constant: else the ascent itself would be differentiated by them.
        fixed = jax.lax.stop_gradient(params["net"])

        def loss(image):
            logits, _ = base.forward(net, fixed, stats["net"], image, None, train=False)
            return base.example_losses(logits, batch)

        image = adversarial.pgd(loss, batch["image"], k_attack, **own)
        return plain.losses(params, stats, {**batch, "image": image}, k_net, static)

    return base.Algo(net, losses)
