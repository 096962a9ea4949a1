"""A table of scores: which run of which algorithm scored what on which data set.

Every test begins here. A table may be a matrix (data sets, algorithms), an array (data
sets, algorithms, runs), a pandas matrix with names, or a tidy frame with the columns
algorithm, dataset, score and, if there are several, run.

Scores that should be equal rarely are, because of rounding. `near_levels`, `rounding_error`
and `check_tolerance` decide what ties, and `rank` ranks the algorithms accordingly.
"""

import dataclasses
import math
import warnings
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
import scipy.stats
from jaxtyping import Float, Int

from jbias import numerals

NEEDED = ("algorithm", "dataset", "score")  # Columns of a tidy frame.
_DIGITS = 1e-12  # Of float64, less what sums lose.
_LISTED = 5  # Cells that a refusal lists.
_ALSO = {  # What others call these.
    "algorithm": ("algorithms", "method", "methods", "model", "models", "algo"),
    "dataset": ("datasets", "data_set", "data_sets", "data", "test_set", "test_sets"),
    "score": ("scores", "value", "accuracy"),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Scores:
    """Scores without missing cells; a run is one model, measured on every data set.

    Algorithms may have different numbers of runs: `values[:, j, counts[j]:]` is NaN.
    """

    values: Float[np.ndarray, "n k r"]
    datasets: tuple[str, ...]
    algorithms: tuple[str, ...]

    @property
    def counts(self) -> np.ndarray:
        """Runs of every algorithm (k,)."""
        return np.isfinite(self.values[0]).sum(axis=1)

    @property
    def means(self) -> Float[np.ndarray, "n k"]:
        """Means over runs."""
        return np.nanmean(self.values, axis=2)

    @property
    def stds(self) -> Float[np.ndarray, "n k"]:
        """Standard deviations over runs (n - 1 in the denominator); NaN for one run."""
        counts = self.counts
        spread = np.nansum((self.values - self.means[:, :, None]) ** 2, axis=2)
        return np.sqrt(spread / np.where(counts > 1, counts - 1, math.nan))

    def runs(self, algorithm: str) -> Float[np.ndarray, "n r"]:
        """Scores of one algorithm, its own runs alone."""
        j = find_name(algorithm, self.algorithms, "algorithm")
        return self.values[:, j, : self.counts[j]]

    def only(
        self, *, datasets: Sequence[str] = (), algorithms: Sequence[str] = ()
    ) -> "Scores":
        """Keeps these data sets and algorithms, in this order; () keeps all."""

        def places(some: Sequence[str], known: Sequence[str], what: str) -> list[int]:
            return [find_name(name, known, what) for name in some or known]

        rows = places(datasets, self.datasets, "dataset")
        columns = places(algorithms, self.algorithms, "algorithm")
        return Scores(
            values=self.values[rows][:, columns],
            datasets=tuple(self.datasets[i] for i in rows),
            algorithms=tuple(self.algorithms[j] for j in columns),
        )


Table = Float[np.ndarray, "n k"] | pd.DataFrame | Scores


def read(scores, *, axis: int = 1) -> Scores:
    """Reads scores in any of the forms above; `Scores` pass as they are.

    `axis` is that of the algorithms in a matrix: 1 if they are columns, 0 if rows.
    Raises ValueError for missing, doubled and not finite cells, for fewer than 2 data sets
    or algorithms, and for a frame whose axes or columns are named otherwise; `drop_incomplete` drops
    explicitly.
    """
    if isinstance(scores, Scores):
        return scores
    check(axis in (0, 1), "axis", "be 0 or 1, the axis of algorithms", axis)
    if isinstance(scores, pd.DataFrame) and set(NEEDED) <= set(scores.columns):
        return _checked(*_cells(scores))
    if isinstance(scores, pd.DataFrame):
        values = _numbers(scores, axis)
        frame = scores if axis == 1 else scores.T
        if not (frame.index.is_unique and frame.columns.is_unique):
            raise ValueError("scores: names must occur once in a matrix; rename them")
        values = np.moveaxis(values, axis, 1)[:, :, None]
        return _checked(values, tuple(map(str, frame.index)), tuple(map(str, frame)))
    values = _floats(scores)
    either = (
        "a matrix (data sets, algorithms) or an array (data sets, algorithms, runs)"
    )
    told = f"shape {values.shape}; give one row a data set"
    check(values.ndim in (2, 3), "scores", f"be {either}", told)
    values = np.moveaxis(values, axis, 1)
    values = values[:, :, None] if values.ndim == 2 else values
    names = [tuple(map(str, range(size))) for size in values.shape[:2]]
    return _checked(values, *names)


def rank(scores: Table, *, larger_is_better: bool) -> Float[np.ndarray, "n k"]:
    """Ranks the algorithms on every data set: 1 is the best, ties share their mean.

    `scores` is what `read` takes; several runs are averaged first, and means that
    differ by rounding alone tie.
    """
    table = read(scores)
    levels = near_levels(table.means, rounding_error(table.values))
    return scipy.stats.rankdata(-levels if larger_is_better else levels, axis=1)


def near_levels(
    values: Float[np.ndarray, "*m n"], tolerance: float | Float[np.ndarray, "*m 1"]
) -> Int[np.ndarray, "*m n"]:
    """Numbers values along the last axis: neighbours within `tolerance` share a number.

    0 is the lowest, and ranks of these numbers are ranks of the values with their ties.
    Rounding would part neighbours at the edge between two rounded values.
    """
    order = np.argsort(values, axis=-1, kind="stable")
    steps = np.diff(np.take_along_axis(values, order, axis=-1), axis=-1) > tolerance
    levels = np.zeros(values.shape, dtype=np.int64)
    climbed = np.concatenate([levels[..., :1], np.cumsum(steps, axis=-1)], axis=-1)
    np.put_along_axis(levels, order, climbed, axis=-1)
    return levels


def check_tolerance(tolerance: float | None, scores: Float[np.ndarray, "n k"]) -> float:
    """Gives the tolerance back; refuses one that would blot out what differs.

    None is 2e-7 of what all scores span, the last digits of float32, and never below those
    of the largest score in float64. Images of 50,000 and 50 runs tell more apart than that.
    """
    spread = float(np.ptp(scores))
    if tolerance is None:
        return max(2e-7 * spread, _DIGITS * float(np.abs(scores).max()))
    fits = 0 <= tolerance and not 0 < spread < 1000 * tolerance
    told = f"{tolerance} for {spread:.3g}; scale the scores or take a smaller one"
    must = "be from 0 to a thousandth of what the scores span"
    check(fits, "tolerance", must, told)
    return tolerance


def rounding_error(values: Float[np.ndarray, "n k r"]) -> Float[np.ndarray, "n 1"]:
    """Gives how close two means of a data set are that differ by rounding alone.

    Of the data set's largest score, for data sets may have different units where only
    scores of one are compared. NaN counts as none.
    """
    return _DIGITS * np.nanmax(np.abs(values), axis=(1, 2))[:, None]


def drop_incomplete(
    frame: pd.DataFrame, *, drop: Literal["datasets", "algorithms", "runs"]
) -> pd.DataFrame:
    """Drops from a tidy frame all data sets, algorithms or runs that miss a cell."""
    values, datasets, algorithms = _cells(frame)
    find_name(drop, ("datasets", "algorithms", "runs"), "drop")
    holes = _missing(values)
    of = frame["algorithm"].astype(str)
    if drop == "datasets":
        keys, bad = frame["dataset"].astype(str), {datasets[i] for i, _, _ in holes}
    elif drop == "algorithms":
        keys, bad = of, {algorithms[j] for _, j, _ in holes}
    else:
        keys = list(zip(of, _run_names(frame), strict=True))
        every = dict.fromkeys(keys)
        known = {a: [key for key in every if key[0] == a] for a in set(of)}
        bad = {known[algorithms[j]][r] for _, j, r in holes}
    return frame[[key not in bad for key in keys]]


def missing_cells(frame: pd.DataFrame) -> list[str]:
    """Names the cells that a tidy frame lacks, such as "ERM on Edge"."""
    values, datasets, algorithms = _cells(frame)
    return _describe_cells(_missing(values), datasets, algorithms)


def check(holds: bool, name: str, must: str, got: object) -> None:
    """Refuses what does not hold, by what it must do and what it is."""
    if not holds:
        raise ValueError(f"{name}: must {must}, got {got}")


def find_name(name: str, names: Sequence[str], what: str) -> int:
    """Gives the place of a name; refuses one that is not there."""
    check(name in names, what, f"be one of {', '.join(names)}", repr(name))
    return names.index(name)


def check_share(name: str, value: float) -> float:
    """Gives back a number between 0 and 1, both excluded; refuses any other."""
    check(0 < value < 1, name, "lie between 0 and 1", value)
    return value


def check_count(name: str, value: int, least: int = 1) -> None:
    """Refuses fewer than `least`."""
    check(value >= least, name, f"be at least {least}", value)


def suggest_renames(columns: Sequence) -> str:
    """Says which columns to rename, so that a frame is tidy: ", rename method to ..."."""
    named = [
        f"{column} to {meant}"
        for column in columns
        if (meant := _meant(column)) and meant not in columns
    ]
    return f"; rename {', '.join(named)}" if named else ""


def _meant(name) -> str:
    word = str(name).lower().replace(" ", "_")
    return next((known for known in NEEDED if word in (known, *_ALSO[known])), "")


def _numbers(frame: pd.DataFrame, axis: int) -> Float[np.ndarray, "rows columns"]:
    """The numbers of a matrix; refuses a tidy frame, and a matrix the other way round."""
    columns = list(frame.columns)
    tidy = len(set(NEEDED).intersection(columns)) > 1
    _check_texts(frame)
    try:
        values = frame.to_numpy(np.float64)
    except (TypeError, ValueError):
        tidy = True
    if tidy or set(map(_meant, columns)) >= set(NEEDED):
        raise _untidy(frame)
    of_algorithms, of_datasets = frame.axes[axis].name, frame.axes[1 - axis].name
    if _meant(of_algorithms) == "dataset" or _meant(of_datasets) == "algorithm":
        lies, other = ("rows", "columns") if axis == 0 else ("columns", "rows")
        raise ValueError(
            f"scores: with axis={axis} the {lies} must be algorithms and the {other} data "
            f"sets, got {lies} named {of_algorithms!r} and {other} named {of_datasets!r}; "
            f"give jbias.stats.score_table.read(scores, axis={1 - axis}), or name them rightly"
        )
    return values


def _untidy(frame: pd.DataFrame) -> ValueError:
    columns = list(frame.columns)
    return ValueError(
        f"scores: a tidy frame must have the columns {', '.join(NEEDED)}, and a matrix "
        f"numbers alone, got the columns {', '.join(map(str, columns[:9]))}"
        f"{suggest_renames(columns) or '; name the data sets in the index, if it is a matrix'}"
    )


def _run_names(frame: pd.DataFrame) -> list[str]:
    if "run" not in frame:
        return [""] * len(frame)
    return frame["run"].astype(str).tolist()


def _cells(frame: pd.DataFrame) -> tuple[np.ndarray, tuple[str, ...], tuple[str, ...]]:
    """Gives the cells of a tidy frame; NaN where there is none, names in their order."""
    if not set(NEEDED) <= set(frame.columns):
        raise _untidy(frame)
    for name in ("algorithm", "dataset"):
        if frame[name].isna().any():
            raise ValueError(f"scores: {name} must be named in every row; fill it in")
    named = frame[["algorithm", "dataset"]].astype(str).reset_index(drop=True)
    named = named.assign(run=_run_names(frame), score=_floats(frame["score"]))
    keys = ["algorithm", "dataset", "run"]
    doubled = named[named.duplicated(keys, keep=False)]
    if len(doubled):
        told = ", ".join(map(str, doubled[keys].iloc[0]))
        raise ValueError(
            f"scores: a cell must occur once, got {len(doubled)} rows that share theirs, "
            f"such as {told}; remove one or tell them apart in a column run"
        )
    rows, datasets = pd.factorize(named["dataset"])
    columns, algorithms = pd.factorize(named["algorithm"])
    layers = np.empty(len(named), int)
    for members in named.groupby("algorithm").indices.values():
        runs = named["run"].iloc[members]
        layers[members] = pd.factorize(runs, use_na_sentinel=False)[0]
    shape = len(datasets), len(algorithms), layers.max(initial=-1) + 1
    values = np.full(shape, math.nan)
    values[rows, columns, layers] = named["score"]
    return values, tuple(datasets), tuple(algorithms)


def _check_texts(scores) -> None:
    """Raise ValueError where a score is text such as "1_000", which NumPy reads as 1000."""
    try:
        values = np.asarray(scores)
    except ValueError:  # Rows of other lengths, which the caller refuses.
        return
    if values.dtype.kind not in "OSU":
        return
    for value in values.ravel().tolist():
        has_digits = isinstance(value, str) and any(map(str.isdigit, value))
        if has_digits and not numerals.is_real(value):
            raise ValueError(f"scores: a score must be a real number, got {value!r}")


def _floats(scores) -> np.ndarray:
    _check_texts(scores)
    with warnings.catch_warnings():
        warnings.simplefilter("error", np.exceptions.ComplexWarning)
        try:
            return np.asarray(scores, dtype=np.float64)
        except (TypeError, ValueError, np.exceptions.ComplexWarning) as error:
            raise ValueError(
                f"scores: a score must be a real number: {error}"
            ) from error


def _missing(values: np.ndarray) -> np.ndarray:
    """Gives the cells (i, j, run) that lack a score, of runs that have one elsewhere."""
    present = np.isfinite(values)
    used = np.any(present, axis=0, keepdims=True)
    used[:, ~np.any(used, axis=2)[0], 0] = True
    return np.argwhere(used & ~present)


def _describe_cells(cells: np.ndarray, datasets, algorithms) -> list[str]:
    return list(dict.fromkeys(f"{algorithms[j]} on {datasets[i]}" for i, j, _ in cells))


def _checked(
    values: np.ndarray, datasets: tuple[str, ...], algorithms: tuple[str, ...]
) -> Scores:
    n, k, _ = values.shape
    must = "hold at least 2 data sets (rows) and 2 algorithms (columns)"
    check(min(n, k) >= 2, "scores", must, f"{n} and {k}; add scores")
    infinite = np.argwhere(np.isinf(values))
    if len(infinite):
        i, j, _ = infinite[0]
        raise ValueError(
            f"scores: must be finite, got {values[tuple(infinite[0])]} for "
            f"{algorithms[j]} on {datasets[i]}; correct or leave it out"
        )
    cells = _describe_cells(_missing(values), datasets, algorithms)
    if cells:
        more = f" and {len(cells) - _LISTED} more" if len(cells) > _LISTED else ""
        raise ValueError(
            "scores: every run of every algorithm must have a finite number on every data "
            f"set, got none for {'; '.join(cells[:_LISTED])}{more}; fill the cells or leave "
            "data sets, algorithms or runs out"
        )
    # The runs of an algorithm come first, so that what pads lies behind them.
    order = np.argsort(~np.isfinite(values[0]), axis=1, kind="stable")
    values = np.take_along_axis(values, order[None], axis=2)
    return Scores(values=values, datasets=datasets, algorithms=algorithms)
