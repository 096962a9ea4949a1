"""Adds Gaussian noise to a share of the images.

Source: Rusak et al., "A simple way to make neural networks robust against diverse image
corruptions", ECCV 2020, https://arxiv.org/abs/2001.06057.
Reference code: https://github.com/bethgelab/game-of-noise at 2989b43.
Deviation: which images stay clean is drawn for each; there it is half of each batch.
"""

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from jbias.augment import examples, options


def make(*, sigma: float | Sequence[float] = 0.5, p: float = 0.5) -> Callable:
    """x' = clip(x + sigma n, 0, 1), n ~ N(0, 1) a pixel and channel, with chance p.

    sigma is in units of the range of images; of several, each image draws one, all as
    likely. Published are 0.5 and (0.08, 0.12, 0.18, 0.26, 0.38).
    """
    several = tuple(sigma) if isinstance(sigma, Sequence) else (sigma,)
    for one in several:
        options.within("gaussian_noise", "sigma", one, 0, math.inf)
    if not several:
        raise ValueError(
            "gaussian_noise: sigma must be a number or several, got none; give one"
        )
    options.within("gaussian_noise", "p", p, 0, 1)

    def noisy(x, k):
        k_gate, k_sigma, k_noise = jax.random.split(k, 3)
        scale = jax.random.choice(k_sigma, jnp.asarray(several, x.dtype))
        noise = scale * jax.random.normal(k_noise, x.shape, x.dtype)
        return jnp.where(jax.random.bernoulli(k_gate, p), jnp.clip(x + noise, 0, 1), x)

    def apply(batch, key):
        if options.surely(p, 0):
            return batch
        image = batch["image"]
        keys = examples.keys(key, image.shape[0])
        return {**batch, "image": jax.vmap(noisy)(image, keys)}

    return apply
