"""Omnibus tests that k algorithms are equal over n data sets: Friedman, Quade, aligned ranks.

Friedman's test includes Iman and Davenport's F. Quade's test and aligned ranks use more
information than the ranks within each data set.
Sources: Friedman 1937; Iman and Davenport 1980, https://doi.org/10.1080/03610928008827904;
Conover 1999, section 5.8; Demsar 2006, https://jmlr.org/papers/v7/demsar06a.html; Quade
1979, https://doi.org/10.1080/01621459.1979.10481670; Hodges and Lehmann 1962; Garcia,
Fernandez, Luengo and Herrera 2010, https://doi.org/10.1016/j.ins.2009.12.010 (comparison of these
tests).
"""

import dataclasses
import math
from typing import Literal

import numpy as np
import pandas as pd
import scipy.stats
from jaxtyping import Float, Int

from jbias import errors as caller_errors
from jbias.stats import score_table


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class FriedmanResult:
    """Result of Friedman's test: Iman and Davenport's F, chi-squared, Kendall's W, mean ranks."""

    statistic: float  # F; inf where all data sets agree.
    pvalue: float  # Of F.
    chi2: float
    chi2_pvalue: float  # From the chi-squared distribution with k - 1 degrees.
    ranks: Float[np.ndarray, "k"]  # Means over data sets; 1 is the best.
    df: tuple[float, float]  # Of F.
    kendall_w: float  # Agreement of the data sets, 0 to 1.
    algorithms: tuple[str, ...]  # Names in the frame, or "0", "1", ... for an array.

    def to_frame(self) -> pd.DataFrame:
        """Return a frame with the column rank, one row per algorithm, the best first."""
        index = pd.Index(self.algorithms, name="algorithm")
        frame = pd.DataFrame({"rank": self.ranks}, index=index)
        return frame.sort_values("rank", kind="stable")

    def __repr__(self) -> str:
        degrees = ", ".join(f"{df:g}" for df in self.df)
        ranks = ", ".join(f"{k} {v:.3g}" for k, v in self.to_frame()["rank"].items())
        test = f"F({degrees}) = {self.statistic:.4g}, p = {self.pvalue:.3g}"
        return f"Friedman {test}; mean ranks {ranks}"


def friedman(
    scores: score_table.Table,
    *,
    larger_is_better: bool,
    df: Literal["textbook", "conover"] = "textbook",
    ties: bool = True,
) -> FriedmanResult:
    """Return Friedman's test that k algorithms have equal ranks over n data sets.

    W = (12 S - 3 n^2 k (k+1)^2) / (n^2 k (k^2-1) - n sum(t^3 - t)), S the sum of squared
    rank sums and t the sizes of groups of ties; chi2 = n (k-1) W ~ chi2(k-1);
    F = (n-1) W / (1 - W) = (n-1) chi2 / (n (k-1) - chi2) ~ F(k-1, (k-1)(n-1)).
    scores: see `score_table.read`; several runs are averaged first.
    ties: False omits the correction, the sum over ties. df: "conover" uses k-1-2/n and
    (n-1) (k-1-2/n) degrees of freedom of F, as the package pingouin does. If all scores are
    equal, W = 0, and the p-values of F and chi-squared are 1.
    Raise ValueError for missing cells, for fewer than 2 data sets or algorithms, for an unknown df,
    and for "conover" with 2 algorithms on 2 data sets.
    """
    table = score_table.read(scores)
    ranked = score_table.rank(table, larger_is_better=larger_is_better)
    n, k = ranked.shape
    degrees = _degrees(n, k, df)
    numerator, denominator = degrees
    # Ranks are halves of integers, so W = 0 and W = 1 are computed exactly.
    twice_sums = np.rint(2 * ranked.sum(axis=0)).astype(np.int64)
    spread = 3 * int(np.sum(twice_sums**2)) - 3 * n**2 * k * (k + 1) ** 2
    groups = [np.unique(row, return_counts=True)[1] for row in ranked] if ties else ()
    tie_correction = sum(int(np.sum(sizes**3 - sizes)) for sizes in groups)
    max_spread = n**2 * k * (k**2 - 1) - n * tie_correction
    w = spread / max_spread if max_spread else 0.0
    chi2 = n * (k - 1) * w
    statistic = math.inf if 0 < spread == max_spread else (n - 1) * w / (1 - w)
    return FriedmanResult(
        statistic=statistic,
        pvalue=float(scipy.stats.f.sf(statistic, numerator, denominator)),
        chi2=chi2,
        chi2_pvalue=float(scipy.stats.chi2.sf(chi2, k - 1)),
        ranks=ranked.mean(axis=0),
        df=degrees,
        kendall_w=w,
        algorithms=table.algorithms,
    )


def _degrees(n: int, k: int, df: str) -> tuple[float, float]:
    """Return the two degrees of freedom of F for n data sets and k algorithms.

    df: "textbook" or "conover"; raise ValueError for another text.
    """
    caller_errors.check(
        df in ("textbook", "conover"), "df", "be 'textbook' or 'conover'", df
    )
    if df == "textbook":
        return k - 1, (k - 1) * (n - 1)
    first = k - 1 - 2 / n
    if first <= 0:
        raise ValueError(
            f"df: 'conover' needs k - 1 - 2/n > 0, got n={n} and k={k}; take 'textbook'"
        )
    return first, (n - 1) * first


