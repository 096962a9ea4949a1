"""Class for the analysis of a benchmark's scores, and the functions that test them.

A cell is an algorithm on a data set. `analyse` tests the means over seeds by Friedman's and
Nemenyi's tests, which ignore the spread over seeds. `with_evidence` adds other tests of these
means. It also adds tests and intervals from the spread over seeds, and the power of the study.
"""

import contextlib
import dataclasses
import functools
import itertools
import math
import os
from collections.abc import Iterator, Mapping
from concurrent import futures
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.stats
from jaxtyping import Float

from jbias import errors, stats
from jbias.report import tables
from jbias.report.pages.benchmark import benchmark_scores
from jbias.stats import (
    bayes,
    bootstrap,
    bootstrap_intervals,
    comparison_matrix,
    effects,
    hierarchical,
    omnibus,
    paired_comparison,
    posthoc,
    power,
    score_table,
    seed_tests,
)
from jbias.stats import dataset_blocks as dataset_blocks_lib
from jbias.stats import permutation as permutation_lib

MANY_SETS = 1000  # Above this number of data sets, similar data sets are not searched.
FEW_SETS = 2  # Up to this number of data sets, ranks cannot separate algorithms.
# Above this number of algorithms, pairs get fewer posterior draws or no Bradley-Terry model.
MANY_ALGORITHMS = 12


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class MeanTests:
    """Further tests of the means, which do not decide the headline."""

    quade: omnibus.OmnibusResult
    aligned_ranks: omnibus.OmnibusResult
    max_t: permutation_lib.MaxTResult
    conover: posthoc.PairsResult  # Adjusted by Holm, as `wilcoxon`.
    wilcoxon: posthoc.PairsResult
    signed_rank: bayes.PosteriorResult  # Bayesian.
    # None for more than `MANY_ALGORITHMS` algorithms, or if too few posterior draws are usable.
    bradley_terry: paired_comparison.BradleyTerryResult | None
    # Bonferroni-Dunn's and Wilcoxon's test of every algorithm against the reference; None if the
    # reference was not tested.
    dunn: posthoc.ControlResult | None
    control_wilcoxon: posthoc.ControlResult | None


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class SeedResults:
    """Results over redrawn seeds.

    If an algorithm has only 2 runs, the intervals of the first four results are NaN.
    """

    intervals: bootstrap.IntervalsResult
    performance_profiles: bootstrap.ProfilesResult
    mean_differences: bootstrap.PairsResult
    stability: bootstrap.RankStabilityResult
    # Mean differences over redrawn seeds and data sets.
    differences_over_datasets: bootstrap.PairsResult
    # Probability that one run of an algorithm beats one run of another.
    improvement: bootstrap.PairsResult
    mixed: hierarchical.MixedResult  # Linear mixed model of equal means.
    effects: effects.EffectsResult  # Effect sizes of pairs.
    power: power.PowerResult  # Of a study like this one.


class BlockTest(NamedTuple):
    """Blocks of similar data sets, and Friedman's test over the blocks."""

    blocks: dataset_blocks_lib.BlocksResult
    test: dataset_blocks_lib.BlockedFriedmanResult


