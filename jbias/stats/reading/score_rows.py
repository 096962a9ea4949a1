"""Scores read from a table, one row per score, and the lines that describe them to the user."""

import collections
import dataclasses
import math
import re
from collections.abc import Mapping, Sequence

import pandas as pd

from jbias.stats.reading import score_cells

_LISTED = 20  # Names that a line lists.


class UnclearError(ValueError):
    """An error for a table with more than one reading; the message lists the choices."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One score, with its algorithm, data set and run."""

    algorithm: str
    dataset: str
    run: str  # "" where the table has no runs.
    cell: score_cells.Cell
    place: str  # Name of the cell in messages.
    # True if the algorithm was trained on this kind of data; None: unknown.
    trained_on: bool | None = None


def number_runs(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with runs named "0", "1", ... within each algorithm and data set, in order.

    The rows' own names of runs are replaced.
    """
    counts: collections.Counter = collections.Counter()
    numbered = []
    for row in rows:
        cell = row.algorithm, row.dataset
        numbered.append(dataclasses.replace(row, run=str(counts[cell])))
        counts[cell] += 1
    return numbered


def without_absent_runs(rows: Sequence[Row]) -> list[Row]:
    """Return the rows without the runs that have no score on any data set.

    All rows of an algorithm without any score stay.
    """
    with_score = [row for row in rows if not math.isnan(row.cell.value)]
    present = {(row.algorithm, row.run) for row in with_score}
    algorithms = {row.algorithm for row in with_score}
    return [
        row
        for row in rows
        if row.algorithm not in algorithms or (row.algorithm, row.run) in present
    ]


def has_percent_signs(rows: Sequence[Row]) -> bool:
    """Return True if any score has a percent sign.

    Raise UnclearError if another score has no sign and may be a fraction: 0 < |score| <= 1.
    """
    filled = [row for row in rows if not math.isnan(row.cell.value)]
    with_sign = [row for row in filled if row.cell.is_percent]
    if not with_sign:
        return False
    for row in filled:
        if not row.cell.is_percent and 0 < abs(row.cell.value) <= 1:
            raise UnclearError(
                f"{row.place}: scores must have one unit, got {row.cell.value:g} without a "
                f"percent sign beside {with_sign[0].cell.value:g} % ({with_sign[0].place}); "
                "give all in percent, or none"
            )
    return True


def is_summary(rows: Sequence[Row]) -> bool:
    """Return True if any score is a mean with a spread or an interval."""
    return any(row.cell.is_summary for row in rows)


def to_frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Return a frame with the columns algorithm, dataset, run, score and place.

    The place is the cell's name in messages. If any score is a mean with a spread, the frame also
    has the column deviation, NaN for other scores. If any row has a value of trained_on, the frame
    also has the column trained_on, False for other rows. Missing scores are NaN.
    """
    tidy = pd.DataFrame(
        {
            "algorithm": [row.algorithm for row in rows],
            "dataset": [row.dataset for row in rows],
            "run": [row.run for row in rows],
            "score": [row.cell.value for row in rows],
            "place": [row.place for row in rows],
        }
    )
    if is_summary(rows):
        tidy["deviation"] = [row.cell.spread for row in rows]
    if any(row.trained_on is not None for row in rows):
        tidy["trained_on"] = [bool(row.trained_on) for row in rows]
    return tidy


def describe_shape(tidy: pd.DataFrame, kind: str) -> str:
    """Return a line with the algorithms and data sets of a table, for the user.

    tidy: frame from `to_frame`. kind: start of the line, such as "long table".
    """
    algorithms, datasets = tidy["algorithm"].unique(), tidy["dataset"].unique()
    return (
        f"{kind}: {_count(len(algorithms), 'algorithm')} ({listed(algorithms)}) x "
        f"{_count(len(datasets), 'data set')} ({listed(datasets)})"
    )


def describe_runs(
    tidy: pd.DataFrame, source: str, *, errors: Sequence[str] = ()
) -> str:
    """Return a line on the runs, for the user: their number per algorithm, and `source`.

    With one run per algorithm there are two other lines, without `source`: that scores are means
    over runs that the table does not have (if `tidy` has the column "deviation"), or else that
    `errors` are not used (if there are any).
    tidy: frame from `to_frame`. source: origin of the names of runs, such as "column 'seed'";
    "" if runs have no names. errors: names of columns of standard errors or confidence
    intervals, which are not used.
    """
    counts = tidy.groupby("algorithm")["run"].nunique()
    if "deviation" in tidy and counts.max() == 1:
        return (
            "each score is a mean with its spread over runs that are not here: no tests "
            "over seeds"
        )
    names = listed(errors)
    is_interval = any(
        word in ("ci", "ci95") for word in re.split(r"[\W_]+", names.lower())
    )
    error = f"{'interval' if is_interval else 'standard error'} beside it ({names})"
    if errors and counts.max() == 1:
        return f"one score each; the {error} is not used"
    number = str(counts.max())
    if counts.min() < counts.max():
        number = f"{counts.min()} to {counts.max()}"
    runs = "one run each" if number == "1" else f"{number} runs each"
    runs = f"{runs}, from {source}" if source else runs
    spread = "; the spread beside each score is not used" if "deviation" in tidy else ""
    if errors:
        spread += f"; the {error} is not used"
    return runs + spread


def describe_values(
    tidy: pd.DataFrame, *, is_percent: bool, decimal: str, unused: Sequence[str]
) -> str:
    """Return a line on the scores as numbers, for the user.

    The line has the unit (percent, fractions, or the largest score); the number of missing
    cells; "decimal commas"; and the unused columns and rows. All parts except the unit appear only
    if present.

    tidy: frame from `to_frame`. is_percent: whether cells have percent signs; if not, the unit
    is chosen by the largest score. decimal: the decimal sign, "." or ",". unused: names of
    columns and rows that were not used.
    """
    largest = tidy["score"].abs().max()
    if is_percent or 1 < largest <= 100:
        clauses = ["percent"]
    elif largest > 100:
        row = tidy.loc[tidy["score"].abs().idxmax()]
        clauses = [
            f"numbers up to {row['score']:g} ({row['algorithm']} on {row['dataset']})"
        ]
    else:
        clauses = ["fractions"]
    num_missing = int(tidy["score"].isna().sum())
    if num_missing:
        clauses.append(f"{_count(num_missing, 'cell')} missing")
    if decimal == ",":
        clauses.append("decimal commas")
    if unused:
        clauses.append(f"not used: {', '.join(unused)}")
    return "; ".join(clauses)


def describe_old_names(tidy: pd.DataFrame, old_names: Mapping[str, str]) -> str:
    """Return a clause that lists the names that lost footnote marks or citations; "" for none.

    The clause begins with "; ".
    tidy: frame from `to_frame`. old_names: original name by new name; names that `tidy` does
    not have are not listed.
    """
    used = [*tidy["algorithm"].unique(), *tidy["dataset"].unique()]
    changed = [
        f"{new} (was {old})"
        for new, old in old_names.items()
        if any(new == name or new in name.split() for name in used)
    ]
    if not changed:
        return ""
    return f"; names without footnote marks and citations: {listed(changed)}"


def listed(names: Sequence[str]) -> str:
    """Return the names joined by commas: the first twenty, and "..." if there are more."""
    shown = [str(name) or "(no name)" for name in names]
    more = ", ..." if len(shown) > _LISTED else ""
    return ", ".join(shown[:_LISTED]) + more


def _count(number: int, noun: str) -> str:
    """Return the number and the noun, in the plural unless the number is 1."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
