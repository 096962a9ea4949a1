"""Reader of activations at a network's sites, as features with a bounded number of columns."""

import functools
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, UInt8

from jbias import errors
from jbias.models import taps


def read(
    net: nn.Module,
    variables: Mapping[str, Any],
    images: UInt8[np.ndarray, "n h w 3"],
    *,
    sites: Sequence[str] | None = None,
    pool: int = 2,
    columns: int = 1024,
    batch: int = 128,
    seed: int = 0,
    where: str = "decoding",
) -> dict[str, Float[np.ndarray, "n d"]]:
    """Return the float32 features of all images by site, in the order of `sites`.

    net, variables: the module and its weights. sites: names from models.taps.sites; None: all.
    batch: images per batch. where: start of error messages. ValueError for unknown sites;
    errors.NotFiniteError, a ValueError, for features that are NaN or infinite.

    Activation maps are averaged over at most pool by pool regions, tokens over all positions,
    and flattened. More than `columns` entries are projected to `columns` sums of equally many
    entries with random signs (by `seed` and site, the same for all images), which preserves
    distances in expectation.
    """
    known = taps.sites(net, images.shape[1])
    wanted = known if sites is None else tuple(sites)
    for site in wanted:
        must = f"be of {', '.join(known)}"
        errors.check(site in known, where, must, site, name="sites")
    by_site = {site: [] for site in wanted}
    program = _program(net, wanted, pool, columns, seed)
    for first in range(0, len(images), batch):
        chunk = images[first : first + batch]
        padded = np.resize(chunk, (batch, *images.shape[1:]))
        for site, rows in jax.device_get(program(variables, padded)).items():
            is_broken = ~np.isfinite(rows[: len(chunk)]).all(1)
            if is_broken.any():
                raise errors.NotFiniteError(
                    f"{where}: features at {site} must be finite, got NaN or infinite ones "
                    f"for {is_broken.sum()} of {len(chunk)} images, first number "
                    f"{first + np.flatnonzero(is_broken)[0]} of those shown"
                )
            by_site[site].append(rows[: len(chunk)])
    return {site: np.concatenate(chunks) for site, chunks in by_site.items()}


@functools.lru_cache(maxsize=4)
def _program(
    net: nn.Module, sites: tuple[str, ...], pool: int, columns: int, seed: int
) -> Callable[..., dict[str, Float[Array, "b d"]]]:
    """Return a compiled function (variables, images as bytes) -> features by site.

    Arguments: see `read`.
    """

    def read_features(
        variables: Mapping[str, Any], images: UInt8[Array, "b h w 3"]
    ) -> dict[str, Float[Array, "b d"]]:
        """Return the features of a batch by site."""
        _, activations = taps.read(net, variables, images.astype(jnp.float32) / 255)
        return {
            site: _project(_pool(activations[site], pool), columns, seed, site)
            for site in sites
        }

    return jax.jit(read_features)


def _pool(x: Array, pool: int) -> Float[Array, "b d"]:
    """Return activations averaged over regions or tokens, one row per image.

    x: maps (b, i, j, c), tokens (b, n, c) or vectors (b, d). pool: regions per side.
    """
    x = x.astype(jnp.float32)
    if x.ndim == 3:
        x = x.mean(1)
    for axis in (1, 2) if x.ndim == 4 else ():
        regions = jnp.array_split(x, min(pool, x.shape[axis]), axis)
        x = jnp.stack([region.mean(axis) for region in regions], axis)
    return x.reshape(len(x), -1)


def _project(
    x: Float[Array, "b d"], columns: int, seed: int, site: str
) -> Float[Array, "b c"]:
    """Return `columns` sums of the features with random signs.

    Features with at most `columns` columns are returned unchanged. seed, site: determine the signs.
    """
    d = x.shape[1]
    if d <= columns:
        return x
    rng = np.random.default_rng([seed, zlib.crc32(site.encode())])
    entries_per_column = -(-d // columns)
    padded_width = columns * entries_per_column
    order = rng.permutation(padded_width)
    signs = rng.choice(np.array([-1, 1], np.float32), padded_width)
    x = jnp.pad(x, ((0, 0), (0, padded_width - d))) * signs[None]
    return x[:, order].reshape(len(x), columns, entries_per_column).sum(2)
