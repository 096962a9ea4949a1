"""How much of a score's variance comes from initialisation, order of the data, augmentation.

Source: Bouthillier et al., MLSys 2021, https://arxiv.org/abs/2103.03098: a source's variance
is that of runs in which it alone varies, and sources are compared with the variance of runs
in which all vary. Effects of seeds interact, so these shares may sum to more than 1. The
variance component of a source alone, without interactions, is beside it; these sum to at
most 1, and the rest is interactions (the total and first-order indices of Sobol' 2001,
https://doi.org/10.1016/S0378-4754(00)00270-6).
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import scipy.stats
from jaxtyping import Bool, Float, Int

from jbias.stats import resampling, score_table


@dataclasses.dataclass(frozen=True, eq=False)
class SourcesResult:
    """Variances in the score's unit squared; NaN where no two runs of the table tell."""

    sources: tuple[str, ...]
    alone: resampling.Estimate  # (k,), of runs in which the source alone varies.
    total: resampling.Estimate  # (), of runs in which all vary.
    share: resampling.Estimate  # (k,), alone / total.
    component: Float[np.ndarray, "k"]  # Without interactions; may be below 0 by chance.
    noise: float  # Of runs with the same seeds.
    pairs: Int[np.ndarray, "k"]  # Runs that differ in the source alone, two by two.


def sources_of_variance(
    runs: pd.DataFrame,
    *,
    sources: Sequence[str] = ("init", "order", "augmentation"),
    score: str = "score",
    confidence: float = 0.95,
) -> SourcesResult:
    """Gives the variance of each source of randomness, by runs with designed seeds.

    The mean of (x_i - x_j)^2 / 2 over pairs of runs that differ in the source alone is
    unbiased for its variance, whatever the design: one source varied at a time, or seeds
    crossed. The total is of runs that share no seed with any other, where there are two or
    more, and else of pairs that share none. The component of a source is the total less the
    variance of runs that share that source alone, where two or more of its seeds have such
    runs; of crossed seeds it is the estimate of an analysis of variance.

    Intervals are chi-squared and F of normal scores, with as many degrees of freedom as the
    source has seeds, less 1: exact where one source varies at a time, too wide where seeds
    are crossed and effects interact.

    runs: a row a run; columns of seeds, named by `sources`, and `score`. Raises ValueError
    for columns that lack, scores that are not finite, and where no two runs differ in one
    source alone.
    """
    score_table.check_share("confidence", confidence)
    for name in (*sources, score):
        score_table.find_name(name, [*map(str, runs.columns)], "runs: columns")
    x = runs[score].to_numpy(np.float64)
    if not np.isfinite(x).all():
        raise ValueError(f"runs: {score} must be finite in every row; leave others out")
    unnamed = runs[[*sources]].isna().any()
    if unnamed.any():
        raise ValueError(
            f"runs: {unnamed.idxmax()} must name a seed in every row, got none in some; name "
            "it or leave these out"
        )
    seeds = np.stack([pd.factorize(runs[name])[0] for name in sources], axis=1)
    differ = seeds[:, None] != seeds[None]
    half = (x[:, None] - x) ** 2 / 2
    count, others = differ.sum(-1), ~np.eye(len(x), dtype=bool)

    def variance(pairs: Bool[np.ndarray, "n n"]) -> float:
        pairs = pairs & others
        return float(half[pairs].mean()) if pairs.any() else math.nan

    def freedom(pairs: Bool[np.ndarray, "n n"], k: int) -> int:
        return len(np.unique(seeds[pairs.any(1), k])) - 1

    def common(pairs: Bool[np.ndarray, "n n"], k: int) -> float:
        return variance(pairs) if freedom(pairs, k) > 0 else math.nan

    each = range(len(sources))
    single = [differ[..., k] & (count == 1) for k in each]
    shared = [~differ[..., k] & (count == len(sources) - 1) for k in each]
    if not any(pairs.any() for pairs in single):
        raise ValueError(
            "runs: some must differ in one source alone, got none; fix the others' seeds"
        )
    apart = count == len(sources)
    free = (apart | ~others).all(1)
    whole = apart & np.outer(free, free) if free.sum() > 1 else apart
    alone, total = np.array([variance(pairs) for pairs in single]), variance(whole)
    df = np.array([freedom(single[k], k) for k in each], float)
    df_total = float(min(freedom(whole, k) for k in each))
    tails = np.array([1 + confidence, 1 - confidence])[:, None] / 2

    def estimate(value, scale: Float[np.ndarray, "2 ..."]) -> resampling.Estimate:
        return resampling.Estimate(np.asarray(value), *(value * scale), confidence)

    chi2, f = scipy.stats.chi2.ppf, scipy.stats.f.ppf
    return SourcesResult(
        tuple(sources),
        estimate(alone, df / chi2(tails, df)),
        estimate(total, df_total / chi2(tails[:, 0], df_total)),
        estimate(alone / (total or math.nan), 1 / f(tails, df, df_total)),
        total - np.array([common(pairs, k) for k, pairs in enumerate(shared)]),
        variance(count == 0),
        np.array([int(pairs.sum()) // 2 for pairs in single]),
    )
