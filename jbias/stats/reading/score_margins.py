"""Margins of tables of scores: rows or columns called All, Total or Average.

pandas adds margins by `pivot_table(margins=True)`, users of spreadsheets add margins by hand. With
margins, the other scores count twice. A method may have such a name, too, such as an average of
models.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from jbias.stats.reading import column_names, score_columns, score_rows

CHOICES = ("ignore", "keep")
# A weighted mean may differ from the mean of the other scores by this share of their range.
_NEAR = 0.25
_EXACT = 1e-9  # Of a score: rounding by floats.
_SUMS = ("all", "total")

Role = Literal["algorithm", "dataset"]


class _Margin(NamedTuple):
    """An algorithm or data set of a table that has the name of a margin."""

    name: str
    # All scores are near the means, or are the sums, of the other algorithms' (data sets') scores.
    is_near: bool
    is_exact: bool  # All scores equal these means, within the last printed digit.


def leave_out(
    rows: Sequence[score_rows.Row], *, choices: score_columns.Choices, source: str
) -> tuple[list[score_rows.Row], list[str]]:
    """Return the rows without margins, and descriptions of the margins that were left out.

    choices.margins: "keep" leaves nothing out. "ignore" leaves out the algorithm and the data set
    that `_find_margin` returns. "" leaves out the algorithm and the data set if both are certainly
    margins (`_is_of_both`). Otherwise UnclearError, which lists the choices, is raised in two
    cases:
    - The algorithm's scores are near the mean of the other algorithms, or the two names are of the
      same kind (`_are_alike`).
    - The data set's scores are near the mean of the other data sets, but not equal. A data set that
      equals the mean stays; `jbias.report` adds a note.
    source: path of the table, "" for data in memory.
    """
    if choices.margins == "keep":
        return list(rows), []
    algorithm = _find_margin(rows, "algorithm")
    dataset = _find_margin(rows, "dataset")
    is_certain = bool(algorithm and dataset and _is_of_both(algorithm, dataset))
    if choices.margins == "ignore" or is_certain:
        names = {"algorithm": algorithm, "dataset": dataset}
        return _remove_margins(rows, names, is_chosen=not is_certain, source=source)
    if algorithm and (algorithm.is_near or dataset and _are_alike(algorithm, dataset)):
        raise _doubtful_margin(
            algorithm, role="algorithm", choices=choices, source=source
        )
    if dataset and dataset.is_near and not dataset.is_exact:
        raise _doubtful_margin(dataset, role="dataset", choices=choices, source=source)
    return list(rows), []


def _find_margin(rows: Sequence[score_rows.Row], role: Role) -> _Margin | None:
    """Return the last algorithm, or data set, that has the name of a margin; None if none has.

    Also None if there are fewer than three algorithms, or data sets.
    """
    names = [*dict.fromkeys(_name_of(row, role) for row in rows)]
    margins = [name for name in names if column_names.is_margin(name)]
    if len(names) < 3 or not margins:
        return None
    margin = margins[-1]
    names.remove(margin)
    other: Role = "dataset" if role == "algorithm" else "algorithm"
    by_cell: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if not math.isnan(row.cell.value):
            cell = _name_of(row, role), _name_of(row, other)
            by_cell.setdefault(cell, []).append(row.cell.value)
    means = {cell: float(np.mean(values)) for cell, values in by_cell.items()}
    digit = _last_digit([value for cell, value in means.items() if cell[0] == margin])
    near, exact = [], []
    for line in dict.fromkeys(_name_of(row, other) for row in rows):
        if (margin, line) not in means:
            continue
        values = [means[name, line] for name in names if (name, line) in means]
        if len(values) < 2:
            continue
        value = means[margin, line]
        distance = abs(value - np.mean(values))
        is_sum = abs(value - sum(values)) <= digit
        exact.append(distance <= digit)
        is_close = distance <= _NEAR * (max(values) - min(values))
        near.append(exact[-1] or is_close or is_sum)
    has_scores = bool(near)
    return _Margin(margin, has_scores and all(near), has_scores and all(exact))


def _name_of(row: score_rows.Row, role: Role) -> str:
    """Return the algorithm, or the data set, of a score."""
    return row.algorithm if role == "algorithm" else row.dataset


def _last_digit(values: Sequence[float]) -> float:
    """Return one unit of the last decimal that any value has when printed, such as 0.01.

    At least 1e-9 of the largest absolute value.
    """
    decimals = [len(repr(float(value)).partition(".")[2]) for value in values]
    rounding = _EXACT * max(map(abs, values), default=0)
    return max(10.0 ** -max(decimals, default=0), rounding)


def _are_alike(algorithm: _Margin, dataset: _Margin) -> bool:
    """Return True if both margins have names of averages, or both have names of sums."""
    words = [column_names.word_of(x.name) in _SUMS for x in (algorithm, dataset)]
    return words[0] == words[1]


def _is_of_both(algorithm: _Margin, dataset: _Margin) -> bool:
    """Return True if the algorithm and the data set are certainly margins, of the same name.

    A method may be called average, so an algorithm of that name must also be near the mean of the
    other algorithms. No method has the name of a sum.
    """
    words = [column_names.word_of(x.name) for x in (algorithm, dataset)]
    return words[0] == words[1] and (algorithm.is_near or words[0] in _SUMS)


def _remove_margins(
    rows: Sequence[score_rows.Row],
    margins: dict[Role, _Margin | None],
    *,
    is_chosen: bool,
    source: str,
) -> tuple[list[score_rows.Row], list[str]]:
    """Return the rows without these margins, and a description per distinct name of a margin.

    is_chosen: whether the user chose to ignore the margins; if not, each description has the choice
    that keeps the margin. source: path of the table, "" for data in memory.
    """
    scores = list(rows)
    for role, margin in margins.items():
        if margin:
            scores = [row for row in scores if _name_of(row, role) != margin.name]
    names = dict.fromkeys(margin.name for margin in margins.values() if margin)
    remedy = f" ({score_columns.flag('margins', source)}keep keeps it)"
    return scores, [
        f"the margin {name!r}{'' if is_chosen else remedy}" for name in names
    ]


def _doubtful_margin(
    margin: _Margin, *, role: Role, choices: score_columns.Choices, source: str
) -> score_rows.UnclearError:
    """Return the error for an algorithm or data set that may be a margin.

    source: path of the table, "" for data in memory.
    """
    noun = "data set" if role == "dataset" else "algorithm"
    return score_columns.unclear(
        source,
        choices,
        f"{margin.name!r} may be a margin of the table, the mean or sum of the other {noun}s, "
        f"or {'a data set' if role == 'dataset' else 'an algorithm'} of that name",
        ("margins", "ignore"),
        ("margins", "keep"),
    )
