"""EFDMix: mixes whole distributions of features between images, by their ranks.

Source: Zhang, Li, Li, Jia and Zhang, "Exact Feature Distribution Matching", CVPR 2022,
https://arxiv.org/abs/2203.07740.
Reference code: https://github.com/YBZh/EFDM at 80e26bd.
Deviation: partners are drawn inside groups of `mix_group` images, so that the meaning
does not depend on the number of devices; the reference draws them in the whole batch.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from jbias.algos import base, mixstyle
from jbias.augment import examples


def make(
    net: nn.Module,
    *,
    p: float = 0.5,
    alpha: float = 0.1,
    stages: Sequence[int] = (1, 2),
    partners: str = "random",
    mix_group: int = 32,
) -> base.Algo:
    """ERM whose net mixes each channel's sorted values between images after stages.

    With chance p a stage's output goes on as a x + (1 - a) x', where x' has the values
    of a partner's channel in the places of x's ranks and a ~ Beta(alpha, alpha) for each
    image. Gradients pass x whole and, as in the released code, reach the partner's
    values. The options are MixStyle's, and so is what p = 0 means; the authors use
    stages (1, 2, 3) for PACS.
    """
    return mixstyle.between_stages(
        "efdmix",
        net,
        mix,
        p=p,
        alpha=alpha,
        stages=stages,
        partners=partners,
        mix_group=mix_group,
    )


def mix(
    x: Float[Array, "b h w c"], acts: Bool[Array, ""], draw: Callable
) -> Float[Array, "b h w c"]:
    """Matches each image to the one of an order, a share of the way, where it acts."""
    return jax.lax.cond(acts, lambda x: match(x, *draw()), lambda x: x, x)


def match(
    x: Float[Array, "b h w c"],
    order: Int[Array, "groups group"],
    share: Float[Array, "b 1 1 1"],
) -> Float[Array, "b h w c"]:
    """Keeps this share of each image's own values and takes the rest by `order`.

    x + (1 - share) (x' - x), the last x held constant; among equal values the earlier
    place has the lower rank.
    """
    fixed = jax.lax.stop_gradient(x)
    places = jnp.argsort(fixed.reshape(len(x), -1, x.shape[-1]), axis=1)
    ranks = jax.vmap(jax.vmap(_inverse, in_axes=1, out_axes=1))(places)
    # Where the partner has the value of each place's rank.
    source = jnp.take_along_axis(examples.reorder(places, order), ranks, axis=1)
    partner = examples.reorder(x, order).reshape(source.shape)
    matched = jnp.take_along_axis(partner, source, axis=1).reshape(x.shape)
    change = (1 - share) * (matched - fixed).astype(jnp.float32)
    return x + change.astype(x.dtype)


def _inverse(order: Int[Array, "n"]) -> Int[Array, "n"]:
    """The order that undoes this one; cheaper than to sort it."""
    ranks = jnp.arange(len(order), dtype=order.dtype)
    return jnp.zeros_like(order).at[order].set(ranks, unique_indices=True)
