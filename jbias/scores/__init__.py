"""Readers of score tables, from a file or a pandas frame, that return a tidy frame.

    frame = jbias.read_scores("table.csv")
    jbias.stats.friedman(frame, larger_is_better=True)

docs/own-table.md lists the accepted layouts, and the options for tables with several readings.
"""

import os
from collections.abc import Mapping

import pandas as pd

from jbias.scores import table_files, units
from jbias.stats.reading import (
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
    """Return a Reading of a file or frame: its scores as a tidy frame, and a description.

    An option that is "" is determined from the table.
    source: path of a CSV (commas, semicolons or tabs), Markdown, LaTeX, JSON, Excel or
    Parquet file, or a pandas frame.
    columns: names of columns by role (`ROLES`), as "algorithm=method,score=acc" or a mapping.
    rows: meaning of the rows of a wide table, "algorithms" or "datasets".
    decimal: the decimal sign, "." or ",".
    sheet: name of the sheet in an Excel file, or number of the table, from 1, in a text file.
    brackets: meaning of a number in brackets after a score, "deviation" or "ignore".
    margins: "ignore" or "keep" rows and columns called All, Average and the like.
    unit: "percent" or "fraction" if all scores have this unit; "" raises an error if some
    scores may be fractions among percentages.
    Raise UnclearError, a ValueError, for a table with several readings; the message lists the
    options that select one. Raise ValueError for an unknown value of an option and, with file
    and line, for a table that cannot be read as scores.
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
        grid = table_files.read(source, sheet=sheet)
    choices = score_columns.Choices(
        columns=columns,
        rows=rows,
        decimal=decimal,
        brackets=brackets,
        margins=margins,
    )
    reading = score_layout.arrange(grid, choices)
    units.check(reading.tidy, source=grid.source, unit=unit)
    return reading


def parse_columns(text: str) -> dict[str, str]:
    """Return the names of columns by role, from a text such as "algorithm=method,score=acc".

    {} for "". Raise ValueError for a role that is not in `ROLES` and for a pair without a name.
    """
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
