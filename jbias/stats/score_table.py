"""Tables of scores: the score of each run of each algorithm on each data set.

Every test reads its scores with this module (`read`). A table may be a matrix (data sets,
algorithms), an array (data sets, algorithms, runs) or a pandas matrix with names. A table may also
be a tidy frame with the columns algorithm, dataset, score and, if there are several, run, or a
pandas frame or series whose index levels and columns have these names.

Scores that should be equal often differ by rounding. Each score has a rounding error in
proportion to its size: `mean_errors` for ranks on a data set, `rounding_errors` for
differences that are compared over data sets. Neighbouring scores tie if they differ by no more than
the larger of their two errors (`near_levels`); a huge score elsewhere in the table has no effect.
`rank` ranks the algorithms accordingly.
"""

import contextlib
import dataclasses
import decimal
import math
import numbers
import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
import scipy.stats
from jaxtyping import Float, Int

from jbias import errors as caller_errors
from jbias import numerals
from jbias.stats.reading import column_names, score_grid, score_layout

NEEDED = ("algorithm", "dataset", "score")  # Columns of a tidy frame.
_DIGITS = 1e-12  # Relative error of sums of float64 numbers.
_ZERO_DIGITS = 1e-15  # Relative error of a float64 difference that should be 0.
_SINGLE_DIGITS = 2e-7  # Relative error of float32 numbers.
_SINGLE_ROUNDING = 2.0**-24  # Relative rounding error of one float32 number.
_LARGE = 2.0**960  # Sums of larger scores, about 1e289, could overflow.
_LARGEST_SQUARED = 1e75  # Fourth powers of larger scores, of variances, overflow.
_OUTLYING = 1000  # Scores this many times the usual size do not count for the span.
_MAX_LISTED = 5  # Cells that a message lists.
_ROLES = ("algorithm", "dataset", "run", "score")  # Of axes, levels and columns.
# Names of columns that number the rows.
_NUMBERING_NAME = re.compile(r"([a-z]+_)*id|index|unnamed:.*", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, eq=False)
class Scores:
    """Scores of k algorithms on n data sets, without missing cells.

    A run is one model, measured on every data set. Algorithms may have different numbers of
    runs: `values[:, j, counts[j]:]` is NaN. `run_names` has the names of each algorithm's
    runs, in order; runs of an array are named by their index on the third axis. `run_names` is ()
    if runs have no names.
    """

    values: Float[np.ndarray, "n k r"]
    datasets: tuple[str, ...]
    algorithms: tuple[str, ...]
    run_names: tuple[tuple[str, ...], ...] = ()

    @property
    def counts(self) -> Int[np.ndarray, "k"]:
        """Number of runs of each algorithm, (k,)."""
        return np.isfinite(self.values[0]).sum(axis=1)

    @property
    def means(self) -> Float[np.ndarray, "n k"]:
        """Means over runs, (n, k)."""
        # Scaled by a power of two, which is exact, so that no sum overflows.
        scale = np.where(self.sizes > _LARGE, 2.0**-64, 1.0)
        return np.nanmean(self.values * scale[:, :, None], axis=2) / scale

    @property
    def sizes(self) -> Float[np.ndarray, "n k"]:
        """Largest absolute score among the runs of each cell, (n, k)."""
        return np.nanmax(np.abs(self.values), axis=2)

    @property
    def stds(self) -> Float[np.ndarray, "n k"]:
        """Standard deviations over runs (n - 1 in the denominator), (n, k); NaN for one run.

        Raise ValueError for scores whose squares overflow.
        """
        require_squares(self)
        counts = self.counts
        spread = np.nansum((self.values - self.means[:, :, None]) ** 2, axis=2)
        return np.sqrt(spread / np.where(counts > 1, counts - 1, math.nan))

    def runs(self, algorithm: str) -> Float[np.ndarray, "n r"]:
        """Return the scores of one algorithm, with a row per data set and a column per run.

        algorithm: name. Raise ValueError for an unknown name.
        """
        j = find_name(algorithm, self.algorithms, "algorithm")
        return self.values[:, j, : self.counts[j]]

    def only(
        self, *, datasets: Sequence[str] = (), algorithms: Sequence[str] = ()
    ) -> "Scores":
        """Return the table of the data sets and algorithms with these names, in this order.

        An empty argument selects all. Raise ValueError for an unknown name.
        """
        rows = [
            find_name(name, self.datasets, "dataset")
            for name in datasets or self.datasets
        ]
        columns = [
            find_name(name, self.algorithms, "algorithm")
            for name in algorithms or self.algorithms
        ]
        return Scores(
            values=self.values[rows][:, columns],
            datasets=tuple(self.datasets[i] for i in rows),
            algorithms=tuple(self.algorithms[j] for j in columns),
            run_names=tuple(self.run_names[j] for j in columns if self.run_names),
        )


# Inputs of `read`. The second one has several runs.
Table = Float[np.ndarray, "n k *r"] | pd.DataFrame | Scores
TableOfRuns = Float[np.ndarray, "n k r"] | pd.DataFrame | pd.Series | Scores


