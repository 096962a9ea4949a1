"""A mapping of one's own between classes, as a CSV file.

Columns `train_class` and `test_class`, one line for each class of the network that is
used; a class without a line is not. Several may answer for one class of the test, none
for two. Further columns are for the reader's eyes.
"""

import csv
import os
from collections.abc import Sequence

from jbias.data import spec

COLUMNS = ("train_class", "test_class")


def read(path: str, train: Sequence[str], test: Sequence[str]) -> dict[str, str]:
    """Reads {training class: test class}; every line must name known classes.

    spec.Mismatch where none of the training classes is known: it is of another network.
    """
    pairs, lines = {}, _lines(path)
    foreign = not any(cells[COLUMNS[0]] in train for _, cells in lines)
    for number, cells in lines:
        for column, known, side in zip(
            COLUMNS, (train, test), ("training", "the test"), strict=True
        ):
            name = cells[column]
            if name not in known:
                kind = spec.Mismatch if foreign else ValueError
                raise kind(
                    f"{path}:{number}: {column} must be a class of {side}, got"
                    f" {name!r}; {spec.did_you_mean(name, known)}"
                )
        one, other = (cells[column] for column in COLUMNS)
        if one in pairs:
            raise ValueError(
                f"{path}:{number}: a class of training must be mapped once, got"
                f" {one!r} for {pairs[one]!r} and again for {other!r}; leave one line"
            )
        pairs[one] = other
    if not pairs:
        raise ValueError(
            f"{path}: a mapping must have a line for some class, got the header alone"
        )
    return pairs


def _lines(path: str) -> list[tuple[int, dict[str, str]]]:
    """Line numbers and the two cells, without the spaces around them."""
    try:
        with open(os.path.expanduser(path), encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file, skipinitialspace=True)
            header = [name.strip() for name in rows.fieldnames or ()]
            rows.fieldnames = header
            lines = [(rows.line_num, row) for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(
            f"{path}: a mapping must be a CSV file in UTF-8, got {error}; write one"
            f" with the columns {','.join(COLUMNS)}"
        ) from error
    missing = [column for column in COLUMNS if header.count(column) != 1]
    if missing:
        raise ValueError(
            f"{path}: the header must have {' and '.join(COLUMNS)} once each,"
            f" {missing[0]} does not, got {','.join(header)!r}; name the columns so,"
            " with a comma between"
        )
    return [
        (number, {column: (row[column] or "").strip() for column in COLUMNS})
        for number, row in lines
    ]
