"""Where a network looks: Grad-CAM over images of a set, with what it decides."""

import functools
from collections.abc import Callable, Iterable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt8

from jbias.data import wordnet
from jbias.evals import grad_cam, plain, show
from jbias.measure import shown
from jbias.report import saliency_figures


def seen(
    network: show.Network,
    batches: Iterable[show.Batch],
    given: shown.Shown,
    site: str,
) -> saliency_figures.Seen:
    """Looks at images of a set, by the first rule of how it is answered.

    ValueError for a site that cannot be looked at, or a network.
    """
    batches = list(batches)
    maps = np.concatenate([*_maps(network, batches, site)])
    rule = next(iter(given.rules.values()))
    found = show.decide(network, plain.make(), batches, {"": rule})[""]
    names = [wordnet.readable(given.classes[k]) for k in found["prediction"]]
    right = found["prediction"] == given.columns["label"]
    return saliency_figures.Seen(maps, names, found["confidence"], right)


def mean(
    network: show.Network,
    batches: Iterable[show.Batch],
    site: str,
    tell: Callable[[int], None] = lambda images: None,
) -> saliency_figures.Mean:
    """The mean map; `tell` hears how many more images have been looked at."""
    total, count, empty = 0.0, 0, 0
    for maps in _maps(network, batches, site):
        total = total + maps.sum(0, dtype=np.float64)
        count += len(maps)
        empty += int((maps.max((1, 2)) == 0).sum())
        tell(len(maps))
    return saliency_figures.Mean(total / count, count, empty)


def _maps(
    network: show.Network, batches: Iterable[show.Batch], site: str
) -> Iterator[Float[np.ndarray, "b h w"]]:
    if network.at is None:
        raise ValueError(
            "an algorithm that answers in its own way cannot be looked into"
        )
    for one in batches:
        maps = _map(network.at, network.variables, one.image, site=site)
        yield np.asarray(maps)[: one.count]


@functools.partial(jax.jit, static_argnames=("at", "site"))
def _map(at, variables, image: UInt8[Array, "b h w 3"], *, site: str) -> Array:
    unit = image.astype(jnp.float32) / 255
    return grad_cam.maps(*at(variables, unit, site), *image.shape[1:3], site=site)
