"""Style noise: scales what the first stages see at random, and asks for the same answer."""

import jax
import jax.numpy as jnp

from jbias.algos import base


def make(net, *, strength=0.5, weight=1.0, sites=("stage1", "stage2")):
    """The class loss of clean images + weight * how far noise moves their logits."""

    def tap(x, site, key):  # In training alone: x is a feature map (b, h, w, c).
        if site not in sites:
            return x  # The very same: here nothing is done.
        mean = jnp.mean(x, (1, 2), keepdims=True)
        noise = jax.random.normal(key, mean.shape, x.dtype)  # The key is this site's.
        return mean + (1 + strength * noise) * (x - mean)

    noisy = net.clone(tap=tap)

    def losses(params, stats, batch, key, static=None):
        given = params["net"], stats["net"], batch["image"], key
        logits, seen = base.forward(net, *given)
        moved, _ = base.forward(noisy, *given)
        apart = base.weighted_mean(jnp.mean((moved - logits) ** 2, axis=-1), batch)
        named = {"class": base.objective(logits, batch), "apart": weight * apart}
        return named, base.Aux({**stats, "net": seen}, {"moved": apart})

    return base.Algo(noisy, losses, (base.Update("class", plus="apart"),))
