"""Which pairs of algorithms differ? Nemenyi, Conover and Dunn by mean ranks, and Wilcoxon.

All pairs, or all algorithms against a control. Equation 6 of the BiasBed paper has the
numbers of algorithms and data sets exchanged; here k counts the algorithms and n the data
sets, as in Demsar.
Sources: Nemenyi 1963; Dunn 1961; Conover and Iman 1979; Conover 1999, section 5.8; Demsar
2006, https://jmlr.org/papers/v7/demsar06a.html.

Nemenyi's test needs the range of k standard normals (the studentised range with infinite
degrees of freedom):
P(Q > q) = k int phi(z) [Phi(z)^(k-1) - (Phi(z) - Phi(z - q))^(k-1)] dz, z the largest of
the k. Gauss-Legendre between where all k lie below with chance 1e-17 and where phi is
below 1e-15, or beyond q/2: small tails lie around it, and keep their digits.
Sources: Tukey 1953; Copenhaver and Holland 1988,
https://doi.org/10.1080/00949658808811082.

Wilcoxon's signed-rank test is exact with ties. Unlike Nemenyi's, a pair's p-value does not
depend on other algorithms.
Sources: Wilcoxon 1945; Pratt 1959, https://doi.org/10.1080/01621459.1959.10501526; Demsar
2006 (zeros shared); Benavoli, Corani and Mangili 2016,
https://jmlr.org/papers/v17/benavoli16a.html.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
import scipy.optimize
import scipy.special
import scipy.stats
from jaxtyping import Float

from jbias.stats import multiple_testing, resampling, score_table

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(96)
_BLOCK = 4096  # Values of q at a time: some 3 MiB.


def range_sf(q: Float[np.ndarray, "*q"] | float, k: int) -> Float[np.ndarray, "*q"]:
    """Gives P(Q > q) for the range Q of k standard normals; 1 where q <= 0."""
    q = np.asarray(q, dtype=np.float64)
    different, places = np.unique(q, return_inverse=True)
    blocks = [
        _upper(different[start : start + _BLOCK], k)
        for start in range(0, len(different), _BLOCK)
    ]
    return np.concatenate(blocks)[places].reshape(q.shape)


def range_isf(alpha: float, k: int) -> float:
    """Gives the q with P(Q > q) = alpha, 0 < alpha < 1."""
    # Some pair is as far apart: no pair is with more than this chance (Bonferroni).
    normal = scipy.special.ndtri(alpha / (k * (k - 1)))
    most = -math.sqrt(2) * float(normal) + 1
    return scipy.optimize.brentq(
        lambda q: float(range_sf(q, k)) - alpha, 0, max(most, 1), xtol=1e-13, rtol=1e-14
    )


def _upper(q: np.ndarray, k: int) -> np.ndarray:
    q = np.clip(q, 0, 80)[:, None]  # Beyond 80 the chance is below the least float.
    low = scipy.special.ndtri(10 ** (-17 / k))
    half = (np.maximum(8.3, q / 2 + 6) - low) / 2
    z = low + half * (1 + _NODES)
    below = scipy.special.ndtr(z)
    # Of the others, none lies below z - q: (1 - share)^(k-1), and its complement.
    share = scipy.special.ndtr(z - q) / below
    with np.errstate(divide="ignore"):
        missed = -np.expm1((k - 1) * np.log1p(-share))
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    value = k * np.sum(half * _WEIGHTS * density * below ** (k - 1) * missed, axis=1)
    return np.where(q[:, 0] > 0, np.clip(value, 0, 1), 1.0)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Comparisons:
    """Tests of pairs of algorithms over n data sets.

    Of all pairs arrays are (k, k), symmetric but for the statistics; against a control
    (k-1,). `least` bounds what any scores could give: where `least_adjusted` is above alpha, so
    few data sets can never reject.
    """

    statistics: Float[np.ndarray, "*k k"]  # Positive where the row is the better.
    pvalues: Float[np.ndarray, "*k k"]  # Of each pair alone; with itself 1.
    adjusted: Float[np.ndarray, "*k k"]  # For all these pairs.
    ranks: Float[np.ndarray, "k"]  # Means over data sets; 1 is the best.
    algorithms: tuple[str, ...]
    n: int  # Data sets.
    adjustment: str
    exact: bool  # Whether p is from the exact distribution, or from an approximation.
    least: float  # No p can be smaller.
    least_adjusted: float  # No adjusted p can be smaller.


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PairsResult(Comparisons):
    """A test of all pairs of k algorithms over n data sets."""

    def to_frame(self) -> pd.DataFrame:
        """The adjusted p-values (k, k), with the algorithms' names on both axes."""
        names = pd.Index(self.algorithms, name="algorithm")
        return pd.DataFrame(self.adjusted, index=names, columns=names)

    def __repr__(self) -> str:
        rows, columns = np.triu_indices(len(self.ranks), 1)
        least = np.argmin(self.adjusted[rows, columns])
        pair = rows[least], columns[least]
        a, b = (self.algorithms[i] for i in pair)
        of = f"{len(rows)} pairs over {self.n} data sets, adjusted by {self.adjustment}"
        return f"{of}; lowest p {self.adjusted[pair]:.3g}, of {a} and {b}"

    def cliques(self, alpha: float) -> tuple[tuple[int, ...], ...]:
        """Gives the largest groups of which no pair has an adjusted p <= alpha.

        Members are indices, the best mean rank first. A group may leave out an algorithm
        whose rank lies between: these p-values need not grow with ranks apart.
        """
        score_table.check_share("alpha", alpha)
        return largest_groups(self.adjusted > alpha, self.ranks)


