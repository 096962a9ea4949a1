"""Do k algorithms rank alike over N data sets? Friedman's test and Iman and Davenport's.

Sources: Friedman 1937; Iman and Davenport 1980, https://doi.org/10.1080/03610928008827904;
Conover 1999, section 5.8; Demsar 2006, https://jmlr.org/papers/v7/demsar06a.html.
"""

import dataclasses
import math
from typing import Literal

import numpy as np
import scipy.stats
from jaxtyping import Float

from jbias.stats import scores as score_table


@dataclasses.dataclass(frozen=True, eq=False)
class FriedmanResult:
    """Iman and Davenport's F with Friedman's chi-squared and Kendall's W beside it."""

    statistic: float  # F; inf where all data sets agree.
    pvalue: float  # Of F.
    chi2: float
    chi2_pvalue: float  # From the chi-squared distribution with k - 1 degrees.
    ranks: Float[np.ndarray, "k"]  # Means over data sets; 1 is the best.
    df: tuple[float, float]  # Of F.
    kendall_w: float  # Agreement of the data sets, 0 to 1.


def friedman(
    scores: score_table.Table,
    *,
    larger_is_better: bool,
    axis: int = 1,
    df: Literal["textbook", "conover"] = "textbook",
    ties: bool = True,
) -> FriedmanResult:
    """Tests whether k algorithms rank alike over n data sets.

    W = (12 S - 3 n^2 k (k+1)^2) / (n^2 k (k^2-1) - n sum(t^3 - t)), S the sum of squared
    rank sums and t the sizes of groups of ties; chi2 = n (k-1) W ~ chi2(k-1);
    F = (n-1) W / (1 - W) = (n-1) chi2 / (n (k-1) - chi2) ~ F(k-1, (k-1)(n-1)).
    `ties=False` leaves the sum over ties out. `df="conover"` takes k-1-2/n and n-1 times
    that, as the package pingouin does. If all scores are equal, W = 0 and both p are 1.
    Raises ValueError for missing cells and for fewer than 2 data sets or algorithms.
    """
    ranked = score_table.rank(scores, larger_is_better=larger_is_better, axis=axis)
    n, k = ranked.shape
    degrees = _degrees(n, k, df)
    # Ranks are halves of integers, so agreement and its absence are seen exactly.
    twice_sums = np.rint(2 * ranked.sum(axis=0)).astype(np.int64)
    spread = 3 * int(np.sum(twice_sums**2)) - 3 * n**2 * k * (k + 1) ** 2
    possible = n**2 * k * (k**2 - 1) - (n * _tie_sum(ranked) if ties else 0)
    w = spread / possible if possible else 0.0
    chi2 = n * (k - 1) * w
    if spread == 0:
        statistic, pvalue, chi2_pvalue = 0.0, 1.0, 1.0
    else:
        statistic = math.inf if spread == possible else (n - 1) * w / (1 - w)
        pvalue = float(scipy.stats.f.sf(statistic, *degrees))
        chi2_pvalue = float(scipy.stats.chi2.sf(chi2, k - 1))
    return FriedmanResult(
        statistic=statistic,
        pvalue=pvalue,
        chi2=chi2,
        chi2_pvalue=chi2_pvalue,
        ranks=ranked.mean(axis=0),
        df=degrees,
        kendall_w=w,
    )


def _tie_sum(ranked: Float[np.ndarray, "n k"]) -> int:
    groups = (np.unique(row, return_counts=True)[1] for row in ranked)
    return sum(int(np.sum(sizes**3 - sizes)) for sizes in groups)


def _degrees(n: int, k: int, df: str) -> tuple[float, float]:
    if df == "textbook":
        return k - 1, (k - 1) * (n - 1)
    if df != "conover":
        raise ValueError(f"df: must be 'textbook' or 'conover', got {df!r}")
    first = k - 1 - 2 / n
    if first <= 0:
        raise ValueError(
            f"df: 'conover' needs k - 1 - 2/n > 0, got n={n} and k={k}; take 'textbook'"
        )
    return first, (n - 1) * first
