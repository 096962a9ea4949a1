"""Rows of a CSV file with the place of each, for errors by file and line."""

import csv
import pathlib
from collections.abc import Iterator

_MARKS = (",", ";", "\t")


def read(path: str) -> tuple[list[str], Iterator[tuple[str, dict[str, str]]]]:
    """Gives the names of the first line, and (file:line, fields by name) of each row.

    Comma, semicolon or tab separates, whichever the first line has most of; quotes may
    hold any of them and line breaks. Spaces around fields go, empty lines are passed over.
    Raises ValueError where there is no such file, the text is not UTF-8, names occur twice,
    or fields are missing.
    """
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8-sig")
    except (FileNotFoundError, IsADirectoryError) as error:
        raise ValueError(
            f"{path}: must be a CSV file, got {error.strerror.lower()}; check the path"
        ) from None
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: must be text in UTF-8, got other bytes at {error.start}; save it as "
            "CSV in UTF-8"
        ) from None
    lines = text.splitlines(keepends=True)
    first = lines[0] if lines else ""
    reader = csv.reader(lines, delimiter=max(_MARKS, key=first.count))
    head = [name.strip() for name in next(reader, [])]
    if len(set(head)) < len(head):
        doubled = next(name for name in head if head.count(name) > 1)
        raise ValueError(
            f"{path}:1: must name every column once, got {doubled!r} twice"
        )
    return head, _rows(reader, head, path)


def _rows(reader, head: list[str], path: str) -> Iterator[tuple[str, dict[str, str]]]:
    for line in reader:
        place = f"{path}:{reader.line_num}"
        if not any(field.strip() for field in line):
            continue
        if len(line) != len(head):
            raise ValueError(
                f"{place}: must have {len(head)} fields as line 1, got {len(line)}; "
                "complete or remove the line"
            )
        yield place, {k: v.strip() for k, v in zip(head, line, strict=True)}