@dataclasses.dataclass(frozen=True, eq=False)
class ControlResult(Comparisons):
    """A test of k - 1 algorithms, which `algorithms` are, against a control."""

    control: str
    control_rank: float


def all_pairs(
    scores: score_table.Scores,
    ranks: Float[np.ndarray, "k"],
    statistics: Float[np.ndarray, "m"],
    pvalues: Float[np.ndarray, "m"],
    adjust: str,
    **how: Any,
) -> PairsResult:
    """Lays out the statistics and p-values of the pairs i < j, and adjusts them.

    how: `exact` and `least`, of the result.
    """
    adjusted = multiple_testing.adjust(pvalues, adjust)
    return PairsResult(
        statistics=resampling.pair_matrix(statistics, np.negative),
        pvalues=resampling.pair_matrix(pvalues, diagonal=1.0),
        adjusted=resampling.pair_matrix(adjusted, diagonal=1.0),
        ranks=ranks,
        algorithms=scores.algorithms,
        **_design(len(scores.datasets), len(pvalues), adjust, **how),
    )


def against_control(
    scores: score_table.Scores,
    ranks: Float[np.ndarray, "k"],
    at: int,
    statistics: Float[np.ndarray, "k-1"],
    pvalues: Float[np.ndarray, "k-1"],
    adjust: str,
    **how: Any,
) -> ControlResult:
    """Adjusts the p-values of all algorithms but the one at `at`, in their order."""
    if multiple_testing.check_method(adjust) == "shaffer":
        raise ValueError("adjust: shaffer is for all pairs, not a control; take holm")
    names = scores.algorithms
    return ControlResult(
        control=names[at],
        control_rank=float(ranks[at]),
        statistics=statistics,
        pvalues=pvalues,
        adjusted=multiple_testing.adjust(pvalues, adjust),
        ranks=np.delete(ranks, at),
        algorithms=names[:at] + names[at + 1 :],
        **_design(len(scores.datasets), len(pvalues), adjust, **how),
    )


def _design(
    n: int, m: int, adjust: str, *, exact: bool = False, least: float = 0.0
) -> dict[str, Any]:
    """Gives what results of m comparisons say of them, whatever the scores are."""
    # All methods grow with every p, so none is below what equal ones become.
    floor = float(multiple_testing.adjust(np.full(m, least), adjust).min())
    more = dict(least=least, least_adjusted=floor)
    return dict(n=n, adjustment=adjust, exact=exact, **more)


def control_index(control: str | int, scores: score_table.Scores) -> int:
    """Gives the index of a control; the algorithms of a bare matrix are "0", "1", ..."""
    return score_table.find_name(str(control), scores.algorithms, "control")


def largest_groups(
    together: np.ndarray, ranks: Float[np.ndarray, "k"]
) -> tuple[tuple[int, ...], ...]:
    """Gives the maximal cliques of a symmetric relation, of two members or more.

    Bron and Kerbosch 1973 with a pivot; members and groups in the order of ranks.
    """
    place_of = np.argsort(np.argsort(ranks, kind="stable"), kind="stable")
    near = [set(np.flatnonzero(row)) - {i} for i, row in enumerate(together)]
    found: list[list[int]] = []

    def grow(members: list[int], open_: set[int], done: set[int]) -> None:
        if not open_ and not done:
            found.append(sorted((int(i) for i in members), key=place_of.__getitem__))
            return
        pivot = max(open_ | done, key=lambda i: len(near[i] & open_))
        for i in sorted(open_ - near[pivot]):
            grow([*members, i], open_ & near[i], done & near[i])
            open_, done = open_ - {i}, done | {i}

    grow([], set(range(len(near))), set())
    groups = [tuple(group) for group in found if len(group) > 1]
    return tuple(sorted(groups, key=lambda group: [int(place_of[i]) for i in group]))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class NemenyiResult(PairsResult):
    """Pairwise p-values of Nemenyi's test, adjusted for all pairs by its nature.

    `pvalues` and `adjusted` are the same; statistics are q.
    """

    def critical_difference(self, alpha: float) -> float:
        """Gives the distance of mean ranks from which on p <= alpha."""
        return critical_difference(self.n, len(self.ranks), alpha)


