"""Functions that yield notes on scores that may be mistakes or that affect the tests.

Every note is a sentence on the page, with an observation and a flag or a correction. No score is
changed or left out. `values` is a frame with the columns algorithm, dataset, seed and value and one
row per score.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from jbias.report import tables
from jbias.report.pages.benchmark import derived
from jbias.scores import units

_MAX_NAMES = 5  # Names, or scores, in a note.
_MAX_FLAG_NAMES = 12  # Names in a suggested flag.
_SMALL_FACTOR = 20  # Scores that are smaller by this factor are outliers.
_LARGE_FACTOR = 20  # Scores that are larger by this factor are outliers.


class Note(NamedTuple):
    """A sentence on a data set, algorithm or run with scores computed from other scores."""

    kind: str  # "data set", "algorithm" or "run".
    item: derived.Derived
    text: str


class Outlier(NamedTuple):
    """A score far from all other scores of its data set, which are from `low` to `high`."""

    algorithm: str
    dataset: str
    score: float
    low: float
    high: float


def of_derived(
    values: pd.DataFrame, algorithms: Sequence[str], datasets: Sequence[str]
) -> Iterator[Note]:
    """Yield a note for each data set, algorithm or run with scores computed from other scores.

    values: columns algorithm, dataset, seed and value. algorithms, datasets: all names, in the
    order in which the suggested flag lists them.
    """
    kinds = (
        ("data set", derived.of_datasets, datasets, "in every run", "--datasets"),
        ("algorithm", derived.of_algorithms, algorithms, "everywhere", "--algorithms"),
        ("run", derived.of_runs, (), "of every algorithm", ""),
    )
    for kind, find_derived, names, where, flag in kinds:
        items = find_derived(values)
        derived_names = {item.name for item in items}
        other_names = [name for name in names if name not in derived_names]
        remedy = "remove its scores"
        if flag:
            remedy = f"leave it out: {_flag(flag, other_names)}"
        prefix = "run " if kind == "run" else ""
        for item in items:
            text = (
                f"{prefix}{item.name} is {item.text} {where}, so the tests count the same "
                f"scores twice; {remedy}"
            )
            yield Note(kind, item, text)


def _flag(flag: str, names: Sequence[str]) -> str:
    """Return a flag that selects names, such as "--datasets=a,b", quoted for a shell if necessary.

    flag: name of the flag. names: values to select. If there is no name, or more than 12, or a
    name with a comma or outer spaces, the text is "name the others with <flag>=A,B".
    """
    are_plain = not any("," in name or name != name.strip() for name in names)
    if not are_plain or not 0 < len(names) <= _MAX_FLAG_NAMES:
        return f"name the others with {flag}=A,B"
    value = ",".join(names)
    return (
        f"{flag}='{value}'" if set(" '\"$()&|;<>*?") & set(value) else f"{flag}={value}"
    )


def of_constants(values: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence on data sets, and one on algorithms, whose scores are all equal.

    No sentence is yielded for data sets, or algorithms, if none has equal scores. A data set must
    have scores of several algorithms, an algorithm scores on several data sets. Sentences have no
    full stop at the end. values: columns algorithm, dataset and value.
    """
    for column, other_column, noun, effect in (
        (
            "dataset",
            "algorithm",
            "data set",
            "all algorithms have the same rank on it",
        ),
        (
            "algorithm",
            "dataset",
            "algorithm",
            "check that this is no default for missing scores",
        ),
    ):
        names = values[column].astype(str)
        groups = values["value"].astype(float).groupby(names, sort=False)
        counts = values.groupby(names, sort=False)[other_column].nunique()
        is_constant = (groups.nunique() == 1) & (counts > 1)
        constants = [
            f"{key} ({groups.first()[key]:g})" for key in is_constant.index[is_constant]
        ]
        if constants:
            plural = "s" if len(constants) > 1 else ""
            listed = tables.few(constants, _MAX_NAMES)
            yield f"All scores are equal of the {noun}{plural} {listed}: {effect}"


