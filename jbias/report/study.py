"""What a report is made of: scores per seed, and the tests over their means."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from jbias import stats
from jbias.report import workdirs
from jbias.stats import posthoc, score_table


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """Scores of algorithms on data sets, one row a seed, and where they come from.

    `values` has the columns algorithm, dataset, seed, value, count, n. `unfit` names data
    sets that may not be compared, with reasons. The last six are for runs only.
    """

    source: str
    metric: str
    larger_is_better: bool
    selection: str
    rule: str  # The selection in words.
    algorithms: tuple[str, ...]
    datasets: tuple[str, ...]
    values: pd.DataFrame
    unfit: tuple[tuple[str, str], ...] = ()
    trained: frozenset[tuple[str, str]] = frozenset()  # (algorithm, test set it saw).
    notes: tuple[str, ...] = ()
    frame: pd.DataFrame | None = None  # All records with a column `label`.
    chosen: pd.DataFrame | None = None  # Those of them that selection looks at.
    selected: pd.DataFrame | None = None  # All metrics, by `selection`.
    others: tuple[tuple[str, pd.DataFrame], ...] = ()  # Other rules: name, `values`.
    runs: tuple[workdirs.Run, ...] = ()
    diverged: pd.DataFrame | None = None

    @property
    def is_runs(self) -> bool:
        return self.frame is not None

    @functools.cached_property
    def unit(self) -> "Unit":
        return unit_of(self.metric if self.is_runs else "", self.values["value"])


@dataclasses.dataclass(frozen=True)
class Unit:
    """How scores are shown: multiplied by `scale`, with `digits` after the point."""

    scale: float
    digits: int
    name: str  # "%" or empty.

    def show(self, value: float, *, signed: bool = False) -> str:
        if value is None or not math.isfinite(value):
            return "–"
        value = round(value * self.scale, self.digits) + 0.0  # Never minus zero.
        sign = "+" if signed and value else ""
        return f"{value:{sign}.{self.digits}f}".replace("-", "−")

    def spread(self, mean: float, std: float) -> str:
        """Shows `mean ± std`, or the mean alone where there is no deviation."""
        shown = self.show(mean)
        finite = std is not None and math.isfinite(std)
        return f"{shown} ± {self.show(std)}" if finite else shown


def unit_of(metric: str, values: Sequence[float]) -> Unit:
    """Shows known fractions as percentages and all other scores as they are."""
    if metric in ("accuracy", "real_accuracy", "shape_bias"):
        return Unit(scale=100, digits=1, name="%")
    largest = np.nanmax(np.abs(np.asarray(values, float)), initial=0)
    return Unit(scale=1, digits=3 if largest <= 2 else 1, name="")


@dataclasses.dataclass(frozen=True, eq=False)
class Analysis:
    """Means per cell and the tests over them; None where a test cannot be made."""

    cells: pd.DataFrame  # algorithm, dataset, mean, std (ddof 1), n; all cells.
    algorithms: tuple[str, ...]  # Those in the tests.
    datasets: tuple[str, ...]  # Those in the tests.
    left_out: tuple[tuple[str, str], ...]  # Data set or algorithm, and why.
    why_not: str  # Why there is no test; empty if there is one.
    friedman: Any = None
    uncorrected: Any = None
    permutation: Any = None  # Friedman's test without an approximation.
    nemenyi: Any = None
    alpha: float = 0.05
    strict: bool = False
    critical_difference: float = math.nan

    @property
    def pairs(self) -> list[tuple[str, str, float]]:
        """All pairs as (better, worse, p), the smallest p first."""
        if self.nemenyi is None:
            return []
        ranked, names, found = self.nemenyi.ranks, self.algorithms, []
        for i, j in zip(*np.triu_indices(len(names), 1), strict=True):
            i, j = (j, i) if ranked[j] < ranked[i] else (i, j)
            found.append((names[i], names[j], float(self.nemenyi.pvalues[i, j])))
        return sorted(found, key=lambda pair: pair[2])

    @property
    def rejects(self) -> bool:
        """Whether the algorithms differ as a whole: by permutation, which F approximates."""
        return self.friedman is not None and self.permutation.pvalue <= self.alpha

    @property
    def significant(self) -> list[tuple[str, str, float]]:
        """The pairs to claim: none unless the test of all allows to look at pairs."""
        if not self.rejects:
            return []
        return [pair for pair in self.pairs if pair[2] <= self.alpha]

    @property
    def cliques(self) -> tuple[tuple[int, ...], ...]:
        return posthoc.cliques(self.nemenyi.ranks, self.critical_difference)


def cells_of(values: pd.DataFrame, algorithms, datasets) -> pd.DataFrame:
    """Gives mean, std (ddof 1) and n over seeds for every cell; n is 0 where it is empty."""
    groups = values.groupby(["algorithm", "dataset"])["value"]
    # A seed without a value (no decision to count) leaves the cell without a mean.
    means = pd.DataFrame(
        {
            "mean": groups.mean(skipna=False),
            "std": groups.std(skipna=False),
            "n": groups.size(),
        }
    )
    wanted = pd.MultiIndex.from_product(
        [algorithms, datasets], names=["algorithm", "dataset"]
    )
    table = means.reindex(wanted).reset_index()
    return table.astype({"mean": float, "std": float}).assign(
        n=table["n"].fillna(0).astype(int)
    )


def analyse(study: Study, alpha: float, *, strict: bool = False) -> Analysis:
    """Tests all algorithms with scores over all data sets that may be compared.

    `strict` leaves out those that some algorithm trained on.
    """
    cells = cells_of(study.values, study.algorithms, study.datasets)
    matrix = cells.pivot(index="dataset", columns="algorithm", values="mean")
    matrix = matrix.reindex(index=list(study.datasets), columns=list(study.algorithms))
    silent = [a for a in study.algorithms if matrix[a].isna().all()]
    matrix = matrix.drop(columns=silent)
    reasons = dict(study.unfit)
    for dataset in study.datasets if strict else ():
        seen = [a for a in matrix.columns if (a, dataset) in study.trained]
        if seen:
            reasons[dataset] = f"{', '.join(seen)} trained on it"
    for dataset in study.datasets:
        empty = list(matrix.columns[matrix.loc[dataset].isna()])
        if empty:
            reasons[dataset] = f"missing cells: no score of {', '.join(empty)}"
    matrix = matrix.drop(index=[d for d in study.datasets if d in reasons])
    left_out = [(name, "no seed of it has a score") for name in silent]
    left_out += [(d, reasons[d]) for d in study.datasets if d in reasons]
    made = {
        "cells": cells,
        "algorithms": tuple(matrix.columns),
        "datasets": tuple(matrix.index),
        "left_out": tuple(left_out),
        "alpha": alpha,
        "strict": strict,
    }
    n, k = matrix.shape
    if n < 2 or k < 2:
        return Analysis(why_not=_why_not(n, k), **made)
    scores = significant_digits(matrix.to_numpy())
    direction = {"larger_is_better": study.larger_is_better}
    nemenyi = stats.nemenyi(scores, **direction)
    return Analysis(
        why_not="",
        friedman=stats.friedman(scores, **direction),
        uncorrected=stats.friedman(scores, ties=False, **direction),
        permutation=stats.friedman_permutation(scores, **direction),
        nemenyi=nemenyi,
        critical_difference=nemenyi.critical_difference(alpha),
        **made,
    )


def significant_digits(scores: np.ndarray) -> np.ndarray:
    """Rounds to 12 digits: the order of a sum over seeds must not break a tie."""
    return np.vectorize(lambda value: float(f"{value:.12g}"), otypes=[float])(scores)


def rank_table(study: Study, analysis: Analysis) -> pd.DataFrame:
    """Gives the rank of every algorithm on every tested data set."""
    matrix = analysis.cells.pivot(index="dataset", columns="algorithm", values="mean")
    matrix = matrix.loc[list(analysis.datasets), list(analysis.algorithms)]
    ranked = score_table.rank(
        significant_digits(matrix.to_numpy()), larger_is_better=study.larger_is_better
    )
    return pd.DataFrame(ranked, index=matrix.index, columns=matrix.columns)


def _why_not(n: int, k: int) -> str:
    sets = f"{n} data set{'' if n == 1 else 's'}"
    return (
        f"No test was made: ranks are compared over at least 2 data sets and 2 "
        f"algorithms, and here are {sets} and {k} algorithm{'' if k == 1 else 's'} with "
        "all cells filled."
    )
