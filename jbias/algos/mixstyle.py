"""MixStyle and EFDMix: mix the styles of images, as if there were more domains.

MixStyle mixes the statistics of features.
Source: Zhou, Yang, Qiao and Xiang, ICLR 2021, https://arxiv.org/abs/2104.02008.
Reference code: https://github.com/KaiyangZhou/mixstyle-release at 16f7cf1.

EFDMix mixes whole distributions of features, by their ranks.
Source: Zhang, Li, Li, Jia and Zhang, "Exact Feature Distribution Matching", CVPR 2022,
https://arxiv.org/abs/2203.07740.
Reference code: https://github.com/YBZh/EFDM at 80e26bd.

Deviations: partners are drawn inside groups of `mix_group` images, so that the meaning
does not depend on the number of devices; the references draw them in the whole batch.
Batches may be of any domains in any order; MixStyle's across domains are halves of two.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.experimental import layout
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from jbias.algos import base, erm
from jbias.augment import feature_stats, options, sampling
from jbias.models import taps
from jbias.runtime import xla

_EPS = 1e-6
_LANES = 128  # Values of the innermost axis in a TPU's vector register.

Map = Float[Array, "b h w c"]
Places = Int[Array, "b n c"]


def make(
    net: nn.Module,
    *,
    p: float = 0.5,
    alpha: float = 0.1,
    stages: Sequence[int] = (1, 2),
    partners: str = "random",
    mix_group: int = 32,
) -> base.Algo:
    """ERM whose net mixes statistics between images after these stages.

    With chance p a stage's output goes on as (x - m) / s * s" + m", each image's channel
    means m and deviations s replaced by m" = a m + (1 - a) m' and s" = a s + (1 - a) s',
    where m' and s' are a partner's and a ~ Beta(alpha, alpha) for each image. Gradients
    see all statistics as constants. p and alpha may be traced; at p = 0 this is ERM to
    the bit (after stage 4 with a traced p, up to rounding).

    stages: of 1 to 4 those that the net has; the authors use (1, 2) and (1, 2, 3).
    partners: "random", any image of the group, or "cross_domain", one of another domain
      by batch["domain"]: the batches of several sources.
    """
    return _between_stages("mixstyle", net, mix, p, alpha, stages, partners, mix_group)


def mix(x: Map, acts: Bool[Array, ""], draw: Callable) -> taps.Rescaled:
    """Keeps a share of each image's own statistics and takes the rest by an order."""

    def change(mean, var):
        order, share = draw()
        share = share.reshape(-1, 1)
        own = jnp.concatenate([mean, jnp.sqrt(var + _EPS)], axis=1)
        mixed = share * own + (1 - share) * sampling.reorder(own, order)
        return feature_stats.affine_between(own, mixed)

    found = feature_stats.gated_affine(jax.lax.stop_gradient(x), acts, change)
    return taps.Rescaled(x, *found, acts)


