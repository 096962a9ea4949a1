"""A map times a scale plus a shift for each image and channel, not applied yet.

Batch norm takes such a map as it is. Where nothing acts it reads no more then than the
map's own sums, and what is kept for the gradient is the map alone.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, DTypeLike, Float


class Rescaled(NamedTuple):
    """scale * x + shift; mean and unbiased variance over the pixels are x's, if it acts."""

    x: Float[Array, "b h w c"]
    scale: Float[Array, "b c"]
    shift: Float[Array, "b c"]
    mean: Float[Array, "b c"]
    var: Float[Array, "b c"]
    acts: Bool[Array, ""]

    @property
    def value(self) -> Float[Array, "b h w c"]:
        """The map, applied."""
        return applied(self.x, self.scale, self.shift, self.acts, self.x.dtype)

    def moments(
        self, mean: Float[Array, "c"], var: Float[Array, "c"]
    ) -> tuple[Float[Array, "c"], Float[Array, "c"]]:
        """Mean and biased variance of each channel, given those of x."""
        count = self.x.shape[1] * self.x.shape[2]
        each = self.scale * self.mean + self.shift
        moved = jnp.mean(each, 0, keepdims=True)
        within = self.scale**2 * self.var * (count - 1) / count
        spread = jnp.mean(within + (each - moved) ** 2, 0)
        return jnp.where(self.acts, moved[0], mean), jnp.where(self.acts, spread, var)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def applied(
    x: Float[Array, "b h w c"],
    scale: Float[Array, "b c"],
    shift: Float[Array, "b c"],
    acts: Bool[Array, ""],
    dtype: DTypeLike,
) -> Float[Array, "b h w c"]:
    """scale * x + shift; where nothing acts, all images of a channel have the same."""
    return _applied(x, scale, shift, acts, dtype)[0]


def _applied(x, scale, shift, acts, dtype):
    y = x.astype(jnp.float32) * scale[:, None, None] + shift[:, None, None]
    return y.astype(dtype), (x, scale, acts)


def _applied_gradient(dtype, kept, dy):
    """Sums over the pixels of each image where it acts, else of all images together."""
    del dtype
    x, scale, acts = kept

    def sums(x, dy, axes):
        x, dy = x.astype(jnp.float32), dy.astype(jnp.float32)
        return jnp.sum(dy * x, axes), jnp.sum(dy, axes)

    def apart(x, dy, together):
        del together
        return sums(x, dy, (1, 2))

    def shared(x, dy, together):
        del x, dy
        return tuple(jnp.broadcast_to(s / len(scale), scale.shape) for s in together)

    together = sums(x, dy, (0, 1, 2))
    d_scale, d_shift = jax.lax.cond(acts, apart, shared, x, dy, together)
    dx = dy.astype(jnp.float32) * scale[:, None, None]
    return dx.astype(x.dtype), d_scale, d_shift, None


applied.defvjp(_applied, _applied_gradient)