def read(
    scores: Table | pd.Series, *, axis: int = 1, least_datasets: int = 2
) -> Scores:
    """Return the scores as a table of names and finite numbers; `Scores` are returned unchanged.

    scores: one of
      - a matrix (data sets, algorithms), or an array (data sets, algorithms, runs);
      - a matrix as a frame with names;
      - a tidy frame with the columns algorithm, dataset, score and, if there are several, run;
      - a frame or series with index levels of these names, such as rows (algorithm, run) and
        columns of data sets;
      - another frame with columns of text, which is read as `jbias.read_scores` reads a file;
      - a table of polars, pyarrow or xarray.
    Rows and columns of arrays are named "0", "1", ... Masked, None, NA and NaN cells are missing.
    axis: axis of the algorithms in a matrix or array: 1 if they are columns, 0 if rows.
    least_datasets: smallest number of data sets; 1 for tests within a data set.
    Raise ValueError for missing, duplicate and infinite cells, values that are not numbers,
    fewer than `least_datasets` data sets, fewer than 2 algorithms, runs that did not finish, and a
    table whose names do not identify the axis of the algorithms. Algorithms may have different
    numbers of runs, but a run must have a score on every data set; `drop_incomplete` removes data
    sets, algorithms or runs with missing scores.
    """
    if isinstance(scores, Scores):
        n, k = len(scores.datasets), len(scores.algorithms)
        _check_size(n, k, least_datasets)
        return scores
    caller_errors.check(
        axis in (0, 1), "axis", "be 0 or 1, the axis of algorithms", axis
    )
    if hasattr(scores, "to_pandas") and not hasattr(scores, "dims"):
        scores = scores.to_pandas()  # A frame of polars or pyarrow.
    if hasattr(scores, "dims") and hasattr(scores, "to_series"):
        scores = scores.to_series()  # xarray's: its dimensions become index levels.
    if isinstance(scores, pd.Series):
        scores = scores.to_frame("score")
    if isinstance(scores, pd.DataFrame):
        return _read_frame(scores, axis, least_datasets)
    return _read_array(scores, axis, least_datasets)


def _read_frame(frame: pd.DataFrame, axis: int, least_datasets: int) -> Scores:
    """Return the scores of a tidy frame, of a matrix with names, or of another frame.

    Names become text. Other frames are read by `score_layout.arrange`. Raise ValueError as `read`
    does. axis, least_datasets: see `read`.
    """
    tidy = frame if set(NEEDED) <= set(frame.columns) else _tidy_of_levels(frame)
    if tidy is None and not _is_matrix(frame):
        reading = score_layout.arrange(score_grid.of_frame(frame))
        if reading.unfinished:
            raise ValueError(
                f"scores: must be of runs that finished, got {reading.unfinished}; leave "
                "these out, as jbias.read_scores(frame) does"
            )
        tidy = reading.tidy
    if tidy is not None:
        values, datasets, algorithms = _cells(tidy)
        _refuse_empty_runs(tidy)
        return _checked(
            values,
            datasets,
            algorithms,
            least_datasets=least_datasets,
            run_names=_run_names_by_algorithm(tidy, algorithms),
        )
    frame = frame.set_axis(_single_level(frame.index), axis=0)
    frame = frame.set_axis(_single_level(frame.columns), axis=1)
    values = _matrix_values(frame, axis)
    _check_names([*frame.index], [*frame.columns])
    frame = frame if axis == 1 else frame.T
    if not (frame.index.is_unique and frame.columns.is_unique):
        raise ValueError(
            "scores: names must occur once in a matrix; rename them, or name the runs in "
            "an index level `run` next to `algorithm`"
        )
    values = np.moveaxis(values, axis, 1)[:, :, None]
    return _checked(
        values,
        tuple(map(str, frame.index)),
        tuple(map(str, frame)),
        least_datasets=least_datasets,
    )


def _is_matrix(frame: pd.DataFrame) -> bool:
    """Return True if a frame has no column of names, so that all columns should be numbers.

    A column of names has only texts that are not all numbers (`_is_text`). Also False for a frame
    with a column called run, seed or the like if its index is named, such as algorithm, and the
    axis of its columns has no name.
    """
    if any(map(_is_text, (frame[name] for name in frame))):
        return False
    is_named = axis_meaning(frame.index.name) != "" and frame.columns.name is None
    return not (is_named and "run" in map(axis_meaning, frame.columns))


def _is_text(values: pd.Series | pd.DataFrame) -> bool:
    """Return True if values are all texts or missing, and some texts do not begin like numbers.

    False for a frame, which pandas returns for several columns of one name.
    """
    if isinstance(values, pd.DataFrame) or values.dtype.kind in "iufbcmM":
        return False
    texts = [x for x in values if not (x is None or x is pd.NA or isinstance(x, float))]
    texts += [x for x in values if isinstance(x, float) and not math.isnan(x)]
    is_text = bool(texts) and all(isinstance(text, str) for text in texts)
    return is_text and not all(re.match(r"\s*[+-]?[.,]?[0-9]", text) for text in texts)


def _single_level(index: pd.Index) -> pd.Index:
    """Return a MultiIndex with one level as a plain index; any other index unchanged."""
    return index.get_level_values(0) if index.nlevels == 1 else index


