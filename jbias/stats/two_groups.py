"""Is one group of runs larger than another? Tests that take the runs as they are.

Sources: Pitman 1937, https://doi.org/10.2307/2984124, for the exchange of units; Phipson and
Smyth 2010, https://doi.org/10.2202/1544-6115.1585, for (1 + hits) / (1 + draws).
"""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Float, Int

_RTOL = 1e-12  # Sums in another order differ by as much.


class ExchangeResult(NamedTuple):
    """A test of the difference of a statistic, first group less second."""

    difference: float
    greater: float  # p of: the first is not larger.
    less: float  # p of: the first is not smaller.
    exact: bool
    least: float  # No p can be smaller.


def exchange(
    first: Float[np.ndarray, "a ..."],
    second: Float[np.ndarray, "b ..."],
    statistic: Callable[[np.ndarray], float] = np.mean,
    *,
    margin: float = 0.0,
    most: int = 20_000,
    draws: int = 1_999,
    seed: int = 0,
) -> ExchangeResult:
    """Tests whether statistic(first) > statistic(second) - margin, by exchanging units.

    If the groups are alike, every way to share their units out is equally likely. p counts
    those whose difference is at least as large (small); all ways are taken where they are
    no more than `most`, else so many are drawn. margin: how much smaller the first may be; it
    is added to the units of the first, so it needs a statistic that grows with them, as a
    mean does. Raises ValueError for a group without units.
    """
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if not len(first) or not len(second):
        raise ValueError("exchange: both groups must have units, got none in one")
    pooled = np.concatenate([first + margin, second])
    a, n = len(first), len(first) + len(second)
    ways = math.comb(n, a)
    exact = ways <= most
    splits = _all(n, a) if exact else _drawn(n, a, draws, seed)

    def difference(chosen: Int[np.ndarray, "a"]) -> float:
        rest = np.delete(pooled, chosen, axis=0)
        return float(statistic(pooled[chosen]) - statistic(rest))

    seen = difference(np.arange(a))
    found = np.array([difference(chosen) for chosen in splits])
    far = _RTOL * max(abs(seen), float(np.abs(found).max()))
    greater, less = np.sum(found >= seen - far), np.sum(found <= seen + far)
    count, more = (ways, 0) if exact else (draws + 1, 1)
    return ExchangeResult(
        difference=seen - margin,
        greater=float(greater + more) / count,
        less=float(less + more) / count,
        exact=exact,
        least=1 / count,
    )


def _all(n: int, a: int) -> Iterator[Int[np.ndarray, "a"]]:
    return map(np.array, itertools.combinations(range(n), a))


def _drawn(n: int, a: int, draws: int, seed: int) -> Iterator[Int[np.ndarray, "a"]]:
    random = np.random.default_rng(seed)
    return (random.permutation(n)[:a] for _ in range(draws))


def rank_sum(first: Float[np.ndarray, "a"], second: Float[np.ndarray, "b"]) -> float:
    """p of Wilcoxon, Mann and Whitney's rank-sum test that the first is not larger.

    Exact for few values without ties (scipy decides), else by the normal approximation.
    """
    return float(scipy.stats.mannwhitneyu(first, second, alternative="greater").pvalue)


def welch(
    first: tuple[float, float, int], second: tuple[float, float, int]
) -> tuple[float, float]:
    """Welch's t test of printed means: p that the first is not larger, and not smaller.

    Groups are mean, deviation (n - 1 in its denominator) and n. NaN where a deviation is
    not known or both are 0.
    """
    if not first[1] + second[1] > 0:
        return math.nan, math.nan
    p = scipy.stats.ttest_ind_from_stats(
        *first, *second, equal_var=False, alternative="greater"
    ).pvalue
    return float(p), float(1 - p)
