"""Layers and initialisers as PyTorch has them; feature maps are NHWC."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, PRNGKeyArray

HE_FAN_OUT = nn.initializers.variance_scaling(2.0, "fan_out", "normal")
HE_FAN_IN = nn.initializers.variance_scaling(2.0, "fan_in", "normal")
# Uniform within +-1/sqrt(fan_in), PyTorch's own for kernels.
TORCH = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


def conv(
    features: int,
    size: int,
    stride: int = 1,
    *,
    dtype: Any,
    pad: int | None = None,
    bias: bool = False,
    groups: int = 1,
    init: Callable = HE_FAN_OUT,
    bias_init: Callable = nn.initializers.zeros,
    name: str | None = None,
) -> nn.Conv:
    """A convolution whose borders are padded with size // 2 zeros, or with `pad`."""
    return nn.Conv(
        features,
        (size, size),
        (stride, stride),
        padding=size // 2 if pad is None else pad,
        feature_group_count=groups,
        use_bias=bias,
        dtype=dtype,
        kernel_init=init,
        bias_init=bias_init,
        name=name,
    )


def linear(fan_in: int, features: int, dtype: Any = jnp.float32) -> nn.Dense:
    """A linear layer as PyTorch draws it; the last is float32, for bfloat16 logits tie."""
    return nn.Dense(features, dtype=dtype, kernel_init=TORCH, bias_init=uniform(fan_in))


def uniform(fan_in: int) -> Callable:
    """PyTorch's own initialisation of biases: uniform within +-1/sqrt(fan_in)."""

    def init(key: PRNGKeyArray, shape, dtype=jnp.float32) -> Array:
        limit = 1 / math.sqrt(fan_in)
        return jax.random.uniform(key, shape, dtype, -limit, limit)

    return init


def max_pool(
    x: Float[Array, "b h w c"], size: int = 3, *, ceil: bool = False
) -> Float[Array, "b h2 w2 c"]:
    """Takes the maxima of windows at every second pixel.

    With `ceil`, PyTorch's ceil_mode: a last window may stick out at the end of a side.
    """

    def after(n: int) -> tuple[int, int]:
        return 0, max(0, math.ceil((n - size) / 2) * 2 + size - n) if ceil else 0

    pads = tuple(after(n) for n in x.shape[1:3])
    return nn.max_pool(x, (size, size), (2, 2), pads)


def adaptive_mean(x: Float[Array, "b h w c"], side: int) -> Float[Array, "b s s c"]:
    """PyTorch's adaptive_avg_pool2d: means of side * side cells, whatever the size of x.

    Cell i of n pixels is from floor(i n / side) to ceil((i + 1) n / side), so that cells
    overlap where side does not divide n, and pixels repeat where n is less than side.
    """
    if x.shape[1:3] == (side, side):
        return x
    rows, columns = (jnp.asarray(_cells(n, side), x.dtype) for n in x.shape[1:3])
    return jnp.einsum("bhwc,ih,jw->bijc", x, rows, columns)


def flat(x: Float[Array, "b h w c"]) -> Float[Array, "b n"]:
    """Lays out each image as PyTorch does: channels first, then rows."""
    return x.transpose(0, 3, 1, 2).reshape(len(x), -1)


def _cells(n: int, side: int) -> Float[np.ndarray, "s n"]:
    i, pixel = np.arange(side)[:, None], np.arange(n)[None]
    inside = (pixel >= i * n // side) & (pixel < -((-(i + 1) * n) // side))
    return inside / inside.sum(1, keepdims=True)
