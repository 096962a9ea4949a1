"""Data sets, algorithms and runs whose scores follow from others: means, sums, copies.

A mean of test sets that stands among them as one more ("avg") counts these again: Friedman's
test then sees a block that is none. The same holds for a copy, for an error beside its
accuracy, for a sum or a median, and for an algorithm that is the mean of others. Scores are
compared to within their printed digits. Several scores agree by chance, too, so a name is
given only where chance is too unlikely an explanation, or where the name itself says it.
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

# Orders of magnitude by which chance must fail to explain an agreement.
_EVIDENCE = 4.0
_SUBSETS = 12  # Columns of which all subsets are tried.
_RANGES = 120  # Columns of which the mean of all neighbours is tried.
_WEIGHTED = 60  # Columns of which weighted means are tried.
_FEW_ROWS = 8  # Rows that rule most groups out before all rows are compared.
_MOST = 20  # Names that are given.
_DIGITS = 13
_SLACK = 1e-9  # Of the numbers that are compared: what sums of them may lose.
_OUTLYING = 1000  # Times the usual size: left out of what scores usually differ by.
_IMAGES = np.arange(2, 2001)  # Numbers of images that accuracies may be counts over.
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
    """A name whose scores follow from those of others."""

    name: str
    relation: str  # "the mean of", "a copy of" ...
    sources: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return what is so, "the mean of a, c, s and p"; of many, the first."""
        names = [*self.sources]
        if len(names) > 8:
            names = [*names[:6], f"{len(names) - 6} more"]
        return f"{self.relation} {tables.join(names)}"


class _Columns(NamedTuple):
    """Scores with what is known of their digits."""

    values: Float[np.ndarray, "m n"]
    units: Float[np.ndarray, "n"]  # The last printed digit; 0 if all are printed.
    grids: Float[np.ndarray, "n"]  # The smallest difference that scores can have.
    scale: float  # By how much a column differs from the mean of others, at random.


Mean = Callable[[np.ndarray], np.ndarray]  # Of the last axis.
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
    """Return the columns that follow from the other columns in every row.

    values: a row a run of an algorithm, a column a data set (or the other way round).
    units: the last printed digit of each column; if not given, as the scores say.
    grids: the smallest difference that scores can have, such as 1 / images; likewise.
    copies: whether a column that repeats another is named.
    weights: known weights of the columns, such as their numbers of images.
    """
    m, n = values.shape
    if m < 2 or n < 2 or not np.isfinite(values).all():
        return []
    if units is None:
        units = np.array([_unit(column) for column in values.T])
    if grids is None:
        grids = _grids(values)
    columns = _Columns(values=values, units=units, grids=grids, scale=_scale(values))
    found = _linear(columns, names) if copies else {}
    left = [i for i in range(n) if i not in found]
    while len(left) > 2 and len(found) < _MOST:
        part = _Columns(
            values=values[:, left],
            units=units[left],
            grids=grids[left],
            scale=_scale(values[:, left]),
        )
        part_names = [names[i] for i in left]
        part_weights = None if weights is None else weights[left]
        place, derived = _first(part, part_names, part_weights)
        if derived is None:
            break
        found[left.pop(place)] = derived
    return [found[place] for place in sorted(found)]


def _first(
    columns: _Columns, names: Sequence[str], weights: np.ndarray | None
) -> tuple[int, Derived | None]:
    """Return the place of one derived column and what it is, those with such names first."""
    hinted = [bool(_SUMMARY.search(name.lower())) for name in names]
    places = sorted(range(len(names)), key=lambda i: not hinted[i])
    if len(names) > _RANGES:  # Others are not worth the time.
        whole = set(_equal_to_the_others(columns).tolist())
        places = [i for i in places if hinted[i] or i in whole]
    for place in places[: _RANGES + _MOST]:
        if derived := _mean_of(columns, names, place, hinted, weights):
            return place, derived
    for place in places if len(names) <= _WEIGHTED else ():
        if derived := _weighted(columns, names, place):
            return place, derived
    return 0, None


