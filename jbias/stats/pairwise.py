"""Correlations of measures that some models lack: each pair over the models with both."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd

from jbias.stats import correlation
from jbias.stats.adjustment import adjust

LEAST = 4  # Models that a pair must share.


def known(frame: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Gives the models that have both measures."""
    return frame[frame[[x, y]].notna().all(axis=1)]


def matrix(
    frame: pd.DataFrame,
    x: Sequence[str],
    y: Sequence[str] = (),
    *,
    method: Literal["spearman", "kendall"] = "spearman",
    permutations: int = 9_999,
    seed: int = 0,
) -> correlation.MatrixResult:
    """Correlates columns as `correlation.matrix`, which needs every cell; here NaN is none.

    A pair is tested over the models that have both, and NaN where fewer than 4 do. `n` is
    the number of all models. Without missing cells the result is that of `correlation.matrix`.
    """
    asked = dict(permutations=permutations, seed=seed)
    names = [*x, *y]
    if not frame[names].isna().any(axis=None):
        return correlation.matrix(frame, x, y, method=method, **asked)
    test = {"spearman": correlation.spearman, "kendall": correlation.kendall}[method]
    columns = list(y or x)
    shape = (len(x), len(columns))
    statistic, pvalue = np.full(shape, math.nan), np.full(shape, math.nan)
    draws, exact = 0, True
    pairs = [(i, j) for i in range(shape[0]) for j in range(shape[1]) if y or i < j]
    for i, j in pairs:
        both = known(frame, x[i], columns[j])
        if len(both) < LEAST:
            continue
        found = test(both[x[i]], both[columns[j]], **asked)
        statistic[i, j], pvalue[i, j] = found.statistic, found.pvalue
        draws, exact = max(draws, found.draws), exact and found.exact
    family = np.isfinite(pvalue)
    tables = {"statistic": statistic, "pvalue": pvalue}
    for how in ("holm", "bh"):
        tables[how] = np.full(shape, math.nan)
        tables[how][family] = adjust(pvalue[family], how) if family.any() else []
    if not y:
        for table in tables.values():
            table[:] = np.where(np.isnan(table), table.T, table)
        np.fill_diagonal(statistic, 1)
    named = dict(index=list(x), columns=columns)
    return correlation.MatrixResult(
        n=len(frame),
        family=int(family.sum()),
        draws=draws,
        exact=exact,
        **{name: pd.DataFrame(table, **named) for name, table in tables.items()},
    )
