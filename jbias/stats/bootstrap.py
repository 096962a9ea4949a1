"""Bootstrap intervals: cells, aggregates, profiles and pairs; and the stability of rankings.

Runs are resampled as in `resampling`. Aggregates and profiles follow Agarwal, Schwarzer,
Castro, Courville and Bellemare 2021, https://arxiv.org/abs/2108.13264 (rliable). Deviation:
they resample the runs of each task separately; here a run is one model, resampled for all
data sets together.

Percentile intervals over few runs are too short, and are widened only where data sets are
drawn, too: see `resampling`.

A Friedman test takes means over runs as if they were exact. `rank_stability` resamples the
runs, and ranks and tests each resample like the table itself. Resamples vary around the
observed means, so this shows what seeds can do, not which ranking is true.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import scipy.stats
from jaxtyping import Float

from jbias.stats import posthoc, resampling, score_table

Bounds = Sequence[tuple[float, float]]


@dataclasses.dataclass(frozen=True, eq=False)
class IntervalsResult:
    """Means and aggregates with percentile intervals; names in the table's order."""

    datasets: tuple[str, ...]
    algorithms: tuple[str, ...]
    cells: resampling.Estimate  # (n, k), means over runs, in the unit of the scores.
    mean: resampling.Estimate  # (k,), mean over data sets, in that unit.
    iqm: resampling.Estimate  # (k,), of normalised scores: 0 the worst, 1 the best.
    optimality_gap: resampling.Estimate  # (k,), normalised; smaller is better.
    bounds: Float[np.ndarray, "n 2"]  # (worst, best) of every data set.


@dataclasses.dataclass(frozen=True, eq=False)
class ProfilesResult:
    """Shares of runs times data sets whose normalised score reaches a threshold."""

    algorithms: tuple[str, ...]
    thresholds: Float[np.ndarray, "t"]
    share: resampling.Estimate  # (k, t), pointwise.
    bounds: Float[np.ndarray, "n 2"]


@dataclasses.dataclass(frozen=True, eq=False)
class PairsResult:
    """A number for every ordered pair (row against column), with its interval."""

    algorithms: tuple[str, ...]
    pairs: resampling.Estimate  # (k, k)
    better: Float[np.ndarray, "k k"]  # Share of draws in which the row is the better.


