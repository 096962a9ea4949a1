"""Reader of tables of scores in JSON: a list of records, or JSON lines with one record per line.

pandas writes the two forms by `to_json(orient="records")`, the second with `lines=True`. Fields
of a nested record become columns such as `config.seed`.
"""

import collections
import json
import math
from collections.abc import Sequence
from typing import Any

from jbias.stats.reading import score_grid

_REMEDY = (
    'save a list of records or JSON lines, as pandas does by to_json(orient="records"), '
    "or CSV"
)
_DEEPEST = 20  # Records in records.
_DIGITS = 300  # Of a whole number; longer ones are no floats.

Record = dict[str, Any]


def read(text: str, path: str, *, title: str) -> score_grid.Grid:
    """Return the grid of a file of records, a row per record and a column per field.

    Columns are in the order in which fields first occur. Fields that a record lacks are None;
    a list is JSON text. text: content of the file. path: name of the file in messages. title:
    name of the data set if the table names none.
    Raise ValueError, with the line, for text that is not JSON, for JSON of another form or
    without any record, and for a field that is named twice.
    """
    records = _records(text, path)
    if not records:
        raise ValueError(f"{path}: must hold records of scores, got none; add some")
    flat = [(place, _flattened(record, place)) for place, record in records]
    names = [*dict.fromkeys(name for _, record in flat for name in record)]
    return score_grid.Grid(
        columns=tuple((name,) for name in names),
        levels=("",),
        cells=[[record.get(name) for name in names] for _, record in flat],
        places=[place for place, _ in flat],
        source=path,
        title=title,
    )


def _records(text: str, path: str) -> list[tuple[str, Record]]:
    """Return (place for messages, fields) of each record; raise ValueError for other JSON.

    A place is "path: record 1" in a list, "path:1" in JSON lines; records and lines are counted
    from 1. A single record that contains lists or records is also refused.
    """
    if text.lstrip("\ufeff \t\r\n").startswith("["):
        values = _parse(text, path)
        places = [f"{path}: record {number + 1}" for number in range(len(values))]
    else:
        lines = [
            (f"{path}:{number}", line)
            for number, line in enumerate(text.lstrip("\ufeff").split("\n"), start=1)
            if line.strip()
        ]
        if len(lines) > 1 and lines[0][1].strip() == "{":
            raise ValueError(f"{path}: must hold a list of records; {_REMEDY}")
        values = [_parse(line, place) for place, line in lines]
        places = [place for place, _ in lines]
    for place, value in zip(places, values, strict=True):
        if not isinstance(value, dict):
            raise ValueError(  # noqa: TRY004 - of the user's file.
                f"{place}: must be a record of named fields; {_REMEDY}"
            )
    is_one_object = len(values) == 1 and any(
        isinstance(x, dict | list) for x in values[0].values()
    )
    if is_one_object:
        raise ValueError(
            f"{path}: must hold a record a score, got one object of "
            f"{', '.join([*values[0]][:5])}; {_REMEDY}"
        )
    return list(zip(places, values, strict=True))


def _parse(text: str, place: str) -> Any:
    """Return the value of a JSON text.

    Raise ValueError, which begins with `place`, if the text is invalid or an object names a
    field twice.
    """

    def record(fields: list[tuple[str, Any]]) -> Record:
        """Return the fields of a JSON object; raise ValueError if a name is repeated."""
        _check_once([name for name, _ in fields], place)
        return dict(fields)

    try:
        return json.loads(text, parse_int=_whole_number, object_pairs_hook=record)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{place}: must be JSON, got {error}; {_REMEDY}") from None


def _check_once(names: Sequence[str], place: str) -> None:
    """Raise ValueError if a record names a field twice; place: start of the message."""
    doubled = [name for name, count in collections.Counter(names).items() if count > 1]
    if doubled:
        raise ValueError(
            f"{place}: every field must be named once, got {doubled[0]!r} twice; rename one"
        )


def _whole_number(digits: str) -> int | float:
    """Return a whole number from its digits; infinity for 300 digits or more."""
    return int(digits) if len(digits) < _DIGITS else math.inf


def _flattened(record: Record, place: str, *, depth: int = 0) -> Record:
    """Return a record without nested records: their fields become config.seed and the like.

    Lists become JSON text. place: name of the record in messages. depth: number of records
    around this one. Raise ValueError for a depth of more than 20, and for two fields of one name.
    """
    if depth > _DEEPEST:
        raise ValueError(
            f"{place}: must not have records so deep in records; {_REMEDY}"
        )
    fields: list[tuple[str, Any]] = []
    for name, value in record.items():
        if isinstance(value, dict):
            inner = _flattened(value, place, depth=depth + 1)
            fields += [(f"{name}.{key}", x) for key, x in inner.items()]
        else:
            fields.append(
                (name, json.dumps(value) if isinstance(value, list) else value)
            )
    _check_once([name for name, _ in fields], place)
    return dict(fields)
