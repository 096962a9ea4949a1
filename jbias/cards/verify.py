"""Check of a card: its numbers are computed again from the decisions beside it.

    for line in differences("cards/resnet50"):
        print(line)

Checked are the form of card.json, its digest, the digest and each row of the tables of decisions, each
number, the doubts, each set's number, names and classes of images, a model's own words, the texts
that follow from card.json (badge, section, results for the Hub), and that the folder has no other
files. Symbolic links are differences, and are not followed.

A card has no signature: this finds changes and errors, not a card that was made up as a whole.
docs/card.md says which changes are not found.
"""

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jbias import errors
from jbias.cards import asked, card, numbers, schema, stimuli, tables, words
from jbias.runtime import messages
from jbias.untrusted import opening

_MAX_BYTES = 2**24  # Of card.json.
_MAX_LINES = 20  # About files that do not belong to a card.
_FRACTIONS = (
    "value",
    "lower",
    "upper",
    "temperature",
)  # Entries that may be fractions.


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
    if not os.path.lexists(path) or os.path.basename(path) != card.FILE:
        errors.refuse(path, "be a card or its folder", remedy="check the path")
    if os.path.islink(path):
        must = "be a regular file, not a symbolic link"
        remedy = "copy the files of the card into a folder of their own"
        errors.refuse(path, must, remedy=remedy)
    content = _read(path)
    lines = [*schema.faults(content), *_fraction_lines(content)]
    if lines:
        return Verified(path, 0, 0, tuple(lines))
    folder = os.path.dirname(path)
    present, tree_lines = _find_files(folder, content)
    if card.digest(content) != content["digest"]:
        lines.append(f"{card.FILE}: has changed since its digest was written")
    card_tables, table_lines = _read_tables(folder, content, present)
    lines += table_lines
    if card_tables is not None:
        lines += _number_lines(content, card_tables)
        lines += _stimulus_lines(content, card_tables)
        for table, entry in zip(card_tables, content["decisions"], strict=True):
            lines += words.faults(table, entry)
        lines += asked.faults(content["model"], card_tables)
    lines += _file_lines(folder, content, present)
    lines += tree_lines
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
            return json.load(
                file,
                parse_constant=_refuse_constant,
                object_pairs_hook=_refuse_repeated,
            )
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path}: must be JSON ({messages.one_line(error)}); write the card again"
        ) from None


def _refuse_constant(name: str) -> None:
    """Raise ValueError for NaN and infinity, which are no JSON."""
    raise ValueError(f"{name} is no number of JSON")


