"""Layers, initialisers and batch norm as in PyTorch; feature maps are NHWC.

Flax's own batch norm accumulates the biased variance, with a default decay of 0.99;
published ResNets were trained with the unbiased variance and a decay of 0.9.

BatchNorm in groups is the same as training on many devices that normalise only their own
images (Goyal et al. 2017, https://arxiv.org/abs/1706.02677, section 2.3), and as ghost
batch norm (Hoffer, Hubara and Soudry 2017, https://arxiv.org/abs/1705.08741). The running
statistics then follow the mean over groups. Flax's ImageNet example averages the running
statistics of all devices, with the same result; PyTorch's DistributedDataParallel uses the
statistics of the first device; Hoffer et al. update the running statistics with each group in
turn. The mean over groups has the same expectation as the statistic of one group, with the
least noise. This mean does not depend on the order of groups, and the decay does not depend on
the number of groups.
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
# Uniform within +-1/sqrt(fan_in), PyTorch's default for kernels.
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
    """Return a convolution with a square kernel of `size`, padded with `pad` zeros.

    features: output channels. bias: whether the convolution has a bias. groups: number of
      groups of channels. init: initialiser of the kernel.
    pad: zeros on each side; None: size // 2.
    options: other fields of nn.Conv, such as dtype and name.
    """
    return nn.Conv(
        features,
        (size, size),
        strides=(stride, stride),
        padding=size // 2 if pad is None else pad,
        use_bias=bias,
        feature_group_count=groups,
        kernel_init=init,
        **options,
    )


def linear(fan_in: int, features: int, dtype: Any = jnp.float32) -> nn.Dense:
    """Return a linear layer with PyTorch's initialisation.

    fan_in, features: numbers of inputs and outputs.
    dtype: dtype of the computation; use float32 for the last layer, because logits in bfloat16
    are often equal.
    """
    return nn.Dense(
        features, dtype=dtype, kernel_init=TORCH, bias_init=torch_bias(fan_in)
    )


def torch_bias(fan_in: int) -> Callable:
    """Return PyTorch's initialiser of biases: uniform within +-1/sqrt(fan_in)."""

    def init(key: PRNGKeyArray, shape, dtype=jnp.float32) -> Array:
        """Return biases of this shape."""
        limit = 1 / math.sqrt(fan_in)
        return jax.random.uniform(key, shape, dtype, -limit, limit)

    return init


def max_pool(
    x: Float[Array, "b h w c"], size: int = 3, *, ceil: bool = False
) -> Float[Array, "b h2 w2 c"]:
    """Return the maxima of windows of size x size pixels and stride 2, without padding.

    ceil: PyTorch's ceil_mode: the last window may extend beyond the end of a side.
    """

    def padding(length: int) -> tuple[int, int]:
        """Return the padding before and after a side of this length, in pixels."""
        extent = math.ceil((length - size) / 2) * 2 + size
        return 0, max(0, extent - length) if ceil else 0

    return nn.max_pool(
        x,
        (size, size),
        strides=(2, 2),
        padding=tuple(padding(length) for length in x.shape[1:3]),
    )


def adaptive_mean(x: Float[Array, "b h w c"], side: int) -> Float[Array, "b s s c"]:
    """Return the means over a grid of side x side cells, as PyTorch's adaptive_avg_pool2d.

    Along a side of n pixels, cell i is from floor(i n / side) to ceil((i + 1) n / side).
    Cells overlap if `side` does not divide n, and pixels repeat if n is less than `side`.
    """
    if x.shape[1:3] == (side, side):
        return x
    rows, columns = (jnp.asarray(_cell_weights(n, side), x.dtype) for n in x.shape[1:3])
    return jnp.einsum("bhwc,ih,jw->bijc", x, rows, columns)


def flatten(x: Float[Array, "b h w c"]) -> Float[Array, "b n"]:
    """Return each map as a vector in PyTorch's order: channels first, then rows."""
    return x.transpose(0, 3, 1, 2).reshape(len(x), -1)


