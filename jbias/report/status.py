"""How far the runs in a folder are: read from what they leave in their workdirs.

States are those of `run_state`; beside them a running one that gives no sign of life for long
is `stale`, and one whose records cannot be read is `damaged`.
"""

import glob
import json
import os
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jbias.runs import status
from jbias.runtime import files

_OURS = ("log.txt", "lock")  # What every run has from its first moment on.
_DEPTH = 4  # Of folders of sweeps and studies below the one named.
# Seconds without a sign of life after which a running process is called stale.
_PATIENCE = {"opening": 3600, "compiling": 3600, "evaluating": 1800}
_USUAL_PATIENCE = 600
_ACTIVE = ("opening", "compiling", "stepping", "evaluating")


class Row(NamedTuple):
    """One run; what is not known is None or empty."""

    workdir: str
    state: str
    reason: str = ""
    doing: str = ""  # Of a running one: opening, compiling, stepping or evaluating.
    step: int = 0
    total: int = 0
    rate: float | None = None  # Steps a second.
    images_rate: float | None = None
    eta_seconds: float | None = None
    accuracy: float | None = None  # Mean over the finite seeds at the step `evaluated`.
    accuracy_on: str = ""
    evaluated: int | None = None
    seeds: int = 0
    diverged: tuple[int, ...] = ()
    devices: str = ""
    host: str = ""
    age_seconds: float | None = None  # Since the last sign of life.


def rows(patterns: Sequence[str]) -> list[Row]:
    """The state of each run that the folders or globs hold; ValueError without any."""
    here = [os.fspath(files.local_copy(one, "--runs")) for one in patterns]
    found = [*dict.fromkeys(path for one in here for path in _runs(one))]
    if not found:
        raise ValueError(
            f"--runs: must hold workdirs of runs, got none: {' '.join(patterns)}"
        )
    return [row(path) for path in found]


def row(workdir: pathlib.Path) -> Row:
    """The state of the run in a folder."""
    told, config = status.read_heartbeat(workdir), _config(workdir)
    age = _age(workdir)
    try:
        state = status.read(workdir)
    except (ValueError, OSError) as error:
        reason = " ".join(str(error).split())
        return Row(str(workdir), "damaged", reason, age_seconds=age)
    word, doing = _word(state, told, age or 0.0)
    going = word == "running" and doing == "stepping"
    eta = told.get("eta_seconds") if going else None
    step, total = max(state.step, told.get("step", 0)), state.steps
    return Row(
        str(workdir),
        word,
        _silent(age or 0.0) if word == "stale" else state.reason,
        doing,
        step,
        total or told.get("total", 0),
        told.get("rate") if going else None,
        told.get("images") if going else None,
        None if eta is None else max(0.0, eta - (age or 0.0)),
        state.accuracy,
        _valid_set(config),
        None if state.evaluated < 0 else state.evaluated,
        _count(config),
        state.diverged,
        told.get("devices", ""),
        told.get("host", ""),
        age,
    )


def _word(state: status.RunStatus, told: dict[str, Any], age: float) -> tuple[str, str]:
    """The state, and what is being done."""
    doing = told.get("doing", "")
    if told and doing not in _ACTIVE:
        doing = "opening"
    word = state.phase
    if word != "running":
        return word, ""
    patience = _PATIENCE.get(doing, _USUAL_PATIENCE)
    patience = max(patience, 20 * told.get("log_seconds", 10))
    return ("stale" if age > patience else word), doing


def _silent(age: float) -> str:
    return f"its process holds the lock and has told nothing for {age / 60:.0f} minutes"


def _runs(pattern: str) -> Iterator[pathlib.Path]:
    """The workdirs that a folder or a glob means, in order."""
    literal = os.path.exists(pattern) or not glob.has_magic(pattern)
    for match in [pattern] if literal else sorted(glob.glob(pattern)):
        yield from _below(pathlib.Path(match), _DEPTH)


def _below(folder: pathlib.Path, depth: int) -> Iterator[pathlib.Path]:
    """The folder, if it is a run's, or those below it that are."""
    if any((folder / name).exists() for name in _OURS):
        yield folder
    elif depth and folder.is_dir():
        with os.scandir(folder) as entries:
            inner = sorted(one.path for one in entries if one.is_dir())
        for path in inner:
            yield from _below(pathlib.Path(path), depth - 1)


def _age(workdir: pathlib.Path) -> float | None:
    """Seconds since the run last wrote a line or its sign of life."""
    times = []
    for name in ("done", status.HEARTBEAT_FILE, "log.txt"):
        try:
            times.append((workdir / name).stat().st_mtime)
        except OSError:
            continue
    return max(0.0, time.time() - max(times)) if times else None


def _config(workdir: pathlib.Path) -> dict[str, Any]:
    try:
        config = json.loads((workdir / "config.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def _count(config: dict[str, Any]) -> int:
    """How many seeds the run has."""
    seeds = config.get("seeds")
    return len(seeds) if isinstance(seeds, list) else 0


def _valid_set(config: dict[str, Any]) -> str:
    """What the set is called that validates."""
    valid = config.get("valid")
    valid = valid if isinstance(valid, dict) else {}
    return "/".join(str(valid[key]) for key in ("data", "split") if valid.get(key))
