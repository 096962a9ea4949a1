"""Sources of a score's variance: initialisation, order of the data, augmentation.

Source: Bouthillier et al., MLSys 2021, https://arxiv.org/abs/2103.03098: the variance of a source
is the variance of runs in which only this source varies, and sources are compared with the variance
of runs in which all sources vary. Effects of seeds interact, so these shares may sum to more than
1. The result also has the variance component of each source without interactions; shares of
components sum to at most 1, and the remainder is interactions (the total and first-order indices of
Sobol' 2001, https://doi.org/10.1016/S0378-4754(00)00270-6).
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import scipy.stats
from jaxtyping import Bool, Float, Int

from jbias import errors
from jbias.stats import bootstrap_intervals, score_table


@dataclasses.dataclass(frozen=True, eq=False)
class SourcesResult:
    """Variances in the squared unit of the score; NaN where no pair of runs determines them."""

    sources: tuple[str, ...]
    alone: (
        bootstrap_intervals.Estimate
    )  # (k,), of runs in which only the source varies.
    total: bootstrap_intervals.Estimate  # (), of runs in which all sources vary.
    share: bootstrap_intervals.Estimate  # (k,), alone / total.
    component: Float[np.ndarray, "k"]  # Without interactions; may be below 0 by chance.
    noise: float  # Variance of runs with the same seeds.
    pairs: Int[np.ndarray, "k"]  # Pairs of runs that differ only in the source.


def sources_of_variance(
    runs: pd.DataFrame,
    *,
    sources: Sequence[str] = ("init", "order", "augmentation"),
    score: str = "score",
    confidence: float = 0.95,
) -> SourcesResult:
    """Return the variance of each source of randomness, from runs with designed seeds.

    The mean of (x_i - x_j)^2 / 2 over pairs of runs that differ only in the source is an
    unbiased estimate of its variance for any design: one source varied at a time, or crossed
    seeds. The total is the variance of runs that share no seed with any other run, if there
    are two or more, else of pairs of runs that share no seed. The component of a source is
    the total less the variance of runs that share only the seed of that source; NaN unless there
    are such runs for two or more seeds of the source. For crossed seeds the component is the
    estimate of an analysis of variance.

    Intervals are chi-squared and F for normal scores, with the number of the source's seeds
    less 1 as degrees of freedom: exact where one source varies at a time, too wide where seeds
    are crossed and effects interact.

    runs: a frame with a row per run, a column of seeds for each source, and a column of scores.
    sources: names of the columns of seeds. score: name of the column of scores.
    confidence: level of the intervals, such as 0.95. Raise ValueError for missing columns or seeds,
    scores that are not finite, a confidence outside (0, 1), and if no two runs differ in exactly
    one source.

    With crossed seeds, the components do not include interactions, which here have the remaining
    64 % of the variance:

        >>> import itertools
        >>> random = np.random.default_rng(0)
        >>> init, order = random.normal(size=8), random.normal(size=8) / 2
        >>> runs = pd.DataFrame(itertools.product(range(8), range(8)), columns=["init", "rest"])
        >>> runs["score"] = init[runs["init"]] + order[runs["rest"]] + random.normal(size=64)
        >>> sources = stats.sources_of_variance(runs, sources=("init", "rest"))
        >>> for name, share, low, high in zip(
        ...     sources.sources, sources.share.value, sources.share.low, sources.share.high
        ... ):
        ...     print(f"{name} {share:.2f} [{low:.1f}, {high:.1f}]")
        init 0.90 [0.2, 4.5]
        rest 0.74 [0.1, 3.7]
        >>> [f"{x / sources.total.value:.2f}" for x in sources.component]
        ['0.26', '0.10']
    """
    errors.check_share("confidence", confidence)
    for name in (*sources, score):
        score_table.find_name(name, [*map(str, runs.columns)], "runs: columns")
    x = runs[score].to_numpy(np.float64)
    if not np.isfinite(x).all():
        raise ValueError(f"runs: {score} must be finite in every row; leave others out")
    has_gaps = runs[[*sources]].isna().any()
    if has_gaps.any():
        raise ValueError(
            f"runs: {has_gaps.idxmax()} must name a seed in every row, got none in some; "
            "name the seeds or leave these rows out"
        )
    seeds = np.stack([pd.factorize(runs[name])[0] for name in sources], axis=1)
    differs = seeds[:, None] != seeds[None]
    half_squares = (x[:, None] - x) ** 2 / 2
    num_differing, is_other_run = differs.sum(-1), ~np.eye(len(x), dtype=bool)

    def variance(pairs: Bool[np.ndarray, "n n"]) -> float:
        """Return the mean of (x_i - x_j)^2 / 2 over these pairs of runs; NaN without pairs."""
        pairs = pairs & is_other_run
        return float(half_squares[pairs].mean()) if pairs.any() else math.nan

    def degrees_of_freedom(pairs: Bool[np.ndarray, "n n"], k: int) -> int:
        """Return the number of distinct seeds of source k in these pairs, less 1."""
        return len(np.unique(seeds[pairs.any(1), k])) - 1

    indices = range(len(sources))
    # Pairs of runs that differ only in source k, and pairs that share only source k.
    only_differs = [differs[..., k] & (num_differing == 1) for k in indices]
    only_shared = [
        ~differs[..., k] & (num_differing == len(sources) - 1) for k in indices
    ]
    if not any(pairs.any() for pairs in only_differs):
        raise ValueError(
            "runs: some must differ in one source alone, got none; fix the others' seeds"
        )
    all_differ = num_differing == len(sources)
    shares_no_seed = (all_differ | ~is_other_run).all(1)
    total_pairs = all_differ
    if shares_no_seed.sum() > 1:
        total_pairs = all_differ & np.outer(shares_no_seed, shares_no_seed)
    alone = np.array([variance(pairs) for pairs in only_differs])
    total = variance(total_pairs)
    shared = [
        variance(only_shared[k])
        if degrees_of_freedom(only_shared[k], k) > 0
        else math.nan
        for k in indices
    ]
    df = np.array([degrees_of_freedom(only_differs[k], k) for k in indices], float)
    df_total = float(min(degrees_of_freedom(total_pairs, k) for k in indices))
    tails = np.array([1 + confidence, 1 - confidence])[:, None] / 2

    def estimate(
        value: float | Float[np.ndarray, "..."], factors: Float[np.ndarray, "2 ..."]
    ) -> bootstrap_intervals.Estimate:
        """Return the value with the interval from factors[0] * value to factors[1] * value."""
        low, high = value * factors
        return bootstrap_intervals.Estimate(np.asarray(value), low, high, confidence)

    chi2, f = scipy.stats.chi2.ppf, scipy.stats.f.ppf
    return SourcesResult(
        sources=tuple(sources),
        alone=estimate(alone, df / chi2(tails, df)),
        total=estimate(total, df_total / chi2(tails[:, 0], df_total)),
        share=estimate(alone / (total or math.nan), 1 / f(tails, df, df_total)),
        component=total - np.array(shared),
        noise=variance(num_differing == 0),
        pairs=np.array([int(pairs.sum()) // 2 for pairs in only_differs]),
    )