def _equal_to_the_others(columns: _Columns) -> np.ndarray:
    """Return the columns that are near the mean, or the sum, of all others."""
    values, n = columns.values, columns.values.shape[1]
    sums = values.sum(axis=1, keepdims=True) - values
    slack = _SLACK * np.abs(values).max(axis=1, keepdims=True) + columns.units.max()
    means = (np.abs(sums / (n - 1) - values) <= 2 * slack).all(axis=0)
    return np.flatnonzero(means | (np.abs(sums - values) <= 2 * n * slack).all(axis=0))


def _linear(columns: _Columns, names: Sequence[str]) -> dict[int, Derived]:
    """Return the columns that repeat another one, or are its complement.

    Of two such columns, named is the one with fewer digits; else the later one.
    """
    found: dict[int, Derived] = {}
    for (start, factor), relation in _LINEAR.items():
        for place, source in _pairs(columns, start, factor):
            if place in found or source in found:
                continue
            target = columns.values[:, place]
            tolerance = _linear_tolerance(columns, place, [source], start, factor)
            usual_tolerance = float(np.median(tolerance))
            span = score_table.robust_span(target)
            grain = max(usual_tolerance, columns.grids[place], 1e-6 * span)
            rows = len(np.unique(target))
            evidence = rows * math.log10(max(span / grain, 1))
            if evidence >= _EVIDENCE + 2 * math.log10(len(names)):
                found[place] = Derived(names[place], relation, (names[source],))
    return dict(itertools.islice(found.items(), _MOST))


def _linear_tolerance(
    columns: _Columns,
    place: int,
    sources: Sequence[int],
    start: float,
    factor: float,
) -> Float[np.ndarray, "m s"]:
    """Return by how much rounding can part a column from start + factor * each source."""
    target = columns.values[:, [place]]
    scaled = np.abs(factor * columns.values[:, sources])
    rounding = columns.units[place] + abs(factor) * columns.units[sources]
    return rounding / 2 * 1.001 + _SLACK * np.maximum(np.abs(target), scaled)


def _pairs(columns: _Columns, start: float, factor: float) -> Iterator[tuple[int, int]]:
    """Yield (column, source) with column = start + factor * source, up to rounding.

    Where both have as many digits, the source is the earlier one.
    """
    values, units = columns.values, columns.units
    scaled_units = abs(factor) * units
    first_row = start + factor * values[0]
    order = np.argsort(first_row, kind="stable")
    ordered = first_row[order]
    # How far apart the first row's numbers of a pair are at most.
    bounds = (units + scaled_units.max()) / 2 * 1.001
    bounds += 2 * _SLACK * (np.abs(values[0]) + abs(start)) + 1e-300
    lows = np.searchsorted(ordered, values[0] - bounds, side="left")
    highs = np.searchsorted(ordered, values[0] + bounds, side="right")
    for place in np.flatnonzero(np.ptp(values, axis=0) > 0).tolist():
        sources = np.sort(order[lows[place] : highs[place]])
        unit, scaled = units[place], scaled_units[sources]
        is_equal = np.abs(scaled - unit) <= 1e-6 * unit
        is_coarser = ~is_equal & (scaled < unit)
        sources = sources[is_coarser | (is_equal & (sources < place))]
        for start_row, stop_row in ((0, 4), (4, None)):
            if not len(sources):
                break
            rows = slice(start_row, stop_row)
            turned = start + factor * values[rows][:, sources]
            part = columns._replace(values=values[rows])
            tolerance = _linear_tolerance(part, place, sources, start, factor)
            apart = np.abs(turned - values[rows][:, [place]])
            sources = sources[(apart <= tolerance).all(axis=0)]
        for source in sources.tolist():
            yield place, source


