"""Reader of CSV files with numbers that were copied from a printed paper."""

import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jbias.report import csv_rows


def read(
    folder: str, name: str, parse: Callable[[Mapping[str, str]], Any]
) -> Iterator[Any]:
    """Yield `parse(row)` for each row of <folder>/<name>.csv.

    parse: called with the row's cells by column.
    ValueError if the file does not exist. ValueError, with the line, for a row for which `parse`
    raises a KeyError or ValueError.
    """
    path = pathlib.Path(folder) / f"{name}.csv"
    if not path.exists():
        raise ValueError(
            f"--printed: {path} does not exist; name the folder of the published numbers"
        )
    for place, row in csv_rows.read(str(path))[1]:
        try:
            yield parse(row)
        except (KeyError, ValueError) as error:
            raise ValueError(f"{place}: must be as published, got {error}") from None
