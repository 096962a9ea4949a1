"""Comparison of two algorithms over seeds: P(A > B) and almost stochastic order.

`probability_of_outperforming`: Bouthillier et al., MLSys 2021,
https://arxiv.org/abs/2103.03098. The probability that A beats B with the same seed. A counts as
better only if the difference is significant and the interval of this probability reaches a
threshold (gamma).

`almost_stochastic_order`: Del Barrio, Cuesta-Albertos and Matrán 2018,
https://arxiv.org/abs/1705.01788, and Dror, Shlomov and Reichart, ACL 2019,
https://aclanthology.org/P19-1266; reference code: Kaleidophon/deep-significance at 71b9e42
(Ulmer, Hardmeier and Frellsen 2022, https://arxiv.org/abs/2204.06815).

Deviations: the integral is exact. The reference sums over a grid of 0.005 whose first point is
missing from the numerator, so that the violations in the two directions sum to less than 1. For m
comparisons, 1 - confidence is divided by m, where the reference adds it to the confidence. `better`
uses the bound of 0.2 that Ulmer et al. advise: with 0.5, a fifth of pairs of equal distributions
would be called different.
"""

import dataclasses
import math

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy.stats
from jaxtyping import Bool, Float

from jbias import errors
from jbias.stats import bootstrap_intervals, score_table

GAMMA = 0.75  # Threshold of P(A > B) that Bouthillier et al. recommend.
# Bound that Ulmer et al. recommend. With 3 to 200 runs, 2 to 8 of 100 pairs of equal
# distributions are below it.
TAU = 0.2
_MAX_LISTED = 5  # Labels that a message lists.
_RTOL = 1e-12  # Smaller relative differences of scores are due to rounding.


@dataclasses.dataclass(frozen=True, eq=False)
class OutperformingResult:
    """P(A > B) per data set, and averaged over data sets; A and B are two algorithms."""

    share: (
        bootstrap_intervals.Estimate
    )  # (n,), with Clopper and Pearson's exact interval.
    # (), with a percentile interval over redrawn pairs; NaN ends with few pairs.
    mean: bootstrap_intervals.Estimate
    pairs: int  # Pairs of runs with the same seed.
    gamma: float

    @property
    def significant(self) -> Bool[np.ndarray, "n"]:
        """True for data sets whose interval is above 1/2."""
        return self.share.low > 0.5

    @property
    def better(self) -> Bool[np.ndarray, "n"]:
        """True for data sets that are significant and whose interval reaches gamma."""
        return self.significant & (self.share.high >= self.gamma)