def efdmix(
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
    return _between_stages("efdmix", net, _swap, p, alpha, stages, partners, mix_group)


def _swap(x: Map, acts: Bool[Array, ""], draw: Callable) -> Map:
    """Matches each image to the one of an order, a share of the way, where it acts."""
    return jax.lax.cond(acts, lambda x: match(x, *draw()), lambda x: x, x)


def match(
    x: Map, order: Int[Array, "groups group"], share: Float[Array, "b 1 1 1"]
) -> Map:
    """Keeps this share of each image's own values and takes the rest by `order`.

    x + (1 - share) (x' - x), the last x held constant; among equal values the earlier
    place has the lower rank.
    """
    flat = x.reshape(len(x), -1, x.shape[-1])
    values, places = _ranked(_channels_innermost(flat))
    matched = _placed(_of_partners(values, order), places)
    change = (1 - share[:, 0]) * (matched - jax.lax.stop_gradient(flat)).astype("f4")
    return x + change.astype(x.dtype).reshape(x.shape)


def _channels_innermost(x: Shaped[Array, "b n c"]) -> Shaped[Array, "b n c"]:
    """Lay x out on a TPU as it sorts; else the compiler changes layouts around each sort.

    Fewer channels than a TPU has lanes stay as they are: lanes would be empty.
    """
    if xla.platform() != "tpu" or x.shape[-1] < _LANES:
        return x
    return layout.with_layout_constraint(x, layout.Layout((0, 1, 2)))


@jax.custom_vjp
def _of_partners(
    values: Float[Array, "b n c"], order: Int[Array, "groups group"]
) -> Float[Array, "b n c"]:
    """Return for each image the values of its partner, the image that `order` names.

    Each image is the partner of one image, so that the gradient needs no sums.
    """
    return _channels_innermost(sampling.reorder(values, order))


def _of_takers(order, g):
    takers = jax.vmap(sampling.inverse)(order)
    return _channels_innermost(sampling.reorder(g, takers)), None


_of_partners.defvjp(
    lambda values, order: (_of_partners(values, order), order), _of_takers
)


# A TPU takes single values from anywhere in a map at one or two a cycle; it sorts many
# times faster. Elsewhere to sort is what takes the time.
@jax.custom_vjp
def _ranked(x: Float[Array, "b n c"]) -> tuple[Float[Array, "b n c"], Places]:
    """Each channel's values in their order, and where they were."""
    if xla.platform() == "tpu":
        values, places = jax.lax.sort((x, _numbers(x)), dimension=1, num_keys=1)
        return _channels_innermost(values), _channels_innermost(places)
    places = jnp.argsort(x, axis=1)
    return jnp.take_along_axis(x, places, axis=1), places


@jax.custom_vjp
def _placed(values: Shaped[Array, "b n c"], places: Places) -> Shaped[Array, "b n c"]:
    """Puts each channel's values at these different places."""
    if xla.platform() == "tpu":
        # Places differ: a stable sort would carry a third array for nothing.
        pair = (places, values)
        return jax.lax.sort(pair, dimension=1, num_keys=1, is_stable=False)[1]
    ranks = jax.vmap(jax.vmap(sampling.inverse, in_axes=1, out_axes=1))(places)
    return jnp.take_along_axis(values, ranks, axis=1)


def _taken(values: Float[Array, "b n c"], places: Places):
    """What is at these places, which is what `_placed` undoes."""
    if xla.platform() == "tpu":
        return _placed(values, _placed(_numbers(values), places))
    return jnp.take_along_axis(values, places, axis=1)


def _numbers(x: Shaped[Array, "b n c"]) -> Places:
    return jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)


def _ranked_forward(x):
    values, places = _ranked(x)
    return (values, places), places


_ranked.defvjp(_ranked_forward, lambda places, g: (_placed(g[0], places),))
_placed.defvjp(
    lambda values, places: (_placed(values, places), places),
    lambda places, g: (_taken(g, places), None),
)


def _between_stages(name, net, mix, p, alpha, stages, partners, mix_group) -> base.Algo:
    """ERM whose net applies mix(x, acts, draw) after these stages with chance p.

    There is one gate a stage for the whole batch, which `acts` is; draw() gives orders
    (groups, group) and shares (b, 1, 1, 1), as `make` tells. `name` is what errors say.
    """
    options.check_plain(name, "in [0, 1]", p=p)
    options.check_plain(name, "positive", alpha=alpha)
    if not stages or not set(stages) <= {1, 2, 3, 4}:
        raise ValueError(f"{name}: stages must be some of 1 to 4, got {tuple(stages)}")
    options.check_choice(name, "partners", partners, ("random", "cross_domain"))
    sites = tuple(f"stage{stage}" for stage in stages)
    taps.check_sites(name, "stages", net, sites)
    if options.is_statically(p, 0):
        return erm.make(net)._replace(mix_group=mix_group)

    def draw(domain, count, share, order):
        beta = functools.partial(jax.random.beta, a=alpha, b=alpha)
        share = sampling.draw_each(beta, share, count)
        if domain is None:
            order = sampling.orders(order, count, group=mix_group)
        else:
            order = sampling.orders_across(domain, order, group=mix_group)
        return order, share.reshape(-1, 1, 1, 1)

    def tap(domain, x: Map, site: str, key: PRNGKeyArray):
        if site not in sites:
            return x
        gate, *keys = jax.random.split(key, 3)
        acts = jax.random.bernoulli(gate, p)
        return mix(x, acts, functools.partial(draw, domain, len(x), *keys))

    if partners == "random":
        algo = erm.make(net.clone(tap=functools.partial(tap, None)))
        return algo._replace(mix_group=mix_group)

    def losses(params, stats, batch, key, static=None):
        if "domain" not in batch:
            raise ValueError(
                f"{name}: partners='cross_domain' needs batches with a 'domain', got "
                f"{', '.join(sorted(batch))}; name further sources in config.train.also"
            )
        tapped = net.clone(tap=functools.partial(tap, batch["domain"]))
        return erm.make(tapped).losses(params, stats, batch, key, static)

    return base.Algo(net, losses, mix_group=mix_group)
