"""Functions that find data sets, algorithms and runs with scores computed from other scores.

A column "avg" among test sets gives these sets too much weight, because Friedman's test treats the
column as one more independent data set. A copy, an error rate next to its accuracy, a sum, a
median, and an algorithm that is the mean of other algorithms have the same effect. Scores are
compared to within their printed digits. Because a few scores may agree by chance, a name is
reported only if chance is a very unlikely explanation, or if the name itself suggests a summary.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.optimize
from jaxtyping import Bool, Float

from jbias.report import tables
from jbias.stats import score_table

# Required evidence: minus log10 of the probability that an agreement is by chance.
_EVIDENCE = 4.0
_SUBSETS = 12  # Up to this number of columns, all subsets are tried.
_RANGES = 120  # Up to this number of columns, all ranges of neighbours are tried.
_WEIGHTED = 60  # Up to this number of columns, weighted means are tried.
_FEW_ROWS = 8  # Rows of a first comparison, which excludes most groups.
_MOST = 20  # Largest number of reported names.
_DIGITS = 13
_SLACK = 1e-9  # Relative rounding error of sums.
_OUTLYING = (
    1000  # Scores larger than the usual size by this factor are ignored in scales.
)
_IMAGES = np.arange(
    2, 2001
)  # Candidate numbers of images of which accuracies are shares.
_SUMMARY = re.compile(
    r"(?<![a-z])(avg|average|averaged|mean|means|overall|total|sum|median|all)(?![a-z])"
)
_LINEAR = {  # y = a + b x, as (a, b).
    (0, 1): "a copy of",
    (100, -1): "100 less",
    (1, -1): "1 less",
    (0, 100): "100 times",
    (0, 0.01): "a hundredth of",
    (1, -0.01): "1 less a hundredth of",
    (100, -100): "100 less 100 times",
}


class Derived(NamedTuple):
    """A data set, algorithm or run with scores that are computed from other scores.

    sources: names of the data sets, algorithms or runs with the other scores.
    """

    name: str
    relation: str  # "the mean of", "a copy of" ...
    sources: tuple[str, ...]

    @property
    def text(self) -> str:
        """The relation in words, such as "the mean of a, c, s and p".

        Of more than 8 names, the first 6 and the number of the remaining names are listed.
        """
        names = [*self.sources]
        if len(names) > 8:
            names = [*names[:6], f"{len(names) - 6} more"]
        return f"{self.relation} {tables.join(names)}"


class _ScoreColumns(NamedTuple):
    """A matrix of scores with m rows and n columns, and the precision of each column."""

    values: Float[np.ndarray, "m n"]
    units: Float[np.ndarray, "n"]  # Last printed decimal place; 0 for full precision.
    grids: Float[np.ndarray, "n"]  # Smallest possible difference of two scores.
    scale: float  # Usual deviation of a column from the mean of the other columns.


Mean = Callable[[np.ndarray], np.ndarray]  # A mean over the last axis.
_MEANS: dict[str, Mean] = {
    "the mean of": lambda x: x.mean(axis=-1),
    "the median of": lambda x: np.median(x, axis=-1),
    "the sum of": lambda x: x.sum(axis=-1),
    "the smallest of": lambda x: x.min(axis=-1),
    "the largest of": lambda x: x.max(axis=-1),
    "the harmonic mean of": lambda x: _harmonic(x),
    "the geometric mean of": lambda x: _geometric(x),
}
_ENDS = ("the smallest of", "the largest of")


def find(
    values: Float[np.ndarray, "m n"],
    names: Sequence[str],
    *,
    units: Float[np.ndarray, "n"] | None = None,
    grids: Float[np.ndarray, "n"] | None = None,
    copies: bool = True,
    weights: Float[np.ndarray, "n"] | None = None,
) -> list[Derived]:
    """Return a `Derived` for each column that is computed from other columns in every row.

    The list is in the order of the columns. Copies and other linear functions of a column are
    searched first, then the summaries of `_MEANS` and weighted means. At most 20 columns are
    returned. The list is empty for fewer than 2 rows or columns, and if a score is not finite.

    values: one row per run of an algorithm and one column per data set (or transposed).
    names: names of the columns.
    units: last printed decimal place of each column, such as 0.1; None estimates it from the
    scores.
    grids: smallest possible difference of scores, such as 1 / images; None estimates it.
    copies: False leaves out columns that are a copy or linear function of another column.
    weights: known weights of the columns, such as their numbers of images; None if unknown.
    """
    m, n = values.shape
    if m < 2 or n < 2 or not np.isfinite(values).all():
        return []
    if units is None:
        units = np.array([_unit(column) for column in values.T])
    if grids is None:
        grids = _grids(values)
    columns = _ScoreColumns(
        values=values, units=units, grids=grids, scale=_scale(values)
    )
    derived_columns = _linear(columns, names) if copies else {}
    remaining = [i for i in range(n) if i not in derived_columns]
    while len(remaining) > 2 and len(derived_columns) < _MOST:
        subset = _ScoreColumns(
            values=values[:, remaining],
            units=units[remaining],
            grids=grids[remaining],
            scale=_scale(values[:, remaining]),
        )
        subset_names = [names[i] for i in remaining]
        subset_weights = None if weights is None else weights[remaining]
        place, derived = _find_summary(subset, subset_names, subset_weights)
        if derived is None:
            break
        derived_columns[remaining.pop(place)] = derived
    return [derived_columns[place] for place in sorted(derived_columns)]


def _find_summary(
    columns: _ScoreColumns, names: Sequence[str], weights: np.ndarray | None
) -> tuple[int, Derived | None]:
    """Return (index, description) of a column that summarises other columns; else (0, None).

    Columns with names such as "avg" are tried first. Of more than 120 columns, only columns with
    such names, or near the mean or sum of all other columns, are tried. Weighted means are tried
    last, for up to 60 columns. names: names of the columns. weights: known weights of the columns,
    or None.
    """
    hinted = [bool(_SUMMARY.search(name.lower())) for name in names]
    places = sorted(range(len(names)), key=lambda i: not hinted[i])
    if len(names) > _RANGES:  # The other columns would take too long.
        near_all_others = set(_near_all_others(columns).tolist())
        places = [i for i in places if hinted[i] or i in near_all_others]
    for place in places[: _RANGES + _MOST]:
        derived = _mean_of(columns, names, place, hinted=hinted, weights=weights)
        if derived:
            return place, derived
    for place in places if len(names) <= _WEIGHTED else ():
        derived = _weighted(columns, names, place)
        if derived:
            return place, derived
    return 0, None


def _near_all_others(columns: _ScoreColumns) -> np.ndarray:
    """Return the indices of columns that are near the mean, or the sum, of all other columns."""
    values = columns.values
    n = columns.values.shape[1]
    sums = values.sum(axis=1, keepdims=True) - values
    slack = _SLACK * np.abs(values).max(axis=1, keepdims=True) + columns.units.max()
    means = (np.abs(sums / (n - 1) - values) <= 2 * slack).all(axis=0)
    return np.flatnonzero(means | (np.abs(sums - values) <= 2 * n * slack).all(axis=0))


def _linear(columns: _ScoreColumns, names: Sequence[str]) -> dict[int, Derived]:
    """Return up to 20 columns that are linear functions of another column, as `Derived` by index.

    Only the functions of `_LINEAR`, such as copies, are searched, and agreements that may be by
    chance are left out. Of two columns that are linear functions of each other, the column with
    fewer digits is returned; with equal digits, the later column.
    """
    derived: dict[int, Derived] = {}
    for (start, factor), relation in _LINEAR.items():
        for place, source in _pairs(columns, start, factor):
            if place in derived or source in derived:
                continue
            target = columns.values[:, place]
            tolerance = _linear_tolerance(
                columns, place, sources=[source], start=start, factor=factor
            )
            usual_tolerance = float(np.median(tolerance))
            span = score_table.robust_span(target)
            grain = max(usual_tolerance, columns.grids[place], 1e-6 * span)
            rows = len(np.unique(target))
            evidence = rows * math.log10(max(span / grain, 1))
            if evidence >= _EVIDENCE + 2 * math.log10(len(names)):
                derived[place] = Derived(names[place], relation, (names[source],))
    return dict(itertools.islice(derived.items(), _MOST))


def _linear_tolerance(
    columns: _ScoreColumns,
    place: int,
    *,
    sources: Sequence[int],
    start: float,
    factor: float,
) -> Float[np.ndarray, "m s"]:
    """Return the largest rounding error of (column - (start + factor * source)) per row and source.

    place: index of the column. sources: indices of the s sources.
    """
    target = columns.values[:, [place]]
    scaled = np.abs(factor * columns.values[:, sources])
    rounding = columns.units[place] + abs(factor) * columns.units[sources]
    return rounding / 2 * 1.001 + _SLACK * np.maximum(np.abs(target), scaled)


def _pairs(
    columns: _ScoreColumns, start: float, factor: float
) -> Iterator[tuple[int, int]]:
    """Yield indices (column, source) with column = start + factor * source, up to rounding.

    The source has more digits than the column, or as many digits and a smaller index. Columns of
    equal scores are skipped.
    """
    values = columns.values
    units = columns.units
    scaled_units = abs(factor) * units
    first_row = start + factor * values[0]
    order = np.argsort(first_row, kind="stable")
    ordered = first_row[order]
    # Largest difference of a pair in the first row.
    bounds = (units + scaled_units.max()) / 2 * 1.001
    bounds += 2 * _SLACK * (np.abs(values[0]) + abs(start)) + 1e-300
    lows = np.searchsorted(ordered, values[0] - bounds, side="left")
    highs = np.searchsorted(ordered, values[0] + bounds, side="right")
    for place in np.flatnonzero(np.ptp(values, axis=0) > 0).tolist():
        sources = np.sort(order[lows[place] : highs[place]])
        unit = units[place]
        scaled = scaled_units[sources]
        is_equal = np.abs(scaled - unit) <= 1e-6 * unit
        is_coarser = ~is_equal & (scaled < unit)
        sources = sources[is_coarser | (is_equal & (sources < place))]
        for start_row, stop_row in ((0, 4), (4, None)):
            if not len(sources):
                break
            rows = slice(start_row, stop_row)
            transformed = start + factor * values[rows][:, sources]
            columns_in_rows = columns._replace(values=values[rows])
            tolerance = _linear_tolerance(
                columns_in_rows, place, sources=sources, start=start, factor=factor
            )
            differences = np.abs(transformed - values[rows][:, [place]])
            sources = sources[(differences <= tolerance).all(axis=0)]
        for source in sources.tolist():
            yield place, source


def _mean_of(
    columns: _ScoreColumns,
    names: Sequence[str],
    place: int,
    *,
    hinted: Sequence[bool],
    weights: np.ndarray | None,
) -> Derived | None:
    """Return the description of a column as a mean, sum, median etc. of other columns, or None.

    names: names of the columns. place: index of the column. hinted: for each column, True if its
    name suggests a summary. weights: known weights of the columns, or None.
    """
    values = columns.values
    if not np.ptp(values):
        return None
    others = [i for i in range(len(names)) if i != place]
    plain = [i for i in others if not hinted[i]]
    if weights is not None and np.isfinite(weights[others]).all():
        shares = weights[others] / weights[others].sum()
        if _agrees(
            columns,
            place,
            members=others,
            summary=values[:, others] @ shares,
            tried=1,
            hinted=hinted,
        ):
            return _derived(names, place, "the mean, weighted by images, of", others)
    groups = [others] if plain == others or len(plain) < 2 else [others, plain]
    tried = len(groups)
    if len(names) <= _SUBSETS:
        groups += _ranges(place, len(names))
        tried += len(names) ** 2 // 2
    for number, members in enumerate(groups):
        member_values = values[:, members]
        for relation, mean in _MEANS.items():
            if relation in _ENDS and number > 0:
                continue  # Ties with the extreme of a few columns are common.
            count = len(members) if relation == "the sum of" else 1
            summary = mean(member_values)
            if _agrees(
                columns,
                place,
                members=members,
                summary=summary,
                tried=tried,
                hinted=hinted,
                count=count,
            ):
                return _derived(names, place, relation, members)
    groups, tried = _groups_near(columns, place, others, hinted=hinted[place])
    for members in groups:
        summary = values[:, members].mean(axis=1)
        if _agrees(
            columns,
            place,
            members=members,
            summary=summary,
            tried=tried,
            hinted=hinted,
        ):
            return _derived(names, place, "the mean of", members)
    return None


def _derived(
    names: Sequence[str], place: int, relation: str, members: Sequence[int]
) -> Derived:
    """Return a `Derived` from indices of columns.

    names: names of all columns. place: index of the derived column. relation: such as "the mean
    of". members: indices of the sources.
    """
    return Derived(names[place], relation, tuple(names[i] for i in members))


def _ranges(place: int, n: int) -> Iterator[list[int]]:
    """Yield the ranges of at least two of n columns that do not contain the index `place`."""
    for start, stop in itertools.combinations(range(n + 1), 2):
        if stop - start > 1 and not start <= place < stop:
            yield [*range(start, stop)]


def _groups_near(
    columns: _ScoreColumns, place: int, others: list[int], *, hinted: bool
) -> tuple[Iterator[list[int]], int]:
    """Return (groups of columns with a mean near the column `place`, number of groups tried).

    Groups are lists of indices; the mean of a group agrees with the column in the first rows. If
    `others` has at most 12 columns, all subsets are tried, else all ranges of neighbours. For more
    than 120 columns, only ranges next to the column are tried, and only if `hinted`. place: index
    of the column. others: indices of other columns. hinted: True if the name of the column suggests
    a summary.
    """
    values = columns.values[:_FEW_ROWS]
    rounding = _rounding(columns, place, others)
    target = values[:, [place]]
    if len(others) <= _SUBSETS:
        # One row per subset: 1 for members, 0 for other columns.
        masks = np.array([*itertools.product((0, 1), repeat=len(others))], float)
        masks = masks[masks.sum(axis=1) >= 2]
        means = values[:, others] @ (masks / masks.sum(axis=1, keepdims=True)).T
        largest = (np.abs(values[:, None, others]) * masks).max(axis=2)
        slack = 2 * (rounding + _SLACK * np.maximum(largest, np.abs(target)))
        near_masks = masks[(np.abs(means - target) <= slack).all(axis=0)]
        groups = (
            [i for i, is_member in zip(others, mask) if is_member]
            for mask in near_masks
        )
        return groups, len(masks)
    n = values.shape[1]
    if n > _RANGES and not hinted:
        return iter(()), 1
    starts, stops = np.triu_indices(n + 1, 2)
    if n > _RANGES:
        is_adjacent = (stops == place) | (starts == place + 1)
        starts, stops = starts[is_adjacent], stops[is_adjacent]
    is_outside = (stops <= place) | (starts > place)
    starts, stops = starts[is_outside], stops[is_outside]
    sums = np.pad(np.cumsum(values, axis=1), ((0, 0), (1, 0)))
    means = (sums[:, stops] - sums[:, starts]) / (stops - starts)
    sizes = np.pad(np.cumsum(np.abs(values), axis=1), ((0, 0), (1, 0)))
    sizes = (
        np.abs(target) + sizes[:, stops] - sizes[:, starts]
    )  # At least the largest score.
    near = (np.abs(means - target) <= 2 * (rounding + _SLACK * sizes)).all(axis=0)
    pairs = zip(starts[near].tolist(), stops[near].tolist())
    return ([*range(start, stop)] for start, stop in pairs), len(starts)


def _weighted(
    columns: _ScoreColumns, names: Sequence[str], place: int
) -> Derived | None:
    """Return the description of a column as a weighted mean of other columns, or None.

    Also returns None if there are too few rows, or too similar columns, to determine the weights,
    and for more than 60 other columns. The relation is "the mean of" if equal weights agree, too.
    place: index of the column.
    """
    values = columns.values
    others = [i for i in range(len(names)) if i != place]
    m = len(values)
    if len(others) > _WEIGHTED or m < 4 or not np.ptp(values[:, place]):
        return None
    try:
        weights, _ = scipy.optimize.nnls(values[:, others], values[:, place])
    except RuntimeError:  # The solver did not converge.
        return None
    members = [i for i, weight in zip(others, weights) if weight > 0.02]
    if not 2 <= len(members) <= m - 2 or abs(weights.sum() - 1) > 0.02:
        return None
    tolerance = 1.5 * _tolerance(columns, place, members)
    errors = np.abs(values[:, others] @ weights - values[:, place])
    if (errors > tolerance).any():
        return None
    deviations = values[:, members] - values[:, members].mean(axis=0)
    strengths = np.linalg.svd(deviations, compute_uv=False)
    if strengths[-1] < max(10 * np.median(tolerance), 1e-6 * strengths[0]):
        return None  # The columns are so similar that other weights fit as well.
    finest = max(columns.units[place], columns.grids[place])
    usual = np.median(np.abs(values[:, [place, *members]]).max(axis=1))
    grain = max(4 * float(errors.max()), finest, _SLACK * float(usual))
    rows = m - len(members)
    evidence = rows * math.log10(max(columns.scale / grain, 1))
    if evidence < _EVIDENCE + 2 + math.log10(len(names)):
        return None
    differences = np.abs(values[:, members].mean(axis=1) - values[:, place])
    if (differences <= _tolerance(columns, place, members)).all():
        return _derived(names, place, "the mean of", members)
    return _derived(names, place, "a weighted mean of", members)


def _agrees(
    columns: _ScoreColumns,
    place: int,
    *,
    members: Sequence[int],
    summary: Float[np.ndarray, "m"],
    tried: int,
    hinted: Sequence[bool],
    count: int = 1,
) -> bool:
    """Return True if a column agrees with a summary of other columns, and not by chance.

    The probability that a row agrees by chance is the tolerance divided by the usual deviation of
    a column from the mean of the other columns. The probability that the means over all rows agree
    by chance is the tolerance divided by the deviation between the means of the columns. The
    product of these probabilities must be at most 0.1 if the name of the column suggests a summary,
    else at most 0.0001 / (`tried` * number of columns).

    place: index of the column. members: indices of the summarised columns. summary: the summary in
    each row. tried: number of groups that were tried. hinted: for each column, True if its name
    suggests a summary. count: number of members whose rounding errors add up.
    """
    values = columns.values
    target = columns.values[:, place]
    tolerance = count * _tolerance(columns, place, members)
    if not (np.abs(summary - target) <= tolerance).all():
        return False
    grid = float(np.median(columns.grids[members]))
    grain = 2 * max(float(np.median(tolerance)), grid)
    levels = float(np.nanstd(_nan_means(_usual_values(values), axis=0)))
    rows = (len(values) - 1) * math.log10(max(columns.scale / grain, 1))
    evidence = rows + math.log10(max(levels / grain, 1))
    if hinted[place]:
        return evidence >= 1
    return evidence >= _EVIDENCE + math.log10(tried * len(hinted))


def _tolerance(
    columns: _ScoreColumns, place: int, members: Sequence[int]
) -> Float[np.ndarray, "m"]:
    """Return the largest rounding error of (column - mean of `members`), per row.

    place, members: indices of columns. The error includes rounding to printed digits, and rounding
    of sums in the same row, so a huge score in another row or column has no effect.
    """
    largest = np.abs(columns.values[:, [place, *members]]).max(axis=1)
    return _rounding(columns, place, members) + _SLACK * largest


def _rounding(columns: _ScoreColumns, place: int, members: Sequence[int]) -> float:
    """Return the largest error of (column - mean of `members`) from rounding to printed digits.

    place, members: indices of columns.
    """
    units = columns.units
    return float(1.001 * (units[place] + units[list(members)].mean()) / 2)


def _unit(column: Float[np.ndarray, "m"]) -> float:
    """Return the last decimal place that a column uses, such as 0.1; 0 for full precision."""
    sizes = np.abs(column)
    slack = 1e-11 * np.maximum(sizes, max(1e-300, float(np.median(sizes))))
    for digits in range(_DIGITS):
        if (np.abs(column - np.round(column, digits)) <= slack).all():
            return 10.0**-digits
    return 0.0


def _grids(values: Float[np.ndarray, "m n"]) -> Float[np.ndarray, "n"]:
    """Return the step of scores per column: 1 / n or 100 / n for shares of n images, else 0.

    n is the smallest number from 2 to 2000 that fits the first 50 scores of the column. A column of
    equal scores also gives 0.
    """
    grids = np.zeros(values.shape[1])
    for i, column in enumerate(values[:50].T):
        for maximum in (1, 100):
            counts = column[:, None] / maximum * _IMAGES
            errors = np.abs(counts - np.round(counts))
            is_integer = (errors < 1e-7 * _IMAGES).all(axis=0)
            if is_integer.any() and np.ptp(column):
                grids[i] = maximum / _IMAGES[np.argmax(is_integer)]
                break
    return grids


def _scale(values: Float[np.ndarray, "m n"]) -> float:
    """Return the median over columns of the deviation from the mean of all other columns.

    The deviation of a column is the standard deviation over rows of (column - mean of all other
    columns). Outlying scores, such as scores of a run that diverged, are left out. The result is 0
    without scores.
    """
    values = _usual_values(values)
    present = np.isfinite(values)
    sums = np.nansum(values, axis=1, keepdims=True)
    counts = present.sum(axis=1)
    num_others = np.maximum(counts[:, None] - 1, 1)
    means_of_others = np.where(present, sums - values, np.nan) / num_others
    has_others = present & (counts[:, None] > 1)
    differences = np.where(has_others, values - means_of_others, np.nan)
    deviations = [
        np.std(column[np.isfinite(column)])
        for column in differences.T
        if np.isfinite(column).any()
    ]
    return float(np.median(deviations)) if deviations else 0.0


def _usual_values(values: Float[np.ndarray, "m n"]) -> Float[np.ndarray, "m n"]:
    """Return the scores with outliers as NaN; `values` has no NaN.

    Outliers are farther from the median of the whole table than 1000 times the larger of |median|
    and the median distance from the median.
    """
    middle = np.median(values)
    usual = max(abs(middle), float(np.median(np.abs(values - middle))))
    if not usual:
        return values
    return np.where(np.abs(values - middle) <= _OUTLYING * usual, values, np.nan)


def _nan_means(values: Float[np.ndarray, "m n"], axis: int) -> np.ndarray:
    """Return means over an axis that ignore NaN; NaN where all values are NaN."""
    counts = np.isfinite(values).sum(axis=axis)
    sums = np.nansum(values, axis=axis)
    return np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)


def _harmonic(values: np.ndarray) -> np.ndarray:
    """Return harmonic means over the last axis; all NaN if any value is not positive."""
    if not (values > 0).all():
        return np.full(values.shape[:-1], math.nan)
    return values.shape[-1] / (1 / values).sum(axis=-1)


def _geometric(values: np.ndarray) -> np.ndarray:
    """Return geometric means over the last axis; all NaN if any value is not positive."""
    if not (values > 0).all():
        return np.full(values.shape[:-1], math.nan)
    return np.exp(np.log(values).mean(axis=-1))


def of_datasets(values: pd.DataFrame) -> list[Derived]:
    """Return the data sets that are computed from other data sets in all runs of all algorithms.

    Data sets with missing scores are not compared. values: columns algorithm, dataset, seed, value
    and optionally n (number of images), which is used only if known in all rows.
    """
    table = _wide(values, ["algorithm", "seed"], "dataset")
    images = pd.to_numeric(values["n"], errors="coerce") if "n" in values else None
    if images is None or not len(images) or images.isna().any():
        return _find_in_table(table)
    sizes = images.groupby(values["dataset"].astype(str)).max()
    weights = sizes.reindex(table.columns).to_numpy(float)
    return _find_in_table(table, grids=1 / weights, weights=weights)


def of_algorithms(values: pd.DataFrame) -> list[Derived]:
    """Return the algorithms that are computed from other algorithms on every data set.

    If all algorithms have the same seeds, the scores of each seed are compared. Otherwise, or if
    no algorithm agrees in each seed, means over seeds are compared. Algorithms with equal scores
    are in `Analysis.twins` instead. values: columns algorithm, dataset, seed and value.
    """
    scores_of_runs = values[["algorithm", "dataset", "seed"]].astype(str)
    scores_of_runs = scores_of_runs.assign(value=values["value"].astype(float))
    scores_of_runs["seed"] = scores_of_runs["seed"].str.rpartition(":")[2]
    runs = scores_of_runs.groupby("algorithm")["seed"].agg(frozenset)
    if (
        len(set(runs)) == 1
        and not scores_of_runs.duplicated(["algorithm", "dataset", "seed"]).any()
    ):
        table = _wide(scores_of_runs, ["dataset", "seed"], "algorithm")
        derived = _find_in_table(table, copies=False)
        if derived:
            return derived
    cells = scores_of_runs.groupby(["algorithm", "dataset"], sort=False)["value"]
    table = _wide(cells.mean().reset_index(), ["dataset"], "algorithm")
    scores = {
        name: group.to_numpy()
        for name, group in scores_of_runs.groupby("algorithm")["value"]
    }
    columns = [scores[name] for name in table.columns]
    units = np.array([_unit(column) for column in columns])
    grids = np.array([_grids(column[:, None])[0] for column in columns])
    repeats = max(int(cells.size().max()), 1) if len(scores_of_runs) else 1
    grids = np.maximum(units, grids) / repeats
    return _find_in_table(table, units=units, grids=grids, copies=False)


def of_runs(values: pd.DataFrame) -> list[Derived]:
    """Return the runs that are computed from other runs in every algorithm, such as a mean.

    Empty for fewer than 3 runs, and if algorithms do not have the same runs. values: columns
    algorithm, dataset, seed and value.
    """
    names = values.groupby(values["algorithm"].astype(str))["seed"].agg(set)
    common = set.intersection(*names) if len(names) else set()
    if len(common) < 3 or any(seeds != common for seeds in names):
        return []
    table = _wide(values, ["algorithm", "dataset"], "seed")
    return _find_in_table(table, copies=False)


def _wide(values: pd.DataFrame, rows: list[str], column: str) -> pd.DataFrame:
    """Return scores with a row per combination of `rows` and a column per value of `column`.

    values: frame with a column value. rows, column: names of its other columns.
    """
    plain = values[[*rows, column]].astype(str)
    plain = plain.assign(value=values["value"].astype(float))
    order = list(dict.fromkeys(plain[column]))
    return plain.pivot(index=rows, columns=column, values="value")[order]


def _find_in_table(
    table: pd.DataFrame, copies: bool = True, **options
) -> list[Derived]:
    """Return the result of `find` for those columns of a table that have no missing scores.

    copies: see `find`. options: further arguments of `find`, one value per column.
    """
    is_complete: Bool[np.ndarray, n] = np.isfinite(table.to_numpy(float)).all(axis=0)
    table = table.loc[:, is_complete]
    options = {key: column[is_complete] for key, column in options.items()}
    values = table.to_numpy(float)
    return find(values, list(table.columns), copies=copies, **options)
