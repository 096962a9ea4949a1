"""The tables of a submission: observers that decided about each published cue conflict once.

`read` returns all problems of a file, not only the first. A problem is one line, of the form
"file:line: fault; remedy", for all rows with the same fault.
"""

import collections
import dataclasses
import os
from collections.abc import Sequence
from typing import NamedTuple

from jbias import errors
from jbias.answers import (
    columns,
    observers,
    parsing,
    stimulus_names,
    table_rows,
    tables,
)
from jbias.answers import submission_info as info_file
from jbias.data import tables as data_tables
from jbias.runtime import messages

MAX_BYTES = 2**24  # Of a file; captions of 1,280 images have about half a MiB.
MAX_COLUMNS = 64
MAX_CELL = 20_000  # Letters.
MAX_ROWS = 128_000  # 100 observers.
_MAX_UNPACKED = 2**26  # Bytes of an unpacked Parquet file.
_COLUMNS_REMEDY = (
    "name the columns imagename and object_response, and rename or remove the others"
)
_NO_SCORES = (
    "scores are not accepted, they are computed from decisions; give a row per image with the "
    "columns imagename and object_response"
)


@dataclasses.dataclass(frozen=True)
class Read:
    """The observers of a file; none if the file has problems."""

    observers: tuple[observers.Observer, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]


class _Faults:
    """The faults of rows by kind, so that each kind is one line."""

    def __init__(self):
        self.by_kind: dict[str, list[tuple[str, str]]] = {}

    def add(self, kind: str, where: str, value: str) -> None:
        """Add a row; kind: text of the line, with {count} and {first}."""
        self.by_kind.setdefault(kind, []).append((where, value))

    def lines(self) -> list[str]:
        """Return a line for each kind of fault."""
        return [
            f"{cells[0][0]}: "
            + kind.format(count=f"{len(cells):,}", first=_shown(cells[0][1]))
            for kind, cells in self.by_kind.items()
        ]


def _shown(value: str) -> str:
    """Return the repr of a value for a message, in printable letters, cut after 100."""
    cut = value if len(value) <= 100 else f"{value[:100]} ..."
    return messages.printable(repr(cut))


_CONTRADICTS = (
    "{count} row(s) contradict the classes in the image's name, first {first}; correct or "
    "remove the column of labels, and use the published names"
)
_LONG = (
    f"{{count}} cell(s) have more than {MAX_CELL:,} letters, first {{first}}; remove the "
    "column or shorten the text"
)
_MARKED = (
    "{count} image name(s) have HTML, control or invisible characters, first {first}; use "
    "the published names"
)
_OTHER_SET = (
    "{count} row(s) are about another set, first {first}; only the set "
    f"{stimulus_names.CUE_CONFLICT} is accepted, so remove them"
)
_CAPITALS = "{count} image name(s) are written with capitals, first {first}, and read in lower case"
_UNKNOWN_ANSWER = (
    "{count} answer(s) are neither a class nor a word for no answer such as na, first "
    "{first}; write the class's name, or give the words in a column raw_response"
)
_REPEATED = "{count} image(s) have more than one decision, first {first}; leave one row per image"


def read(path: str) -> Read:
    """Return the observers of one file, or its problems."""
    try:
        _check_size(path)
        scan = _scan(path)
        cells, roles, warnings = _read_cells(path, scan)
    except (OSError, ValueError) as error:
        return Read((), (messages.one_line(error),), ())
    problems, row_warnings = _row_problems(path, cells)
    problems += _long_problems(scan)
    problems += _answer_problems(cells, roles)
    warnings += row_warnings
    if problems:
        return Read((), tuple(problems), tuple(warnings))
    notes: list[str] = []
    try:
        read_observers = tables.read(
            path, dataset=stimulus_names.CUE_CONFLICT, say=notes.append
        )
    except (OSError, ValueError) as error:
        return Read((), (without_flags(error),), tuple(warnings))
    warnings += filter(None, map(_note, notes))
    return Read(tuple(read_observers), (), tuple(warnings))


