"""Tables of decisions of a card: one row per image, and a check of each row.

Decisions about unchanged images are a CSV file that `jbias measure` reads, too:

    imagename,object_response,category,texture,check
    airplane1-bicycle2,bicycle,airplane,bicycle,6f0c1d2e

A measure that changes the images has a Parquet file, with a column per condition instead of
object_response. A model's own words are the column `raw_response`, and the options of a question
`drawn_options`, as `jbias ask` writes them. `check` is the start of the SHA-256 of the row's other
cells, so that a changed row can be named; the SHA-256 of the file is in card.json.
"""

import collections
import csv
import dataclasses
import functools
import hashlib
import io
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jbias import errors
from jbias.answers import letter_options, parsing, table_rows
from jbias.measures import decisions
from jbias.runtime import files

FOLDER = "decisions"
NO_ANSWER = "na"
NUMBER_LENGTH = 6  # Digits of an image whose name is unknown.
_IMAGE, _DECISION, _LABEL, _TEXTURE, _CHECK = (
    "imagename",
    "object_response",
    "category",
    "texture",
    "check",
)
_WORDS, _OPTIONS = "raw_response", "drawn_options"
_MAX_LINES = 20  # Of changed rows in one table.
_LONGEST_SAFE = 100  # Letters of a name, which an ending and a digest may follow.
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Table:
    """The decisions of one model about one set, under the conditions of a measure.

    measure: "" for unchanged images, else the measure that changes them. num_classes: the number of
    classes to decide among. options: of the measure, such as its seed, or what its numbers are
    compared with. words: of the model, from which the parser of version `parser` made the
    decisions; None if there are none. letters: options of each image's question, "" for none.
    """

    dataset: str
    measure: str = ""
    num_classes: int
    images: tuple[str, ...]
    label: tuple[str, ...]  # Class names; "" for a class that the model lacks.
    texture: tuple[str, ...] | None = None  # For cue conflicts.
    decided: Mapping[str, tuple[str, ...]]  # By condition: a class, or NO_ANSWER.
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    words: tuple[str, ...] | None = None
    letters: tuple[str, ...] | None = None
    parser: str = ""

    @property
    def file(self) -> str:
        """Name of the file in the card's folder."""
        return file_name(self.dataset, self.measure)

    @functools.cached_property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes that occur in the table, by id."""
        texts = {*self.label, *(self.texture or ())}
        for decided in self.decided.values():
            texts.update(decided)
        return tuple(sorted(texts - {"", NO_ANSWER}))

    @functools.cached_property
    def by_condition(self) -> dict[str, decisions.Decisions]:
        """The decisions by condition, as class ids of `classes`."""
        ids = {name: number for number, name in enumerate(self.classes)}
        ids |= {"": -1, NO_ANSWER: -1}
        columns = {"label": _to_ids(self.label, ids)}
        if self.texture is not None:
            columns["texture"] = _to_ids(self.texture, ids)
        return {
            condition: decisions.Decisions(_to_ids(decided, ids), columns)
            for condition, decided in self.decided.items()
        }


def _to_ids(names: Sequence[str], ids: Mapping[str, int]) -> np.ndarray:
    """Return class names as class ids."""
    return np.array([ids[name] for name in names], np.int32)


def parse_words(table: Table) -> list[parsing.Parsed]:
    """Return what the current parser reads in the words of a table, by image.

    ValueError for options that cannot be read.
    """
    classes = table.classes
    if {*classes} <= {*parsing.CLASSES16}:
        classes = parsing.CLASSES16
    parsed = []
    for i, words in enumerate(table.words):
        cell = table.letters[i] if table.letters else ""
        options = letter_options.parse_cell(cell, _OPTIONS)
        known = tuple(sorted({*classes, *options.values()})) if options else classes
        parsed.append(parsing.parse(words, options, known))
    return parsed


def count_reasons(parsed: Sequence[parsing.Parsed]) -> dict[str, int]:
    """Return the number of images without an answer by reason, such as "refusal"."""
    counts = collections.Counter(x.reason for x in parsed if not x.decision)
    return dict(sorted(counts.items()))


def safe_name(name: str) -> str:
    """Return a name as that of a file: letters, digits, ".", "_" and "-" only.

    Names that change in this, and long ones, have the start of their SHA-256 at the end, so that different names
    stay different.
    """
    safe = _UNSAFE.sub("-", name).strip(".-") or "set"
    if safe == name and len(name) <= _LONGEST_SAFE:
        return name
    return f"{safe[:_LONGEST_SAFE]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def file_name(dataset: str, measure: str) -> str:
    """Return the name of a table's file in the card's folder."""
    ending = f"{measure}.parquet" if measure else "csv"
    return f"{FOLDER}/{safe_name(dataset)}.{ending}"


def write(folder: str, table: Table) -> dict[str, Any]:
    """Write a table into a card's folder and return its entry in card.json."""
    errors.check_folder_name("a set's name", table.dataset)
    header, rows = _cells(table)
    rows = [[*row, row_check(row)] for row in rows]
    content = _to_csv(header, rows) if not table.measure else _to_parquet(header, rows)
    path = os.path.join(folder, table.file)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    files.write(path, content)
    return {
        "file": table.file,
        "set": table.dataset,
        "measure": table.measure,
        "num_classes": table.num_classes,
        "rows": len(table.images),
        "sha256": hashlib.sha256(content).hexdigest(),
        "options": dict(table.options),
        "parser": table.parser,
        "reasons": count_reasons(parse_words(table)) if table.words else {},
    }