@dataclasses.dataclass(frozen=True, eq=False)
class OmnibusResult:
    """A test of the null hypothesis that all k algorithms are equal."""

    statistic: float
    pvalue: float
    ranks: Float[
        np.ndarray, "k"
    ]  # Means with the weights of the test; lower is better.
    df: tuple[float, ...]


def _sum_of_squares(values: Int[np.ndarray, "..."]) -> int:
    """Return the sum of squares as a Python integer, which does not overflow."""
    squares = values.ravel().astype(object) ** 2
    return int(squares.sum())


def quade(
    scores: score_table.Table, *, larger_is_better: bool, tolerance: float | None = None
) -> OmnibusResult:
    """Return Quade's test that k algorithms are equal, with data sets weighted by their range.

    Quade's test: S_ij = Q_i (r_ij - (k+1)/2), r_ij the ranks and Q_i the rank of data set i
    by its range of scores; A = sum S_ij^2, B = sum_j (sum_i S_ij)^2 / n;
    F = (n-1) B / (A - B) ~ F(k-1, (k-1)(n-1)), inf with p 0 where A = B.
    `ranks` of the result are sum_i Q_i r_ij / (n (n+1) / 2). If all scores are equal, F = 0
    and p = 1.
    scores: see `score_table.read`. tolerance: scores and ranges that are closer, in units of the
    scores, are ties; None: `score_table.rounding_errors` of each score. All data sets must have
    the same unit.
    Raise ValueError for missing cells, for fewer than 2 data sets or algorithms, and for a
    tolerance that is negative or above a thousandth of the range of the scores.
    """
    table = score_table.read(scores)
    tolerance = score_table.check_tolerance(tolerance, table.means)
    table = score_table.shrink_table(table)
    matrix = table.means
    errors, range_errors = tolerance, tolerance
    if tolerance is None:
        errors = score_table.rounding_errors(table)
        range_errors = errors.max(axis=1)
    levels = score_table.near_levels(matrix, errors)
    ranked = scipy.stats.rankdata(-levels if larger_is_better else levels, axis=1)
    n, k = ranked.shape
    spans = score_table.near_levels(np.ptp(matrix, axis=1), range_errors)
    weights = scipy.stats.rankdata(spans)
    # Ranks are halves of integers, so A = B and B = 0 are detected exactly.
    s = np.rint(2 * weights[:, None] * (2 * ranked - (k + 1))).astype(np.int64)
    total = n * _sum_of_squares(s)
    between = _sum_of_squares(s.sum(axis=0))
    df1, df2 = k - 1, (k - 1) * (n - 1)
    within = total - between
    statistic = math.inf
    if within or not between:
        statistic = (n - 1) * between / max(within, 1)
    return OmnibusResult(
        statistic=statistic,
        pvalue=float(scipy.stats.f.sf(statistic, df1, df2)),
        ranks=weights @ ranked / (n * (n + 1) / 2),
        df=(df1, df2),
    )


def aligned_ranks(
    scores: score_table.Table, *, larger_is_better: bool, tolerance: float | None = None
) -> OmnibusResult:
    """Return the aligned-ranks test that k algorithms are equal, by ranks over all data sets.

    The mean of each data set is subtracted from its scores, and all n k differences are
    ranked together (1 is the best). With R_j and R_i the rank sums of algorithms and of data
    sets: T = (k-1) (sum_j R_j^2 - k n^2 (kn+1)^2 / 4) / (sum r^2 - sum_i R_i^2 / k)
    ~ chi2(k-1). Without ties sum r^2 = kn (kn+1) (2kn+1) / 6, as in Garcia et al.; with ties
    the sum itself gives the correct variance. If all scores are equal, T = 0 and p = 1.
    scores: see `score_table.read`.
    tolerance: differences that are closer, in units of the scores, are ties; None:
    `score_table.rounding_errors` of each score. All data sets must have the same unit.
    Raise ValueError as `quade` does.
    """
    table = score_table.read(scores)
    tolerance = score_table.check_tolerance(tolerance, table.means)
    table = score_table.shrink_table(table)
    matrix = table.means
    n, k = matrix.shape
    aligned = matrix - matrix.mean(axis=1, keepdims=True)
    errors = tolerance
    if tolerance is None:  # The mean has the largest error of its row.
        errors = score_table.rounding_errors(table).max(axis=1).repeat(k)
    levels = score_table.near_levels(aligned.ravel(), errors)
    levels = -levels if larger_is_better else levels
    ranked = scipy.stats.rankdata(levels).reshape(n, k)
    twice = np.rint(2 * ranked).astype(np.int64)
    between = _sum_of_squares(twice.sum(axis=0)) - k * n**2 * (k * n + 1) ** 2
    within = k * _sum_of_squares(twice) - _sum_of_squares(twice.sum(axis=1))
    statistic = (k - 1) * between * k / within if within else 0.0
    pvalue = float(scipy.stats.chi2.sf(statistic, k - 1))
    return OmnibusResult(statistic, pvalue, ranked.mean(axis=0), (k - 1,))
