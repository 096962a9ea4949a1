"""Simulated studies with fewer seeds: comparisons of groups of the existing seeds.

Two disjoint groups of s seeds of a method, drawn without replacement, represent two studies
of that method. The mean squared difference of their means is 2 S^2 / s, S^2 the variance of
all seeds of the method (ddof 1), the same as for new seeds.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float, Int

from jbias import errors
from jbias.stats import power

_QUANTILES = 500  # Larger sets of group means are thinned to about as many quantiles.


@dataclasses.dataclass(frozen=True, eq=False)
class FewSeedsResult:
    """Reliability of studies with few seeds per method; NaN for methods with too few seeds.

    Axis s is in the order of the argument `seeds` of `few_seeds`.
    """

    apart: Float[np.ndarray, "s k"]  # Share of draws: two groups of a method differ.
    lead: Float[np.ndarray, "s k"]  # Expected lead of the best of k copies of a method.
    reversed: Float[np.ndarray, "s k k"]  # Share of draws: sign differs from all seeds.
    # Seeds that each method of a pair needs; inf where means are equal; diagonal NaN.
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
    """Return the reliability of studies with s seeds, for each s in `seeds`.

    scores: the scores of each of k methods on one data set, one score per seed.
    difference: difference of means that matters, in the unit of the scores.
    alpha, target: level and power of the t-test of `needed`. draws: number of random groups.

    `apart`: share of draws in which two disjoint groups of one method have means more than
    `difference` apart. `lead`: expected distance of the best of k groups of one method from
    their mean; groups are taken as independent, so the distance is scaled by
    sqrt(n / (n - s)), n the seeds of the method. `apart` and `lead` need 2 s seeds. `reversed`:
    share of draws in which the means of two groups, one of each method of a pair, are equal or in
    another order than the means of all seeds. `reversed` is NaN where the means of all seeds are
    equal, and needs more than s seeds. Groups are drawn from the same seeds, so new seeds would
    reverse the order more often. `needed`: `seeds_for_t` with the difference and the pooled
    deviation of the pair taken as true.

    All groups are enumerated if there are at most `draws`; else `draws` are drawn, with a
    standard error of at most 0.5 / sqrt(draws). With 1,000 or more groups of a method, `reversed`
    uses quantiles of the better method's group means, which changes `reversed` by less than 0.001.
    Raise ValueError for methods with a single score or a score that is not finite, a negative
    difference, no `seeds` or seeds below 1, `draws` below 100, and, if the means of two methods
    differ, an alpha or target outside (0, 1).
    """
    sign = 1 if larger_is_better else -1
    runs = [sign * np.asarray(values, np.float64) for values in scores]
    if not runs or not all(x.ndim == 1 < x.size and np.isfinite(x).all() for x in runs):
        raise ValueError(
            "scores: every method must have two finite scores or more; leave others out"
        )
    errors.check(0 <= difference < math.inf, "difference", "be 0 or larger", difference)
    errors.check_at_least("seeds", min(seeds, default=0))
    errors.check_at_least("draws", draws, 100)
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
    reversals = [
        _share_reversed(group_means, is_ahead, tolerances) for group_means in means
    ]
    return FewSeedsResult(
        apart=apart,
        lead=lead,
        reversed=np.array(reversals).reshape(-1, k, k),
        needed=needed,
    )


def _share_reversed(
    means: Mapping[int, Float[np.ndarray, " m"]],
    is_ahead: Bool[np.ndarray, "k k"],
    tolerances: Float[np.ndarray, "k k"],
) -> Float[np.ndarray, "k k"]:
    """Return, for each pair, the share of draws in another order than with all seeds.

    The matrix is symmetric. The share includes draws in which the two methods tie. The share is NaN
    if neither method is ahead, or if a method has too few seeds.
    means: sorted group means of each method with enough seeds, by the method's index.
    is_ahead: True where the row's mean of all seeds is above the column's mean by more than the
    tolerance.
    """
    reversals = np.full(is_ahead.shape, math.nan)
    steps = {i: max(1, len(x) // _QUANTILES) for i, x in means.items()}
    quantiles = {i: x[steps[i] // 2 :: steps[i]] for i, x in means.items()}
    for j, loser_means in means.items():
        winners = [i for i in means if is_ahead[i, j]]
        if not winners:
            continue
        # One search for all methods that are ahead of method j.
        limits = np.concatenate([quantiles[i] - tolerances[i, j] for i in winners])
        below = np.searchsorted(loser_means, limits)
        sizes = [len(quantiles[i]) for i in winners]
        counts = np.add.reduceat(below, np.cumsum([0, *sizes[:-1]]))
        share = counts / sizes / len(loser_means)
        reversals[winners, j] = reversals[j, winners] = 1 - share
    return reversals


@functools.lru_cache(maxsize=64)
def _groups(n: int, s: int, draws: int, seed: int) -> Int[np.ndarray, "_ m"]:
    """Return m orders of n seeds, as columns of indices, that each begin with two groups.

    Rows 0 to s - 1 are the first group, and the next min(s, n - s) rows the second. Further rows
    are not used.
    All pairs of groups if there are at most `draws`, else `draws` random orders.
    """
    second_size = min(s, n - s)
    if math.comb(n, s) * math.comb(n - s, second_size) > draws:
        rows = np.tile(np.arange(n), (draws, 1))
        orders = np.random.default_rng(seed).permuted(rows, axis=1)
        return np.ascontiguousarray(orders.T)
    orders = []
    for first in itertools.combinations(range(n), s):
        remaining = {*range(n)}.difference(first)
        for second in itertools.combinations(remaining, second_size):
            orders.append(first + second)
    return np.ascontiguousarray(np.array(orders).T)


@functools.lru_cache(maxsize=64)
def _chance_of_best(groups: int, k: int) -> Float[np.ndarray, " m"]:
    """Return the probability that each of `groups` sorted means is the largest of k drawn means.

    The k means are drawn with replacement.
    """
    all_are_below = np.linspace(0, 1, groups + 1) ** k
    return np.diff(all_are_below)


def _mean_of_groups(
    x: Float[np.ndarray, " n"], groups: Int[np.ndarray, "s m"]
) -> Float[np.ndarray, " m"]:
    """Return the mean score of each group; groups: indices of seeds, a column per group.

    The result has the same bits as the mean of each group as a separate array.

    Numpy adds fewer than eight numbers in sequence along any axis; longer columns are stored
    contiguously, so that they are added in the same order as a one-dimensional array.
    """
    scores = x.take(groups)
    if len(groups) < 8:
        return scores.mean(0)
    return np.ascontiguousarray(scores.T).mean(1)
