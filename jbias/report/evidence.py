"""What is asked of the tested scores beside Friedman's test and Nemenyi's.

Three kinds: other tests of the same means; what the spread over seeds says, which the tests of
means do not see; and how large a difference such a study could have found.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy.stats

from jbias import stats
from jbias.report import options as options_lib
from jbias.report import study as study_lib
from jbias.stats import resampling, score_table

_MANY = 12  # Algorithms above which pairs are drawn less often, or not modelled.


@dataclasses.dataclass(frozen=True, eq=False)
class Evidence:
    """Results of jbias.stats, in the unit that is shown; None where one cannot be had."""

    table: score_table.Scores  # The means that are tested.
    size: Any  # Of F at alpha, for so many data sets and algorithms.
    spread_of_units: tuple[str, str] | None  # Data sets that cannot be of one unit.
    quade: Any
    aligned: Any
    max_t: Any
    conover: Any
    wilcoxon: Any
    control: Any  # All against the reference, if there is one: by ranks,
    control_wilcoxon: Any  # and by differences.
    signed_rank: Any
    bradley_terry: Any  # None for many algorithms, or too few draws of worth.
    rope: float  # The smallest difference that matters.
    reach: float  # From the smallest score to the largest.
    twins: tuple[tuple[str, str], ...]  # Algorithms, or runs, with the same scores.
    no_seeds: str = ""  # Why nothing is said of seeds; empty if something is.
    runs: score_table.Scores | None = None
    draws: int = 0  # Of runs.
    narrow: tuple[int, float] | None = None  # Fewest runs; what their intervals hold.
    intervals: Any = None
    profiles: Any = None
    stability: Any = None
    seeds: Any = None  # Differences of means over redrawn seeds,
    both: Any = None  # and over redrawn seeds and data sets.
    improvement: Any = None
    mixed: Any = None  # A linear model with both.
    effects: Any = None
    power: Any = None

    @property
    def bounds(self) -> str:
        """What captions call the intervals over redrawn runs."""
        bare = self.narrow and self.narrow[0] == 2
        return "no intervals (two give none)" if bare else "95% percentile intervals"


def gather(
    study: study_lib.Study,
    analysis: study_lib.Analysis,
    options: options_lib.Options,
) -> Evidence | None:
    """Makes all of it; None where nothing was tested."""
    if analysis.friedman is None:
        return None
    direction = {"larger_is_better": study.larger_is_better}
    table = means(study, analysis)
    reference = options.reference if options.reference in table.algorithms else None
    runs, no_seeds = seeds_of(study, analysis)
    found = {}
    few = len(table.algorithms) <= _MANY
    points = options.points or (0.01 if np.abs(table.means).max() <= 1 else 1.0)
    if runs is not None:
        found = _of_seeds(runs, direction, _draws(runs), points, options.alpha)
    return Evidence(
        table=table,
        size=stats.type_1_error(
            len(table.datasets), len(table.algorithms), alpha=options.alpha
        ),
        spread_of_units=_units(table),
        quade=stats.quade(table, **direction),
        aligned=stats.aligned_ranks(table, **direction),
        max_t=stats.max_t(table, **direction),
        conover=stats.conover(table, **direction),
        wilcoxon=stats.wilcoxon(table, **direction),
        control=stats.bonferroni_dunn(table, control=reference, **direction)
        if reference
        else None,
        control_wilcoxon=stats.wilcoxon(table, control=reference, **direction)
        if reference
        else None,
        signed_rank=stats.bayesian_signed_rank(
            table, rope=points, draws=20000 if few else 1000, **direction
        ),
        bradley_terry=_bradley_terry(table, direction) if few else None,
        rope=points,
        reach=float(np.ptp(table.means)),
        twins=tuple(_twins(table, runs)),
        no_seeds=no_seeds,
        runs=runs,
        **found,
    )


def _bradley_terry(table: score_table.Scores, direction):
    try:
        return stats.bradley_terry(table, **direction)
    except ValueError as error:
        if not str(error).startswith("draws:"):
            raise
        return None  # The draws are worth too little; the table of pairs lacks it.


def _narrow(r: int) -> tuple[int, float] | None:
    """Gives what a percentile interval of a mean over so few runs holds, if far from 95 %.

    It reaches 1.96 sqrt((r-1) / r) standard errors; the mean's is known by t(r-1).
    """
    held = 2 * scipy.stats.t.cdf(1.96 * np.sqrt((r - 1) / r), r - 1) - 1
    return (r, float(held)) if held < 0.92 else None


def _twins(table, runs) -> Iterator[tuple[str, str]]:
    """Names algorithms, and runs of one, that have the same scores everywhere."""
    yield from _equal(table.means.T, table.algorithms)
    for name in runs.algorithms if runs is not None else ():
        scores = runs.runs(name).T
        yield from _equal(scores, [f"{name} run {i + 1}" for i in range(len(scores))])


def _equal(rows: np.ndarray, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    _, first, places = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    for i, place in enumerate(places.ravel()):
        if first[place] != i:
            yield names[first[place]], names[i]


def _units(table: score_table.Scores) -> tuple[str, str] | None:
    """Names two data sets of which one has fractions and the other has not."""
    most = np.abs(table.means).max(axis=1)
    low, high = int(np.argmin(most)), int(np.argmax(most))
    if most[low] <= 1 and most[high] > 20 * most[low]:
        return table.datasets[low], table.datasets[high]
    return None


def means(study: study_lib.Study, analysis: study_lib.Analysis) -> score_table.Scores:
    """Gives the tested means in the unit that is shown."""
    matrix = analysis.cells.pivot(index="dataset", columns="algorithm", values="mean")
    matrix = matrix.loc[list(analysis.datasets), list(analysis.algorithms)]
    shown = study_lib.significant_digits(matrix.to_numpy() * study.unit.scale)
    return score_table.read(
        pd.DataFrame(shown, index=matrix.index, columns=matrix.columns)
    )


def seeds_of(
    study: study_lib.Study, analysis: study_lib.Analysis
) -> tuple[score_table.Scores | None, str]:
    """Gives the tested scores seed by seed, or why that cannot be."""
    values = study.values
    wanted = values["dataset"].isin(analysis.datasets)
    wanted &= values["algorithm"].isin(analysis.algorithms)
    frame = pd.DataFrame(
        {
            "algorithm": values["algorithm"].astype(str),
            "dataset": values["dataset"].astype(str),
            "run": values["seed"].astype(str),
            "score": values["value"].astype(float) * study.unit.scale,
        }
    )[wanted.to_numpy()]
    what = "seed" if study.is_runs else "run"
    lacking = score_table.missing_cells(frame)
    if lacking:
        told = "; ".join(lacking[:3])
        return None, f"not every {what} has a score on every data set ({told})"
    found = score_table.read(frame)
    found = found.only(datasets=analysis.datasets, algorithms=analysis.algorithms)
    single = [a for a, n in zip(found.algorithms, found.counts, strict=True) if n < 2]
    if single:
        told = ", ".join(single[:3]) + (" and others" if len(single) > 3 else "")
        return None, f"there is a single {what} of {told}"
    return found, ""


def _draws(runs: score_table.Scores) -> int:
    """Gives 2000 draws of runs, fewer for very large tables: a report takes seconds."""
    n, k, r = runs.values.shape
    return int(np.clip(5e7 / (n * k * k * r), 200, 2000))


def _of_seeds(
    runs, direction, draws: int, points: float, alpha: float
) -> dict[str, Any]:
    common = {**direction, "draws": draws}
    told = _untold if runs.counts.min() == 2 else lambda result: result
    return {
        "draws": draws,
        "narrow": _narrow(int(runs.counts.min())),
        "intervals": told(stats.intervals(runs, **common)),
        "profiles": told(stats.performance_profiles(runs, **common)),
        "stability": told(stats.rank_stability(runs, alpha=alpha, **common)),
        "seeds": told(stats.mean_differences(runs, **common)),
        "both": stats.mean_differences(runs, datasets=True, **common),
        "improvement": stats.probability_of_improvement(runs, **common),
        "mixed": stats.mixed_model(runs, **direction),
        "effects": stats.effect_sizes(
            runs, **{**common, "draws": max(draws // 4, 100)}
        ),
        "power": stats.power_of_design(
            runs, difference=points, alpha=alpha, draws=draws // 2
        ),
    }


def _untold(result):
    """A result without intervals: over two runs they are none."""
    bare = {
        name: dataclasses.replace(one, low=one.low * np.nan, high=one.high * np.nan)
        for name, one in vars(result).items()
        if isinstance(one, resampling.Estimate)
    }
    return dataclasses.replace(result, **bare)


def best_cells(
    runs: score_table.Scores | None, *, larger_is_better: bool, alpha: float
) -> list[tuple[int, int]]:
    """Gives the cells (algorithm, data set) that may be called best of their data set.

    The best mean, and those next to it that Welch's t test does not tell apart from it,
    down to the first that it does; none where it tells no algorithm apart. As the best is
    chosen by the same scores, p counts for all pairs (Bonferroni). A run's spread is taken
    as at least that of the data set's algorithms together: of two or three runs that happen
    to coincide nothing is certain. Every data set stands by itself.
    """
    if runs is None:
        return []
    found, sign = [], 1 if larger_is_better else -1
    counts, k = runs.counts, len(runs.algorithms)
    variances, freedom = runs.stds**2, counts - 1
    pooled = (variances @ freedom) / freedom.sum()
    stds = np.sqrt(np.maximum(variances, pooled[:, None]))
    for i, mean in enumerate(sign * runs.means):
        order = np.argsort(-mean, kind="stable")
        best, others = order[0], order[1:]
        if not pooled[i]:
            continue
        p = scipy.stats.ttest_ind_from_stats(
            *(mean[best], stds[i, best], counts[best]),
            *(mean[others], stds[i, others], counts[others]),
            equal_var=False,
        ).pvalue
        apart = p * k * (k - 1) / 2 <= alpha
        if apart.any():
            kept = others[: int(np.argmax(apart))]
            found += [(int(j), i) for j in (best, *kept)]
    return found
