"""Confidence intervals of ranks: which places of a ranking the data allow.

Observers are ranked by scores that are ratios of sums over images (`ratios`). The true rank of
observer j is 1 + the number of observers whose true score is strictly larger, so observers with
equal scores share the best rank. Intervals are simultaneous: with probability 0.95, the
intervals of all observers contain the true rank. A percentile of ranks in bootstrap draws is not
such an interval: it misses the true rank where scores are nearly equal
(`naive_rank_percentiles`; studies.rank_coverage has its coverage).

Source: Mogstad, Romano, Shaikh and Wilhelm 2024, https://doi.org/10.1093/restud/rdad006, with the
step-down of csranks 1.2.3, the authors' package. Differences: images are drawn (the draws of
csranks are normal with a given covariance), and scores and standard errors count the four extra
images of `ratios`. Scores are computed again in every draw: with 15 to 60 decisions, linearised
draws cover less. A standard error is an estimate, too, so statistics are compared as those of
Student's t, with the number of images on which two observers differ, less 1, as degrees of freedom.
Where all scores are equal, simulated intervals still covered only 94.5 % of 1,000 studies, so the
critical value is the quantile of 96 % instead of 95 % (`_RAISED`).
"""

import dataclasses

import numpy as np
import numpy.typing as npt
import scipy.stats
from jaxtyping import Bool, Float, Int

from jbias import errors
from jbias.stats import ratios

_MIN_DRAWS = 100
# The error of the critical value, as a share of the error that the intervals may have.
_RAISED = 0.8
_CHUNK = 2**21  # Differences in memory at the same time: 16 MiB.


@dataclasses.dataclass(frozen=True, eq=False)
class RankIntervalsResult:
    """Ranks of k observers with confidence intervals; 1 is the largest score."""

    value: Float[np.ndarray, "k"]  # Scores.
    rank: Int[np.ndarray, "k"]  # 1 + number of larger scores.
    # Simultaneous: all k intervals contain the true ranks with probability `confidence`.
    lower: Int[np.ndarray, "k"]
    upper: Int[np.ndarray, "k"]
    # Marginal: each interval alone contains the true rank with probability `confidence`.
    marginal_lower: Int[np.ndarray, "k"]
    marginal_upper: Int[np.ndarray, "k"]
    # Row is significantly larger than column; simultaneous over all pairs.
    is_larger: Bool[np.ndarray, "k k"]
    confidence: float  # A fraction, such as 0.95.


def rank_intervals(
    numerator: npt.ArrayLike,
    denominator: npt.ArrayLike,
    *,
    confidence: float = 0.95,
    draws: int = 10_000,
    seed: int = 0,
) -> RankIntervalsResult:
    """Return the rank of each observer with simultaneous and marginal confidence intervals.

    For every ordered pair, t_ab = (w_a - w_b) / standard error (`ratios.compare_ratios`), and z_ab
    is the normal quantile of the probability of t_ab under Student's t (see the module). Observer a
    is significantly larger than b if z_ab exceeds the quantile 1 - 0.8 (1 - confidence) of max t*_ab
    over all ordered pairs, t*_ab = (w*_a - w_a - (w*_b - w_b)) / standard error with the scores w* in a
    bootstrap draw of images. Step-down: the quantile is computed again without the ordered pairs that are
    significant, until there are no new ones. The interval is from 1 + (number of observers that
    are significantly larger) to k - (number that are significantly smaller).
    Marginal intervals take the maximum over the pairs of one observer only.

    numerator, denominator: (k, n), k observers and n images; 0 <= numerator <= denominator. An
    observer without a row for an image has 0 in both.
    confidence: level of the intervals, such as 0.95. draws: number of bootstrap draws. seed: seed
    of the draws. An interval depends on all observers, as a rank does.
    Raise ValueError for other shapes and values, for an observer whose denominators are all 0
    (leave it out, by name), for fewer than 100 draws, and for a confidence outside (0, 1).
    """
    numerator, denominator = _read(numerator, denominator, confidence, draws)
    value = ratios.ratio(numerator.sum(axis=1), denominator.sum(axis=1))
    extended, influence = ratios.influence_values(numerator, denominator)
    # (k, k): sqrt(sum_i (r_ai - r_bi)^2).
    standard_error = np.array(
        [np.sqrt(np.sum((row - influence) ** 2, axis=1)) for row in influence]
    )
    drawn = ratios.draw_ratios(numerator, denominator, draws=draws, seed=seed)
    drawn = np.nan_to_num(drawn - extended)  # 0 for draws without a decision.
    # Pairs with the same influence values have the same score: never significant.
    scale = np.where(standard_error > 0, standard_error, np.inf)
    num_differing = np.array([np.sum(row != influence, axis=1) for row in influence])
    t = _as_normal((extended[:, None] - extended) / scale, num_differing - 1)
    # With few decisions, the extra images could turn a difference around.
    t = np.where(value[:, None] > value, t, -np.inf)
    k, level = len(value), 1 - _RAISED * (1 - confidence)
    is_larger = step_down(
        t, drawn, scale, is_tested=~np.eye(k, dtype=bool), confidence=level
    )
    marginal = np.empty((k, 2), np.int64)
    for j in range(k):
        is_tested = np.zeros((k, k), bool)
        is_tested[j], is_tested[:, j] = True, True
        is_tested[j, j] = False
        is_larger_marginal = step_down(
            t, drawn, scale, is_tested=is_tested, confidence=level
        )
        marginal[j] = rank_bounds(is_larger_marginal)[j]
    lower, upper = rank_bounds(is_larger).T
    return RankIntervalsResult(
        value=value,
        rank=1 + np.sum(value > value[:, None], axis=1),
        lower=lower,
        upper=upper,
        marginal_lower=marginal[:, 0],
        marginal_upper=marginal[:, 1],
        is_larger=is_larger,
        confidence=confidence,
    )


