"""What passes a network's sites, as rows of a bounded number of columns on the host."""

import functools
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, UInt8

from jbias.evals import probe
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
    """The features of all images at each site, in the order of the sites, float32.

    Maps are averaged over at most pool by pool parts, tokens over all; the rest is one
    row. Where that has more than `columns` entries, it is mapped to so many, each the
    sum of as many entries with random signs as any other, at random but the same for all
    images (seed): distances stay what they are in expectation. sites: None is all.
    ValueError, which begins with `where`, for unknown sites, and for features that are
    NaN or infinite.
    """
    known = taps.sites(net, images.shape[1])
    wanted = known if sites is None else tuple(sites)
    for site in wanted:
        must = f"sites must be of {', '.join(known)}"
        probe.check(site in known, where, must, site)
    found = {site: [] for site in wanted}
    program = _program(net, wanted, pool, columns, seed)
    for first in range(0, len(images), batch):
        piece = images[first : first + batch]
        padded = np.resize(piece, (batch, *images.shape[1:]))
        for site, rows in jax.device_get(program(variables, padded)).items():
            broken = ~np.isfinite(rows[: len(piece)]).all(1)
            if broken.any():
                raise probe.NotFiniteError(
                    f"{where}: features at {site} must be finite, got NaN or infinite ones "
                    f"for {broken.sum()} of {len(piece)} images, first number "
                    f"{first + np.flatnonzero(broken)[0]} of those shown"
                )
            found[site].append(rows[: len(piece)])
    return {site: np.concatenate(pieces) for site, pieces in found.items()}


@functools.lru_cache(maxsize=4)
def _program(net, sites, pool, columns, seed):
    def rows(variables, images):
        _, seen = taps.read(net, variables, images.astype(jnp.float32) / 255)
        pooled = {site: _pooled(seen[site], pool) for site in sites}
        return {site: _projected(x, columns, seed, site) for site, x in pooled.items()}

    return jax.jit(rows)


def _pooled(x: Array, pool: int) -> Float[Array, "b d"]:
    x = x.astype(jnp.float32)
    if x.ndim == 3:
        x = x.mean(1)
    for axis in (1, 2) if x.ndim == 4 else ():
        parts = jnp.array_split(x, min(pool, x.shape[axis]), axis)
        x = jnp.stack([part.mean(axis) for part in parts], axis)
    return x.reshape(len(x), -1)


def _projected(
    x: Float[Array, "b d"], columns: int, seed: int, site: str
) -> Float[Array, "b c"]:
    d = x.shape[1]
    if d <= columns:
        return x
    rng = np.random.default_rng([seed, zlib.crc32(site.encode())])
    each = -(-d // columns)
    order = rng.permutation(columns * each)
    signs = rng.choice(np.array([-1, 1], np.float32), columns * each)
    x = jnp.pad(x, ((0, 0), (0, columns * each - d))) * signs[None]
    return x[:, order].reshape(len(x), columns, each).sum(2)
