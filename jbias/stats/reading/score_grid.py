"""Unparsed tables of scores: a grid of cells under the names of its columns."""

import dataclasses
import math
from typing import Any

import pandas as pd


@dataclasses.dataclass(frozen=True)
class Grid:
    """An unparsed table: names of columns, and rows of cells.

    columns: the names of each column, one per header line.
    levels: the name of each header line, "" for none.
    cells: rows of text, numbers or None.
    places: name of each row in messages.
    source: path of the table; "" for data in memory.
    title: name of the data set if the table names none.
    """

    columns: tuple[tuple[str, ...], ...]
    levels: tuple[str, ...]
    cells: list[list[Any]]
    places: list[str]
    source: str
    title: str = "scores"


def of_frame(frame: pd.DataFrame, *, source: str = "", title: str = "scores") -> Grid:
    """Return the grid of a pandas frame: its index levels become columns, before its own columns.

    An index without a name that only numbers the rows is left out. In messages, rows are numbered
    from 0. source, title: as in `Grid`.
    """
    levels = tuple("" if x is None else str(x) for x in frame.columns.names)
    is_counted = isinstance(frame.index, pd.RangeIndex) and frame.index.name is None
    names, columns = [], []
    if not is_counted:
        for number, name in enumerate(frame.index.names):
            names.append(
                ("" if name is None else str(name),) + ("",) * (len(levels) - 1)
            )
            columns.append([*frame.index.get_level_values(number)])
    for number, name in enumerate(frame.columns):
        levels_of_name = name if isinstance(name, tuple) else (name,)
        names.append(tuple(label(level) for level in levels_of_name))
        columns.append([*frame.iloc[:, number]])
    cells = [[plain_value(x) for x in row] for row in zip(*columns, strict=True)]
    where = f"{source}: " if source else "scores: "
    places = [f"{where}row {number}" for number in range(len(cells))]
    return Grid(tuple(names), levels, cells, places, source, title)


def plain_value(value: Any) -> Any:
    """Return a cell of a frame as text, a Python number or None; other values unchanged."""
    if isinstance(value, str) or value is None:
        return value
    if value is pd.NA or value is pd.NaT:
        return None
    return value.item() if hasattr(value, "item") else value


def label(value: Any) -> str:
    """Return the stripped text of a cell: whole floats without ".0"; "" for None, NaN and NA."""
    if value is None or value is pd.NA:
        return ""
    if isinstance(value, float):
        if math.isnan(value):
            return ""
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value).strip()


def is_blank(value: Any) -> bool:
    """Return True if a cell is blank: None, NaN, NA, or text of spaces only."""
    return label(value) == ""
