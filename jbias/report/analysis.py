"""The benchmark's scores per seed, and the tests of algorithms over their means.

An Analysis holds Friedman's test and Nemenyi's. `with_evidence` adds other tests of the same
means, tests and intervals from the spread over seeds, which the tests of means ignore, and the
power of the study.
"""

import collections
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import math
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any

import numpy as np
import pandas as pd
import scipy.stats
from jaxtyping import Float

from jbias import stats
from jbias.evals import decisions
from jbias.report import options as options_lib
from jbias.report import score_notes, tables, workdirs
from jbias.runs import results
from jbias.stats import posthoc, resampling, score_table, seed_tests

# Statistics over the seeds of a cell: column name, name of the pandas method.
SPREAD = dict(mean="mean", std="std", median="median", lowest="min", highest="max")
RANGED = "A column shows median [range] where some mean ± std leaves [0, 100] %."
# Reason why a file of means has no tests over runs.
MEANS_ALONE = (
    "scores are means over runs whose own scores are not in the file, so no test over runs "
    "is possible"
)
MANY_SETS = 1000  # Above this number of data sets, similar data sets are not searched.
FEW_SETS = 2  # Up to this number of data sets, ranks cannot separate algorithms.
MANY = 12  # Above this number of algorithms, pairs get fewer draws or no model.


@dataclasses.dataclass(frozen=True)
class Unit:
    """A format of scores: multiplied by `scale`, with `digits` after the point."""

    scale: float
    digits: int
    name: str  # "%" or empty.

    def show(self, value: float, *, signed: bool = False) -> str:
        shown = tables.digits(self.digits, plus=signed)
        return shown(math.nan if value is None else value * self.scale)

    def spread(self, cells: pd.DataFrame) -> Callable[..., str]:
        """Return a function that formats the statistics of `SPREAD` of one cell as text.

        cells: the cells of the column. The text is `mean ± std`, or the mean alone if the
        standard deviation is unknown. If mean ± std of some cell leaves [0, 100] %, all cells
        show median and range instead (`RANGED`).
        """
        ranged = self.beyond(cells["mean"], cells["std"]).any()

        def shown(mean, std, *median_and_ends) -> str:
            if ranged:
                return tables.interval(self.show)(*median_and_ends)
            known = std is not None and math.isfinite(std)
            return self.show(mean) + (f" ± {self.show(std)}" if known else "")

        return shown

    def beyond(self, mean: pd.Series, half: pd.Series) -> pd.Series:
        """Return True for cells where mean ± half leaves [0, 100] %; all False without a unit."""
        return bool(self.name) & ((mean < half) | (mean + half > 1))

    @property
    def of_differences(self) -> str:
        return "percentage points" if self.name else "the scores' unit"


def unit_of(metric: str, values: Sequence[float]) -> Unit:
    """Return the unit of a metric: % for known fractions, else the scores' own unit."""
    if metric in ("accuracy", "real_accuracy", "shape_bias"):
        return Unit(scale=100, digits=1, name="%")
    largest = np.nanmax(np.abs(np.asarray(values, float)), initial=0)
    return Unit(scale=1, digits=3 if largest <= 2 else 1, name="")