def of_fractions(values: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence with the algorithms that have a run of fractions among percentages, if any.

    All scores of such a run are at most 1 and, on each data set, below a twentieth of the median of
    the runs with a score above 1. Scores must be from 0 to 100, some of them above 5. Runs without
    a score on every data set are ignored; up to 5 algorithms are named. values: columns algorithm,
    dataset, seed and value.
    """
    renamed = values[["algorithm", "dataset", "seed", "value"]].rename(
        columns={"seed": "run", "value": "score"}
    )
    table, columns = units.by_run(renamed)
    small = units.fractions_among_percentages(table)
    names = list(dict.fromkeys(str(columns[i][0]) for i in np.flatnonzero(small)))
    if names:
        yield (
            f"The scores of {tables.few(names, _MAX_NAMES)} are all at most 1, while other "
            f"scores reach {table.max():g}: correct them if they are fractions among "
            "percentages; otherwise the ranks are valid"
        )


def of_outliers(values: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence per cell with scores that are far from all other scores of their data set.

    A cell is an algorithm on a data set. Of more than 5 cells, the first 5 have a sentence, and a
    last sentence has the number of cells. values: columns algorithm, dataset and value.
    """
    cells: dict[tuple[str, str], list[Outlier]] = {}
    for item in find_outliers(values):
        cells.setdefault((item.algorithm, item.dataset), []).append(item)
    for (algorithm, dataset), items in [*cells.items()][:_MAX_NAMES]:
        outliers = dict.fromkeys(_format(item.score) for item in items)
        low, high = _format(items[0].low), _format(items[0].high)
        yield (
            f"{algorithm} on {dataset}: {tables.few([*outliers])}, while the other scores of "
            f"{dataset} are between {low} and {high}; check for a typing error or a diverged "
            "run. Outliers change means and differences, but hardly ranks"
        )
    if len(cells) > _MAX_NAMES:
        yield f"{len(cells)} cells have such outliers"


def _format(value: float) -> str:
    """Return a number as text with six digits and a short exponent, such as "1e8"."""
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{value:g}")


def find_outliers(values: pd.DataFrame) -> list[Outlier]:
    """Return the scores that are far from all other scores of their data set.

    Outliers are a minority of the scores of their data set. Large outliers are over 20 times as
    large as all other scores and larger than 100 (larger than 1 if the median |score| of all data
    sets is at most 1). Small outliers are at most 1 and less than a twentieth of all other scores;
    at least half of the scores of their algorithm exceed 1. A data set with a negative score has no
    small outliers, because its scores are differences, not percentages. Empty if a score is not
    finite. values: columns algorithm, dataset and value.
    """
    scores = values["value"].to_numpy(float)
    if not len(scores) or not np.isfinite(scores).all():
        return []
    algorithms = values["algorithm"].astype(str).to_numpy()
    datasets = values["dataset"].astype(str)
    rows_by_dataset = datasets.groupby(datasets, sort=False).indices
    outliers = []
    bound = 1.0 if np.median(np.abs(scores)) <= 1 else 100.0
    small_share = pd.Series(np.abs(scores) <= 1).groupby(algorithms).mean()
    for dataset, rows in rows_by_dataset.items():
        column = scores[rows]
        order = np.argsort(np.abs(column), kind="stable")
        sizes = np.abs(column)[order]
        split = _first_jump(sizes, bound)
        usual = order[:split]
        unusual = [*order[split:]]
        if len(usual) and sizes[split - 1] > 1:
            low = usual[column[usual] <= 1]
            high = usual[column[usual] > 1]
            is_minority = 0 < len(low) < len(high) and column[usual].min() >= 0
            if is_minority and column[low].max() * _SMALL_FACTOR < column[high].min():
                unusual += [i for i in low if small_share[algorithms[rows[i]]] <= 0.5]
                usual = high
        for i in unusual:
            outliers.append(
                Outlier(
                    algorithm=str(algorithms[rows[i]]),
                    dataset=str(dataset),
                    score=float(column[i]),
                    low=float(column[usual].min()),
                    high=float(column[usual].max()),
                )
            )
    return outliers


def _first_jump(sizes: np.ndarray, bound: float) -> int:
    """Return the first index, in the upper half of sorted sizes, after a jump by a factor over 20.

    Return len(sizes) if there is no jump. bound: a size of at most `bound` is not a
    jump.
    """
    for i in range(len(sizes) // 2 + 1, len(sizes)):
        previous = max(sizes[i - 1], bound / 1e4)
        if sizes[i] > bound and sizes[i] / _LARGE_FACTOR > previous:
            return i
    return len(sizes)
