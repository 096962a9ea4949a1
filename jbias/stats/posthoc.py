"""Pairwise tests of algorithms: Nemenyi, Conover and Dunn by mean ranks, and Wilcoxon.

Tests are of all pairs, or of all algorithms against a control. Equation 6 of the BiasBed paper
exchanges the numbers of algorithms and data sets; here k is the number of algorithms and n
the number of data sets, as in Demsar.
Sources: Nemenyi 1963; Dunn 1961; Conover and Iman 1979; Conover 1999, section 5.8; Demsar
2006, https://jmlr.org/papers/v7/demsar06a.html.

Nemenyi's test needs the range of k standard normals (the studentised range with infinite
degrees of freedom):
P(Q > q) = k int phi(z) [Phi(z)^(k-1) - (Phi(z) - Phi(z - q))^(k-1)] dz, z the largest of
the k. Gauss-Legendre quadrature: the lower end is the z with P(all k < z) = 1e-17; the upper
end is the larger of 8.3, where phi is below 1e-15, and q/2 + 6, because small tails have their mass
around q/2. With this upper end, small probabilities are accurate.
Sources: Tukey 1953; Copenhaver and Holland 1988,
https://doi.org/10.1080/00949658808811082.

Wilcoxon's signed-rank test is exact with ties. Unlike in Nemenyi's test, a pair's p-value does not
depend on other algorithms.
Sources: Wilcoxon 1945; Pratt 1959, https://doi.org/10.1080/01621459.1959.10501526; Demsar
2006 (zeros shared); Benavoli, Corani and Mangili 2016,
https://jmlr.org/papers/v17/benavoli16a.html.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
import scipy.optimize
import scipy.special
import scipy.stats
from jaxtyping import Bool, Float, Int

from jbias import errors as caller_errors
from jbias.stats import bootstrap_intervals, multiple_testing, score_table

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(96)
_BLOCK = 4096  # Values of q in memory, about 3 MiB.


def range_sf(q: Float[np.ndarray, "*q"] | float, k: int) -> Float[np.ndarray, "*q"]:
    """Return P(Q > q) for the range Q of k standard normals, in the shape of q; 1 if q <= 0."""
    q = np.asarray(q, dtype=np.float64)
    distinct, places = np.unique(q, return_inverse=True)
    blocks = [
        _integrate_range(distinct[start : start + _BLOCK], k)
        for start in range(0, len(distinct), _BLOCK)
    ]
    return np.concatenate(blocks)[places].reshape(q.shape)


def range_isf(alpha: float, k: int) -> float:
    """Return the q with P(Q > q) = alpha, 0 < alpha < 1, Q the range of k standard normals."""
    # Upper bound of q by Bonferroni: Q > q only if the distance of some pair exceeds q.
    normal = scipy.special.ndtri(alpha / (k * (k - 1)))
    upper = -math.sqrt(2) * float(normal) + 1
    return scipy.optimize.brentq(
        lambda q: float(range_sf(q, k)) - alpha,
        0,
        max(upper, 1),
        xtol=1e-13,
        rtol=1e-14,
    )


def _integrate_range(q: Float[np.ndarray, "q"], k: int) -> Float[np.ndarray, "q"]:
    """Return P(Q > q) for k standard normals by quadrature (see the docstring of the module)."""
    q = np.clip(q, 0, 80)[:, None]  # Beyond 80 the probability underflows.
    low = scipy.special.ndtri(10 ** (-17 / k))
    half = (np.maximum(8.3, q / 2 + 6) - low) / 2
    z = low + half * (1 + _NODES)
    below = scipy.special.ndtr(z)
    # Given that all others are below z, none is below z - q with (1 - share)^(k-1).
    share = scipy.special.ndtr(z - q) / below
    with np.errstate(divide="ignore"):
        any_below = -np.expm1((k - 1) * np.log1p(-share))
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    terms = half * _WEIGHTS * density * below ** (k - 1) * any_below
    value = k * np.sum(terms, axis=1)
    return np.where(q[:, 0] > 0, np.clip(value, 0, 1), 1.0)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Comparisons:
    """Tests of pairs of algorithms over n data sets.

    For all pairs, arrays are (k, k) and symmetric except for the statistics; against a
    control they are (k-1,). If `least_adjusted` is above alpha, the test can never reject
    with this number of data sets.
    """

    statistics: Float[np.ndarray, "*k k"]  # Positive where the row is better.
    pvalues: Float[np.ndarray, "*k k"]  # Of each pair, not adjusted; diagonal 1.
    adjusted: Float[np.ndarray, "*k k"]  # Adjusted for all pairs tested.
    ranks: Float[np.ndarray, "k"]  # Means over data sets; 1 is the best.
    algorithms: tuple[str, ...]
    n: int  # Data sets.
    adjustment: str  # Method, of `multiple_testing` or the test's own.
    exact: bool  # p is from the exact distribution, not from an approximation.
    least: float  # The smallest p that any scores could give.
    least_adjusted: float  # The smallest adjusted p that any scores could give.


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PairsResult(Comparisons):
    """A test of all pairs of k algorithms over n data sets."""

    def to_frame(self) -> pd.DataFrame:
        """Return the adjusted p-values (k, k), with the algorithms' names on both axes."""
        names = pd.Index(self.algorithms, name="algorithm")
        return pd.DataFrame(self.adjusted, index=names, columns=names)

    def __repr__(self) -> str:
        rows, columns = np.triu_indices(len(self.ranks), 1)
        least = np.argmin(self.adjusted[rows, columns])
        pair = rows[least], columns[least]
        a, b = (self.algorithms[i] for i in pair)
        return (
            f"{len(rows)} pairs over {self.n} data sets, adjusted by {self.adjustment}; "
            f"lowest p {self.adjusted[pair]:.3g}, of {a} and {b}"
        )

    def cliques(self, alpha: float) -> tuple[tuple[int, ...], ...]:
        """Return the maximal groups of algorithms in which no pair has an adjusted p <= alpha.

        Groups have two members or more; members are indices, the best mean rank first. A group
        may omit an algorithm whose rank is between the ranks of members: p need not decrease with
        the distance of ranks.
        """
        caller_errors.check_share("alpha", alpha)
        return largest_groups(self.adjusted > alpha, self.ranks)


