"""Checks of the paths of models and folders that need no other package.

They run before JAX, PyTorch and the readers of files are imported, so that a mistyped path is
refused at once.
"""

import glob
import os
from collections.abc import Mapping, Sequence

from jbias import errors
from jbias.runtime import hub, timm_names


def check_model(text: str) -> None:
    """Raise ValueError for the MODEL of `jbias measure` if nothing is at its path.

    text: a path or glob, FILE.py:NAME, or a name of a network of timm or on the hub, of which only
    the form is checked.
    """
    if timm_names.is_timm(text):
        timm_names.parse(text, "MODEL")
    elif is_code(text):
        check_code(text if not text.endswith(".py") else f"{text}:predict", "MODEL")
    elif not (hub.is_hub(text) or "://" in text or may_exist(text)):
        raise ValueError(
            f"MODEL: nothing is at {text!r}; give a file of weights, a run, timm:NAME, "
            "hf:OWNER/NAME@COMMIT, FILE.py:NAME or a table of decisions"
        )


def check_checkpoints(paths: Sequence[str], where: str) -> None:
    """Raise ValueError for a path of --checkpoint at which nothing is.

    Globs, names of timm and of the hub, and remote paths are not checked. where: start of the
    message.
    """
    for path in paths:
        if timm_names.is_timm(path):
            timm_names.parse(path, where)
        elif is_code(path) and not os.path.exists(path):
            raise ValueError(
                f"{where}: must name files of weights or runs, got {path!r}; measure a Python "
                f"file's network by jbias measure, or by jbias evaluate --predict={path}"
            )
        elif not (hub.is_hub(path) or "://" in path or may_exist(path)):
            refuse_nothing(path, where)


def refuse_nothing(path: str, where: str) -> None:
    """Raise the ValueError for a path at which nothing is."""
    raise ValueError(f"{where}: nothing is at {path!r}; check it")


def is_code(text: str) -> bool:
    """Return True for FILE.py:NAME and FILE.py."""
    return text.endswith(".py") or text.rpartition(":")[0].endswith(".py")


def check_code(path_and_name: str, where: str) -> None:
    """Raise ValueError unless `path/to/file.py:name` names a Python file that exists."""
    path, _, _ = path_and_name.rpartition(":")
    if not os.path.isfile(path):
        remedy = "no such file"
        if os.path.isfile(path_and_name):
            remedy = f"add the function's name, as in {path_and_name}:predict"
        errors.refuse(where, "be path/to/file.py:name", path_and_name, remedy)
    if not path.endswith(".py"):
        errors.refuse(where, "be a Python file, *.py", path)


def check_folders(folders: Mapping[str, str | os.PathLike | None]) -> None:
    """Raise ValueError for a folder that does not exist; folders: paths by name of the flag."""
    for flag, path in folders.items():
        if path and not os.path.isdir(os.path.expanduser(os.fspath(path))):
            text = os.path.expanduser(os.fspath(path))
            raise ValueError(
                f"--{flag}: must be a folder, got {text!r}; check the path"
            )


def may_exist(path: str) -> bool:
    """Return True if a path exists, or is a glob that matches a path or has a wildcard."""
    return os.path.exists(os.path.expanduser(path)) or glob.has_magic(path)