def intervals(
    scores,
    *,
    larger_is_better: bool,
    bounds: Bounds | None = None,
    datasets: bool = False,
    confidence: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> IntervalsResult:
    """Gives means per cell, and per algorithm mean, IQM and optimality gap.

    Normalised, a score is (x - worst) / (best - worst) of its data set. `bounds` lists
    (worst, best); None takes the worst and best run of all, and then the gap is 1 minus the
    normalised mean. IQM: mean of the middle half of all runs times data sets.
    Optimality gap: mean of 1 - min(x, 1). `datasets` draws data sets too (not for cells);
    intervals are then widened, and end where scores do: a gap at 0, the rest at the bounds
    unless a score lies beyond these. Nothing bounds a mean without `bounds`.
    Raises ValueError for single runs, missing cells and bounds of no extent.
    """
    table = score_table.read(scores)
    drawn = resampling.draw(table, draws=draws, seed=seed, datasets=datasets)
    limits, normal = _normalised(table, bounds, larger_is_better)
    cells = drawn.means(table)
    middle, gap = [], []
    for values, counts in zip(normal, drawn.runs, strict=True):
        x = values[:, : counts.shape[1]]
        ones = np.ones((1, *x.shape))
        weights = drawn.datasets[:, :, None] * counts[:, None, :]
        missed = 1 - np.minimum(x, 1)
        middle.append((_iqm(x, ones)[0], _iqm(x, weights)))
        gap.append((missed.mean(), np.einsum("bnr,nr->b", weights, missed) / x.size))

    def joined(pairs, ends):
        value, many = zip(*pairs)
        return resampling.estimate(
            np.array(value),
            np.stack(many, 1),
            confidence,
            num_datasets=num_datasets,
            bounds=ends,
        )

    possible = _normalised_range(normal)
    mean_ends = (-np.inf, np.inf) if bounds is None else _mean_range(limits, possible)
    num_datasets = len(table.datasets) if datasets else None
    mean = drawn.over_datasets(cells)
    return IntervalsResult(
        datasets=table.datasets,
        algorithms=table.algorithms,
        cells=resampling.estimate(table.means, cells, confidence),
        mean=resampling.estimate(
            table.means.mean(axis=0),
            mean,
            confidence,
            num_datasets=num_datasets,
            bounds=mean_ends,
        ),
        iqm=joined(middle, possible),
        # 1 less the lowest normalised score is the largest gap.
        optimality_gap=joined(gap, (0.0, 1 - possible[0])),
        bounds=limits,
    )


def _normalised_range(normal: Float[np.ndarray, "k n r"]) -> tuple[float, float]:
    """Return 0 and 1, the ends of normalised scores; infinite where a score lies beyond."""
    return (
        0.0 if np.nanmin(normal) >= 0 else -np.inf,
        1.0 if np.nanmax(normal) <= 1 else np.inf,
    )


def _mean_range(
    limits: Float[np.ndarray, "n 2"], normalised_range: tuple[float, float]
) -> tuple[float, float]:
    """Return the ends of a mean over data sets, of their (worst, best) where these hold."""
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
    scores,
    *,
    larger_is_better: bool,
    thresholds: Sequence[float] | None = None,
    bounds: Bounds | None = None,
    datasets: bool = False,
    confidence: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> ProfilesResult:
    """Gives the share of runs times data sets with a normalised score of at least t.

    A curve above another everywhere: stochastically better. Scores are normalised as by
    `intervals`; `thresholds` are 51 from 0 to 1 if None.
    Raises ValueError for single runs, missing cells and bounds of no extent.
    """
    table = score_table.read(scores)
    drawn = resampling.draw(table, draws=draws, seed=seed, datasets=datasets)
    limits, normal = _normalised(table, bounds, larger_is_better)
    grid = np.linspace(0, 1, 51) if thresholds is None else np.asarray(thresholds)
    score_table.check(
        np.isfinite(grid).all(), "thresholds", "be finite numbers", thresholds
    )
    value, many = [], []
    for j, counts in enumerate(drawn.runs):
        reached = normal[j][:, : counts.shape[1], None] >= grid
        value.append(reached.mean(axis=(0, 1)))
        by_dataset = np.einsum("br,nrt->bnt", counts, reached.astype(np.float64))
        many.append(drawn.over_datasets(by_dataset) / counts.shape[1])
    share = resampling.estimate(
        np.stack(value),
        np.stack(many, axis=1),
        confidence,
        num_datasets=len(table.datasets) if datasets else None,
        bounds=(0, 1),
    )
    return ProfilesResult(table.algorithms, grid, share, limits)


def probability_of_improvement(
    scores,
    *,
    larger_is_better: bool,
    datasets: bool = False,
    confidence: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> PairsResult:
    """Gives how probably a run of the row beats one of the column, over data sets.

    P(X > Y) + P(X = Y) / 2 over all pairs of runs, averaged over data sets: the mean of
    Vargha and Delaney's A12. Row and column exchanged give 1 minus it.
    Raises ValueError for single runs and missing cells.
    """
    table = score_table.read(scores)
    drawn = resampling.draw(table, draws=draws, seed=seed, datasets=datasets)
    sign = 1 if larger_is_better else -1
    value, many = resampling.superiority(table, drawn, sign)
    return _pairs(
        table,
        value.mean(axis=1),
        many.T,
        even=0.5,
        rounding=1e-12,
        confidence=confidence,
        num_datasets=len(table.datasets) if datasets else None,
        bounds=(0, 1),
    )


def mean_differences(
    scores,
    *,
    larger_is_better: bool,
    datasets: bool = False,
    confidence: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> PairsResult:
    """Return how much better the row is than the column on average, in points.

    Over redrawn runs alone intervals are percentiles, and too short for few runs
    (`resampling.percentile_coverage`). With `datasets`, a hierarchical bootstrap: `better`
    is how often the row wins with other seeds on other data sets like these, and
    percentiles are widened as Student's t asks (`resampling.widening`): without, intervals
    called 95 % held the difference in 85 to 94 % of cases with 5 to 20 data sets.
    Positive is better, whatever the direction.
    Raises ValueError for single runs and missing cells.
    """
    table = score_table.read(scores)
    drawn = resampling.draw(table, draws=draws, seed=seed, datasets=datasets)
    sign = 1 if larger_is_better else -1
    rows, columns = np.triu_indices(len(table.algorithms), 1)
    many = sign * drawn.over_datasets(drawn.means(table))
    value = sign * table.means.mean(axis=0)
    value, many = (x[..., rows] - x[..., columns] for x in (value, many))
    errors = score_table.mean_errors(table).max(axis=0)
    rounding = np.maximum(errors[rows], errors[columns])
    return _pairs(
        table,
        value,
        many,
        even=0.0,
        rounding=rounding,
        confidence=confidence,
        num_datasets=len(table.datasets) if datasets else None,
    )


def _pairs(
    table,
    value,
    many,
    *,
    even: float,
    rounding: float,
    confidence: float,
    num_datasets: int | None,
    bounds: tuple[float, float] = (-np.inf, np.inf),
) -> PairsResult:
    """Return matrices filled from pairs (p,) and draws (b, p).

    `even` is where neither is better, and what is no further from it than `rounding`.
    """
    upper = resampling.estimate(
        value, many, confidence, num_datasets=num_datasets, bounds=bounds
    )
    off = many - even
    better = (off > rounding).mean(axis=0) + (abs(off) <= rounding).mean(axis=0) / 2
    ends, turn = (upper.value, upper.low, upper.high), lambda v: 2 * even - v
    estimate = resampling.pair_estimate(*ends, confidence, turn, diagonal=even)
    half = resampling.pair_matrix(better, lambda v: 1 - v, diagonal=0.5)
    return PairsResult(table.algorithms, estimate, half)


def _normalised(table, bounds, larger_is_better: bool):
    """Gives (worst, best) of every data set, and algorithm after algorithm (n, r)."""
    if bounds is None:
        both = (of(table.values, axis=(1, 2)) for of in (np.nanmin, np.nanmax))
        ends = np.stack([*both], axis=1)
        ends = ends if larger_is_better else ends[:, ::-1]
        ends[ends[:, 0] == ends[:, 1], 1] += 1 if larger_is_better else -1  # All equal.
    else:
        ends = np.asarray(bounds, dtype=np.float64)
        n, told = len(table.datasets), f"shape {ends.shape}"
        must = f"be one pair (worst, best) for each of {n} data sets"
        score_table.check(ends.shape == (n, 2), "bounds", must, told)
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
    """Gives the mean of the middle half, each score counted as often as `counts` says.

    With m scores in all, int(m / 4) are cut at either end, as scipy.stats.trim_mean does.
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
    """What redrawn seeds do to ranks and decisions; shares of draws throughout."""

    algorithms: tuple[str, ...]
    ranks: resampling.Estimate  # (k,), means over data sets; 1 is the best.
    places: Float[np.ndarray, "k k"]  # Algorithm at place 1, 2, ... by mean rank.
    before: Float[np.ndarray, "k k"]  # Row has the smaller mean rank; ties half.
    same_order: float  # All pairs as observed.
    friedman: bool  # Observed: p <= alpha.
    friedman_flips: float  # The other decision.
    nemenyi: np.ndarray  # (k, k) bool, observed: p <= alpha.
    nemenyi_share: Float[np.ndarray, "k k"]  # Pair differs significantly.
    nemenyi_flips: Float[np.ndarray, "k k"]  # The other decision than observed.
    any_flips: float  # Some decision of Nemenyi's comes out otherwise.
    alpha: float

    @property
    def best(self) -> Float[np.ndarray, "k"]:
        """How often each algorithm comes first; ties share."""
        return self.places[:, 0]


def rank_stability(
    scores,
    *,
    larger_is_better: bool,
    alpha: float = 0.05,
    datasets: bool = False,
    runs: int | None = None,
    confidence: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> RankStabilityResult:
    """Ranks and tests the table again with redrawn runs, and counts what changes.

    `datasets` draws data sets too. `runs` is how many runs of each algorithm a draw has
    (None: as many as there are); a smaller number shows what a smaller study would have said.
    Friedman's test is Iman and Davenport's with correction for ties; Nemenyi's decides by the
    critical difference. Raises ValueError for single runs and missing cells.
    """
    table = score_table.read(scores)
    drawn = resampling.draw(table, draws=draws, seed=seed, datasets=datasets, runs=runs)
    observed = score_table.rank(table, larger_is_better=larger_is_better)
    # Sums in another order tie as before.
    errors = score_table.mean_errors(table)
    levels = score_table.near_levels(drawn.means(table), errors)
    ranked = scipy.stats.rankdata(-levels if larger_is_better else levels, axis=2)
    ranked = drawn.picked(ranked)
    mean_ranks = np.round(ranked.mean(axis=1), 9)
    original = np.round(observed.mean(axis=0), 9)
    sign = np.sign(mean_ranks[:, :, None] - mean_ranks[:, None, :])
    as_observed = sign == np.sign(original[:, None] - original)

    cd = posthoc.critical_difference(*observed.shape, alpha)
    apart = np.abs(mean_ranks[:, :, None] - mean_ranks[:, None, :]) >= cd
    nemenyi = np.abs(original[:, None] - original) >= cd
    rejects = friedman_pvalues(ranked) <= alpha
    rejected = bool(friedman_pvalues(observed[None])[0] <= alpha)
    return RankStabilityResult(
        algorithms=table.algorithms,
        ranks=resampling.estimate(
            original,
            mean_ranks,
            confidence,
            num_datasets=len(table.datasets) if datasets else None,
            bounds=(1, len(table.algorithms)),
        ),
        places=_places(mean_ranks),
        before=((1 - sign) / 2).mean(axis=0),
        same_order=float(as_observed.all(axis=(1, 2)).mean()),
        friedman=rejected,
        friedman_flips=float((rejects != rejected).mean()),
        nemenyi=nemenyi,
        nemenyi_share=apart.mean(axis=0),
        nemenyi_flips=(apart != nemenyi).mean(axis=0),
        any_flips=float((apart != nemenyi).any(axis=(1, 2)).mean()),
        alpha=alpha,
    )


def friedman_pvalues(ranked: Float[np.ndarray, "b n k"]) -> Float[np.ndarray, "b"]:
    """Gives the p-values of `omnibus.friedman` for many tables of ranks at once.

    The sum of squares of all ranks stands for the correction for ties (Conover 1999, 5.8).
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
    """Gives how often each algorithm is at each place; ties share their places."""
    k = mean_ranks.shape[1]
    ahead = (mean_ranks[:, :, None] > mean_ranks[:, None, :]).sum(axis=2)
    level = (mean_ranks[:, :, None] == mean_ranks[:, None, :]).sum(axis=2)
    place = np.arange(k) - ahead[:, :, None]
    held = (place >= 0) & (place < level[:, :, None])
    return (held / level[:, :, None]).mean(axis=0)
