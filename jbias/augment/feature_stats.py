"""Feature statistics of images, and ways to swap them between images.

Statistics are those of one image's channel over its pixels.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from jbias.augment import sampling

_EPS = 1e-5

Map = Float[Array, "b h w c"]
Stats = Float[Array, "b c"]
Gate = Bool[Array, ""]


def wide(stats: Stats) -> Float[Array, "b 1 1 c"]:
    """Statistics as what a map is scaled by or shifted.

    Between maps they have two axes: a TPU lays what has four in eight times the memory.
    """
    return stats[:, None, None]


def moments(x: Map) -> tuple[Stats, Stats]:
    """Returns mean and unbiased variance over the pixels, in float32.

    Raises ValueError on maps of one pixel: their variance is 0/0 and would poison the
    gradient even where it is not used.
    """
    if x.shape[1] * x.shape[2] < 2:
        must = "augment.feature_stats: statistics need maps of at least 2 pixels"
        got = f"got shape {x.shape}"
        raise ValueError(f"{must}, {got}; use larger images or an earlier stage")
    x = x.astype(jnp.float32)
    return jnp.mean(x, (1, 2)), jnp.var(x, (1, 2), ddof=1)


@jax.custom_vjp
def gated_moments(x: Map, acts: Gate | None) -> tuple[Stats, Stats]:
    """Return `moments` where the gate acts, else 0 and 1 without reading x.

    acts: None reads x in any case.
    """
    return _gated_moments(x, acts)[0]


def _gated_moments(x, acts):
    def neither(x):
        zeros = jnp.zeros((x.shape[0], x.shape[3]))
        return zeros, jnp.ones_like(zeros)

    found = moments(x) if acts is None else jax.lax.cond(acts, moments, neither, x)
    return found, (x, found[0])


def _gated_moments_gradient(kept, given):
    """dx = dm / n + 2 (x - m) dv / (n - 1): no more than a product and a sum.

    Nothing is gated: what depends on moments that were not read has no gradient there.
    """
    (x, mean), (d_mean, d_var) = kept, given
    count = x.shape[1] * x.shape[2]
    slope = 2 * d_var / (count - 1)
    level = d_mean / count - mean * slope
    dx = x.astype(jnp.float32) * wide(slope) + wide(level)
    return dx.astype(x.dtype), None


gated_moments.defvjp(_gated_moments, _gated_moments_gradient)


def gated_affine(
    x: Map, acts: Gate, change: Callable, *args: Any, read_always: bool = False
) -> tuple[Stats, ...]:
    """Return a and b of a x + b, by change(mean, var, *args), and mean and var.

    Where the gate does not act, nothing is drawn, a is 1 and b is 0; nor is x read, and
    mean and var are 0 and 1.

    read_always: takes mean and var of x outside the condition, which a compiler can fuse
      with what makes x. Inside, x is copied to a layout of the branch.
    """
    mean, var = gated_moments(x, None if read_always else acts)

    def keep(mean, var, *args):
        return jnp.ones_like(var), jnp.zeros_like(mean)

    return *jax.lax.cond(acts, change, keep, mean, var, *args), mean, var


def affine_between(own: Stats, new: Stats) -> tuple[Stats, Stats]:
    """a and b of a x + b, which turns means and deviations, side by side, into new ones."""
    (mean, std), (new_mean, new_std) = (jnp.split(s, 2, axis=1) for s in (own, new))
    scale = new_std / std
    return scale, new_mean - mean * scale


def permuted_adain(
    mean: Stats, var: Stats, key: PRNGKeyArray, *, group: int
) -> tuple[Stats, Stats]:
    """Gives each image the channel means and deviations of another, held constant.

    Returns a and b of a x + b, given the moments of x. It is

        (x - m) / (sqrt(v + eps) + eps) * sqrt(v' + eps) + m'

    with eps = 1e-5, twice in the divisor; m' and v' are the partner's and carry no
    gradient.
    Source: Nuriel, Benaim and Wolf, CVPR 2021; epsilons as in the released code.
    """
    style = jax.lax.stop_gradient(jnp.concatenate([mean, var], axis=1))
    style = sampling.permute(style, key, group=group)
    style_mean, style_var = jnp.split(style, 2, axis=1)
    scale = jnp.sqrt(style_var + _EPS) / (jnp.sqrt(var + _EPS) + _EPS)
    return scale, style_mean - mean * scale


def randomise_style(x: Map, key: PRNGKeyArray, *, group: int) -> Map:
    """Moves each image's statistics a random part of the way to another's.

    m'' = a m + (1 - a) m', v'' = a v + (1 - a) v' with a ~ U(0, 1) for each image; the
    variance is mixed, not the deviation. Gradients reach both images' statistics.
    Source: Nam et al., "Reducing Domain Gap by Reducing Style Bias", CVPR 2021.
    """
    share, order = jax.random.split(key)
    mean, var = moments(x)
    own = jnp.concatenate([mean, var], axis=1)
    a = jax.vmap(jax.random.uniform)(sampling.keys(share, x.shape[0])).reshape(-1, 1)
    mixed = a * own + (1 - a) * sampling.permute(own, order, group=group)
    new_mean, new_var = jnp.split(mixed, 2, axis=1)
    return _styled(_content(x, mean, var), new_mean, new_var).astype(x.dtype)


def randomise_content(x: Map, key: PRNGKeyArray, *, group: int) -> Map:
    """Gives each image's statistics the normalised content of another, held constant.

    Gradients flow only through the image's own mean and variance.
    Source: Nam et al., "Reducing Domain Gap by Reducing Style Bias", CVPR 2021.
    """
    mean, var = moments(x)
    order = sampling.orders(key, len(x), group=group)
    fixed = jax.lax.stop_gradient((x, mean, var))
    content = _content(*(sampling.reorder(one, order) for one in fixed))
    return _styled(content, mean, var).astype(x.dtype)


def _content(x, mean, var):
    return (x.astype(jnp.float32) - wide(mean)) * jax.lax.rsqrt(wide(var) + _EPS)


def _styled(content, mean, var):
    return content * jnp.sqrt(wide(var) + _EPS) + wide(mean)
