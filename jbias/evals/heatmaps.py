"""Grad-CAM heatmaps of a network's images, batch by batch; the formula is in `stimuli.grad_cam`."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt8

from jbias import errors
from jbias.evals import inference
from jbias.stimuli import grad_cam


def batch_maps(
    network: inference.BoundNetwork, batches: Iterable[inference.Batch], site: str
) -> Iterator[Float[np.ndarray, "b h w"]]:
    """Yield the Grad-CAM heatmaps of each batch, in [0, 1], without padding.

    site: a name from models.taps.sites. ValueError for a network without sites, or a site
    without rows and columns; errors.NotFiniteError if activations or gradients at the site are
    NaN or infinite.
    """
    if network.at is None:
        raise ValueError(
            "an algorithm with an answer function of its own cannot be looked into"
        )
    for batch in batches:
        padded = _maps_of_batch(network.at, network.variables, batch.image, site=site)
        batch_maps = np.asarray(padded)[: batch.count]
        num_broken = int(np.isnan(batch_maps).any((1, 2)).sum())
        if num_broken:
            raise errors.NotFiniteError(
                f"grad_cam: what passes {site} and its gradient must be finite, got NaN or "
                f"infinite numbers for {num_broken} of {batch.count} images of "
                f"{batch.dataset}"
            )
        yield batch_maps


@functools.partial(jax.jit, static_argnames=("at", "site"))
def _maps_of_batch(
    at: Callable[..., tuple[Array, Array]],
    variables: Any,
    image: UInt8[Array, "b h w 3"],
    *,
    site: str,
) -> grad_cam.Maps:
    """Return the Grad-CAM heatmaps (b h w) of images that are bytes, in [0, 1].

    Heatmaps are NaN for an image with activations or gradients that are not finite. at, variables:
    fields of an inference.BoundNetwork. site: name of the layer, see models.taps.sites.
    """
    activation, gradient = at(variables, image.astype(jnp.float32) / 255, site)
    height, width = image.shape[1:3]
    return grad_cam.maps(activation, gradient, height, width, site=site)