def critical_difference(n: int, k: int, alpha: float) -> float:
    """Gives Nemenyi's critical difference of mean ranks of k algorithms over n data sets.

    CD = q_alpha sqrt(k (k+1) / (6 n)), sqrt(2) q_alpha the studentised range's quantile.
    """
    q = range_isf(score_table.check_share("alpha", alpha), k)
    return q / math.sqrt(2) * _scale(n, k)


def nemenyi(scores: score_table.Table, *, larger_is_better: bool) -> NemenyiResult:
    """Compares all pairs of k algorithms over n data sets by their mean ranks.

    q_ij = |R_i - R_j| / sqrt(k (k+1) / (6 n)); p_ij = P(Q > sqrt(2) q_ij), Q the range of k
    standard normals (studentised range with infinite degrees of freedom).
    Raises ValueError for missing cells and for fewer than 2 data sets or algorithms.
    """
    read = score_table.read(scores)
    ranked = score_table.rank(read, larger_is_better=larger_is_better)
    n, k = ranked.shape
    sums = ranked.sum(axis=0)
    rows, columns = np.triu_indices(k, 1)
    # Sums are exact, so that equal differences are: few are left to integrate for.
    q = (sums[columns] - sums[rows]) / n / _scale(n, k)
    pvalues = range_sf(math.sqrt(2) * np.abs(q), k)
    least = float(range_sf(math.sqrt(2) * (k - 1) / _scale(n, k), k))
    found = all_pairs(read, sums / n, q, pvalues, adjust="none", least=least)
    return NemenyiResult(**{**vars(found), "adjustment": "nemenyi"})


