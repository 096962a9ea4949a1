"""The answers of a folder as a table, decisions.csv, that all readers of decisions read."""

import csv
import io
import os
import types
from collections.abc import Mapping, Sequence
from typing import Any

from jbias.answers import letter_options, parsing
from jbias.asking import stimuli as stimuli_lib
from jbias.runtime import files

FILE = "decisions.csv"
COLUMNS = (
    "imagename",
    "raw_response",
    "drawn_options",
    "model",
    "prompt",
    "finish_reason",
    "served_model",
    "prompt_tokens",
    "completion_tokens",
    "request",
)
# Readers of CSV allow 131,072; answers.jsonl has the whole answer.
_MAX_LETTERS = 100_000
_REFUSED: Mapping[str, Any] = types.MappingProxyType(
    {
        "response": "",
        "finish_reason": "refused",
        "served_model": None,
        "prompt_tokens": None,
        "completion_tokens": None,
    }
)
# Columns that are left out if no image has a value.
_STIMULUS_COLUMNS = ("set", "condition", "category", "texture")


def write(
    folder: str,
    stimuli: Sequence[stimuli_lib.Stimulus],
    *,
    answers: Mapping[str, Mapping[str, Any]],
    refused: Mapping[str, Mapping[str, Any]],
    model: str,
    prompt: str,
) -> str:
    """Write the table of the answered and the refused images into a folder; return its path.

    answers, refused: those of the ledger, by image; refused images have no words, and are no
    answer for all readers. model, prompt: as asked.
    """
    lines = {name: {**_REFUSED, **line} for name, line in refused.items()} | dict(
        answers
    )
    rows = [
        _row(stimulus, lines[stimulus.name], model=model, prompt=prompt)
        for stimulus in stimuli
        if stimulus.name in lines
    ]
    shown_columns = [
        name for name in _STIMULUS_COLUMNS if any(row[name] for row in rows)
    ]
    header = [COLUMNS[0], *shown_columns, *COLUMNS[1:]]
    text = io.StringIO()
    table = csv.DictWriter(text, header, lineterminator="\n", extrasaction="ignore")
    table.writeheader()
    table.writerows(rows)
    path = os.path.join(folder, FILE)
    with files.translate_os_errors(path):
        files.write(path, text.getvalue().encode("utf-8", "backslashreplace"))
    return path


def _cell(words: str) -> str:
    """Return a model's words for a cell: without zero bytes and carriage returns, cut if endless."""
    plain = words.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n")
    return plain[:_MAX_LETTERS]


def raw_response(answer: Mapping[str, Any]) -> str:
    """Return the words of an answer for the parser of words, which every reader of the table uses.

    answer: of the ledger. Words are marked if they are no answer, as the model refused or a filter
    of contents stopped it, and if they are cut off: the parser knows these marks. Words that exceed
    a cell are cut off.
    """
    words = _cell(answer["response"])
    is_filtered = answer["finish_reason"] == "content_filter"
    if answer.get("refusal") or is_filtered:
        return parsing.mark_refused(words)
    is_cut = answer["finish_reason"] == "length" or len(words) == _MAX_LETTERS
    return parsing.mark_cut(words) if is_cut and words else words


def _row(
    stimulus: stimuli_lib.Stimulus,
    answer: Mapping[str, Any],
    *,
    model: str,
    prompt: str,
) -> dict[str, Any]:
    """Return the cells of an image by column."""
    return {
        "imagename": stimulus.name,
        "set": stimulus.dataset,
        "condition": stimulus.condition,
        "category": stimulus.label,
        "texture": stimulus.texture,
        "raw_response": raw_response(answer),
        "drawn_options": letter_options.format_cell(answer["options"]),
        "model": model,
        "prompt": prompt,
        "finish_reason": answer["finish_reason"],
        "served_model": answer["served_model"],
        "prompt_tokens": answer["prompt_tokens"],
        "completion_tokens": answer["completion_tokens"],
        "request": answer["request"],
    }
