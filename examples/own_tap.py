"""Style noise: scale the features of early stages at random, and penalise changed logits."""

import jax
import jax.numpy as jnp

from jbias.algos import base


def make(net, *, strength=0.5, weight=1.0, sites=("stage1", "stage2")):
    """Return an algorithm: class loss + weight * squared change of the logits by noise.

    strength: standard deviation of the noise.
    """

    def tap(x, site, key):  # Called in training only; x is a feature map (b, h, w, c).
        if site not in sites:
            return x  # Returning x itself marks this site as unused.
        mean = jnp.mean(x, (1, 2), keepdims=True)
        noise = jax.random.normal(key, mean.shape, x.dtype)  # The key is this site's.
        return mean + (1 + strength * noise) * (x - mean)

    noisy = net.clone(tap=tap)

    def losses(params, stats, batch, key, static=None):
        weights, image = params["net"], batch["image"]
        logits, net_stats = base.forward(net, weights, stats["net"], image, key)
        noisy_logits, _ = base.forward(noisy, weights, stats["net"], image, key)
        change = jnp.mean((noisy_logits - logits) ** 2, axis=-1)
        apart = base.weighted_mean(change, batch)
        named_losses = {"class": base.objective(logits, batch), "apart": weight * apart}
        return named_losses, base.Aux({**stats, "net": net_stats}, {"moved": apart})

    return base.Algo(noisy, losses, (base.Update("class", plus="apart"),))
