"""What phase a run is in, from the files in its folder, and the heartbeat that it writes.

The heartbeat, progress.json, says what a run is doing, how far it is and how fast, for
whoever watches many runs. It is no part of the results; a failure to write it is reported
once.
"""

import functools
import json
import os
import pathlib
import re
import socket
from collections.abc import Callable
from typing import Any, NamedTuple

from etils import epath

from jbias.runs import results
from jbias.runtime import files, lock, messages

PHASES = ("damaged", "not started", "running", "interrupted", "stopped", "failed")
PHASES += ("diverged", "done")
STOPPED_FILE = "stopped.json"  # Written by a search that has no more use for a run.
# The end of the last log line of a run that saved and stopped.
RESUMES = "the same command resumes"
# The end of the last log line of a run that lost a process; the first form is that of
# older runs.
_LOST = (
    "it goes on from the latest checkpoint",
    "to resume from the latest checkpoint",
)
UNEXPLAINED = "nothing says why; killed, or its machine went down"
_TAIL = 1 << 16
_ASKED = re.compile(r"SIG[A-Z0-9]+ ")  # Begins what a run says that was asked to stop.
_STEP = re.compile(r"\bstep ([0-9]{1,15})/([0-9]{1,15})\b")


class RunStatus(NamedTuple):
    """What state a run is in, and how far it is.

    phase: one of PHASES. `interrupted`: begun, and nobody is at work in it: the same command
    goes on. `diverged`: ended, no seed is left. `stopped`: by a search. `damaged`: its
    records cannot be read (`read` raises, and whoever asks for many says so).
    """

    phase: str
    reason: str = ""  # Why it failed or was stopped or interrupted, as far as is known.
    step: int = 0  # The last that its log or its records tell of.
    steps: int = 0  # In all, all stages together; 0 while that is not known.
    evaluated: int = -1  # The last evaluated step.
    accuracy: float | None = None  # There, in validation: the mean over finite seeds.
    diverged: tuple[int, ...] = ()  # The seeds that did.
    from_log: bool = False  # Whether it was the run's log that gave the reason.


def read(workdir: str | os.PathLike) -> RunStatus:
    """The state of a run; ValueError, naming file and line, for damaged records."""
    workdir = pathlib.Path(workdir)
    if workdir.exists() and not workdir.is_dir():
        raise ValueError(f"{workdir}: must be the workdir of a run, got a file")
    word, reason = _phase(workdir)
    # The last `step N/M` of the log.
    told = next(filter(None, map(_STEP.search, reversed(_log(workdir)))), None)
    step, steps = map(int, told.groups()) if told else (0, 0)
    evaluated = max(evaluated_steps(workdir), default=-1)
    accuracy, diverged = None, ()
    if evaluated >= 0:
        valid, diverged = _summary(workdir, evaluated)
        finite = [value for value in valid if value is not None]
        accuracy = sum(finite) / len(finite) if finite else None
    from_log = word in ("failed", "interrupted") and reason != UNEXPLAINED
    step = max(step, evaluated, 0)
    return RunStatus(word, reason, step, steps, evaluated, accuracy, diverged, from_log)


def is_running(workdir: str | os.PathLike) -> bool:
    """Whether a process is at work in it; a killed one leaves its lock's file behind."""
    return lock.is_held(epath.Path(workdir) / "lock")


def validation_curve(workdir: str | os.PathLike) -> dict[int, float]:
    """Validation accuracy by evaluated step: the mean over all seeds.

    A diverged seed counts as nothing right, or settings that lose seeds would win.
    """
    workdir, found = pathlib.Path(workdir), {}
    for step in evaluated_steps(workdir):
        valid, _ = _summary(workdir, step)
        if valid:
            found[step] = sum(value or 0.0 for value in valid) / len(valid)
    return found


