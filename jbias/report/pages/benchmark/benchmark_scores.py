"""Classes for the scores of a benchmark and their unit, and the cells with scores at chance.

A cell is an algorithm on a data set.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from jbias.measures import decisions
from jbias.report import options as options_lib
from jbias.report import tables, workdirs
from jbias.report.pages.benchmark import recorded_comparisons, score_notes

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
    def recorded(self) -> tuple[recorded_comparisons.Recorded, ...]:
        """Comparisons that chose the number of seeds of runs; empty for a file of scores."""
        return recorded_comparisons.read(self.runs)

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