@dataclasses.dataclass(frozen=True, eq=False)
class ControlResult(Comparisons):
    """A test of k - 1 algorithms, listed in `algorithms`, against a control."""

    control: str
    control_rank: float


def all_pairs(
    scores: score_table.Scores,
    *,
    ranks: Float[np.ndarray, "k"],
    statistics: Float[np.ndarray, "m"],
    pvalues: Float[np.ndarray, "m"],
    adjust: str,
    exact: bool = False,
    least: float = 0.0,
) -> PairsResult:
    """Return the result for all pairs, from the statistics and p-values of the m pairs i < j.

    Pairs are in the order (0, 1), (0, 2), ..., (1, 2), ...
    scores: table of the k algorithms, for their names and the number of data sets.
    ranks: mean rank of each algorithm.
    statistics: positive where algorithm i is better than j.
    pvalues: not adjusted. adjust: method of `multiple_testing`.
    exact, least: fields of the result.
    """
    adjusted = multiple_testing.adjust(pvalues, adjust)
    return PairsResult(
        statistics=bootstrap_intervals.pair_matrix(statistics, np.negative),
        pvalues=bootstrap_intervals.pair_matrix(pvalues, diagonal=1.0),
        adjusted=bootstrap_intervals.pair_matrix(adjusted, diagonal=1.0),
        ranks=ranks,
        algorithms=scores.algorithms,
        n=len(scores.datasets),
        adjustment=adjust,
        exact=exact,
        least=least,
        least_adjusted=_least_adjusted(least, len(pvalues), adjust),
    )


