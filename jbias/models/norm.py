"""Batch normalisation as PyTorch does it, over the whole batch or in groups.

Flax's own differs in what it remembers: it accumulates the biased variance, and its
default decay is 0.99. Published ResNets were trained with what is here.

In groups it is what training on many devices does whose batch norms know their own
device's images alone (Goyal et al. 2017, https://arxiv.org/abs/1706.02677, section 2.3),
and ghost batch norm (Hoffer, Hubara and Soudry 2017, https://arxiv.org/abs/1705.08741).
What is remembered then is the mean over groups. Flax's ImageNet example averages the
running statistics of all devices, which is the same; PyTorch's DistributedDataParallel
keeps those of the first device; Hoffer et al. let each group move them in turn. The mean
expects what one group expects, with the least noise, and depends neither on the order
of groups nor, in how fast it forgets, on their number.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from jbias.models import rescaled


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
        self, x: Float[Array, "n *m c"] | rescaled.Rescaled, *, train: bool
    ) -> Float[Array, "n *m c"]:
        waiting = None
        if isinstance(x, rescaled.Rescaled):
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
            return rescaled.applied(waiting.x, factor, level, waiting.acts, self.dtype)

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
