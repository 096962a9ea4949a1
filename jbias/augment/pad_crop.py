"""Pads images with black and cuts a random window of the old size."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jbias.augment import examples


def make(*, pad: int = 4) -> Callable:
    """Shifts each image by up to `pad` pixels each way; what comes in is black (0)."""

    def apply(batch, key):
        image = batch["image"]
        _, height, width, channels = image.shape
        padded = jnp.pad(image, ((0, 0), (pad, pad), (pad, pad), (0, 0)))

        def window(x, k):
            top, left = jax.random.randint(k, (2,), 0, 2 * pad + 1)
            size = (height, width, channels)
            return jax.lax.dynamic_slice(x, (top, left, 0), size)

        keys = examples.keys(key, image.shape[0])
        return {**batch, "image": jax.vmap(window)(padded, keys)}

    return apply
