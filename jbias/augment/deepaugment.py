"""The order of images in DeepAugment, and functions shared by its two networks.

An image-to-image network with randomly damaged weights and activations makes a second
training set. Images pass the network in random order; before each image the weights are damaged
again with probability 0.05. Activations are damaged for every image.

Weights are flat mappings with PyTorch's names and layout, as NumPy arrays; arguments are
not modified. A "row" is an entry of the first axis of a stored weight.

Source: Hendrycks et al., ICCV 2021, https://arxiv.org/abs/2006.16241.
Reference code: https://github.com/hendrycks/imagenet-r at 3131cac, folder DeepAugment.
Deviation: all randomness is determined by keys; in networks narrower than the published
ones the numbers of damaged rows and channels are reduced in proportion.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
import scipy.special
from jaxtyping import Bool, Float, Int, PRNGKeyArray

RENEWAL = 0.05  # Probability that the weights are damaged again before an image.

Weight = Float[np.ndarray, "o ..."]  # Kernels are (o, i, h, w).
Weights = dict[str, Weight]
Option = Callable[[Weights, np.random.Generator], None]  # Changes the mapping.


class ImageOrder(NamedTuple):
    """The order in which images pass the network, and where its weights change.

    index: indices of the images, in order.
    renewed: for each entry of `index`, True if the weights are damaged again before this image;
    always True for the first image.
    """

    index: Int[np.ndarray, "n"]
    renewed: Bool[np.ndarray, "n"]

    @property
    def index_by_network(self) -> list[Int[np.ndarray, "m"]]:
        """The image indices in order, split into a list of arrays, one per damaged network."""
        return np.split(self.index, np.flatnonzero(self.renewed)[1:])


def draw_order(key: PRNGKeyArray, n: int, *, renewal: float = RENEWAL) -> ImageOrder:
    """Return a random order of n images, and the images before which weights are damaged again.

    renewal: probability of new damage before an image; the first image in order always has
    new damage. Images are sorted by one random number each. This number and the draw of new
    damage depend only on the key and the image's index, not on n.
    """
    index = np.argsort(generator(key, 0).random(n), kind="stable")
    renewed = (generator(key, 1).random(n) < renewal)[index]
    renewed[:1] = True
    return ImageOrder(index, renewed)


def generator(key: PRNGKeyArray, number: int) -> np.random.Generator:
    """Return a NumPy generator seeded by a JAX key; each `number` gives a different stream."""
    words = np.asarray(jax.random.key_data(key)).tolist()
    return np.random.default_rng([*words, number])


def make(all_options: Sequence[Option], num_draws: int) -> tuple[Callable, Callable]:
    """Return (draw, damage), two functions that choose and apply random damage.

    draw(key) returns a tuple of `num_draws` indices in `all_options`, drawn with replacement.
    damage(weights, key, options=None) returns a new mapping of weights, changed by the
    functions with the indices `options` (None: draw(key)), one after the other, each with its
    own random numbers.

    all_options: functions (weights, generator) that change a mapping of weights in place.
    """

    def draw(key: PRNGKeyArray) -> tuple[int, ...]:
        indices = generator(key, 0).integers(len(all_options), size=num_draws)
        return tuple(indices.tolist())

    def damage(
        weights: Mapping, key: PRNGKeyArray, options: Sequence[int] | None = None
    ) -> Weights:
        damaged = {name: np.asarray(value) for name, value in weights.items()}
        options = draw(key) if options is None else options
        for number, option in enumerate(options, 1):
            all_options[option](damaged, generator(key, number))
        return damaged

    return draw, damage


def scale_count(count: int, num_rows: int, num_published: int) -> int:
    """Return count * num_rows / num_published, rounded, at least 1.

    count: number of damaged rows in the published network. num_rows, num_published: number
    of rows of the weight in this network, and in the published network.
    """
    return max(1, round(count * num_rows / num_published))


def gelu(x: Weight) -> Weight:
    """Return the exact GELU of x: x times the standard normal distribution function of x."""
    return (x * scipy.special.ndtr(x)).astype(x.dtype)


def amplified(x: Weight, rng: np.random.Generator, most: float) -> Weight:
    """Return x (1 + most u v), with one u ~ U(0, 1) and one v ~ U(0, 1) per element."""
    return (x * (1 + most * rng.random() * rng.random(x.shape))).astype(x.dtype)


def masked(x: Weight, rng: np.random.Generator, low: float) -> Weight:
    """Return x with each element multiplied by 1 or by `low`, with equal probabilities."""
    return x * np.where(rng.random(x.shape) < 0.5, 1, low).astype(x.dtype)


def rotated(
    x: Weight, rng: np.random.Generator, axes: tuple[int, int] = (2, 3)
) -> Weight:
    """Return a copy of x, rotated in the plane of two axes by 90, 180 or 270 degrees."""
    return np.rot90(x, rng.integers(1, 4), axes).copy()


def with_rows(x: Weight, rows: Int[np.ndarray, "m"], change: Callable) -> Weight:
    """Return a copy of x in which change(x[row]) replaces x[row] for each index in `rows`.

    A row whose index occurs twice is changed twice.
    """
    x = x.copy()
    for row in rows:
        x[row] = change(x[row])
    return x
