"""Where networks look: Grad-CAM of a network, with what it decides, over a set's images."""

import functools
from collections.abc import Callable, Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt8

from jbias.evals import grad_cam, plain, predict, show


class Seen(NamedTuple):
    """A network's maps of some images, and what it decides about each."""

    maps: Float[np.ndarray, "n h w"]
    decided: Int[np.ndarray, "n"]  # In decision classes.
    chance: Float[np.ndarray, "n"]  # The probability of that.
    right: Bool[np.ndarray, "n"]


class Mean(NamedTuple):
    """The mean map of so many images, of which some had no evidence at all."""

    map: Float[np.ndarray, "h w"]
    count: int
    empty: int


def seen(
    network: show.Network, batches: Iterable[show.Batch], rule: predict.Rule, site: str
) -> Seen:
    """Looks at images. ValueError for a site that cannot be looked at, or no network."""
    batches = list(batches)
    maps = np.concatenate(list(_maps(network, batches, site)))
    decided = show.decide(network, plain.make(), batches, {"": rule})[""]
    label = np.concatenate([np.asarray(one.label)[: one.count] for one in batches])
    prediction = decided["prediction"]
    return Seen(maps, prediction, decided["confidence"], prediction == label)


def mean(
    network: show.Network,
    batches: Iterable[show.Batch],
    site: str,
    tell: Callable[[int], None] = lambda images: None,
) -> Mean:
    """The mean map; `tell` hears how many more images have been looked at."""
    total, count, empty = 0.0, 0, 0
    for maps in _maps(network, batches, site):
        total = total + maps.sum(0, dtype=np.float64)
        count += len(maps)
        empty += int((maps.max((1, 2)) == 0).sum())
        tell(len(maps))
    return Mean(total / count, count, empty)


def _maps(network: show.Network, batches: Iterable[show.Batch], site: str):
    if network.at is None:
        raise ValueError(
            "saliency: an algorithm that answers in its own way cannot be looked into;"
            " leave the network out"
        )
    for one in batches:
        maps = _map(network.at, network.variables, one.image, site=site)
        yield np.asarray(maps)[: one.count]


@functools.partial(jax.jit, static_argnames=("at", "site"))
def _map(at, variables, image: UInt8[Array, "b h w 3"], *, site: str) -> Array:
    unit = image.astype(jnp.float32) / 255
    return grad_cam.maps(*at(variables, unit, site), *image.shape[1:3], site=site)