@dataclasses.dataclass(frozen=True, eq=False)
class BenchmarkScores:
    """Scores of algorithms on data sets, one row a seed, and where they come from.

    `values` has the columns algorithm, dataset, seed, value, count, n, and deviation where a
    file of scores has means with their spread. `unfit` names data sets that may not be
    compared, with reasons. `twins` holds (first, second, reason): two algorithms, or two seeds
    of one algorithm, with the same results. The fields after `notes` are for runs only, except
    `understood`.
    """

    source: str
    options: options_lib.Options
    rule: str  # The selection in words.
    algorithms: tuple[str, ...]
    datasets: tuple[str, ...]
    values: pd.DataFrame
    unfit: tuple[tuple[str, str], ...] = ()
    trained: frozenset[tuple[str, str]] = frozenset()  # (algorithm, test set it saw).
    notes: tuple[str, ...] = ()
    twins: tuple[tuple[str, str, str], ...] = ()
    models: tuple[str, ...] = ()  # Networks that were trained, in alphabetical order.
    train_sets: tuple[str, ...] = ()  # Their training sets, in alphabetical order.
    # The records that selection looks at: label, dataset, run, seed, epoch, condition,
    # metric, value.
    chosen: pd.DataFrame | None = None
    selected: pd.DataFrame | None = None  # All metrics, by `selection`.
    others: tuple[tuple[str, pd.DataFrame], ...] = ()  # Other rules: name, `values`.
    runs: tuple[workdirs.Run, ...] = ()
    understood: tuple[str, ...] = ()  # How a file of scores was read, in three lines.
    diverged: pd.DataFrame | None = None

    @property
    def is_runs(self) -> bool:
        return self.chosen is not None

    @property
    def is_of_means(self) -> bool:
        """Return True if each score is a mean with a deviation over runs that are not in the file."""
        return "deviation" in self.values and self.seeds.max() == 1

    @property
    def better(self) -> dict[str, bool]:
        """Keyword arguments of the tests: `larger_is_better`."""
        return {"larger_is_better": self.options.larger_is_better}

    @property
    def higher(self) -> str:
        """Return the verb phrase of a winner, such as "is better than"; neutral for a bias."""
        metric, larger = self.options.metric, self.options.larger_is_better
        if self.has_better_side:
            return "is better than"
        if metric == "shape_bias":
            return f"has {'more' if larger else 'less'} shape bias than"
        side = "higher" if larger else "lower"
        return f"has a {side} {metric.replace('_', ' ')} than"

    @property
    def has_better_side(self) -> bool:
        """Return True if one direction of the score is better; False for a bias."""
        return not self.is_runs or self.options.metric not in _OF_CUES

    @property
    def sides(self) -> tuple[str, str]:
        """Return the words for the first and the second of two mean ranks, as (better, worse)."""
        return ("better", "worse") if self.has_better_side else ("higher", "lower")

    @property
    def best(self) -> str:
        """Return the word for the score of rank 1: "best", or for a bias "largest" or "smallest"."""
        side = "largest" if self.options.larger_is_better else "smallest"
        return "best" if self.has_better_side else side

    @property
    def ranks_first(self) -> str:
        """Return "larger is better", or which scores rank first where neither side is better."""
        side = "larger" if self.options.larger_is_better else "smaller"
        return f"{side} is better" if self.has_better_side else f"{side} ranks first"

    @property
    def repeats(self) -> str:
        """The noun for the scores of a cell: "seeds" or "runs"."""
        return "seeds" if self.is_runs else "runs"

    def cells_of(self, values: pd.DataFrame) -> pd.DataFrame:
        """Return `cells_of` values for all algorithms and data sets of this benchmark."""
        return cells_of(values, self.algorithms, self.datasets)

    @functools.cached_property
    def unit(self) -> Unit:
        metric = self.options.metric if self.is_runs else ""
        return unit_of(metric, self.values["value"])

    @functools.cached_property
    def seeds(self) -> pd.Series:
        """Number of seeds, or runs, with scores, by algorithm."""
        return self.values.groupby("algorithm")["seed"].nunique()

    @functools.cached_property
    def derived(self) -> tuple[score_notes.Note, ...]:
        """Notes on data sets, algorithms and runs whose scores are computed from other scores."""
        names = self.algorithms, self.datasets
        return tuple(score_notes.of_derived(self.values, *names))

    @functools.cached_property
    def warnings(self) -> tuple[str, ...]:
        """Sentences on scores that count twice, or that may be mistakes."""
        found = [note.text for note in self.derived]
        if not self.is_runs:  # Accuracies of runs are of one unit.
            found += score_notes.of_fractions(self.values)
        return (*found, *score_notes.of_outliers(self.values))

    @functools.cached_property
    def at_chance(self) -> tuple[dict, ...]:
        """Cells whose accuracy, or cue accuracy, is indistinguishable from chance."""
        found = _at_chance(self) if self.options.metric in _ACCURACIES else ()
        return (*found, *(_cues_at_chance(self) if self.is_runs else ()))

    @functools.cached_property
    def guessed(self) -> frozenset[tuple[str, str]]:
        """The (algorithm, data set) whose decisions behind the metric are at chance."""
        metric = self.options.metric
        metric = CUES if metric == "shape_bias" else metric
        return frozenset(
            (cell["algorithm"], cell["dataset"])
            for cell in self.at_chance
            if cell["metric"] == metric
        )

    def count_cells(self, *, of_cues: bool) -> int:
        """Return the number of cells with a score, or, with of_cues, with decisions for a cue."""
        if not of_cues:
            filled = self.values.dropna(subset="value")
            return len(filled[["algorithm", "dataset"]].drop_duplicates())
        rows = self.decisions_for_neither()
        return len(rows[["label", "dataset"]].drop_duplicates())

    def decisions_for_neither(self) -> pd.DataFrame:
        """Return the selected records of `fraction_neither` without a condition."""
        rows = self.selected
        rows = rows[(rows["metric"] == "fraction_neither") & (rows["condition"] == "")]
        return rows[rows["label"].isin(self.algorithms)]