def conover(
    scores: score_table.Table, *, larger_is_better: bool, adjust: str = "holm"
) -> PairsResult:
    """Compares all pairs of k algorithms by rank sums, with the variance that is left.

    t_ij = (S_j - S_i) / sqrt(2 (n A - sum S^2) / ((n-1) (k-1))) with (n-1) (k-1) degrees
    of freedom, S the rank sums and A the sum of squared ranks, ties and all. Where all data
    sets agree no variance is left: t is infinite and p 0, unless the sums are equal. It is
    meant to follow a Friedman test that rejects: it rejects more than Nemenyi's.
    Raises ValueError for missing cells and for fewer than 2 data sets or algorithms.
    """
    read = score_table.read(scores)
    ranked = score_table.rank(read, larger_is_better=larger_is_better)
    n, k = ranked.shape
    twice = np.rint(2 * ranked).astype(np.int64)
    sums = twice.sum(axis=0)
    left = n * int(np.sum(twice**2)) - int(np.sum(sums**2))
    rows, columns = np.triu_indices(k, 1)
    apart = (sums[columns] - sums[rows]).astype(np.float64)
    df = (n - 1) * (k - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(apart == 0, 0.0, apart / np.sqrt(2 * left / df))
    pvalues = 2 * scipy.stats.t.sf(np.abs(t), df)
    return all_pairs(read, ranked.mean(axis=0), t, pvalues, adjust=adjust)


def bonferroni_dunn(
    scores: score_table.Table,
    *,
    larger_is_better: bool,
    control: str | int,
    adjust: str = "bonferroni",
) -> ControlResult:
    """Compares k - 1 algorithms with a control by mean ranks.

    z_i = (R_control - R_i) / sqrt(k (k+1) / (6 n)), normal. Dunn's test adjusts by
    bonferroni; holm rejects all that it does and perhaps more. `control` is a name; the
    algorithms of a bare matrix are called by their index.
    Raises ValueError for missing cells and for fewer than 2 data sets or algorithms.
    """
    read = score_table.read(scores)
    ranked = score_table.rank(read, larger_is_better=larger_is_better)
    n, k = ranked.shape
    means = ranked.mean(axis=0)
    at = control_index(control, read)
    z = np.delete(means[at] - means, at) / _scale(n, k)
    pvalues = 2 * scipy.stats.norm.sf(np.abs(z))
    least = _normal((k - 1) / _scale(n, k))
    return against_control(read, means, at, z, pvalues, adjust=adjust, least=least)


def cliques(
    ranks: Sequence[float] | Float[np.ndarray, "k"], critical_difference: float
) -> tuple[tuple[int, ...], ...]:
    """Gives the largest groups of algorithms that a critical difference leaves together.

    A group holds neighbours by rank of which the first and last differ by less than
    `critical_difference`; its members are indices, the best first. Lone ones are no group.
    """
    ranks = np.asarray(ranks, dtype=np.float64)
    return largest_groups(np.abs(ranks[:, None] - ranks) < critical_difference, ranks)


def _scale(n: int, k: int) -> float:
    """Gives the standard deviation of a difference of mean ranks, without ties."""
    return math.sqrt(k * (k + 1) / (6 * n))


ZEROS = ("wilcox", "pratt", "split")
EXACT = 200  # Up to so many data sets p-values are exact.


def wilcoxon(
    scores: score_table.Table,
    *,
    larger_is_better: bool,
    control: str | int | None = None,
    zeros: Literal["wilcox", "pratt", "split"] = "wilcox",
    adjust: str = "holm",
    tolerance: float | None = None,
) -> PairsResult | ControlResult:
    """Compares all pairs of k algorithms over n data sets, or all with `control`.

    W = sum_i sign(d_i) r_i, d_i the differences of a pair and r_i the mid-ranks of |d_i|;
    p = P(|W| >= |w|) over all 2^m signs of the ranks, ties and all. Above 200 data sets,
    W / sqrt(sum r_i^2) is taken as normal and `exact` is False. Statistics are W; W over
    the sum of ranks is the rank-biserial correlation. p cannot be below 2^(1-n).

    Differences closer than `tolerance`, in units of the scores (None: for each
    data set `score_table.rounding_errors` of the two), are ties, and zeros. zeros:
    "wilcox" drops them, "pratt" ranks them and then drops them, "split" ranks them and
    shares their ranks evenly, with signs drawn for them too. Scores of all data sets must
    be of one unit, for their differences are ranked together.
    Raises ValueError for missing cells and for fewer than 2 data sets or algorithms.
    """
    read = score_table.read(scores)
    means = read.means
    tolerance = score_table.check_tolerance(tolerance, means)
    score_table.find_name(zeros, ZEROS, "zeros")
    n, k = means.shape
    common = {
        "adjust": adjust,
        "exact": n <= EXACT,
        # Of a normal W, by Cauchy and Schwarz: sum r <= sqrt(n) sqrt(sum r^2).
        "least": 2.0 ** (1 - n) if n <= EXACT else _normal(math.sqrt(n)),
    }
    mean_ranks = score_table.rank(read, larger_is_better=larger_is_better).mean(axis=0)
    read = score_table.shrink_table(read)
    better = read.means.T if larger_is_better else -read.means.T
    if control is None:
        rows, columns = np.triu_indices(k, 1)
    else:
        at = control_index(control, read)
        rows, columns = np.delete(np.arange(k), at), np.full(k - 1, at)
    errors = tolerance
    if tolerance is None:
        cell_errors = score_table.rounding_errors(read).T
        errors = np.maximum(cell_errors[rows], cell_errors[columns])
    w, p = _tested(better[rows] - better[columns], zeros, errors)
    if control is None:
        return all_pairs(read, mean_ranks, w, p, **common)
    return against_control(read, mean_ranks, at, w, p, **common)


def _tested(
    d: Float[np.ndarray, "m n"],
    zeros: str,
    errors: float | Float[np.ndarray, "m n"],
) -> tuple[Float[np.ndarray, "m"], Float[np.ndarray, "m"]]:
    """Gives W and p of m rows of differences."""
    # Beside a true zero, which is the lowest of each row.
    sizes = np.concatenate([np.zeros((len(d), 1)), np.abs(d)], axis=1)
    errors = np.broadcast_to(errors, d.shape)
    errors = np.concatenate([np.zeros((len(d), 1)), errors], axis=1)
    levels = score_table.near_levels(sizes, errors)[:, 1:]
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
    pairs = zip(weights, w.tolist(), strict=True)
    return w / 2, np.array([signed_chances(row)[abs(one)] for row, one in pairs])


def _normal(z: float) -> float:
    return float(2 * scipy.stats.norm.sf(z))


@functools.lru_cache(maxsize=1024)
def signed_chances(weights: tuple[int, ...]) -> Float[np.ndarray, "total+1"]:
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