def against_control(
    scores: score_table.Scores,
    control: int,
    *,
    ranks: Float[np.ndarray, "k"],
    statistics: Float[np.ndarray, "k-1"],
    pvalues: Float[np.ndarray, "k-1"],
    adjust: str,
    exact: bool = False,
    least: float = 0.0,
) -> ControlResult:
    """Return the result for all algorithms against a control, with adjusted p-values.

    control: index of the control, which `statistics` and `pvalues` do not include.
    Other arguments: see `all_pairs`. Raise ValueError for the method shaffer.
    """
    if multiple_testing.check_method(adjust) == "shaffer":
        raise ValueError("adjust: shaffer is for all pairs, not a control; take holm")
    names = scores.algorithms
    return ControlResult(
        control=names[control],
        control_rank=float(ranks[control]),
        statistics=statistics,
        pvalues=pvalues,
        adjusted=multiple_testing.adjust(pvalues, adjust),
        ranks=np.delete(ranks, control),
        algorithms=names[:control] + names[control + 1 :],
        n=len(scores.datasets),
        adjustment=adjust,
        exact=exact,
        least=least,
        least_adjusted=_least_adjusted(least, len(pvalues), adjust),
    )


def _least_adjusted(least: float, num_tests: int, adjust: str) -> float:
    """Return the smallest possible adjusted p-value of `num_tests` tests.

    least: smallest possible p-value of one test. adjust: method of `multiple_testing`.
    """
    # Adjusted p increases with every p, so it is smallest if all are the least.
    return float(multiple_testing.adjust(np.full(num_tests, least), adjust).min())


def control_index(control: str | int, scores: score_table.Scores) -> int:
    """Return the index of the control, given its name, or its index if scores were an array.

    Algorithms of an array are named "0", "1", ... Raise ValueError for an unknown name.
    """
    return score_table.find_name(str(control), scores.algorithms, "control")


def largest_groups(
    is_related: Bool[np.ndarray, "k k"], ranks: Float[np.ndarray, "k"]
) -> tuple[tuple[int, ...], ...]:
    """Return the maximal groups of two or more members in which all pairs are related.

    is_related: a symmetric matrix. ranks: mean ranks.
    The groups are the maximal cliques of a graph, by Bron and Kerbosch 1973 with a pivot. Members
    are indices; members and groups are in the order of ranks.
    """
    place_of = np.argsort(np.argsort(ranks, kind="stable"), kind="stable")
    neighbours = [set(np.flatnonzero(row)) - {i} for i, row in enumerate(is_related)]
    cliques: list[list[int]] = []

    def grow(members: list[int], candidates: set[int], excluded: set[int]) -> None:
        """Add to `cliques` each maximal clique that consists of all `members` and some candidates.

        members: indices that are all related. candidates, excluded: indices that are related to
        all members. Cliques that could be extended by an excluded index are not maximal. Single
        members are added, too. `cliques`, and `neighbours` of each index, are variables of the
        enclosing call.
        """
        if not candidates and not excluded:
            clique = (int(i) for i in members)
            cliques.append(sorted(clique, key=place_of.__getitem__))
            return
        pivot = max(
            candidates | excluded, key=lambda i: len(neighbours[i] & candidates)
        )
        for i in sorted(candidates - neighbours[pivot]):
            grow([*members, i], candidates & neighbours[i], excluded & neighbours[i])
            candidates, excluded = candidates - {i}, excluded | {i}

    grow([], set(range(len(neighbours))), set())
    groups = [tuple(clique) for clique in cliques if len(clique) > 1]
    return tuple(sorted(groups, key=lambda group: [int(place_of[i]) for i in group]))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class NemenyiResult(PairsResult):
    """Pairwise p-values of Nemenyi's test, which itself corrects for all pairs.

    `pvalues` and `adjusted` are equal; statistics are q.
    """

    def critical_difference(self, alpha: float) -> float:
        """Return the smallest difference of mean ranks with p <= alpha."""
        return critical_difference(self.n, len(self.ranks), alpha)


