"""Named streams of random keys: adding or removing a stream changes no other stream."""

import zlib

import jax
from jaxtyping import PRNGKeyArray


def key(seed: int) -> PRNGKeyArray:
    """Return the root key of a seed, from which all its randomness is derived."""
    return jax.random.key(seed)


def stream(key: PRNGKeyArray, name: str) -> PRNGKeyArray:
    """Return the key of a named stream, a function of `key` and `name` only."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))
