"""Effective receptive fields: which pixels the middle of a layer depends on, and how far.

Source: Luo, Li, Urtasun and Zemel, NeurIPS 2016, https://arxiv.org/abs/1701.04128.
Deviation: all channels of a unit count, where the authors take one: the gradient of a sum
with random signs, squared, is on average the sum of the squared gradients of each.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Num

from jbias.evals import decisions, probe
from jbias.models import taps


def area(field: Float[np.ndarray, "h w"], share: float) -> int:
    """How many pixels, the strongest, hold a share of the field."""
    return _reach(np.sort(field, axis=None)[::-1], share) + 1


def radius(field: Float[np.ndarray, "h w"], share: float) -> float:
    """Distance from the centre of mass within which a share of the field lies."""
    places = np.indices(field.shape)
    centre = (places * field).sum((1, 2)) / field.sum()
    distance = np.sqrt(np.square(places - centre[:, None, None]).sum(0)).ravel()
    order = np.argsort(distance, kind="stable")
    return float(distance[order][_reach(field.ravel()[order], share)])


def _reach(weights: Float[np.ndarray, "n"], share: float) -> int:
    """Where a share of them is reached, one after the other."""
    held = np.cumsum(weights)
    return int(np.searchsorted(held, share * held[-1]))


SHARES = (0.5, 0.95)


def fields(
    net: nn.Module,
    variables: Mapping[str, Any],
    images: Num[np.ndarray, "n h w 3"],
    *,
    sites: Sequence[str] | None = None,
    seed: int = 0,
    batch: int = 32,
) -> dict[str, Float[np.ndarray, "h w"]]:
    """By site, the squared gradient of its middle unit by each pixel; sums to 1.

    images: uint8, or in [0, 1]; the square is summed over channels of unit and pixel, and averaged
      over images, whose signs are drawn by their number. Of an even number of units the
      middle is the first after the half.
    sites: some of models.taps.sites; None is all that have rows and columns.

    ValueError for a site that is unknown or has no rows and columns, and where nothing
    that passes a site depends on the image. One program for all sites of a network.
    """
    known = taps.sites(net, images.shape[1])
    one = jax.ShapeDtypeStruct((1, *images.shape[1:]), jnp.float32)
    shapes = jax.eval_shape(lambda x: taps.read(net, variables, x)[1], one)
    spatial = [site for site in known if shapes[site].ndim == 4]
    for site in sites or ():
        must = f"sites must be some of {', '.join(spatial)}"
        probe.check(site in spatial, "receptive_field", must, site)
    wanted = list(sites or spatial)
    counts = len(wanted), len(images)
    must = f"{type(net).__name__} must have sites with rows and columns, and there must"
    probe.check(all(counts), "receptive_field", f"{must} be images", counts)
    found = {site: np.zeros(images.shape[1:3]) for site in wanted}
    batch = min(batch, len(images))
    for first in range(0, len(images), batch):
        rows = np.arange(first, first + batch)
        some = jnp.asarray(images[np.minimum(rows, len(images) - 1)])
        # What fills up the last batch counts for nothing.
        number = jnp.asarray(np.where(rows < len(images), rows, -1))
        for site in wanted:
            of = some, number, jnp.int32(spatial.index(site)), seed
            squares = _field(net, tuple(spatial), variables, *of)
            found[site] += np.asarray(squares, np.float64)
    for site, field in found.items():
        total, must = field.sum(), f"gradients of {site} by the image must be finite"
        if not np.isfinite(total):
            raise probe.NotFiniteError(f"receptive_field: {must}, got the sum {total}")
        must = f"what passes {site} must depend on the image"
        probe.check(total > 0, "receptive_field", f"{must}; its gradient", total)
    return {site: field / field.sum() for site, field in found.items()}


def measure(
    net: nn.Module,
    variables: Mapping[str, Any],
    images: Num[np.ndarray, "n h w 3"],
    columns: Mapping[str, np.ndarray] | None = None,
    *,
    sites: Sequence[str] | None = None,
    shares: Sequence[float] = SHARES,
    seed: int = 0,
    batch: int = 32,
) -> decisions.Numbers:
    """Sizes of the fields, in pixels, by site and share: the condition "stage1 50%".

    receptive_area: of the fewest pixels that hold the share; receptive_radius: of the
    smallest disc about the field's centre of mass that does. Options as of `fields`;
    nothing is asked of `columns`, what is known of the images.
    """
    del columns
    inside = shares and all(0 < share < 1 for share in shares)
    probe.check(inside, "receptive_field", "shares must be between 0 and 1", shares)
    n = len(images)
    found = fields(net, variables, images, sites=sites, seed=seed, batch=batch)
    return [
        decisions.quantity(metric, of(field, share), n, f"{site} {100 * share:g}%")
        for site, field in found.items()
        for share in shares
        for metric, of in (("receptive_area", area), ("receptive_radius", radius))
    ]


@functools.partial(jax.jit, static_argnames=("net", "spatial"))
def _field(net, spatial, variables, images, number, which, seed) -> Float[Array, "h w"]:
    """Sum over images, but those numbered -1, of squared gradients of a middle unit."""

    if images.dtype == jnp.uint8:
        images = images.astype(jnp.float32) / 255

    def passing(x):
        _, seen = taps.read(net, variables, x)
        return [seen[site] for site in spatial]

    seen, pull = jax.vjp(passing, images)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), number)
    counts = (number >= 0).reshape(-1, 1)
    signs = []
    for i, x in enumerate(seen):
        drawn = jax.vmap(lambda k, c=x.shape[3]: jax.random.rademacher(k, (c,)))(keys)
        unit = jnp.where((which == i) & counts, drawn, 0).astype(x.dtype)
        middle = jnp.zeros_like(x).at[:, x.shape[1] // 2, x.shape[2] // 2]
        signs.append(middle.set(unit))
    (gradient,) = pull(signs)
    return jnp.square(gradient).sum((0, 3))
