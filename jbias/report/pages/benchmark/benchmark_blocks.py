"""Columns, tables and choices shared by the sections of the page that compares algorithms.

A cell is an algorithm on a data set.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from jbias.report import tables
from jbias.report.pages.benchmark import analysis as analysis_lib
from jbias.report.pages.benchmark import benchmark_scores, inputs, prose

Analysis = analysis_lib.Analysis
MAX_ROWS = 500  # Rows of a table on the page; the table's files have all rows.
MAX_COLUMNS = 60  # Data sets, or algorithms, side by side on the page.
MAX_CURVES = 12  # Curves of a panel; a figure with more is unreadable.
DECISION_COLUMNS = tables.columns(
    "F:.3 p:p permutation_p:p critical_difference:.2 pairs:d",
    p="p by F",
    permutation_p="p by permutation, which decides",
)


def table(
    name: str,
    caption: str,
    data: pd.DataFrame | Sequence[Mapping] | Mapping[str, Sequence],
    columns: Mapping[str, tables.Column],
    *,
    most: int = MAX_ROWS,
    **options: Any,
) -> tables.Table | None:
    """Return a table whose files have all columns of `data`, even empty columns.

    None if there are no rows. data: any input of `pd.DataFrame`. columns: shown columns by key.
    most: maximal number of rows on the page. options: further arguments of `tables.from_rows`.
    """
    data = pd.DataFrame(data)
    return tables.from_rows(
        name, caption, data, columns, most=most, data=data, **options
    )


def hidden_datasets(datasets: Sequence[str]) -> str:
    """Return the sentence on data sets that the page does not show; "" if the page shows all."""
    count = len(datasets) - MAX_COLUMNS
    return f" {count:,} more data sets are in the CSV file." if count > 0 else ""


def dataset_columns(
    datasets: Sequence[str], *, first: str, last: str, form: Callable, **heads: str
) -> tuple[list[str], dict[str, tables.Column]]:
    """Return (column key of each data set, columns of the page by key).

    A key is the data set's name, followed by " (name)" if another column has the same key. The page
    shows at most `MAX_COLUMNS` data sets. first, last: columns before and after the data sets, as
    the specification of `tables.columns`. form: function that formats a score. heads: column
    headings of `first` and `last` by key.
    """
    first_columns = tables.columns(first, **heads)
    last_columns = tables.columns(last, **heads)
    keys = tables.distinct_keys(datasets, [*first_columns, *last_columns])
    shown = zip(keys[:MAX_COLUMNS], datasets[:MAX_COLUMNS])
    columns = {key: tables.Column(name, form) for key, name in shown}
    return keys, first_columns | columns | last_columns


def decision(analysis: Analysis) -> dict[str, float]:
    """Return the results of the rank tests by key of `DECISION_COLUMNS`; all NaN if untested.

    Keys: F and p (Friedman's test, p by the F distribution), permutation_p, critical_difference (of
    mean ranks, Nemenyi's test) and pairs, the number of pairs that differ significantly.
    """
    test = analysis.friedman
    if test is None:
        return dict.fromkeys(DECISION_COLUMNS, math.nan)
    return {
        "F": test.statistic,
        "p": test.pvalue,
        "permutation_p": analysis.permutation.pvalue,
        "critical_difference": analysis.critical_difference,
        "pairs": len(analysis.significant),
    }


def note_on_infinite_f(statistics: Iterable[float]) -> str:
    """Return a sentence for the caption if a value of F is infinite, else ""."""
    if not any(map(math.isinf, statistics)):
        return ""
    return f" {prose.INFINITE_F} The p of the F distribution then means nothing."


def pairs(analysis: Analysis, **matrices: np.ndarray) -> pd.DataFrame:
    """Return one row per pair of algorithms, the smallest p of Nemenyi's test first.

    Columns: better, worse, and one per matrix. matrices: arrays (k, k) by name of the column; the
    entry [i, j] is for (better i, worse j), indexed in the order of `analysis.algorithms`.
    """
    frame = pd.DataFrame(analysis.pairs, columns=["better", "worse", "p"])
    i = frame["better"].map(analysis.algorithms.index)
    j = frame["worse"].map(analysis.algorithms.index)
    cells = {key: matrix[i, j] for key, matrix in matrices.items()}
    return frame.drop(columns="p").assign(**cells)


def evaluations_of(
    study: benchmark_scores.BenchmarkScores, metric: str, datasets: Sequence[str]
) -> pd.DataFrame:
    """Return the values of a metric per seed, data set and epoch, averaged over conditions.

    Columns: label, dataset, run, seed, epoch, condition and value. A record without a condition
    replaces the mean; the condition of a mean is NaN.
    """
    records = study.evaluations
    keys = ["label", "dataset", "run", "seed", "epoch"]
    is_wanted = (records["metric"] == metric) & records["dataset"].isin(datasets)
    return inputs.averaged(records.loc[is_wanted, [*keys, "condition", "value"]], keys)


def drawn_algorithms(analysis: Analysis) -> tuple[str, ...]:
    """Return the names of the algorithms that have a curve, at most `MAX_CURVES`.

    If the study has at most `MAX_CURVES` algorithms, all are returned in the study's order.
    Otherwise the algorithms with the best mean ranks are returned, the best first. If ranks were
    not tested, the first algorithms of the study are returned.
    """
    names = analysis.study.algorithms
    best = []
    if len(names) > MAX_CURVES and analysis.nemenyi is not None:
        best = [analysis.algorithms[i] for i in analysis.order]
    return (*best, *(name for name in names if name not in best))[:MAX_CURVES]