def cells_of(values: pd.DataFrame, algorithms, datasets) -> pd.DataFrame:
    """Return `SPREAD` (std with ddof 1) and n, the number of seeds, per cell; n is 0 if empty."""
    groups = values.groupby(["algorithm", "dataset"])["value"]
    # A seed without a value (no decision to count) leaves the cell without a mean.
    parts = {key: getattr(groups, how)(skipna=False) for key, how in SPREAD.items()}
    table = pd.DataFrame(parts)
    table.insert(2, "n", groups.size())
    wanted = [algorithms, datasets], ["algorithm", "dataset"]
    table = table.reindex(pd.MultiIndex.from_product(wanted[0], names=wanted[1]))
    kinds = dict.fromkeys(SPREAD, float) | {"n": int}
    return table.fillna({"n": 0}).astype(kinds).reset_index()


@dataclasses.dataclass(frozen=True, eq=False)
class Analysis:
    """Means per cell and the tests over them; a test that cannot be made is None.

    The fields after `nemenyi` are filled by `with_evidence`. `tests` and `seeds` hold results of
    jbias.stats by function name, in the unit shown. In `tests`, bradley_terry is None for many
    algorithms or if too few draws are usable; tests against a control are present only with a
    reference. `alike` maps "scores" and "deviations" to (blocks of data sets, Friedman's test
    over them). `seeds` also has "both", differences over redrawn seeds and data sets; `seeds`
    is empty if `runs` is None.
    """

    study: BenchmarkScores
    # algorithm, dataset, `SPREAD` (ddof 1), n; all cells. Also deviation, if the file has it.
    cells: pd.DataFrame
    means: pd.DataFrame  # Those in the tests: data sets, algorithms.
    left_out: tuple[tuple[str, str], ...]  # Data set or algorithm, and why.
    friedman: Any = None
    uncorrected: Any = None
    permutation: Any = None  # Friedman's test without an approximation.
    nemenyi: Any = None
    tests: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    alike: Mapping[str, tuple[Any, Any]] = dataclasses.field(default_factory=dict)
    size: Any = None  # Of F at alpha, for so many data sets and algorithms.
    rope: float = math.nan  # The smallest difference that matters.
    score_range: float = math.nan  # Largest minus smallest mean score.
    units_apart: tuple[str, str] | None = None  # Data sets that cannot be of one unit.
    # Algorithms, or runs, with the same scores.
    twins: tuple[tuple[str, str], ...] = ()
    runs: score_table.Scores | None = None
    no_seeds: str = ""  # Why nothing is said of seeds; empty if something is.
    draws: int = 0  # Of runs.
    seeds: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Of one or two data sets, whose ranks are not tested.
    by_seeds: seed_tests.SeedTestsResult | None = None

    @property
    def alpha(self) -> float:
        return self.study.options.alpha

    @property
    def algorithms(self) -> tuple[str, ...]:
        return tuple(self.means.columns)

    @property
    def datasets(self) -> tuple[str, ...]:
        return tuple(self.means.index)

    @property
    def why_not(self) -> str:
        """The reason why ranks are not tested; empty if they are tested."""
        if self.friedman is not None:
            return ""
        if self.by_seeds is not None:
            return _WHY_NO_RANKS[len(self.datasets)]
        if len(self.study.datasets) <= FEW_SETS:
            return "No test was made: one needs 2 algorithms with scores on the same data set."
        counts = zip(("data set", "algorithm"), self.means.shape, strict=True)
        here = [f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts]
        return (
            "No test was made: ranks are compared over at least 2 data sets and 2 "
            f"algorithms, and here are {' and '.join(here)} with all cells filled."
        )

    @property
    def critical_difference(self) -> float:
        return self.nemenyi.critical_difference(self.alpha)

    @functools.cached_property
    def order(self) -> list[int]:
        """Column indices of the tested algorithms, the best mean rank first."""
        return np.argsort(self.nemenyi.ranks, kind="stable").tolist()

    @functools.cached_property
    def pairs(self) -> list[tuple[str, str, float]]:
        """All pairs as (better, worse, p), the smallest p first."""
        if self.nemenyi is None:
            return []
        ranked, names, pairs = self.nemenyi.ranks, self.algorithms, []
        for i, j in itertools.combinations(range(len(names)), 2):
            i, j = (j, i) if ranked[j] < ranked[i] else (i, j)
            pairs.append((names[i], names[j], float(self.nemenyi.pvalues[i, j])))
        return sorted(pairs, key=lambda pair: pair[2])

    @property
    def rejects(self) -> bool:
        """Return True if Friedman's permutation test rejects equality of all algorithms."""
        return self.friedman is not None and self.permutation.pvalue <= self.alpha

    @property
    def significant(self) -> list[tuple[str, str, float]]:
        """The significant pairs; empty unless the test of all algorithms rejects."""
        return [pair for pair in self.pairs if self.rejects and pair[2] <= self.alpha]

    @property
    def cliques(self) -> tuple[tuple[int, ...], ...]:
        return posthoc.cliques(self.nemenyi.ranks, self.critical_difference)

    @property
    def ranks(self) -> pd.DataFrame:
        """The rank of every algorithm on every tested data set."""
        ranks = score_table.rank(_rounded(self.means), **self.study.better)
        return pd.DataFrame(ranks, index=self.means.index, columns=self.means.columns)

    @property
    def leaders(self) -> set[str]:
        """Algorithms not significantly worse than the first; empty if none is worse."""
        if not self.significant:
            return set()
        first = self.algorithms[self.order[0]]
        behind = {worse for better, worse, _ in self.significant if better == first}
        return {*self.algorithms} - behind if behind else set()

    @property
    def best_cells(self) -> list[tuple[str, str]]:
        """The cells (algorithm, data set) that may be called best of their data set."""
        if self.by_seeds is not None:
            return best_by_seeds(self.by_seeds, self.means, **self.study.better)
        if self.runs is None:
            return []
        cells = best_cells(self.runs, **self.study.better, alpha=self.alpha)
        return [(self.algorithms[a], self.datasets[d]) for a, d in cells]

    @property
    def fewest(self) -> int:
        return int(self.runs.counts.min()) if self.runs is not None else 0

    @property
    def bounds(self) -> str:
        """The words of captions for the intervals over redrawn runs."""
        if self.fewest == 2:
            return "no intervals (two give none)"
        held = resampling.percentile_coverage(self.fewest)
        return (
            f"95% percentile intervals (which hold the mean of new {self.study.repeats} in about "
            f"{held:.0%} of cases with {self.fewest}, if scores are normal)"
        )


