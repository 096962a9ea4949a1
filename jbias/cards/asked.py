"""The question that `jbias ask` asked a model behind an endpoint, for its card.

Read are ask.json (the settings) and answers.jsonl of the folder in which the table of answers is.
The endpoint's key is in neither.
"""

import datetime
import json
import os
import pathlib
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Any

from jbias.asking import ledger, settings
from jbias.runtime import files

_AGAIN = "restore it, or ask again"


def describe(folder: str | os.PathLike) -> dict[str, Any] | None:
    """Return the entry "asked" of a card's model; None for a folder without ask.json.

    ValueError or OSError for damaged files.
    """
    path = pathlib.Path(folder) / settings.FILE
    if not path.is_file():
        return None
    stored = files.read_json(path, dict, _AGAIN)
    answers = ledger.Ledger(os.fspath(folder), is_read_only=True).answers.values()
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
        "cut_off": sum(answer.get("finish_reason") == "length" for answer in answers),
        "first": _moment(min(times, default=None)),
        "last": _moment(max(times, default=None)),
    }


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
