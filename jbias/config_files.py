"""Reads configs and suites, which are files of Python, and changes their entries."""

import ast
import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import Any

import ml_collections

from jbias import config as jc
from jbias import presets


def load(
    named: str, changes: Sequence[str] = (), *, flag: str
) -> ml_collections.ConfigDict:
    """Reads a config or suite `path/to/file.py:arguments`, and changes its entries.

    `jbias:NAME:arguments` is one that comes with the package (jbias/presets.py).
    changes: of the flag "suite", "--suite.measures.pgd.steps=10" and the like.
    ValueError for what is not there.
    """
    path, _, arg = presets.path(named, flag).partition(":")
    if not os.path.isfile(path):
        raise ValueError(missing(flag, path))
    config = given(flag, path, "get_config", arg)
    if not isinstance(config, ml_collections.ConfigDict):
        raise ValueError(  # noqa: TRY004
            f"--{flag}: {path}: get_config must return an ml_collections.ConfigDict, got "
            f"{type(config).__name__}"
        )
    for change in changes:
        key, equals, text = change.removeprefix(f"--{flag}.").partition("=")
        if not equals:
            raise ValueError(f"{change}: must be --{flag}.key=value")
        _change(config, flag, key, text)
    return config


def missing(flag: str, path: str) -> str:
    """Says which file is nearest to one that is not there."""
    folder = os.path.dirname(path) or "."
    there = os.listdir(folder) if os.path.isdir(folder) else []
    known = [one for one in there if one.endswith(".py") and one[0] != "_"]
    hint = jc.nearest(os.path.basename(path), known) if known else "no such folder"
    return f"--{flag}: no file {path!r}; {hint}"


def given(flag: str, path: str, function: str, arg: str) -> Any:
    """What a function of a file of Python returns; ValueError where it has none."""
    try:
        found = getattr(module(flag, path), function, None)
        if found is None:
            raise ValueError(f"--{flag}: {path}: must define {function}(arg)")
        return found(arg)
    except ImportError as error:
        raise ValueError(
            f"--{flag}: {error}; configs are found from the directory that holds them"
        ) from error


def _change(config: ml_collections.ConfigDict, flag: str, key: str, text: str) -> None:
    *way, last = key.split(".")
    for name in way:
        if name not in config:
            raise ValueError(
                f"--{flag}.{key}: no such entry; {jc.nearest(name, config)}"
            )
        if not isinstance(config[name], ml_collections.ConfigDict):
            raise ValueError(  # noqa: TRY004
                f"--{flag}.{key}: {name} has no entries, it is {config[name]!r}"
            )
        config = config[name]
    with config.unlocked():
        try:
            config[last] = value(text)
        except TypeError as error:
            raise ValueError(f"--{flag}.{key}: {error}") from error


def value(text: str) -> Any:
    """Reads a literal of Python; what is none is text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text


def module(name: str, path: str) -> Any:
    """Runs a file of Python and gives what it defines."""
    found = importlib.util.spec_from_file_location(f"{name}_of_the_user", path)
    if found is None or found.loader is None:
        raise ValueError(f"--{name}: must be a file of Python, *.py, got {path!r}")
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module  # Dataclasses look their module up.
    found.loader.exec_module(module)
    return module