def analyse(study: BenchmarkScores) -> Analysis:
    """Return the tests of all algorithms with scores over all data sets that may be compared."""
    cells = study.cells_of(study.values)
    if study.is_of_means:
        keys = ["algorithm", "dataset"]
        cells = cells.merge(study.values[[*keys, "deviation"]], how="left", on=keys)
    means = cells.pivot(index="dataset", columns="algorithm", values="mean")
    means = means.reindex(index=list(study.datasets), columns=list(study.algorithms))
    silent = [name for name in study.algorithms if means[name].isna().all()]
    means = means.drop(columns=silent)
    reasons = dict(study.unfit)
    for dataset, row in means.iterrows():
        seen = [name for name in row.index if (name, dataset) in study.trained]
        if study.options.strict and seen:
            reasons[dataset] = f"{', '.join(seen)} trained on it"
        if row.isna().any():
            empty = ", ".join(row.index[row.isna()])
            reasons[dataset] = f"missing cells: no score of {empty}"
    left_out = [(name, "no seed of it has a score") for name in silent]
    left_out += [(name, reasons[name]) for name in study.datasets if name in reasons]
    means = means.drop(index=[name for name in study.datasets if name in reasons])
    analysis = Analysis(study, cells, means, tuple(left_out))
    if len(study.datasets) <= FEW_SETS:
        return dataclasses.replace(analysis, by_seeds=compare_seeds(analysis))
    if min(means.shape) < 2:
        return analysis
    scores, better = _rounded(means), study.better
    return dataclasses.replace(
        analysis,
        friedman=stats.friedman(scores, **better),
        uncorrected=stats.friedman(scores, ties=False, **better),
        permutation=stats.friedman_permutation(scores, **better),
        nemenyi=stats.nemenyi(scores, **better),
    )


_WHY_NO_RANKS = {
    1: "Ranks over data sets are not tested: there is only one data set.",
    2: "Ranks over data sets are not tested: with 2 data sets, no two mean ranks can lie a "
    "critical difference of Nemenyi's test apart.",
}


def compare_seeds(analysis: Analysis) -> seed_tests.SeedTestsResult | None:
    """Return the tests over the seeds of each data set; None for fewer than 2 algorithms.

    With a reference each algorithm is compared with it alone. Seeds without a score on
    every data set are left out. Raises ValueError for `--paired-seeds` where algorithms do
    not have the same seeds.
    """
    study, options = analysis.study, analysis.study.options
    if len(analysis.algorithms) < 2 or not analysis.datasets:
        return None
    frame = seed_rows(analysis)
    frame = score_table.drop_incomplete(frame, drop="runs")
    if frame["algorithm"].nunique() < 2:
        return None
    table = score_table.read(frame, least_datasets=1)
    names = [name for name in analysis.algorithms if name in table.algorithms]
    table = table.only(datasets=analysis.datasets, algorithms=names)
    is_reference = options.reference in names
    # Welch's test decides: the permutation test may be coarser where pairs are many.
    draws = int(np.clip(2e6 / len(names) ** 2, 999, 9_999))
    try:
        result = stats.compare_seeds(
            table,
            reference=options.reference if is_reference else None,
            paired=options.paired_seeds,
            alpha=options.alpha,
            draws=draws,
            **study.better,
        )
    except ValueError as error:
        if not str(error).startswith("paired:"):
            raise
        told = (
            str(error)
            .removeprefix("paired:")
            .replace("compare unpaired", "leave it out")
        )
        raise ValueError(f"--paired-seeds:{told}") from None
    return _cut_intervals(result, study.unit)