def _mean_of(
    columns: _Columns,
    names: Sequence[str],
    place: int,
    hinted: Sequence[bool],
    weights: np.ndarray | None,
) -> Derived | None:
    """Return what mean, sum, median ... of other columns a column is, if any."""
    values = columns.values
    if not np.ptp(values):
        return None
    others = [i for i in range(len(names)) if i != place]
    plain = [i for i in others if not hinted[i]]
    if weights is not None and np.isfinite(weights[others]).all():
        share = weights[others] / weights[others].sum()
        if _agrees(columns, place, others, values[:, others] @ share, 1, hinted):
            return _derived(names, place, "the mean, weighted by images, of", others)
    groups = [others] if plain == others or len(plain) < 2 else [others, plain]
    tried = len(groups)
    if len(names) <= _SUBSETS:
        groups += _ranges(place, len(names))
        tried += len(names) ** 2 // 2
    for number, members in enumerate(groups):
        part = values[:, members]
        for relation, mean in _MEANS.items():
            if relation in _ENDS and number > 0:
                continue  # Ties with the end of a few are common.
            count = len(members) if relation == "the sum of" else 1
            summary = mean(part)
            if _agrees(columns, place, members, summary, tried, hinted, count):
                return _derived(names, place, relation, members)
    near, tried = _groups_near(columns, place, others, hinted[place])
    for members in near:
        summary = values[:, members].mean(axis=1)
        if _agrees(columns, place, members, summary, tried, hinted):
            return _derived(names, place, "the mean of", members)
    return None


def _derived(names, place: int, relation: str, members: Sequence[int]) -> Derived:
    return Derived(names[place], relation, tuple(names[i] for i in members))


def _ranges(place: int, n: int) -> Iterator[list[int]]:
    """Yield neighbouring columns, at least two, on one side of a place."""
    for start, stop in itertools.combinations(range(n + 1), 2):
        if stop - start > 1 and not start <= place < stop:
            yield [*range(start, stop)]


def _groups_near(
    columns: _Columns, place: int, others: list[int], hinted: bool
) -> tuple[Iterator[list[int]], int]:
    """Return groups whose mean agrees with a column on the first rows; and how many there are.

    These are all subsets of few columns, and all neighbours of more.
    """
    values = columns.values[:_FEW_ROWS]
    rounding, target = _rounding(columns, place, others), values[:, [place]]
    if len(others) <= _SUBSETS:
        bits = np.array([*itertools.product((0, 1), repeat=len(others))], float)
        bits = bits[bits.sum(axis=1) >= 2]
        means = values[:, others] @ (bits / bits.sum(axis=1, keepdims=True)).T
        largest = (np.abs(values[:, None, others]) * bits).max(axis=2)
        slack = 2 * (rounding + _SLACK * np.maximum(largest, np.abs(target)))
        near = bits[(np.abs(means - target) <= slack).all(axis=0)]
        members = ([i for i, bit in zip(others, row) if bit] for row in near)
        return members, len(bits)
    n = values.shape[1]
    if n > _RANGES and not hinted:
        return iter(()), 1
    starts, stops = np.triu_indices(n + 1, 2)
    if n > _RANGES:
        beside = (stops == place) | (starts == place + 1)
        starts, stops = starts[beside], stops[beside]
    apart = (stops <= place) | (starts > place)
    starts, stops = starts[apart], stops[apart]
    sums = np.pad(np.cumsum(values, axis=1), ((0, 0), (1, 0)))
    means = (sums[:, stops] - sums[:, starts]) / (stops - starts)
    sizes = np.pad(np.cumsum(np.abs(values), axis=1), ((0, 0), (1, 0)))
    sizes = np.abs(target) + sizes[:, stops] - sizes[:, starts]  # At least the largest.
    near = (np.abs(means - target) <= 2 * (rounding + _SLACK * sizes)).all(axis=0)
    pairs = zip(starts[near].tolist(), stops[near].tolist())
    return ([*range(start, stop)] for start, stop in pairs), len(starts)


