"""How large is a difference? Effect sizes of all pairs, with bootstrap intervals.

Of runs, per data set: Vargha and Delaney's A12, Cliff's delta, Akinshin's gamma. Of means,
over data sets: the rank-biserial correlation that belongs to Wilcoxon's signed-rank test, and
Hedges' g of paired differences. All are those of the row against the column, and positive (A12:
above 1/2) where the row is the better.
"""

import dataclasses
import functools
import math

import numpy as np
import scipy.special
import scipy.stats
from jaxtyping import Float

from jbias.stats import resampling, score_table

_CONSISTENT = 1 / scipy.stats.norm.ppf(0.75)  # MAD of a normal to its deviation.


@dataclasses.dataclass(frozen=True, eq=False)
class EffectsResult:
    """Effect sizes of every ordered pair; the diagonal holds no effect."""

    datasets: tuple[str, ...]
    algorithms: tuple[str, ...]
    a12: Float[np.ndarray, "n k k"]
    cliffs_delta: Float[np.ndarray, "n k k"]  # 2 A12 - 1.
    gamma: Float[np.ndarray, "n k k"]  # inf where neither has any spread.
    a12_mean: resampling.Estimate  # (k, k), over data sets.
    cliffs_delta_mean: resampling.Estimate  # (k, k)
    gamma_median: Float[np.ndarray, "k k"]  # Over data sets.
    rank_biserial: resampling.Estimate  # (k, k)
    hedges_g: resampling.Estimate  # (k, k); of data sets, not of runs.