@dataclasses.dataclass(frozen=True, eq=False)
class Analysis:
    """Means per cell and the tests of these means; a test that cannot be computed is None.

    The fields after `nemenyi` are filled by `with_evidence`. Results of jbias.stats are in the
    page's unit. `dataset_blocks` has the kinds of similarity "scores" and "deviations".
    """

    study: benchmark_scores.BenchmarkScores
    # All cells: algorithm, dataset, `SPREAD` (ddof 1), n, and deviation if the file has it.
    cells: pd.DataFrame
    means: (
        pd.DataFrame
    )  # Means that are tested: data sets in rows, algorithms in columns.
    left_out: tuple[tuple[str, str], ...]  # (data set or algorithm, reason).
    friedman: omnibus.FriedmanResult | None = None
    uncorrected: omnibus.FriedmanResult | None = None  # Without correction for ties.
    permutation: permutation_lib.PermutationResult | None = None
    nemenyi: posthoc.NemenyiResult | None = None
    tests: MeanTests | None = None  # None if ranks were not tested.
    dataset_blocks: Mapping[str, BlockTest] = dataclasses.field(default_factory=dict)
    # Type 1 error of F at alpha, with this number of data sets and algorithms.
    size: permutation_lib.Type1ErrorResult | None = None
    rope: float = math.nan  # Smallest difference that matters.
    score_range: float = math.nan  # Largest minus smallest mean score.
    units_apart: tuple[str, str] | None = None  # Two data sets with different units.
    twins: tuple[
        tuple[str, str], ...
    ] = ()  # Algorithms, or runs, with the same scores.
    runs: score_table.Scores | None = None
    no_seeds: str = ""  # Reason why seeds are not analysed, or empty.
    draws: int = 0  # Number of bootstrap draws of runs.
    seeds: SeedResults | None = None  # None if `runs` is None.
    # Tests over seeds in studies of one or two data sets. Such studies have no rank tests.
    by_seeds: seed_tests.SeedTestsResult | None = None

    @property
    def alpha(self) -> float:
        """The significance level."""
        return self.study.options.alpha

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The tested algorithms."""
        return tuple(self.means.columns)

    @property
    def datasets(self) -> tuple[str, ...]:
        """The tested data sets."""
        return tuple(self.means.index)

    @property
    def why_not(self) -> str:
        """The reason why ranks are not tested, as a sentence; empty if ranks are tested."""
        if self.friedman is not None:
            return ""
        if self.by_seeds is not None:
            return _WHY_NO_RANKS[len(self.datasets)]
        if len(self.study.datasets) <= FEW_SETS:
            return "No test was made: a test needs 2 algorithms with scores on the same data set."
        num_datasets, num_algorithms = self.means.shape
        return (
            "No test was made: ranks are compared over at least 2 data sets and 2 "
            f"algorithms, but only {tables.count(num_datasets, 'data set')} and "
            f"{tables.count(num_algorithms, 'algorithm')} have all cells filled."
        )

    @property
    def has_reference(self) -> bool:
        """True if the reference was tested against every other algorithm."""
        return self.tests is not None and self.tests.dunn is not None

    @property
    def critical_difference(self) -> float:
        """The critical difference of mean ranks of Nemenyi's test at `alpha`.

        Ranks must have been tested. `order` and `cliques` have the same requirement.
        """
        return self.nemenyi.critical_difference(self.alpha)

    @functools.cached_property
    def order(self) -> list[int]:
        """Column indices of the tested algorithms, sorted by mean rank, the smallest first."""
        return np.argsort(self.nemenyi.ranks, kind="stable").tolist()

    @functools.cached_property
    def pairs(self) -> list[tuple[str, str, float]]:
        """All pairs as (better, worse, p of Nemenyi's test), the smallest p first.

        The better algorithm of a pair has the smaller mean rank. Empty if ranks were not tested.
        """
        if self.nemenyi is None:
            return []
        ranked = self.nemenyi.ranks
        names = self.algorithms
        pairs = []
        for i, j in itertools.combinations(range(len(names)), 2):
            i, j = (j, i) if ranked[j] < ranked[i] else (i, j)
            pairs.append((names[i], names[j], float(self.nemenyi.pvalues[i, j])))
        return sorted(pairs, key=lambda pair: pair[2])

    @property
    def rejects(self) -> bool:
        """True if Friedman's permutation test rejects equality of all algorithms."""
        return self.friedman is not None and self.permutation.pvalue <= self.alpha

    @property
    def significant(self) -> list[tuple[str, str, float]]:
        """The pairs with p <= alpha, as (better, worse, p).

        Empty unless the test of all algorithms rejects.
        """
        return [pair for pair in self.pairs if self.rejects and pair[2] <= self.alpha]

    @property
    def cliques(self) -> tuple[tuple[int, ...], ...]:
        """Groups (column indices) of algorithms that Nemenyi's test does not separate."""
        return posthoc.cliques(self.nemenyi.ranks, self.critical_difference)

    @property
    def ranks(self) -> pd.DataFrame:
        """Ranks from 1, data sets in rows and algorithms in columns; ties get the mean rank."""
        ranks = score_table.rank(
            _rounded(self.means), larger_is_better=self.study.larger_is_better
        )
        return pd.DataFrame(ranks, index=self.means.index, columns=self.means.columns)

    @property
    def leaders(self) -> set[str]:
        """The algorithm with the best mean rank, and all algorithms not significantly worse.

        Significance is by Nemenyi's test. Empty if no algorithm is significantly worse.
        """
        if not self.significant:
            return set()
        first = self.algorithms[self.order[0]]
        behind = {worse for better, worse, _ in self.significant if better == first}
        return {*self.algorithms} - behind if behind else set()

    @property
    def best_cells(self) -> list[tuple[str, str]]:
        """Cells (algorithm, data set) not significantly different from the data set's best mean.

        The cell of the best mean is included. A data set has no such cell if no mean differs
        significantly from the best. Empty if seeds were not analysed, or if tests over seeds
        compare with a reference only.
        """
        if self.by_seeds is not None:
            return best_by_seeds(
                self.by_seeds,
                self.means,
                larger_is_better=self.study.larger_is_better,
            )
        if self.runs is None:
            return []
        cells = best_cells(
            self.runs,
            larger_is_better=self.study.larger_is_better,
            alpha=self.alpha,
        )
        return [(self.algorithms[a], self.datasets[d]) for a, d in cells]

    @property
    def min_runs(self) -> int:
        """The smallest number of runs of an algorithm; 0 if runs are not analysed."""
        return int(self.runs.counts.min()) if self.runs is not None else 0

    @property
    def bounds(self) -> str:
        """A phrase for captions: the kind of the intervals over redrawn runs, and their coverage.

        An example is "95% percentile intervals (which contain the mean of new seeds in about 90% of
        cases with 5, if scores are normal)". The phrase is "no intervals (two runs give none)" if
        an algorithm has only 2 runs. Runs must have been analysed.
        """
        if self.min_runs == 2:
            return "no intervals (two runs give none)"
        coverage = bootstrap_intervals.percentile_coverage(self.min_runs)
        return (
            f"95% percentile intervals (which contain the mean of new {self.study.repeats} in "
            f"about {coverage:.0%} of cases with {self.min_runs}, if scores are normal)"
        )


def analyse(study: benchmark_scores.BenchmarkScores) -> Analysis:
    """Return the means per cell of a study, and the rank tests of these means.

    The tests use means with 12 significant digits. A cell has no mean if one of its seeds has no
    score. The tests leave out algorithms without any mean, data sets in `study.unfit`, and data
    sets without the mean of an algorithm. With --strict, data sets that an algorithm trained on are
    also left out. If fewer than two algorithms or data sets remain, all tests are None.

    For a study of one or two data sets, tests over seeds replace the rank tests. Raises ValueError
    as `compare_seeds` does. `with_evidence` adds further tests.
    """
    cells = study.cells_of(study.values)
    if study.is_of_means:
        keys = ["algorithm", "dataset"]
        cells = cells.merge(study.values[[*keys, "deviation"]], how="left", on=keys)
    means = cells.pivot(index="dataset", columns="algorithm", values="mean")
    means = means.reindex(index=list(study.datasets), columns=list(study.algorithms))
    without_scores = [name for name in study.algorithms if means[name].isna().all()]
    means = means.drop(columns=without_scores)
    reasons = dict(study.unfit)
    for dataset, row in means.iterrows():
        trained_on = [name for name in row.index if (name, dataset) in study.trained]
        if study.options.strict and trained_on:
            reasons[dataset] = f"{', '.join(trained_on)} trained on it"
        if row.isna().any():
            empty = ", ".join(row.index[row.isna()])
            reasons[dataset] = f"missing cells: no score of {empty}"
    left_out = [(name, "no seed of it has a score") for name in without_scores]
    left_out += [(name, reasons[name]) for name in study.datasets if name in reasons]
    means = means.drop(index=[name for name in study.datasets if name in reasons])
    analysis = Analysis(study, cells, means, tuple(left_out))
    if len(study.datasets) <= FEW_SETS:
        return dataclasses.replace(analysis, by_seeds=compare_seeds(analysis))
    if min(means.shape) < 2:
        return analysis
    scores = _rounded(means)
    larger_is_better = study.larger_is_better
    return dataclasses.replace(
        analysis,
        friedman=stats.friedman(scores, larger_is_better=larger_is_better),
        uncorrected=stats.friedman(
            scores, ties=False, larger_is_better=larger_is_better
        ),
        permutation=stats.friedman_permutation(
            scores, larger_is_better=larger_is_better
        ),
        nemenyi=stats.nemenyi(scores, larger_is_better=larger_is_better),
    )


_WHY_NO_RANKS = {
    1: "Ranks over data sets are not tested: there is only one data set.",
    2: "Ranks over data sets are not tested: with 2 data sets, no two mean ranks can lie a "
    "critical difference of Nemenyi's test apart.",
}


def compare_seeds(analysis: Analysis) -> seed_tests.SeedTestsResult | None:
    """Return the tests over the seeds of each data set.

    With a reference that is tested, each algorithm is compared with the reference only. Seeds
    without a score on every tested data set are left out. Scores are in the page's unit; intervals
    of scores in % are cut to [-100, 100] percentage points. None if no data set, or fewer than 2
    algorithms, remain. Raises ValueError for `--paired-seeds` if algorithms do not have the same
    seeds.
    """
    study = analysis.study
    options = analysis.study.options
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
    # Significance is by Welch's test: the permutation test gets fewer draws for many pairs.
    draws = int(np.clip(2e6 / len(names) ** 2, 999, 9_999))
    try:
        result = stats.compare_seeds(
            table,
            reference=options.reference if is_reference else None,
            paired=options.paired_seeds,
            alpha=options.alpha,
            draws=draws,
            larger_is_better=study.larger_is_better,
        )
    except ValueError as error:
        if not str(error).startswith("paired:"):
            raise
        message = str(error).removeprefix("paired:")
        message = message.replace("compare unpaired", "remove the flag")
        raise ValueError(f"--paired-seeds:{message}") from None
    return _cut_intervals(result, study.unit)


def _cut_intervals(
    result: seed_tests.SeedTestsResult, unit: benchmark_scores.Unit
) -> seed_tests.SeedTestsResult:
    """Return the tests with intervals cut to [-100, 100] percentage points.

    A t interval may extend beyond these bounds. A difference of shares cannot exceed the bounds, so
    the coverage is unchanged. Scores without a unit are not cut.
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


def compare_pairs(analysis: Analysis) -> comparison_matrix.ComparisonMatrix | None:
    """Return the comparison of each pair on its own, without adjustment, in the page's unit.

    A pair is compared on all data sets on which both algorithms have a mean, except those in
    `study.unfit` and, with --strict, those that one of the two trained on. So a missing cell of a
    third algorithm changes nothing, although the tests of ranks leave out its data set. Algorithms
    without any mean are left out. None for a study of one or two data sets, for fewer than two
    algorithms, and if no two algorithms share two data sets.
    """
    study = analysis.study
    if len(study.datasets) <= FEW_SETS:
        return None
    means = analysis.cells.pivot(index="dataset", columns="algorithm", values="mean")
    means = means.reindex(index=list(study.datasets), columns=list(study.algorithms))
    means = means.drop(index=[name for name, _ in study.unfit])
    for algorithm, dataset in study.trained if study.options.strict else ():
        if algorithm in means.columns and dataset in means.index:
            means.loc[dataset, algorithm] = math.nan
    means = _rounded(means * study.unit.scale).dropna(axis=1, how="all")
    shared = means.notna().to_numpy().astype(int)
    num_shared = shared.T @ shared
    np.fill_diagonal(num_shared, 0)
    if num_shared.max(initial=0) < 2:
        return None
    return comparison_matrix.shared_comparison_matrix(
        means, larger_is_better=study.larger_is_better
    )


def seed_rows(analysis: Analysis) -> pd.DataFrame:
    """Return the tested scores in the page's unit, with columns algorithm, dataset, run, score.

    The column run has the seed. If two runs of an algorithm have the same seed, all rows have
    "run:seed". For a file of scores, the column has the file's names of runs. Missing scores are
    NaN.
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
    """Return, for each data set, the algorithms that are not significantly worse than the best.

    The result is a list of pairs (algorithm, data set), sorted by data set, then in the order of
    `result.algorithms`. The best algorithm has the best mean, and is in the list. A data set on
    which no algorithm differs significantly from the best has no pair in the list. The list is
    empty if algorithms were compared with a reference only.

    means: mean scores, data sets in rows and algorithms in columns.
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
    """Return scores with 12 significant digits, so that errors of sums do not break ties."""
    return scores.map(lambda value: float(f"{value:.12g}"))


def with_evidence(analysis: Analysis) -> Analysis:
    """Return the analysis with the fields after `nemenyi` filled, except `by_seeds`.

    Without tested ranks, the analysis is returned unchanged. `runs` and `seeds` are None if
    `seeds_of` returns a reason. Raises ValueError for `--blocks` above the number of tested data
    sets.
    """
    if analysis.friedman is None:
        return analysis
    study = analysis.study
    options = analysis.study.options
    table = score_table.read(_rounded(analysis.means * study.unit.scale))
    (n, k), larger_is_better = table.means.shape, study.larger_is_better
    points = options.points or (0.01 if np.abs(table.means).max() <= 1 else 1.0)
    runs, no_seeds = seeds_of(analysis)
    draws = 0
    if runs is not None:
        # Fewer draws for very large tables, so that a report takes seconds.
        draws = int(np.clip(5e7 / (n * k * k * runs.values.shape[2]), 200, 2000))

    def compute_seeds() -> SeedResults | None:
        if runs is None:
            return None
        return _seed_results(
            runs,
            larger_is_better=larger_is_better,
            draws=draws,
            points=points,
            alpha=analysis.alpha,
        )

    tests = _mean_tests(table, study, rope=points)
    with worker_threads() as pool:
        seeds = pool.submit(compute_seeds)
        # F is as accurate with more data sets, and their simulation would take minutes.
        size = pool.submit(
            stats.type_1_error, min(n, MANY_SETS), k, alpha=analysis.alpha
        )
        blocks = pool.submit(
            _block_tests, table, options.blocks, larger_is_better=larger_is_better
        )
        return dataclasses.replace(
            analysis,
            tests=tests,
            dataset_blocks=blocks.result(),
            size=size.result(),
            rope=points,
            score_range=float(np.ptp(table.means)),
            units_apart=_units_apart(table),
            twins=tuple(_equal_scores(table, runs)),
            runs=runs,
            no_seeds=no_seeds,
            draws=draws,
            seeds=seeds.result(),
        )


def _mean_tests(
    table: score_table.Scores, study: benchmark_scores.BenchmarkScores, *, rope: float
) -> MeanTests:
    """Return the results of further tests of the means.

    rope: half width of the region of practical equivalence, in the unit of `table`.
    """
    larger_is_better = study.larger_is_better
    reference = study.options.reference
    n, k = table.means.shape
    bradley_terry = dunn = control_wilcoxon = None
    if k <= MANY_ALGORITHMS:
        bradley_terry = _bradley_terry(table, larger_is_better=larger_is_better)
    if reference in table.algorithms:
        dunn = stats.bonferroni_dunn(
            table, control=reference, larger_is_better=larger_is_better
        )
        control_wilcoxon = stats.wilcoxon(
            table, control=reference, larger_is_better=larger_is_better
        )
    return MeanTests(
        quade=stats.quade(table, larger_is_better=larger_is_better),
        aligned_ranks=stats.aligned_ranks(table, larger_is_better=larger_is_better),
        max_t=stats.max_t(table, larger_is_better=larger_is_better),
        conover=stats.conover(table, larger_is_better=larger_is_better),
        wilcoxon=stats.wilcoxon(table, larger_is_better=larger_is_better),
        signed_rank=stats.bayesian_signed_rank(
            table,
            rope=rope,
            draws=_posterior_draws(n, k),
            larger_is_better=larger_is_better,
        ),
        bradley_terry=bradley_terry,
        dunn=dunn,
        control_wilcoxon=control_wilcoxon,
    )


def _posterior_draws(n: int, k: int) -> int:
    """Return the number of posterior draws for n data sets and k algorithms."""
    return int(np.clip(2e7 / n, 200, 20_000 if k <= MANY_ALGORITHMS else 1000))


def _block_tests(
    table: score_table.Scores, num_blocks: int | None, *, larger_is_better: bool
) -> dict[str, BlockTest]:
    """Return blocks of similar data sets with Friedman's test over them, by kind of similarity.

    Keys: "scores" (Spearman's correlation of scores) and "deviations" (correlation of deviations
    from the data set's mean). Empty for fewer than 4 algorithms and for more than `MANY_SETS` data
    sets. Raises ValueError for more blocks than data sets.

    num_blocks: number of blocks; None joins data sets with a correlation of at least 0.5.
    """
    n = len(table.datasets)
    is_valid = num_blocks is None or num_blocks <= n
    must = f"be from 1 to {n}, the number of data sets"
    errors.check(is_valid, "blocks", must, num_blocks)
    if len(table.algorithms) < 4:  # A correlation over three algorithms has no meaning.
        return {}
    if n > MANY_SETS:  # The correlations of all pairs would take hours.
        return {}
    results_by_kind = {}
    for by, method in (("scores", "spearman"), ("deviations", "deviations")):
        blocks = stats.find_blocks(table, blocks=num_blocks, method=method)
        test = stats.friedman_blocked(
            table, blocks=blocks.labels, larger_is_better=larger_is_better
        )
        results_by_kind[by] = BlockTest(blocks, test)
    return results_by_kind


def _bradley_terry(
    table: score_table.Scores, *, larger_is_better: bool
) -> paired_comparison.BradleyTerryResult | None:
    """Return the Bradley-Terry model of the means; None if too few posterior draws are usable.

    table: mean scores of the algorithms.
    """
    try:
        return stats.bradley_terry(table, larger_is_better=larger_is_better)
    except ValueError as error:
        if not str(error).startswith("draws:"):
            raise
        return None


def _seed_results(
    runs: score_table.Scores,
    *,
    larger_is_better: bool,
    draws: int,
    points: float,
    alpha: float,
) -> SeedResults:
    """Return the results over redrawn seeds.

    draws: number of bootstrap draws, of which effects uses a quarter (at least 100) and power half.
    points: difference for which power is computed, in the unit of `runs`. alpha: significance
    level.
    """
    hide = _without_intervals if runs.counts.min() == 2 else lambda result: result
    with worker_threads() as pool:
        intervals = pool.submit(
            stats.intervals, runs, larger_is_better=larger_is_better, draws=draws
        )
        profiles = pool.submit(
            stats.performance_profiles,
            runs,
            larger_is_better=larger_is_better,
            draws=draws,
        )
        mean_differences = pool.submit(
            stats.mean_differences, runs, larger_is_better=larger_is_better, draws=draws
        )
        stability = pool.submit(
            stats.rank_stability,
            runs,
            larger_is_better=larger_is_better,
            draws=draws,
            alpha=alpha,
        )
        differences_over_datasets = pool.submit(
            stats.mean_differences,
            runs,
            datasets=True,
            larger_is_better=larger_is_better,
            draws=draws,
        )
        improvement = pool.submit(
            stats.probability_of_improvement,
            runs,
            larger_is_better=larger_is_better,
            draws=draws,
        )
        mixed = pool.submit(stats.mixed_model, runs, larger_is_better=larger_is_better)
        effect_sizes = pool.submit(
            stats.effect_sizes,
            runs,
            larger_is_better=larger_is_better,
            draws=max(draws // 4, 100),
        )
        power_of_design = pool.submit(
            stats.power_of_design,
            runs,
            difference=points,
            alpha=alpha,
            draws=draws // 2,
        )
        return SeedResults(
            intervals=hide(intervals.result()),
            performance_profiles=hide(profiles.result()),
            mean_differences=hide(mean_differences.result()),
            stability=hide(stability.result()),
            differences_over_datasets=differences_over_datasets.result(),
            improvement=improvement.result(),
            mixed=mixed.result(),
            effects=effect_sizes.result(),
            power=power_of_design.result(),
        )


_THREADS = 4  # Each thread holds its own draws in memory.


@contextlib.contextmanager
def worker_threads() -> Iterator[futures.Executor]:
    """Yield a pool of threads, for numpy, which releases the GIL.

    Take all results inside the `with` block: tasks that have not started at its end are dropped.
    """
    pool = futures.ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _without_intervals(result: Any) -> Any:
    """Return a copy of a result of jbias.stats with NaN for the ends of all its intervals.

    Estimates and other fields are unchanged. Used for two runs, which give no interval.
    """
    estimates = {}
    for name, value in vars(result).items():
        if isinstance(value, bootstrap_intervals.Estimate):
            nan = value.low * np.nan
            estimates[name] = dataclasses.replace(value, low=nan, high=nan)
    return dataclasses.replace(result, **estimates)


def seeds_of(analysis: Analysis) -> tuple[score_table.Scores | None, str]:
    """Return (scores per seed in the page's unit, ""), or (None, reason) for incomplete scores.

    Scores are complete if each tested algorithm has at least 2 runs, and each run has a score on
    every tested data set. Means over runs, as in some files, are not complete. The reason is a
    phrase without a full stop.
    """
    study = analysis.study
    values = analysis.study.values
    if study.is_of_means:
        return None, benchmark_scores.MEANS_ALONE
    wanted = values["dataset"].isin(analysis.datasets)
    wanted &= values["algorithm"].isin(analysis.algorithms)
    values = values[wanted.to_numpy()]
    frame = values[["algorithm", "dataset", "seed"]].astype(str)
    frame["score"] = values["value"].astype(float) * study.unit.scale
    frame = frame.rename(columns={"seed": "run"})
    repeat = study.repeats.removesuffix("s")
    missing = score_table.missing_cells(frame)
    if missing:
        examples = "; ".join(missing[:3])
        return None, f"not every {repeat} has a score on every data set ({examples})"
    runs = score_table.read(frame)
    runs = runs.only(datasets=analysis.datasets, algorithms=analysis.algorithms)
    single = [a for a, n in zip(runs.algorithms, runs.counts, strict=True) if n < 2]
    if single:
        if len(single) == len(runs.algorithms):
            return None, f"there is a single {repeat} of each algorithm"
        more = " and others" if len(single) > 3 else ""
        return None, f"there is a single {repeat} of {', '.join(single[:3])}{more}"
    return runs, ""


def shared_seeds(
    analysis: Analysis, *algorithms: str
) -> tuple[Float[np.ndarray, "n r"], ...]:
    """Return one array per algorithm: scores of the seeds that all these algorithms have.

    Rows are the n tested data sets, columns the r shared seeds in the same order for all
    algorithms. Scores have the unit of `BenchmarkScores.values`. Seeds without a score on every
    tested data set are left out. If two runs of an algorithm have the same seed, each pair
    (run, seed) counts as a seed.
    """
    values = analysis.study.values.astype({"algorithm": str, "dataset": str})
    is_wanted = values["algorithm"].isin(algorithms)
    values = values[is_wanted & values["dataset"].isin(analysis.datasets)]
    run_names = values["seed"].astype(str)
    by_seed = values.assign(seed=run_names.str.rpartition(":")[2])
    # With two runs of the same seed, pairs by seed are ambiguous: pair by run and seed.
    if by_seed.duplicated(["algorithm", "dataset", "seed"]).any():
        by_seed = values
    wide = by_seed.pivot(index="seed", columns=["algorithm", "dataset"], values="value")
    shared = wide[[*itertools.product(algorithms, analysis.datasets)]].dropna()
    return tuple(shared[name].to_numpy(float).T for name in algorithms)


def _equal_scores(
    table: score_table.Scores, runs: score_table.Scores | None
) -> Iterator[tuple[str, str]]:
    """Yield (first, second): names with equal scores on every data set.

    Each algorithm is compared with the other algorithms, and each run with the other runs of its
    algorithm. `second` is each name whose scores an earlier name has; `first` is the earliest such
    name. Runs are named by their numbers from 1, such as "ERM run 1". table: means of the algorithms.
    runs: scores per run, or None.
    """
    groups = [(table.algorithms, table.means.T)]
    for name in runs.algorithms if runs is not None else ():
        scores = runs.runs(name).T
        groups.append(([f"{name} run {i + 1}" for i in range(len(scores))], scores))
    for names, rows in groups:
        first_names: dict[tuple[float, ...], str] = {}
        for name, scores in zip(names, rows.tolist(), strict=True):
            first_name = first_names.setdefault(tuple(scores), name)
            if first_name != name:
                yield first_name, name


def _units_apart(table: score_table.Scores) -> tuple[str, str] | None:
    """Return (data set with fractions, data set with larger scores), or None for a single unit.

    The two data sets have the smallest and the largest maximum of |mean score|. Their units
    differ if the smaller maximum is at most 1 and the larger is more than 20 times as large.
    """
    most = np.abs(table.means).max(axis=1)
    low, high = int(np.argmin(most)), int(np.argmax(most))
    apart = most[low] <= 1 and most[high] > 20 * most[low]
    return (table.datasets[low], table.datasets[high]) if apart else None


def best_cells(
    runs: score_table.Scores, *, larger_is_better: bool, alpha: float
) -> list[tuple[int, int]]:
    """Return (algorithm index, data set index) of cells that do not differ from the best mean.

    Cells are sorted by data set, then by mean, the best first. The cells of a data set start with
    the best mean. The cells end before the first mean that differs significantly from the best mean
    by Welch's t test. A data set has no cell if no mean differs from its best mean, or if all runs
    of each algorithm have equal scores.

    The best mean is chosen from the tested scores, so p is multiplied by the number of all pairs
    (Bonferroni). The spread of an algorithm is at least the pooled spread on the data set, since
    two or three runs may coincide by chance. alpha: significance level.
    """
    cells = []
    sign = 1 if larger_is_better else -1
    counts = runs.counts
    k = len(runs.algorithms)
    variances = runs.stds**2
    freedom = counts - 1
    pooled = (variances @ freedom) / freedom.sum()
    stds = np.sqrt(np.maximum(variances, pooled[:, None]))
    for i, mean in enumerate(sign * runs.means):
        order = np.argsort(-mean, kind="stable")
        best = order[0]
        following = order[1:]
        if not pooled[i]:
            continue
        p = scipy.stats.ttest_ind_from_stats(
            mean[best],
            stds[i, best],
            counts[best],
            mean[following],
            stds[i, following],
            counts[following],
            equal_var=False,
        ).pvalue
        differs = p * k * (k - 1) / 2 <= alpha
        if differs.any():
            close = following[: int(np.argmax(differs))]
            cells += [(int(j), i) for j in (best, *close)]
    return cells