def _cut_intervals(
    result: seed_tests.SeedTestsResult, unit: Unit
) -> seed_tests.SeedTestsResult:
    """Return the tests with intervals of differences of shares within -100 and 100.

    A t interval knows no bounds. The part that is cut holds no possible difference, so the
    interval holds the true one as often as before.
    """
    if not unit.name:
        return result
    tests = [
        dataclasses.replace(
            test,
            low=float(np.clip(test.low, -unit.scale, unit.scale)),
            high=float(np.clip(test.high, -unit.scale, unit.scale)),
        )
        for test in result.tests
    ]
    return dataclasses.replace(result, tests=tuple(tests))


def seed_rows(analysis: Analysis) -> pd.DataFrame:
    """Return the tested scores, a row a seed: algorithm, dataset, run, score as shown.

    A run is called by its seed alone, unless two runs of an algorithm have the same.
    """
    values = analysis.study.values.astype({"algorithm": str, "dataset": str})
    tested = values["dataset"].isin(analysis.datasets)
    tested &= values["algorithm"].isin(analysis.algorithms)
    values = values[tested].reset_index(drop=True)
    frame = values[["algorithm", "dataset"]].assign(
        run=values["seed"].astype(str),
        score=values["value"].astype(float) * analysis.study.unit.scale,
    )
    if not analysis.study.is_runs:
        return frame
    by_seed = frame.assign(run=frame["run"].str.rpartition(":")[2])
    is_doubled = by_seed.duplicated(["algorithm", "dataset", "run"]).any()
    return frame if is_doubled else by_seed


def best_by_seeds(
    result: seed_tests.SeedTestsResult, means: pd.DataFrame, *, larger_is_better: bool
) -> list[tuple[str, str]]:
    """Return the cells (algorithm, data set) not significantly different from the best.

    A data set on which no algorithm differs significantly from the best has no such cell. The
    list is empty if only comparisons with a reference were made.
    """
    if result.reference is not None:
        return []
    cells = []
    for dataset in result.datasets:
        row = means.loc[dataset, list(result.algorithms)]
        best = row.idxmax() if larger_is_better else row.idxmin()
        behind = {
            name
            for test in result.tests
            for name in (test.first, test.second)
            if test.dataset == dataset
            and best in (test.first, test.second)
            and test.adjusted <= result.alpha
        }
        names = set(result.algorithms) - behind | {best}
        cells += [
            (name, dataset) for name in result.algorithms if behind and name in names
        ]
    return cells


def _rounded(scores: pd.DataFrame) -> pd.DataFrame:
    """Return scores rounded to 12 digits, so that the order of a sum cannot break a tie."""
    return scores.map(lambda value: float(f"{value:.12g}"))


def with_evidence(analysis: Analysis) -> Analysis:
    """Return the analysis with further tests added; unchanged if ranks were not tested."""
    if analysis.friedman is None:
        return analysis
    study, options = analysis.study, analysis.study.options
    table = score_table.read(_rounded(analysis.means * study.unit.scale))
    (n, k), better = table.means.shape, study.better
    points = options.points or (0.01 if np.abs(table.means).max() <= 1 else 1.0)
    alike = (stats.quade, stats.aligned_ranks, stats.max_t, stats.conover)
    tests = {one.__name__: one(table, **better) for one in (*alike, stats.wilcoxon)}
    bayesian = dict(rope=points, draws=_posterior_draws(n, k), **better)
    tests["signed_rank"] = stats.bayesian_signed_rank(table, **bayesian)
    tests["bradley_terry"] = _bradley_terry(table, better) if k <= MANY else None
    if options.reference in table.algorithms:
        against = {"control": options.reference, **better}
        tests["dunn"] = stats.bonferroni_dunn(table, **against)
        tests["control_wilcoxon"] = stats.wilcoxon(table, **against)
    runs, no_seeds = seeds_of(analysis)
    draws, of_seeds = 0, dict
    if runs is not None:
        # Fewer for very large tables: a report takes seconds.
        draws = int(np.clip(5e7 / (n * k * k * runs.values.shape[2]), 200, 2000))
        of_seeds = lambda: _of_seeds(runs, better, draws, points, analysis.alpha)
    # Of more data sets F is no worse, and it takes minutes.
    of_size = lambda: stats.type_1_error(min(n, MANY_SETS), k, alpha=analysis.alpha)
    seeds, size, alike = run_side_by_side(
        [of_seeds, of_size, lambda: dict(_in_blocks(table, options.blocks, better))]
    )
    return dataclasses.replace(
        analysis,
        tests=tests,
        alike=alike,
        size=size,
        rope=points,
        score_range=float(np.ptp(table.means)),
        units_apart=_units_apart(table),
        twins=tuple(_equal_scores(table, runs)),
        runs=runs,
        no_seeds=no_seeds,
        draws=draws,
        seeds=seeds,
    )


