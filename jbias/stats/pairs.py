"""Which pairs of algorithms differ? By their mean ranks: Nemenyi, Conover, Dunn.

Sources: Nemenyi 1963; Dunn 1961; Conover and Iman 1979; Conover 1999, section 5.8; Demsar
2006, https://jmlr.org/papers/v7/demsar06a.html. Equation 6 of the BiasBed paper has the
numbers of algorithms and data sets exchanged; here k counts the algorithms and n the data
sets, as in Demsar.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import scipy.stats
from jaxtyping import Float

from jbias.stats import compared, studentized
from jbias.stats import scores as score_table


@dataclasses.dataclass(frozen=True, eq=False)
class NemenyiResult(compared.PairsResult):
    """Pairwise p-values of Nemenyi's test, adjusted for all pairs by its nature.

    `pvalues` and `adjusted` are the same; statistics are q.
    """

    def critical_difference(self, alpha: float) -> float:
        """Gives the distance of mean ranks from which on p <= alpha.

        CD = q_alpha sqrt(k (k+1) / (6 n)), sqrt(2) q_alpha the studentised range's quantile.
        """
        k = len(self.ranks)
        q = studentized.isf(compared.checked(alpha), k)
        return q / math.sqrt(2) * _scale(self.n, k)


def nemenyi(
    scores: score_table.Table, *, larger_is_better: bool, axis: int = 1
) -> NemenyiResult:
    """Compares all pairs of k algorithms over n data sets by their mean ranks.

    q_ij = |R_i - R_j| / sqrt(k (k+1) / (6 n)); p_ij = P(Q > sqrt(2) q_ij), Q the range of k
    standard normals (studentised range with infinite degrees of freedom).
    Raises ValueError for missing cells and for fewer than 2 data sets or algorithms.
    """
    read, ranked = _ranked(scores, larger_is_better, axis)
    n, k = ranked.shape
    sums = ranked.sum(axis=0)
    rows, columns = np.triu_indices(k, 1)
    # Sums are exact, so that equal differences are: few are left to integrate for.
    q = (sums[columns] - sums[rows]) / n / _scale(n, k)
    pvalues = compared.square(studentized.sf(math.sqrt(2) * np.abs(q), k), k)
    least = float(studentized.sf(math.sqrt(2) * (k - 1) / _scale(n, k), k))
    return NemenyiResult(
        statistics=compared.square(q, k, diagonal=0.0, sign=-1),
        pvalues=pvalues,
        adjusted=pvalues,
        ranks=sums / n,
        algorithms=read.algorithms,
        n=n,
        adjustment="nemenyi",
        exact=False,
        least=least,
        least_adjusted=least,
    )


def conover(
    scores: score_table.Table,
    *,
    larger_is_better: bool,
    axis: int = 1,
    adjust: str = "holm",
) -> compared.PairsResult:
    """Compares all pairs of k algorithms by rank sums, with the variance that is left.

    t_ij = (S_j - S_i) / sqrt(2 (n A - sum S^2) / ((n-1) (k-1))) with (n-1) (k-1) degrees
    of freedom, S the rank sums and A the sum of squared ranks, ties and all. Where all data
    sets agree no variance is left: t is infinite and p 0, unless the sums are equal. It is
    meant to follow a Friedman test that rejects: it rejects more than Nemenyi's.
    Raises ValueError for missing cells and for fewer than 2 data sets or algorithms.
    """
    read, ranked = _ranked(scores, larger_is_better, axis)
    n, k = ranked.shape
    twice = np.rint(2 * ranked).astype(np.int64)
    sums = twice.sum(axis=0)
    left = n * int(np.sum(twice**2)) - int(np.sum(sums**2))
    rows, columns = np.triu_indices(k, 1)
    apart = (sums[columns] - sums[rows]).astype(np.float64)
    df = (n - 1) * (k - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(apart == 0, 0.0, apart / np.sqrt(2 * left / df))
    return compared.all_pairs(
        read,
        ranked.mean(axis=0),
        t,
        2 * scipy.stats.t.sf(np.abs(t), df),
        adjust=adjust,
        exact=False,
        least=0.0,
    )


def bonferroni_dunn(
    scores: score_table.Table,
    *,
    larger_is_better: bool,
    control: str | int,
    axis: int = 1,
    adjust: str = "bonferroni",
) -> compared.ControlResult:
    """Compares k - 1 algorithms with a control by mean ranks.

    z_i = (R_control - R_i) / sqrt(k (k+1) / (6 n)), normal. Dunn's test adjusts by
    bonferroni; holm rejects all that it does and perhaps more. `control` is a name; the
    algorithms of a bare matrix are called by their index.
    Raises ValueError for missing cells and for fewer than 2 data sets or algorithms.
    """
    read, ranked = _ranked(scores, larger_is_better, axis)
    n, k = ranked.shape
    means = ranked.mean(axis=0)
    at = compared.place(control, read)
    z = np.delete(means[at] - means, at) / _scale(n, k)
    return compared.with_control(
        read,
        means,
        at,
        z,
        2 * scipy.stats.norm.sf(np.abs(z)),
        adjust=adjust,
        exact=False,
        least=float(2 * scipy.stats.norm.sf((k - 1) / _scale(n, k))),
    )


def cliques(
    ranks: Sequence[float] | Float[np.ndarray, "k"], critical_difference: float
) -> tuple[tuple[int, ...], ...]:
    """Gives the largest groups of algorithms that a critical difference leaves together.

    A group holds neighbours by rank of which the first and last differ by less than
    `critical_difference`; its members are indices, the best first. Lone ones are no group.
    """
    ranks = np.asarray(ranks, dtype=np.float64)
    order = np.argsort(ranks, kind="stable")
    groups, reached = [], 0
    for start in range(len(order)):
        near = ranks[order] - ranks[order[start]] < critical_difference
        end = int(np.flatnonzero(near)[-1]) + 1 if near.any() else start
        if end > reached and end - start > 1:
            groups.append(tuple(int(i) for i in order[start:end]))
            reached = end
    return tuple(groups)


def _ranked(
    scores: score_table.Table, larger_is_better: bool, axis: int
) -> tuple[score_table.Scores, Float[np.ndarray, "n k"]]:
    read = score_table.read(scores, axis=axis)
    return read, score_table.rank(read, larger_is_better=larger_is_better)


def _scale(n: int, k: int) -> float:
    """Gives the standard deviation of a difference of mean ranks, without ties."""
    return math.sqrt(k * (k + 1) / (6 * n))
