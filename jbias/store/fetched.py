"""Copies of what lies in an object store, for what reads files of this machine.

Beside the other caches (JBIAS_CACHE), one file an object, with its name and its time; asked
again, what has changed is copied, and what is gone there goes here.
"""

import contextlib
import fnmatch
import glob
import itertools
import os
import pathlib
from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import Any

from jbias.store import objects

_ASIDE = ("damaged", "replaced")


def fetch(pattern: str, where: str, *, checkpoints: bool) -> str:
    """Copies what a path or glob of gs:// means; returns that of the copies.

    ValueError where nothing is there. `checkpoints`: those that are whole, too.
    """
    parts = pattern.removeprefix("gs://").strip("/").split("/")
    fixed = [*itertools.takewhile(lambda part: not glob.has_magic(part), parts)]
    try:
        found = objects.files().find("/".join(fixed), detail=True)
    except FileNotFoundError:
        found = {}
    asked = {name for name in found if _is_asked(name, parts, checkpoints)}
    wanted = {name for name in asked if _is_whole(name, found)}
    if not wanted:
        raise ValueError(f"{where}: nothing is at {pattern}; check it")
    cache = os.environ.get("JBIAS_CACHE") or "~/.cache/jbias"
    home = pathlib.Path(cache).expanduser() / "gs"
    with futures.ThreadPoolExecutor(16) as threads:
        copied = threads.map(lambda name: _copied(home, found[name]), wanted)
        there = {name for name, got in zip(wanted, copied, strict=True) if got}
    for path in sorted(home.joinpath(*fixed).rglob("*"), reverse=True):
        name = path.relative_to(home).as_posix()
        if path.is_dir():
            with contextlib.suppress(OSError):
                path.rmdir()  # Unless it holds something.
        elif name not in there and _is_asked(name, parts, checkpoints):
            path.unlink(missing_ok=True)
    return str(home.joinpath(*parts))


def _is_asked(name: str, parts: Sequence[str], checkpoints: bool) -> bool:
    """Whether a glob means an object, or a folder that it is in."""
    own = name.split("/")
    if len(own) < len(parts) or not all(map(fnmatch.fnmatchcase, own, parts)):
        return False
    aside = _ASIDE if checkpoints else ("checkpoints", *_ASIDE)
    return not set(own[len(parts) :]) & set(aside)


def _is_whole(name: str, found: Mapping[str, Any]) -> bool:
    """Whether an object is not one of a checkpoint that is being saved, or never was."""
    head, middle, tail = name.partition("/checkpoints/")
    step = tail.partition("/")[0]
    return (
        not (middle and step.isdecimal())
        or f"{head}{middle}{step}/{objects.MARK}" in found
    )


def _copied(home: pathlib.Path, told: Mapping[str, Any]) -> bool:
    """Copies an object, unless it is here; False where it has gone meanwhile."""
    parts = told["name"].split("/")
    if {"", ".", ".."} & set(parts):
        raise ValueError(
            f"gs://{told['name']}: is no name of a file; rename the object"
        )
    path, at = home.joinpath(*parts), told["mtime"].timestamp()
    with contextlib.suppress(OSError):
        held = path.stat()
        if held.st_size == told["size"] and abs(held.st_mtime - at) < 1e-3:
            return True
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.parent / f".{path.name}.{os.getpid()}.part"
    try:
        with objects.told():
            objects.files().get_file(told["name"], str(part))
        os.utime(part, (at, at))
        part.replace(path)
    except FileNotFoundError:
        return False
    finally:
        part.unlink(missing_ok=True)
    return True
