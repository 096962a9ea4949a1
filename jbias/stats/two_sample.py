"""Tests between two groups of runs: exchange, rank-sum and Welch; and means of few networks.

Sources: Welch 1947, https://doi.org/10.2307/2332510; Pitman 1937,
https://doi.org/10.2307/2984124, for the exchange of units; Janssen 1997,
https://doi.org/10.1016/S0167-7152(97)00043-6, for Welch's t as the statistic that is
permuted, which keeps the level for many runs where the deviations differ, too; Fisher 1935
for flipped signs; Phipson and Smyth 2010, https://doi.org/10.2202/1544-6115.1585, for
(1 + hits) / (1 + draws).

Percentiles of a bootstrap over two or three networks cover far less than their nominal
level. `t_weights` weighs the networks' deviations by normal numbers, scaled so that a draw
of a mean is Student's t with s - 1 degrees of freedom: its percentiles are the t interval.
`mean_exceeds` is the test that belongs to it.
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.special
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
        remaining = np.delete(pooled, chosen, axis=0)
        return float(statistic(pooled[chosen])), float(statistic(remaining))

    values = np.array([statistics(np.arange(a)), *map(statistics, splits)])
    differences = values[:, 0] - values[:, 1]
    observed, differences = differences[0], differences[1:]
    if not np.isfinite(values).all():
        raise ValueError(
            "exchange: the statistic must be finite whichever units it is of, got "
            f"{observed} as they are; leave out units that are not"
        )
    # In the unit of the statistic, which need not be that of the units.
    far = 2 * n * _EPSILON * np.abs(values).max()
    greater = np.sum(differences >= observed - far)
    less = np.sum(differences <= observed + far)
    count, more = (ways, 0) if exact else (draws + 1, 1)
    pvalues = (float(hits + more) / count for hits in (greater, less))
    return ExchangeResult(float(observed) - margin, *pvalues, exact, 1 / count)


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


class MeanTest(NamedTuple):
    """A two-sided t test of a difference of means; NaN where nothing varies."""

    difference: float  # First less second.
    standard_error: float
    degrees: float
    statistic: float
    pvalue: float


def welch_error(
    deviations: tuple[float, float], counts: tuple[int, int]
) -> tuple[float, float]:
    """Return the standard error of a difference of means, and its degrees of freedom.

    Those of Welch and Satterthwaite. NaN degrees where both deviations are 0.
    """
    first, second = (s**2 / n for s, n in zip(deviations, counts, strict=True))
    total = first + second
    if not total:
        return 0.0, math.nan
    # Shares, as squares of squares may underflow.
    shares = (first / total) ** 2 / (counts[0] - 1)
    shares += (second / total) ** 2 / (counts[1] - 1)
    return math.sqrt(total), 1 / shares


def welch_t(first: Float[np.ndarray, "a"], second: Float[np.ndarray, "b"]) -> MeanTest:
    """Return Welch's t test of two groups of at least 2 units each.

    Units of a group that are all equal have no deviation; `merge_ties` before makes equal
    what differs by rounding alone.
    """
    difference = float(first.mean() - second.mean())
    deviations = deviation(first), deviation(second)
    error, degrees = welch_error(deviations, (len(first), len(second)))
    return _mean_test(difference, error, degrees)


def paired_t(differences: Float[np.ndarray, "n"]) -> MeanTest:
    """Return Student's t test that at least 2 differences have the mean 0."""
    error = deviation(differences) / math.sqrt(len(differences))
    return _mean_test(float(differences.mean()), error, len(differences) - 1)


def deviation(units: Float[np.ndarray, "n"]) -> float:
    """Return the standard deviation (n - 1), exactly 0 for equal units."""
    return 0.0 if np.ptp(units) == 0 else float(units.std(ddof=1))


def _mean_test(difference: float, error: float, degrees: float) -> MeanTest:
    if not error:
        return MeanTest(difference, 0.0, math.nan, math.nan, math.nan)
    t = difference / error
    pvalue = 2 * float(scipy.special.stdtr(degrees, -abs(t)))
    return MeanTest(difference, error, degrees, t, pvalue)


