"""Layers on weights kept by PyTorch's names and in its layout; images are NHWC.

For networks whose stored weights are the object of study: what damages a row of a file
can name it. {"head.0.weight": (out, in, h, w), "head.0.bias": (out), ...}; a transposed
convolution has (in, out, h, w).
"""

import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.models import published

Map = Float[Array, "b h w c"]
Weights = Mapping[str, Array]
Shapes = published.Shapes


def conv(weights: Weights, name: str, x: Map, *, stride: int = 1, pad=None) -> Map:
    """Convolves with the layer `name`; `pad` is before and after, "same" if None."""
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
    """The transposed convolution of kernel 2 and stride 2: a 2x2 patch for each pixel.

    y[2 h + d, 2 w + e, o] = sum_i x[h, w, i] kernel[i, o, d, e] + bias[o].
    """
    kernel, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    b, h, w, _ = x.shape
    x = jnp.einsum("bhwi,iode->bhdweo", x, kernel)
    return x.reshape(b, 2 * h, 2 * w, -1) + bias[None, None, None, :]


def pixel_shuffle(x: Float[Array, "b h w 4*c"]) -> Float[Array, "b 2*h 2*w c"]:
    """Spreads each four channels over a 2x2 patch of pixels, row by row."""
    b, h, w, c = x.shape
    x = x.reshape(b, h, w, c // 4, 2, 2).transpose(0, 1, 4, 2, 5, 3)
    return x.reshape(b, 2 * h, 2 * w, c // 4)


def uniform(shapes: Shapes, key: PRNGKeyArray) -> dict[str, np.ndarray]:
    """Draws every weight from U(-1, 1), in one call."""
    counts = [math.prod(shape) for shape in shapes.values()]
    drawn = jax.random.uniform(key, (sum(counts),), minval=-1, maxval=1)
    parts = np.split(np.asarray(drawn), np.cumsum(counts)[:-1])
    named = zip(shapes.items(), parts, strict=True)
    return {name: part.reshape(shape) for (name, shape), part in named}


def with_biases(kernels: Shapes, *transposed: str) -> dict[str, tuple[int, ...]]:
    """Shapes of layers' weights by name, given those of their kernels by layer.

    transposed: the layers that are transposed convolutions.
    """
    found = {}
    for name, kernel in kernels.items():
        bias = kernel[1 if name in transposed else 0]
        found |= {f"{name}.weight": kernel, f"{name}.bias": (bias,)}
    return found


def of_deepaugment(
    net: str, title: str, file: str, blob: str, shapes: Callable, sizes_of: Callable
) -> published.Published:
    """What DeepAugment published of one of its networks: one file of our arrays."""
    folder = "https://github.com/hendrycks/imagenet-r/tree/3131cac/DeepAugment"

    def convert(states: Mapping[str, Mapping]) -> dict[str, np.ndarray]:
        return {name: x.astype(np.float32) for name, x in states[file].items()}

    return published.Published(
        name=net,
        title=f"DeepAugment's published {title}",
        files={file: blob},
        url=f"{folder}/{net.upper()}_Weights",
        alternative=f"`jbias prepare deepaugment --net={net}` trains a small one",
        convert=convert,
        shapes=shapes(),
        shapes_of=lambda weights: shapes(**sizes_of(weights)),
    )
