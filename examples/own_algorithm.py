"""Spectral decoupling (Pezeshki et al., NeurIPS 2021, arXiv:2011.09468): a penalty on large
logits, so that an easy cue, such as texture, leaves gradients to other cues."""

import jax.numpy as jnp

from jbias.algos import base


def make(net, *, strength=0.1):
    """Return an algorithm with loss: class loss + strength * mean of squared logits."""

    def losses(params, stats, batch, key, static=None):
        image = batch["image"]
        logits, new = base.forward(net, params["net"], stats["net"], image, key)
        penalty = base.weighted_mean(jnp.mean(logits**2, axis=-1), batch)
        loss = base.objective(logits, batch) + strength * penalty
        return {"class": loss}, base.Aux({**stats, "net": new}, {"penalty": penalty})

    return base.Algo(net, losses)