def _check_size(path: str) -> None:
    """Raise ValueError for a file that is too large, or would be when unpacked."""
    num_bytes = os.path.getsize(path)
    remedy = "keep the images' names, the decisions and the model's words"
    errors.check(
        num_bytes <= MAX_BYTES,
        path,
        f"have at most {MAX_BYTES:,} bytes",
        num_bytes,
        remedy,
    )
    if not path.lower().endswith(".parquet"):
        return
    size = table_rows.parquet_size(path)
    must = f"have at most {_MAX_UNPACKED:,} bytes when unpacked"
    errors.check(size.unpacked <= _MAX_UNPACKED, path, must, size.unpacked, remedy)
    _check_shape(path, size.num_columns, size.num_rows)


def _check_shape(where: str, num_columns: int, num_rows: int) -> None:
    """Raise ValueError for a table with too many columns or rows."""
    must = f"have at most {MAX_COLUMNS} columns"
    remedy = "keep imagename and object_response"
    errors.check(num_columns <= MAX_COLUMNS, where, must, num_columns, remedy)
    must = f"have at most {MAX_ROWS:,} rows"
    remedy = "keep the rows about cue conflicts"
    errors.check(num_rows <= MAX_ROWS, where, must, num_rows, remedy)


class _Scan(NamedTuple):
    """The header of a table, and what is wrong with the cells of any column."""

    where: str  # Of the header.
    header: list[str]
    long_cells: list[tuple[str, int]]  # Place and letters of the longest cell of a row.


def _scan(path: str) -> _Scan:
    """Return the header and the long cells of a table; ValueError for a table that is too large."""
    table = table_rows.read(path)
    where, header = next(table, (f"{path}:1", []))
    _check_shape(where, len(header), 0)
    long_cells = []
    for i, (row_where, row) in enumerate(table):
        _check_shape(row_where, len(row), i + 1)
        longest = max(map(len, row))
        if longest > MAX_CELL:
            long_cells.append((row_where, longest))
    return _Scan(where, header, long_cells)


def _read_cells(
    path: str, scan: _Scan
) -> tuple[list[tables.Cells], columns.Roles, list[str]]:
    """Return the rows of a table, its columns, and warnings; ValueError for no such table."""
    scores = [name for name in scan.header if info_file.is_score(name)]
    try:
        cells, roles = tables.read_cells(path, {})
    except ValueError as error:
        if scores:
            shown = messages.printable(errors.abbreviate(scores[0]))
            raise ValueError(
                f"{scan.where}: has scores, column {shown}; {_NO_SCORES}"
            ) from None
        raise ValueError(without_flags(error)) from None
    warnings = [
        f"{scan.where}: column {messages.printable(errors.abbreviate(name))} is not read: "
        "scores are computed from the decisions"
        for name in scores
    ]
    return cells, roles, warnings


def _note(line: str) -> str:
    """Return a reader's note for a submission; "" if it is advice on other commands alone."""
    fault, _, remedy = line.rpartition("; ")
    if "--parse" in remedy:
        return ""
    if "--options" in remedy:
        return (
            f"{fault}; if the question had another order of options, give the class of each "
            "answer in object_response"
        )
    return line


def without_flags(error: Exception) -> str:
    """Return a reader's error as one line, without advice about flags of other commands."""
    line = messages.one_line(error)
    fault, semicolon, remedy = line.rpartition("; ")
    if semicolon and "--" in remedy:
        return f"{fault}; {_COLUMNS_REMEDY}"
    return line


