"""Do algorithms differ, with runs and data sets both a sample? A linear mixed model.

    score = algorithm + (1 | data set) + (1 | data set : algorithm) + (1 | algorithm : run)

A run is one model: what makes it good or bad on all data sets is the last term. Components by
the method of moments, which in a balanced table without negative ones is REML.
Sources: Searle, Casella and McCulloch 1992, chapter 4; Clark 1973 (the quasi F).
"""

import dataclasses
import math

import numpy as np
import scipy.stats
from jaxtyping import Float

from jbias.stats import draws as resampling
from jbias.stats import scores as score_table


@dataclasses.dataclass(frozen=True, eq=False)
class MixedResult:
    """A test of all algorithms, variances, and differences of every ordered pair."""

    algorithms: tuple[str, ...]
    statistic: float  # Quasi F.
    pvalue: float
    df: tuple[float, float]  # Of F; the second after Satterthwaite.
    variances: dict[str, float]  # dataset, interaction, run, residual; at least 0.
    difference: resampling.Estimate  # (k, k), points; positive where the row is better.
    standard_error: Float[np.ndarray, "k k"]
    pvalues: Float[np.ndarray, "k k"]  # Of each pair alone: adjust them.


def mixed_model(
    scores, *, larger_is_better: bool, confidence: float = 0.95, axis: int = 1
) -> MixedResult:
    """Tests k algorithms over n data sets with their runs, none averaged away.

    With E the mean square of runs within data sets, R that of runs and I that of data sets by
    algorithms (times the harmonic mean r of runs): F = A / (R + I - E), and a difference of
    algorithms i, j has the variance 2 (I - E) / (n r) + (1/r_i + 1/r_j) R / n. Where R or I is
    below E, E takes its place. Degrees of freedom after Satterthwaite. All pairs share one
    interaction: an algorithm that is unlike the others on each data set widens all intervals;
    leave it out with `Scores.only` to see. Raises ValueError for single runs and missing cells.
    """
    table = score_table.read(scores, axis=axis)
    resampling.need_runs(table)
    n, k = table.means.shape
    counts, r = table.counts, float(k / np.sum(1 / table.counts))
    squares = _mean_squares(table)
    means = table.means.mean(axis=0) * (1 if larger_is_better else -1)

    between = n * r * means.var(ddof=1)
    noise, df2 = _combined(squares, run=1.0, interaction=1.0, residual=-1.0)
    statistic = between / noise if noise > 0 else (math.inf if between > 0 else 0.0)
    rows, columns = np.triu_indices(k, 1)
    variance, degrees = np.empty(len(rows)), np.empty(len(rows))
    for p, (i, j) in enumerate(zip(rows, columns, strict=True)):
        both = 1 / counts[i] + 1 / counts[j]
        variance[p], degrees[p] = _combined(
            squares, run=both / n, interaction=2 / (n * r), residual=-2 / (n * r)
        )
    errors = np.sqrt(variance)
    value = means[rows] - means[columns]
    half = scipy.stats.t.ppf((1 + confidence) / 2, degrees) * errors
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(value == 0, 0.0, np.abs(value) / errors)

    def matrix(values, turn=lambda v: v, diagonal=0.0):
        return resampling.mirrored(k, values, turn, diagonal=diagonal)

    return MixedResult(
        algorithms=table.algorithms,
        statistic=float(statistic),
        pvalue=float(scipy.stats.f.sf(statistic, k - 1, df2)),
        df=(k - 1, float(df2)),
        variances={
            "dataset": _excess(squares, "dataset", "interaction") / (k * r),
            "interaction": _excess(squares, "interaction", "residual") / r,
            "run": _excess(squares, "run", "residual") / n,
            "residual": squares["residual"][0],
        },
        difference=resampling.Estimate(
            matrix(value, lambda v: -v),
            matrix(value - half, lambda _: -value - half),
            matrix(value + half, lambda _: -value + half),
            confidence,
        ),
        standard_error=matrix(errors),
        pvalues=matrix(2 * scipy.stats.t.sf(t, degrees), diagonal=1.0),
    )


def _mean_squares(table: score_table.Scores) -> dict[str, tuple[float, int]]:
    """Gives (mean square, degrees of freedom) of every source of variance.

    Those of data sets and interaction are of cell means, times the harmonic mean of runs.
    """
    n, k = table.means.shape
    residual = run = 0.0
    for name in table.algorithms:
        x = table.runs(name)
        of_run = x.mean(axis=0) - x.mean()
        run += n * np.sum(of_run**2)
        residual += np.sum((x - x.mean(axis=1, keepdims=True) - of_run) ** 2)
    runs = int(np.sum(table.counts - 1))
    r = k / np.sum(1 / table.counts)
    centred = table.means - table.means.mean(axis=0)
    of_dataset = centred.mean(axis=1, keepdims=True)
    inter = r * np.sum((centred - of_dataset) ** 2)
    return {
        "residual": (float(residual / (runs * (n - 1))), runs * (n - 1)),
        "run": (float(run / runs), runs),
        "interaction": (float(inter / ((n - 1) * (k - 1))), (n - 1) * (k - 1)),
        "dataset": (float(k * r * np.sum(of_dataset**2) / (n - 1)), n - 1),
    }


def _excess(squares, name: str, over: str) -> float:
    """Gives by how much one mean square is above another; 0 if below."""
    return max(0.0, squares[name][0] - squares[over][0])


def _combined(squares, **factors: float) -> tuple[float, float]:
    """Gives the sum of factor * mean square, and its degrees of freedom."""
    for name in ("run", "interaction"):
        if squares[name][0] < squares["residual"][0]:
            factors["residual"] += factors.pop(name)
    total = spread = 0.0
    for name, factor in factors.items():
        square, df = squares[name]
        total += factor * square
        spread += (factor * square) ** 2 / df
    return total, total**2 / spread if spread > 0 else math.inf