def effect_sizes(
    scores,
    *,
    larger_is_better: bool,
    datasets: bool = False,
    confidence: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> EffectsResult:
    """Gives the effect sizes of all pairs, with percentile intervals over redrawn runs.

    A12 = P(X > Y) + P(X = Y) / 2 (Vargha and Delaney 2000). gamma = (median X - median Y) /
    pooled MAD, Harrell and Davis' medians (Akinshin 2020). r = (W+ - W-) / (W+ + W-), no
    difference left out of the ranking (Kerby 2014, Pratt 1959). g = J(n-1) mean / std of the
    differences over data sets, J(v) = Gamma(v/2) / (sqrt(v/2) Gamma((v-1)/2)) (Hedges 1981).
    `datasets` draws data sets too; intervals of mean A12 and Cliff's delta are then widened
    (`resampling.widening`), those of r and g, which are no means, are plain percentiles and
    too short for few data sets. g is inf if all data sets differ alike, and NaN for two
    data sets, whose J(1) is 0 because the mean of g does not exist.
    Raises ValueError for single runs and missing cells.
    """
    table = score_table.read(scores)
    drawn = resampling.draw(table, draws=draws, seed=seed, datasets=datasets)
    sign = 1 if larger_is_better else -1
    a12, superior = (
        resampling.pair_matrix(x, lambda v: 1 - v, diagonal=0.5)
        for x in resampling.superiority(table, drawn, sign)
    )
    errors = score_table.mean_errors(table).T  # (k, n)
    rows, columns = np.triu_indices(len(table.algorithms), 1)
    centres = [
        _centre(sign * table.runs(name), error)
        for name, error in zip(table.algorithms, errors, strict=True)
    ]
    medians, mads = np.stack(centres, axis=1)  # (k, n)
    free = table.counts[:, None] - 1
    squares, between = free * mads**2, medians[rows] - medians[columns]
    pooled = (squares[rows] + squares[columns]) / (free[rows] + free[columns])
    with np.errstate(divide="ignore", invalid="ignore"):
        rounding = np.maximum(errors[rows], errors[columns])
        gamma = np.where(abs(between) <= rounding, 0.0, between / np.sqrt(pooled))
    gamma = resampling.pair_matrix(gamma, np.negative)

    means = sign * np.concatenate([table.means[None], drawn.means(table)])
    differences = means[:, :, rows] - means[:, :, columns]
    # What differs by rounding alone does not differ.
    cell_errors = score_table.rounding_errors(table)
    tolerance = np.maximum(cell_errors[:, rows], cell_errors[:, columns])
    tolerance = np.broadcast_to(tolerance, differences.shape)
    differences[np.abs(differences) <= tolerance] = 0
    if datasets:  # Each draw has data sets of its own, and their errors.
        tolerance = tolerance.copy()
        tolerance[1:] = drawn.picked(tolerance[1:])
    differences[1:] = drawn.picked(differences[1:])

    def paired(effect):
        found = resampling.pair_matrix(effect(differences).T, np.negative)
        return resampling.estimate(found[0], found[1:], confidence)

    num_datasets = len(table.datasets) if datasets else None
    return EffectsResult(
        datasets=table.datasets,
        algorithms=table.algorithms,
        a12=a12,
        cliffs_delta=2 * a12 - 1,
        gamma=gamma,
        a12_mean=resampling.estimate(
            a12.mean(axis=0),
            superior,
            confidence,
            num_datasets=num_datasets,
            bounds=(0, 1),
        ),
        cliffs_delta_mean=resampling.estimate(
            2 * a12.mean(axis=0) - 1,
            2 * superior - 1,
            confidence,
            num_datasets=num_datasets,
            bounds=(-1, 1),
        ),
        gamma_median=_middle(gamma),
        rank_biserial=paired(functools.partial(rank_biserial, tolerance=tolerance)),
        hedges_g=paired(hedges_g),
    )


def rank_biserial(
    differences: Float[np.ndarray, "b n p"],
    tolerance: float | Float[np.ndarray, "b n p"] = 0.0,
) -> Float[np.ndarray, "b p"]:
    """Gives (W+ - W-) / (W+ + W-) over data sets (axis 1); 0 if nothing differs.

    Sizes no further apart than `tolerance` tie, and so does 0.
    """
    # Beside a true zero, which is the lowest.
    sizes = np.pad(np.abs(np.swapaxes(differences, 1, 2)), ((0, 0), (0, 0), (1, 0)))
    errors = np.swapaxes(np.broadcast_to(tolerance, differences.shape), 1, 2)
    errors = np.pad(errors, ((0, 0), (0, 0), (1, 0)))
    levels = score_table.near_levels(sizes, errors)[:, :, 1:]
    ranks = np.where(levels == 0, 0, scipy.stats.rankdata(levels, axis=2))
    signed = np.sum(np.sign(np.swapaxes(differences, 1, 2)) * ranks, axis=2)
    total = np.sum(ranks, axis=2)
    return np.divide(signed, total, out=np.zeros_like(signed), where=total > 0)


def hedges_g(differences: Float[np.ndarray, "b n p"]) -> Float[np.ndarray, "b p"]:
    """Gives Hedges' g of differences over data sets (axis 1); 0 if nothing differs.

    NaN for two data sets: with one degree of freedom g has no mean to correct.
    """
    correction = hedges_correction(differences.shape[1] - 1)
    if math.isnan(correction):
        return np.full((len(differences), differences.shape[2]), np.nan)
    mean, std = differences.mean(axis=1), differences.std(axis=1, ddof=1)
    spread = std > 1e-9 * np.abs(mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        g = correction * mean / np.where(spread, std, 0)
    return np.where(mean == 0, 0.0, g)


def hedges_correction(degrees: int) -> float:
    """Return J(v) = Gamma(v/2) / (sqrt(v/2) Gamma((v-1)/2)), which makes Hedges' g unbiased.

    degrees: v, those of the deviation that a difference is divided by. NaN for fewer than
    2, where g has no mean to correct.
    """
    half = degrees / 2
    if half <= 0.5:
        return math.nan
    gammas = scipy.special.gammaln([half, half - 0.5])
    return float(np.exp(gammas[0] - gammas[1]) / np.sqrt(half))


def median(x: Float[np.ndarray, "... r"]) -> Float[np.ndarray, "..."]:
    """Gives Harrell and Davis' median: all order statistics, weighted by Beta's mass.

    w_i = I(i/r) - I((i-1)/r), I that of Beta((r+1)/2, (r+1)/2). Biometrika 69 (1982).
    """
    r = x.shape[-1]
    half = (r + 1) / 2
    weights = np.diff(scipy.special.betainc(half, half, np.arange(r + 1) / r))
    return np.sort(x, axis=-1) @ weights


def _middle(x: Float[np.ndarray, "n k k"]) -> Float[np.ndarray, "k k"]:
    """Gives medians over data sets; 0 between inf and -inf."""
    places = (len(x) - 1) // 2, len(x) // 2
    low, high = np.partition(x, places, axis=0)[list(places)]
    with np.errstate(invalid="ignore"):
        return np.where(low == -high, 0.0, (low + high) / 2)


def _centre(x: Float[np.ndarray, "n r"], rounding) -> tuple[np.ndarray, np.ndarray]:
    """Gives medians and median absolute deviations of every data set."""
    middle = median(x)
    mad = _CONSISTENT * median(np.abs(x - middle[:, None]))
    return middle, np.where(mad > rounding, mad, 0)
