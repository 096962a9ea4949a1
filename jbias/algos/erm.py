"""Empirical risk minimisation: the class loss of a plain network."""

from flax import linen as nn

from jbias.algos import base


def make(net: nn.Module) -> base.Algo:
    """Trains all weights on the class loss."""

    def losses(params, stats, batch, key, static=None):
        own = params["net"], stats["net"]
        logits, new = base.forward(net, *own, batch["image"], key)
        loss = base.objective(logits, batch)
        return {"class": loss}, base.Aux({**stats, "net": new}, {})

    return base.Algo(net, losses)
