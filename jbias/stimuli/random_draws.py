"""Random keys of stimuli: one per image, by its number in the set and the purpose of the draws."""

import zlib

import jax
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray


def salt(purpose: str) -> np.uint32:
    """Return a hash of a text, by which `image_keys` separates random draws for each purpose."""
    return np.uint32(zlib.crc32(purpose.encode()))


def image_keys(seed: int, salt: Int[Array, ""], index: Int[Array, "b"]) -> PRNGKeyArray:
    """Return a random key for each image, from its number in the set, the salt and the seed.

    salt: result of the function `salt`. index: indices of the images in their set.
    """
    key = jax.random.fold_in(jax.random.key(seed), salt)
    return jax.vmap(jax.random.fold_in, (None, 0))(key, index)
