"""Effective receptive fields: the pixels that the middle unit of a layer depends on.

Source: Luo, Li, Urtasun and Zemel, NeurIPS 2016, https://arxiv.org/abs/1701.04128.
Deviation: all channels of a unit are used, while the authors use one channel. One gradient is
enough, because the squared gradient of a sum with random signs is on average the sum of the
squared gradients.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int, Num, Shaped

from jbias import errors
from jbias.measures import decisions
from jbias.models import taps


def area(field: Float[np.ndarray, "h w"], share: float) -> int:
    """Return the smallest number of pixels that contain a share of the field's sum.

    field: at least 0 everywhere. share: between 0 and 1.
    """
    return _index_of_share(np.sort(field, axis=None)[::-1], share) + 1


def radius(field: Float[np.ndarray, "h w"], share: float) -> float:
    """Return the radius, in pixels, of the disc with a share of the field's sum.

    The disc is centred on the field's centre of mass. field, share: see `area`.
    """
    places = np.indices(field.shape)
    centre = (places * field).sum((1, 2)) / field.sum()
    distance = np.sqrt(np.square(places - centre[:, None, None]).sum(0)).ravel()
    order = np.argsort(distance, kind="stable")
    return float(distance[order][_index_of_share(field.ravel()[order], share)])


def _index_of_share(weights: Float[np.ndarray, "n"], share: float) -> int:
    """Return the first index at which the cumulative sum reaches a share of the total."""
    cumulative = np.cumsum(weights)
    return int(np.searchsorted(cumulative, share * cumulative[-1]))


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
    """Return, by site, the effective receptive field of the site's middle unit, with the sum 1.

    variables: the module's weights. images: uint8, or floats in [0, 1]. sites: some of
    models.taps.sites; None: all that have rows and columns. seed: seed of the random
    signs. batch: images per batch.

    The field at a pixel is the squared gradient of the unit with respect to the pixel, summed
    over channels of the unit and of the pixel, and averaged over images, whose random signs
    depend on their number. For an even number of units the middle unit is the first one of the
    second half. ValueError for a site that is unknown or has no rows and columns, without images,
    and if no activation at a site depends on the image; errors.NotFiniteError if a gradient is not
    finite. All sites of a network share one compiled program.
    """
    known = taps.sites(net, images.shape[1])
    example = jax.ShapeDtypeStruct((1, *images.shape[1:]), jnp.float32)
    shapes = jax.eval_shape(lambda x: taps.read(net, variables, x)[1], example)
    spatial = [site for site in known if shapes[site].ndim == 4]
    for site in sites or ():
        must = f"be some of {', '.join(spatial)}"
        errors.check(site in spatial, "receptive_field", must, site, name="sites")
    wanted = list(sites or spatial)
    counts = len(wanted), len(images)
    must = "have sites with rows and columns, and there must be images"
    errors.check(all(counts), "receptive_field", must, counts, name=type(net).__name__)
    fields_by_site = {site: np.zeros(images.shape[1:3]) for site in wanted}
    batch = min(batch, len(images))
    for first in range(0, len(images), batch):
        rows = np.arange(first, first + batch)
        chunk = jnp.asarray(images[np.minimum(rows, len(images) - 1)])
        # -1: padding of the last batch, which does not count.
        number = jnp.asarray(np.where(rows < len(images), rows, -1))
        for site in wanted:
            site_index = jnp.int32(spatial.index(site))
            squares = _field(
                net, tuple(spatial), variables, chunk, number, site_index, seed
            )
            fields_by_site[site] += np.asarray(squares, np.float64)
    for site, field in fields_by_site.items():
        total = field.sum()
        if not np.isfinite(total):
            must = f"gradients of {site} by the image must be finite"
            raise errors.NotFiniteError(f"receptive_field: {must}, got the sum {total}")
        errors.check(
            total > 0,
            "receptive_field",
            "depend on the image",
            errors.Words(f"the gradient {total}"),
            name=f"what passes {site}",
        )
    return {site: field / field.sum() for site, field in fields_by_site.items()}


def measure(
    net: nn.Module,
    variables: Mapping[str, Any],
    images: Num[np.ndarray, "n h w 3"],
    columns: Mapping[str, Shaped[np.ndarray, "n"]] | None = None,
    *,
    sites: Sequence[str] | None = None,
    shares: Sequence[float] = SHARES,
    seed: int = 0,
    batch: int = 32,
) -> decisions.Numbers:
    """Return the sizes of receptive fields, with conditions such as "stage1 50%".

    receptive_area: the smallest number of pixels that contain the share; receptive_radius:
    the radius, in pixels, of the disc about the field's centre of mass that contains the share.

    shares: shares of the field's sum, between 0 and 1; ValueError otherwise. columns: ignored.
    Other arguments and errors: see `fields`.
    """
    del columns
    are_shares = shares and all(0 < share < 1 for share in shares)
    errors.check(
        are_shares, "receptive_field", "be between 0 and 1", shares, name="shares"
    )
    n = len(images)
    fields_by_site = fields(net, variables, images, sites=sites, seed=seed, batch=batch)
    return [
        decisions.quantity(metric, size(field, share), n, f"{site} {100 * share:g}%")
        for site, field in fields_by_site.items()
        for share in shares
        for metric, size in (("receptive_area", area), ("receptive_radius", radius))
    ]


@functools.partial(jax.jit, static_argnames=("net", "spatial"))
def _field(
    net: nn.Module,
    spatial: tuple[str, ...],
    variables: Mapping[str, Any],
    images: Num[Array, "b h w 3"],
    number: Int[Array, "b"],
    site_index: Int[Array, ""],
    seed: int,
) -> Float[Array, "h w"]:
    """Return the squared gradient of a site's middle unit, summed over images and image channels.

    The unit is the sum of its channels with random signs, which depend on `seed` and `number`.

    spatial: names of sites with rows and columns. site_index: position of the site in
    `spatial`. number: the number of each image in the set; -1: the image is ignored. Other
    arguments: see `fields`.
    """
    if images.dtype == jnp.uint8:
        images = images.astype(jnp.float32) / 255

    def read_sites(x: Float[Array, "b h w 3"]) -> list[Float[Array, "b i j c"]]:
        """Return the activations at each site of `spatial`."""
        _, activations = taps.read(net, variables, x)
        return [activations[site] for site in spatial]

    activations, pull = jax.vjp(read_sites, images)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), number)
    is_counted = (number >= 0).reshape(-1, 1)
    signs = []
    for i, x in enumerate(activations):
        drawn = jax.vmap(lambda k, c=x.shape[3]: jax.random.rademacher(k, (c,)))(keys)
        unit = jnp.where((site_index == i) & is_counted, drawn, 0).astype(x.dtype)
        middle = jnp.zeros_like(x).at[:, x.shape[1] // 2, x.shape[2] // 2]
        signs.append(middle.set(unit))
    (gradient,) = pull(signs)
    return jnp.square(gradient).sum((0, 3))
