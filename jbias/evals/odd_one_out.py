"""Odd one out by features: whether an image is told from two that have its parts alone.

Source: Wen, Li, Jing and Lee 2023 (DiST), https://arxiv.org/abs/2310.07555. Reference code:
https://github.com/starsky77/DiST at d055ab0. There the two others are made by texture
synthesis. Deviations: here they are the image with its sixteen tiles swapped
(`configural.swaps`), so the numbers are not to be compared; features of a map are its mean
over places, also of networks that flatten it; of equals none comes first (`scores`). Borders
between swapped tiles are seen by small receptive fields, too, which know no whole.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jaxtyping import Float, Int, UInt8

from jbias.evals import accuracy, configural, decisions, features

_EQUAL = 1e-9  # Distances that differ by less, as by rounding, are equal.
_COLUMNS = 4096  # Of wider features so many sums.


def measure(
    net: nn.Module,
    variables: Mapping[str, Any],
    images: UInt8[np.ndarray, "n h w 3"],
    columns: Mapping[str, Int[np.ndarray, "n"]],
    *,
    sites: Sequence[str] | None = None,
    batch: int = 32,
    seed: int = 0,
) -> decisions.Numbers:
    """odd_one_out at each site, the mean of `scores` over images, of features there.

    With odd_one_out_lower and odd_one_out_upper, 95 % intervals of a bootstrap over images.
    Without a condition it is that of the last site. Chance is 1/3, which is also what
    features have that do not depend on the order of tiles. images: an array, or what is
    indexed as one. batch: so many are looked at at once, three times. seed: of the
    bootstrap, and of the tiles' places, which also follow from the image's number,
    columns["index"]. ValueError for unknown sites.
    """
    arrange = jax.vmap(configural.rearrange)
    read = dict(sites=sites, pool=1, columns=_COLUMNS, batch=3 * batch)
    read |= {"where": "odd_one_out"}
    found: dict[str, list] = {}
    for first in range(0, len(images), batch):
        rows = np.arange(first, min(first + batch, len(images)))
        triples = np.stack([_orders(seed, i) for i in columns["index"][rows]])
        shown = [arrange(images[rows], triples[:, i]) for i in range(3)]
        seen = features.read(net, variables, np.concatenate(shown), **read)
        for site, x in seen.items():
            found.setdefault(site, []).append(scores(x.reshape(3, len(rows), -1)))
    told = []
    for site, parts in found.items():
        each = np.concatenate(parts)
        told.append(decisions.quantity("odd_one_out", each.mean(), len(each), site))
        sixths = np.rint(6 * each).astype(int)  # Scores are 1, 1/2, 1/3 and 0.
        told += accuracy.mean_ends("odd_one_out", sixths, 6, site, seed=seed)
    return [*told, *(one._replace(condition="") for one in told[-3:])]


def _orders(seed: int, index: int) -> Int[np.ndarray, "3 16"]:
    places = np.random.default_rng([seed, int(index)]).permutation(configural.GRID**2)
    return np.stack([configural.swaps(places, which) for which in range(3)])


def scores(x: Float[np.ndarray, "3 n d"]) -> Float[np.ndarray, "n"]:
    """1 where the first of three is the odd one out, by distances 1 - Pearson's r.

    It is if the two others are closest to each other, so that its mean distance to them is
    the largest. Of m closest pairs that are equal each counts 1/m. 0 where a vector
    is constant: it has no correlation.
    """
    x = np.asarray(x, float)
    x = x - x.mean(-1, keepdims=True)
    length = np.sqrt((x**2).sum(-1, keepdims=True))
    x = np.divide(x, length, out=np.full_like(x, np.nan), where=length > 0)
    pairs = ((1, 2), (0, 1), (0, 2))
    away = np.stack([1 - (x[i] * x[j]).sum(-1) for i, j in pairs])
    closest = away <= away.min(0) + _EQUAL
    return np.where(closest[0], 1 / np.maximum(closest.sum(0), 1), 0.0)