def probability_of_outperforming(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    *,
    larger_is_better: bool,
    gamma: float = GAMMA,
    confidence: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> OutperformingResult:
    """Return P(A > B): the probability that the first beats the second with the same seed.

    P(A > B) = mean_i [a_i > b_i] over the r pairs, from 0 to 1; a tie is not a win. The
    interval of each data set is exact; Bouthillier et al. redraw pairs, which gives an empty
    interval if all pairs are won. The interval of the mean is the percentile interval over
    redrawn pairs, the same for all data sets, and NaN if winning all pairs may be chance
    (5 pairs or fewer at 95 %). The first is better on a data set if the interval is above 0.5
    and reaches `gamma`; if the interval is above 0.5 only, the difference is significant but not
    meaningful. `pairs_for_outperforming` returns the number of pairs that such a test needs.

    first, second: scores with a row per data set and a column per seed, or a row of scores on
    a single data set, with the seeds in the same order. Two frames, or series, are paired by
    the labels of their data sets and seeds, which must be the same; a frame whose index is
    named run, or whose columns are named dataset, is transposed first.
    confidence: level of the intervals, such as 0.95. draws: number of bootstrap draws.
    Raise ValueError for other shapes or labels, frames of several algorithms, fewer than 2
    pairs, scores that are not finite, fewer than 100 draws, and a gamma or confidence outside
    (0, 1).

        >>> debiased, plain = runs.runs("Debiased"), runs.runs("ERM")
        >>> won = stats.probability_of_outperforming(debiased, plain, larger_is_better=True)
        >>> f"{won.mean.value:.2f} [{won.mean.low:.2f}, {won.mean.high:.2f}]"
        '0.95 [0.92, 0.98]'
        >>> [d for d, is_better in zip(runs.datasets, won.better) if not is_better]
        ['Silhouette', 'Edge']
    """
    errors.check_share("gamma", gamma)
    errors.check_at_least("draws", draws, 100)
    a, b = _read_scores(first, second, larger_is_better=larger_is_better, paired=True)
    wins, r = (_difference(a, b) > 0).astype(float), a.shape[1]
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(r, np.full(r, 1 / r), size=draws) @ wins.T / r
    mean = bootstrap_intervals.estimate(wins.mean(), drawn.mean(1), confidence)
    tail = (1 - confidence) / 2
    if 0.5**r > tail:
        mean = dataclasses.replace(mean, low=np.array(np.nan), high=np.array(np.nan))
    num_won = wins.sum(1)
    low = scipy.stats.beta.ppf(tail, num_won, r - num_won + 1)
    high = scipy.stats.beta.isf(tail, num_won + 1, r - num_won)
    share = bootstrap_intervals.Estimate(
        value=wins.mean(1),
        low=np.where(num_won > 0, low, 0),
        high=np.where(num_won < r, high, 1),
        confidence=confidence,
    )
    return OutperformingResult(share=share, mean=mean, pairs=r, gamma=gamma)


def pairs_for_outperforming(
    *, gamma: float = GAMMA, alpha: float = 0.05, power: float = 0.95
) -> int:
    """Return the number of pairs of seeds that a one-sided test of P(A > B) = 0.5 needs.

    gamma: true P(A > B). alpha, power: level and power of the test. The number is
    ((z(1 - alpha) + z(power)) / (sqrt(6) (gamma - 0.5)))^2, rounded up: 29 by default.
    Raise ValueError for a gamma outside (0.5, 1), and an alpha or power outside (0, 1).
    Source: Noether 1987, https://doi.org/10.1080/01621459.1987.10478478.
    """
    for name, value in (("gamma", gamma), ("alpha", alpha), ("power", power)):
        errors.check_share(name, value)
    errors.check(gamma > 0.5, "gamma", "be above 0.5", gamma)
    z = scipy.stats.norm.isf(alpha) + scipy.stats.norm.ppf(power)
    return math.ceil((z / (math.sqrt(6) * (gamma - 0.5))) ** 2)


@dataclasses.dataclass(frozen=True, eq=False)
class StochasticOrderResult:
    """The violation of "the first is stochastically larger than the second", per data set."""

    violation: Float[np.ndarray, "n"]  # 0: first ahead at all quantiles; 1: at none.
    bound: Float[
        np.ndarray, "n"
    ]  # Upper confidence bound of the violation, epsilon_min.

    @property
    def better(self) -> Bool[np.ndarray, "n"]:
        """True for data sets whose bound is below `TAU`."""
        return self.bound < TAU


def almost_stochastic_order(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    *,
    larger_is_better: bool,
    confidence: float = 0.95,
    comparisons: int = 1,
    draws: int = 1000,
    seed: int = 0,
) -> StochasticOrderResult:
    """Return the violation of the stochastic order "first larger than second", per data set.

    violation = int max(G^-1 - F^-1, 0)^2 dt / int (G^-1 - F^-1)^2 dt, F and G the empirical
    distributions of first and second; 0.5 where F = G. bound = violation + sd* z, clipped to
    [0, 1], with sd* the standard deviation of the violation over redrawn runs, the same runs
    for all data sets, and z the normal quantile of 1 - (1 - confidence) / comparisons. The
    bound is descriptive, not a test at that level: sd* is 0 if the scores of the two algorithms do
    not overlap, and the violation is not normal where F = G.

    first, second: scores with a row per data set and a column per run, or a row of scores on a
    single data set; runs need not share seeds. Rows of two frames are paired by their labels,
    and frames are transposed as in `probability_of_outperforming`.
    confidence: level of the bound, such as 0.95. comparisons: m, the number of comparisons for
    which all bounds hold jointly.
    draws: number of bootstrap draws.
    Raise ValueError for other shapes or data sets, fewer than 2 runs, scores that are not finite,
    fewer than 100 draws or 1 comparison, and a confidence outside (0, 1).

        >>> debiased, plain = runs.runs("Debiased"), runs.runs("ERM")
        >>> order = stats.almost_stochastic_order(
        ...     debiased, plain, larger_is_better=True, comparisons=10
        ... )
        >>> int(order.better.sum()), len(order.better)
        (9, 10)
    """
    errors.check_share("confidence", confidence)
    errors.check_at_least("comparisons", comparisons)
    errors.check_at_least("draws", draws, 100)
    a, b = _read_scores(first, second, larger_is_better=larger_is_better, paired=False)
    rng = np.random.default_rng(seed)
    a_runs = rng.integers(a.shape[1], size=(draws, a.shape[1]))
    b_runs = rng.integers(b.shape[1], size=(draws, b.shape[1]))
    violation = _violation(a, b)
    z = scipy.stats.norm.isf((1 - confidence) / comparisons)
    bound = violation + z * _violation(a[:, a_runs], b[:, b_runs]).std(axis=1)
    return StochasticOrderResult(violation, np.clip(bound, 0, 1))


def _violation(
    first: Float[np.ndarray, "*n r"], second: Float[np.ndarray, "*n s"]
) -> Float[np.ndarray, "*n"]:
    """Return the violation ratio of the order "first above second", over the last axis.

    From 0, no violation, to 1; 0.5 where first and second are equal.
    """
    r, s = first.shape[-1], second.shape[-1]
    # Quantile functions are steps; ends of steps in units of 1 / (r s).
    ends = np.union1d(s * np.arange(1, r + 1), r * np.arange(1, s + 1))
    f = np.sort(first, axis=-1)[..., (ends - 1) // s]
    g = np.sort(second, axis=-1)[..., (ends - 1) // r]
    deficit = _difference(g, f)
    squares = np.diff(ends, prepend=0) * deficit**2
    total = squares.sum(-1)
    violated = np.where(deficit > 0, squares, 0).sum(-1)
    return np.divide(violated, total, out=np.full(total.shape, 0.5), where=total > 0)


def _difference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return x - y, and 0 where x and y differ only by rounding."""
    return np.where(np.isclose(x, y, rtol=_RTOL, atol=0), 0.0, x - y)


def _datasets_as_rows(scores: npt.ArrayLike) -> npt.ArrayLike:
    """Return scores with a row per data set; an array is returned unchanged.

    A frame is transposed if its index is named like runs, or its columns like data sets (see
    `score_table.axis_meaning`). A series becomes a frame with one row.
    Raise ValueError for a frame whose rows or columns are algorithms.
    """
    if isinstance(scores, pd.Series):
        return scores.to_frame().T
    if not isinstance(scores, pd.DataFrame):
        return scores
    rows, columns = map(
        score_table.axis_meaning, (scores.index.name, scores.columns.name)
    )
    if "algorithm" in (rows, columns):
        raise ValueError(
            "first and second: must be the scores of one algorithm each, a row a data "
            "set, got a frame of several algorithms; give frame.loc[NAME]"
        )
    return scores.T if rows == "run" or columns == "dataset" else scores


def _align(
    first: pd.DataFrame, second: pd.DataFrame, *, paired: bool
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the frames with the rows, and if paired the columns, in the order of the first.

    Rows are data sets, and columns are runs.
    Raise ValueError as `_find_labels` does for the labels of data sets and of paired runs.
    The label of a single row is ignored: the name of a series may be an algorithm's name.
    """
    if len(first) > 1 or len(second) > 1:
        order = _find_labels(first.index, second.index, "data sets")
        second = second.iloc[order]
    if paired:
        order = _find_labels(first.columns, second.columns, "runs")
        second = second.iloc[:, order]
    return first, second


def _find_labels(first: pd.Index, second: pd.Index, noun: str) -> np.ndarray:
    """Return the position in `second` of each label of `first`.

    noun: name of the labels in messages, "data sets" or "runs". Indexes that are equal, also with
    repeated labels, have the positions 0, 1, ... Raise ValueError unless the indexes are equal, or
    have the same labels in another order, each label once.
    """
    if first.equals(second):
        return np.arange(len(second))
    if first.is_unique and second.is_unique and len(first) == len(second):
        order = second.get_indexer(first)
        if (order >= 0).all():
            return order
    shown = [", ".join(map(str, labels[:_MAX_LISTED])) for labels in (first, second)]
    raise ValueError(
        f"first and second: must have the same {noun}, each once, got {shown[0]} and "
        f"{shown[1]}; keep what both have, or give arrays in the same order"
    )


def _read_scores(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    *,
    larger_is_better: bool,
    paired: bool,
) -> tuple[Float[np.ndarray, "n r"], Float[np.ndarray, "n s"]]:
    """Return the scores of two algorithms with a row per data set, negated if smaller is better.

    Arguments: see `almost_stochastic_order`. paired: columns must be the same runs.
    Raise ValueError for scores that are not finite, fewer than 2 runs, more than 2 axes, labels
    that `_align` refuses, another number of data sets, and if paired another number of runs.
    """
    first, second = _datasets_as_rows(first), _datasets_as_rows(second)
    if isinstance(first, pd.DataFrame) and isinstance(second, pd.DataFrame):
        first, second = _align(first, second, paired=paired)
    a, b = (np.atleast_2d(score_table.floats(scores)) for scores in (first, second))
    have_same_shape = a.shape == b.shape if paired else a.shape[:-1] == b.shape[:-1]
    has_runs = min(a.shape[-1], b.shape[-1]) >= 2
    is_finite = np.isfinite(a).all() and np.isfinite(b).all()
    if a.ndim > 2 or not (have_same_shape and has_runs and is_finite):
        which = "both of the same seeds" if paired else "each an algorithm's"
        raise ValueError(
            "first and second: must be finite scores, a row a data set, with 2 or more "
            f"runs, {which}, got shapes {a.shape} and {b.shape}; keep what both have"
        )
    return (a, b) if larger_is_better else (-a, -b)
