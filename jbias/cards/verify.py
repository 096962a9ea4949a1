"""Check of a card: its numbers are computed again from the decisions beside it.

    for line in differences("cards/resnet50"):
        print(line)

Checked are the form of card.json, its digest, the digest and each row of the tables of decisions, each
number, the doubts, and the texts that follow from card.json (badge, section, results for the Hub).
A card has no signature: this finds changes and errors, not a card that was made up as a whole.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jbias import errors
from jbias.cards import card, numbers, schema, tables
from jbias.runtime import messages
from jbias.untrusted import opening

_MAX_BYTES = 2**24  # Of card.json.


class Verified(NamedTuple):
    """A card that was checked: the number of its numbers and decisions, and its differences."""

    path: str
    num_numbers: int
    num_decisions: int
    differences: tuple[str, ...]


def verify(path: str) -> Verified:
    """Return the differences of a card from its decisions; path: of card.json, or its folder.

    ValueError or OSError if there is no card.
    """
    path = os.fspath(path)
    if os.path.isdir(path):
        path = os.path.join(path, card.FILE)
    if not os.path.exists(path):
        errors.refuse(path, "be a card or its folder", remedy="check the path")
    content = _read(path)
    lines = schema.faults(content)
    if lines:
        return Verified(path, 0, 0, tuple(lines))
    folder = os.path.dirname(path)
    if card.digest(content) != content["digest"]:
        lines.append(f"{card.FILE}: has changed since its digest was written")
    card_tables, table_lines = _read_tables(folder, content)
    lines += table_lines
    if card_tables is not None:
        lines += _number_lines(content, card_tables)
    lines += _file_lines(folder, content)
    num_decisions = sum(
        len(table.images) * len(table.decided) for table in card_tables or ()
    )
    return Verified(
        path,
        num_numbers=len(content["numbers"]),
        num_decisions=num_decisions,
        differences=tuple(map(messages.one_line, lines)),
    )


def _read(path: str) -> Any:
    """Return the content of card.json; ValueError if it is no JSON."""
    size = os.path.getsize(opening.require_regular(path))
    errors.check(size <= _MAX_BYTES, path, f"have at most {_MAX_BYTES:,} bytes", size)
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path}: must be JSON ({messages.one_line(error)}); write the card again"
        ) from None


def _refuse_constant(name: str) -> None:
    """Raise ValueError for NaN and infinity, which are no JSON."""
    raise ValueError(f"{name} is no number of JSON")


def _read_tables(
    folder: str, content: Mapping[str, Any]
) -> tuple[list[tables.Table] | None, list[str]]:
    """Return the tables of a card, and lines on their differences; None if one cannot be read."""
    card_tables: list[tables.Table] | None = []
    lines = []
    for entry in content["decisions"]:
        try:
            table, table_lines = tables.read(folder, entry)
        except (ValueError, OSError) as error:
            lines.append(f"{entry['file']}: cannot be read ({error})")
            card_tables = None
            continue
        lines += table_lines
        if card_tables is not None:
            card_tables.append(table)
    names = [entry["file"] for entry in content["decisions"]]
    lines += [f"{name}: is listed twice" for name in {*names} if names.count(name) > 1]
    return card_tables, lines


def _number_lines(
    content: Mapping[str, Any], card_tables: Sequence[tables.Table]
) -> list[str]:
    """Return a line for each entry of a number that differs from that of the decisions."""
    try:
        computed = [number.to_json() for number in numbers.compute(card_tables)]
    except ValueError as error:
        return [str(error)]
    by_key = {(x["name"], x["set"]): x for x in computed}
    lines = []
    try:
        card.check_enough(content["model"]["name"], computed)
    except card.TooFewError as error:
        lines.append(str(error))
    keys = [(entry["name"], entry["set"]) for entry in content["numbers"]]
    for entry in content["numbers"]:
        key = entry["name"], entry["set"]
        where = f"{key[0]} on {key[1]}"
        if keys.count(key) > 1:
            lines.append(f"{where}: is in the card {keys.count(key)} times")
        if key not in by_key:
            lines.append(f"{where}: the card has a number that no decisions give")
            continue
        for name, value in by_key[key].items():
            if not _are_equal(entry[name], value):
                lines.append(
                    f"{where}: {name} is {entry[name]!r} in the card, {value!r} by its decisions"
                )
    for name, dataset in by_key.keys() - {*keys}:
        lines.append(
            f"{name} on {dataset}: the card lacks this number of its decisions"
        )
    doubts = numbers.doubts(card_tables)
    for line in dict.fromkeys([*content["doubts"], *doubts]):
        if content["doubts"].count(line) != doubts.count(line):
            in_card, by_decisions = content["doubts"].count(line), doubts.count(line)
            lines.append(
                f"doubt {line!r}: is {in_card} times in the card, {by_decisions} times by "
                "its decisions"
            )
    lacking = {table.dataset for table in card_tables} ^ content["stimuli"].keys()
    lines += [f"stimuli: {name!r} has no entry or no decisions" for name in lacking]
    return lines


def _are_equal(first: Any, second: Any) -> bool:
    """Return True for equal entries of a number; floats may differ by rounding."""
    if isinstance(first, float) or isinstance(second, float):
        return numbers.is_close(first, second)
    return first == second


def _file_lines(folder: str, content: Mapping[str, Any]) -> list[str]:
    """Return a line for each text that is not the one that follows from card.json."""
    lines = []
    try:
        texts = card.render(content)
    except (LookupError, TypeError, ValueError, StopIteration) as error:
        return [f"{card.FILE}: has no badge and section ({messages.one_line(error)})"]
    for name, text in texts.items():
        path = os.path.join(folder, name)
        try:
            with open(opening.require_regular(path), encoding="utf-8") as file:
                is_equal = file.read(len(text) + 1) == text
        except (OSError, ValueError):
            lines.append(f"{name}: cannot be read")
            continue
        if not is_equal:
            lines.append(f"{name}: is not the text that follows from {card.FILE}")
    lines += _unlisted_lines(folder, content)
    return lines


def _unlisted_lines(folder: str, content: Mapping[str, Any]) -> list[str]:
    """Return a line for each file among the decisions that card.json does not name."""
    path = os.path.join(folder, tables.FOLDER)
    present = sorted(os.listdir(path)) if os.path.isdir(path) else []
    listed = {os.path.basename(entry["file"]) for entry in content["decisions"]}
    return [
        f"{tables.FOLDER}/{name}: is not in {card.FILE}"
        for name in present
        if name not in listed
    ]
