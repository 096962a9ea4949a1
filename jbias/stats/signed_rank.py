"""Which pairs of algorithms differ? Wilcoxon's signed-rank test, exact with ties.

Sources: Wilcoxon 1945; Pratt 1959, https://doi.org/10.1080/01621459.1959.10501526; Demsar
2006 (zeros shared); Benavoli, Corani and Mangili 2016,
https://jmlr.org/papers/v17/benavoli16a.html: beside Nemenyi's test it has the virtue that a
pair's p-value does not depend on other algorithms.
"""

import functools
import math
from typing import Literal

import numpy as np
import scipy.stats
from jaxtyping import Float

from jbias.stats import compared
from jbias.stats import scores as score_table

ZEROS = ("wilcox", "pratt", "split")
EXACT = 200  # Up to so many data sets p-values are exact.


def wilcoxon(
    scores: score_table.Table,
    *,
    larger_is_better: bool,
    control: str | int | None = None,
    axis: int = 1,
    zeros: Literal["wilcox", "pratt", "split"] = "wilcox",
    adjust: str = "holm",
    tolerance: float | None = None,
) -> compared.PairsResult | compared.ControlResult:
    """Compares all pairs of k algorithms over n data sets, or all with `control`.

    W = sum_i sign(d_i) r_i, d_i the differences of a pair and r_i the mid-ranks of |d_i|;
    p = P(|W| >= |w|) over all 2^m signs of the ranks, ties and all. Above 200 data sets,
    W / sqrt(sum r_i^2) is taken as normal and `exact` is False. Statistics are W; W over
    the sum of ranks is the rank-biserial correlation. p cannot be below 2^(1-n).

    Differences closer than `tolerance`, in units of the scores (None: 2e-7 of
    their span), are ties, and zeros. zeros:
    "wilcox" drops them, "pratt" ranks them and then drops them, "split" ranks them and
    shares their ranks evenly, with signs drawn for them too. Scores of all data sets must
    be of one unit, for their differences are ranked together.
    Raises ValueError for missing cells and for fewer than 2 data sets or algorithms.
    """
    read = score_table.read(scores, axis=axis)
    means = read.means
    tolerance = score_table.tolerated(tolerance, means)
    if zeros not in ZEROS:
        raise ValueError(f"zeros: must be one of {', '.join(ZEROS)}, got {zeros!r}")
    n, k = means.shape
    common = {
        "adjust": adjust,
        "exact": n <= EXACT,
        # Of a normal W, by Cauchy and Schwarz: sum r <= sqrt(n) sqrt(sum r^2).
        "least": 2.0 ** (1 - n) if n <= EXACT else _normal(math.sqrt(n)),
    }
    mean_ranks = score_table.rank(read, larger_is_better=larger_is_better).mean(axis=0)
    better = means.T if larger_is_better else -means.T
    if control is None:
        rows, columns = np.triu_indices(k, 1)
        w, p = _tested(better[rows] - better[columns], zeros, tolerance)
        return compared.all_pairs(read, mean_ranks, w, p, **common)
    at = compared.place(control, read)
    w, p = _tested(np.delete(better, at, axis=0) - better[at], zeros, tolerance)
    return compared.with_control(read, mean_ranks, at, w, p, **common)


def _tested(
    d: Float[np.ndarray, "m n"], zeros: str, tolerance: float
) -> tuple[Float[np.ndarray, "m"], Float[np.ndarray, "m"]]:
    """Gives W and p of m rows of differences."""
    # Beside a true zero, which is the lowest of each row.
    sizes = np.concatenate([np.zeros((len(d), 1)), np.abs(d)], axis=1)
    levels = score_table.near_levels(sizes, tolerance)[:, 1:]
    zero = levels == 0
    ranked = scipy.stats.rankdata(levels, axis=1)
    if zeros == "wilcox":
        ranked = ranked - zero.sum(axis=1, keepdims=True)
    if zeros != "split":
        ranked = np.where(zero, 0, ranked)
    # Ranks are halves of integers: sums are exact.
    twice = np.rint(2 * ranked).astype(np.int64)
    w = np.sum(np.where(zero, 0, np.sign(d)) * twice, axis=1).astype(np.int64)
    if d.shape[1] > EXACT:
        deviation = np.sqrt(np.sum(twice.astype(np.float64) ** 2, axis=1))
        z = np.divide(abs(w), deviation, out=np.zeros(len(d)), where=deviation > 0)
        return w / 2, np.array([_normal(one) for one in z])
    weights = map(tuple, np.sort(twice, axis=1).tolist())
    p = [_chance(row)[abs(one)] for row, one in zip(weights, w.tolist(), strict=True)]
    return w / 2, np.array(p)


def _normal(z: float) -> float:
    return float(2 * scipy.stats.norm.sf(z))


@functools.lru_cache(maxsize=1024)
def _chance(weights: tuple[int, ...]) -> Float[np.ndarray, "total+1"]:
    """Gives P(|W| >= w) for w = 0 ... sum of the weights, whose signs are fair coins."""
    total = sum(weights)
    chances = np.zeros(total + 1)  # Of the sum of positive ones, T; W = 2 T - total.
    chances[0] = 1
    for weight in weights:
        if weight:
            chances = chances / 2
            chances[weight:] += chances[:-weight].copy()
    upper = np.cumsum(chances[::-1])[::-1]
    least_t = (total + np.arange(total + 1) + 1) // 2
    return np.minimum(2 * upper[least_t], 1)
