"""Tests of two groups of runs (exchange, rank-sum and Welch), and of means of few networks.

Sources: Welch 1947, https://doi.org/10.2307/2332510; Pitman 1937,
https://doi.org/10.2307/2984124, for the exchange of units; Janssen 1997,
https://doi.org/10.1016/S0167-7152(97)00043-6, for permuting Welch's t, which keeps the level for
many runs even if the deviations differ; Fisher 1935 for flipped signs; Phipson and Smyth 2010,
https://doi.org/10.2202/1544-6115.1585, for (1 + hits) / (1 + draws).

Percentile intervals of a bootstrap over two or three networks have far less than their nominal
coverage. `t_weights` weights the networks' deviations by normal numbers, scaled so that a draw
of a mean is Student's t with s - 1 degrees of freedom: its percentiles are the t interval.
`mean_exceeds` is the corresponding test.
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

from jbias import errors as caller_errors
from jbias.stats import score_table


def t_weights(s: int, draws: int, rng: np.random.Generator) -> Float[np.ndarray, "b s"]:
    """Return weights of s networks for each draw of their mean; rows sum to 1.

    sum_i w_i x_i is distributed as mean(x) + T sd(x) / sqrt(s), T of Student's t with s - 1
    degrees of freedom, and jointly so for several measurements x of the same networks. A
    single network has the weight 1 in every draw: the variation over networks is unknown.
    """
    if s == 1:
        return np.ones((draws, 1))
    normal = rng.standard_normal((draws, s))
    normal -= normal.mean(1, keepdims=True)
    scale = np.sqrt((s - 1) / rng.chisquare(s - 1, (draws, 1)))
    return 1 / s + scale * normal / math.sqrt(s * (s - 1))


def mean_exceeds(
    excess: float, between: tuple[float, float], common_variance: float = 0.0
) -> float:
    """Return the p-value of the null that the true excess is at most 0 (one-sided t test).

    excess: estimate, such as a difference of means. between: (variance of the excess that is
    due to networks, its degrees of freedom). common_variance: further variance that is common
    to all networks, taken as known. Degrees of freedom of the sum after Satterthwaite,
    Biometrics Bulletin 1946, 2 (6). If both variances are 0, p is 0 for a positive excess, else
    1. If only `common_variance` is positive, the test is normal.
    """
    variance, variance_degrees = between
    total = variance + common_variance
    if not total:
        return 0.0 if excess > 0 else 1.0
    degrees = math.inf
    if variance and variance_degrees:
        degrees = total**2 / (variance**2 / variance_degrees)
    if math.isinf(degrees):
        return float(scipy.stats.norm.sf(excess / math.sqrt(total)))
    return float(scipy.stats.t.sf(excess / math.sqrt(total), degrees))


_EPSILON = float(np.finfo(np.float64).eps)  # Rounding error of a sum, per unit.


class ExchangeResult(NamedTuple):
    """A permutation test of the difference of a statistic between two groups."""

    difference: float  # First group less second.
    greater: float  # p of the null that the first is not larger.
    less: float  # p of the null that the first is not smaller.
    exact: bool  # All splits were used, not random ones.
    least: float  # The smallest possible p.


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
    """Return the permutation test that statistic(first) > statistic(second) - margin.

    Units are exchanged between the groups.

    If the groups are equal, every split of the pooled units into two groups of these sizes is
    equally likely. p is the share of splits whose difference is at least as large (for
    `greater`) or small (for `less`) as the observed one, within the rounding error of the
    largest statistic. With random splits, the observed split counts as one of the splits.
    first, second: units on axis 0. statistic: function from the units of a group to a number.
    most: all splits are used if there are at most `most`, else `draws` random ones.
    margin: the difference by which the first may be smaller; it is added to the units of the
    first, so the statistic must grow with the units by the same amount, as a mean does.
    Raise ValueError for a group without units, for fewer than 1 draw, and if the statistic of
    some split is not finite.
    """
    caller_errors.check_at_least("draws", draws)
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if not len(first) or not len(second):
        raise ValueError("exchange: both groups must have units, got none in one")
    pooled = np.concatenate([first + margin, second])
    a, n = len(first), len(first) + len(second)
    num_splits = math.comb(n, a)
    is_exact = num_splits <= most
    if is_exact:
        splits = map(np.array, itertools.combinations(range(n), a))
    else:
        rng = np.random.default_rng(seed)
        splits = (rng.permutation(n)[:a] for _ in range(draws))

    def statistics(indices: Int[np.ndarray, "a"]) -> tuple[float, float]:
        """Return the statistic of the units with these indices, and of all other units."""
        remaining = np.delete(pooled, indices, axis=0)
        return float(statistic(pooled[indices])), float(statistic(remaining))

    values = np.array([statistics(np.arange(a)), *map(statistics, splits)])
    differences = values[:, 0] - values[:, 1]
    observed, differences = differences[0], differences[1:]
    if not np.isfinite(values).all():
        raise ValueError(
            "exchange: the statistic must be finite for every split of the units, got "
            f"{observed} for the observed one; leave out units that are not finite"
        )
    # In the unit of the statistic, which may differ from that of the units.
    rounding = 2 * n * _EPSILON * np.abs(values).max()
    num_greater = np.sum(differences >= observed - rounding)
    num_less = np.sum(differences <= observed + rounding)
    # With random splits, the observed split counts as a draw.
    total, num_observed = (num_splits, 0) if is_exact else (draws + 1, 1)
    return ExchangeResult(
        difference=float(observed) - margin,
        greater=float(num_greater + num_observed) / total,
        less=float(num_less + num_observed) / total,
        exact=is_exact,
        least=1 / total,
    )


def rank_sum(first: Float[np.ndarray, "a"], second: Float[np.ndarray, "b"]) -> float:
    """Return the one-sided p-value of the rank-sum test that the first group is larger.

    The null hypothesis is that the first group is not larger. The test is also called Wilcoxon's,
    or Mann and Whitney's. p is exact for few values without ties (scipy chooses), else from the
    normal approximation.
    """
    return float(scipy.stats.mannwhitneyu(first, second, alternative="greater").pvalue)


def welch(
    first: tuple[float, float, int], second: tuple[float, float, int]
) -> tuple[float, float]:
    """Return the p-values of Welch's one-sided t tests, from published means and deviations.

    The first p-value is of the null that the first mean is not larger, the second of the null that
    the first mean is not smaller.
    first, second: (mean, standard deviation with n - 1 in the denominator, n) of each group.
    NaN if a deviation is NaN, or if both deviations are 0.
    """
    first_mean, first_deviation, first_count = first
    second_mean, second_deviation, second_count = second
    if not first_deviation + second_deviation > 0:
        return math.nan, math.nan
    greater, less = (
        scipy.stats.ttest_ind_from_stats(
            mean1=first_mean,
            std1=first_deviation,
            nobs1=first_count,
            mean2=second_mean,
            std2=second_deviation,
            nobs2=second_count,
            equal_var=False,
            alternative=alternative,
        ).pvalue
        for alternative in ("greater", "less")
    )
    return float(greater), float(less)


class MeanTest(NamedTuple):
    """A two-sided t test of a difference of means; NaN where all units are equal."""

    difference: float  # First less second.
    standard_error: float
    degrees: float
    statistic: float
    pvalue: float


def welch_error(
    deviations: tuple[float, float], counts: tuple[int, int]
) -> tuple[float, float]:
    """Return the standard error of a difference of means, and its degrees of freedom.

    deviations, counts: standard deviation and number of units, at least 2, of each group.
    Degrees of freedom of Welch and Satterthwaite; NaN if both deviations are 0.
    """
    first, second = (s**2 / n for s, n in zip(deviations, counts, strict=True))
    total = first + second
    if not total:
        return 0.0, math.nan
    # Divided by the total first, as fourth powers of deviations may underflow.
    shares = (first / total) ** 2 / (counts[0] - 1)
    shares += (second / total) ** 2 / (counts[1] - 1)
    return math.sqrt(total), 1 / shares


def welch_t(first: Float[np.ndarray, "a"], second: Float[np.ndarray, "b"]) -> MeanTest:
    """Return Welch's t test of two groups of at least 2 units each.

    A group of equal units has the deviation 0. Call `merge_ties` before to make units equal
    that differ only by rounding.
    """
    difference = float(first.mean() - second.mean())
    deviations = deviation(first), deviation(second)
    error, degrees = welch_error(deviations, (len(first), len(second)))
    return _mean_test(difference, error, degrees)


def paired_t(differences: Float[np.ndarray, "n"]) -> MeanTest:
    """Return Student's t test of the null that the mean of at least 2 paired differences is 0."""
    error = deviation(differences) / math.sqrt(len(differences))
    return _mean_test(float(differences.mean()), error, len(differences) - 1)


