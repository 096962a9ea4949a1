"""Layers that read weights with PyTorch's names and layout; images are NHWC.

DeepAugment's networks use these layers, because DeepAugment damages stored weights row by row.
Weights are {"head.0.weight": (out, in, h, w), "head.0.bias": (out), ...}; the kernel of a
transposed convolution is (in, out, h, w).
"""

import math
from collections.abc import Callable, Collection, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.models import weight_files

Map = Float[Array, "b h w c"]
Weights = Mapping[str, Array]
Shapes = weight_files.Shapes


def conv(
    weights: Weights,
    name: str,
    x: Map,
    *,
    stride: int = 1,
    pad: tuple[int, int] | None = None,
) -> Map:
    """Return x after the convolution `name`, with its bias.

    pad: numbers of zeros (before, after) along each axis; None: half the kernel, which keeps
    the size at stride 1.
    """
    kernel, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    pad = pad or (kernel.shape[2] // 2,) * 2
    axes = ("NHWC", "OIHW", "NHWC")
    x = jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), (pad, pad), dimension_numbers=axes
    )
    return x + bias[None, None, None, :]


def transposed_conv(
    weights: Weights, name: str, x: Float[Array, "b h w i"]
) -> Float[Array, "b 2*h 2*w o"]:
    """Return x after the transposed convolution `name` of kernel 2 and stride 2, with its bias.

    y[2 h + d, 2 w + e, o] = sum_i x[h, w, i] kernel[i, o, d, e] + bias[o].
    """
    kernel, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    b, h, w, _ = x.shape
    x = jnp.einsum("bhwi,iode->bhdweo", x, kernel)
    return x.reshape(b, 2 * h, 2 * w, -1) + bias[None, None, None, :]


def pixel_shuffle(x: Float[Array, "b h w 4*c"]) -> Float[Array, "b 2*h 2*w c"]:
    """Return a map whose 2x2 patches are groups of four consecutive channels of x.

    The four channels fill the patch row by row, as PyTorch's PixelShuffle(2) does.
    """
    b, h, w, c = x.shape
    x = x.reshape(b, h, w, c // 4, 2, 2).transpose(0, 1, 4, 2, 5, 3)
    return x.reshape(b, 2 * h, 2 * w, c // 4)


def uniform(shapes: Shapes, key: PRNGKeyArray) -> dict[str, np.ndarray]:
    """Return random weights of these shapes, by name, drawn from U(-1, 1) in one call."""
    counts = [math.prod(shape) for shape in shapes.values()]
    drawn = jax.random.uniform(key, (sum(counts),), minval=-1, maxval=1)
    flat_weights = np.split(np.asarray(drawn), np.cumsum(counts)[:-1])
    return {
        name: weight.reshape(shape)
        for (name, shape), weight in zip(shapes.items(), flat_weights, strict=True)
    }


def with_biases(
    kernels: Shapes, *, transposed: Collection[str] = ()
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of weights and biases by name.

    kernels: shape of the kernel of each layer, by the layer's name. transposed: names of the
    layers that are transposed convolutions.
    """
    shapes = {}
    for name, kernel in kernels.items():
        features = kernel[1 if name in transposed else 0]
        shapes[f"{name}.weight"] = kernel
        shapes[f"{name}.bias"] = (features,)
    return shapes


def deepaugment_weights(
    net: str,
    *,
    title: str,
    file: str,
    blob: str,
    shapes: Callable[..., Shapes],
    sizes_of: Callable[[Weights], Mapping[str, int]],
) -> weight_files.PublishedWeights:
    """Return the description of DeepAugment's published file of a network.

    net: "cae" or "edsr". title: name of the network in messages. file: name of the published
      file. blob: its git blob id.
    shapes: sizes -> shapes of all weights. sizes_of: weights -> arguments of `shapes`.
    """
    folder = "https://github.com/hendrycks/imagenet-r/tree/3131cac/DeepAugment"

    def convert(states: Mapping[str, Mapping]) -> dict[str, np.ndarray]:
        return {name: x.astype(np.float32) for name, x in states[file].items()}

    return weight_files.PublishedWeights(
        name=net,
        title=f"DeepAugment's published {title}",
        files={file: blob},
        url=f"{folder}/{net.upper()}_Weights",
        alternative=f"`jbias prepare deepaugment --net={net}` trains a small one",
        convert=convert,
        shapes=shapes(),
        shapes_of=lambda weights: shapes(**sizes_of(weights)),
    )
