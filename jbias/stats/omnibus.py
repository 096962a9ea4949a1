"""Do k algorithms differ over n data sets? Tests that use more than ranks in each set.

Sources: Quade 1979, https://doi.org/10.1080/01621459.1979.10481670; Conover 1999, section
5.8; Hodges and Lehmann 1962; Garcia, Fernandez, Luengo and Herrera 2010,
https://doi.org/10.1016/j.ins.2009.12.010, who compare them.
"""

import dataclasses
import math

import numpy as np
import scipy.stats
from jaxtyping import Float

from jbias.stats import scores as score_table


@dataclasses.dataclass(frozen=True, eq=False)
class OmnibusResult:
    """A test that all k algorithms are alike."""

    statistic: float
    pvalue: float
    ranks: Float[np.ndarray, "k"]  # Means, as the test weighs them; lower is better.
    df: tuple[float, ...]


def quade(
    scores: score_table.Table,
    *,
    larger_is_better: bool,
    axis: int = 1,
    tolerance: float | None = None,
) -> OmnibusResult:
    """Tests whether k algorithms are alike, data sets weighed by how far they spread them.

    S_ij = Q_i (r_ij - (k+1)/2), r_ij the ranks and Q_i the rank of data set i by its range
    of scores; A = sum S_ij^2, B = sum_j (sum_i S_ij)^2 / n;
    F = (n-1) B / (A - B) ~ F(k-1, (k-1)(n-1)), inf with p 0 where A = B.
    `ranks` are sum_i Q_i r_ij / (n (n+1) / 2). Scores and ranges closer than `tolerance`,
    in units of the scores (None: 2e-7 of their span), are ties; all data
    sets must be of one unit. If all scores are equal, F = 0 and p = 1.
    Raises ValueError for missing cells and for fewer than 2 data sets or algorithms.
    """
    matrix = score_table.matrix(scores, axis=axis)
    tolerance = score_table.tolerated(tolerance, matrix)
    levels = score_table.near_levels(matrix, tolerance)
    ranked = scipy.stats.rankdata(-levels if larger_is_better else levels, axis=1)
    n, k = ranked.shape
    spans = score_table.near_levels(np.ptp(matrix, axis=1), tolerance)
    weights = scipy.stats.rankdata(spans)
    # Ranks are halves of integers, so agreement and its absence are seen exactly.
    s = np.rint(2 * weights[:, None] * (2 * ranked - (k + 1))).astype(np.int64)
    total = n * int(np.sum(s**2))
    between = int(np.sum(s.sum(axis=0) ** 2))
    degrees = k - 1, (k - 1) * (n - 1)
    means = weights @ ranked / (n * (n + 1) / 2)
    if between == 0:
        return OmnibusResult(0.0, 1.0, means, degrees)
    apart = total - between
    statistic = math.inf if apart == 0 else (n - 1) * between / apart
    pvalue = float(scipy.stats.f.sf(statistic, *degrees))
    return OmnibusResult(statistic, pvalue, means, degrees)


def aligned_ranks(
    scores: score_table.Table,
    *,
    larger_is_better: bool,
    axis: int = 1,
    tolerance: float | None = None,
) -> OmnibusResult:
    """Tests whether k algorithms are alike by ranks among all scores at once.

    From each score its data set's mean is taken; all n k differences are ranked together
    (1 is the best), R_j and R_i the sums of algorithms and of data sets:
    T = (k-1) (sum_j R_j^2 - k n^2 (kn+1)^2 / 4) / (sum r^2 - sum_i R_i^2 / k) ~ chi2(k-1).
    Without ties sum r^2 = kn (kn+1) (2kn+1) / 6, as Garcia et al. write it; with ties the
    sum itself keeps the variance right. Differences closer than `tolerance`, in units of
    the scores (None: 2e-7 of their span), are ties; all data sets must be
    of one unit. If all scores are equal, T = 0 and p = 1.
    Raises ValueError for missing cells and for fewer than 2 data sets or algorithms.
    """
    matrix = score_table.matrix(scores, axis=axis)
    tolerance = score_table.tolerated(tolerance, matrix)
    n, k = matrix.shape
    aligned = matrix - matrix.mean(axis=1, keepdims=True)
    levels = score_table.near_levels(aligned.ravel(), tolerance)
    levels = -levels if larger_is_better else levels
    ranked = scipy.stats.rankdata(levels).reshape(n, k)
    twice = np.rint(2 * ranked).astype(np.int64)
    between = int(np.sum(twice.sum(axis=0) ** 2)) - k * n**2 * (k * n + 1) ** 2
    within = k * int(np.sum(twice**2)) - int(np.sum(twice.sum(axis=1) ** 2))
    statistic = (k - 1) * between * k / within if within else 0.0
    pvalue = float(scipy.stats.chi2.sf(statistic, k - 1))
    return OmnibusResult(statistic, pvalue, ranked.mean(axis=0), (k - 1,))