def row_check(cells: Sequence[str]) -> str:
    """Return the check of a row: eight hex digits of the SHA-256 of its cells."""
    return hashlib.sha256("\t".join(cells).encode()).hexdigest()[:8]


def _cells(table: Table) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a table, the rows without their check."""
    columns: dict[str, Sequence[str]] = {_IMAGE: table.images}
    if table.measure:
        columns |= {_LABEL: table.label, **table.decided}
    else:
        columns |= {_DECISION: table.decided[""], _LABEL: table.label}
    if table.texture is not None:
        columns[_TEXTURE] = table.texture
    if table.words is not None:
        columns[_WORDS] = table.words
    if table.letters is not None:
        columns[_OPTIONS] = table.letters
    rows = [list(cells) for cells in zip(*columns.values(), strict=True)]
    return [*columns, _CHECK], rows


def _to_csv(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bytes:
    """Return a table as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue().encode()


def _to_parquet(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bytes:
    """Return a table as Parquet."""
    import pandas as pd

    frame = pd.DataFrame(rows, columns=list(header), dtype="object")
    return frame.to_parquet(index=False, compression="zstd")


def check_name(entry: Mapping[str, Any]) -> None:
    """Raise ValueError unless an entry of card.json names the file of its set and measure."""
    expected = file_name(entry["set"], entry["measure"])
    must = f"name the table {expected}"
    errors.check(entry["file"] == expected, "card.json", must, entry["file"])


def read(folder: str, entry: Mapping[str, Any]) -> tuple[Table, list[str]]:
    """Return a table of a card's folder, and a line for each way in which it has changed.

    entry: of card.json, as `write` returns it. ValueError or OSError for a file that is no such
    table.
    """
    name = entry["file"]
    check_name(entry)
    path = os.path.join(folder, name)
    (_, header), *located_rows = table_rows.read(path)
    lines = []
    with open(path, "rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 != entry["sha256"]:
        lines.append(f"{name}: its SHA-256 is {sha256}, in card.json {entry['sha256']}")
    if len(located_rows) != entry["rows"]:
        lines.append(
            f"{name}: has {len(located_rows):,} rows, in card.json {entry['rows']:,}"
        )
    errors.check(
        header[:1] == [_IMAGE] and header[-1:] == [_CHECK],
        name,
        f"have {_IMAGE} as the first column and {_CHECK} as the last",
        header,
    )
    changed = []
    for where, (*cells, check) in located_rows:
        if row_check(cells) != check:
            line = where.rpartition(":")[2]
            changed.append(f"{name}:{line}: the row of {cells[0]!r} has changed")
    lines += changed[:_MAX_LINES]
    if len(changed) > _MAX_LINES:
        lines.append(f"{name}: {len(changed) - _MAX_LINES:,} more rows have changed")
    rows = [cells for _, cells in located_rows]
    return _to_table(name, entry, header[:-1], rows), lines


def _to_table(
    name: str,
    entry: Mapping[str, Any],
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
) -> Table:
    """Return the table of a file's cells; name: of the file, for messages."""
    errors.check(
        len({*header}) == len(header), name, "name each column once", list(header)
    )
    columns = {x: tuple(row[i] for row in rows) for i, x in enumerate(header)}
    needed = [_IMAGE, _LABEL, *([] if entry["measure"] else [_DECISION])]
    lacking = [column for column in needed if column not in columns]
    errors.check(not lacking, name, "have all columns of a card", lacking)
    images, label = columns.pop(_IMAGE), columns.pop(_LABEL)
    texture = columns.pop(_TEXTURE, None)
    words, letters = columns.pop(_WORDS, None), columns.pop(_OPTIONS, None)
    if not entry["measure"]:
        columns = {"": columns[_DECISION]}
    repeated = len(images) - len({*images})
    errors.check(not repeated, name, "have a row per image", f"{repeated} repeated")
    for decided in columns.values():
        errors.check("" not in decided, name, "have a decision or na in each row", "")
    return Table(
        dataset=entry["set"],
        measure=entry["measure"],
        num_classes=entry["num_classes"],
        images=images,
        label=label,
        texture=texture,
        decided=columns,
        options=entry["options"],
        words=words,
        letters=letters,
        parser=entry["parser"],
    )


def check_class_names(dataset: str, classes: Sequence[str]) -> None:
    """Raise ValueError if a class has a name that tables use for no answer, or no name."""
    for name in classes:
        if not name or parsing.is_no_answer(name):
            must = "have classes whose names are not read as no answer"
            errors.refuse(dataset, must, name, "rename the class's folder")
