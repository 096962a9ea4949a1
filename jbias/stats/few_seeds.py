"""Would fewer seeds have said the same? Groups of the seeds that there are, compared.

Two groups of a method's seeds, drawn without replacement, are what two studies of the same
method would have compared. The mean squared difference of their means is 2 S^2 / s, S^2 the
variance of all its seeds (ddof 1), as it is of new seeds.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float, Int

from jbias.stats import power, score_table

_QUANTILES = 500


@dataclasses.dataclass(frozen=True, eq=False)
class FewSeedsResult:
    """What s seeds a method would have shown; NaN where methods have too few seeds."""

    apart: Float[np.ndarray, "s k"]  # Share of draws: two groups of a method differ.
    lead: Float[np.ndarray, "s k"]  # Of the best of k copies of a method, expected.
    reversed: Float[np.ndarray, "s k k"]  # Share of draws: another sign than of all.
    # Seeds of each of a pair; inf where means are equal.
    needed: Float[np.ndarray, "k k"]


def few_seeds(
    scores: Sequence[npt.ArrayLike],
    *,
    difference: float,
    larger_is_better: bool,
    seeds: Sequence[int] = (1, 3, 5, 10),
    alpha: float = 0.05,
    target: float = 0.8,
    draws: int = 5000,
    seed: int = 0,
) -> FewSeedsResult:
    """Compares groups of s seeds, for s in `seeds`, of k methods on one data set.

    `apart`: how often two disjoint groups of one method have means more than `difference`
    apart. `lead`: how far the best of k groups of one method lies above their mean, where
    groups are independent and deviate by sqrt(n / (n - s)) more than those drawn from n
    seeds. Both need 2 s seeds. `reversed`: how often groups of a pair of methods have not the
    sign of the difference of all seeds, but the other or none; it needs more than s seeds,
    and those drawn are among all, so new seeds would reverse it more often. `needed`: as
    `seeds_for_t` gives it if difference and pooled deviation of the pair were true.

    All groups are enumerated where they are at most `draws`, and else drawn so often, with
    a standard error of at most 0.5 / sqrt(draws); of 1,000 and more, quantiles stand for one
    side of `reversed`, which moves it by less than 0.001. scores: the scores of each method, one a
    seed. Raises ValueError for methods with a single score or one that is not finite.
    """
    sign = 1 if larger_is_better else -1
    runs = [sign * np.asarray(one, np.float64) for one in scores]
    if not runs or not all(x.ndim == 1 < x.size and np.isfinite(x).all() for x in runs):
        raise ValueError(
            "scores: every method must have two finite scores or more; leave others out"
        )
    score_table.check(
        0 <= difference < math.inf, "difference", "be 0 or larger", difference
    )
    score_table.check_count("seeds", min(seeds, default=0))
    score_table.check_count("draws", draws, 100)
    k, roundings = len(runs), np.array([1e-12 * np.abs(x).max() for x in runs])
    averages = np.array([x.mean() for x in runs])
    apart, lead = np.full((2, len(seeds), k), math.nan)
    means: list[dict[int, np.ndarray]] = [{} for _ in seeds]
    for (row, s), (i, x) in itertools.product(enumerate(seeds), enumerate(runs)):
        if s >= len(x):
            continue
        order = _groups(len(x), s, draws, seed)
        first = _mean_of_groups(x, order[:s])
        means[row][i] = np.sort(first)
        if 2 * s <= len(x):
            gap = np.abs(first - _mean_of_groups(x, order[s : 2 * s]))
            apart[row, i] = np.mean(gap > difference + roundings[i])
            best = _chance_of_best(len(first), k) @ means[row][i] - averages[i]
            lead[row, i] = best * math.sqrt(len(x) / (len(x) - s))
    variances = [x.var(ddof=1) for x in runs]
    tolerances = np.maximum.outer(roundings, roundings)
    is_ahead = averages[:, None] - averages > tolerances
    needed = np.where(np.eye(k), math.nan, math.inf)
    for i, j in np.argwhere(is_ahead):
        spread = math.sqrt((variances[i] + variances[j]) / 2)
        needed[[i, j], [j, i]] = power.seeds_for_t(
            difference=averages[i] - averages[j],
            deviation=max(spread, tolerances[i, j]),
            alpha=alpha,
            target=target,
        )
    turned = [_share_reversed(of, is_ahead, tolerances) for of in means]
    return FewSeedsResult(apart, lead, np.array(turned).reshape(-1, k, k), needed)


def _share_reversed(
    means: Mapping[int, Float[np.ndarray, " m"]],
    is_ahead: Bool[np.ndarray, "k k"],
    tolerances: Float[np.ndarray, "k k"],
) -> Float[np.ndarray, "k k"]:
    """Return how often groups of a pair have not the sign of the difference of all seeds.

    means: sorted, of the groups of each method with enough seeds. is_ahead: whether the mean
    of all seeds of the first method lies above that of the second by more than the tolerance.
    NaN where neither is ahead, or a method has too few seeds.
    """
    turned = np.full(is_ahead.shape, math.nan)
    steps = {i: max(1, len(x) // _QUANTILES) for i, x in means.items()}
    quantiles = {i: x[steps[i] // 2 :: steps[i]] for i, x in means.items()}
    for j, behind in means.items():
        winners = [i for i in means if is_ahead[i, j]]
        if not winners:
            continue
        # One search for all methods that are ahead of this one.
        wanted = np.concatenate([quantiles[i] - tolerances[i, j] for i in winners])
        below = np.searchsorted(behind, wanted)
        sizes = [len(quantiles[i]) for i in winners]
        counts = np.add.reduceat(below, np.cumsum([0, *sizes[:-1]]))
        share = counts / sizes / len(behind)
        turned[winners, j] = turned[j, winners] = 1 - share
    return turned


@functools.lru_cache(maxsize=64)
def _groups(n: int, s: int, draws: int, seed: int) -> Int[np.ndarray, "_ m"]:
    """Return m orders of n seeds, a column each: the first s are a group, the next s another.

    All groups where they are at most `draws`, each equally often, else so many drawn.
    """
    other = min(s, n - s)
    if math.comb(n, s) * math.comb(n - s, other) > draws:
        rows = np.tile(np.arange(n), (draws, 1))
        orders = np.random.default_rng(seed).permuted(rows, axis=1)
        return np.ascontiguousarray(orders.T)
    pairs = (
        (one, another)
        for one in itertools.combinations(range(n), s)
        for another in itertools.combinations({*range(n)}.difference(one), other)
    )
    return np.ascontiguousarray(np.array([one + another for one, another in pairs]).T)


@functools.lru_cache(maxsize=64)
def _chance_of_best(groups: int, k: int) -> Float[np.ndarray, " m"]:
    """Return how probably each of so many sorted means is the best of k that are drawn."""
    none_is_better = np.linspace(0, 1, groups + 1) ** k
    return np.diff(none_is_better)


def _mean_of_groups(
    x: Float[np.ndarray, " n"], groups: Int[np.ndarray, "s m"]
) -> Float[np.ndarray, " m"]:
    """Return the mean of each column's seeds, to the bit that of its own one-dimensional array.

    Numpy adds fewer than eight numbers one after another, along any axis.
    """
    scores = x.take(groups)
    if len(groups) < 8:
        return scores.mean(0)
    return np.ascontiguousarray(scores.T).mean(1)
