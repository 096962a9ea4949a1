"""Batch normalisation as PyTorch does it.

Flax's own differs in what it remembers: it accumulates the biased variance, and its
default decay is 0.99. Published ResNets were trained with what is here.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float


class BatchNorm(nn.Module):
    """Normalises each channel over the batch (train) or by running statistics.

    y = (x - mean) / sqrt(var + eps) * scale + bias, with the biased variance; running
    statistics become decay * old + (1 - decay) * batch, with the unbiased variance.
    Statistics and their arithmetic are float32, whatever the input.

    Raises ValueError in training on a single value per channel, which has no variance.
    """

    decay: float = 0.9
    eps: float = 1e-5
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "*n c"], *, train: bool) -> Float[Array, "*n c"]:
        shape = x.shape[-1:]
        scale = self.param("scale", nn.initializers.ones, shape)
        bias = self.param("bias", nn.initializers.zeros, shape)
        mean_ema = self.variable("stats", "mean", jnp.zeros, shape)
        var_ema = self.variable("stats", "var", jnp.ones, shape)
        x = x.astype(jnp.float32)
        if train and not self.is_initializing():
            mean, var = _moments(x, around=mean_ema.value)
            n = x.size // x.shape[-1]
            mean_ema.value = self._remember(mean_ema.value, mean)
            var_ema.value = self._remember(var_ema.value, var * (n / (n - 1)))
        else:
            mean, var = mean_ema.value, var_ema.value
        slope = scale * jax.lax.rsqrt(var + self.eps)
        y = x * _wide(slope, x) + _wide(bias - mean * slope, x)
        return y.astype(self.dtype)

    def _remember(self, old: Array, new: Array) -> Array:
        return self.decay * old + (1 - self.decay) * jax.lax.stop_gradient(new)


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
            "models.norm: training needs more than one value per channel, got shape "
            f"{x.shape}; use larger images or batches"
        )
    axes = tuple(range(x.ndim - 1))
    centred = x - _wide(around, x)
    offset = jnp.mean(centred, axes)
    var = jnp.mean(jnp.square(centred), axes) - jnp.square(offset)
    return around + offset, jnp.maximum(var, 0)
