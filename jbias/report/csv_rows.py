"""Reader of CSV files that returns file and line of each row for error messages."""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from typing import Any

from jbias import numerals

Line = tuple[str, dict[str, str]]  # file:line, and the fields by name.
Lines = Iterator[Line]
_MARKS = (",", ";", "\t")


def read(path: str, needed: Sequence[str] = ()) -> tuple[list[str], Lines]:
    """Return (column names, iterator over the rows as (file:line, fields by column name)).

    The separator is comma, semicolon or tab: the most frequent in the first line. Quoted
    fields may contain separators and line breaks. Spaces around fields are removed, empty
    lines after the first are skipped. Raises ValueError if the file does not exist, is a folder or
    is not UTF-8. Also raises ValueError if a column name occurs twice or a column of `needed` is
    missing. The iterator raises ValueError for a row with too few or many fields, and for invalid
    CSV.
    """
    from jbias.untrusted import opening  # A slow import, which --help does not need.

    try:
        with opening.open_text(path, newline="") as file:
            text = file.read()
    except (FileNotFoundError, IsADirectoryError) as error:
        reason = (error.strerror or "cannot be opened").lower()
        raise ValueError(f"{path}: {reason}; check the path of the CSV file") from None
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: must be text in UTF-8, got other bytes at {error.start}; save it as "
            "CSV in UTF-8"
        ) from None
    # Lines end at \n, \r or both; other line breaks of Unicode may be in names.
    first = io.StringIO(text, newline=None).readline()
    lines = io.StringIO(text, newline="")
    reader = csv.reader(lines, delimiter=max(_MARKS, key=first.count))
    rows = _fields(reader, path)
    head = [name.strip() for name in next(rows, [])]
    if len(set(head)) < len(head):
        doubled = next(name for name in head if head.count(name) > 1)
        raise ValueError(
            f"{path}:1: must name every column once, got {doubled!r} twice; rename one"
        )
    missing = [name for name in needed if name not in head]
    if missing:
        raise ValueError(
            f"{path}:1: must name the column {missing[0]!r}, got "
            f"{', '.join(head) or 'nothing'}; add the column"
        )
    return head, _rows(reader, rows, head, path)


def _fields(reader: Any, path: str) -> Iterator[list[str]]:
    """Yield the fields of each row; raise ValueError with file and line for invalid CSV.

    reader: a CSV reader of the file `path`.
    """
    try:
        yield from reader
    except csv.Error as error:
        raise ValueError(
            f"{path}:{reader.line_num}: must be a CSV file, got a row that cannot be read "
            f"({error}); close the quote that is open there"
        ) from None


def _rows(reader: Any, rows: Iterator[list[str]], head: list[str], path: str) -> Lines:
    """Yield (file:line, fields by name) of each row that is not empty.

    reader: the CSV reader, for the line number. rows: fields of the rows after the first. head:
    names of the columns. path: path of the file, for errors. Raises ValueError, with file and
    line, for a row with too few or many fields.
    """
    for line in rows:
        place = f"{path}:{reader.line_num}"
        if not any(field.strip() for field in line):
            continue
        if len(line) != len(head):
            raise ValueError(
                f"{place}: must have {len(head)} fields as line 1, got {len(line)}; "
                "complete or remove the line"
            )
        yield (
            place,
            {name: field.strip() for name, field in zip(head, line, strict=True)},
        )


def read_named(
    path: str, needed: Sequence[str], filled: str, *, key: str | None = None
) -> dict[str, Line]:
    """Return a dict from the name of each row to (file:line, fields of the row by column name).

    key: column with the names of the rows; None for the first column. needed: columns that the file
    must have in addition to `filled` and `key`. filled: column whose fields must not be empty.
    Raises ValueError as `read` does, and with file and line if a name or a field of `filled` is
    empty, or a name occurs twice.
    """
    head, lines = read(path, needed)
    key = key or head[0]
    rows = {}
    for place, fields in lines:
        if not fields[key] or not fields[filled]:
            raise ValueError(
                f"{place}: {key} and {filled} must not be empty; fill them"
            )
        name = fields[key]
        if name in rows:
            first_place, _ = rows[name]
            raise ValueError(
                f"{place}: {name!r} occurs again, first in {first_place}; remove one of the "
                "rows"
            )
        rows[name] = place, fields
    return rows


def parse_number(field: str, name: str, place: str, *, needed: bool = False) -> float:
    """Return the number in a field; NaN for "" and "nan" unless the number is needed.

    Raises ValueError for other text. name: name of the column, for the error. place: file:line of
    the row, for the error.
    """
    if field.lower() in ("", "nan") and not needed:
        return math.nan
    try:
        return numerals.real(field)
    except ValueError:
        raise ValueError(
            f"{place}: {name} must be a finite number, got {field!r}; correct it, or leave "
            "the model or the measure out"
        ) from None
