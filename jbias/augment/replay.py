"""A random generator for corruptions on the device, whose numbers are drawn in advance."""

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jbias.augment import random_numbers


class Replay:
    """A stand-in for numpy.random.Generator that uses given arrays, one per call.

    numbers: arrays of U(0, 1) numbers, N(0, 1) for `normal` and `standard_normal`, in the
      order of the calls. Their shapes are used; arguments `size` are ignored.
    """

    def __init__(self, numbers: Sequence[Float[Array, "..."]]):
        self._numbers = iter(numbers)

    def random(self, size: object = None) -> Float[Array, "..."]:
        """Return the next array, unchanged."""
        return next(self._numbers)

    standard_normal = random

    def uniform(self, low: float, high: float, size: object = None) -> Array:
        """Return the next array, scaled to U(low, high)."""
        return low + (high - low) * self.random()

    def normal(self, mean: float, sigma: float, size: object = None) -> Array:
        """Return the next array, scaled to N(mean, sigma^2)."""
        return mean + sigma * self.random()

    def integers(self, low: int, high: int, size: object = None) -> Int[Array, "..."]:
        """Return whole numbers from low to high - 1, computed from the next array."""
        return low + random_numbers.integers(self.random(), high - low)

    def permutation(self, items: int | Sequence[Array]) -> Array:
        """Return a permutation of range(items), or two arrays stacked in random order."""
        if isinstance(items, int):
            return jnp.argsort(self.random())
        items = jnp.stack(items)
        return jnp.where(self.random() >= 0.5, items[::-1], items)
