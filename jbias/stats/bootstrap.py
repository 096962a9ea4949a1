"""Bootstrap intervals of means, aggregates, profiles and pairs, and the stability of rankings.

Runs are resampled as in `bootstrap_intervals`. Aggregates and profiles follow Agarwal, Schwarzer,
Castro, Courville and Bellemare 2021, https://arxiv.org/abs/2108.13264 (rliable). Deviation: rliable
resamples the runs of each task separately; here a run is one model, resampled for all
data sets together.

Percentile intervals over few runs are too short. The intervals are widened only where data sets are
drawn, too: see `bootstrap_intervals`.

A Friedman test treats means over runs as exact. `rank_stability` resamples the runs, then
ranks and tests each resample like the table itself. Resamples vary around the observed
means, so the result shows how much seeds can change a ranking, not which ranking is true.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import scipy.stats
from jaxtyping import Float

from jbias import errors as caller_errors
from jbias.stats import bootstrap_intervals, posthoc, score_table

Bounds = Sequence[tuple[float, float]]  # (worst, best) score of each data set.


@dataclasses.dataclass(frozen=True, eq=False)
class IntervalsResult:
    """Means and aggregates with percentile intervals, in the order of the table."""

    datasets: tuple[str, ...]
    algorithms: tuple[str, ...]
    cells: (
        bootstrap_intervals.Estimate
    )  # (n, k), means over runs, in the unit of the scores.
    mean: bootstrap_intervals.Estimate  # (k,), mean over data sets, in that unit.
    iqm: (
        bootstrap_intervals.Estimate
    )  # (k,), of normalised scores: 0 the worst, 1 the best.
    optimality_gap: bootstrap_intervals.Estimate  # (k,), normalised; smaller is better.
    bounds: Float[np.ndarray, "n 2"]  # (worst, best) score of every data set.


@dataclasses.dataclass(frozen=True, eq=False)
class ProfilesResult:
    """Performance profiles: shares of scores (runs times data sets) that reach a threshold."""

    algorithms: tuple[str, ...]
    thresholds: Float[np.ndarray, "t"]  # Of normalised scores.
    share: bootstrap_intervals.Estimate  # (k, t), with pointwise intervals.
    bounds: Float[np.ndarray, "n 2"]  # (worst, best) score of every data set.


@dataclasses.dataclass(frozen=True, eq=False)
class PairsResult:
    """A statistic of every ordered pair (row against column), with its interval."""

    algorithms: tuple[str, ...]
    pairs: bootstrap_intervals.Estimate  # (k, k)
    better: Float[
        np.ndarray, "k k"
    ]  # Share of draws in which the row beats the column.


def intervals(
    scores: score_table.TableOfRuns,
    *,
    larger_is_better: bool,
    bounds: Bounds | None = None,
    datasets: bool = False,
    confidence: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> IntervalsResult:
    """Return the mean of each cell, and the mean, IQM and optimality gap of each algorithm.

    A normalised score is (x - worst) / (best - worst) on its data set. IQM: mean of the
    middle half of all normalised scores. Optimality gap: mean of 1 - min(x, 1).

    scores: see `score_table.read`; with several runs.
    bounds: (worst, best) score of each data set. None: the worst and the best run on each
    data set; the gap is then 1 minus the normalised mean.
    datasets: whether to draw data sets, too, except for intervals of cells. Intervals over drawn
    data sets are widened, and cut at the possible values: 0 and 1 for IQM and gap, and the lowest
    and the highest number in `bounds` for the mean. A score worse than its bounds removes the worse
    limit of all three; a score better than its bounds removes the better limit of IQM and mean.
    Without `bounds`, the interval of the mean is not cut.
    confidence: level of the intervals, such as 0.95. draws: number of bootstrap draws. seed: seed
    of the draws.
    Raise ValueError for single runs, missing cells, fewer than 100 draws, a confidence outside
    (0, 1), and bounds that are not one finite pair per data set with the best better than the
    worst.
    """
    table = score_table.read(scores)
    drawn = bootstrap_intervals.draw(table, draws=draws, seed=seed, datasets=datasets)
    limits, normal = _normalised(table, bounds, larger_is_better)
    drawn_cells = drawn.means(table)
    iqm, drawn_iqm, gap, drawn_gap = [], [], [], []
    for values, counts in zip(normal, drawn.runs, strict=True):
        x = values[:, : counts.shape[1]]
        ones = np.ones((1, *x.shape))
        weights = drawn.datasets[:, :, None] * counts[:, None, :]
        shortfall = 1 - np.minimum(x, 1)
        iqm.append(_iqm(x, ones)[0])
        drawn_iqm.append(_iqm(x, weights))
        gap.append(shortfall.mean())
        drawn_gap.append(np.einsum("bnr,nr->b", weights, shortfall) / x.size)
    possible = _normalised_range(normal)
    mean_range = (-np.inf, np.inf) if bounds is None else _mean_range(limits, possible)
    num_datasets = len(table.datasets) if datasets else None
    return IntervalsResult(
        datasets=table.datasets,
        algorithms=table.algorithms,
        cells=bootstrap_intervals.estimate(table.means, drawn_cells, confidence),
        mean=bootstrap_intervals.estimate(
            table.means.mean(axis=0),
            drawn.over_datasets(drawn_cells),
            confidence,
            num_datasets=num_datasets,
            bounds=mean_range,
        ),
        iqm=bootstrap_intervals.estimate(
            np.array(iqm),
            np.stack(drawn_iqm, axis=1),
            confidence,
            num_datasets=num_datasets,
            bounds=possible,
        ),
        optimality_gap=bootstrap_intervals.estimate(
            np.array(gap),
            np.stack(drawn_gap, axis=1),
            confidence,
            num_datasets=num_datasets,
            # The largest possible gap is 1 less the lowest normalised score.
            bounds=(0.0, 1 - possible[0]),
        ),
        bounds=limits,
    )


def _normalised_range(normal: Float[np.ndarray, "k n r"]) -> tuple[float, float]:
    """Return (lowest, highest) possible normalised score: 0 and 1, or -inf and inf.

    The lowest score is -inf if a score is below 0, and the highest is inf if a score is above 1.
    normal: normalised scores.
    """
    return (
        0.0 if np.nanmin(normal) >= 0 else -np.inf,
        1.0 if np.nanmax(normal) <= 1 else np.inf,
    )


def _mean_range(
    limits: Float[np.ndarray, "n 2"], normalised_range: tuple[float, float]
) -> tuple[float, float]:
    """Return (lowest, highest) possible mean over data sets, in the unit of the scores.

    limits: (worst, best) score of each data set. normalised_range: result of `_normalised_range`.
    If an end of this range is infinite, the mean has no limit on that side.
    """
    worst, best = limits.T
    is_worst_end, is_best_end = np.isfinite(normalised_range)
    if best[0] > worst[0]:
        low = worst.min() if is_worst_end else -np.inf
        high = best.max() if is_best_end else np.inf
    else:
        low = best.min() if is_best_end else -np.inf
        high = worst.max() if is_worst_end else np.inf
    return float(low), float(high)


def performance_profiles(
    scores: score_table.TableOfRuns,
    *,
    larger_is_better: bool,
    thresholds: Sequence[float] | None = None,
    bounds: Bounds | None = None,
    datasets: bool = False,
    confidence: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> ProfilesResult:
    """Return the share of each algorithm's normalised scores that are at least t, per threshold t.

    A score is the result of a run on a data set. If the curve of algorithm A is above the curve of
    algorithm B at all thresholds, A is stochastically better.
    thresholds: normalised scores; None: 51 values from 0 to 1.
    scores, bounds, confidence, draws: see `intervals`, which normalises in the same way.
    datasets: whether to draw data sets, too.
    Raise ValueError as `intervals` does, and for thresholds that are not finite.
    """
    table = score_table.read(scores)
    drawn = bootstrap_intervals.draw(table, draws=draws, seed=seed, datasets=datasets)
    limits, normal = _normalised(table, bounds, larger_is_better)
    grid = np.linspace(0, 1, 51) if thresholds is None else np.asarray(thresholds)
    caller_errors.check(
        np.isfinite(grid).all(), "thresholds", "be finite numbers", thresholds
    )
    shares, drawn_shares = [], []
    for j, counts in enumerate(drawn.runs):
        is_reached = normal[j][:, : counts.shape[1], None] >= grid
        shares.append(is_reached.mean(axis=(0, 1)))
        by_dataset = np.einsum("br,nrt->bnt", counts, is_reached.astype(np.float64))
        drawn_shares.append(drawn.over_datasets(by_dataset) / counts.shape[1])
    share = bootstrap_intervals.estimate(
        np.stack(shares),
        np.stack(drawn_shares, axis=1),
        confidence,
        num_datasets=len(table.datasets) if datasets else None,
        bounds=(0, 1),
    )
    return ProfilesResult(
        algorithms=table.algorithms, thresholds=grid, share=share, bounds=limits
    )


def probability_of_improvement(
    scores: score_table.TableOfRuns,
    *,
    larger_is_better: bool,
    datasets: bool = False,
    confidence: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> PairsResult:
    """Return, for each pair of algorithms, P(a run of the row beats a run of the column).

    P(X > Y) + P(X = Y) / 2 over all pairs of runs, averaged over data sets: the mean of
    Vargha and Delaney's A12. Exchanging row and column gives 1 minus the value.
    scores: see `score_table.read`; with several runs. datasets: whether to draw data sets, too.
    confidence: level of the intervals, such as 0.95. draws: number of bootstrap draws.
    Raise ValueError for single runs, missing cells, fewer than 100 draws and a confidence outside
    (0, 1).
    """
    table = score_table.read(scores)
    drawn = bootstrap_intervals.draw(table, draws=draws, seed=seed, datasets=datasets)
    sign = 1 if larger_is_better else -1
    by_dataset, drawn_means = bootstrap_intervals.superiority(table, drawn, sign)
    return _pairs(
        table,
        by_dataset.mean(axis=1),
        drawn_means.T,
        even=0.5,
        rounding=1e-12,
        confidence=confidence,
        num_datasets=len(table.datasets) if datasets else None,
        bounds=(0, 1),
    )


def mean_differences(
    scores: score_table.TableOfRuns,
    *,
    larger_is_better: bool,
    datasets: bool = False,
    confidence: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> PairsResult:
    """Return, for each pair of algorithms, the mean difference of their scores over data sets.

    The difference is the row less the column, in the unit of the scores. If smaller scores are
    better, the difference is the column less the row: positive values mean that the row is better.
    If only runs are redrawn, intervals are percentiles, and too short for few runs
    (`bootstrap_intervals.percentile_coverage`).
    scores: see `score_table.read`; with several runs.
    datasets: whether to draw data sets, too (a hierarchical bootstrap). `better` is then the
    probability that the row wins with new seeds on new data sets of the same kind. Percentiles are
    widened according to Student's t (`bootstrap_intervals.widening`). Without widening, nominal 95 %
    intervals covered the difference in 85 to 94 % of cases with 5 to 20 data sets.
    confidence: level of the intervals, such as 0.95. draws: number of bootstrap draws.
    Raise ValueError for single runs, missing cells, fewer than 100 draws and a confidence outside
    (0, 1).
    """
    table = score_table.read(scores)
    drawn = bootstrap_intervals.draw(table, draws=draws, seed=seed, datasets=datasets)
    sign = 1 if larger_is_better else -1
    rows, columns = np.triu_indices(len(table.algorithms), 1)
    drawn_means = sign * drawn.over_datasets(drawn.means(table))
    means = sign * table.means.mean(axis=0)
    errors = score_table.mean_errors(table).max(axis=0)
    rounding = np.maximum(errors[rows], errors[columns])
    return _pairs(
        table,
        means[rows] - means[columns],
        drawn_means[:, rows] - drawn_means[:, columns],
        even=0.0,
        rounding=rounding,
        confidence=confidence,
        num_datasets=len(table.datasets) if datasets else None,
    )


def _pairs(
    table: score_table.Scores,
    value: Float[np.ndarray, "p"],
    drawn: Float[np.ndarray, "b p"],
    *,
    even: float,
    rounding: float | Float[np.ndarray, "p"],
    confidence: float,
    num_datasets: int | None,
    bounds: tuple[float, float] = (-np.inf, np.inf),
) -> PairsResult:
    """Return a PairsResult, filled from the statistic of the p pairs i < j.

    value, drawn: the statistic in the table and in each draw. even: value of the statistic if
    neither algorithm is better; the pair (j, i) has the value 2 even - value. A draw
    within `rounding` of `even` counts as half a win.
    confidence, num_datasets, bounds: see `bootstrap_intervals.estimate`.
    """
    upper = bootstrap_intervals.estimate(
        value, drawn, confidence, num_datasets=num_datasets, bounds=bounds
    )
    off = drawn - even
    better = (off > rounding).mean(axis=0) + (abs(off) <= rounding).mean(axis=0) / 2
    return PairsResult(
        algorithms=table.algorithms,
        pairs=bootstrap_intervals.pair_estimate(
            upper, lambda v: 2 * even - v, diagonal=even
        ),
        better=bootstrap_intervals.pair_matrix(better, lambda v: 1 - v, diagonal=0.5),
    )


def _normalised(
    table: score_table.Scores, bounds: Bounds | None, larger_is_better: bool
) -> tuple[Float[np.ndarray, "n 2"], Float[np.ndarray, "k n r"]]:
    """Return (worst, best) score of every data set, and the normalised scores (k, n, r).

    Normalised scores are NaN where an algorithm has fewer than r runs.
    bounds: see `intervals`, also for errors. For None, a data set on which all scores are equal
    has bounds at a distance of 1.
    """
    if bounds is None:
        lowest = np.nanmin(table.values, axis=(1, 2))
        highest = np.nanmax(table.values, axis=(1, 2))
        ends = np.stack([lowest, highest], axis=1)
        ends = ends if larger_is_better else ends[:, ::-1]
        ends[ends[:, 0] == ends[:, 1], 1] += 1 if larger_is_better else -1  # All equal.
    else:
        ends = np.asarray(bounds, dtype=np.float64)
        n = len(table.datasets)
        caller_errors.check(
            ends.shape == (n, 2),
            "bounds",
            f"be one pair (worst, best) for each of {n} data sets",
            caller_errors.Words(f"shape {ends.shape}"),
        )
        extent = (ends[:, 1] - ends[:, 0]) * (1 if larger_is_better else -1)
        wrong = np.flatnonzero(~((extent > 0) & np.isfinite(extent)))
        if len(wrong):
            raise ValueError(
                "bounds: the best must be better than the worst, and both finite, not so "
                f"for {table.datasets[wrong[0]]}"
            )
    worst, extent = ends[:, 0], ends[:, 1] - ends[:, 0]
    values = (table.values - worst[:, None, None]) / extent[:, None, None]
    return ends, np.moveaxis(values, 1, 0)


def _iqm(
    x: Float[np.ndarray, "n r"], counts: Float[np.ndarray, "b n r"]
) -> Float[np.ndarray, "b"]:
    """Return the interquartile mean of x in each draw, with each score repeated `counts` times.

    Of m scores, int(m / 4) are cut at each end, as in scipy.stats.trim_mean.
    """
    order = np.argsort(x, axis=None)
    upto = np.cumsum(counts.reshape(len(counts), -1)[:, order], axis=1)
    total = upto[:, -1:]
    cut = np.floor(total / 4)
    inside = np.clip(upto, cut, total - cut) - cut
    weights = np.diff(inside, axis=1, prepend=0)
    return weights @ x.ravel()[order] / (total - 2 * cut)[:, 0]


@dataclasses.dataclass(frozen=True, eq=False)
class RankStabilityResult:
    """Ranks and test decisions under redrawn seeds; a share is a fraction of the draws."""

    algorithms: tuple[str, ...]
    ranks: bootstrap_intervals.Estimate  # (k,), means over data sets; 1 is the best.
    places: Float[
        np.ndarray, "k k"
    ]  # Share: algorithm (row) at place 1, 2, ... (column).
    ranked_before: Float[
        np.ndarray, "k k"
    ]  # Share: row has the smaller mean rank; ties half.
    same_order: float  # Share: all pairs are ordered as observed.
    friedman: bool  # Observed: p <= alpha.
    friedman_flips: float  # Share: Friedman's decision differs from the observed one.
    nemenyi: np.ndarray  # (k, k) bool, observed: p <= alpha.
    nemenyi_share: Float[np.ndarray, "k k"]  # Share: the pair differs significantly.
    nemenyi_flips: Float[
        np.ndarray, "k k"
    ]  # Share: decision differs from the observed one.
    any_flips: float  # Share: at least one of Nemenyi's decisions differs.
    alpha: float

    @property
    def best(self) -> Float[np.ndarray, "k"]:
        """Share of draws in which each algorithm has the best mean rank; ties are shared."""
        return self.places[:, 0]


def rank_stability(
    scores: score_table.TableOfRuns,
    *,
    larger_is_better: bool,
    alpha: float = 0.05,
    datasets: bool = False,
    runs: int | None = None,
    confidence: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> RankStabilityResult:
    """Redraw the runs, and return the shares of draws in which ranking and test decisions change.

    Each draw is ranked and tested like the table.

    scores: see `score_table.read`; with several runs. alpha: level of the tests.
    datasets: whether to draw data sets, too. runs: runs of each algorithm in a draw (None: as
    many as the table has); a smaller number shows the results of a smaller study.
    confidence: level of the intervals, such as 0.95. draws: number of bootstrap draws.
    Friedman's test is Iman and Davenport's with correction for ties; Nemenyi's test decides by the
    critical difference. Raise ValueError for single runs, missing cells, fewer than 100 draws,
    `runs` below 1, and an alpha or confidence outside (0, 1).

    A pair that is significant in the published table is significant in 27 % of 40,000 draws:

        >>> stability = stats.rank_stability(runs, larger_is_better=True)
        >>> cae, infodrop = map(runs.algorithms.index, ["DeepAugERM-CAE", "InfoDrop"])
        >>> bool(stability.nemenyi[cae, infodrop])
        True
        >>> round(float(stability.nemenyi_share[cae, infodrop]), 1)
        0.3
    """
    table = score_table.read(scores)
    drawn = bootstrap_intervals.draw(
        table, draws=draws, seed=seed, datasets=datasets, runs=runs
    )
    observed = score_table.rank(table, larger_is_better=larger_is_better)
    # Means that tie in the table must tie here, though their sums have another order.
    errors = score_table.mean_errors(table)
    levels = score_table.near_levels(drawn.means(table), errors)
    ranked = scipy.stats.rankdata(-levels if larger_is_better else levels, axis=2)
    ranked = drawn.pick_datasets(ranked)
    mean_ranks = np.round(ranked.mean(axis=1), 9)
    original = np.round(observed.mean(axis=0), 9)
    sign = np.sign(mean_ranks[:, :, None] - mean_ranks[:, None, :])
    is_as_observed = sign == np.sign(original[:, None] - original)

    n, k = observed.shape
    cd = posthoc.critical_difference(n, k, alpha)
    is_significant = np.abs(mean_ranks[:, :, None] - mean_ranks[:, None, :]) >= cd
    nemenyi = np.abs(original[:, None] - original) >= cd
    drawn_rejections = friedman_pvalues(ranked) <= alpha
    is_rejected = bool(friedman_pvalues(observed[None])[0] <= alpha)
    return RankStabilityResult(
        algorithms=table.algorithms,
        ranks=bootstrap_intervals.estimate(
            original,
            mean_ranks,
            confidence,
            num_datasets=len(table.datasets) if datasets else None,
            bounds=(1, len(table.algorithms)),
        ),
        places=_places(mean_ranks),
        ranked_before=((1 - sign) / 2).mean(axis=0),
        same_order=float(is_as_observed.all(axis=(1, 2)).mean()),
        friedman=is_rejected,
        friedman_flips=float((drawn_rejections != is_rejected).mean()),
        nemenyi=nemenyi,
        nemenyi_share=is_significant.mean(axis=0),
        nemenyi_flips=(is_significant != nemenyi).mean(axis=0),
        any_flips=float((is_significant != nemenyi).any(axis=(1, 2)).mean()),
        alpha=alpha,
    )


def friedman_pvalues(ranked: Float[np.ndarray, "b n k"]) -> Float[np.ndarray, "b"]:
    """Return the p-value of `omnibus.friedman` for each of b tables of ranks (n, k).

    Ties are corrected by the sum of squares of all ranks (Conover 1999, 5.8).
    """
    _, n, k = ranked.shape
    even = (k + 1) / 2
    between = n * np.sum((ranked.mean(axis=1) - even) ** 2, axis=1)
    total = np.sum((ranked - even) ** 2, axis=(1, 2))
    w = np.divide(between, total, out=np.zeros_like(total), where=total > 0)
    with np.errstate(divide="ignore"):
        f = (n - 1) * w / np.maximum(1 - w, 0)
    return scipy.stats.f.sf(f, k - 1, (k - 1) * (n - 1))


def _places(mean_ranks: Float[np.ndarray, "b k"]) -> Float[np.ndarray, "k k"]:
    """Return the share of draws in which each algorithm (row) has rank 1, 2, ..., k (column).

    Algorithms that tie share their ranks equally.
    """
    k = mean_ranks.shape[1]
    num_ahead = (mean_ranks[:, :, None] > mean_ranks[:, None, :]).sum(axis=2)
    num_equal = (mean_ranks[:, :, None] == mean_ranks[:, None, :]).sum(axis=2)
    place = np.arange(k) - num_ahead[:, :, None]
    has_place = (place >= 0) & (place < num_equal[:, :, None])
    return (has_place / num_equal[:, :, None]).mean(axis=0)
