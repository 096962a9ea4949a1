"""Odd one out: how often an image's features differ most from the features of two shuffles.

Source: Wen, Li, Jing and Lee 2023 (DiST), https://arxiv.org/abs/2310.07555. Reference code:
https://github.com/starsky77/DiST at d055ab0. In that code the two other images are made by
texture synthesis. Deviations: here the two other images are the image with its sixteen tiles
swapped (`tile_order.swaps`), so results must not be compared with published ones; features of a
map are its mean over positions, also for networks that flatten it; ties are shared (`scores`).
Limitation: a network that only represents local features can also detect the borders between
swapped tiles.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jaxtyping import Float, Int, UInt8

from jbias.evals.activations import features
from jbias.measures import accuracy, decisions
from jbias.stimuli import tile_order, tiles

_EQUAL = 1e-9  # Distances that differ by less, as by rounding, are equal.
_COLUMNS = 4096  # Wider features are projected to this number of columns.


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
    """Return odd_one_out at each site: the mean over images of the features' `scores`.

    odd_one_out is followed by odd_one_out_lower and odd_one_out_upper, the ends of a 95 %
    bootstrap interval over images. Conditions are sites; the numbers of the last site are
    repeated with the condition "". Chance is 1/3, also for features that do not depend on the
    tiles' order.

    variables: the module's weights. images: an array, or a loader.LazyImages. columns: the
    images' columns; "index" has their numbers in the set. sites: names from
    models.taps.sites; None: all. batch: images per batch, each shown in three orders. seed:
    random seed of the bootstrap and, together with an image's number, of the image's shuffles.
    ValueError for unknown sites; errors.NotFiniteError for features that are NaN or infinite.
    """
    arrange = jax.vmap(functools.partial(tiles.rearrange, g=tile_order.GRID))
    scores_by_site: dict[str, list] = {}
    for first in range(0, len(images), batch):
        rows = np.arange(first, min(first + batch, len(images)))
        triples = np.stack([_orders(seed, i) for i in columns["index"][rows]])
        shown = [arrange(images[rows], triples[:, i]) for i in range(3)]
        features_by_site = features.read(
            net,
            variables,
            np.concatenate(shown),
            sites=sites,
            pool=1,
            columns=_COLUMNS,
            batch=3 * batch,
            where="odd_one_out",
        )
        for site, x in features_by_site.items():
            of_batch = scores(x.reshape(3, len(rows), -1))
            scores_by_site.setdefault(site, []).append(of_batch)
    numbers = []
    for site, by_batch in scores_by_site.items():
        values = np.concatenate(by_batch)
        numbers.append(
            decisions.quantity("odd_one_out", values.mean(), len(values), site)
        )
        sixths = np.rint(6 * values).astype(int)  # Scores are 1, 1/2, 1/3 and 0.
        numbers += accuracy.mean_ends("odd_one_out", sixths, 6, site, seed=seed)
    return [*numbers, *(number._replace(condition="") for number in numbers[-3:])]


def _orders(seed: int, index: int) -> Int[np.ndarray, "3 16"]:
    """Return three orders of the 16 tiles of an image: the original, and two shuffles.

    index: number of the image in its set.
    """
    places = np.random.default_rng([seed, int(index)]).permutation(tile_order.GRID**2)
    return np.stack([tile_order.swaps(places, swap) for swap in range(3)])


def scores(x: Float[np.ndarray, "3 n d"]) -> Float[np.ndarray, "n"]:
    """Return for each image 1 if the first of three feature vectors is the odd one out, else 0.

    x: features of the three versions (first axis) of n images.
    By distances 1 - Pearson's r: the first vector is the odd one out if the other two are closest
    to each other, so that its mean distance to them is the largest. If m pairs are equally close,
    each counts 1/m. The score is 0 if a vector is constant, because a constant vector has no
    correlation.
    """
    x = np.asarray(x, float)
    x = x - x.mean(-1, keepdims=True)
    length = np.sqrt((x**2).sum(-1, keepdims=True))
    x = np.divide(x, length, out=np.full_like(x, np.nan), where=length > 0)
    pairs = ((1, 2), (0, 1), (0, 2))
    distance = np.stack([1 - (x[i] * x[j]).sum(-1) for i, j in pairs])
    is_closest = distance <= distance.min(0) + _EQUAL
    return np.where(is_closest[0], 1 / np.maximum(is_closest.sum(0), 1), 0.0)
