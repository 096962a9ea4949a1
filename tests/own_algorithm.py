"""An algorithm of a user's own: ERM whose loss sometimes is not finite."""

import jax
import jax.numpy as jnp

from jbias.algos import base


def make(net, *, chance):
    """Make ERM whose loss is NaN with this chance, drawn per seed and step."""

    def losses(params, stats, batch, key, static=None):
        logits, new = base.forward(
            net, params["net"], stats["net"], batch["image"], key
        )
        bad = jax.random.bernoulli(key, chance)
        loss = base.objective(logits, batch) * jnp.where(bad, jnp.nan, 1.0)
        return {"class": loss}, base.Aux({**stats, "net": new}, {})

    return base.Algo(net, losses)
