"""Random keys for the members of a batch."""

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray


def keys(key: PRNGKeyArray, count: int) -> PRNGKeyArray:
    """Derives keys from places in the global batch, whatever its size or layout."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(count))