def merge_ties(values: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Return values in which those that tie by the rules of `score_table` are equal.

    Each is the mean of the values that it ties with; values without ties stay as they are.
    """
    span = score_table.robust_span(values)
    errors = score_table.score_errors(np.abs(values), span)
    levels = score_table.near_levels(values, errors)
    if levels.max(initial=-1) + 1 == len(values):
        return values
    return (np.bincount(levels, values) / np.bincount(levels))[levels]


class PermutedP(NamedTuple):
    """A two-sided p by permutation."""

    pvalue: float
    standard_error: float  # Of p, from drawing; 0 if exact.
    exact: bool  # Whether all permutations are taken, or some are drawn.
    least: float  # No p of so many units can be smaller.


# Two |t| that differ by a smaller part are one, computed in another order.
_SAME = 1e-9


def permute_welch(
    first: Float[np.ndarray, "a"],
    second: Float[np.ndarray, "b"],
    *,
    most: int = 20_000,
    draws: int = 9_999,
    seed: int = 0,
) -> PermutedP:
    """Return p of |t|, Welch's, if all ways to share the units out are equally likely.

    All ways are taken where they are no more than `most`; else `draws` are drawn, and
    p = (1 + hits) / (1 + draws). A way in which neither group varies has an infinite |t|,
    unless all units are equal; then p is 1. Each group needs 2 units.
    """
    a, n = len(first), len(first) + len(second)
    pooled = np.concatenate([first, second])
    ways = math.comb(n, a)
    exact = ways <= most
    least = (2 if 2 * a == n else 1) / ways if exact else 1 / (1 + draws)
    if np.ptp(pooled) == 0:
        return PermutedP(1.0, 0.0, exact, least)
    orders = _orders(n, a, draws=0 if exact else draws, seed=seed)
    sizes = _welch_sizes((pooled - pooled.mean())[orders], a)
    return _permuted(sizes, exact=exact, least=least)


def flip_signs(
    differences: Float[np.ndarray, "n"],
    *,
    most: int = 20_000,
    draws: int = 9_999,
    seed: int = 0,
) -> PermutedP:
    """Return p of |mean|, if each difference is as likely to have the other sign.

    Student's |t| grows with |mean|, as the sum of squares stays the same. All 2^n signs are
    taken where they are no more than `most`; else `draws` are drawn, as for `permute_welch`.
    """
    n = len(differences)
    exact = 2**n <= most
    least = 2 / 2**n if exact else 1 / (1 + draws)
    if not differences.any():
        return PermutedP(1.0, 0.0, exact, least)
    signs = _signs(n, draws=0 if exact else draws, seed=seed)
    return _permuted(np.abs(signs @ differences), exact=exact, least=least)


def _permuted(sizes: Float[np.ndarray, "m"], *, exact: bool, least: float) -> PermutedP:
    """Return p of the first size, that of the observed units, among all."""
    hits = int(np.sum(sizes >= sizes[0] * (1 - _SAME)))
    pvalue = hits / len(sizes)
    error = 0.0 if exact else math.sqrt(pvalue * (1 - pvalue) / (len(sizes) - 1))
    return PermutedP(pvalue, error, exact, least)


def _welch_sizes(units: Float[np.ndarray, "m n"], a: int) -> Float[np.ndarray, "m"]:
    """Return Welch's |t| of each row, its first a units against all others."""
    groups = units[:, :a], units[:, a:]
    squares = np.zeros(len(units))
    for group in groups:
        varies = np.ptp(group, axis=1) > 0
        squares += np.where(varies, group.var(axis=1, ddof=1), 0) / group.shape[1]
    apart = np.abs(groups[0].mean(axis=1) - groups[1].mean(axis=1))
    with np.errstate(divide="ignore"):
        return apart / np.sqrt(squares)


@functools.lru_cache(maxsize=32)
def _orders(n: int, a: int, *, draws: int, seed: int) -> Int[np.ndarray, "m n"]:
    """Return orders of n units, whose first a are a group; row 0 leaves all in place.

    draws: 0 takes all ways to choose the group.
    """
    if draws:
        in_place = np.tile(np.arange(n), (draws, 1))
        drawn = np.random.default_rng(seed).permuted(in_place, axis=1)
        return np.concatenate([in_place[:1], drawn])
    chosen = np.array(list(itertools.combinations(range(n), a)))
    is_first = np.zeros((len(chosen), n), bool)
    np.put_along_axis(is_first, chosen, True, axis=1)
    return np.argsort(~is_first, axis=1, kind="stable")


@functools.lru_cache(maxsize=32)
def _signs(n: int, *, draws: int, seed: int) -> Float[np.ndarray, "m n"]:
    """Return signs of n differences, all 1 in the first row; draws: 0 takes all ways."""
    if draws:
        drawn = np.random.default_rng(seed).choice([-1.0, 1.0], (draws, n))
        return np.concatenate([np.ones((1, n)), drawn])
    return np.array(list(itertools.product([1.0, -1.0], repeat=n)))
