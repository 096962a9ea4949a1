"""Effect sizes of all pairs of algorithms, with bootstrap intervals.

From runs, per data set: Vargha and Delaney's A12, Cliff's delta, Akinshin's gamma. From means,
over data sets: the rank-biserial correlation that belongs to Wilcoxon's signed-rank test, and
Hedges' g of paired differences. All effect sizes compare the row with the column, and are positive
(A12: above 1/2) where the row is better.
"""

import dataclasses
import math

import numpy as np
import scipy.special
import scipy.stats
from jaxtyping import Float

from jbias.stats import bootstrap_intervals, score_table

_MAD_TO_DEVIATION = 1 / scipy.stats.norm.ppf(0.75)  # Of a normal distribution.


@dataclasses.dataclass(frozen=True, eq=False)
class EffectsResult:
    """Effect sizes of every ordered pair (row against column); the diagonal is 0 (A12: 1/2)."""

    datasets: tuple[str, ...]
    algorithms: tuple[str, ...]
    a12: Float[np.ndarray, "n k k"]
    cliffs_delta: Float[np.ndarray, "n k k"]  # 2 A12 - 1.
    gamma: Float[np.ndarray, "n k k"]  # inf where neither algorithm has any spread.
    a12_mean: bootstrap_intervals.Estimate  # (k, k), over data sets.
    cliffs_delta_mean: bootstrap_intervals.Estimate  # (k, k)
    gamma_median: Float[np.ndarray, "k k"]  # Over data sets.
    rank_biserial: bootstrap_intervals.Estimate  # (k, k)
    hedges_g: bootstrap_intervals.Estimate  # (k, k); of data sets, not of runs.