def _check_names(*axes: Sequence[Any]) -> None:
    """Raise ValueError for a missing name, and for two equal names on one axis.

    axes: the names on each axis. Names are compared as text without spaces around them; missing are
    "", None, nan, NaT and <NA>.
    """
    for names in axes:
        known = set()
        for name in names:
            word = str(name).strip()
            if word in ("", "None", "nan", "NaT", "<NA>"):
                raise ValueError(
                    f"scores: every data set and algorithm must be named, got {name!r}"
                )
            if word in known:
                raise ValueError(
                    f"scores: names must occur once in a matrix, got {word!r} twice; rename "
                    "one, or name the runs in an index level `run` next to `algorithm`"
                )
            known.add(word)


def _refuse_empty_runs(tidy: pd.DataFrame) -> None:
    """Raise ValueError for a run without any score if its algorithm has other runs."""
    present = pd.Series(~np.isnan(floats(tidy["score"])))
    names = [tidy["algorithm"].astype(str).to_numpy(), np.array(_run_names(tidy))]
    has_scores = present.groupby(names).any()
    for (algorithm, run), has_any in has_scores.items():
        if not has_any and has_scores[algorithm].any():
            raise ValueError(
                f"scores: run {run!r} of {algorithm} has no score on any data set; leave "
                "the run out"
            )


def _read_array(scores: Any, axis: int, least_datasets: int) -> Scores:
    """Return the scores of an array or of nested lists; names are the indices "0", "1", ...

    axis, least_datasets: see `read`. Raise ValueError as `read` does, and unless there are two or
    three axes.
    """
    values = floats(scores)
    expected = (
        "a matrix (data sets, algorithms) or an array (data sets, algorithms, runs)"
    )
    shape = caller_errors.Words(f"shape {values.shape}")
    remedy = "give one row a data set"
    must = f"be {expected}"
    caller_errors.check(values.ndim in (2, 3), "scores", must, shape, remedy)
    values = np.moveaxis(values, axis, 1)
    values = values[:, :, None] if values.ndim == 2 else values
    caller_errors.check(values.shape[2] > 0, "scores", must, shape, remedy)
    datasets, algorithms = (tuple(map(str, range(n))) for n in values.shape[:2])
    return _checked(values, datasets, algorithms, least_datasets=least_datasets)


def _tidy_of_levels(frame: pd.DataFrame) -> pd.DataFrame | None:
    """Return a frame with named index levels as a tidy frame; None for a matrix.

    Each level must be called algorithm, dataset or run, or by a synonym; a single level
    without a name is taken as algorithm or dataset, if only one of them is missing. Other
    levels with a single value, such as "score" of a pivoted frame, are dropped. A tidy frame
    may have some of its columns as index levels.
    Raise ValueError if the names do not identify the levels of the algorithms and data sets.
    """
    if _is_tidy_with_levels(frame):
        columns = {name: axis_meaning(name) or name for name in frame.columns}
        levels = {name: axis_meaning(name) for name in frame.index.names}
        return frame.rename_axis(index=levels).reset_index().rename(columns=columns)
    num_levels = frame.index.nlevels + frame.columns.nlevels
    frame = _without_constant_levels(frame)
    level_names = [*frame.index.names, *frame.columns.names]
    meanings = [axis_meaning(name) for name in level_names]
    columns = [axis_meaning(name) for name in frame.columns]
    is_column_of_scores = len(frame.columns) == 1 and columns == ["score"]
    if is_column_of_scores:  # All names are in the rows' index.
        level_names, meanings = level_names[:-1], meanings[:-1]
    elif num_levels == 2 and "run" not in meanings:
        return None
    share_axis = any(
        {"run", "algorithm"} <= set(map(axis_meaning, axis.names))
        for axis in (frame.index, frame.columns)
    )
    missing = [name for name in ("algorithm", "dataset") if name not in meanings]
    if meanings.count("") == len(missing) == 1:
        unnamed = meanings.index("")
        if level_names[unnamed] is None:
            meanings[unnamed] = missing[0]
            missing = []
    known = [name for name in meanings if name]
    if missing or len(set(known)) < len(known) or "score" in known or "" in meanings:
        shown = ", ".join("(no name)" if x is None else repr(x) for x in level_names)
        raise ValueError(
            "scores: a frame with several index levels must call them algorithm, dataset "
            f"and run, each once, got {shown}; name them by frame.rename_axis(index=[...], "
            "columns=[...])"
        )
    if is_column_of_scores:
        tidy = frame.set_axis(pd.MultiIndex.from_arrays(_level_values(frame.index)))
        tidy = (
            tidy.set_axis(["score"], axis=1).rename_axis(index=meanings).reset_index()
        )
        return tidy
    rows, cells = len(frame.index), len(frame.columns)
    arrays = [np.repeat(np.asarray(x), cells) for x in _level_values(frame.index)]
    arrays += [np.tile(np.asarray(x), rows) for x in _level_values(frame.columns)]
    tidy = pd.DataFrame(dict(zip(meanings, arrays, strict=True)))
    scores = floats(frame).ravel()
    tidy = tidy.assign(score=scores)
    if share_axis or "run" not in tidy:
        return tidy
    return _without_empty_runs(tidy)


