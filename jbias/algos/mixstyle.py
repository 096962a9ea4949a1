"""MixStyle and EFDMix: mix the styles of images, to simulate new domains.

MixStyle mixes the statistics of features.
Source: Zhou, Yang, Qiao and Xiang, ICLR 2021, https://arxiv.org/abs/2104.02008.
Reference code: https://github.com/KaiyangZhou/mixstyle-release at 16f7cf1.

EFDMix mixes whole distributions of features, by their ranks.
Source: Zhang, Li, Li, Jia and Zhang, "Exact Feature Distribution Matching", CVPR 2022,
https://arxiv.org/abs/2203.07740.
Reference code: https://github.com/YBZh/EFDM at 80e26bd.

Deviations: Partners are drawn inside groups of `mix_group` images, so that results do not
depend on the number of devices; the references draw partners from the whole batch. A batch may
have any domains in any order; in MixStyle's cross-domain batches each half is one domain.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.experimental import layout
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from jbias import errors
from jbias.algos import base, erm
from jbias.augment import batch_permutations, feature_stats, options, random_numbers
from jbias.models import taps
from jbias.runtime import xla

_EPS = 1e-6
_LANES = 128  # Values of the innermost axis in a TPU's vector register.
# Largest slice that is gathered; the compiler copies larger ones.
_MAX_GATHERED_BYTES = 2**19

Map = Float[Array, "b h w c"]
Places = Int[Array, "b n c"]  # Positions of values in a channel.
Draw = Callable[[], tuple[Int[Array, "groups group"], Float[Array, "b 1 1 1"]]]


def make(
    net: nn.Module,
    *,
    p: float = 0.5,
    alpha: float = 0.1,
    stages: Sequence[int] = (1, 2),
    partners: str = "random",
    mix_group: int = 32,
) -> base.Algo:
    """Return ERM whose net mixes feature statistics between images after some stages.

    With probability p, for the whole batch at each stage, a stage's output x becomes
    (x - m) / s * s" + m". Each image's channel means m and standard deviations s are replaced
    by m" = a m + (1 - a) m' and s" = a s + (1 - a) s'. Here m' and s' are the statistics of another
    image, the partner, and a ~ Beta(alpha, alpha) is drawn for each image. Statistics are
    constants for gradients. p and alpha may be traced. With p = 0 this equals ERM bit for bit
    (after stage 4 with a traced p, up to rounding).

    stages: some of 1 to 4; the authors use (1, 2) and (1, 2, 3).
    partners: "random", any image of the group, or "cross_domain", an image of another
      domain by batch["domain"], for batches of several sources.
    mix_group: number of neighbouring images that form a group.

    ValueError for a value out of range and for stages that the net lacks.
    """
    return _between_stages(
        "mixstyle",
        net,
        mix=mix,
        p=p,
        alpha=alpha,
        stages=stages,
        partners=partners,
        mix_group=mix_group,
    )


def mix(x: Map, acts: Bool[Array, ""], draw: Draw) -> taps.Rescaled:
    """Return x, with statistics mixed between images if `acts`, else unchanged.

    draw: () -> (order, share): the index (groups group) of each image's partner within its
      group, and the weight (b 1 1 1) of the image's own statistics.
    """

    def change(mean, var):
        """Return (scale, shift), each (b c), that give each image the mixed statistics."""
        order, share = draw()
        share = share.reshape(-1, 1)
        old = jnp.concatenate([mean, jnp.sqrt(var + _EPS)], axis=1)
        mixed = share * old + (1 - share) * batch_permutations.reorder(old, order)
        return feature_stats.affine_between(old, mixed)

    affine = feature_stats.gated_affine(jax.lax.stop_gradient(x), acts, change)
    return taps.Rescaled(
        x,
        scale=affine.scale,
        shift=affine.shift,
        mean=affine.mean,
        var=affine.var,
        acts=acts,
    )


def efdmix(
    net: nn.Module,
    *,
    p: float = 0.5,
    alpha: float = 0.1,
    stages: Sequence[int] = (1, 2),
    partners: str = "random",
    mix_group: int = 32,
) -> base.Algo:
    """Return ERM whose net mixes each channel's sorted values between images.

    With probability p the output of a stage becomes a x + (1 - a) x'. Here x' has the values
    of the same channel of another image, its partner, reordered to the ranks of x, and
    a ~ Beta(alpha, alpha) is drawn for each image. The gradient of x is that of the identity;
    as in the released code, gradients also reach the partner's values. Options, errors and
    the case p = 0 are as in `make`; the authors use stages (1, 2, 3) for PACS.
    """
    return _between_stages(
        "efdmix",
        net,
        mix=_match_if,
        p=p,
        alpha=alpha,
        stages=stages,
        partners=partners,
        mix_group=mix_group,
    )


def _match_if(x: Map, acts: Bool[Array, ""], draw: Draw) -> Map:
    """Return the result of `match`, with partners and shares from draw(), if `acts`, else x.

    draw: see `mix`.
    """
    if xla.platform() == "tpu":
        return _gated_match(x, acts, *draw())
    return jax.lax.cond(acts, lambda x: match(x, *draw()), lambda x: x, x)


def match(
    x: Map, order: Int[Array, "groups group"], share: Float[Array, "b 1 1 1"]
) -> Map:
    """Return x with its channels' sorted values mixed with the values of partners.

    The result is x + (1 - share) (x' - x), without a gradient through the last x; x' has the
    partner's values, in the order of the ranks of x. Among equal values the earlier position
    has the lower rank.

    order: index of each image's partner within its group. share: weight of the image's own
      values.
    """
    if xla.platform() == "tpu":
        return _gated_match(x, None, order, share)
    flat = _flat(x)
    values, places = _ranked(flat)
    matched = _placed(batch_permutations.reorder(values, order), places)
    change = (1 - share[:, 0]) * (matched - jax.lax.stop_gradient(flat)).astype("f4")
    return x + change.astype(x.dtype).reshape(x.shape)


@jax.custom_vjp
def _ranked(x: Float[Array, "b n c"]) -> tuple[Float[Array, "b n c"], Places]:
    """Return each channel's values in sorted order, and their positions before sorting."""
    places = jnp.argsort(x, axis=1)
    return jnp.take_along_axis(x, places, axis=1), places


@jax.custom_vjp
def _placed(values: Shaped[Array, "b n c"], places: Places) -> Shaped[Array, "b n c"]:
    """Return `values` with value i of each channel moved to position places[i]."""
    ranks = jax.vmap(jax.vmap(batch_permutations.inverse, in_axes=1, out_axes=1))(
        places
    )
    return jnp.take_along_axis(values, ranks, axis=1)


def _ranked_forward(x):
    """Return the result of `_ranked`, and the positions as residuals of the gradient."""
    values, places = _ranked(x)
    return (values, places), places


_ranked.defvjp(_ranked_forward, lambda places, g: (_placed(g[0], places),))
_placed.defvjp(
    lambda values, places: (_placed(values, places), places),
    lambda places, g: (jnp.take_along_axis(g, places, axis=1), None),
)


# A TPU gathers single values of a map at one or two per cycle, and sorts many times faster.
# On other devices sorting takes most of the time.
@jax.custom_vjp
def _gated_match(
    x: Map,
    acts: Bool[Array, ""] | None,
    order: Int[Array, "groups group"],
    share: Float[Array, "b 1 1 1"],
) -> Map:
    """Return the result of `match` if `acts`, else x; computed only by sorting, for a TPU.

    Values are mixed in sorted order, so that x is read once. The gradient sorts x again:
    ranks stored from inside a condition would have to be written by both branches.

    acts: None: always match. order, share: see `match`.
    """

    def matched(x):
        """Return x mixed with its partners."""
        values, places = _sort_channels(x)
        partner_values = _images_of(values, order)
        change = (1 - share[:, 0]) * (partner_values - values).astype("f4")
        return _sort_back(values + change.astype(x.dtype), places).reshape(x.shape)

    return matched(x) if acts is None else jax.lax.cond(acts, matched, lambda x: x, x)


def _gated_match_gradient(residuals, dy):
    """Return (gradient of x, None, None, None), given the gradient dy of the result.

    The gradient is dy, plus the gradient that each image receives as the partner of another
    image. The other arguments of `_gated_match` have no gradient (None). residuals: (x, acts,
    order, share).
    """
    x, acts, order, share = residuals

    def matched(x, dy):
        """Return the gradient of x if the images are mixed."""
        d_partner = ((1 - share) * dy.astype("f4")).astype(x.dtype)
        _, places, d_partner = _sort_channels(x, d_partner)
        inverse = jax.vmap(batch_permutations.inverse)(order)
        d_sorted = _images_of(d_partner, inverse)
        return dy + _sort_back(d_sorted, places).reshape(x.shape)

    if acts is None:
        dx = matched(x, dy)
    else:
        dx = jax.lax.cond(acts, matched, lambda x, dy: dy, x, dy)
    return dx, None, None, None


_gated_match.defvjp(
    lambda x, acts, order, share: (
        _gated_match(x, acts, order, share),
        (x, acts, order, share),
    ),
    _gated_match_gradient,
)


def _sort_channels(x: Map, *maps: Map) -> Sequence[Shaped[Array, "b n c"]]:
    """Return [sorted values of each channel of x, their positions in x, *maps], all (b n c).

    The values of `maps` are put into the order of the sorted values of x.
    """
    flat, *flat_maps = (_channels_innermost(_flat(a)) for a in (x, *maps))
    places = jax.lax.broadcasted_iota(jnp.int32, flat.shape, 1)
    ranked = jax.lax.sort((flat, places, *flat_maps), dimension=1, num_keys=1)
    return [_channels_innermost(a) for a in ranked]


def _sort_back(
    values: Shaped[Array, "b n c"], places: Places
) -> Shaped[Array, "b n c"]:
    """Return `values` with value i of each channel moved to position places[i]."""
    # No two places are equal, so that a stable sort would only carry a third array.
    pair = (places, values)
    return jax.lax.sort(pair, dimension=1, num_keys=1, is_stable=False)[1]


def _images_of(
    values: Shaped[Array, "b n c"], order: Int[Array, "groups group"]
) -> Shaped[Array, "b n c"]:
    """Return the images, reordered within their groups.

    Image i of group g of the result is image order[g, i] of group g in `values`. Images are
    gathered in slices of limited size.
    """
    b, n, c = values.shape
    slices = next(
        k
        for k in range(1, n + 1)
        if k == n
        or (n % k == 0 and n // k * c * values.dtype.itemsize <= _MAX_GATHERED_BYTES)
    )
    rows = order[..., None] * slices + jnp.arange(slices)[None, None]
    sliced = values.reshape(b * slices, n // slices, c)
    reordered = batch_permutations.reorder(sliced, rows.reshape(len(order), -1))
    return _channels_innermost(reordered.reshape(b, n, c))


def _flat(x: Map) -> Float[Array, "b n c"]:
    """Return maps with all n pixels on one axis."""
    return x.reshape(len(x), -1, x.shape[-1])


def _channels_innermost(x: Shaped[Array, "b n c"]) -> Shaped[Array, "b n c"]:
    """Return x in the memory layout in which a TPU sorts.

    Without this the compiler changes the layout before and after each sort. With fewer
    channels than lanes, x is returned unchanged, because lanes would be empty.
    """
    if x.shape[-1] < _LANES:
        return x
    return layout.with_layout_constraint(x, layout.Layout((0, 1, 2)))


def _between_stages(
    name: str,
    net: nn.Module,
    *,
    mix: Callable[[Map, Bool[Array, ""], Draw], Any],
    p: float,
    alpha: float,
    stages: Sequence[int],
    partners: str,
    mix_group: int,
) -> base.Algo:
    """Return ERM whose net applies mix(x, acts, draw) after some stages.

    name: start of error messages. mix: acts is True with probability p, for the whole batch;
    draw: see the function `mix`. Other arguments: see `make`.
    """
    errors.check_condition(name, "in [0, 1]", p=p)
    errors.check_condition(name, "positive", alpha=alpha)
    if not stages or not set(stages) <= {1, 2, 3, 4}:
        raise ValueError(f"{name}: stages must be some of 1 to 4, got {tuple(stages)}")
    errors.check_choice(
        name, partners, ("random", "cross_domain"), "change partners", name="partners"
    )
    sites = tuple(f"stage{stage}" for stage in stages)
    taps.check_sites(name, "stages", net, sites)
    if options.is_statically(p, 0):
        return erm.make(net)._replace(mix_group=mix_group)

    def tap(domain, x: Map, site: str, key: PRNGKeyArray):
        """Return x mixed between images, or x unchanged at a site that is not in `sites`.

        domain: (b), the domain of each image, which gets a partner of another domain; None: any
        partner. key: random key of the site.
        """
        if site not in sites:
            return x
        k_gate, k_share, k_order = jax.random.split(key, 3)
        acts = jax.random.bernoulli(k_gate, p)

        def draw():
            """Return (partners (groups group), shares (b 1 1 1) from Beta(alpha, alpha))."""
            beta = functools.partial(jax.random.beta, a=alpha, b=alpha)
            share = random_numbers.draw_each(beta, k_share, len(x))
            if domain is None:
                order = batch_permutations.orders(k_order, len(x), group=mix_group)
            else:
                order = batch_permutations.orders_across(
                    domain, k_order, group=mix_group
                )
            return order, share.reshape(-1, 1, 1, 1)

        return mix(x, acts, draw)

    if partners == "random":
        algo = erm.make(net.clone(tap=functools.partial(tap, None)))
        return algo._replace(mix_group=mix_group)

    def losses(params, stats, batch, key, static=None):
        """Return ERM's losses and `base.Aux`; ValueError for a batch without "domain"."""
        if "domain" not in batch:
            raise ValueError(
                f"{name}: partners='cross_domain' needs batches with a 'domain', got "
                f"{', '.join(sorted(batch))}; name further sources in config.train.also"
            )
        tapped = net.clone(tap=functools.partial(tap, batch["domain"]))
        return erm.make(tapped).losses(params, stats, batch, key, static)

    return base.Algo(net, losses, mix_group=mix_group)


ALGOS = {"efdmix": efdmix, "mixstyle": make}
