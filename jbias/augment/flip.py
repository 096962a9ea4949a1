"""Mirrors images left to right."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jbias.augment import examples


def make(*, p: float = 0.5) -> Callable:
    """Mirrors each image with probability p."""

    def apply(batch, key):
        image = batch["image"]
        keys = examples.keys(key, image.shape[0])
        mirrored = jax.vmap(lambda k: jax.random.bernoulli(k, p))(keys)
        choice = mirrored.reshape(-1, 1, 1, 1)
        return {**batch, "image": jnp.where(choice, image[:, :, ::-1], image)}

    return apply
