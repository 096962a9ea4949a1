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

Weights = Mapping[str, Array]
Shapes = Mapping[str, tuple[int, ...]]


def conv(
    weights: Weights,
    name: str,
    x: Float[Array, "b h w i"],
    *,
    stride: int = 1,
    pad: tuple[int, int] | None = None,
) -> Float[Array, "b h2 w2 o"]:
    """Convolves with the layer `name`; `pad` is before and after, "same" if None."""
    kernel, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    pad = pad or (kernel.shape[2] // 2,) * 2
    x = jax.lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        (pad, pad),
        dimension_numbers=("NHWC", "OIHW", "NHWC"),
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


def only_file(source: str) -> Callable[[Mapping[str, Mapping]], dict[str, np.ndarray]]:
    """Converts published files of which one, `source`, holds the weights as we do."""
    return lambda states: {
        name: value.astype(np.float32) for name, value in states[source].items()
    }
