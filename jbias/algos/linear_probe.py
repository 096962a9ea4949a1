"""Linear probe: train only the linear layer, on the features of a frozen net.

As a stage after SimCLR this algorithm is the linear evaluation of Chen, Kornblith, Norouzi and
Hinton, ICML 2020, https://arxiv.org/abs/2002.05709. dfr.py retrains the last layer against
spurious features, from zero weights and on standardised features.
"""

import functools

import jax
from flax import linen as nn

from jbias.algos import base


def make(net: nn.Module) -> base.Algo:
    """Return an algorithm that trains only the linear layer, on the class loss.

    The net runs in evaluation mode: batch norms use their running statistics without
    updating them, and there is neither dropout nor a tap (see base.py).
    """

    def losses(params, stats, batch, key, static=None):
        """Return {"class": loss} and `base.Aux` with unchanged statistics; see base.Algo."""
        forward = functools.partial(
            base.forward, net, params["net"], stats["net"], key=None, train=False
        )
        f, _ = forward(image=batch["image"], method="features", stop=5)
        f = jax.lax.stop_gradient(f)
        logits, _ = forward(image=f, method="head_of", start=5)
        return {"class": base.objective(logits, batch)}, base.Aux(dict(stats), {})

    return base.Algo(net, losses, (base.Update("class", in_linear),))


def in_linear(path: base.Path) -> bool:
    """Return True if a parameter belongs to the net's linear layer."""
    return path[:2] == ("net", "fc")


ALGOS = {"linear_probe": make}