def _refuse_repeated(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; ValueError for a key that is there twice.

    JSON allows repeated keys, and readers disagree about which of the values counts.
    """
    entries = dict(pairs)
    if len(entries) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {errors.abbreviate(repeated)} is there twice")
    return entries


def _fraction_lines(content: Any, path: str = "") -> list[str]:
    """Return a line for each whole number that is written as a fraction, such as 600.0.

    JSON does not tell the two apart, but the texts of a card do. path: of the content in the card.
    """
    if isinstance(content, dict):
        entries = [(f"{path}.{key}".lstrip("."), x) for key, x in content.items()]
    elif isinstance(content, list):
        entries = [(f"{path}[{i}]", x) for i, x in enumerate(content)]
    else:
        is_fraction = path.rpartition(".")[2] in _FRACTIONS
        must = f"{card.FILE}: {path} must be written as a whole number, got {content!r}"
        return [must] if isinstance(content, float) and not is_fraction else []
    return [line for name, x in entries for line in _fraction_lines(x, name)]


def _find_files(
    folder: str, content: Mapping[str, Any]
) -> tuple[frozenset[str], list[str]]:
    """Return the regular files of a card that are there, and lines on all that is no card's.

    Files are named by their path in the folder, with "/". Only folders that the card has are
    opened, and no symbolic link is followed.
    """
    expected = {card.FILE, *card.file_names(content)}
    expected |= {entry["file"] for entry in content["decisions"]}
    folders = {os.path.dirname(name) for name in expected} - {""}
    present, lines = set(), []
    for name, kind in _scan(folder, folders):
        if kind == "file" and name in expected:
            present.add(name)
        else:
            lines.append(
                f"{name}: is {kind} that is not of the card"
                if kind != "file"
                else f"{name}: is not in {card.FILE}"
            )
    more = len(lines) - _MAX_LINES
    if more > 0:
        lines = [*lines[:_MAX_LINES], f"{more:,} more files are not of the card"]
    return frozenset(present), lines


def _scan(folder: str, folders: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield (path in the folder, kind) of all that is in a card's folder, but its own folders.

    folders: names of folders that are opened if they are no links. The kind is "file", "a folder",
    "a symbolic link" or "a special file".
    """
    for place in ("", *sorted(folders)):
        path = os.path.join(folder, place)
        if place and (os.path.islink(path) or not os.path.isdir(path)):
            continue  # Named as an entry of `folder`.
        with os.scandir(path) as entries:
            children = sorted(entries, key=lambda entry: entry.name)
        for child in children:
            name = f"{place}/{child.name}" if place else child.name
            if child.is_symlink():
                yield name, "a symbolic link"
            elif child.is_file(follow_symlinks=False):
                yield name, "file"
            elif child.is_dir(follow_symlinks=False):
                if name not in folders:
                    yield name, "a folder"
            else:
                yield name, "a special file"


def _read_tables(
    folder: str, content: Mapping[str, Any], present: Collection[str]
) -> tuple[list[tables.Table] | None, list[str]]:
    """Return the tables of a card, and lines on their differences; None if one cannot be read.

    present: the regular files that are there.
    """
    card_tables: list[tables.Table] | None = []
    lines = []
    for entry in content["decisions"]:
        try:
            tables.check_name(entry)
            is_present = entry["file"] in present
            must = "be a regular file in the card's folder"
            errors.check(is_present, entry["file"], must, errors.Words("none"))
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
    if keys != [*by_key] and sorted(keys) == sorted(by_key):
        lines.append(
            f"{card.FILE}: numbers must be in the order in which they are computed"
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
    return lines


def _stimulus_lines(
    content: Mapping[str, Any], card_tables: Sequence[tables.Table]
) -> list[str]:
    """Return lines on sets whose entry is not that of their decisions."""
    entries, kind = content["stimuli"], content["model"]["kind"]
    lacking = {table.dataset for table in card_tables} ^ entries.keys()
    lines = [f"stimuli: {name!r} has no entry or no decisions" for name in lacking]
    for name in entries.keys() - lacking:
        of_set = [table for table in card_tables if table.dataset == name]
        lines += stimuli.faults(name, entries[name], of_set, kind=kind)
    return lines


def _are_equal(first: Any, second: Any) -> bool:
    """Return True for equal entries of a number; floats may differ by rounding."""
    if isinstance(first, float) or isinstance(second, float):
        return numbers.is_close(first, second)
    return first == second


def _file_lines(
    folder: str, content: Mapping[str, Any], present: Collection[str]
) -> list[str]:
    """Return a line for each text that is not the one that follows from card.json."""
    lines = []
    try:
        texts = card.render(content)
    except (
        LookupError,
        TypeError,
        ValueError,
        ArithmeticError,
        StopIteration,
    ) as error:
        return [f"{card.FILE}: has no badge and section ({messages.one_line(error)})"]
    for name, text in texts.items():
        if name not in present:
            lines.append(
                f"{name}: cannot be read, as it is no regular file in the folder"
            )
            continue
        try:
            with open(os.path.join(folder, name), encoding="utf-8", newline="") as file:
                is_equal = file.read(len(text) + 1) == text
        except (OSError, ValueError):
            lines.append(f"{name}: cannot be read")
            continue
        if not is_equal:
            lines.append(f"{name}: is not the text that follows from {card.FILE}")
    return lines
