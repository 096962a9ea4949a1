"""The question that `jbias ask` asked a model behind an endpoint, for its card.

Read are ask.json (the settings), answers.jsonl and requests.jsonl of the folder in which the table
of answers is. The endpoint's key is in none of them.
"""

import csv
import datetime
import hashlib
import json
import os
import pathlib
import tempfile
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jbias import errors
from jbias.asking import answer_table, ledger, settings, stimuli
from jbias.cards import tables
from jbias.runtime import files

_AGAIN = "restore it, or ask again"
# Entries that do not depend on the answers: what makes a question another one.
_QUESTION = (
    "endpoint",
    "model",
    "prompt",
    "words",
    "order",
    "seed",
    "temperature",
    "answer_tokens",
    "detail",
    "extra",
    "classes",
    "images_sha256",
)


def describe(folder: str | os.PathLike) -> dict[str, Any] | None:
    """Return the entry "asked" of a card's model; None for a folder without ask.json.

    ValueError or OSError for damaged files.
    """
    path = pathlib.Path(folder) / settings.FILE
    if not path.is_file():
        return None
    stored = files.read_json(path, dict, _AGAIN)
    book = ledger.Ledger(os.fspath(folder), is_read_only=True)
    answers = book.answers.values()
    times = [float(answer["time"]) for answer in answers if "time" in answer]
    order, temperature = stored.get("order", ""), stored.get("temperature")
    return {
        "endpoint": urllib.parse.urlsplit(str(stored.get("endpoint", ""))).netloc,
        "model": str(stored.get("model", "")),
        "served_models": _served_models(answers),
        "prompt": str(stored.get("prompt", "")),
        "words": str(stored.get("words", "")),
        "order": str(order),
        "seed": stored.get("seed"),
        "temperature": temperature,
        "answer_tokens": stored.get("answer_tokens"),
        "detail": str(stored.get("detail", "")),
        "extra": json.dumps(stored.get("extra", {}), sort_keys=True),
        "classes": [str(name) for name in stored.get("classes", ())],
        "images_sha256": str(stored.get("images_sha256", "")),
        "answers": len(answers),
        "refused": sum(bool(answer.get("refusal")) for answer in answers),
        "refused_images": len(book.refused),
        "cut_off": sum(answer.get("finish_reason") == "length" for answer in answers),
        "first": _moment(min(times, default=None)),
        "last": _moment(max(times, default=None)),
    }


def label(question: Mapping[str, Any]) -> str:
    """Return a name of a model and its question, such as "gpt-4o-choice-0123abcd".

    question: the entry "asked". Two questions to one model, such as with another seed, have
    different names.
    """
    entries = [question[key] for key in _QUESTION]
    digest = hashlib.sha256(json.dumps(entries).encode()).hexdigest()[:8]
    return tables.safe_name(f"{question['model']}-{question['prompt']}-{digest}")


def digest_table(path: str) -> str:
    """Return the SHA-256 of a table of answers, as hex digits."""
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def check_table(path: str, *, sha256: str) -> None:
    """Raise ValueError unless a table beside ask.json has the answers of its folder.

    path: of the table. sha256: of the table when it was measured.
    """
    must = f"be {answer_table.FILE}, as the question in ask.json beside it is of that table"
    is_named = os.path.basename(path) == answer_table.FILE
    name = errors.Words(os.path.basename(path))
    errors.check(is_named, path, must, name, "move it into another folder")
    must = "be the table that was measured"
    is_measured = os.path.isfile(path) and digest_table(path) == sha256
    remedy = f"measure again: jbias card {os.path.dirname(path)}"
    errors.check(is_measured, path, must, errors.Words("another"), remedy)
    must = f"have the answers of {ledger.ANSWERS} beside it"
    remedy = "run jbias ask again, which writes the table from the stored answers"
    is_whole = pathlib.Path(path).read_bytes() == _rewrite(path)
    errors.check(is_whole, path, must, errors.Words("other rows"), remedy)


def _rewrite(path: str) -> bytes:
    """Return the table that the answers of its folder give, for the images that it names."""
    folder = os.path.dirname(path)
    stored = files.read_json(pathlib.Path(folder) / settings.FILE, dict, _AGAIN)
    book = ledger.Ledger(folder, is_read_only=True)
    with open(path, encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    names = [str(row.get("imagename")) for row in rows]
    if sorted(names) != sorted({*book.answers, *book.refused}):
        return b""
    shown = [
        stimuli.Stimulus(
            name,
            row.get("category") or "",
            row.get("texture") or "",
            row.get("set") or "",
            row.get("condition") or "",
        )
        for name, row in zip(names, rows, strict=True)
    ]
    with tempfile.TemporaryDirectory() as scratch:
        written = answer_table.write(
            scratch,
            shown,
            answers=book.answers,
            refused=book.refused,
            model=str(stored.get("model", "")),
            prompt=str(stored.get("prompt", "")),
        )
        return pathlib.Path(written).read_bytes()


def faults(model: Mapping[str, Any], card_tables: Sequence[tables.Table]) -> list[str]:
    """Return lines on a question that does not fit the tables of a card.

    model: the entry of card.json.
    """
    question = model["asked"]
    if not question:
        return []
    unchanged = [table for table in card_tables if not table.measure]
    lines = [
        f"{table.file}: lacks the model's own words, which the card says were asked for"
        for table in unchanged
        if table.words is None
    ]
    if model["kind"] != "decisions":
        lines.append(f"model.asked: must be null for a model of kind {model['kind']!r}")
    num_rows = sum(len(table.images) for table in unchanged)
    num_images = question["answers"] + question["refused_images"]
    if num_rows > num_images:
        lines.append(
            f"model.asked: {num_images:,} images were asked about by the card, which has "
            f"{num_rows:,} decisions"
        )
    num_silent = sum(not words for table in unchanged for words in table.words or ())
    if num_silent < question["refused_images"] and num_rows == num_images:
        lines.append(
            f"model.asked: refused_images is {question['refused_images']:,} in the card, at "
            f"most {num_silent:,} by its words"
        )
    for key in ("refused", "cut_off"):
        if question[key] > question["answers"]:
            lines.append(f"model.asked: {key} is more than the number of answers")
    return lines


def _served_models(answers: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of the models that answered, as the endpoint says them."""
    names = {
        str(answer["served_model"]) for answer in answers if answer.get("served_model")
    }
    return sorted(names)


def _moment(seconds: float | None) -> str:
    """Return a time since 1970 in UTC; "" for none."""
    if seconds is None:
        return ""
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.isoformat(timespec="seconds")
