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
    change = (1 - share) * (_matched(x, order) - fixed).astype(jnp.float32)
    return x + change.astype(x.dtype)


@jax.custom_vjp
def _matched(
    x: Float[Array, "b h w c"], order: Int[Array, "groups group"]
) -> Float[Array, "b h w c"]:
    """The partner's value of each place's rank: sorted there, and sorted back here."""
    places, ranked = _by_rank(x, x)
    return _back(places, examples.reorder(ranked, order), x)


def _match(x, order):
    return _matched(x, order), (x, order)


def _match_gradient(kept, given):
    """The same way back: in the order of ranks here, to the places there."""
    x, order = kept
    places, ranked = _by_rank(x, given)
    _, pull = jax.vjp(lambda ranked: examples.reorder(ranked, order), ranked)
    return _back(places, *pull(ranked), x), None


_matched.defvjp(_match, _match_gradient)


# Sorted and not gathered: a TPU gathers pixel by pixel.
def _by_rank(x: Array, values: Array) -> list[Array]:
    """Places by the rank of x in each channel, and what values has there."""
    keys, values = (y.reshape(len(x), -1, x.shape[-1]) for y in (x, values))
    places = jax.lax.broadcasted_iota(jnp.int32, keys.shape, 1)
    return jax.lax.sort((keys, places, values), dimension=1, num_keys=1)[1:]


def _back(places: Array, ranked: Array, like: Array) -> Array:
    """What goes by rank, at its places."""
    return jax.lax.sort((places, ranked), dimension=1, num_keys=1)[1].reshape(
        like.shape
    )