def deviation(units: Float[np.ndarray, "n"]) -> float:
    """Return the standard deviation (n - 1), exactly 0 for equal units."""
    return 0.0 if np.ptp(units) == 0 else float(units.std(ddof=1))


def _mean_test(difference: float, error: float, degrees: float) -> MeanTest:
    """Return the t test of a difference, given its standard error and degrees of freedom."""
    if not error:
        return MeanTest(difference, 0.0, math.nan, math.nan, math.nan)
    t = difference / error
    pvalue = 2 * float(scipy.special.stdtr(degrees, -abs(t)))
    return MeanTest(difference, error, degrees, t, pvalue)


def merge_ties(values: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Return the values, with each group of tied values replaced by its mean.

    Values tie by the rules of `score_table`. Other values are unchanged.
    """
    span = score_table.robust_span(values)
    errors = score_table.score_errors(np.abs(values), span)
    levels = score_table.near_levels(values, errors)
    if levels.max(initial=-1) + 1 == len(values):
        return values
    return (np.bincount(levels, values) / np.bincount(levels))[levels]


class PermutedP(NamedTuple):
    """A two-sided p-value by permutation."""

    pvalue: float
    standard_error: float  # Of p, from random draws; 0 if exact.
    exact: bool  # All permutations were used, not random ones.
    least: float  # The smallest possible p with this number of units.


_RELATIVE_ROUNDING = 1e-9  # Statistics that differ relatively by less are equal.


def permute_welch(
    first: Float[np.ndarray, "a"],
    second: Float[np.ndarray, "b"],
    *,
    most: int = 20_000,
    draws: int = 9_999,
    seed: int = 0,
) -> PermutedP:
    """Return the permutation p-value of Welch's |t|: all splits of the units are equally likely.

    All splits are used if there are at most `most`; else `draws` random ones, and
    p = (1 + hits) / (1 + draws). A split in which neither group varies has an infinite |t|.
    p is 1 if all units are equal. Each group needs 2 units.
    """
    a, n = len(first), len(first) + len(second)
    pooled = np.concatenate([first, second])
    num_splits = math.comb(n, a)
    is_exact = num_splits <= most
    least = (2 if 2 * a == n else 1) / num_splits if is_exact else 1 / (1 + draws)
    if np.ptp(pooled) == 0:
        return PermutedP(1.0, standard_error=0.0, exact=is_exact, least=least)
    orders = _orders(n, a, draws=0 if is_exact else draws, seed=seed)
    statistics = _welch_statistics((pooled - pooled.mean())[orders], a)
    return _permutation_pvalue(statistics, exact=is_exact, least=least)


def flip_signs(
    differences: Float[np.ndarray, "n"],
    *,
    most: int = 20_000,
    draws: int = 9_999,
    seed: int = 0,
) -> PermutedP:
    """Return the permutation p-value of |mean|: each sign may be + or -.

    Student's |t| is an increasing function of |mean|, as the sum of squares is constant. All
    2^n combinations of signs are used if there are at most `most`; else `draws` random ones, and
    p = (1 + hits) / (1 + draws). p is 1 if all differences are 0.
    """
    n = len(differences)
    is_exact = 2**n <= most
    least = 2 / 2**n if is_exact else 1 / (1 + draws)
    if not differences.any():
        return PermutedP(1.0, standard_error=0.0, exact=is_exact, least=least)
    signs = _signs(n, draws=0 if is_exact else draws, seed=seed)
    statistics = np.abs(signs @ differences)
    return _permutation_pvalue(statistics, exact=is_exact, least=least)


def _permutation_pvalue(
    statistics: Float[np.ndarray, "m"], *, exact: bool, least: float
) -> PermutedP:
    """Return p: the share of the m statistics that are at least as large as the first.

    The first statistic is the observed one, and is included. exact, least: fields of the result.
    """
    hits = int(np.sum(statistics >= statistics[0] * (1 - _RELATIVE_ROUNDING)))
    pvalue = hits / len(statistics)
    error = 0.0
    if not exact:
        error = math.sqrt(pvalue * (1 - pvalue) / (len(statistics) - 1))
    return PermutedP(pvalue, standard_error=error, exact=exact, least=least)


def _welch_statistics(
    units: Float[np.ndarray, "m n"], a: int
) -> Float[np.ndarray, "m"]:
    """Return Welch's |t| of each row: the first `a` units against the remaining n - a."""
    groups = units[:, :a], units[:, a:]
    squares = np.zeros(len(units))
    for group in groups:
        varies = np.ptp(group, axis=1) > 0
        squares += np.where(varies, group.var(axis=1, ddof=1), 0) / group.shape[1]
    distances = np.abs(groups[0].mean(axis=1) - groups[1].mean(axis=1))
    with np.errstate(divide="ignore"):
        return distances / np.sqrt(squares)


@functools.lru_cache(maxsize=32)
def _orders(n: int, a: int, *, draws: int, seed: int) -> Int[np.ndarray, "m n"]:
    """Return m orders of n units as rows of indices; row 0 is 0, ..., n - 1.

    The first `a` indices of a row are the first group.

    draws: number of random orders after row 0; 0: one order per choice of the group.
    """
    if draws:
        in_place = np.tile(np.arange(n), (draws, 1))
        drawn = np.random.default_rng(seed).permuted(in_place, axis=1)
        return np.concatenate([in_place[:1], drawn])
    first = np.array(list(itertools.combinations(range(n), a)))
    is_first = np.zeros((len(first), n), bool)
    np.put_along_axis(is_first, first, True, axis=1)
    return np.argsort(~is_first, axis=1, kind="stable")


@functools.lru_cache(maxsize=32)
def _signs(n: int, *, draws: int, seed: int) -> Float[np.ndarray, "m n"]:
    """Return signs of n differences, all 1 in the first row.

    draws: number of random rows after the first; 0: all 2^n combinations.
    """
    if draws:
        drawn = np.random.default_rng(seed).choice([-1.0, 1.0], (draws, n))
        return np.concatenate([np.ones((1, n)), drawn])
    return np.array(list(itertools.product([1.0, -1.0], repeat=n)))