def _as_normal(
    t: Float[np.ndarray, "k k"], degrees: Int[np.ndarray, "k k"]
) -> Float[np.ndarray, "k k"]:
    """Return the normal quantiles of the probabilities of t under Student's t; 0 remains 0."""
    tail = scipy.stats.t.sf(np.abs(t), np.maximum(degrees, 1))
    return np.sign(t) * scipy.stats.norm.isf(tail)


def step_down(
    t: Float[np.ndarray, "k k"],
    drawn: Float[np.ndarray, "b k"],
    scale: Float[np.ndarray, "k k"],
    *,
    is_tested: Bool[np.ndarray, "k k"],
    confidence: float,
) -> Bool[np.ndarray, "k k"]:
    """Return which ordered pairs are significant: the row is larger than the column.

    t: statistic of each ordered pair, on the scale of a normal one. drawn: centred scores in each draw. scale: standard errors
    of differences. is_tested: the ordered pairs of the family.
    """
    is_larger = np.zeros_like(is_tested)
    while True:
        is_left = is_tested & ~is_larger
        if not is_left.any():
            return is_larger
        critical = np.quantile(
            _largest_differences(drawn, scale, is_left), confidence, method="higher"
        )
        is_new = is_left & (t > critical)
        if not is_new.any():
            return is_larger
        is_larger |= is_new


def _largest_differences(
    drawn: Float[np.ndarray, "b k"],
    scale: Float[np.ndarray, "k k"],
    is_left: Bool[np.ndarray, "k k"],
) -> Float[np.ndarray, "b"]:
    """Return the largest studentised difference over the ordered pairs `is_left`, per draw."""
    largest = np.full(len(drawn), -np.inf)
    for a, (columns, widths) in enumerate(zip(is_left, scale, strict=True)):
        if columns.any():
            differences = (drawn[:, [a]] - drawn[:, columns]) / widths[columns]
            np.maximum(largest, differences.max(axis=1), out=largest)
    return largest


def rank_bounds(is_larger: Bool[np.ndarray, "k k"]) -> Int[np.ndarray, "k 2"]:
    """Return the smallest and the largest rank of each observer.

    is_larger: the row is significantly larger than the column.
    """
    num_larger, num_smaller = is_larger.sum(axis=0), is_larger.sum(axis=1)
    return np.stack([1 + num_larger, len(is_larger) - num_smaller], axis=1)


def naive_rank_percentiles(
    numerator: npt.ArrayLike,
    denominator: npt.ArrayLike,
    *,
    confidence: float = 0.95,
    draws: int = 10_000,
    seed: int = 0,
) -> Int[np.ndarray, "k 2"]:
    """Return percentiles of each observer's rank in bootstrap draws of images: not an interval.

    Such percentiles are common, but do not contain the true ranks as often as `confidence` says:
    where scores are equal, draws rank the observers by chance. `rank_intervals` does.
    The arguments and errors are those of `rank_intervals`. Ranks in a draw count the strictly
    larger scores; an observer without a decision in a draw has no rank there.
    """
    numerator, denominator = _read(numerator, denominator, confidence, draws)
    ranks = []
    for weights in ratios.weight_chunks(numerator.shape[1], draws=draws, seed=seed):
        value = ratios.ratio(weights @ numerator.T, weights @ denominator.T)
        rank = 1 + np.stack(
            [np.sum(value > column[:, None], axis=1) for column in value.T], axis=1
        )
        ranks.append(np.where(np.isnan(value), np.nan, rank))
    ranks = np.vstack(ranks)
    low = np.nanquantile(ranks, (1 - confidence) / 2, axis=0, method="lower")
    high = np.nanquantile(ranks, (1 + confidence) / 2, axis=0, method="higher")
    return np.stack([low, high], axis=1).astype(np.int64)


def _read(
    numerator: npt.ArrayLike, denominator: npt.ArrayLike, confidence: float, draws: int
) -> tuple[Float[np.ndarray, "k n"], Float[np.ndarray, "k n"]]:
    """Return the arrays as float64; ValueError as `rank_intervals`."""
    numerator, denominator = ratios.read(numerator, denominator)
    errors.check_at_least("draws", draws, _MIN_DRAWS)
    errors.check_share("confidence", confidence)
    empty = np.flatnonzero(denominator.sum(axis=1) == 0)
    if len(empty):
        errors.refuse(
            "denominator",
            "be positive on an image of each observer",
            errors.Words(f"0 on all images of observer {empty[0]}"),
            "leave it out of the ranking",
        )
    return numerator, denominator