def _phase(workdir: pathlib.Path) -> tuple[str, str]:
    """The state's word, and why it is so."""
    if (workdir / "done").exists():
        diverged = _text(workdir / "done").strip() == "diverged"
        return ("diverged", "every seed diverged") if diverged else ("done", "")
    if is_running(workdir):
        return "running", ""
    if (stopped := workdir / STOPPED_FILE).exists():
        try:
            return "stopped", str(json.loads(stopped.read_text("utf-8"))["reason"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValueError(
                f"{stopped}: must be JSON with a reason, got something else; remove it, "
                "and the run goes on"
            ) from None
    last = next((line for line in reversed(_log(workdir)) if line.strip()), "")
    if last.startswith("jbias: "):
        reason = last.removeprefix("jbias: ")
        stopped = reason.endswith((RESUMES, *_LOST)) or _ASKED.match(reason)
        return ("interrupted" if stopped else "failed"), reason
    if (workdir / "config.json").exists() or last:
        return "interrupted", UNEXPLAINED
    return "not started", ""


def _text(path: pathlib.Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: must be text in UTF-8, got {error.reason} at byte {error.start}; "
            "restore the file or remove it and resume the run"
        ) from None


def _log(workdir: pathlib.Path) -> list[str]:
    """The last lines of a run's log."""
    try:
        with (workdir / "log.txt").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            return file.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []


def evaluated_steps(workdir: pathlib.Path | epath.Path) -> list[int]:
    """The steps that are evaluated, in every branch, in order."""
    steps = [
        {int(p.stem) for p in folder.glob("evals/*.jsonl") if p.stem.isdecimal()}
        for folder in results.branch_folders(workdir)
    ]
    return sorted(set.intersection(*steps))


def _summary(workdir: pathlib.Path, step: int) -> tuple[list, tuple[int, ...]]:
    """Validation accuracies at a step, one a seed and branch; the seeds that diverged."""
    valid, diverged = [], set()
    for folder in results.branch_folders(workdir):
        path = folder / "evals" / f"{step}.jsonl"
        there = path.stat()
        values, lost = _of_file(str(path), there.st_mtime_ns, there.st_size)
        valid += values
        diverged |= lost
    return valid, tuple(sorted(diverged))


@functools.lru_cache(maxsize=1 << 17)
def _of_file(path: str, _changed: int, _size: int) -> tuple[list, set[int]]:
    """What `_summary` says, of one file; it is read again only where it has changed."""
    records = results.loads(_text(pathlib.Path(path)), where=path)
    wanted = (results.VALID, "accuracy", "")
    valid = [r.value for r in records if (r.dataset, r.metric, r.condition) == wanted]
    return valid, {r.seed for r in records if r.status == "diverged"}


HEARTBEAT_FILE = "progress.json"
HEARTBEAT_VERSION = 1
_MOST = 1e15  # Steps, seconds, images.
_KINDS = {  # What who reads it relies on.
    **dict.fromkeys(("at", "doing", "devices", "host"), str),
    **dict.fromkeys(("step", "total"), int),
    **dict.fromkeys(("rate", "images", "eta_seconds", "log_seconds"), (int, float)),
}


class Heartbeat:
    """Rewrites the file whenever it is told something."""

    def __init__(self, workdir: epath.Path, say: Callable[[str], None]):
        self._path, self._say, self._lost = workdir / HEARTBEAT_FILE, say, False
        self._facts = {"version": HEARTBEAT_VERSION, "host": socket.gethostname()}
        self._facts["pid"] = os.getpid()

    def update(self, doing: str, **facts: Any) -> None:
        """Says what is done now; facts told before stay until they are told anew."""
        self._facts |= {"at": messages.utc_now(), "doing": doing, **facts}
        try:
            files.write(self._path, json.dumps(self._facts), lasting=False)
        except OSError as error:
            why = " ".join(str(error).split())
            then = "--status does not see how far the run is; it goes on"
            if not self._lost:
                self._say(f"{HEARTBEAT_FILE} cannot be written ({why}): {then}")
            self._lost = True


def read_heartbeat(workdir: str | os.PathLike) -> dict[str, Any]:
    """What a run told last; empty where it told nothing that can be read."""

    def fits(key: str, value: Any) -> bool:
        if isinstance(value, (int, float)) and not abs(value) < _MOST:
            return False
        kind = _KINDS.get(key, object)
        return isinstance(value, kind) and not isinstance(value, bool)

    try:
        facts = files.read_json(pathlib.Path(workdir) / HEARTBEAT_FILE, dict, "")
    except (OSError, ValueError):
        return {}
    return {key: value for key, value in facts.items() if fits(key, value)}
