"""How firmly does a rank correlation stand: without each model, and over other models?

Sources: Devlin, Gnanadesikan and Kettenring 1975, https://doi.org/10.1093/biomet/62.3.531
(influence of one observation on a correlation); Belsley, Kuh and Welsch 1980, section 2.1
(DFBETAS and their cut at 2 / sqrt(n)); Efron and Tibshirani 1993, chapter 13 (percentile
interval).
"""

import dataclasses
import math

import numpy as np
import scipy.stats
from jaxtyping import Bool, Float, Int

from jbias.stats import correlation

_CELLS = 2**21  # Numbers that a batch of resamples may hold.


@dataclasses.dataclass(frozen=True, eq=False)
class InfluenceResult:
    """What each model does to a rank correlation."""

    statistic: float  # Of all models.
    without: Float[np.ndarray, "n"]  # rho of all others; NaN if theirs is constant.
    influence: Float[np.ndarray, "n"]  # statistic - without: what the model adds.
    flagged: Bool[np.ndarray, "n"]


@dataclasses.dataclass(frozen=True)
class IntervalResult:
    """A percentile bootstrap interval of a rank correlation."""

    statistic: float
    low: float
    high: float
    level: float
    resamples: int
    constant: int  # Resamples without a rho, left out of the interval.


def influence(x: correlation.Values, y: correlation.Values) -> InfluenceResult:
    """Leaves out one model after the other and flags those that rho rests on.

    influence_i = rho - rho_(i), ranks taken anew. Flagged is |influence_i| > 2 s_i / sqrt(n),
    s_i = sqrt((1 - rho_(i)^2) / (n - 3)) the standard error of rho_(i): the DFBETAS rule for
    the slope of ranks on ranks. It asks what a model does to rho, not how far out it lies:
    one far out on the common trend is an outlier by a Mahalanobis distance and none
    here. Several alike hide each other. NaN is never flagged. Raises ValueError for fewer
    than 4 models and what `correlation.spearman` refuses.
    """
    x, y = correlation.columns(x=x, y=y)
    n = len(x)
    if n < 4:
        raise ValueError(f"models: must be at least 4 to leave one out, got {n}")
    every = np.arange(n)[None]
    others = np.nonzero(~np.eye(n, dtype=bool))[1].reshape(n, n - 1)
    statistic, without = float(_rho(x, y, every)[0]), _rho(x, y, others)
    change = statistic - without
    error = np.sqrt((1 - without**2) / (n - 3))
    flagged = np.abs(change) > 2 / math.sqrt(n) * error + correlation.SLACK
    return InfluenceResult(statistic, without, change, flagged)


def interval(
    x: correlation.Values,
    y: correlation.Values,
    *,
    level: float = 0.95,
    resamples: int = 9_999,
    seed: int = 0,
) -> IntervalResult:
    """Gives the range of rho over models drawn again with replacement.

    From the (1 - level) / 2 to the (1 + level) / 2 quantile of rho over the resamples, which
    describes other models of the same kind; with few models it is too short. Resamples in
    which a measure is constant have no rho: they are counted and left out. NaN where none
    has one. Raises ValueError for a level outside of (0, 1) and what
    `correlation.spearman` refuses.
    """
    if not 0 < level < 1:
        raise ValueError(f"level: must lie between 0 and 1, got {level}")
    if resamples < 1:
        raise ValueError(f"resamples: must be at least 1, got {resamples}")
    x, y = correlation.columns(x=x, y=y)
    n, rng = len(x), np.random.default_rng(seed)
    rows, size = rng.integers(n, size=(resamples, n)), max(1, _CELLS // n)
    parts = np.split(rows, range(size, resamples, size))
    drawn = np.concatenate([_rho(x, y, some) for some in parts])
    known = drawn[np.isfinite(drawn)]
    ends = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(known, ends) if len(known) else (math.nan, math.nan)
    return IntervalResult(
        statistic=float(_rho(x, y, np.arange(n)[None])[0]),
        low=float(low),
        high=float(high),
        level=level,
        resamples=resamples,
        constant=resamples - len(known),
    )


def _rho(
    x: Float[np.ndarray, "n"], y: Float[np.ndarray, "n"], rows: Int[np.ndarray, "b m"]
) -> Float[np.ndarray, "b"]:
    """Gives rho of every choice of models; NaN where a measure is constant."""
    left, right = (
        correlation.unit(scipy.stats.rankdata(v[rows], axis=1).T) for v in (x, y)
    )
    return np.clip((left * right).sum(axis=0), -1, 1)
