"""Checks of the MODEL of `jbias card` by its path, without imports that take long."""

import os

from jbias import errors

ASK = "ask.json"  # Of a folder of `jbias ask`.
_ANSWERS = "decisions.csv"


def is_measured(path: str) -> bool:
    """Return True for a folder of results that `jbias measure` wrote, such as measured/NAME."""
    has_results = all(
        os.path.isdir(os.path.join(path, name)) for name in ("measures", "evals")
    )
    return has_results and not os.path.exists(os.path.join(path, "checkpoints"))


def is_asked(path: str) -> bool:
    """Return True for the table of answers in a folder of `jbias ask`."""
    folder, name = os.path.split(path)
    return name == _ANSWERS and os.path.isfile(os.path.join(folder, ASK))


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
