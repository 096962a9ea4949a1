"""Noises of ImageNet-C on the device: Gaussian, shot, impulse and speckle.

Each has the draws of an image and what they do to it; data.corruption_kernels says what
that is. Source: Hendrycks and Dietterich, ICLR 2019, https://arxiv.org/abs/1903.12261.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.augment.corrupt_arrays import Image, Settings, take


def normals(key: PRNGKeyArray, side: int) -> tuple[Float[Array, "h w 3"]]:
    """One of N(0, 1) a value."""
    return (jax.random.normal(key, (side, side, 3)),)


def uniforms(key: PRNGKeyArray, side: int) -> tuple[Float[Array, "h w 3"]]:
    """One of U(0, 1) a value."""
    return (jax.random.uniform(key, (side, side, 3)),)


def gaussian_noise(x: Image, drawn: tuple, s: Settings) -> Image:
    """Adds 255 N(0, sigma^2)."""
    return x + 255 * s["sigma"] * drawn[0]


def speckle_noise(x: Image, drawn: tuple, s: Settings) -> Image:
    """Adds x N(0, sigma^2)."""
    return x + x * (s["sigma"] * drawn[0])


def shot_noise(x: Image, drawn: tuple, s: Settings) -> Image:
    """Draws Poisson(count x / 255) photons: the first whose distribution is above u.

    `photons` (256, n), n a power of two, is the distribution function for each byte.
    """
    photons = s["photons"]
    most = photons.shape[1]
    start = x.astype(jnp.int32) * most
    count = jnp.zeros_like(start)
    step = most // 2
    while step:
        below = take(photons.reshape(-1), start + count + step - 1) <= drawn[0]
        count += step * below
        step //= 2
    return count * (255 / s["count"])


def impulse_noise(x: Image, drawn: tuple, s: Settings) -> Image:
    """Sets values, with this chance, to 0 or 255, evenly."""
    (u,) = drawn
    white = jnp.where(u < s["chance"], 255.0, x)
    return jnp.where(u < s["chance"] / 2, 0.0, white)
