"""The settings of a folder of answers, which must not change after the first answer in it."""

import json
import os
from collections.abc import Mapping
from typing import Any

from jbias import errors
from jbias.asking import ledger
from jbias.runtime import files, messages

FILE = "ask.json"
MADE_BY = "jbias ask"


def open_folder(folder: str, settings: Mapping[str, Any]) -> None:
    """Write the settings into a folder without answers; errors: see `check_folder`."""
    if check_folder(folder, settings):
        return
    text = messages.to_json({"made_by": MADE_BY, **settings}, indent=1)
    with files.translate_os_errors(folder):
        files.write(os.path.join(folder, FILE), text + "\n")


def check_folder(folder: str, settings: Mapping[str, Any]) -> bool:
    """Return True if a folder has these settings, False if they may be written into it.

    They may be written into a new or empty folder, and in place of other settings as long as no
    answer is stored. ValueError if the folder has answers by other settings, or other files and no
    settings.
    """
    stored = _read(folder)
    if stored is None:
        names = os.listdir(folder) if os.path.isdir(folder) else []
        # The lock and a part of ask.json may be there.
        strange = [name for name in names if not name.startswith(".")]
        must = "be a new or empty folder, or one of jbias ask"
        remedy = "name another folder"
        errors.check(
            not strange, f"--out: {folder}", must, ", ".join(strange[:3]), remedy
        )
        return False
    # As JSON, in which tuples are lists.
    wanted = json.loads(json.dumps(settings))
    if stored != wanted and not ledger.has_answers(folder):
        return False
    _check_equal(folder, stored, wanted)
    return True


def _read(folder: str) -> dict[str, Any] | None:
    """Return the settings of a folder; None for a folder without.

    ValueError for a damaged file.
    """
    path = os.path.join(folder, FILE)
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or content.pop("made_by", None) != MADE_BY:
        errors.refuse(path, "be the settings of jbias ask", remedy="name another --out")
    return content


def _check_equal(
    folder: str, stored: Mapping[str, Any], wanted: Mapping[str, Any]
) -> None:
    """Raise ValueError unless the stored settings are the wanted ones."""
    for name in (*wanted, *stored):
        if stored.get(name) != wanted.get(name):
            must = f"have answers to the same question, {name} {errors.abbreviate(stored.get(name))}"
            remedy = "name another folder"
            errors.refuse(f"--out: {folder}", must, wanted.get(name), remedy)