def _is_tidy_with_levels(frame: pd.DataFrame) -> bool:
    """Return True if index levels and columns together are exactly the columns of a tidy frame.

    The columns are algorithm, dataset, score and perhaps run, each once. Index levels, and columns
    of scores and runs, may have synonyms of these names. The frame must have several columns, under
    a single header line without a name.
    """
    if frame.columns.nlevels > 1 or frame.columns.name is not None:
        return False
    meanings = [axis_meaning(name) for name in frame.index.names]
    for name in frame.columns:
        is_synonym = axis_meaning(name) in ("run", "score")
        meanings.append(axis_meaning(name) if is_synonym else str(name))
    expected = [sorted(NEEDED), sorted([*NEEDED, "run"])]
    return len(frame.columns) > 1 and sorted(meanings) in expected


def _without_constant_levels(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame without index levels that have a single value and no role except score.

    At least one level of each axis stays. Frames without levels for both algorithms and data sets
    are unchanged.
    """
    names = [*frame.index.names, *frame.columns.names]
    if not {"algorithm", "dataset"} <= set(map(axis_meaning, names)):
        return frame
    for axis in (0, 1):
        index = frame.axes[axis]
        constant = [
            level
            for level, name in enumerate(index.names)
            if axis_meaning(name) in ("", "score")
            and index.get_level_values(level).nunique(dropna=False) == 1
        ]
        if constant and len(constant) < index.nlevels:
            frame = frame.droplevel(constant, axis=axis)
    return frame


def _without_empty_runs(tidy: pd.DataFrame) -> pd.DataFrame:
    """Return a tidy frame without runs that have no score, if the algorithm has other runs.

    In a table with a row per run, an algorithm with fewer runs than others has empty runs.
    """
    has_score = pd.Series(~np.isnan(floats(tidy["score"])), index=tidy.index)
    has_run = has_score.groupby(
        [tidy["algorithm"], tidy["run"]], dropna=False
    ).transform("any")
    has_any = has_score.groupby(tidy["algorithm"], dropna=False).transform("any")
    return tidy[has_run | ~has_any].reset_index(drop=True)


def _level_values(index: pd.Index) -> list[pd.Index]:
    """Return the values of each level of an index."""
    return [index.get_level_values(level) for level in range(index.nlevels)]


def rank(scores: Table, *, larger_is_better: bool) -> Float[np.ndarray, "n k"]:
    """Return the ranks of the algorithms on every data set: 1 is the best.

    scores: any input of `read`; several runs are averaged first. Means that differ only by
    rounding tie, and tied algorithms have their mean rank.
    """
    table = read(scores)
    levels = near_levels(table.means, mean_errors(table))
    return scipy.stats.rankdata(-levels if larger_is_better else levels, axis=1)


def near_levels(
    values: Float[np.ndarray, "*m n"], errors: float | Float[np.ndarray, "..."]
) -> Int[np.ndarray, "*m n"]:
    """Return the dense rank (level) of each value along the last axis: 0, 1, ..., equal for ties.

    errors: rounding error of each value (broadcast to `values`). Neighbours tie if they
    differ by no more than the larger of their two errors. Ranks of the levels are ranks of
    the values with their ties. Rounding the values instead would separate neighbours on the two
    sides of a rounding boundary.
    """
    order = np.argsort(values, axis=-1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=-1)
    errors = np.take_along_axis(np.broadcast_to(errors, values.shape), order, axis=-1)
    larger = np.maximum(errors[..., 1:], errors[..., :-1])
    # Halved, as the difference of two huge values may overflow.
    is_step = ordered[..., 1:] / 2 - ordered[..., :-1] / 2 > larger / 2
    levels = np.zeros(values.shape, dtype=np.int64)
    ordered_levels = np.concatenate(
        [levels[..., :1], np.cumsum(is_step, axis=-1)], axis=-1
    )
    np.put_along_axis(levels, order, ordered_levels, axis=-1)
    return levels


def mean_errors(scores: Scores) -> Float[np.ndarray, "n k"]:
    """Return the rounding error of the mean of each cell, for ranks on a data set.

    The error is 1e-12 of the largest score of the cell's own runs; two cells tie within the
    larger of their two errors, independent of other cells. A cell that is tiny compared with
    the largest score of its data set, as 0.1 + 0.2 - 0.3 is compared with 0.5, may be a zero
    with a rounding error: its error is 1e-15 of that largest score. Scores below 1e-18 of the
    largest score are smaller than rounding errors, so they are true scores. If the largest
    score of a data set exceeds the median of the data sets' largest scores, the median is
    used instead: otherwise a run that diverged on a few data sets would turn scores into zeros.
    Several runs stored in float32 (`_are_single`) have two float32 rounding errors, one for
    each mean.
    """
    errors = _DIGITS * scores.sizes
    if scores.values.shape[2] > 1 and _are_single(scores.values):
        errors = np.maximum(errors, 2 * _SINGLE_ROUNDING * scores.sizes)
    largest = scores.sizes.max(axis=1, keepdims=True)
    if not largest.any():
        return errors
    usual = np.quantile(largest[largest > 0], 0.5, method="lower")
    zero_errors = _ZERO_DIGITS * np.minimum(largest, usual)
    is_zero = (scores.sizes <= zero_errors) & (scores.sizes >= zero_errors / 1000)
    return np.where(is_zero, zero_errors, errors)


def rounding_errors(scores: Scores) -> Float[np.ndarray, "n k"]:
    """Return the rounding error of differences of means, for each cell.

    `score_errors` with the size of the cell's own runs, not of their mean, which may be 0
    if runs cancel. The error of a difference is the larger one of its two cells.
    Scores stored in float32 (`_are_single`) have four float32 rounding errors, 2.4e-7 of the
    cell's size: two differences of two scores each. Where all scores are close together, such
    as 70.1 to 70.6, the span is too small to cover these errors. Scores in float64 have no such
    error, so different scores do not tie.
    """
    span = robust_span(scores.means.ravel())
    errors = np.maximum(score_errors(scores.sizes, span), mean_errors(scores))
    if _are_single(scores.values):
        errors = np.maximum(errors, 4 * _SINGLE_ROUNDING * scores.sizes)
    return errors


def _are_single(values: Float[np.ndarray, "n k r"]) -> bool:
    """Return True if scores were rounded to float32.

    True if each score is a float32 number and some scores use all digits of float32. Halves, whole
    numbers and shares of 1,024 images are float32 numbers, too, but without rounding.
    """
    values = values[np.isfinite(values)]
    with np.errstate(over="ignore", under="ignore"):
        single = values.astype(np.float32)
    if (single != values).any() or (np.rint(values) == values).all():
        return False
    mantissas = np.frexp(single)[0].astype(np.float64) * 2.0**24
    return bool((mantissas % 4 != 0).any())


def shrink_table(scores: Scores) -> Scores:
    """Return the table divided by a power of two if differences of scores could overflow.

    Order, ties and signs of differences do not change.
    """
    if np.nanmax(np.abs(scores.values)) <= _LARGE:
        return scores
    return dataclasses.replace(scores, values=scores.values * 2.0**-64)


def robust_span(scores: Float[np.ndarray, "m"]) -> float:
    """Return the range (largest less smallest) of the scores without outliers.

    Outliers are further from the median than a thousand times its size, or a thousand times
    the interquartile range if that is larger. If the median and the interquartile range are 0,
    return the largest absolute score. Huge scores, and their range, are divided as in
    `shrink_huge`.
    """
    low, middle, high = np.quantile(shrink_huge(scores), [0.25, 0.5, 0.75])
    usual = max(abs(float(middle)), float(high - low))
    if not usual:
        return float(np.abs(scores).max())
    scores = shrink_huge(scores)
    inside = scores[np.abs(scores - middle) <= _OUTLYING * usual]
    return float(np.ptp(inside)) if inside.size else usual


def score_errors(
    sizes: Float[np.ndarray, "..."], span: float | Float[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    """Return the rounding error of a difference of two scores, in float32 or float64.

    sizes: the larger absolute value of the two scores. span: range of the scores
    (`robust_span`), which is smaller than their sizes if scores have a large common part.
    The error is 2e-7 of the smaller of sizes and span, and at least 1e-12 of `sizes`. This error
    covers float32 scores whose range is about their size; `rounding_errors` handles float32
    scores that are closer together. Scores of 50,000 images, averaged over 50 runs, differ
    by more than this error.
    """
    return np.maximum(_DIGITS * sizes, _SINGLE_DIGITS * np.minimum(sizes, span))


def check_tolerance(
    tolerance: float | None, scores: Float[np.ndarray, "n k"]
) -> float | None:
    """Return the tolerance; raise ValueError if it is negative or too large for the scores.

    tolerance: largest difference of scores that tie, in their unit; None is valid. Too large:
    above a thousandth of the range of the scores, so that different scores would tie.
    """
    if tolerance is None:
        return None
    spread = float(scores.max() / 2 - scores.min() / 2) * 2
    caller_errors.check(
        0 <= tolerance and not 0 < spread < 1000 * tolerance,
        "tolerance",
        "be from 0 to a thousandth of the range of the scores",
        caller_errors.Words(f"{tolerance} for a range of {spread:.3g}"),
        "scale the scores or give a smaller tolerance",
    )
    return tolerance


def shrink_huge(values: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Return the values divided by a power of two if their differences could overflow.

    Order, ties and signs of differences do not change.
    """
    return values * 2.0**-64 if np.abs(values).max(initial=0) > _LARGE else values


def require_squares(table: Scores) -> None:
    """Raise ValueError, naming a cell, for |scores| above 1e75, whose fourth powers overflow."""
    too_large = np.argwhere(np.nan_to_num(np.abs(table.values)) > _LARGEST_SQUARED)
    if len(too_large):
        cells = _describe_cells(too_large, table.datasets, table.algorithms)
        more = f" and {len(cells) - 1} more" if len(cells) > 1 else ""
        raise ValueError(
            f"scores: must be below {_LARGEST_SQUARED:g} in size for means and deviations, "
            f"got {table.values[tuple(too_large[0])]:g} for {cells[0]}{more}; a run that "
            "diverged has no score: leave it out"
        )


def drop_incomplete(
    frame: pd.DataFrame, *, drop: Literal["datasets", "algorithms", "runs"]
) -> pd.DataFrame:
    """Return a tidy frame without the data sets, algorithms or runs that have missing scores.

    frame: with the columns algorithm, dataset, score and perhaps run. drop: which of the
    three to remove. Raise ValueError for other frames, cells that occur twice, and an unknown
    `drop`.
    """
    values, datasets, algorithms = _cells(frame)
    find_name(drop, ("datasets", "algorithms", "runs"), "drop")
    cells = _missing(values)
    algorithm = frame["algorithm"].astype(str)
    if drop == "datasets":
        keys = frame["dataset"].astype(str)
        incomplete = {datasets[i] for i, _, _ in cells}
    elif drop == "algorithms":
        keys = algorithm
        incomplete = {algorithms[j] for _, j, _ in cells}
    else:
        runs = _run_numbers(algorithm, pd.Series(_run_names(frame)))
        keys = list(zip(algorithm, runs.tolist(), strict=True))
        incomplete = {(algorithms[j], int(r)) for _, j, r in cells}
    return frame[[key not in incomplete for key in keys]]


def missing_cells(frame: pd.DataFrame) -> list[str]:
    """Return names, such as "ERM on Edge", of the cells without a score in a tidy frame.

    Cells of runs without any score are left out, unless the algorithm has no other run.
    """
    values, datasets, algorithms = _cells(frame)
    return _describe_cells(_missing(values), datasets, algorithms)


def find_name(name: str, names: Sequence[str], role: str) -> int:
    """Return the index of a name in `names`; raise ValueError if the name is not in `names`.

    role: noun for the name in the message, such as "algorithm".
    """
    caller_errors.check_choice(role, name, names)
    return names.index(name)


def _suggest_renames(columns: Sequence) -> str:
    """Return advice for a message, such as "; rename method to algorithm", or ""."""
    renames = []
    for column in columns:
        role = axis_meaning(column)
        if role in NEEDED and role not in columns:
            renames.append(f"{column} to {role}")
    return f"; rename {', '.join(renames)}" if renames else ""


def axis_meaning(name: Any) -> str:
    """Return algorithm, dataset, run or score for the name of an axis; "" for other names."""
    role = "" if name is None else column_names.meaning(name)
    return role if role in _ROLES else ""


def _matrix_values(frame: pd.DataFrame, axis: int) -> Float[np.ndarray, "rows columns"]:
    """Return the numbers of a matrix, in the orientation of the frame.

    axis: axis of the algorithms, see `read`. Raise ValueError for a tidy frame with unknown
    names, for a row or column that numbers the other axis (`_refuse_numbering`), and for a matrix
    whose axes have names that contradict `axis`.
    """
    columns = list(frame.columns)
    is_tidy = len(set(NEEDED).intersection(columns)) > 1
    try:
        values = floats(frame)
    except ValueError:
        if not is_tidy and not set(map(axis_meaning, columns)) & set(_ROLES):
            raise
        is_tidy = True
    if is_tidy or set(map(axis_meaning, columns)) >= set(NEEDED):
        raise _untidy(frame)
    for labels, rows in ((frame.index, values), (frame.columns, values.T)):
        if labels.name is None:
            _refuse_numbering(labels, rows)
    algorithm_name, dataset_name = frame.axes[axis].name, frame.axes[1 - axis].name
    is_swapped = (
        axis_meaning(algorithm_name) == "dataset"
        or axis_meaning(dataset_name) == "algorithm"
    )
    if is_swapped:
        axes = ("rows", "columns") if axis == 0 else ("columns", "rows")
        raise ValueError(
            f"scores: with axis={axis} the {axes[0]} must be algorithms and the {axes[1]} "
            f"data sets, got {axes[0]} named {algorithm_name!r} and {axes[1]} named "
            f"{dataset_name!r}; give jbias.stats.score_table.read(scores, axis={1 - axis}), "
            "or correct the names"
        )
    return values


def _refuse_numbering(labels: pd.Index, rows: Float[np.ndarray, "m n"]) -> None:
    """Raise ValueError for a row that numbers the columns instead of having scores.

    labels: name of each row. Such a row has the name of an index, of algorithms, data sets or runs
    (except "data"). Its values are 0, 1, 2 ... or 1, 2, 3 ... in any order and possibly repeated
    (`_counts_up`), or are probably not scores (`_is_numbering`). The name alone is not enough,
    because a data set may be called ID; for ID next to a name with OOD, only `_counts_up` applies.
    The caller transposes the matrix to check its columns.
    """
    has_ood = any("ood" in _words(label) for label in labels)
    for i, label in enumerate(labels):
        if not isinstance(label, str) or label == "data":
            continue
        is_bookkeeping = axis_meaning(label) in ("algorithm", "dataset", "run")
        if not is_bookkeeping and not _NUMBERING_NAME.fullmatch(label):
            continue
        is_set = has_ood and "id" in _words(label)
        other_rows = np.delete(rows, i, axis=0)
        if _counts_up(rows[i]) or not is_set and _is_numbering(rows[i], other_rows):
            raise ValueError(
                f"scores: a matrix must contain only scores, got a row or column {label!r} "
                "of whole numbers; make the frame tidy, put it into the index under that "
                "name, or rename it if it contains scores"
            )


def _counts_up(values: Float[np.ndarray, "n"]) -> bool:
    """Return True if values are 0, 1, 2 ... or 1, 2, 3 ..., in any order and repeated."""
    distinct = np.unique(values)  # NaN, if any, is the last value.
    return np.array_equal(distinct - distinct[0], np.arange(len(distinct))) and (
        distinct[0] in (0, 1)
    )


def _is_numbering(
    values: Float[np.ndarray, "n"], other_rows: Float[np.ndarray, "m n"]
) -> bool:
    """Return True if values are whole numbers that probably are not scores.

    The values are distinct, or the other rows have numbers that are not whole.
    """
    if not (np.rint(values) == values).all():
        return False
    is_fraction = np.rint(other_rows) != other_rows
    has_fractions = is_fraction[np.isfinite(other_rows)].any()
    return bool(len(np.unique(values)) == len(values) or has_fractions)


def _words(name: Any) -> list[str]:
    """Return the words of a name in lower case: "Near-OOD" is ["near", "ood"]."""
    return re.split(r"[\W_]+", str(name).lower())


def _untidy(frame: pd.DataFrame) -> ValueError:
    """Return the error for a frame that is neither tidy nor a matrix."""
    columns = list(frame.columns)
    remedy = _suggest_renames(columns)
    return ValueError(
        f"scores: a tidy frame must have the columns {', '.join(NEEDED)}, and a matrix "
        f"only numbers, got the columns {', '.join(map(str, columns[:9]))}"
        f"{remedy or '; name the data sets in the index, if it is a matrix'}"
    )


def _run_names(frame: pd.DataFrame) -> list[str]:
    """Return the name of each row's run: from the column run, else from seed, fold and so on.

    "" if there is no such column; several columns are joined by "/".
    """
    columns = [name for name in frame.columns if axis_meaning(name) == "run"]
    columns = ["run"] if "run" in columns else columns
    if not columns:
        return [""] * len(frame)
    runs = frame[columns]
    if runs.shape[1] == 1:
        return [*map(str, runs.iloc[:, 0].tolist())]
    return ["/".join(map(str, row)) for row in runs.itertuples(index=False)]


def _run_names_by_algorithm(
    frame: pd.DataFrame, algorithms: Sequence[str]
) -> list[list[str]]:
    """Return the names of the runs of each of `algorithms`, in the order of `_run_numbers`.

    frame: a tidy frame.
    """
    named = pd.DataFrame({"run": _run_names(frame)})
    named = named.assign(algorithm=frame["algorithm"].astype(str).to_numpy())
    named = named.assign(number=_run_numbers(named["algorithm"], named["run"]))
    runs = named.drop_duplicates(["algorithm", "number"]).sort_values("number")
    by_algorithm = runs.groupby("algorithm", sort=False)["run"].agg(list)
    return [by_algorithm[algorithm] for algorithm in algorithms]


def _cells(frame: pd.DataFrame) -> tuple[np.ndarray, tuple[str, ...], tuple[str, ...]]:
    """Return the cells (n, k, runs) of a tidy frame, its data sets and its algorithms.

    Missing cells are NaN; names are in the order of their first rows. Raise ValueError for a
    frame that is not tidy, a row without a name, and a cell that occurs twice.
    """
    if not set(NEEDED) <= set(frame.columns):
        raise _untidy(frame)
    for name in ("algorithm", "dataset"):
        if frame[name].isna().any():
            raise ValueError(f"scores: {name} must be named in every row; fill it in")
    named = frame[["algorithm", "dataset"]].astype(str).reset_index(drop=True)
    named = named.assign(run=_run_names(frame), score=floats(frame["score"]))
    keys = ["algorithm", "dataset", "run"]
    doubled = named[named.duplicated(keys, keep=False)]
    if len(doubled):
        example = ", ".join(map(str, doubled[keys].iloc[0]))
        raise ValueError(
            f"scores: a cell must occur once, got {len(doubled)} rows with repeated cells, "
            f"such as {example}; remove one or tell them apart in a column run"
        )
    rows, datasets = pd.factorize(named["dataset"])
    columns, algorithms = pd.factorize(named["algorithm"])
    layers = _run_numbers(named["algorithm"], named["run"])
    shape = len(datasets), len(algorithms), layers.max(initial=-1) + 1
    values = np.full(shape, math.nan)
    values[rows, columns, layers] = named["score"]
    return values, tuple(datasets), tuple(algorithms)


def _run_numbers(algorithms: pd.Series, runs: pd.Series) -> Int[np.ndarray, "rows"]:
    """Return the index of each row's run among the runs of its algorithm.

    algorithms, runs: name of the algorithm and of the run of each row.

    Runs of all algorithms are in the order in which their names first appear in the table,
    so runs of the same name have the same number if all algorithms have the same runs.
    """
    appearance = pd.Series(pd.factorize(runs, use_na_sentinel=False)[0])
    numbers = appearance.groupby(algorithms.to_numpy()).rank(method="dense")
    return numbers.to_numpy(np.int64) - 1


def floats(scores: Any) -> np.ndarray:
    """Return scores, any array or nested list, as float64; NaN where masked, None or NA.

    Raise ValueError for values that are not real numbers: text other than plain decimal
    numbers, booleans, complex numbers, times.
    """
    if isinstance(scores, list | tuple):
        if any(map(np.ma.isMaskedArray, scores)):
            scores = np.ma.stack(scores)
        elif not any(isinstance(row, np.ndarray) for row in scores):
            # numpy would turn numbers next to text into text, and booleans into numbers.
            with contextlib.suppress(ValueError):  # Rows of unequal length fail below.
                scores = np.array(scores, dtype=object)
    if isinstance(scores, np.ma.MaskedArray):
        scores = np.ma.filled(scores.astype(np.float64), np.nan)
    try:
        values = np.asarray(scores)
    except ValueError as error:  # Rows of unequal length.
        raise ValueError(
            f"scores: a score must be a real number: {error}; rows must be of one length"
        ) from error
    if values.dtype.kind in "mM":
        raise ValueError(f"scores: a score must be a real number, got {values.dtype}")
    if values.dtype.kind in "iuf":
        # Long doubles that overflow become infinite, which `read` refuses.
        with np.errstate(over="ignore"):
            return values.astype(np.float64)
    converted = [_float(x) for x in values.astype(object).ravel()]
    return np.array(converted, dtype=np.float64).reshape(values.shape)


def _float(value: Any) -> float:
    """Return one score as a float; NaN for None and NA, inf for a number that is too large.

    Scalars of JAX, NumPy, PyTorch and the like are converted by their `item`. Raise ValueError for
    booleans, times, complex numbers, and text that is not a plain decimal number.
    """
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        is_time = (
            isinstance(value, np.generic | np.ndarray) and value.dtype.kind in "mM"
        )
        value = value if is_time else value.item()
    if value is None or value is pd.NA:
        return math.nan
    if isinstance(value, (bool, np.bool_)):
        raise ValueError(  # noqa: TRY004
            f"scores: a score must be a real number, got {value}; convert truth values by "
            ".astype(float), if they are scores"
        )
    if isinstance(value, numbers.Real | decimal.Decimal):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    if isinstance(value, str) and numerals.is_real(value):
        return float(value)
    shown = " ".join(repr(value).split())[:100]
    raise ValueError(f"scores: a score must be a real number, got {shown}; correct it")


def _missing(values: Float[np.ndarray, "n k r"]) -> Int[np.ndarray, "cells 3"]:
    """Return the indices (i, j, run) of cells without a score, in runs that have other scores.

    values: (n, k, runs). For an algorithm without any score, return the cells of its first run.
    """
    has_score = np.isfinite(values)
    is_run = np.any(has_score, axis=0, keepdims=True)
    is_run[:, ~np.any(is_run, axis=2)[0], 0] = True
    return np.argwhere(is_run & ~has_score)


def _describe_cells(
    cells: Int[np.ndarray, "cells 3"],
    datasets: Sequence[str],
    algorithms: Sequence[str],
) -> list[str]:
    """Return the distinct names, such as "ERM on Edge", of cells.

    cells: indices (data set, algorithm, run). datasets, algorithms: all names.
    """
    return list(dict.fromkeys(f"{algorithms[j]} on {datasets[i]}" for i, j, _ in cells))


def _check_size(n: int, k: int, least_datasets: int) -> None:
    """Raise ValueError for fewer than `least_datasets` data sets (n) or 2 algorithms (k)."""
    sets = f"{least_datasets} data set{'' if least_datasets == 1 else 's'}"
    caller_errors.check(
        n >= least_datasets and k >= 2,
        "scores",
        f"hold at least {sets} (rows) and 2 algorithms (columns)",
        caller_errors.Words(f"{n} and {k}"),
        "add scores",
    )


def _checked(
    values: Float[np.ndarray, "n k r"],
    datasets: tuple[str, ...],
    algorithms: tuple[str, ...],
    *,
    least_datasets: int,
    run_names: Sequence[Sequence[str]] | None = None,
) -> Scores:
    """Return the table; raise ValueError if it is too small or a cell lacks a finite score.

    In the table, the runs of each algorithm are moved before the NaN of absent runs.
    least_datasets: smallest number of data sets. run_names: names of each algorithm's runs;
    None: their indices on the axis of runs.
    """
    n, k, r = values.shape
    _check_size(n, k, least_datasets)
    infinite = np.argwhere(np.isinf(values))
    if len(infinite):
        i, j, _ = infinite[0]
        raise ValueError(
            f"scores: must be finite, got {values[tuple(infinite[0])]} for "
            f"{algorithms[j]} on {datasets[i]}; correct or leave it out"
        )
    cells = _describe_cells(_missing(values), datasets, algorithms)
    if cells:
        shown = "; ".join(cells[:_MAX_LISTED])
        if len(cells) > _MAX_LISTED:
            shown += f" and {len(cells) - _MAX_LISTED} more"
        raise ValueError(
            "scores: every run of every algorithm must have a finite number on every data "
            f"set, got none for {shown}; fill the cells or leave data sets, algorithms or "
            "runs out"
        )
    # Move the runs of each algorithm to the front, and the padding behind them.
    order = np.argsort(~np.isfinite(values[0]), axis=1, kind="stable")
    values = np.take_along_axis(values, order[None], axis=2)
    if run_names is None:
        indices = [str(i) for i in range(r)]
        run_names = [indices] * k
    counts = np.isfinite(values[0]).sum(axis=1)
    ordered_names = tuple(
        tuple(names[place] for place in places[:count])
        for names, places, count in zip(run_names, order, counts, strict=True)
    )
    return Scores(
        values=values,
        datasets=datasets,
        algorithms=algorithms,
        run_names=ordered_names,
    )
