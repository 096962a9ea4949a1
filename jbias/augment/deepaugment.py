"""DeepAugment: which images share a damaged network, and what its two networks share.

An image-to-image network whose weights and activations are damaged at random makes a
second training set. Weights are damaged anew with chance 0.05 before each image, in a
random order of the images; activations anew for every image.

Weights are flat mappings in PyTorch's names and layout, numpy arrays here; nothing given
is changed. A "row" is an entry of the first axis of a stored weight.

Source: Hendrycks et al., ICCV 2021, https://arxiv.org/abs/2006.16241.
Reference code: https://github.com/hendrycks/imagenet-r at 3131cac, folder DeepAugment.
Deviation: everything follows from keys; in networks narrower than the published ones the
numbers of damaged rows and channels shrink in proportion.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
import scipy.special
from jaxtyping import Bool, Float, Int, PRNGKeyArray

RENEWAL = 0.05  # Chance before each image that the weights are damaged anew.

Weight = Float[np.ndarray, "o ..."]  # Kernels are (o, i, h, w).
Weights = dict[str, Weight]
Option = Callable[[Weights, np.random.Generator], None]  # Changes the mapping.


class Order(NamedTuple):
    """In which order the images are sent through, and with which weights."""

    index: Int[np.ndarray, "n"]  # The images, in order.
    renewed: Bool[np.ndarray, "n"]  # Whether the weights are damaged anew before it.

    @property
    def runs(self) -> list[Int[np.ndarray, "m"]]:
        """The images of each damaged network; its first one names it."""
        return np.split(self.index, np.flatnonzero(self.renewed)[1:])


def draw_order(key: PRNGKeyArray, n: int, *, renewal: float = RENEWAL) -> Order:
    """Draws the order of n images and where the weights are renewed.

    Image i has a uniform number and a coin of its own, whatever n is: the order is that
    of the numbers, the coin renews. The first image in order always does.
    """
    index = np.argsort(generator(key, 0).random(n), kind="stable")
    renewed = (generator(key, 1).random(n) < renewal)[index]
    renewed[:1] = True
    return Order(index, renewed)


def generator(key: PRNGKeyArray, number: int) -> np.random.Generator:
    """The host's random numbers of a key; another `number`, another stream."""
    words = np.asarray(jax.random.key_data(key)).tolist()
    return np.random.default_rng([*words, number])


def make(known: Sequence[Option], draws: int) -> tuple[Callable, Callable]:
    """Builds draw(key) -> options, and damage(weights, key, options=None) -> weights.

    options: the places in `known` of what damages the weights, one after the other, each
      with its own numbers; so many as `draws` are drawn unless they are given.
    """

    def draw(key: PRNGKeyArray) -> tuple[int, ...]:
        return tuple(generator(key, 0).integers(len(known), size=draws).tolist())

    def damage(weights: Mapping, key: PRNGKeyArray, options=None) -> Weights:
        found = {name: np.asarray(value) for name, value in weights.items()}
        for turn, option in enumerate(draw(key) if options is None else options, 1):
            known[option](found, generator(key, turn))
        return found

    return draw, damage


def scale_count(count: int, have: int, published: int) -> int:
    """As many of `have` as `count` is of the published number, at least 1."""
    return max(1, round(count * have / published))


def gelu(x: Weight) -> Weight:
    """x times the normal distribution function of x, exactly."""
    return (x * scipy.special.ndtr(x)).astype(x.dtype)


def amplified(x: Weight, rng: np.random.Generator, most: float) -> Weight:
    """Multiplies each element by 1 + most u U, with one u for all and U each, U(0, 1)."""
    return (x * (1 + most * rng.random() * rng.random(x.shape))).astype(x.dtype)


def masked(x: Weight, rng: np.random.Generator, low: float) -> Weight:
    """Multiplies each element by 1 or `low`, with equal chance."""
    return x * np.where(rng.random(x.shape) < 0.5, 1, low).astype(x.dtype)


def rotated(x: Weight, rng: np.random.Generator, axes: tuple = (2, 3)) -> Weight:
    """Turns by 90, 180 or 270 degrees."""
    return np.rot90(x, rng.integers(1, 4), axes).copy()


def with_rows(x: Weight, rows: Int[np.ndarray, "m"], change: Callable) -> Weight:
    """Changes these rows, one after the other: a row named twice is changed twice."""
    x = x.copy()
    for row in rows:
        x[row] = change(x[row])
    return x
