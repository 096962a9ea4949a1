"""Types of command-line arguments that the commands of this room share."""

import argparse
import functools
import math
import pathlib
import sys
from collections.abc import Sequence


def names(text: str) -> tuple[str, ...]:
    """Reads `a,b`; each once."""
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"must hold each name once, got {text!r}")
    return found


def spread(argv: Sequence[str] | None, flag: str) -> list[str]:
    """Gives arguments in which `flag=a b`, as a shell leaves a glob, is `flag a b`."""
    argv = sys.argv[1:] if argv is None else argv
    found = []
    for one in argv:
        name, _, value = one.partition("=")
        found += [name, value] if name == flag and value else [one]
    return found


def folder(text: str) -> str:
    """Reads a folder to write into, which need not be there yet."""
    path = pathlib.Path(text)
    if any(one.exists() and not one.is_dir() for one in (path, *path.parents)):
        raise argparse.ArgumentTypeError(
            f"must be a folder, got {text!r}, which is or is in a file; name another"
        )
    return text


def _number(text: str, kind, fits, what: str):
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not fits(value):
        raise argparse.ArgumentTypeError(f"must be {what}, got {text!r}")
    return value


chance = functools.partial(
    _number, kind=float, fits=lambda a: 0 < a < 1, what="a number between 0 and 1"
)
positive = functools.partial(
    _number, kind=float, fits=lambda a: 0 < a < math.inf, what="a number above 0"
)
at_least_one = functools.partial(
    _number, kind=int, fits=lambda n: n >= 1, what="an integer of at least 1"
)
