"""Which files of weights and which runs the paths of --checkpoint name."""

import glob
import os
from collections.abc import Iterator, Sequence

from etils import epath

from jbias.models import state_dicts
from jbias.runtime import files


def find(paths: Sequence[str]) -> list[str]:
    """The files and runs that paths, folders of them, and globs name, in order.

    ValueError for what is neither. A folder is a run if it holds config.json; else all
    files below it that are named as weights are, and all runs; not what begins with a
    dot, nor what lies behind a link to a folder that is no run. What is there under
    several spellings counts once, as first spelled; files of several names do not.
    """
    found: dict[str, str] = {}
    for given in paths:
        where = "--checkpoint (or --runs)"
        path = os.path.expanduser(files.local_copy(given, where, checkpoints=True))
        matches = [path] if os.path.exists(path) else sorted(glob.glob(path))
        if not matches:
            raise ValueError(
                f"--checkpoint (or --runs): nothing is at {given!r}; check it"
            )
        for match in matches:
            inside = list(_inside(match))
            if not inside and len(matches) == 1:
                raise ValueError(
                    f"--checkpoint: {match} must be a file of weights "
                    f"({', '.join(state_dicts.SUFFIXES)}), a run's workdir, or a folder of these"
                )
            for one in inside:
                found.setdefault(_real(one), one)
    return list(found.values())


def _real(path: str) -> str:
    """What all spellings of a path have in common; a file keeps its own name.

    By this a published file is known, wherever a link of that name leads.
    """
    if os.path.isdir(path):
        return os.path.realpath(path)
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)


def _inside(path: str) -> Iterator[str]:
    if os.path.isfile(path):
        if path.lower().endswith(state_dicts.SUFFIXES):
            yield path
        return
    if is_run(path):
        yield path
        return
    for name in sorted(os.listdir(path)):
        inner = os.path.join(path, name)
        # Of links to folders none is followed that may lead back here.
        if name[0] != "." and (
            os.path.isfile(inner) or is_run(inner) or not os.path.islink(inner)
        ):
            yield from _inside(inner)


def is_run(path: str) -> bool:
    """Whether a folder is the workdir of a run, or what models.save_run makes."""
    whole = epath.Path(path)
    return (whole / "config.json").exists() and (whole / "checkpoints").exists()


def is_trained(path: str) -> bool:
    """Whether it is a run that was trained here, and knows its classes and seeds."""
    return is_run(path) and (epath.Path(path) / "provenance.json").exists()


def stem(path: str) -> str:
    """What a file's network is called if nothing else names it."""
    name = os.path.basename(path.rstrip("/"))
    return name if os.path.isdir(path) else name.rsplit(".", 1)[0]
