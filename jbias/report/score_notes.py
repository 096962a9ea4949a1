"""Notes on scores that may be mistakes, or that tests see otherwise than a reader.

Every note is one sentence on the page: what was seen, and the flag that changes it. Nothing
is left out here. The frame of all functions has the columns algorithm, dataset, seed and
value, one row a score.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from jbias.report import derived, tables
from jbias.scores import units

_LISTED = 5  # Names, or scores, that a note lists.
_LONGEST_FLAG = 12  # Names that a suggested flag lists.
_FRACTION = 20  # By so much smaller scores are outliers.
_FAR = 20  # By so much larger scores are outliers.


class Note(NamedTuple):
    """A data set, an algorithm or a run that follows from others, and a sentence on it."""

    kind: str
    item: derived.Derived
    text: str


class Outlier(NamedTuple):
    """A score far from all others of its data set, which lie from `low` to `high`."""

    algorithm: str
    dataset: str
    score: float
    low: float
    high: float


def of_derived(
    values: pd.DataFrame, algorithms: Sequence[str], datasets: Sequence[str]
) -> Iterator[Note]:
    """Yield what follows from what, with the remedy."""
    kinds = (
        ("data set", derived.of_datasets, datasets, "in every run", "--datasets"),
        ("algorithm", derived.of_algorithms, algorithms, "everywhere", "--algorithms"),
        ("run", derived.of_runs, (), "of every algorithm", ""),
    )
    for kind, search, names, where, flag in kinds:
        found = search(values)
        gone = {item.name for item in found}
        left = [name for name in names if name not in gone]
        remedy = f"leave it out: {_flag(flag, left)}" if flag else "remove its scores"
        prefix = "run " if kind == "run" else ""
        for item in found:
            text = f"{prefix}{item.name} is {item.text} {where}: it is no {kind} of its own"
            yield Note(kind, item, f"{text}, and the tests count it again; {remedy}")


def _flag(flag: str, names: Sequence[str]) -> str:
    """Return a flag that names all of few names."""
    plain = not any("," in name or name != name.strip() for name in names)
    if not plain or not 0 < len(names) <= _LONGEST_FLAG:
        return f"name the others with {flag}=A,B"
    value = ",".join(names)
    return (
        f"{flag}='{value}'" if set(" '\"$()&|;<>*?") & set(value) else f"{flag}={value}"
    )


def of_constants(values: pd.DataFrame) -> Iterator[str]:
    """Yield which data sets, and which algorithms, have one and the same score everywhere."""
    for name, other, effect in (
        ("dataset", "algorithm", "all algorithms share one rank there"),
        (
            "algorithm",
            "dataset",
            "is that so, or does a default stand for missing scores?",
        ),
    ):
        names = values[name].astype(str)
        groups = values["value"].astype(float).groupby(names, sort=False)
        counts = values.groupby(names, sort=False)[other].nunique()
        alike = (groups.nunique() == 1) & (counts > 1)
        shown = [f"{key} ({groups.first()[key]:g})" for key in alike.index[alike]]
        if shown:
            yield f"All scores are equal of the {_one_or_more(name, shown)}: {effect}"


def _one_or_more(name: str, shown: Sequence[str]) -> str:
    word = {"dataset": "data set", "algorithm": "algorithm"}[name]
    return f"{word}{'s' if len(shown) > 1 else ''} {tables.few(shown, _LISTED)}"


def of_fractions(values: pd.DataFrame) -> Iterator[str]:
    """Yield which algorithms have at most 1 everywhere, beside others in per cent."""
    renamed = values[["algorithm", "dataset", "seed", "value"]].rename(
        columns={"seed": "run", "value": "score"}
    )
    table, columns = units.by_run(renamed)
    small = units.fractions_among_percentages(table)
    names = list(dict.fromkeys(str(columns[i][0]) for i in np.flatnonzero(small)))
    if names:
        yield (
            f"The scores of {tables.few(names, _LISTED)} are all at most 1, where others reach "
            f"{table.max():g}: correct them if they are fractions among percentages; ranks "
            "hold if they are not"
        )


def of_outliers(values: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence that names scores far from all others of their data set."""
    cells: dict[tuple[str, str], list[Outlier]] = {}
    for item in find_outliers(values):
        cells.setdefault((item.algorithm, item.dataset), []).append(item)
    for (algorithm, dataset), items in [*cells.items()][:_LISTED]:
        shown = dict.fromkeys(_show(item.score) for item in items)
        low, high = _show(items[0].low), _show(items[0].high)
        yield (
            f"{algorithm} on {dataset}: {tables.few([*shown])}, other scores of {dataset} lie "
            f"between {low} and {high}: a slip, or did the run diverge? Means and differences "
            "follow it, ranks hardly"
        )
    if len(cells) > _LISTED:
        yield f"There are {len(cells)} cells with scores so far from others in all"


def _show(value: float) -> str:
    """Return a number as people write it, 1e8 and not 1e+08."""
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{value:g}")


def find_outliers(values: pd.DataFrame) -> list[Outlier]:
    """Return the scores that are no like of the others of their data set.

    A few scores of a data set are outliers if they are over 20 times as large as all others
    and no percentage, or at most 1 and less than a twentieth of all others, of an algorithm
    whose scores elsewhere are not so small. Beside a negative score small ones are none:
    these are differences, not percentages.
    """
    scores = values["value"].to_numpy(float)
    if not len(scores) or not np.isfinite(scores).all():
        return []
    algorithms = values["algorithm"].astype(str).to_numpy()
    datasets = values["dataset"].astype(str)
    places, found = datasets.groupby(datasets, sort=False).indices, []
    bound = 1.0 if np.median(np.abs(scores)) <= 1 else 100.0
    small = pd.Series(np.abs(scores) <= 1).groupby(algorithms).mean()
    for dataset, rows in places.items():
        part = scores[rows]
        order = np.argsort(np.abs(part), kind="stable")
        sizes = np.abs(part)[order]
        split = _first_jump(sizes, bound)
        others = order[:split]
        chosen = [*order[split:]]
        if len(others) and sizes[split - 1] > 1:
            low = others[part[others] <= 1]
            high = others[part[others] > 1]
            few = 0 < len(low) < len(high) and part[others].min() >= 0
            if few and part[low].max() * _FRACTION < part[high].min():
                rare = [i for i in low if small[algorithms[rows[i]]] <= 0.5]
                chosen, others = [*chosen, *rare], high
        for i in chosen:
            found.append(
                Outlier(
                    algorithm=str(algorithms[rows[i]]),
                    dataset=str(dataset),
                    score=float(part[i]),
                    low=float(part[others].min()),
                    high=float(part[others].max()),
                )
            )
    return found


def _first_jump(sizes: np.ndarray, bound: float) -> int:
    """Return where sorted sizes, beyond their half, become over 20 times the one before."""
    for i in range(len(sizes) // 2 + 1, len(sizes)):
        if sizes[i] > bound and sizes[i] / _FAR > max(sizes[i - 1], bound / 1e4):
            return i
    return len(sizes)
