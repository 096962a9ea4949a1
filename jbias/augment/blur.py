"""Blurs a share of the images by a Gaussian of random width.

Source: SimCLR, Chen et al., ICML 2020, https://arxiv.org/abs/2002.05709, appendix A.
Reference code: https://github.com/google-research/simclr at 244e712, data_util.py.
Deviation: images are mirrored at the border, as in torchvision; there they are black
beyond it.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jbias.augment import examples, options


def make(
    *, sigma: tuple[float, float] = (0.1, 2.0), kernel: float = 0.1, p: float = 0.5
) -> Callable:
    """Blurs each image with chance p, sigma ~ U(sigma[0], sigma[1]) pixels.

    The Gaussian is cut off: it has 2 r + 1 points a side, r = floor(h kernel) // 2 with
    h the height, but at least 1.
    """
    options.within("blur", "sigma", sigma[0], 1e-3, math.inf)
    options.within("blur", "sigma", sigma[1], sigma[0], math.inf)
    options.within("blur", "kernel", kernel, 0, 1)
    options.within("blur", "p", p, 0, 1)

    def one(image: Float[Array, "h w 3"], key) -> Float[Array, "h w 3"]:
        k_gate, k_sigma = jax.random.split(key)
        spread = jax.random.uniform(k_sigma, minval=sigma[0], maxval=sigma[1])
        radius = max(1, int(image.shape[0] * kernel) // 2)
        blurred = gaussian(image, spread, radius)
        return jnp.where(jax.random.bernoulli(k_gate, p), blurred, image)

    def apply(batch, key):
        if options.surely(p, 0):
            return batch
        image = batch["image"]
        keys = examples.keys(key, len(image))
        return {**batch, "image": jax.vmap(one)(image, keys)}

    return apply


def gaussian(
    image: Float[Array, "h w c"], sigma: Float[Array, ""], radius: int
) -> Float[Array, "h w c"]:
    """Convolves rows and columns with exp(-i^2 / 2 sigma^2), |i| <= radius, sum 1."""
    i = jnp.arange(-radius, radius + 1)
    weights = jnp.exp(-(i**2) / (2 * sigma**2))
    weights /= jnp.sum(weights)
    for axis in (0, 1):
        pad = [(radius, radius) if a == axis else (0, 0) for a in range(3)]
        length = image.shape[axis]
        wide = jnp.pad(image, pad, mode="reflect")
        image = sum(
            weight * jax.lax.slice_in_dim(wide, k, k + length, axis=axis)
            for k, weight in enumerate(weights)
        )
    return jnp.clip(image, 0, 1)
