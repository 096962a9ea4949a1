"""Grad-CAM: where in an image the evidence lies for what a network decides.

Source: Selvaraju et al., ICCV 2017, https://arxiv.org/abs/1610.02391, in the form of Marcu
and Pruegel-Bennett, "On the effects of data distortion on model analysis and training",
https://arxiv.org/abs/2110.13968.
Reference code: https://github.com/AntoniaMarcu/Data-Modification at 1cb7717, gradcam.py.
Deviation: a map without any evidence is zero, where there it is 0 / 0.
"""

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, UInt8

from jbias.evals import inference, probe
from jbias.models import taps

Seen = Float[Array, "b i j c"]  # What passes a site, its gradient, and images.
Maps = Float[Array, "b h w"]


def image_maps(net: nn.Module, variables: Any, image: Seen, site: str) -> Maps:
    """The map of each image's largest logit at a site of models.taps.sites.

    ValueError for a site that the network has not, or that has no rows and columns.
    """
    largest = lambda logits: logits.max(-1)
    seen = taps.site_gradient(net, variables, image, site, largest)
    return maps(*seen, *image.shape[1:3], site=site)


def maps(
    activation: Seen, gradient: Seen, height: int, width: int, *, site: str = "the site"
) -> Maps:
    """relu(mean_c a w_c) / max, w the mean gradient of each channel; made h by w.

    In [0, 1], and 1 somewhere before the resizing; all 0 where nothing is positive.
    Resized bilinearly with pixels' centres at halves and the border repeated, as OpenCV
    does, and PyTorch without aligned corners. NaN where an activation or a gradient is not
    finite. Of a ViT the class token is left out and
    the others are laid out as the patches were. ValueError for other shapes.
    """
    both = (x.astype(jnp.float32) for x in (activation, gradient))
    a, g = (_laid_out(x, height, width, site) for x in both)
    weight = g.mean((1, 2), keepdims=True)
    cam = jax.nn.relu((a * weight).mean(-1))
    top = cam.max((1, 2), keepdims=True)
    # Not 0, as where nothing is positive: then a broken network would have maps.
    finite = jnp.isfinite(a).all((1, 2, 3)) & jnp.isfinite(g).all((1, 2, 3))
    cam = jnp.where(top > 0, cam / jnp.where(top > 0, top, 1), 0)
    cam = jnp.where(finite[:, None, None], cam, jnp.nan)
    return jax.image.resize(cam, (len(cam), height, width), "linear", antialias=False)


def batch_maps(
    network: inference.BoundNetwork, batches: Iterable[inference.Batch], site: str
) -> Iterator[Float[np.ndarray, "b h w"]]:
    """Yield the maps of batches of a set, a row an image.

    ValueError for a network, or a site, without any; probe.NotFiniteError where what passes the
    site, or its gradient, is NaN or infinite.
    """
    if network.at is None:
        raise ValueError(
            "an algorithm that answers in its own way cannot be looked into"
        )
    for one in batches:
        found = _batch(network.at, network.variables, one.image, site=site)
        made = np.asarray(found)[: one.count]
        broken = int(np.isnan(made).any((1, 2)).sum())
        if broken:
            raise probe.NotFiniteError(
                f"grad_cam: what passes {site} and its gradient must be finite, got NaN or "
                f"infinite numbers for {broken} of {one.count} images of {one.dataset}"
            )
        yield made


@functools.partial(jax.jit, static_argnames=("at", "site"))
def _batch(at, variables, image: UInt8[Array, "b h w 3"], *, site: str) -> Array:
    unit = image.astype(jnp.float32) / 255
    return maps(*at(variables, unit, site), *image.shape[1:3], site=site)


def _laid_out(x: Array, height: int, width: int, site: str) -> Array:
    """Gives tokens (b, 1, 1 + n, c) rows and columns, in the image's proportion."""
    if x.ndim == 4:
        if x.shape[1] > 1 or x.shape[2] == 1:
            return x
        patches = x.shape[2] - 1
        rows = round((patches * height / width) ** 0.5)
        columns = patches // max(rows, 1)
        if patches and rows * columns == patches and rows * width == columns * height:
            return x[:, 0, 1:].reshape(len(x), rows, columns, -1)
    raise ValueError(
        f"grad_cam: {site} must have rows and columns, or tokens of patches, got"
        f" {x.shape[1:]} of an image; take another site"
    )