def _posterior_draws(n: int, k: int) -> int:
    """Return the number of posterior draws for n data sets and k algorithms."""
    return int(np.clip(2e7 / n, 200, 20_000 if k <= MANY else 1000))


def _in_blocks(table, blocks: int | None, better) -> Iterator[tuple[str, tuple]]:
    n = len(table.datasets)
    must = f"be from 1 to {n}, the number of data sets"
    score_table.check(blocks is None or blocks <= n, "blocks", must, blocks)
    if len(table.algorithms) < 4:  # Correlations over three say nothing.
        return
    if len(table.datasets) > MANY_SETS:  # All pairs of these take hours.
        return
    for by, method in (("scores", "spearman"), ("deviations", "deviations")):
        found = stats.find_blocks(table, blocks=blocks, method=method)
        yield by, (found, stats.friedman_blocked(table, blocks=found.labels, **better))


def _bradley_terry(table: score_table.Scores, better: Mapping[str, bool]):
    try:
        return stats.bradley_terry(table, **better)
    except ValueError as error:
        if not str(error).startswith("draws:"):
            raise
        return None  # The draws are worth too little; the table of pairs lacks it.


def _of_seeds(runs, better, draws: int, points: float, alpha: float) -> dict[str, Any]:
    common, half = {**better, "draws": draws}, {"alpha": alpha, "draws": draws // 2}
    shown = _without_intervals if runs.counts.min() == 2 else lambda result: result
    of_effects = {**better, "draws": max(draws // 4, 100)}
    tasks = {
        "intervals": lambda: shown(stats.intervals(runs, **common)),
        "performance_profiles": lambda: shown(
            stats.performance_profiles(runs, **common)
        ),
        "mean_differences": lambda: shown(stats.mean_differences(runs, **common)),
        "stability": lambda: shown(stats.rank_stability(runs, alpha=alpha, **common)),
        "both": lambda: stats.mean_differences(runs, datasets=True, **common),
        "improvement": lambda: stats.probability_of_improvement(runs, **common),
        "mixed": lambda: stats.mixed_model(runs, **better),
        "effects": lambda: stats.effect_sizes(runs, **of_effects),
        "power": lambda: stats.power_of_design(runs, difference=points, **half),
    }
    return dict(zip(tasks, run_side_by_side([*tasks.values()]), strict=True))


_THREADS = 4  # Each holds its own draws.


def run_side_by_side(tasks: Sequence[Callable[[], Any]]) -> list:
    """Run tasks in threads and return their results in order; numpy releases the GIL."""
    with futures.ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        return [*pool.map(lambda task: task(), tasks)]


def _without_intervals(result):
    """Return a result with NaN for all bounds of intervals, which two runs do not give."""
    estimates = {}
    for name, value in vars(result).items():
        if isinstance(value, resampling.Estimate):
            nan = value.low * np.nan
            estimates[name] = dataclasses.replace(value, low=nan, high=nan)
    return dataclasses.replace(result, **estimates)


def seeds_of(analysis: Analysis) -> tuple[score_table.Scores | None, str]:
    """Return (scores per seed, ""), or (None, reason) if there are no complete scores."""
    study, values = analysis.study, analysis.study.values
    if study.is_of_means:
        return None, MEANS_ALONE
    wanted = values["dataset"].isin(analysis.datasets)
    wanted &= values["algorithm"].isin(analysis.algorithms)
    values = values[wanted.to_numpy()]
    frame = values[["algorithm", "dataset", "seed"]].astype(str)
    frame["score"] = values["value"].astype(float) * study.unit.scale
    frame = frame.rename(columns={"seed": "run"})
    one = study.repeats.removesuffix("s")
    if lacking := score_table.missing_cells(frame):
        first = "; ".join(lacking[:3])
        return None, f"not every {one} has a score on every data set ({first})"
    runs = score_table.read(frame)
    runs = runs.only(datasets=analysis.datasets, algorithms=analysis.algorithms)
    single = [a for a, n in zip(runs.algorithms, runs.counts, strict=True) if n < 2]
    if single:
        if len(single) == len(runs.algorithms):
            return None, f"there is a single {one} of each algorithm"
        more = " and others" if len(single) > 3 else ""
        return None, f"there is a single {one} of {', '.join(single[:3])}{more}"
    return runs, ""


def shared_seeds(
    analysis: Analysis, *algorithms: str
) -> tuple[Float[np.ndarray, "n r"], ...]:
    """Return one array per algorithm: the tested scores of the seeds that all of them have."""
    values = analysis.study.values.astype({"algorithm": str, "dataset": str})
    asked = values["algorithm"].isin(algorithms)
    values = values[asked & values["dataset"].isin(analysis.datasets)]
    keys, name = ["algorithm", "dataset", "seed"], values["seed"].astype(str)
    named = values.assign(seed=name.str.rpartition(":")[2])
    if named.duplicated(keys).any():  # Two runs of one seed: which is whose pair?
        named = values
    wide = named.pivot(index="seed", columns=keys[:2], values="value")
    both = wide[[*itertools.product(algorithms, analysis.datasets)]].dropna()
    return tuple(both[one].to_numpy(float).T for one in algorithms)


def _equal_scores(table, runs) -> Iterator[tuple[str, str]]:
    """Yield pairs of algorithms, or of runs of one algorithm, with identical scores."""
    groups = [(table.algorithms, table.means.T)]
    for name in runs.algorithms if runs is not None else ():
        scores = runs.runs(name).T
        groups.append(([f"{name} run {i + 1}" for i in range(len(scores))], scores))
    for names, rows in groups:
        first: dict[tuple[float, ...], str] = {}
        for name, scores in zip(names, rows.tolist(), strict=True):
            if (one := first.setdefault(tuple(scores), name)) != name:
                yield one, name


def _units_apart(table: score_table.Scores) -> tuple[str, str] | None:
    """Return two data sets, the first with fractions and the second without, or None."""
    most = np.abs(table.means).max(axis=1)
    low, high = int(np.argmin(most)), int(np.argmax(most))
    apart = most[low] <= 1 and most[high] > 20 * most[low]
    return (table.datasets[low], table.datasets[high]) if apart else None


def best_cells(
    runs: score_table.Scores, *, larger_is_better: bool, alpha: float
) -> list[tuple[int, int]]:
    """Return the (algorithm index, data set index) of the best cells of each data set.

    These are the best mean and the following means, in order, down to the first that differs
    significantly from the best by Welch's t test; no cell if no mean differs. The best is
    chosen by the same scores, so p is multiplied by the number of all pairs (Bonferroni). The
    spread of an algorithm is at least the pooled spread on the data set, since two or three
    runs may coincide by chance. Data sets are treated separately.
    """
    cells, sign = [], 1 if larger_is_better else -1
    counts, k = runs.counts, len(runs.algorithms)
    variances, freedom = runs.stds**2, counts - 1
    pooled = (variances @ freedom) / freedom.sum()
    stds = np.sqrt(np.maximum(variances, pooled[:, None]))
    for i, mean in enumerate(sign * runs.means):
        order = np.argsort(-mean, kind="stable")
        best, others = order[0], order[1:]
        if not pooled[i]:
            continue
        both = ((mean[of], stds[i, of], counts[of]) for of in (best, others))
        welch = functools.partial(scipy.stats.ttest_ind_from_stats, equal_var=False)
        p = welch(*itertools.chain(*both)).pvalue
        apart = p * k * (k - 1) / 2 <= alpha
        if apart.any():
            kept = others[: int(np.argmax(apart))]
            cells += [(int(j), i) for j in (best, *kept)]
    return cells


_UNIT = ["label", "workdir", "seed"]
_MOMENT = ["stage", "step", "dataset", "condition", "metric"]


def twins_of_runs(frame: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    """Yield (first, second, reason): two algorithms, or two seeds of one, with the same results.

    Results are the same if accuracies and losses are equal in all evaluations, and so are the
    decisions, if stored. Two algorithms must agree in every seed that both have. frame:
    records with a column `label`.
    """
    frame = frame[[*_UNIT, *_MOMENT, "value"]]
    if (is_missing := frame["value"].isna()).any():
        frame = frame[~is_missing]
    digest = _digests(frame)
    metric, units = frame["metric"], results.number_rows(frame, _UNIT)
    losses = [name for name in metric.unique() if name.startswith("loss")]
    kinds = {"right": metric == "accuracy", "loss": metric.isin(losses)}
    sums = pd.DataFrame(
        {
            kind: pd.Series(np.where(rows, digest, 0)).groupby(units, sort=False).sum()
            for kind, rows in kinds.items()
        }
    )
    names = frame[_UNIT].take(results.first_rows(frame, _UNIT))
    sums.index = pd.MultiIndex.from_frame(names)
    counts = collections.Counter()
    again = sums[(sums["right"] != 0) & sums.duplicated("right", keep=False)]
    for _, alike in again.groupby("right", sort=False):
        for one, other in itertools.combinations(alike["loss"].items(), 2):
            names = _twin_names(one[0], other[0])
            if names and one[1] == other[1] and (how := _alike(one[0], other[0])):
                counts[(*names, how)] += 1
    seeds = sums.reset_index().groupby("label", observed=True)["seed"].agg(set)
    for twins, count in counts.items():
        one, other, _ = twins
        if one not in seeds or count == len(seeds[one] & seeds[other]):
            yield twins


def _digests(frame: pd.DataFrame) -> np.ndarray:
    """Return a digest per row of the stage, step, data set, condition, metric and value."""
    digests = pd.util.hash_array(results.number_rows(frame, _MOMENT))
    digests += pd.util.hash_array(frame["value"].to_numpy())
    return pd.util.hash_array(digests)


def _twin_names(one: tuple, other: tuple) -> list[str]:
    if one[0] == other[0]:
        return [f"{one[0]} seed {one[2]}", f"seed {other[2]}"]
    both = sorted((one[0], other[0]), key=lambda name: name.lower() != "erm")
    return both if one[2] == other[2] else []


def _alike(one: tuple, other: tuple) -> str:
    """Return how the results of two runs are equal, or "" if their decisions differ."""
    first, second = (_decided(folder).get(seed, {}) for _, folder, seed in (one, other))
    common = first.keys() & second.keys()
    if not common:
        return "have the same accuracies and losses in every evaluation"
    same = "gave the same decisions on every image of every set"
    return same if all(first[name] == second[name] for name in common) else ""


@functools.lru_cache(maxsize=1000)
def _decided(workdir: str) -> dict[int, dict[str, bytes]]:
    """Return digests of stored decisions by seed and file; damaged files are skipped."""
    folder, digests = pathlib.Path(workdir) / "decisions", collections.defaultdict(dict)
    for path in folder.glob("*/*.parquet"):
        with contextlib.suppress(
            ValueError, OSError
        ):  # The check of files reports them.
            for seed, one in decisions.read(path).items():
                digest = hashlib.sha256(one.prediction.tobytes()).digest()
                digests[seed][f"{path.parent.name}/{path.name}"] = digest
    return digests


_ACCURACIES = ("accuracy", "accuracy_shape", "accuracy_texture")
CUES = "cue_accuracy"  # The share of decisions for the shape or the texture.
# Metrics of cue conflicts, of which neither a large nor a small value is better.
_OF_CUES = ("shape_bias", "fraction_neither", "accuracy_shape", "accuracy_texture")
_OF_CUES += ("mrr_shape", "mrr_texture", "mrr_relative")


def _classes(study: BenchmarkScores) -> dict[str, int]:
    """Return the number of classes by data set, for data sets on which all runs agree."""
    known: dict[str, set] = {}
    for run in study.runs:
        for name, facts in run.data.items():
            rule = facts.get("decision") if isinstance(facts, dict) else None
            among = re.search(r"over (?:the network's )?([\d,]+) classes", str(rule))
            known.setdefault(name, set()).add(among and int(among[1].replace(",", "")))
    alike = {name: [*sizes] for name, sizes in known.items() if len(sizes) == 1}
    return {name: size for name, (size,) in alike.items() if size}


def _at_chance(study: BenchmarkScores) -> Iterator[dict]:
    """Yield cells whose Wilson interval of the accuracy contains 1 / classes."""
    classes = _classes(study)
    values = study.values[study.values["dataset"].isin([*classes])]
    cells = values.groupby(["algorithm", "dataset"], observed=True, sort=False)
    for (algorithm, dataset), rows in cells:
        images, mean = set(rows["n"]), rows["value"].mean()
        if len(images) != 1 or pd.isna([mean, *images]).any():
            continue
        chance, n = 1 / classes[dataset], int(*images)
        low, high = decisions.wilson_interval(round(mean * n), n)
        if low <= chance <= high:
            yield {
                "algorithm": str(algorithm),
                "dataset": str(dataset),
                "metric": study.options.metric,
                "accuracy": mean,
                "classes": classes[dataset],
                "chance": chance,
                "n": n,
            }


def _cues_at_chance(study: BenchmarkScores) -> Iterator[dict]:
    """Yield cells of cue conflicts whose share of decisions for a cue is at chance.

    Two of k classes belong to a cue, so guessing decides for a cue in a share of 2 / k. The
    shape bias of such decisions has no meaning. A cell is at chance if the lower end of
    Wilson's interval of the mean share over seeds, for the images of one network, is not above
    2 / k.
    """
    classes, rows = _classes(study), study.decisions_for_neither()
    cells = rows.groupby(["label", "dataset"], observed=True, sort=False)
    for (algorithm, dataset), part in cells:
        images, mean = set(part["n"]), 1 - part["value"].mean()
        if dataset not in classes or len(images) != 1 or pd.isna([mean, *images]).any():
            continue
        chance, n = min(2 / classes[dataset], 1), int(*images)
        low, _ = decisions.wilson_interval(round(mean * n), n)
        if n and chance < 1 and low <= chance:
            yield {
                "algorithm": str(algorithm),
                "dataset": str(dataset),
                "metric": CUES,
                "accuracy": mean,
                "classes": classes[dataset],
                "chance": chance,
                "n": n,
            }
