"""How sure are the numbers? Bootstrap intervals of cells, aggregates and pairs.

Runs are drawn as in `resampling`. Aggregates and profiles after Agarwal, Schwarzer, Castro,
Courville and Bellemare 2021, https://arxiv.org/abs/2108.13264 (rliable). Deviation: there the
runs of each task are drawn apart; here a run is one model, drawn for all data sets together.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from jbias.stats import draws as resampling
from jbias.stats import scores as score_table

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
    axis: int = 1,
) -> IntervalsResult:
    """Gives means per cell, and per algorithm mean, IQM and optimality gap.

    Normalised, a score is (x - worst) / (best - worst) of its data set. `bounds` lists
    (worst, best); None takes the worst and best run of all, and then the gap is 1 minus the
    normalised mean. IQM: mean of the middle half of all runs times data sets.
    Optimality gap: mean of 1 - min(x, 1). `datasets` draws data sets too (not for cells).
    Raises ValueError for single runs, missing cells and bounds of no extent.
    """
    table = score_table.read(scores, axis=axis)
    drawn = resampling.draw(table, draws=draws, seed=seed, datasets=datasets)
    limits, normal = _normalised(table, bounds, larger_is_better)
    cells = drawn.means(table)
    per_algorithm = [values[:, : table.counts[j]] for j, values in enumerate(normal)]
    middle, gap = [], []
    for x, counts in zip(per_algorithm, drawn.runs, strict=True):
        ones = np.ones((1, x.shape[0], x.shape[1]))
        weights = drawn.datasets[:, :, None] * counts[:, None, :]
        missed = 1 - np.minimum(x, 1)
        middle.append((_iqm(x, ones)[0], _iqm(x, weights)))
        gap.append((missed.mean(), np.einsum("bnr,nr->b", weights, missed) / x.size))

    def joined(pairs):
        value = np.array([single for single, _ in pairs])
        many = np.stack([several for _, several in pairs], axis=1)
        return resampling.estimate(value, many, confidence=confidence)

    mean = drawn.over_datasets(cells)
    return IntervalsResult(
        datasets=table.datasets,
        algorithms=table.algorithms,
        cells=resampling.estimate(table.means, cells, confidence=confidence),
        mean=resampling.estimate(table.means.mean(axis=0), mean, confidence=confidence),
        iqm=joined(middle),
        optimality_gap=joined(gap),
        bounds=limits,
    )


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
    axis: int = 1,
) -> ProfilesResult:
    """Gives the share of runs times data sets with a normalised score of at least t.

    A curve above another everywhere: stochastically better. Scores are normalised as by
    `intervals`; `thresholds` are 51 from 0 to 1 if None.
    Raises ValueError for single runs, missing cells and bounds of no extent.
    """
    table = score_table.read(scores, axis=axis)
    drawn = resampling.draw(table, draws=draws, seed=seed, datasets=datasets)
    limits, normal = _normalised(table, bounds, larger_is_better)
    grid = np.linspace(0, 1, 51) if thresholds is None else np.asarray(thresholds)
    value, many = [], []
    for j, counts in enumerate(drawn.runs):
        reached = normal[j][:, : counts.shape[1], None] >= grid
        value.append(reached.mean(axis=(0, 1)))
        by_dataset = np.einsum("br,nrt->bnt", counts, reached.astype(np.float64))
        many.append(drawn.over_datasets(by_dataset) / counts.shape[1])
    share = resampling.estimate(
        np.stack(value), np.stack(many, axis=1), confidence=confidence
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
    axis: int = 1,
) -> PairsResult:
    """Gives how probably a run of the row beats one of the column, over data sets.

    P(X > Y) + P(X = Y) / 2 over all pairs of runs, averaged over data sets: the mean of
    Vargha and Delaney's A12. Row and column exchanged give 1 minus it.
    Raises ValueError for single runs and missing cells.
    """
    table = score_table.read(scores, axis=axis)
    drawn = resampling.draw(table, draws=draws, seed=seed, datasets=datasets)
    sign = 1 if larger_is_better else -1
    value, many = [], []
    for i, j in resampling.pairs(len(table.algorithms)):
        x, y = (sign * table.runs(table.algorithms[a]) for a in (i, j))
        wins = (np.sign(x[:, :, None] - y[:, None, :]) + 1) / 2
        value.append(wins.mean(axis=(1, 2)).mean())
        rows = np.einsum("br,nrs->bns", drawn.runs[i], wins, optimize=True)
        each = np.einsum("bns,bs->bn", rows, drawn.runs[j])
        many.append(drawn.over_datasets(each) / wins[0].size)
    return _pairs(table, np.array(value), np.stack(many, axis=1), 0.5, confidence)


def mean_differences(
    scores,
    *,
    larger_is_better: bool,
    datasets: bool = False,
    confidence: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
    axis: int = 1,
) -> PairsResult:
    """Gives how much better the row is than the column on average, in points.

    With `datasets`, a hierarchical bootstrap: `better` is how often the row wins with other
    seeds on other data sets like these. Positive is better, whatever the direction.
    Raises ValueError for single runs and missing cells.
    """
    table = score_table.read(scores, axis=axis)
    drawn = resampling.draw(table, draws=draws, seed=seed, datasets=datasets)
    sign = 1 if larger_is_better else -1
    rows, columns = np.triu_indices(len(table.algorithms), 1)
    many = sign * drawn.over_datasets(drawn.means(table))
    value = sign * table.means.mean(axis=0)
    return _pairs(
        table,
        value[rows] - value[columns],
        many[:, rows] - many[:, columns],
        0.0,
        confidence,
    )


def _pairs(table, value, many, even: float, confidence: float) -> PairsResult:
    """Fills matrices from pairs (p,) and draws (b, p); `even` is where neither is better."""
    k = len(table.algorithms)
    upper = resampling.estimate(value, many, confidence=confidence)
    better = (many > even).mean(axis=0) + (many == even).mean(axis=0) / 2

    def matrix(given, mirror):
        return resampling.mirrored(k, given, lambda _: 2 * even - mirror, diagonal=even)

    estimate = resampling.Estimate(
        value=matrix(upper.value, upper.value),
        low=matrix(upper.low, upper.high),
        high=matrix(upper.high, upper.low),
        confidence=confidence,
    )
    half = resampling.mirrored(k, better, lambda v: 1 - v, diagonal=0.5)
    return PairsResult(table.algorithms, estimate, half)


def _normalised(table, bounds, larger_is_better: bool):
    """Gives (worst, best) of every data set, and algorithm after algorithm (n, r)."""
    if bounds is None:
        ends = np.stack(
            [np.nanmin(table.values, axis=(1, 2)), np.nanmax(table.values, axis=(1, 2))]
        ).T
        ends = ends if larger_is_better else ends[:, ::-1]
        ends[ends[:, 0] == ends[:, 1], 1] += 1 if larger_is_better else -1  # All equal.
    else:
        ends = np.asarray(bounds, dtype=np.float64)
        if ends.shape != (len(table.datasets), 2):
            raise ValueError(
                "bounds: must be one pair (worst, best) for each of "
                f"{len(table.datasets)} data sets, got shape {ends.shape}"
            )
        wrong = (ends[:, 1] - ends[:, 0]) * (1 if larger_is_better else -1) <= 0
        if wrong.any():
            name = table.datasets[int(np.flatnonzero(wrong)[0])]
            raise ValueError(
                f"bounds: the best must be better than the worst, not so for {name}"
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
