"""A model's own words beside its decisions, so that they can be parsed again."""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jbias.answers import letter_options, observers, parsing
from jbias.answers import tables as answer_tables
from jbias.cards import tables
from jbias.evals import table_suites


def add(
    card_tables: Sequence[tables.Table], sources: Iterable[Mapping[str, Any]]
) -> tuple[list[tables.Table], list[str]]:
    """Return the tables with the words that their decisions were parsed from, and lines.

    sources: entries of the files of decisions, with "set", "path", "sha256" and "parser". There is
    a line for each set whose words cannot be added.
    """
    by_set = {entry["set"]: entry for entry in sources if entry.get("parser")}
    completed, lines = [], []
    for table in card_tables:
        entry = by_set.get(table.dataset)
        if entry is None or table.measure:
            completed.append(table)
            continue
        try:
            completed.append(_with_words(table, entry))
        except (ValueError, OSError) as error:
            completed.append(table)
            lines.append(f"the model's own words on {table.dataset}: {error}")
    return completed, lines


def _with_words(table: tables.Table, entry: Mapping[str, Any]) -> tables.Table:
    """Return a table with its words; ValueError if its file has changed or is missing."""
    path = str(entry["path"])
    if not os.path.exists(path):
        raise ValueError(f"{path} is missing, which has them")
    observer = _find(path, table.dataset, str(entry["sha256"]))
    place = {image: i for i, image in enumerate(observer.images)}
    rows = [place.get(image, -1) for image in table.images]
    if -1 in rows or observer.responses is None:
        raise ValueError(f"{path} has other images, or no words")
    letters = None
    if observer.drawn_options is not None:
        letters = tuple(
            letter_options.format_cell(observer.drawn_options[i]) for i in rows
        )
    completed = dataclasses.replace(
        table,
        words=tuple(observer.responses[i] for i in rows),
        letters=letters,
        parser=parsing.VERSION,
    )
    if differing(completed):
        raise ValueError("the parser does not read all decisions in them")
    return completed


def _find(path: str, dataset: str, sha256: str) -> observers.Observer:
    """Return the observer of a file on a set; ValueError if the file has changed."""
    for observer in answer_tables.read(path):
        name = table_suites.SUITE_NAMES.get(observer.dataset, observer.dataset)
        if name == dataset:
            if observer.sha256 != sha256:
                raise ValueError(f"{path} has changed since it was measured")
            return observer
    raise ValueError(f"{path} has no decisions on the set")


def differing(table: tables.Table) -> list[str]:
    """Return the images whose words the current parser reads as another decision."""
    parsed = tables.parse_words(table)
    return [
        image
        for image, x, decision in zip(
            table.images, parsed, table.decided[""], strict=True
        )
        if (x.decision or tables.NO_ANSWER) != decision
    ]


def faults(table: tables.Table, entry: Mapping[str, Any]) -> list[str]:
    """Return lines on decisions that are not those of a table's words.

    entry: of the table in card.json. For another version of the parser, the only line asks for an
    older or newer jbias.
    """
    if table.words is None:
        has_words = bool(entry["parser"] or entry["reasons"])
        return [f"{table.file}: lacks the model's own words"] if has_words else []
    if entry["parser"] != parsing.VERSION:
        version = entry["parser"] or "unknown"
        line = (
            f"{table.file}: words were read by parser {version}, this jbias has parser "
            f"{parsing.VERSION}; this is no sign of a forged card: check it with the jbias "
            "that wrote it (versions.card)"
        )
        return [line]
    try:
        images, reasons = (
            differing(table),
            tables.count_reasons(tables.parse_words(table)),
        )
    except ValueError as error:
        return [f"{table.file}: words cannot be read ({error})"]
    lines = []
    if images:
        lines.append(
            f"{table.file}: {len(images):,} decisions are not those of the model's words, "
            f"such as that on {images[0]!r}"
        )
    if reasons != entry["reasons"]:
        lines.append(
            f"{table.file}: reasons for no answer are {entry['reasons']} in the card, "
            f"{reasons} by its words"
        )
    return lines
