"""MixStyle: mixes the feature statistics of images, as if there were more domains.

Source: Zhou, Yang, Qiao and Xiang, ICLR 2021, https://arxiv.org/abs/2104.02008.
Reference code: https://github.com/KaiyangZhou/mixstyle-release at 16f7cf1.
Deviations: partners are drawn inside groups of `mix_group` images, so that the meaning
does not depend on the number of devices; the reference draws them in the whole batch.
Batches may be of any domains in any order; the reference's across domains are halves of
two.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from jbias.algos import base, erm
from jbias.augment import feature_stats, options, sampling
from jbias.models import taps

_EPS = 1e-6


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
    return between_stages("mixstyle", net, mix, p, alpha, stages, partners, mix_group)


def mix(
    x: Float[Array, "b h w c"], acts: Bool[Array, ""], draw: Callable
) -> taps.Rescaled:
    """Keeps a share of each image's own statistics and takes the rest by an order."""

    def change(mean, var):
        order, share = draw()
        share = share.reshape(-1, 1)
        own = jnp.concatenate([mean, jnp.sqrt(var + _EPS)], axis=1)
        mixed = share * own + (1 - share) * sampling.reorder(own, order)
        return feature_stats.affine_between(own, mixed)

    found = feature_stats.gated_affine(jax.lax.stop_gradient(x), acts, change)
    return taps.Rescaled(x, *found, acts)


def between_stages(
    name: str,
    net: nn.Module,
    mix: Callable,
    p: float,
    alpha: float,
    stages: Sequence[int],
    partners: str,
    mix_group: int,
) -> base.Algo:
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
        share = sampling.draw_each(
            lambda k: jax.random.beta(k, alpha, alpha), share, count
        )
        if domain is None:
            order = sampling.orders(order, count, group=mix_group)
        else:
            order = sampling.orders_across(domain, order, group=mix_group)
        return order, share.reshape(-1, 1, 1, 1)

    def tap(domain, x: Float[Array, "b h w c"], site: str, key: PRNGKeyArray):
        if site not in sites:
            return x
        gate, *keys = jax.random.split(key, 3)
        acts = jax.random.bernoulli(gate, p)
        return mix(x, acts, functools.partial(draw, domain, len(x), *keys))

    if partners == "cross_domain":
        return _across(name, net, tap, mix_group)
    algo = erm.make(net.clone(tap=functools.partial(tap, None)))
    return algo._replace(mix_group=mix_group)


def _across(name: str, net: nn.Module, tap: Callable, mix_group: int) -> base.Algo:
    """ERM whose tap knows the domains of the batch."""

    def losses(params, stats, batch, key, static=None):
        if "domain" not in batch:
            raise ValueError(
                f"{name}: partners='cross_domain' needs batches with a 'domain', got "
                f"{', '.join(sorted(batch))}; name further sources in config.train.also"
            )
        tapped = net.clone(tap=functools.partial(tap, batch["domain"]))
        return erm.make(tapped).losses(params, stats, batch, key, static)

    return base.Algo(net, losses, mix_group=mix_group)
