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
from jaxtyping import Array, Bool, Float, Int, Shaped

from jbias.algos import base, mixstyle
from jbias.augment import sampling
from jbias.runtime import xla


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
        "efdmix", net, mix, p, alpha, stages, partners, mix_group
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
    flat = x.reshape(len(x), -1, x.shape[-1])
    values, places = _ranked(flat)
    matched = _placed(sampling.reorder(values, order), places)
    change = (1 - share[:, 0]) * (matched - jax.lax.stop_gradient(flat)).astype("f4")
    return x + change.astype(x.dtype).reshape(x.shape)


# A TPU takes single values from anywhere in a map at one or two a cycle; it sorts many
# times faster. Elsewhere to sort is what takes the time.
@jax.custom_vjp
def _ranked(
    x: Float[Array, "b n c"],
) -> tuple[Float[Array, "b n c"], Int[Array, "b n c"]]:
    """Each channel's values in their order, and where they were."""
    if xla.platform() == "tpu":
        return tuple(jax.lax.sort((x, _numbers(x)), dimension=1, num_keys=1))
    places = jnp.argsort(x, axis=1)
    return jnp.take_along_axis(x, places, axis=1), places


@jax.custom_vjp
def _placed(
    values: Shaped[Array, "b n c"], places: Int[Array, "b n c"]
) -> Shaped[Array, "b n c"]:
    """Puts each channel's values at these different places."""
    if xla.platform() == "tpu":
        return jax.lax.sort((places, values), dimension=1, num_keys=1)[1]
    ranks = jax.vmap(jax.vmap(sampling.inverse, in_axes=1, out_axes=1))(places)
    return jnp.take_along_axis(values, ranks, axis=1)


def _taken(values: Float[Array, "b n c"], places: Int[Array, "b n c"]):
    """What is at these places, which is what `_placed` undoes."""
    if xla.platform() == "tpu":
        return _placed(values, _placed(_numbers(values), places))
    return jnp.take_along_axis(values, places, axis=1)


def _numbers(x: Shaped[Array, "b n c"]) -> Int[Array, "b n c"]:
    return jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)


def _ranked_forward(x):
    values, places = _ranked(x)
    return (values, places), places


_ranked.defvjp(_ranked_forward, lambda places, g: (_placed(g[0], places),))
_placed.defvjp(
    lambda values, places: (_placed(values, places), places),
    lambda places, g: (_taken(g, places), None),
)
