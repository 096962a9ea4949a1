"""Runs corruptions of the host on the device, with random numbers that were drawn before."""

import functools
import inspect
from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jbias.augment import memory, sampling


class Replay:
    """A generator that gives out numbers of U(0, 1) or N(0, 1), one array a call."""

    def __init__(self, numbers: Sequence[Float[Array, "..."]]):
        self._numbers = iter(numbers)

    def random(self, size: object = None) -> Float[Array, "..."]:
        return next(self._numbers)

    standard_normal = random

    def uniform(self, low: float, high: float, size: object = None) -> Array:
        return low + (high - low) * self.random()

    def normal(self, mean: float, sigma: float, size: object = None) -> Array:
        return mean + sigma * self.random()

    def integers(self, low: int, high: int, size: object = None) -> Int[Array, "..."]:
        return low + sampling.integers(self.random(), high - low)

    def permutation(self, items: int | Sequence[Array]) -> Array:
        """Orders numbers below `items` by one number each, or two things by one number."""
        if isinstance(items, int):
            return jnp.argsort(self.random())
        items = jnp.stack(items)
        return jnp.where(self.random() >= 0.5, items[::-1], items)


def from_host(corruption: Callable) -> Callable:
    """Makes a function of (image, drawn, settings) of one of the host.

    Its numbers are the settings of their names; values are on the scale of bytes. One
    that has `run` can have what many pixels use kept in memory.
    """
    inner = inspect.unwrap(corruption)
    white = 1 if inner is corruption else 255  # A wrapped one is of images in [0, 1].
    names = list(inspect.signature(inner).parameters)[2:]
    options = {"run": memory.materialize} if "run" in names else {}

    @functools.wraps(corruption)
    def apply(x, drawn, s):
        row = {name: s[name] for name in names if name not in options}
        return white * inner(x / white, Replay(drawn), **row, **options)

    return apply
