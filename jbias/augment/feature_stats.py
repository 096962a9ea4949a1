"""Functions that compute feature statistics of images and mix them between images.

Statistics are computed over the pixels of a channel of one image. Functions named gated_* take
a traced boolean, `acts`, and compute their result only if `acts` is True.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from jbias.augment import batch_permutations, random_numbers

_EPS = 1e-5

Map = Float[Array, "b h w c"]
Stats = Float[Array, "b c"]
Gate = Bool[Array, ""]


class Affine(NamedTuple):
    """The affine map scale * x + shift, and the mean and unbiased variance of x.

    All are per image and channel.
    """

    scale: Stats
    shift: Stats
    mean: Stats
    var: Stats


def broadcastable(stats: Stats) -> Float[Array, "b 1 1 c"]:
    """Return statistics (b c) reshaped to (b 1 1 c), to broadcast with a map.

    Statistics are stored with two axes: with four a TPU uses eight times the memory.
    """
    return stats[:, None, None]


def moments(x: Map) -> tuple[Stats, Stats]:
    """Return mean and unbiased variance over the pixels, in float32.

    ValueError for maps of one pixel: their variance is 0/0, which makes gradients NaN even
    if the variance is not used.
    """
    if x.shape[1] * x.shape[2] < 2:
        must = "augment.feature_stats: statistics need maps of at least 2 pixels"
        got = f"got shape {x.shape}"
        raise ValueError(f"{must}, {got}; use larger images or an earlier stage")
    x = x.astype(jnp.float32)
    return jnp.mean(x, (1, 2)), jnp.var(x, (1, 2), ddof=1)


@jax.custom_vjp
def gated_moments(x: Map, acts: Gate | None) -> tuple[Stats, Stats]:
    """Return `moments(x)` if `acts` is True; else the mean 0 and the variance 1.

    acts: a traced boolean; None has the effect of True. If False, x is not read.
    """
    return _gated_moments(x, acts)[0]


def _gated_moments(
    x: Map, acts: Gate | None
) -> tuple[tuple[Stats, Stats], tuple[Map, Stats]]:
    """Return (mean, variance), and (x, mean), which the gradient needs; see `gated_moments`."""

    def defaults(x):
        zeros = jnp.zeros((x.shape[0], x.shape[3]))
        return zeros, jnp.ones_like(zeros)

    if acts is None:
        mean, var = moments(x)
    else:
        mean, var = jax.lax.cond(acts, moments, defaults, x)
    return (mean, var), (x, mean)


def _gated_moments_gradient(
    residuals: tuple[Map, Stats], gradients: tuple[Stats, Stats]
) -> tuple[Map, None]:
    """Return the gradient of x, dm / n + 2 (x - m) dv / (n - 1), and None for `acts`.

    residuals: x and its mean. gradients: of the mean and of the variance. The value of `acts`
    is not needed: if the moments were not computed, their gradients are 0.
    """
    (x, mean), (d_mean, d_var) = residuals, gradients
    count = x.shape[1] * x.shape[2]
    slope = 2 * d_var / (count - 1)
    level = d_mean / count - mean * slope
    dx = x.astype(jnp.float32) * broadcastable(slope) + broadcastable(level)
    return dx.astype(x.dtype), None


gated_moments.defvjp(_gated_moments, _gated_moments_gradient)


def gated_affine(
    x: Map, acts: Gate, change: Callable, *args: Any, read_always: bool = False
) -> Affine:
    """Return the affine map with (scale, shift) = change(mean, var, *args), if `acts` is True.

    mean, var: moments of x; also in the result. If `acts` is False, `change` is not computed,
    scale is 1 and shift is 0.

    acts: a traced boolean. args: further arguments of `change`.
    read_always: False: if `acts` is False, x is not read, and mean and var of the result are
      0 and 1. True: mean and var are always computed, outside the condition, so that the
      compiler can fuse them with the computation of x (inside, x is copied to the layout of
      the branch).
    """
    mean, var = gated_moments(x, None if read_always else acts)

    def identity(mean, var, *args):
        return jnp.ones_like(var), jnp.zeros_like(mean)

    scale, shift = jax.lax.cond(acts, change, identity, mean, var, *args)
    return Affine(scale, shift, mean=mean, var=var)


def affine_between(
    old: Float[Array, "b 2*c"], new: Float[Array, "b 2*c"]
) -> tuple[Stats, Stats]:
    """Return (scale, shift), each (b c), of a map that changes statistics of x from `old` to `new`.

    The map is scale * x + shift. old, new: (b 2c), per image the mean of each channel, then the
    standard deviation of each channel.
    """
    (mean, std), (new_mean, new_std) = (jnp.split(s, 2, axis=1) for s in (old, new))
    scale = new_std / std
    return scale, new_mean - mean * scale


def permuted_adain(
    mean: Stats, var: Stats, key: PRNGKeyArray, *, group: int
) -> tuple[Stats, Stats]:
    """Return a and b of the map a x + b that gives each image another image's statistics.

    mean, var: moments of x. group: number of consecutive images among which partners are
    drawn, which must divide the batch; an image may be its own partner. The map is

        (x - m) / (sqrt(v + eps) + eps) * sqrt(v' + eps) + m'

    with eps = 1e-5, twice in the divisor; m' and v' are the partner's and have no gradient.
    Source: Nuriel, Benaim and Wolf, CVPR 2021; epsilons as in the released code.
    """
    style = jax.lax.stop_gradient(jnp.concatenate([mean, var], axis=1))
    style = batch_permutations.permute(style, key, group=group)
    style_mean, style_var = jnp.split(style, 2, axis=1)
    scale = jnp.sqrt(style_var + _EPS) / (jnp.sqrt(var + _EPS) + _EPS)
    return scale, style_mean - mean * scale


def randomise_style(x: Map, key: PRNGKeyArray, *, group: int) -> Map:
    """Return x with each image's statistics mixed with another image's statistics.

    m'' = a m + (1 - a) m', v'' = a v + (1 - a) v' with a ~ U(0, 1) for each image; the
    variance is mixed, not the deviation. Gradients pass through the statistics of the two
    images. group: number of consecutive images among which partners are drawn; must divide the
    batch.
    Source: Nam et al., "Reducing Domain Gap by Reducing Style Bias", CVPR 2021.
    """
    k_share, k_order = jax.random.split(key)
    mean, var = moments(x)
    old = jnp.concatenate([mean, var], axis=1)
    a = jax.vmap(jax.random.uniform)(random_numbers.keys(k_share, x.shape[0])).reshape(
        -1, 1
    )
    mixed = a * old + (1 - a) * batch_permutations.permute(old, k_order, group=group)
    new_mean, new_var = jnp.split(mixed, 2, axis=1)
    return _with_stats(_normalise(x, mean, var), new_mean, new_var).astype(x.dtype)


def randomise_content(x: Map, key: PRNGKeyArray, *, group: int) -> Map:
    """Return for each image another image's map, scaled to the image's own mean and variance.

    The other image's map is a constant: gradients pass only through the image's own mean and
    variance. group: number of consecutive images among which partners are drawn; must divide
    the batch. Source: Nam et al., "Reducing Domain Gap by Reducing Style Bias", CVPR 2021.
    """
    mean, var = moments(x)
    order = batch_permutations.orders(key, len(x), group=group)
    fixed = jax.lax.stop_gradient((x, mean, var))
    other_x, other_mean, other_var = (
        batch_permutations.reorder(a, order) for a in fixed
    )
    content = _normalise(other_x, other_mean, other_var)
    return _with_stats(content, mean, var).astype(x.dtype)


def _normalise(x: Map, mean: Stats, var: Stats) -> Map:
    """Return (x - mean) / sqrt(var + eps) in float32."""
    centred = x.astype(jnp.float32) - broadcastable(mean)
    return centred * jax.lax.rsqrt(broadcastable(var) + _EPS)


def _with_stats(content: Map, mean: Stats, var: Stats) -> Map:
    """Return content * sqrt(var + eps) + mean."""
    return content * jnp.sqrt(broadcastable(var) + _EPS) + broadcastable(mean)