def _cell_weights(n: int, side: int) -> Float[np.ndarray, "s n"]:
    """Return a matrix: entry (i, j) is the weight of pixel j of n in the mean of cell i."""
    i, pixel = np.arange(side)[:, None], np.arange(n)[None]
    inside = (pixel >= i * n // side) & (pixel < -((-(i + 1) * n) // side))
    return inside / inside.sum(1, keepdims=True)


class BatchNorm(nn.Module):
    """A batch norm: normalises channels by the batch (train) or by running statistics.

    y = (x - mean) / sqrt(var + eps) * scale + bias, with the biased variance; running
    statistics become decay * old + (1 - decay) * batch, with the unbiased variance.
    Statistics are computed in float32 for inputs of any dtype.

    x may be a taps.Rescaled map, whose scale and shift are then applied here.

    group: consecutive rows that are normalised together; the running statistics follow
      the means over groups of mean and unbiased variance. 0 is the whole batch.

    ValueError in training on a single value per channel, which has no variance, and on a
    number of rows that is not a multiple of `group`.
    """

    decay: float = 0.9
    eps: float = 1e-5
    dtype: Any = jnp.float32
    group: int = 0

    @nn.compact
    def __call__(
        self, x: Float[Array, "n *m c"] | taps.Rescaled, *, train: bool
    ) -> Float[Array, "n *m c"]:
        """Return x normalised by the batch (train) or by the running statistics.

        With `train`, the running statistics in the collection "stats" are updated. While variables
        are initialised, `train` has no effect.
        """
        rescaled = None
        if isinstance(x, taps.Rescaled):
            x, rescaled = (x.value, None) if self.group else (x.x, x)
        shape = x.shape[-1:]
        scale = self.param("scale", nn.initializers.ones, shape)
        bias = self.param("bias", nn.initializers.zeros, shape)
        mean_ema = self.variable("stats", "mean", jnp.zeros, shape)
        var_ema = self.variable("stats", "var", jnp.ones, shape)
        full_shape, x = x.shape, x.astype(jnp.float32)
        mean, var = mean_ema.value, var_ema.value
        over_groups = lambda f: f
        if train and not self.is_initializing():
            if self.group:
                x, over_groups = _split_groups(x, self.group), jax.vmap
            mean, var = over_groups(functools.partial(_moments, around=mean))(x)
            if rescaled is not None:
                mean, var = rescaled.moments(mean, var)
            n = x.size // mean.size
            mean_ema.value = self._update_average(mean_ema.value, mean)
            var_ema.value = self._update_average(var_ema.value, var * (n / (n - 1)))

        def normalise(x, mean, var):
            """Return x normalised with mean and var (c); a `Rescaled` map is also rescaled."""
            slope = scale * jax.lax.rsqrt(var + self.eps)
            level = bias - mean * slope
            if rescaled is None:
                return x * align_channels(slope, x) + align_channels(level, x)
            factor = rescaled.scale * slope[None]
            level = rescaled.shift * slope[None] + level[None]
            return taps.rescale(rescaled.x, factor, level, rescaled.acts, self.dtype)

        y = over_groups(normalise)(x, mean, var)
        return y.reshape(full_shape).astype(self.dtype)

    def _update_average(
        self, old: Float[Array, "c"], new: Float[Array, "*g c"]
    ) -> Float[Array, "c"]:
        """Return the running statistic after one step, given the old statistic.

        new: statistic of the batch, or one per group, whose mean is used.
        """
        new = new.mean(0) if new.ndim > 1 else new
        return self.decay * old + (1 - self.decay) * jax.lax.stop_gradient(new)


def _split_groups(
    x: Float[Array, "n *m c"], group: int
) -> Float[Array, "g group *m c"]:
    """Return x with an axis of groups in front, each of `group` consecutive rows.

    ValueError if the number of rows is not a multiple of `group`.
    """
    if len(x) % group:
        raise ValueError(
            f"models.layers: rows must be a multiple of norm_group, {group} rows, got "
            f"{len(x)}; change norm_group or the batch"
        )
    return x.reshape(-1, group, *x.shape[1:])


def align_channels(channels: Float[Array, "c"], x: Float[Array, "*n c"]) -> Array:
    """Return a channel vector reshaped to broadcast with x, whose last axis is channels."""
    return channels.reshape((1,) * (x.ndim - 1) + (-1,))


def _moments(
    x: Float[Array, "*n c"], *, around: Float[Array, "c"]
) -> tuple[Float[Array, "c"], Float[Array, "c"]]:
    """Return mean and biased variance of each channel, reading x once.

    var = E[(x - r)^2] - (E[x] - r)^2 with r = `around`, the running mean. With r = 0 the
    formula loses digits where the mean is much larger than the standard deviation. ValueError
    for a single value per channel.
    """
    if x.size == x.shape[-1]:
        raise ValueError(
            "models.layers: training needs more than one value per channel, got shape "
            f"{x.shape}; use larger images or batches"
        )
    axes = tuple(range(x.ndim - 1))
    centred = x - align_channels(around, x)
    offset = jnp.mean(centred, axes)
    var = jnp.mean(jnp.square(centred), axes) - jnp.square(offset)
    return around + offset, jnp.maximum(var, 0)
