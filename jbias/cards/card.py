"""The card of a measured model: its content, and the folder that holds it.

card.json       facts and numbers, as card.schema.json describes
badge.svg       shape bias, its interval and n
section.md      a section for a model card
decisions/      the tables of decisions
.eval_results/  results for the Hugging Face Hub, if a benchmark was named
"""

import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import jbias
from jbias import errors
from jbias.cards import asked, badge, eval_results, folders, numbers, section, tables
from jbias.runtime import files

FILE = "card.json"
SCHEMA = "jbias-card-1"
# The fewest decisions for either cue. Wilson's interval of 95 % then reaches at most 9.6 points to
# each side; with 50 decisions, 13.4 points. `jbias submit` has the same limit.
MIN_DECISIONS = 100


class TooFewError(ValueError):
    """Raised for a shape bias of too few decisions for a card."""


def make(
    results: folders.Results,
    folder: str,
    *,
    hub: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Write the card of a measured model into a folder; return the content of card.json.

    folder: is created; a card that is there is replaced. hub: the entry "hub" of card.json; None:
    no results for the Hub are written. TooFewError for fewer than MIN_DECISIONS decisions for
    either cue; ValueError for a folder with other files.
    """
    computed = numbers.compute(results.tables)
    check_enough(results.model["name"], [number.to_json() for number in computed])
    errors.refuse_all(asked.faults(results.model, results.tables))
    _check_files(results.tables)
    _clear(folder)
    entries = [tables.write(folder, table) for table in results.tables]
    content = {
        "schema": SCHEMA,
        "model": dict(results.model),
        "preprocessing": results.preprocessing,
        "date": results.date,
        "versions": {**results.versions, "card": jbias.__version__},
        "stimuli": {name: dict(entry) for name, entry in results.stimuli.items()},
        "decisions": entries,
        "numbers": [number.to_json() for number in computed],
        "doubts": numbers.doubts(results.tables),
        "left_out": [*results.left_out],
        "hub": None if hub is None else dict(hub),
    }
    content["digest"] = digest(content)
    for name, text in render(content).items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        files.write(path, text)
    files.write(os.path.join(folder, FILE), to_text(content))
    return content


def file_names(content: Mapping[str, Any]) -> list[str]:
    """Return the names of the files that `render` returns."""
    return ["badge.svg", "section.md", *([eval_results.FILE] if content["hub"] else [])]


def _check_files(card_tables: Sequence[tables.Table]) -> None:
    """Raise ValueError if two tables have file names that differ only in upper and lower case."""
    names = [table.file.casefold() for table in card_tables]
    repeated = [name for name in names if names.count(name) > 1][:1]
    must = "have sets whose names differ in more than upper and lower case"
    errors.check(not repeated, "jbias card", must, errors.Words(", ".join(repeated)))


def check_enough(name: str, number_entries: Sequence[Mapping[str, Any]]) -> None:
    """Raise TooFewError if a shape bias is of fewer than MIN_DECISIONS decisions for either cue.

    name: of the model. number_entries: of card.json.
    """
    for entry in number_entries:
        if entry["name"] == "shape_bias" and entry["n"] < MIN_DECISIONS:
            must = f"have at least {MIN_DECISIONS} decisions for either cue on {entry['set']}"
            remedy = "a shape bias of fewer says little; measure more cue conflicts"
            errors.refuse(name, must, entry["n"], remedy, kind=TooFewError)


def digest(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a card, of all its entries but "digest"."""
    entries = {key: entry for key, entry in content.items() if key != "digest"}
    text = json.dumps(entries, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def to_text(content: Mapping[str, Any]) -> str:
    """Return the text of card.json."""
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def render(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts of the files that follow from card.json, by name."""
    texts = {"badge.svg": badge.draw(content), "section.md": section.write(content)}
    if content["hub"]:
        texts[eval_results.FILE] = eval_results.write(content)
    return texts


def _clear(folder: str) -> None:
    """Remove the files of a card from a folder; ValueError if the folder has no card, but files."""
    path = pathlib.Path(folder)
    if not path.exists():
        return
    errors.check(path.is_dir(), folder, "be a folder", "a file")
    names = {child.name for child in path.iterdir()}
    is_free = FILE in names or not names
    must = "be a new folder, or that of a card"
    errors.check(is_free, folder, must, errors.Words(f"{len(names)} other files"))
    (path / FILE).unlink(missing_ok=True)
    for name in ("badge.svg", "section.md"):
        (path / name).unlink(missing_ok=True)
    for name in (tables.FOLDER, os.path.dirname(eval_results.FILE)):
        shutil.rmtree(path / name, ignore_errors=True)