def _row_problems(
    path: str, cells: Sequence[tables.Cells]
) -> tuple[list[str], list[str]]:
    """Return the problems with the images of rows, and warnings."""
    stem = os.path.basename(path).rpartition(".")[0]
    by_name = stimulus_names.longest_begin(stem, stimulus_names.PUBLISHED_SETS)
    if by_name not in ("", stimulus_names.CUE_CONFLICT):
        line = f"{path}: is named for the set {by_name}; only decisions about the set"
        line += (
            f" {stimulus_names.CUE_CONFLICT} are accepted: remove or rename the file"
        )
        return [line], []
    faults, doubts = _Faults(), _Faults()
    published = frozenset(data_tables.cue_conflicts())
    by_observer: dict[str, dict[str, str]] = collections.defaultdict(dict)
    unknown: list[tuple[str, str]] = []
    for row in cells:
        if stimulus_names.set_name(row.dataset) not in (
            "",
            stimulus_names.CUE_CONFLICT,
        ):
            faults.add(_OTHER_SET, row.where, row.dataset)
            continue
        if info_file.text_fault(row.image.strip(), MAX_CELL):
            faults.add(_MARKED, row.where, row.image)
            continue
        name = stimulus_names.stimulus(row.image)
        image = name.casefold()
        if image not in published:
            unknown.append((row.where, row.image))
            continue
        if name != image:
            doubts.add(_CAPITALS, row.where, row.image)
        located = stimulus_names.Row(row.where, row.image, row.label, "")
        try:
            stimulus_names.recognise(
                [located], stem=stem, dataset=stimulus_names.CUE_CONFLICT
            )
        except ValueError:
            shown = (
                f"{row.image} with the label {row.label}" if row.label else row.image
            )
            faults.add(_CONTRADICTS, row.where, shown)
            continue
        observer_images = by_observer[row.observer.strip()]
        if image in observer_images:
            faults.add(_REPEATED, row.where, row.image)
        observer_images[image] = row.where
    problems = faults.lines() + _unknown_problems(unknown, num_rows=len(cells))
    if len(unknown) < len(cells):
        problems += _missing_problems(path, by_observer)
    return problems, doubts.lines()


def _long_problems(scan: _Scan) -> list[str]:
    """Return a line if cells of a table are too long."""
    faults = _Faults()
    for where, longest in scan.long_cells:
        faults.add(_LONG, where, f"{longest:,} letters")
    return faults.lines()


def _unknown_problems(
    unknown: Sequence[tuple[str, str]], *, num_rows: int
) -> list[str]:
    """Return a line about rows whose image is not published; unknown: place and name."""
    if not unknown:
        return []
    where, name = unknown[0]
    published = data_tables.cue_conflicts()
    if len(unknown) == num_rows:
        line = f"{where}: none of {num_rows:,} row(s) is about a published cue conflict, first"
        line += f" {_shown(name)}; only the set {stimulus_names.CUE_CONFLICT} is accepted, with"
        return [f"{line} names such as {published[0]}"]
    near = errors.nearest(stimulus_names.stimulus(name)[:100], published, cutoff=0.8)
    hint = f"did you mean {near}?" if near else f"names are such as {published[0]}"
    line = (
        f"{where}: {len(unknown):,} row(s) have altered or unknown image names, first"
    )
    return [f"{line} {_shown(name)}; {hint}"]


def _missing_problems(path: str, by_observer: dict[str, dict[str, str]]) -> list[str]:
    """Return a line for each observer that has no row for some published images."""
    problems = []
    published = data_tables.cue_conflicts()
    for observer, images in by_observer.items():
        missing = [name for name in published if name not in images]
        if missing:
            whose = f" of {_shown(observer)}" if observer else ""
            problems.append(
                f"{path}: {len(missing):,} of {len(published):,} images{whose} are missing, "
                f"first {missing[0]}; add a row for each, with na for no answer"
            )
    return problems


def _answer_problems(cells: Sequence[tables.Cells], roles: columns.Roles) -> list[str]:
    """Return a line if a table without raw words has answers that are not classes."""
    if roles.raw:
        return []
    faults = _Faults()
    for row in cells:
        answer = row.decision.strip()
        is_class = parsing.match_class(answer, stimulus_names.CLASSES16)
        if not is_class and not parsing.is_no_answer(answer):
            faults.add(_UNKNOWN_ANSWER, row.where, answer)
    return faults.lines()