def _weighted(columns: _Columns, names: Sequence[str], place: int) -> Derived | None:
    """Return whose weighted mean a column is, where rows enough determine the weights."""
    values = columns.values
    others = [i for i in range(len(names)) if i != place]
    m = len(values)
    if len(others) > _WEIGHTED or m < 4 or not np.ptp(values[:, place]):
        return None
    try:
        weights, _ = scipy.optimize.nnls(values[:, others], values[:, place])
    except RuntimeError:  # It did not converge.
        return None
    members = [i for i, weight in zip(others, weights) if weight > 0.02]
    if not 2 <= len(members) <= m - 2 or abs(weights.sum() - 1) > 0.02:
        return None
    part = values[:, members] - values[:, members].mean(axis=0)
    strengths = np.linalg.svd(part, compute_uv=False)
    tolerance = 1.5 * _tolerance(columns, place, members)
    if strengths[-1] < max(10 * np.median(tolerance), 1e-6 * strengths[0]):
        return None  # Columns so alike that other weights fit, too.
    missed = np.abs(values[:, others] @ weights - values[:, place])
    if (missed > tolerance).any():
        return None
    finest = max(columns.units[place], columns.grids[place])
    usual = np.median(np.abs(values[:, [place, *members]]).max(axis=1))
    grain = max(4 * float(missed.max()), finest, _SLACK * float(usual))
    rows = m - len(members)
    evidence = rows * math.log10(max(columns.scale / grain, 1))
    if evidence < _EVIDENCE + 2 + math.log10(len(names)):
        return None
    apart = np.abs(values[:, members].mean(axis=1) - values[:, place])
    if (apart <= _tolerance(columns, place, members)).all():
        return _derived(names, place, "the mean of", members)
    return _derived(names, place, "a weighted mean of", members)


def _agrees(
    columns: _Columns,
    place: int,
    members: Sequence[int],
    summary: Float[np.ndarray, "m"],
    tried: int,
    hinted: Sequence[bool],
    count: int = 1,
) -> bool:
    """Return whether a column is that summary, and not by chance.

    Each row agrees by chance with a probability of the tolerance over the usual difference
    of a column from the mean of others; so does the level of the whole column.
    """
    values, target = columns.values, columns.values[:, place]
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
    columns: _Columns, place: int, members: Sequence[int]
) -> Float[np.ndarray, "m"]:
    """Return by how much rounding can part a column from a mean of members, in each row.

    Of printed digits, and of sums of the numbers that are compared: a huge score in another
    row or column changes nothing.
    """
    largest = np.abs(columns.values[:, [place, *members]]).max(axis=1)
    return _rounding(columns, place, members) + _SLACK * largest


def _rounding(columns: _Columns, place: int, members: Sequence[int]) -> float:
    """Return by how much rounding to printed digits can part a column from a mean."""
    units = columns.units
    return float(1.001 * (units[place] + units[list(members)].mean()) / 2)


def _unit(column: Float[np.ndarray, "m"]) -> float:
    """Return the last decimal place that a column uses, such as 0.1; 0 if it uses all."""
    sizes = np.abs(column)
    slack = 1e-11 * np.maximum(sizes, max(1e-300, float(np.median(sizes))))
    for digits in range(_DIGITS):
        if (np.abs(column - np.round(column, digits)) <= slack).all():
            return 10.0**-digits
    return 0.0


def _grids(values: Float[np.ndarray, "m n"]) -> Float[np.ndarray, "n"]:
    """Return 1 / images, or 100 / images, where scores are counts of few images; else 0."""
    grids = np.zeros(values.shape[1])
    for i, column in enumerate(values[:50].T):
        for whole in (1, 100):
            counts = column[:, None] / whole * _IMAGES
            near = (np.abs(counts - np.round(counts)) < 1e-7 * _IMAGES).all(axis=0)
            if near.any() and np.ptp(column):
                grids[i] = whole / _IMAGES[np.argmax(near)]
                break
    return grids


def _scale(values: Float[np.ndarray, "m n"]) -> float:
    """Return the usual deviation over rows of a column from the mean of all others.

    Outlying scores, such as those of a run that diverged, are left out.
    """
    values = _usual_values(values)
    present = np.isfinite(values)
    sums, counts = np.nansum(values, axis=1, keepdims=True), present.sum(axis=1)
    others = np.where(present, sums - values, np.nan) / np.maximum(
        counts[:, None] - 1, 1
    )
    rows = present & (counts[:, None] > 1)
    apart = np.where(rows, values - others, np.nan)
    deviations = [np.std(x[np.isfinite(x)]) for x in apart.T if np.isfinite(x).any()]
    return float(np.median(deviations)) if deviations else 0.0


