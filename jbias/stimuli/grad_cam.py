"""Grad-CAM heatmaps, which show the regions of an image that support a network's decision.

Source: Selvaraju et al., ICCV 2017, https://arxiv.org/abs/1610.02391, in the form of Marcu
and Pruegel-Bennett, "On the effects of data distortion on model analysis and training",
https://arxiv.org/abs/2110.13968.
Reference code: https://github.com/AntoniaMarcu/Data-Modification at 1cb7717, gradcam.py.
Deviation: a map without any positive value is zero; in the reference code it is 0 / 0.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from jbias.models import taps

Activations = Float[Array, "b i j c"]  # At a site; also their gradients, and images.
Maps = Float[Array, "b h w"]  # Heatmaps, in [0, 1].


def image_maps(
    net: nn.Module, variables: Any, image: Float[Array, "b h w 3"], site: str
) -> Maps:
    """Return the Grad-CAM heatmap of each image's largest logit, in [0, 1].

    variables: the module's weights. image: in [0, 1]. site: the name of the layer whose
    activations are used, of models.taps.sites. ValueError for a site that the network lacks,
    or that has no rows and columns.
    """
    largest = lambda logits: logits.max(-1)
    activation, gradient = taps.site_gradient(net, variables, image, site, largest)
    height, width = image.shape[1:3]
    return maps(activation, gradient, height, width, site=site)


def maps(
    activation: Activations,
    gradient: Activations,
    height: int,
    width: int,
    *,
    site: str = "the site",
) -> Maps:
    """Return heatmaps relu(mean_c a_c w_c) / max, with w_c the mean gradient of channel c.

    activation, gradient: the activations at a site and their gradient. height, width: size of
    the heatmaps in pixels. site: the name of the site, for messages. ValueError for
    activations that are neither maps with rows and columns nor tokens of patches; for a ViT
    the class token is left out.

    Values are in [0, 1]; before the resizing the maximum is 1, or 0 if no value is positive. Maps
    are resized bilinearly with pixel centres at halves and a repeated border, as in OpenCV, and
    in PyTorch without aligned corners. NaN for an image with an activation or a gradient that is
    not finite.
    """
    a = _to_map(activation.astype(jnp.float32), height, width, site)
    g = _to_map(gradient.astype(jnp.float32), height, width, site)
    weight = g.mean((1, 2), keepdims=True)
    cam = jax.nn.relu((a * weight).mean(-1))
    largest = cam.max((1, 2), keepdims=True)
    # Without this, a network with NaN would have maps of zeros, as if nothing were positive.
    is_finite = jnp.isfinite(a).all((1, 2, 3)) & jnp.isfinite(g).all((1, 2, 3))
    cam = jnp.where(largest > 0, cam / jnp.where(largest > 0, largest, 1), 0)
    cam = jnp.where(is_finite[:, None, None], cam, jnp.nan)
    return jax.image.resize(cam, (len(cam), height, width), "linear", antialias=False)


def _to_map(
    x: Float[Array, "b i j c"], height: int, width: int, site: str
) -> Activations:
    """Return activations with rows and columns; tokens are arranged like the image's patches.

    x: activations with rows and columns, which are returned unchanged, or tokens
    (b, 1, 1 + n, c), of which the first, the class token, is left out. height, width: size of
    the image. site: name for the message. ValueError for other shapes, and if the number of
    patches does not fit the image's aspect ratio.
    """
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
