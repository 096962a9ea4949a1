"""Any table of scores, from a file or a pandas frame, as a tidy one.

    frame = jbias.read_scores("table.csv")
    jbias.stats.friedman(frame, larger_is_better=True)

What a table may look like, and what decides where it has several readings: docs/own-table.md.
"""

import os
from collections.abc import Mapping

import pandas as pd

from jbias.scores import files, units
from jbias.stats import (
    column_names,
    score_columns,
    score_grid,
    score_layout,
    score_margins,
    score_rows,
)

ROLES = column_names.ROLES
UNITS = ("percent", "fraction")
UnclearError = score_rows.UnclearError


def read(
    source: str | os.PathLike | pd.DataFrame,
    *,
    columns: str | Mapping[str, str] = "",
    rows: str = "",
    decimal: str = "",
    sheet: str = "",
    brackets: str = "",
    margins: str = "",
    unit: str = "",
) -> score_layout.Reading:
    """Return the scores of a file or a frame, with what was understood of them.

    source: the path of CSV (commas, semicolons, tabs), Markdown, LaTeX, JSON, Excel or
    Parquet, or a pandas frame. columns: "algorithm=method,score=acc", or a mapping; roles
    are those of `ROLES`. rows: what the rows of a wide table are, "algorithms" or
    "datasets". decimal: the decimal sign, "." or ",". sheet: the sheet of an Excel file with
    several, or the number of a table of Markdown or LaTeX. brackets: what a whole number in
    brackets after a score is, "deviation", or "ignore" for a rank. margins: "ignore" or
    "keep" a row or column called All, Average and the like. unit: "percent" or "fraction"
    says that all scores have this unit, where some look like fractions among percentages.
    Raises UnclearError, a ValueError, where the table has several readings, with the choice
    that decides; ValueError with file and line where it has none.
    """
    if isinstance(columns, str):
        columns = parse_columns(columns)
    for name, value, known in (
        ("rows", rows, score_layout.WIDE),
        ("decimal", decimal, (".", ",")),
        ("unit", unit, UNITS),
        ("brackets", brackets, score_layout.BRACKETS),
        ("margins", margins, score_margins.CHOICES),
    ):
        if value and value not in known:
            raise ValueError(
                f"{name}: must be one of {' and '.join(known)}, got {value!r}"
            )
    if isinstance(source, pd.DataFrame):
        grid = score_grid.of_frame(source)
    else:
        grid = files.read(source, sheet=sheet)
    choices = score_columns.Choices(
        columns=columns,
        rows=rows,
        decimal=decimal,
        brackets=brackets,
        margins=margins,
    )
    reading = score_layout.arrange(grid, choices)
    units.check(reading.tidy, where=grid.source, unit=unit)
    return reading


def parse_columns(text: str) -> dict[str, str]:
    """Return the names of columns by role, from "algorithm=method,score=acc"."""
    columns = {}
    for pair in filter(None, text.split(",")):
        role, _, name = pair.partition("=")
        role = role.strip()
        if role not in ROLES:
            raise ValueError(
                f"--columns: must name one of {', '.join(ROLES)}, got {role!r}"
            )
        if not name.strip():
            raise ValueError(
                f"--columns: must be {role}=NAME, got {pair!r}; name the column"
            )
        columns[role] = name.strip()
    return columns
