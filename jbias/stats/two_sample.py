"""Tests between two groups of runs: exchange, rank-sum and Welch; and means of few networks.

Sources: Pitman 1937, https://doi.org/10.2307/2984124, for the exchange of units; Phipson
and Smyth 2010, https://doi.org/10.2202/1544-6115.1585, for (1 + hits) / (1 + draws).

Percentiles of a bootstrap over two or three networks cover far less than their nominal
level. `t_weights` weighs the networks' deviations by normal numbers, scaled so that a draw
of a mean is Student's t with s - 1 degrees of freedom: its percentiles are the t interval.
`mean_exceeds` is the test that belongs to it.
"""

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Float, Int

from jbias.stats import score_table


def t_weights(s: int, draws: int, rng: np.random.Generator) -> Float[np.ndarray, "b s"]:
    """What each of s networks weighs in each draw of their mean; rows sum to 1.

    sum_i w_i x_i is distributed as mean(x) + T sd(x) / sqrt(s), T of Student's t with s - 1
    degrees of freedom, and jointly so for several measurements x of the same networks. A
    single network weighs 1 in each: how others would do is not known.
    """
    if s == 1:
        return np.ones((draws, 1))
    normal = rng.standard_normal((draws, s))
    normal -= normal.mean(1, keepdims=True)
    scale = np.sqrt((s - 1) / rng.chisquare(s - 1, (draws, 1)))
    return 1 / s + scale * normal / math.sqrt(s * (s - 1))


def mean_exceeds(
    excess: float, between: tuple[float, float], others: float = 0.0
) -> float:
    """p of: the true excess is not above 0, by a one-sided t test.

    between: the variance of the excess that is due to networks, and its degrees of freedom;
    others: of what is the same for all networks, as if known. Degrees of freedom together
    after Satterthwaite, Biometrics Bulletin 1946, 2 (6).
    """
    variance, free = between
    total = variance + others
    if not total:
        return 0.0 if excess > 0 else 1.0
    degrees = total**2 / (variance**2 / free) if variance and free else math.inf
    if math.isinf(degrees):
        return float(scipy.stats.norm.sf(excess / math.sqrt(total)))
    return float(scipy.stats.t.sf(excess / math.sqrt(total), degrees))


_EPSILON = float(np.finfo(np.float64).eps)  # Of sums in another order, for each unit.


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
    those whose difference is at least as large (small), up to the rounding of the largest
    statistic of all ways; all ways are taken where they are
    no more than `most`, else so many are drawn. margin: how much smaller the first may be; it
    is added to the units of the first, so it needs a statistic that grows with them, as a
    mean does. Raises ValueError for a group without units, for fewer than 1 draw, and where
    the statistic of some units is not finite.
    """
    score_table.check_count("draws", draws)
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if not len(first) or not len(second):
        raise ValueError("exchange: both groups must have units, got none in one")
    pooled = np.concatenate([first + margin, second])
    a, n = len(first), len(first) + len(second)
    ways = math.comb(n, a)
    exact = ways <= most
    random = np.random.default_rng(seed)
    some = (random.permutation(n)[:a] for _ in range(draws))
    splits = map(np.array, itertools.combinations(range(n), a)) if exact else some

    def statistics(chosen: Int[np.ndarray, "a"]) -> tuple[float, float]:
        others = np.delete(pooled, chosen, axis=0)
        return float(statistic(pooled[chosen])), float(statistic(others))

    observed = statistics(np.arange(a))
    seen = observed[0] - observed[1]
    values = np.array([observed, *map(statistics, splits)])
    found = values[1:, 0] - values[1:, 1]
    if not np.isfinite(values).all():
        raise ValueError(
            "exchange: the statistic must be finite whichever units it is of, got "
            f"{seen} as they are; leave out units that are not"
        )
    # In the unit of the statistic, which need not be that of the units.
    far = 2 * n * _EPSILON * np.abs(values).max()
    greater, less = np.sum(found >= seen - far), np.sum(found <= seen + far)
    count, more = (ways, 0) if exact else (draws + 1, 1)
    pvalues = (float(hits + more) / count for hits in (greater, less))
    return ExchangeResult(seen - margin, *pvalues, exact, 1 / count)


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
    greater, less = (
        scipy.stats.ttest_ind_from_stats(
            *first, *second, equal_var=False, alternative=alternative
        ).pvalue
        for alternative in ("greater", "less")
    )
    return float(greater), float(less)