def effect_sizes(
    scores: score_table.TableOfRuns,
    *,
    larger_is_better: bool,
    datasets: bool = False,
    confidence: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> EffectsResult:
    """Return the effect sizes of all pairs, with percentile intervals over redrawn runs.

    A12 = P(X > Y) + P(X = Y) / 2 (Vargha and Delaney 2000). gamma = (median X - median Y) /
    pooled MAD, with Harrell and Davis' medians (Akinshin 2020); 0 for equal medians, and inf for
    unequal medians if both MADs are 0. r = (W+ - W-) / (W+ + W-), zero differences included in the
    ranking (Kerby 2014, Pratt 1959). g = J(n-1) mean / std of the differences over data sets,
    J(v) = Gamma(v/2) / (sqrt(v/2) Gamma((v-1)/2)) (Hedges 1981). g is inf if the difference is the
    same on all data sets, and NaN for two data sets: J(1) is 0 because the mean of g does not
    exist.

    scores: see `score_table.read`; with several runs.
    datasets: whether to draw data sets, too. Intervals of mean A12 and Cliff's delta are then
    widened (`bootstrap_intervals.widening`). Intervals of r and g, which are not means, are percentiles
    and too short for few data sets.
    confidence: level of the intervals, such as 0.95. draws: number of bootstrap draws.
    Raise ValueError for single runs, missing cells, fewer than 100 draws and a confidence outside
    (0, 1).
    """
    table = score_table.read(scores)
    drawn = bootstrap_intervals.draw(table, draws=draws, seed=seed, datasets=datasets)
    sign = 1 if larger_is_better else -1
    a12, drawn_a12 = (
        bootstrap_intervals.pair_matrix(x, lambda v: 1 - v, diagonal=0.5)
        for x in bootstrap_intervals.superiority(table, drawn, sign)
    )
    errors = score_table.mean_errors(table).T  # (k, n)
    rows, columns = np.triu_indices(len(table.algorithms), 1)
    centres = [
        _median_and_mad(sign * table.runs(name), error)
        for name, error in zip(table.algorithms, errors, strict=True)
    ]
    medians, mads = np.stack(centres, axis=1)  # (k, n)
    degrees = table.counts[:, None] - 1
    squares, between = degrees * mads**2, medians[rows] - medians[columns]
    pooled = (squares[rows] + squares[columns]) / (degrees[rows] + degrees[columns])
    with np.errstate(divide="ignore", invalid="ignore"):
        rounding = np.maximum(errors[rows], errors[columns])
        gamma = np.where(abs(between) <= rounding, 0.0, between / np.sqrt(pooled))
    gamma = bootstrap_intervals.pair_matrix(gamma, np.negative)

    means = sign * np.concatenate([table.means[None], drawn.means(table)])
    differences = means[:, :, rows] - means[:, :, columns]
    # Differences that are due to rounding alone count as 0.
    cell_errors = score_table.rounding_errors(table)
    tolerance = np.maximum(cell_errors[:, rows], cell_errors[:, columns])
    tolerance = np.broadcast_to(tolerance, differences.shape)
    differences[np.abs(differences) <= tolerance] = 0
    if datasets:  # Each draw has its own data sets, with the errors of these.
        tolerance = tolerance.copy()
        tolerance[1:] = drawn.pick_datasets(tolerance[1:])
    differences[1:] = drawn.pick_datasets(differences[1:])

    def estimate_over_datasets(
        effects: Float[np.ndarray, "b p"],
    ) -> bootstrap_intervals.Estimate:
        """Return the first row (the effects in the table) with percentiles of the other rows.

        effects: a row for the table and for each draw, a column for each of the p pairs i < j.
        The estimate has the shape (k, k); a pair in reverse order has the effect with the
        opposite sign. The level of the interval is `confidence` of the enclosing call.
        """
        matrices = bootstrap_intervals.pair_matrix(effects.T, np.negative)
        return bootstrap_intervals.estimate(matrices[0], matrices[1:], confidence)

    num_datasets = len(table.datasets) if datasets else None
    return EffectsResult(
        datasets=table.datasets,
        algorithms=table.algorithms,
        a12=a12,
        cliffs_delta=2 * a12 - 1,
        gamma=gamma,
        a12_mean=bootstrap_intervals.estimate(
            a12.mean(axis=0),
            drawn_a12,
            confidence,
            num_datasets=num_datasets,
            bounds=(0, 1),
        ),
        cliffs_delta_mean=bootstrap_intervals.estimate(
            2 * a12.mean(axis=0) - 1,
            2 * drawn_a12 - 1,
            confidence,
            num_datasets=num_datasets,
            bounds=(-1, 1),
        ),
        gamma_median=_median_over_datasets(gamma),
        rank_biserial=estimate_over_datasets(rank_biserial(differences, tolerance)),
        hedges_g=estimate_over_datasets(hedges_g(differences)),
    )


def rank_biserial(
    differences: Float[np.ndarray, "b n p"],
    tolerance: float | Float[np.ndarray, "b n p"] = 0.0,
) -> Float[np.ndarray, "b p"]:
    """Return the rank-biserial correlation of differences over data sets (axis 1).

    (W+ - W-) / (W+ + W-), W+ and W- the sums of the ranks of positive and negative
    differences by absolute value, with zeros included in the ranking; 0 if all differences are 0.
    Absolute differences no further apart than `tolerance` tie, also with 0.
    """
    # A true zero is added as the lowest size of each row, so that small sizes tie with it.
    sizes = np.pad(np.abs(np.swapaxes(differences, 1, 2)), ((0, 0), (0, 0), (1, 0)))
    errors = np.swapaxes(np.broadcast_to(tolerance, differences.shape), 1, 2)
    errors = np.pad(errors, ((0, 0), (0, 0), (1, 0)))
    levels = score_table.near_levels(sizes, errors)[:, :, 1:]
    ranks = np.where(levels == 0, 0, scipy.stats.rankdata(levels, axis=2))
    signed = np.sum(np.sign(np.swapaxes(differences, 1, 2)) * ranks, axis=2)
    total = np.sum(ranks, axis=2)
    return np.divide(signed, total, out=np.zeros_like(signed), where=total > 0)


def hedges_g(differences: Float[np.ndarray, "b n p"]) -> Float[np.ndarray, "b p"]:
    """Return Hedges' g of differences over data sets (axis 1); 0 if the mean difference is 0.

    inf or -inf if all differences are equal, and not 0.
    NaN for two data sets: with one degree of freedom the mean of g does not exist, so the bias
    cannot be corrected.
    """
    correction = hedges_correction(differences.shape[1] - 1)
    if math.isnan(correction):
        return np.full((len(differences), differences.shape[2]), np.nan)
    mean, std = differences.mean(axis=1), differences.std(axis=1, ddof=1)
    has_spread = std > 1e-9 * np.abs(mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        g = correction * mean / np.where(has_spread, std, 0)
    return np.where(mean == 0, 0.0, g)


def hedges_correction(degrees: int) -> float:
    """Return J(v) = Gamma(v/2) / (sqrt(v/2) Gamma((v-1)/2)), which makes Hedges' g unbiased.

    degrees: v, the degrees of freedom of the standard deviation in the denominator. NaN for fewer
    than 2, because the mean of g does not exist.
    """
    half = degrees / 2
    if half <= 0.5:
        return math.nan
    gammas = scipy.special.gammaln([half, half - 0.5])
    return float(np.exp(gammas[0] - gammas[1]) / np.sqrt(half))


def median(x: Float[np.ndarray, "... r"]) -> Float[np.ndarray, "..."]:
    """Return Harrell and Davis' median over the last axis: a weighted sum of the sorted values.

    Weights w_i = I(i/r) - I((i-1)/r), I the distribution function of Beta((r+1)/2, (r+1)/2).
    Biometrika 69 (1982).
    """
    r = x.shape[-1]
    half = (r + 1) / 2
    weights = np.diff(scipy.special.betainc(half, half, np.arange(r + 1) / r))
    return np.sort(x, axis=-1) @ weights


def _median_over_datasets(x: Float[np.ndarray, "n k k"]) -> Float[np.ndarray, "k k"]:
    """Return the median over data sets of each pair; the midpoint of inf and -inf is 0."""
    places = (len(x) - 1) // 2, len(x) // 2
    low, high = np.partition(x, places, axis=0)[list(places)]
    with np.errstate(invalid="ignore"):
        return np.where(low == -high, 0.0, (low + high) / 2)


def _median_and_mad(
    x: Float[np.ndarray, "n r"], rounding: Float[np.ndarray, "n"]
) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """Return the median and the median absolute deviation (MAD) of the runs, per data set.

    The MAD is scaled to equal the standard deviation of a normal distribution. It is 0 if it
    is no larger than `rounding`, the rounding error of the scores.
    """
    middle = median(x)
    mad = _MAD_TO_DEVIATION * median(np.abs(x - middle[:, None]))
    return middle, np.where(mad > rounding, mad, 0)
