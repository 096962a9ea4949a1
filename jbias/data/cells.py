"""Tables of the user's own: CSV files of names, and columns of names as numbers."""

import csv
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Int

MOST = 64  # More values are too many for an attribute, unless it is asked for.
NONE = "(none)"  # What an image with an empty cell has.
# What a batch calls by these names is another thing.
_TAKEN = (
    *("image", "label", "target", "texture", "index", "weight", "weight_sum"),
    *("views", "consistency", "binary", "other", "once", "renders"),
)


def read(path: str) -> tuple[tuple[str, ...], list[tuple[int, dict[str, str]]]]:
    """The header of a CSV file, and by line number the cells of each line, trimmed.

    Raises ValueError, one line, for what is no CSV in UTF-8, a name twice in the header
    and a line with more cells than the header.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, restkey="", restval="", skipinitialspace=True)
            header = tuple(name.strip() for name in reader.fieldnames or ())
            reader.fieldnames = header
            rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: must be a CSV file in UTF-8: {error}") from error
    if len(set(header)) < len(header):
        again = next(name for name in header if header.count(name) > 1)
        raise ValueError(f"{path}:1: columns must have different names, got {again!r}")
    found = []
    for number, row in rows:
        more = row.pop("", ())  # A column without a name, such as pandas' index.
        if isinstance(more, list) and any(cell.strip() for cell in more):
            raise ValueError(
                f"{path}:{number}: a line must have as many cells as the header,"
                f" {len(header)}, got {len(header) + len(more)}; quote commas"
            )
        found.append((number, {name: cell.strip() for name, cell in row.items()}))
    return tuple(filter(None, header)), found


def numbered(names: Sequence[str]) -> tuple[tuple[str, ...], Int[np.ndarray, "n"]]:
    """Different names, sorted, and the number of each cell's; empty ones are the last."""
    known = sorted(set(names) - {"", NONE})
    known += [NONE] if {"", NONE} & set(names) else []
    number = {name: i for i, name in enumerate(known)} | {"": len(known) - 1}
    return tuple(known), np.array([number[name] for name in names], np.int32)


def is_taken(name: str) -> bool:
    """Tells whether a column must not have this name, because a batch has it."""
    return name in _TAKEN or name.startswith("accepted_")


def unfit(names: Sequence[str]) -> str:
    """Why a column is no attribute by itself, or "": empty, measured, too many values."""
    count = len({*names} - {""})
    if not count:
        return "empty"
    if _is_measured(names):
        return "numbers that are not whole"
    return f"{count:,} values" if count > MOST else ""


def _is_measured(names: Sequence[str]) -> bool:
    try:
        numbers = [float(name) for name in names if name]
    except ValueError:
        return False
    return not all(number.is_integer() for number in numbers)


def joined(
    where: str, table: Mapping[str, Sequence[str]], asked: Sequence[str]
) -> list[str]:
    """Cells of several columns as one name each, "black smile"; empty where one is."""
    rows = list(zip(*(table[name] for name in asked), strict=True))
    if len({" ".join(row) for row in rows if all(row)}) < len(
        {r for r in rows if all(r)}
    ):
        raise ValueError(
            f"{where}: values of {'+'.join(asked)} must differ when written one after the"
            " other; rename some"
        )
    return [" ".join(row) if all(row) else "" for row in rows]
