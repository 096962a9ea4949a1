"""Checks of the MODEL of `jbias card` by its path, without imports that take long."""

import glob
import os

from jbias import errors

ASK = "ask.json"  # Of a folder of `jbias ask`.
_ANSWERS = "decisions.csv"
_SHAPES = "shapes"  # A value of --data that is no folder.


def is_measured(path: str) -> bool:
    """Return True for a folder of results that `jbias measure` wrote, such as measured/NAME."""
    has_results = all(
        os.path.isdir(os.path.join(path, name)) for name in ("measures", "evals")
    )
    return has_results and not os.path.exists(os.path.join(path, "checkpoints"))


def to_table(path: str) -> str:
    """Return the table of answers for a folder of `jbias ask`, any other path unchanged.

    ValueError for a folder of `jbias ask` without answers.
    """
    if not os.path.isfile(os.path.join(path, ASK)):
        return path
    table = os.path.join(path, _ANSWERS)
    if not os.path.isfile(table):
        must = f"have answers, {_ANSWERS}"
        errors.refuse(path, must, remedy="run jbias ask to its end")
    return table


def check_model(text: str) -> None:
    """Raise ValueError for a path where nothing is; other models are checked when they are read."""
    path = os.path.expanduser(text)
    source, _, _ = path.rpartition(":")
    is_elsewhere = text.startswith(("timm:", "hf:")) or "://" in text
    if is_elsewhere or os.path.exists(path) or glob.has_magic(path):
        return
    if path.endswith(".py") or source.endswith(".py"):
        is_file = os.path.isfile(source if source.endswith(".py") else path)
        must = "be FILE.py:NAME, or FILE.py for FILE.py:predict"
        errors.check(is_file, "MODEL", must, text, "no such file")
        return
    raise ValueError(
        f"MODEL: nothing is at {text!r}; give a file of weights, a run, timm:NAME, "
        "hf:OWNER/NAME@COMMIT, FILE.py:NAME, a table of decisions, a folder of jbias ask or "
        "measured/NAME"
    )


def check_folders(**folders: str | None) -> None:
    """Raise ValueError for a flag whose folder is missing; folders: by flag, such as stimuli."""
    for name, path in folders.items():
        is_folder = not path or os.path.isdir(os.path.expanduser(path))
        if not is_folder and not (name == "data" and path == _SHAPES):
            must = "be a folder"
            errors.refuse(f"--{name}", must, path, "check the path")
