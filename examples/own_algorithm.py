"""Spectral decoupling (Pezeshki et al., NeurIPS 2021, arXiv:2011.09468): small logits
keep one easy cue, such as texture, from starving the others of gradient."""

import jax.numpy as jnp

from jbias.algos import base


def make(net, *, strength=0.1):
    """The class loss + strength * mean of squared logits."""

    def losses(params, stats, batch, key, static=None):
        image = batch["image"]
        logits, seen = base.forward(net, params["net"], stats["net"], image, key)
        penalty = base.weighted_mean(jnp.mean(logits**2, axis=-1), batch)
        loss = base.objective(logits, batch) + strength * penalty
        return {"class": loss}, base.Aux({**stats, "net": seen}, {"penalty": penalty})

    return base.Algo(net, losses)
