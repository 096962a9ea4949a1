"""Empirical risk minimisation: the class loss of a plain network.

Source: Vapnik, "Statistical Learning Theory", Wiley 1998.
"""

from flax import linen as nn

from jbias.algos import base


def make(net: nn.Module) -> base.Algo:
    """Return ERM, which trains all weights on the class loss."""

    def losses(params, stats, batch, key, static=None):
        """Return {"class": loss} and `base.Aux`, without metrics; see base.Algo."""
        logits, net_stats = base.forward(
            net, params["net"], stats["net"], batch["image"], key
        )
        loss = base.objective(logits, batch)
        return {"class": loss}, base.Aux({**stats, "net": net_stats}, {})

    return base.Algo(net, losses)


ALGOS = {"erm": make}
