"""Rows of a CSV file with the place of each, for errors by file and line."""

import csv
import io
import math
from collections.abc import Iterator, Sequence

from jbias import numerals

Line = tuple[str, dict[str, str]]  # file:line, and the fields by name.
Lines = Iterator[Line]
_MARKS = (",", ";", "\t")


def read(path: str, needed: Sequence[str] = ()) -> tuple[list[str], Lines]:
    """Gives the names of the first line, and (file:line, fields by name) of each row.

    Comma, semicolon or tab separates, whichever the first line has most of; quotes may
    hold any of them and line breaks. Spaces around fields go, empty lines are passed over.
    Raises ValueError where there is no such file, the text is not UTF-8, names occur twice,
    columns that are needed or fields are missing.
    """
    from jbias.untrusted import opening  # Late: --help waits for it nowhere.

    try:
        with opening.open_text(path, newline="") as file:
            text = file.read()
    except (FileNotFoundError, IsADirectoryError) as error:
        told = f"{path}: must be a CSV file, got {error.strerror.lower()}"
        raise ValueError(f"{told}; check the path") from None
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: must be text in UTF-8, got other bytes at {error.start}; save it as "
            "CSV in UTF-8"
        ) from None
    # Lines end at \n, \r or both: names may hold what Unicode calls line breaks, too.
    first = io.StringIO(text, newline=None).readline()
    lines = io.StringIO(text, newline="")
    reader = csv.reader(lines, delimiter=max(_MARKS, key=first.count))
    rows = _fields(reader, path)
    head = [name.strip() for name in next(rows, [])]
    if len(set(head)) < len(head):
        doubled = next(name for name in head if head.count(name) > 1)
        told = f"{path}:1: must name every column once, got {doubled!r}"
        raise ValueError(f"{told} twice")
    if missing := [name for name in needed if name not in head]:
        told = f"{missing[0]!r}, got {', '.join(head) or 'nothing'}"
        raise ValueError(f"{path}:1: must name the column {told}")
    return head, _rows(reader, rows, head, path)


def _fields(reader, path: str) -> Iterator[list[str]]:
    """Yield the fields of each row; raise ValueError where the text is no CSV."""
    try:
        yield from reader
    except csv.Error as error:
        raise ValueError(
            f"{path}:{reader.line_num}: must be a CSV file, got a row that cannot be read "
            f"({error}); close the quote that is open there"
        ) from None


def _rows(reader, rows: Iterator[list[str]], head: list[str], path: str) -> Lines:
    for line in rows:
        place = f"{path}:{reader.line_num}"
        if not any(field.strip() for field in line):
            continue
        if len(line) != len(head):
            raise ValueError(
                f"{place}: must have {len(head)} fields as line 1, got {len(line)}; "
                "complete or remove the line"
            )
        yield place, {k: v.strip() for k, v in zip(head, line, strict=True)}


def read_named(
    path: str, needed: Sequence[str], filled: str, *, key: str | None = None
) -> dict[str, Line]:
    """Gives (file:line, fields) of each row by its name in the column `key`, or the first.

    Raises ValueError by file and line as `read` does, where a column of `needed` is
    missing, a name or the field of `filled` is empty, or a name occurs twice.
    """
    head, lines = read(path, needed)
    key, rows = key or head[0], {}
    for place, fields in lines:
        if not fields[key] or not fields[filled]:
            lost = f"{place}: {key} and {filled} must not be empty; name them"
            raise ValueError(lost)
        if (name := fields[key]) in rows:
            first = rows[name][0]
            lost = f"{place}: a model must occur once, got {name!r} of {first} again"
            raise ValueError(lost)
        rows[name] = place, fields
    return rows


def parse_number(field: str, name: str, place: str, *, needed: bool = False) -> float:
    """Return the number of a field; NaN for "" and "nan" unless it is needed.

    Raises ValueError, with `place` and `name`, for all else.
    """
    if field.lower() in ("", "nan") and not needed:
        return math.nan
    try:
        return numerals.real(field)
    except ValueError:
        told = f"{place}: {name} must be a finite number, got {field!r}; correct it, or leave"
        raise ValueError(f"{told} the model or the measure out") from None
