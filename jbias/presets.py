"""Configs, suites and searches that come with the package, by name.

`jbias:sagnet:demo,seeds=2` is jbias/configs/sagnet.py with these arguments, and
`jbias:suites/biases` is jbias/configs/suites/biases.py, wherever the package is installed.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from jbias import config as jc

PREFIX = "jbias:"
_ROOT = pathlib.Path(__file__).parent / "configs"


def names(flag: str) -> list[str]:
    """What --<flag>=jbias:NAME knows: files that define get_<what the flag reads>."""
    folder, function = _KINDS[flag]
    found = sorted((_ROOT / folder).rglob("*.py"))
    found = [path.relative_to(_ROOT) for path in found if function in path.read_text()]
    if flag == "config":
        found = [path for path in found if path.parts[0] != "suites"]
    return [path.with_suffix("").as_posix() for path in found]


_KINDS = {
    "config": ("", "\ndef get_config("),
    "suite": ("suites", "\ndef get_config("),
    "sweep": ("sweeps", "\ndef get_sweep("),
    "zoo": ("", "\ndef is_head("),
}
FLAGS = _KINDS.keys()  # Which take jbias:NAME.


def path(named: str, flag: str) -> str:
    """`jbias:NAME:ARGUMENTS` as `path/to/NAME.py:ARGUMENTS`; a path stays what it is.

    ValueError, with the nearest name or with all, for one that is not there.
    """
    if not named.startswith(PREFIX):
        return named
    name, colon, arguments = named.removeprefix(PREFIX).partition(":")
    known = names(flag)
    if not name:
        raise ValueError(f"--{flag}: after {PREFIX} name one of {', '.join(known)}")
    if name not in known:
        raise ValueError(
            f"--{flag}: no preset {PREFIX}{name}; {jc.nearest(name, known)}"
        )
    return f"{_ROOT.joinpath(*name.split('/'))}.py{colon}{arguments}"


def check(flags: Mapping[str, Any]) -> None:
    """ValueError where one of a command's flags names a preset that is not there."""
    for flag in FLAGS & flags.keys():
        given = flags[flag] or ()
        for named in (given,) if isinstance(given, str) else given:
            path(named, flag)


def in_arguments(arguments: Sequence[str], flag: str = "config") -> list[str]:
    """A command line whose --<flag>=jbias:NAME, or --<flag> jbias:NAME, is a path."""
    found, before = [], ""
    for word in arguments:
        dashed, equals, value = word.partition("=")
        if equals and dashed in (f"--{flag}", f"-{flag}"):
            word = f"{dashed}={path(value, flag)}"
        elif before in (f"--{flag}", f"-{flag}"):
            word = path(word, flag)
        found.append(word)
        before = word
    return found
