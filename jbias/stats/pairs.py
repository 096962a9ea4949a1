"""Which pairs of algorithms differ? Nemenyi's test and the groups it leaves together.

Sources: Nemenyi 1963; Demsar 2006, https://jmlr.org/papers/v7/demsar06a.html. Equation 6 of
the BiasBed paper has the numbers of algorithms and data sets exchanged; here k counts the
algorithms and n the data sets, as in Demsar.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import scipy.stats
from jaxtyping import Float

from jbias.stats import ranks as ranks_lib


@dataclasses.dataclass(frozen=True, eq=False)
class NemenyiResult:
    """Pairwise p-values of Nemenyi's test, adjusted for all pairs by its nature."""

    pvalues: Float[np.ndarray, "k k"]  # Symmetric, 1 on the diagonal.
    ranks: Float[np.ndarray, "k"]  # Means over data sets; 1 is the best.
    n: int  # Data sets.

    def critical_difference(self, alpha: float) -> float:
        """Gives the distance of mean ranks from which on p <= alpha.

        CD = q_alpha sqrt(k (k+1) / (6 n)), sqrt(2) q_alpha the studentised range's quantile.
        """
        if not 0 < alpha < 1:
            raise ValueError(f"alpha: must lie between 0 and 1, got {alpha}")
        k = len(self.ranks)
        q = scipy.stats.studentized_range.ppf(1 - alpha, k, np.inf)
        return float(q) / math.sqrt(2) * _scale(self.n, k)


def nemenyi(
    scores: ranks_lib.Table, *, larger_is_better: bool, axis: int = 1
) -> NemenyiResult:
    """Compares all pairs of k algorithms over n data sets by their mean ranks.

    q_ij = |R_i - R_j| / sqrt(k (k+1) / (6 n)); p_ij = P(Q > sqrt(2) q_ij), Q the range of k
    standard normals (studentised range with infinite degrees of freedom).
    Raises ValueError for missing cells and for fewer than 2 data sets or algorithms.
    """
    ranked = ranks_lib.rank(scores, larger_is_better=larger_is_better, axis=axis)
    n, k = ranked.shape
    means = ranked.mean(axis=0)
    rows, columns = np.triu_indices(k, 1)
    q = np.abs(means[rows] - means[columns]) / _scale(n, k)
    upper = scipy.stats.studentized_range.sf(math.sqrt(2) * q, k, np.inf)
    pvalues = np.eye(k)
    # The integral's own error, some 1e-14, may fall outside of [0, 1].
    pvalues[rows, columns] = pvalues[columns, rows] = np.clip(upper, 0, 1)
    return NemenyiResult(pvalues=pvalues, ranks=means, n=n)


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


def _scale(n: int, k: int) -> float:
    """Gives the standard deviation of a difference of mean ranks, without ties."""
    return math.sqrt(k * (k + 1) / (6 * n))