def critical_difference(n: int, k: int, alpha: float) -> float:
    """Return Nemenyi's critical difference of mean ranks of k algorithms over n data sets.

    CD = q_alpha sqrt(k (k+1) / (6 n)), sqrt(2) q_alpha the studentised range's quantile.
    """
    q = range_isf(caller_errors.check_share("alpha", alpha), k)
    return q / math.sqrt(2) * _rank_deviation(n, k)


def nemenyi(scores: score_table.Table, *, larger_is_better: bool) -> NemenyiResult:
    """Return Nemenyi's test of all pairs of k algorithms by their mean ranks over n data sets.

    q_ij = |R_i - R_j| / sqrt(k (k+1) / (6 n)); p_ij = P(Q > sqrt(2) q_ij), Q the range of k
    standard normals (studentised range with infinite degrees of freedom).
    scores: see `score_table.read`; several runs are averaged first.
    Raise ValueError for missing cells and for fewer than 2 data sets or algorithms.
    """
    table = score_table.read(scores)
    ranked = score_table.rank(table, larger_is_better=larger_is_better)
    n, k = ranked.shape
    sums = ranked.sum(axis=0)
    rows, columns = np.triu_indices(k, 1)
    # Rank sums are exact, so equal differences are equal to the bit and integrated once.
    q = (sums[columns] - sums[rows]) / n / _rank_deviation(n, k)
    result = all_pairs(
        table,
        ranks=sums / n,
        statistics=q,
        pvalues=range_sf(math.sqrt(2) * np.abs(q), k),
        adjust="none",
        least=float(range_sf(math.sqrt(2) * (k - 1) / _rank_deviation(n, k), k)),
    )
    return NemenyiResult(**{**vars(result), "adjustment": "nemenyi"})


