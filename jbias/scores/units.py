"""Check of the unit of scores, which finds fractions in a table of percentages.

Frames have the columns algorithm, dataset, run and score, and one row per score.
"""

import numpy as np
import pandas as pd

from jbias.stats.reading import score_rows

_FRACTION = 20  # Scores smaller than others by this factor may be fractions.
_UNIT_OF_PERCENT = 5  # A table whose scores are all at most this has no percentages.


def check(values: pd.DataFrame, *, source: str, unit: str) -> None:
    """Raise UnclearError if the scores of one algorithm may be fractions among percentages.

    values: frame as in the module's docstring. source: path of the table, "" for data in
    memory. unit: "percent" or "fraction" if the user gave the unit of all scores, which
    skips the check; else "".
    """
    name = "" if unit else find_mixed(values)
    if name:
        flag = "--unit=percent" if source else "unit='percent'"
        raise score_rows.UnclearError(
            f"{source or 'scores'}: scores must not mix fractions and percentages: the scores of "
            f"{name} are all at most 1, others reach {values['score'].max():g}; give all in one "
            f"unit, or say that all are in percent: {flag}"
        )


def find_mixed(values: pd.DataFrame) -> str:
    """Return the first algorithm and run whose scores are probably fractions among percentages.

    The result is text: "algorithm run RUN", or the algorithm's name alone if runs have no names; ""
    if there are no such scores. values: see `check`.

    The scores of a run are such fractions if two conditions are met:
    `fractions_among_percentages` marks the run; and on every data set, 100 times the run's score is
    in the range of the algorithm's runs that are not marked. If all runs of the algorithm are
    marked, the range is over the runs of all algorithms that are not marked, and there must be at
    least three data sets. The range is extended by 10 % of its maximum at each end.
    """
    table, columns = by_run(values)
    small = fractions_among_percentages(table)
    for i in np.flatnonzero(small):
        algorithm, run = columns[i]
        is_reference = np.array([name == algorithm for name, _ in columns]) & ~small
        least_datasets = 1
        if not is_reference.any():
            is_reference, least_datasets = ~small, 3
        low = table[:, is_reference].min(axis=1)
        high = table[:, is_reference].max(axis=1)
        margin = 0.1 * high
        raised = 100 * table[:, i]
        is_among = (raised >= low - margin) & (raised <= high + margin)
        if is_among.all() and len(table) >= least_datasets:
            return f"{algorithm} run {run}" if run else str(algorithm)
    return ""


def by_run(values: pd.DataFrame) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """Return (matrix of scores, list with the pair (algorithm, run) of each column).

    Rows are data sets; rows and columns are sorted by name. Runs that lack a data set are left
    out. values: see `check`. Raise ValueError if a run has two scores on a data set.
    """
    named = values[["algorithm", "dataset", "run"]].astype(str)
    named = named.assign(score=values["score"].astype(float))
    wide = named.pivot(index="dataset", columns=["algorithm", "run"], values="score")
    wide = wide.dropna(axis=1)
    return wide.to_numpy(), list(wide.columns)


def fractions_among_percentages(table: np.ndarray) -> np.ndarray:
    """Return a mask of the columns of a matrix that may have fractions among percentages.

    In such a column all scores are at most 1, and the score in each row is below a twentieth of
    the median over the columns that have a score above 1. All False unless scores are in [0, 100]
    and some are above 5.
    """
    none = np.zeros(table.shape[1] if table.ndim == 2 else 0, bool)
    if (
        not table.size
        or table.min() < 0
        or table.max() > 100
        or table.max() <= _UNIT_OF_PERCENT
    ):
        return none
    small = (table <= 1).all(axis=0)
    if not small.any() or small.all():
        return none
    usual = np.median(table[:, ~small], axis=1)
    return small & (table * _FRACTION < usual[:, None]).all(axis=0)
