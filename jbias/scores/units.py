"""Units of scores: fractions that stand among percentages.

Frames have the columns algorithm, dataset, run and score, one row a score.
"""

import numpy as np
import pandas as pd

from jbias.stats import score_rows

_FRACTION = 20  # By so much smaller scores may be fractions among percentages.
_UNIT_OF_PERCENT = 5  # Scores that are all below are no percentages.


def check(values: pd.DataFrame, *, where: str, unit: str) -> None:
    """Raise UnclearError where an algorithm's scores may be fractions among percentages.

    unit: what the user says: "percent" or "fraction" is that of all scores; "" is unknown.
    """
    name = "" if unit else find_mixed(values)
    if name:
        flag = "--unit=percent" if where else "unit='percent'"
        raise score_rows.UnclearError(
            f"{where or 'scores'}: fractions must not stand among percentages: the scores of "
            f"{name} are all at most 1, others reach {values['score'].max():g}; give all in one "
            f"unit, or say that they are one, and small: {flag}"
        )


def find_mixed(values: pd.DataFrame) -> str:
    """Return the algorithm that probably has fractions among percentages, or "".

    That is where 100 times its scores lie among the other runs of the same algorithm, or
    among those of others on three data sets and more.
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
    """Return scores (data sets, runs of all algorithms) and (algorithm, run) of each column."""
    named = values[["algorithm", "dataset", "run"]].astype(str)
    named = named.assign(score=values["score"].astype(float))
    wide = named.pivot(index="dataset", columns=["algorithm", "run"], values="score")
    wide = wide.dropna(axis=1)
    return wide.to_numpy(), list(wide.columns)


def fractions_among_percentages(table: np.ndarray) -> np.ndarray:
    """Return which columns are at most 1 where others are much larger, in [0, 100]."""
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
