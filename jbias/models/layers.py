"""Layers, initialisers and batch norm as PyTorch has them; feature maps are NHWC.

Flax's own batch norm accumulates the biased variance, and its default decay is 0.99;
published ResNets were trained with what is here.

In groups, BatchNorm is what training on many devices does when each normalises by its own
images only (Goyal et al. 2017, https://arxiv.org/abs/1706.02677, section 2.3), and ghost
batch norm (Hoffer, Hubara and Soudry 2017, https://arxiv.org/abs/1705.08741). The running
statistics then follow the mean over groups. Flax's ImageNet example averages the running
statistics of all devices, which is the same; PyTorch's DistributedDataParallel keeps those
of the first device; Hoffer et al. let each group update them in turn. The mean has the
expectation of one group with the least noise, and depends neither on the order of groups
nor, in how fast it forgets, on their number.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.models import taps

HE_FAN_OUT = nn.initializers.variance_scaling(2.0, "fan_out", "normal")
HE_FAN_IN = nn.initializers.variance_scaling(2.0, "fan_in", "normal")
# Uniform within +-1/sqrt(fan_in), PyTorch's own for kernels.
TORCH = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


def conv(
    features: int,
    size: int,
    stride: int = 1,
    *,
    pad: int | None = None,
    bias: bool = False,
    groups: int = 1,
    init: Callable = HE_FAN_OUT,
    **options: Any,
) -> nn.Conv:
    """A convolution whose borders are padded with size // 2 zeros, or with `pad`."""
    options |= dict(use_bias=bias, feature_group_count=groups, kernel_init=init)
    options["padding"] = size // 2 if pad is None else pad
    return nn.Conv(features, (size, size), (stride, stride), **options)


def linear(fan_in: int, features: int, dtype: Any = jnp.float32) -> nn.Dense:
    """A linear layer as PyTorch draws it; the last is float32, for bfloat16 logits tie."""
    init = dict(kernel_init=TORCH, bias_init=torch_bias(fan_in))
    return nn.Dense(features, dtype=dtype, **init)


def torch_bias(fan_in: int) -> Callable:
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

    return nn.max_pool(x, (size, size), (2, 2), tuple(after(n) for n in x.shape[1:3]))


def adaptive_mean(x: Float[Array, "b h w c"], side: int) -> Float[Array, "b s s c"]:
    """PyTorch's adaptive_avg_pool2d: means of side * side cells, whatever the size of x.

    Cell i of n pixels is from floor(i n / side) to ceil((i + 1) n / side), so that cells
    overlap where side does not divide n, and pixels repeat where n is less than side.
    """
    if x.shape[1:3] == (side, side):
        return x
    rows, columns = (jnp.asarray(_cells(n, side), x.dtype) for n in x.shape[1:3])
    return jnp.einsum("bhwc,ih,jw->bijc", x, rows, columns)


def flatten(x: Float[Array, "b h w c"]) -> Float[Array, "b n"]:
    """Lays out each image as PyTorch does: channels first, then rows."""
    return x.transpose(0, 3, 1, 2).reshape(len(x), -1)


def _cells(n: int, side: int) -> Float[np.ndarray, "s n"]:
    i, pixel = np.arange(side)[:, None], np.arange(n)[None]
    inside = (pixel >= i * n // side) & (pixel < -((-(i + 1) * n) // side))
    return inside / inside.sum(1, keepdims=True)


class BatchNorm(nn.Module):
    """Normalises each channel over the batch (train) or by running statistics.

    y = (x - mean) / sqrt(var + eps) * scale + bias, with the biased variance; running
    statistics become decay * old + (1 - decay) * batch, with the unbiased variance.
    Statistics and their arithmetic are float32, whatever the input.

    group: each `group` consecutive rows are normalised by themselves, and the means over
      groups of mean and unbiased variance are remembered; 0 is the whole batch.

    Raises ValueError in training on a single value per channel, which has no variance,
    and on a number of rows that is not a multiple of `group`.
    """

    decay: float = 0.9
    eps: float = 1e-5
    dtype: Any = jnp.float32
    group: int = 0

    @nn.compact
    def __call__(
        self, x: Float[Array, "n *m c"] | taps.Rescaled, *, train: bool
    ) -> Float[Array, "n *m c"]:
        waiting = None
        if isinstance(x, taps.Rescaled):
            x, waiting = (x.value, None) if self.group else (x.x, x)
        shape = x.shape[-1:]
        scale = self.param("scale", nn.initializers.ones, shape)
        bias = self.param("bias", nn.initializers.zeros, shape)
        mean_ema = self.variable("stats", "mean", jnp.zeros, shape)
        var_ema = self.variable("stats", "var", jnp.ones, shape)
        rows, x, each = x.shape, x.astype(jnp.float32), lambda f: f
        mean, var = mean_ema.value, var_ema.value
        if train and not self.is_initializing():
            if self.group:
                x, each = _grouped(x, self.group), jax.vmap
            mean, var = each(functools.partial(_moments, around=mean))(x)
            if waiting is not None:
                mean, var = waiting.moments(mean, var)
            n = x.size // mean.size
            mean_ema.value = self._remember(mean_ema.value, mean)
            var_ema.value = self._remember(var_ema.value, var * (n / (n - 1)))

        def normalised(x, mean, var):
            slope = scale * jax.lax.rsqrt(var + self.eps)
            level = bias - mean * slope
            if waiting is None:
                return x * _wide(slope, x) + _wide(level, x)
            factor = waiting.scale * slope[None]
            level = waiting.shift * slope[None] + level[None]
            return taps.rescale(waiting.x, factor, level, waiting.acts, self.dtype)

        return each(normalised)(x, mean, var).reshape(rows).astype(self.dtype)

    def _remember(self, old: Float[Array, "c"], new: Float[Array, "*g c"]) -> Array:
        new = new.mean(0) if new.ndim > 1 else new
        return self.decay * old + (1 - self.decay) * jax.lax.stop_gradient(new)


def _grouped(x: Float[Array, "n *m c"], group: int) -> Float[Array, "g group *m c"]:
    """Gives the groups an axis."""
    if len(x) % group:
        raise ValueError(
            f"models.layers: rows must be a multiple of norm_group, {group} rows, got "
            f"{len(x)}; change norm_group or the batch"
        )
    return x.reshape(-1, group, *x.shape[1:])


def _wide(channels: Float[Array, "c"], x: Float[Array, "*n c"]) -> Array:
    """Gives a channel vector the rank of x."""
    return channels.reshape((1,) * (x.ndim - 1) + (-1,))


def _moments(
    x: Float[Array, "*n c"], *, around: Float[Array, "c"]
) -> tuple[Float[Array, "c"], Float[Array, "c"]]:
    """Returns mean and biased variance of each channel, reading x once.

    var = E[(x - r)^2] - (E[x] - r)^2. With r = 0 that loses digits where the mean is
    large beside the deviation, so r is the running mean.
    """
    if x.size == x.shape[-1]:
        raise ValueError(
            "models.layers: training needs more than one value per channel, got shape "
            f"{x.shape}; use larger images or batches"
        )
    axes = tuple(range(x.ndim - 1))
    centred = x - _wide(around, x)
    offset = jnp.mean(centred, axes)
    var = jnp.mean(jnp.square(centred), axes) - jnp.square(offset)
    return around + offset, jnp.maximum(var, 0)
