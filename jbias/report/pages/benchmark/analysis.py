"""Classes for the scores of a benchmark and their analysis, and the functions that test them.

A cell is an algorithm on a data set. `analyse` tests the means over seeds by Friedman's and
Nemenyi's tests, which ignore the spread over seeds. `with_evidence` adds other tests of these
means. It also adds tests and intervals from the spread over seeds, and the power of the study.
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
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.stats
from jaxtyping import Float

from jbias import errors, stats
from jbias.evals import decision_files
from jbias.measures import decisions
from jbias.report import options as options_lib
from jbias.report import tables, workdirs
from jbias.report.pages.benchmark import score_notes
from jbias.runs import results
from jbias.stats import (
    bayes,
    bootstrap,
    effects,
    hierarchical,
    omnibus,
    paired_comparison,
    posthoc,
    power,
    resampling,
    score_table,
    seed_tests,
)
from jbias.stats import dataset_blocks as dataset_blocks_lib
from jbias.stats import permutation as permutation_lib

# Statistics over the seeds of a cell: column name, name of the pandas method.
SPREAD = {
    "mean": "mean",
    "std": "std",
    "median": "median",
    "lowest": "min",
    "highest": "max",
}
RANGED = (
    "A column shows median [range] if mean ± std leaves [0, 100] % in one of its cells."
)
# Reason why a file of means has no tests over runs.
MEANS_ALONE = (
    "scores are means over runs and the scores of each run are not in the file, so no test "
    "over runs is possible"
)
MANY_SETS = 1000  # Above this number of data sets, similar data sets are not searched.
FEW_SETS = 2  # Up to this number of data sets, ranks cannot separate algorithms.
# Above this number of algorithms, pairs get fewer posterior draws or no Bradley-Terry model.
MANY_ALGORITHMS = 12


@dataclasses.dataclass(frozen=True)
class Unit:
    """Format of scores: a score is shown as `score * scale` with `digits` after the point."""

    scale: float
    digits: int
    name: str  # "%" or empty.

    def show(self, value: float | None, *, signed: bool = False) -> str:
        """Return `value * scale` as text with thousands separators; a dash for None or NaN.

        value: a score before scaling, such as 0.5 for 50 %. signed: True to show a plus sign.
        """
        format_number = tables.digits(self.digits, plus=signed)
        return format_number(math.nan if value is None else value * self.scale)

    def spread(self, cells: pd.DataFrame) -> Callable[..., str]:
        """Return a function that formats the statistics of one cell as text.

        The function takes the values of the columns of `SPREAD` (mean, std, median, lowest,
        highest) as five arguments and returns "mean ± std", or the mean alone if std is None or
        NaN.

        cells: one row per cell with the columns of `SPREAD`. If mean ± std of any cell leaves
        [0, 100] %, the function returns "median [lowest, highest]" for all cells (`RANGED`). For a
        unit other than %, the function never returns medians.
        """
        shows_range = self.beyond(cells["mean"], cells["std"]).any()

        def format_cell(
            mean: float, std: float | None, median: float, lowest: float, highest: float
        ) -> str:
            if shows_range:
                return tables.interval(self.show)(median, lowest, highest)
            has_std = std is not None and math.isfinite(std)
            return self.show(mean) + (f" ± {self.show(std)}" if has_std else "")

        return format_cell

    def beyond(self, mean: pd.Series, half: pd.Series) -> pd.Series:
        """Return a boolean per cell: True if mean - half < 0 or mean + half > 1.

        All False if the unit is not %. mean: mean score per cell, a fraction. half: half width of
        the interval per cell; NaN gives False.
        """
        return bool(self.name) & ((mean < half) | (mean + half > 1))

    @property
    def of_differences(self) -> str:
        """The unit of differences of scores: "percentage points" or "the scores' unit"."""
        return "percentage points" if self.name else "the scores' unit"


def unit_of(metric: str, values: Sequence[float]) -> Unit:
    """Return % for accuracy, real_accuracy and shape_bias, else the scores' own unit.

    For %, scores are fractions: the scale is 100, with 1 digit after the point. The own unit has
    an empty name, the scale 1, and 3 digits after the point if no |score| is above 2, else 1.
    values: the scores to format; may be empty.
    """
    if metric in ("accuracy", "real_accuracy", "shape_bias"):
        return Unit(scale=100, digits=1, name="%")
    largest = np.nanmax(np.abs(np.asarray(values, float)), initial=0)
    return Unit(scale=1, digits=3 if largest <= 2 else 1, name="")


@dataclasses.dataclass(frozen=True, eq=False)
class BenchmarkScores:
    """Scores of algorithms on data sets, one row per seed, and the source of the scores.

    `values` has the columns algorithm, dataset, seed ("run:seed" for runs), value (a fraction for
    accuracies of runs), count (images counted in the value) and n (images). For a file, count and n
    are NA, and there is a column deviation if the scores are means with a deviation. `unfit` holds
    (data set, reason) for data sets that may not be compared. `twins` holds (first, second,
    reason): two algorithms, or two seeds of one algorithm, with the same results. The fields after
    `notes` are for runs only, except `layout_notes`.
    """

    source: str
    options: options_lib.Options
    rule: str  # The selection in words.
    algorithms: tuple[str, ...]
    datasets: tuple[str, ...]
    values: pd.DataFrame
    unfit: tuple[tuple[str, str], ...] = ()
    # (algorithm, test set) if the algorithm was trained on data like the test set.
    trained: frozenset[tuple[str, str]] = frozenset()
    notes: tuple[str, ...] = ()
    twins: tuple[tuple[str, str, str], ...] = ()
    models: tuple[str, ...] = ()  # Networks that were trained, in alphabetical order.
    train_sets: tuple[str, ...] = ()  # Training sets, in alphabetical order.
    # Records of all evaluations that rules select from: label, dataset, run, seed, epoch,
    # condition, metric, value.
    evaluations: pd.DataFrame | None = None
    selected: pd.DataFrame | None = None  # Selected records of all metrics.
    values_by_rule: tuple[
        tuple[str, pd.DataFrame], ...
    ] = ()  # (rule, `values` by the rule).
    runs: tuple[workdirs.Run, ...] = ()
    layout_notes: tuple[str, ...] = ()  # Three lines on the layout of a file of scores.
    # One row per diverged seed: algorithm, variant, run, seed, step.
    diverged: pd.DataFrame | None = None

    @property
    def is_runs(self) -> bool:
        """True for records of runs, False for a file of scores."""
        return self.evaluations is not None

    @property
    def is_of_means(self) -> bool:
        """True if each score is a mean with a deviation over runs that are not in the file."""
        return "deviation" in self.values and self.seeds.max() == 1

    @property
    def larger_is_better(self) -> bool:
        """True if the largest score ranks first."""
        return self.options.larger_is_better

    @property
    def winner_phrase(self) -> str:
        """The phrase that compares two algorithms, as in "A is better than B".

        A is the algorithm with the better rank. The phrase is "is better than". For runs with a
        metric of cue conflicts, the phrase is, for example, "has more shape bias than" or "has a
        higher mrr shape than". If the smallest score ranks first, "less" and "lower" replace "more"
        and "higher".
        """
        metric = self.options.metric
        larger = self.options.larger_is_better
        if self.has_better_side:
            return "is better than"
        if metric == "shape_bias":
            return f"has {'more' if larger else 'less'} shape bias than"
        side = "higher" if larger else "lower"
        return f"has a {side} {metric.replace('_', ' ')} than"

    @property
    def has_better_side(self) -> bool:
        """True if "better" applies to the score; False for runs with a metric of cue conflicts.

        No value of these metrics, such as shape_bias, is better than another.
        """
        return not self.is_runs or self.options.metric not in _CUE_METRICS

    @property
    def rank_words(self) -> tuple[str, str]:
        """The words for two algorithms in the order of their mean ranks: ("better", "worse").

        The words are ("higher", "lower") for runs with a metric of cue conflicts.
        """
        return ("better", "worse") if self.has_better_side else ("higher", "lower")

    @property
    def best(self) -> str:
        """The word for the score of rank 1: "best", "largest" or "smallest".

        The word is "best" except for runs with a metric of cue conflicts.
        """
        side = "largest" if self.options.larger_is_better else "smallest"
        return "best" if self.has_better_side else side

    @property
    def ranks_first(self) -> str:
        """The phrase on the order of scores: "larger is better" or "smaller is better".

        For runs with a metric of cue conflicts: "larger ranks first" or "smaller ranks first".
        """
        side = "larger" if self.options.larger_is_better else "smaller"
        return f"{side} is better" if self.has_better_side else f"{side} ranks first"

    @property
    def repeats(self) -> str:
        """The noun for the scores of a cell: "seeds" or "runs"."""
        return "seeds" if self.is_runs else "runs"

    def cells_of(self, values: pd.DataFrame) -> pd.DataFrame:
        """Return the statistics of `values` over seeds, per algorithm and data set.

        See the function `cells_of` of this module for the columns. values: a frame with the columns
        of the field `values`.
        """
        return cells_of(values, self.algorithms, self.datasets)

    @functools.cached_property
    def unit(self) -> Unit:
        """The unit of the scores in `values`; never % for a file of scores."""
        metric = self.options.metric if self.is_runs else ""
        return unit_of(metric, self.values["value"])

    @functools.cached_property
    def seeds(self) -> pd.Series:
        """Number of distinct seeds, or runs, in `values`; index: algorithm."""
        return self.values.groupby("algorithm")["seed"].nunique()

    @functools.cached_property
    def derived(self) -> tuple[score_notes.Note, ...]:
        """Notes on data sets, algorithms and runs with scores computed from other scores."""
        notes = score_notes.of_derived(self.values, self.algorithms, self.datasets)
        return tuple(notes)

    @functools.cached_property
    def warnings(self) -> tuple[str, ...]:
        """Sentences on scores that count twice, or that may be mistakes."""
        sentences = [note.text for note in self.derived]
        if not self.is_runs:  # Accuracies of runs all have the same unit.
            sentences += score_notes.of_fractions(self.values)
        return (*sentences, *score_notes.of_outliers(self.values))

    @functools.cached_property
    def at_chance(self) -> tuple[dict, ...]:
        """Cells of runs with an accuracy that is indistinguishable from chance.

        A dict per cell with the keys algorithm, dataset, metric, accuracy, classes (number of
        classes), chance and n (number of images); accuracy and chance are fractions. Cells of the
        study's metric are included for accuracy, accuracy_shape and accuracy_texture only. Cells
        of cue conflicts are added with the metric `CUES`; their accuracy is the share of decisions
        that match the shape or the texture. Empty for a file of scores.
        """
        cells = []
        if self.options.metric in _ACCURACIES:
            cells += _at_chance(self)
        if self.is_runs:
            cells += _cues_at_chance(self)
        return tuple(cells)

    @functools.cached_property
    def guessed(self) -> frozenset[tuple[str, str]]:
        """Cells (algorithm, data set) of `at_chance` for the metric of the study.

        For shape_bias: cells with a share of decisions for shape or texture that is at chance.
        """
        metric = self.options.metric
        metric = CUES if metric == "shape_bias" else metric
        return frozenset(
            (cell["algorithm"], cell["dataset"])
            for cell in self.at_chance
            if cell["metric"] == metric
        )

    def count_cells(self, *, of_cues: bool) -> int:
        """Return the number of (algorithm, data set) pairs with a score.

        of_cues: True to count the pairs with a record of `decisions_for_neither` instead.
        """
        if not of_cues:
            filled = self.values.dropna(subset="value")
            return len(filled[["algorithm", "dataset"]].drop_duplicates())
        rows = self.decisions_for_neither()
        return len(rows[["label", "dataset"]].drop_duplicates())

    def decisions_for_neither(self) -> pd.DataFrame:
        """Return the rows of `selected` with metric "fraction_neither" and condition "".

        Records of algorithms that the study does not report are left out. For runs only.
        """
        rows = self.selected
        rows = rows[(rows["metric"] == "fraction_neither") & (rows["condition"] == "")]
        return rows[rows["label"].isin(self.algorithms)]


def cells_of(
    values: pd.DataFrame, algorithms: Sequence[str], datasets: Sequence[str]
) -> pd.DataFrame:
    """Return a frame with the statistics over seeds of each (algorithm, data set).

    Columns: algorithm, dataset, n (number of seeds, including seeds with a NaN score), and the
    columns of `SPREAD` (std with ddof 1, NaN for a single seed) in the unit of `values`. A cell
    without rows has n = 0 and NaN. A cell with a NaN score has NaN statistics.

    values: columns algorithm, dataset and value, one row per seed. algorithms, datasets: names of
    the cells, in the order of the rows.
    """
    keys = ["algorithm", "dataset"]
    groups = values.groupby(keys)["value"]
    # A cell has no mean if one of its seeds has no value, for example no decision to count.
    table = pd.DataFrame(
        {
            column: getattr(groups, method)(skipna=False)
            for column, method in SPREAD.items()
        }
    )
    table.insert(2, "n", groups.size())
    table = table.reindex(
        pd.MultiIndex.from_product([algorithms, datasets], names=keys)
    )
    types = dict.fromkeys(SPREAD, float) | {"n": int}
    return table.fillna({"n": 0}).astype(types).reset_index()


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

    study: BenchmarkScores
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
        coverage = resampling.percentile_coverage(self.min_runs)
        return (
            f"95% percentile intervals (which contain the mean of new {self.study.repeats} in "
            f"about {coverage:.0%} of cases with {self.min_runs}, if scores are normal)"
        )


def analyse(study: BenchmarkScores) -> Analysis:
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
    result: seed_tests.SeedTestsResult, unit: Unit
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
    table: score_table.Scores, study: BenchmarkScores, *, rope: float
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
        if isinstance(value, resampling.Estimate):
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
        return None, MEANS_ALONE
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


_SEED_COLUMNS = ["label", "workdir", "seed"]
_EVALUATION_COLUMNS = ["stage", "step", "dataset", "condition", "metric"]
_SAME_SCORES = "have the same accuracies and losses in every evaluation"


def twins_of_runs(frame: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    """Yield (first, second, reason) for pairs of algorithms, or of seeds, with the same results.

    Results are the same if accuracies and losses are equal in all evaluations, and stored
    decisions are equal, too. Two algorithms must agree in every shared seed. Seeds without an
    accuracy are left out.

    first, second: the names of two algorithms, ERM first, or "ERM seed 0" and "seed 1".
    reason: a phrase to follow the two names, such as "have the same accuracies and losses in every
    evaluation".
    frame: records of evaluations with a column `label`, the name of the algorithm; stored
    decisions are read from the folders in its column `workdir`.
    """
    frame = frame[[*_SEED_COLUMNS, *_EVALUATION_COLUMNS, "value"]]
    is_missing = frame["value"].isna()
    if is_missing.any():
        frame = frame[~is_missing]
    digest = _digests(frame)
    metric = frame["metric"]
    seed_numbers = results.number_rows(frame, _SEED_COLUMNS)
    losses = [name for name in metric.unique() if name.startswith("loss")]
    kinds = {"accuracy": metric == "accuracy", "loss": metric.isin(losses)}
    # Sums of digests do not depend on the order of the rows.
    sums = pd.DataFrame(
        {
            kind: pd.Series(np.where(is_kind, digest, 0))
            .groupby(seed_numbers, sort=False)
            .sum()
            for kind, is_kind in kinds.items()
        }
    )
    seed_names = frame[_SEED_COLUMNS].take(results.first_rows(frame, _SEED_COLUMNS))
    sums.index = pd.MultiIndex.from_frame(seed_names)
    is_doubled = (sums["accuracy"] != 0) & sums.duplicated("accuracy", keep=False)
    reasons_by_names = collections.defaultdict(list)
    for _, group in sums[is_doubled].groupby("accuracy", sort=False):
        for first, second in itertools.combinations(group["loss"].items(), 2):
            (first_key, first_loss), (second_key, second_loss) = first, second
            names = _twin_names(first_key, second_key)
            if names and first_loss == second_loss:
                reason = _reason_of_twins(first_key, second_key)
                if reason:
                    reasons_by_names[tuple(names)].append(reason)
    seeds = sums.reset_index().groupby("label", observed=True)["seed"].agg(set)
    for (first, second), reasons in reasons_by_names.items():
        if first not in seeds or len(reasons) == len(seeds[first] & seeds[second]):
            # For seeds without stored decisions, only accuracies and losses are compared.
            yield first, second, _SAME_SCORES if _SAME_SCORES in reasons else reasons[0]


def _digests(frame: pd.DataFrame) -> np.ndarray:
    """Return a uint64 digest per row of the stage, step, data set, condition, metric and value."""
    digests = pd.util.hash_array(results.number_rows(frame, _EVALUATION_COLUMNS))
    digests += pd.util.hash_array(frame["value"].to_numpy())
    return pd.util.hash_array(digests)


def _twin_names(first: tuple, second: tuple) -> list[str]:
    """Return [first name, second name] of two possible twins; [] if the two are not candidates.

    first, second: (label, workdir, seed). Candidates are two seeds of one algorithm, or the same
    seed of two algorithms; ERM is named first.
    """
    first_label, _, first_seed = first
    second_label, _, second_seed = second
    if first_label == second_label:
        return [f"{first_label} seed {first_seed}", f"seed {second_seed}"]
    if first_seed != second_seed:
        return []
    return sorted((first_label, second_label), key=lambda name: name.lower() != "erm")


def _reason_of_twins(first: tuple, second: tuple) -> str:
    """Return the phrase on equal results of two seeds; "" if their stored decisions differ.

    If no evaluation has stored decisions of both seeds, the phrase is `_SAME_SCORES`. Otherwise the
    phrase is about decisions. first, second: (label, workdir, seed).
    """
    (_, first_workdir, first_seed), (_, second_workdir, second_seed) = first, second
    first_digests = _decision_digests(first_workdir).get(first_seed, {})
    second_digests = _decision_digests(second_workdir).get(second_seed, {})
    shared = first_digests.keys() & second_digests.keys()
    if not shared:
        return _SAME_SCORES
    if any(first_digests[name] != second_digests[name] for name in shared):
        return ""
    return "made the same decisions on every image of every data set"


@functools.lru_cache(maxsize=1000)
def _decision_digests(workdir: str) -> dict[int, dict[str, bytes]]:
    """Return SHA-256 digests of stored decisions, by seed, then by path below decisions/.

    A path is such as "test/1200.parquet". Damaged files are skipped; {} if no decisions were
    stored.
    """
    folder = pathlib.Path(workdir) / "decisions"
    digests = collections.defaultdict(dict)
    for path in folder.glob("*/*.parquet"):
        # The check of files reports damaged files.
        with contextlib.suppress(ValueError, OSError):
            for seed, stored in decision_files.read(path).items():
                digest = hashlib.sha256(stored.prediction.tobytes()).digest()
                digests[seed][f"{path.parent.name}/{path.name}"] = digest
    return digests


_ACCURACIES = ("accuracy", "accuracy_shape", "accuracy_texture")
CUES = "cue_accuracy"  # The share of decisions for the shape or the texture.
# Metrics of cue conflicts, of which neither a large nor a small value is better.
_CUE_METRICS = (
    "shape_bias",
    "fraction_neither",
    "accuracy_shape",
    "accuracy_texture",
    "mrr_shape",
    "mrr_texture",
    "mrr_relative",
)


def _classes(study: BenchmarkScores) -> dict[str, int]:
    """Return the number of classes by data set, from the decision rule that runs record.

    A data set is left out unless all runs that record the data set have the same number.
    """
    sizes_by_dataset: dict[str, set[int | None]] = {}
    for run in study.runs:
        for name, recorded in run.data.items():
            rule = recorded.get("decision") if isinstance(recorded, dict) else None
            match = re.search(r"over (?:the network's )?([\d,]+) classes", str(rule))
            size = int(match[1].replace(",", "")) if match else None
            sizes_by_dataset.setdefault(name, set()).add(size)
    return {
        name: size
        for name, sizes in sizes_by_dataset.items()
        if len(sizes) == 1
        for size in sizes
        if size
    }


def _at_chance(study: BenchmarkScores) -> Iterator[dict[str, Any]]:
    """Yield the cells with chance accuracy in the 95 % Wilson interval of their mean accuracy.

    Chance accuracy is 1 / number of classes. The mean is over seeds; the interval is for the number
    of images of one network. Cells have the study's metric. Data sets without a known number of
    classes are skipped, and so are cells with a missing score or different numbers of images. See
    `BenchmarkScores.at_chance` for the keys.
    """
    classes = _classes(study)
    values = study.values[study.values["dataset"].isin([*classes])]
    cells = values.groupby(["algorithm", "dataset"], observed=True, sort=False)
    for (algorithm, dataset), rows in cells:
        images = set(rows["n"])
        mean = rows["value"].mean()
        if len(images) != 1 or pd.isna([mean, *images]).any():
            continue
        chance = 1 / classes[dataset]
        n = int(rows["n"].iloc[0])
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


def _cues_at_chance(study: BenchmarkScores) -> Iterator[dict[str, Any]]:
    """Yield the cells of cue conflicts in which the share of decisions for a cue is at chance.

    One class is the shape of an image, and another class is the texture. So a guess among k classes
    matches the shape or the texture with probability 2 / k, and the shape bias of guesses has no
    meaning. A cell is at chance if the lower end of Wilson's 95 % interval of the mean share over
    seeds is not above 2 / k. The interval is for the number of images of one network.

    Data sets with two classes or an unknown number of classes are skipped, and so are cells with a
    missing share or different numbers of images. See `BenchmarkScores.at_chance` for the keys.
    """
    classes = _classes(study)
    rows = study.decisions_for_neither()
    cells = rows.groupby(["label", "dataset"], observed=True, sort=False)
    for (algorithm, dataset), part in cells:
        images = set(part["n"])
        mean = 1 - part["value"].mean()
        if dataset not in classes or len(images) != 1 or pd.isna([mean, *images]).any():
            continue
        chance = min(2 / classes[dataset], 1)
        n = int(part["n"].iloc[0])
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
