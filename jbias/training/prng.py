"""Named streams of random keys: another name, added or removed, shifts no other."""

import zlib

import jax
from jaxtyping import PRNGKeyArray


def key(seed: int) -> PRNGKeyArray:
    """The root of everything random in a seed; depends on its value alone."""
    return jax.random.key(seed)


def stream(key: PRNGKeyArray, name: str) -> PRNGKeyArray:
    """A named stream of its own: another name, added or removed, shifts no other."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))