def _usual_values(values: Float[np.ndarray, "m n"]) -> Float[np.ndarray, "m n"]:
    """Return scores with NaN for those over a thousand times as far out as usual ones."""
    middle = np.median(values)
    usual = max(abs(middle), float(np.median(np.abs(values - middle))))
    if not usual:
        return values
    return np.where(np.abs(values - middle) <= _OUTLYING * usual, values, np.nan)


def _nan_means(values: Float[np.ndarray, "m n"], axis: int) -> np.ndarray:
    """Return means without NaN; NaN, and no warning, where nothing else is there."""
    counts = np.isfinite(values).sum(axis=axis)
    sums = np.nansum(values, axis=axis)
    return np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)


def _harmonic(values: np.ndarray) -> np.ndarray:
    if not (values > 0).all():
        return np.full(values.shape[:-1], math.nan)
    return values.shape[-1] / (1 / values).sum(axis=-1)


def _geometric(values: np.ndarray) -> np.ndarray:
    if not (values > 0).all():
        return np.full(values.shape[:-1], math.nan)
    return np.exp(np.log(values).mean(axis=-1))


def of_datasets(values: pd.DataFrame) -> list[Derived]:
    """Return the data sets that follow from others in every run of every algorithm.

    values: the columns algorithm, dataset, seed, value and, if known, n (images).
    """
    table = _wide(values, ["algorithm", "seed"], "dataset")
    images = pd.to_numeric(values["n"], errors="coerce") if "n" in values else None
    if images is None or not len(images) or images.isna().any():
        return _found(table)
    sizes = images.groupby(values["dataset"].astype(str)).max()
    weights = sizes.reindex(table.columns).to_numpy(float)
    return _found(table, grids=1 / weights, weights=weights)


def of_algorithms(values: pd.DataFrame) -> list[Derived]:
    """Return the algorithms that are the mean of others on every data set.

    Algorithms with equal scores are named elsewhere.
    """
    named = values[["algorithm", "dataset", "seed"]].astype(str)
    named = named.assign(value=values["value"].astype(float))
    named["seed"] = named["seed"].str.rpartition(":")[2]
    runs = named.groupby("algorithm")["seed"].agg(frozenset)
    if (
        len(set(runs)) == 1
        and not named.duplicated(["algorithm", "dataset", "seed"]).any()
    ):
        found = _found(_wide(named, ["dataset", "seed"], "algorithm"), copies=False)
        if found:
            return found
    cells = named.groupby(["algorithm", "dataset"], sort=False)["value"]
    table = _wide(cells.mean().reset_index(), ["dataset"], "algorithm")
    scores = {name: x.to_numpy() for name, x in named.groupby("algorithm")["value"]}
    columns = [scores[name] for name in table.columns]
    units = np.array([_unit(column) for column in columns])
    grids = np.array([_grids(column[:, None])[0] for column in columns])
    repeats = max(int(cells.size().max()), 1) if len(named) else 1
    grids = np.maximum(units, grids) / repeats
    return _found(table, units=units, grids=grids, copies=False)


def of_runs(values: pd.DataFrame) -> list[Derived]:
    """Return the runs that are the mean of the algorithm's others, in every algorithm."""
    names = values.groupby(values["algorithm"].astype(str))["seed"].agg(set)
    common = set.intersection(*names) if len(names) else set()
    if len(common) < 3 or any(seeds != common for seeds in names):
        return []
    table = _wide(values, ["algorithm", "dataset"], "seed")
    return _found(table, copies=False)


def _wide(values: pd.DataFrame, rows: list[str], column: str) -> pd.DataFrame:
    plain = values[[*rows, column]].astype(str)
    plain = plain.assign(value=values["value"].astype(float))
    order = list(dict.fromkeys(plain[column]))
    return plain.pivot(index=rows, columns=column, values="value")[order]


def _found(table: pd.DataFrame, copies: bool = True, **known) -> list[Derived]:
    """Return what `find` does of the columns without missing scores; known: per column."""
    whole: Bool[np.ndarray, n] = np.isfinite(table.to_numpy(float)).all(axis=0)
    table = table.loc[:, whole]
    known = {key: column[whole] for key, column in known.items()}
    values = table.to_numpy(float)
    return find(values, list(table.columns), copies=copies, **known)
