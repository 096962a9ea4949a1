"""Numbers that a paper printed, from CSV files as they were typed off it."""

import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jbias.report import csv_rows


def read(folder: str, name: str, parse: Callable[[Mapping], Any]) -> Iterator:
    """Gives what `parse` makes of each row of <folder>/<name>.csv.

    ValueError where there is no such file, and by line where parse raises KeyError or
    ValueError.
    """
    path = pathlib.Path(folder) / f"{name}.csv"
    if not path.exists():
        what = "name the folder of the published numbers"
        raise ValueError(f"--printed: {path} must be there; {what}")
    for place, row in csv_rows.read(str(path))[1]:
        try:
            yield parse(row)
        except (KeyError, ValueError) as error:
            raise ValueError(f"{place}: must be as published, got {error}") from None