def conover(
    scores: score_table.Table, *, larger_is_better: bool, adjust: str = "holm"
) -> PairsResult:
    """Return Conover's test of all pairs of k algorithms by rank sums, with residual variance.

    t_ij = (S_j - S_i) / sqrt(2 (n A - sum S^2) / ((n-1) (k-1))) with (n-1) (k-1) degrees
    of freedom, S the rank sums and A the sum of squared ranks, ties included. Where all data
    sets agree, the residual variance is 0: t is infinite and p 0, unless the sums are equal.
    Use this test only after a Friedman test that rejects: it rejects more than Nemenyi's.
    scores: see `score_table.read`. adjust: a method of `multiple_testing`.
    Raise ValueError for missing cells, for fewer than 2 data sets or algorithms and for an
    unknown method.
    """
    table = score_table.read(scores)
    ranked = score_table.rank(table, larger_is_better=larger_is_better)
    n, k = ranked.shape
    twice = np.rint(2 * ranked).astype(np.int64)
    sums = twice.sum(axis=0)
    residual = n * int(np.sum(twice**2)) - int(np.sum(sums**2))
    rows, columns = np.triu_indices(k, 1)
    differences = (sums[columns] - sums[rows]).astype(np.float64)
    df = (n - 1) * (k - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(differences == 0, 0.0, differences / np.sqrt(2 * residual / df))
    return all_pairs(
        table,
        ranks=ranked.mean(axis=0),
        statistics=t,
        pvalues=2 * scipy.stats.t.sf(np.abs(t), df),
        adjust=adjust,
    )


def bonferroni_dunn(
    scores: score_table.Table,
    *,
    larger_is_better: bool,
    control: str | int,
    adjust: str = "bonferroni",
) -> ControlResult:
    """Return the Bonferroni-Dunn test of k - 1 algorithms against a control by mean ranks.

    z_i = (R_control - R_i) / sqrt(k (k+1) / (6 n)) is taken as standard normal. Dunn's test
    adjusts by bonferroni; holm rejects at least as often. scores: see `score_table.read`.
    control: name of an algorithm, or its index if scores are an array. adjust: a method of
    `multiple_testing`, except shaffer. Raise ValueError for missing cells, for fewer than 2 data
    sets or algorithms, and for an unknown control or method.
    """
    table = score_table.read(scores)
    ranked = score_table.rank(table, larger_is_better=larger_is_better)
    n, k = ranked.shape
    means = ranked.mean(axis=0)
    index = control_index(control, table)
    z = np.delete(means[index] - means, index) / _rank_deviation(n, k)
    return against_control(
        table,
        index,
        ranks=means,
        statistics=z,
        pvalues=2 * scipy.stats.norm.sf(np.abs(z)),
        adjust=adjust,
        least=_normal_pvalue((k - 1) / _rank_deviation(n, k)),
    )


def cliques(
    ranks: Sequence[float] | Float[np.ndarray, "k"], critical_difference: float
) -> tuple[tuple[int, ...], ...]:
    """Return the maximal groups of algorithms that a critical difference does not separate.

    ranks: mean rank of each algorithm. A group consists of neighbours by rank; its first and
    last member differ by less than `critical_difference`. Members are indices, the best first;
    groups have two members or more.
    """
    ranks = np.asarray(ranks, dtype=np.float64)
    return largest_groups(np.abs(ranks[:, None] - ranks) < critical_difference, ranks)


def _rank_deviation(n: int, k: int) -> float:
    """Return the standard deviation of a difference of mean ranks, without ties."""
    return math.sqrt(k * (k + 1) / (6 * n))


ZEROS = ("wilcox", "pratt", "split")
MAX_EXACT = 200  # Data sets up to which p-values of Wilcoxon's test are exact.


def wilcoxon(
    scores: score_table.Table,
    *,
    larger_is_better: bool,
    control: str | int | None = None,
    zeros: Literal["wilcox", "pratt", "split"] = "wilcox",
    adjust: str = "holm",
    tolerance: float | None = None,
) -> PairsResult | ControlResult:
    """Return Wilcoxon's signed-rank tests of all pairs of k algorithms, or all against a control.

    W = sum_i sign(d_i) r_i, d_i the differences of a pair on n data sets and r_i the mid-ranks
    of |d_i|; p = P(|W| >= |w|) over all 2^m signs of the ranks, ties included. Above 200 data
    sets, W / sqrt(sum r_i^2) is taken as normal and `exact` is False. Statistics are W; W over
    the sum of ranks is the rank-biserial correlation. p cannot be below 2^(1-n).

    scores: see `score_table.read`. control: name of an algorithm, or its index if scores are an
    array; None: all pairs. adjust: a method of `multiple_testing`. tolerance: in units of the
    scores; absolute differences that differ by at most `tolerance` are tied, and those of at most
    `tolerance` count as 0; None: `score_table.rounding_errors` of the two scores.
    zeros: "wilcox" drops zero differences, "pratt" ranks and then drops zero differences, "split"
    ranks zero differences and divides their ranks evenly, with random signs under the null
    hypothesis. Scores of all data sets must have the same unit, as their differences are ranked
    together.
    Raise ValueError for missing cells, fewer than 2 data sets or algorithms, an unknown control,
    method or `zeros`, and shaffer with a control. Raise ValueError also for a tolerance that is
    negative or above a thousandth of the range of the scores.
    """
    table = score_table.read(scores)
    means = table.means
    tolerance = score_table.check_tolerance(tolerance, means)
    score_table.find_name(zeros, ZEROS, "zeros")
    n, k = means.shape
    is_exact = n <= MAX_EXACT
    # For a normal W, by Cauchy and Schwarz: sum r <= sqrt(n) sqrt(sum r^2).
    least = 2.0 ** (1 - n) if is_exact else _normal_pvalue(math.sqrt(n))
    ranked = score_table.rank(table, larger_is_better=larger_is_better)
    mean_ranks = ranked.mean(axis=0)
    table = score_table.shrink_table(table)
    values = table.means.T if larger_is_better else -table.means.T
    if control is None:
        rows, columns = np.triu_indices(k, 1)
    else:
        index = control_index(control, table)
        rows, columns = np.delete(np.arange(k), index), np.full(k - 1, index)
    errors = tolerance
    if tolerance is None:
        cell_errors = score_table.rounding_errors(table).T
        errors = np.maximum(cell_errors[rows], cell_errors[columns])
    w, pvalues = signed_rank_tests(
        values[rows] - values[columns], zeros=zeros, errors=errors
    )
    if control is None:
        return all_pairs(
            table,
            ranks=mean_ranks,
            statistics=w,
            pvalues=pvalues,
            adjust=adjust,
            exact=is_exact,
            least=least,
        )
    return against_control(
        table,
        index,
        ranks=mean_ranks,
        statistics=w,
        pvalues=pvalues,
        adjust=adjust,
        exact=is_exact,
        least=least,
    )


def signed_rank_tests(
    d: Float[np.ndarray, "m n"],
    *,
    zeros: str,
    errors: float | Float[np.ndarray, "m n"],
) -> tuple[Float[np.ndarray, "m"], Float[np.ndarray, "m"]]:
    """Return W and its p-value for each row of differences d over n data sets.

    zeros: see `wilcoxon`. errors: largest distance of differences that tie, also with 0.
    """
    levels = signed_levels(d, errors)
    is_zero = levels == 0
    ranked = scipy.stats.rankdata(np.abs(levels), axis=1)
    if zeros == "wilcox":
        ranked = ranked - is_zero.sum(axis=1, keepdims=True)
    if zeros != "split":
        ranked = np.where(is_zero, 0, ranked)
    # Ranks are halves of integers, so doubled ranks have exact sums.
    twice = np.rint(2 * ranked).astype(np.int64)
    w = np.sum(np.sign(levels) * twice, axis=1)
    if d.shape[1] > MAX_EXACT:
        deviation = np.sqrt(np.sum(twice.astype(np.float64) ** 2, axis=1))
        z = np.divide(abs(w), deviation, out=np.zeros(len(d)), where=deviation > 0)
        return w / 2, np.array([_normal_pvalue(value) for value in z])
    weights = map(tuple, np.sort(twice, axis=1).tolist())
    pvalues = [
        signed_rank_pvalues(row)[abs(statistic)]
        for row, statistic in zip(weights, w.tolist(), strict=True)
    ]
    return w / 2, np.array(pvalues)


def signed_levels(
    d: Float[np.ndarray, "m n"], errors: float | Float[np.ndarray, "m n"]
) -> Int[np.ndarray, "m n"]:
    """Return the dense rank of each |difference| in its row, times its sign; 0 counts as equal.

    d: differences. errors: largest distance of differences that tie, also with 0. The smallest size
    that is not 0 has rank 1, and tied sizes have equal ranks (`score_table.near_levels`).
    """
    # A true zero is added as the lowest size of each row, so that small sizes tie with it.
    sizes = np.concatenate([np.zeros((len(d), 1)), np.abs(d)], axis=1)
    errors = np.broadcast_to(errors, d.shape)
    errors = np.concatenate([np.zeros((len(d), 1)), errors], axis=1)
    levels = score_table.near_levels(sizes, errors)[:, 1:]
    return np.sign(d).astype(np.int64) * levels


def _normal_pvalue(z: float) -> float:
    """Return the two-sided p-value of a standard normal z >= 0."""
    return float(2 * scipy.stats.norm.sf(z))


@functools.lru_cache(maxsize=1024)
def signed_rank_pvalues(weights: tuple[int, ...]) -> Float[np.ndarray, "total+1"]:
    """Return P(|W| >= w) for w = 0 ... total, W the sum of the weights with random signs.

    Signs are independent, + and - equally likely; total is the sum of the weights.
    """
    total = sum(weights)
    # Distribution of T, the sum of weights with sign +; W = 2 T - total.
    probabilities = np.zeros(total + 1)
    probabilities[0] = 1
    for weight in weights:
        if weight:
            probabilities = probabilities / 2
            probabilities[weight:] += probabilities[:-weight].copy()
    upper = np.cumsum(probabilities[::-1])[::-1]
    least_t = (total + np.arange(total + 1) + 1) // 2
    return np.minimum(2 * upper[least_t], 1)
