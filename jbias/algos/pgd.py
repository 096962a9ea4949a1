"""PGD adversarial training: train on images that were changed to increase the loss.

Source: Madry, Makelov, Schmidt, Tsipras and Vladu, ICLR 2018,
https://arxiv.org/abs/1706.06083.
Reference code: https://github.com/MadryLab/robustness at a954124.
The defaults are the recipe of Salman, Ilyas, Engstrom, Kapoor and Madry, "Do
Adversarially Robust ImageNet Models Transfer Better?", NeurIPS 2020,
https://arxiv.org/abs/2007.08489: three steps of two thirds of eps.
"""

import jax
from flax import linen as nn

from jbias import errors
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
    """Return ERM on images that are attacked within a distance `eps`.

    The attack increases each image's class loss, without the weights of examples. The attack
    runs the net in evaluation mode, with running statistics of batch norm; the training pass
    uses only attacked images.

    norm: "linf" or "l2".
    eps: largest distance, for images in [0, 1]; with the number 0 this equals ERM bit for bit.
    steps: number of gradient steps.
    step_size: length of each step; None: 2/3 eps.
    random_start, keep_best: see adversarial.pgd; `keep_best` costs a forward pass.

    ValueError for an unknown norm and for a number out of range.
    """
    errors.check_choice("pgd", norm, adversarial.BALLS, "change norm", name="norm")
    errors.check_condition("pgd", "at least 0", eps=eps)
    errors.check_condition("pgd", "positive", step_size=step_size)
    errors.check_condition("pgd", "at least 1", steps=steps)
    if options.is_statically(eps, 0):
        return erm.make(net)
    step_size = 2 * eps / 3 if step_size is None else step_size
    plain = erm.make(net)

    def losses(params, stats, batch, key, static=None):
        """Return {"class": loss on attacked images} and `base.Aux`; see base.Algo."""
        k_attack, k_net = jax.random.split(key)
        # Without stop_gradient, JAX would differentiate the attack by the weights.
        fixed = jax.lax.stop_gradient(params["net"])

        def loss(image):
            """Return the class loss of each image."""
            logits, _ = base.forward(net, fixed, stats["net"], image, None, train=False)
            return base.example_losses(logits, batch)

        image = adversarial.pgd(
            loss,
            batch["image"],
            k_attack,
            norm=norm,
            eps=eps,
            steps=steps,
            step_size=step_size,
            random_start=random_start,
            keep_best=keep_best,
        )
        return plain.losses(params, stats, {**batch, "image": image}, k_net, static)

    return base.Algo(net, losses)


ALGOS = {"pgd": make}
