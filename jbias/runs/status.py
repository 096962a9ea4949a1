"""The phase of a run, from the files in its folder, and the run's heartbeat.

The heartbeat, progress.json, has the current activity, step and speed of a run, for tools
that watch many runs. The heartbeat is not part of the results; a failure to write it is reported
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
from jbias.runtime import files, messages, workdir_lock

PHASES = (
    "damaged",
    "not started",
    "running",
    "interrupted",
    "stopped",
    "failed",
    "diverged",
    "done",
)
STOPPED_FILE = "stopped.json"  # Written by a search that stops a run for good.
# The end of the last log line of a run that saved and stopped.
RESUMES = "the same command resumes"
# The end of the last log line of a run that lost a process; older runs
# have the first form.
_LOST = (
    "it goes on from the latest checkpoint",
    "to resume from the latest checkpoint",
)
UNEXPLAINED = "unknown reason; killed, or its machine went down"
_TAIL_BYTES = 1 << 16
# The start of the last log line of a run that a signal stopped.
_STOP_SIGNAL = re.compile(r"SIG[A-Z0-9]+ ")
_STEP = re.compile(r"\bstep ([0-9]{1,15})/([0-9]{1,15})\b")


class RunStatus(NamedTuple):
    """The phase and the progress of a run.

    phase: one of PHASES. "interrupted": started, but no process is running; the same
    command resumes it. "diverged": finished, because every seed diverged. "stopped": by a
    search. "damaged": `read` raised a ValueError; callers for many runs set this phase.
    """

    phase: str
    reason: str = ""  # Of a failure, stop or interruption, if known.
    step: int = 0  # The last step in the log or the records.
    steps: int = 0  # Total number of all stages; 0 if not yet known.
    evaluated: int = -1  # The last evaluated step.
    # Mean validation accuracy at that step, a fraction, over seeds that have not diverged.
    accuracy: float | None = None
    diverged: tuple[int, ...] = ()  # The seeds that have diverged.
    from_log: bool = False  # True if the reason comes from the run's log.


def read(workdir: str | os.PathLike) -> RunStatus:
    """Return the status of a run; ValueError, with file and line, for damaged records.

    Without the folder, the run has not started. ValueError, too, if `workdir` is a file,
    stopped.json is damaged, or `done` is not text.
    """
    workdir = pathlib.Path(workdir)
    if workdir.exists() and not workdir.is_dir():
        raise ValueError(f"{workdir}: must be the workdir of a run, got a file")
    phase, reason = _phase(workdir)
    # The last `step N/M` of the log.
    match = next(filter(None, map(_STEP.search, reversed(_log(workdir)))), None)
    step, steps = map(int, match.groups()) if match else (0, 0)
    evaluated = max(evaluated_steps(workdir), default=-1)
    accuracy, diverged = None, ()
    if evaluated >= 0:
        valid, diverged = _summary(workdir, evaluated)
        finite = [value for value in valid if value is not None]
        accuracy = sum(finite) / len(finite) if finite else None
    return RunStatus(
        phase=phase,
        reason=reason,
        step=max(step, evaluated, 0),
        steps=steps,
        evaluated=evaluated,
        accuracy=accuracy,
        diverged=diverged,
        from_log=phase in ("failed", "interrupted") and reason != UNEXPLAINED,
    )


def is_running(workdir: str | os.PathLike) -> bool:
    """Return True if a process trains in a workdir; a killed process's lock is ignored."""
    return workdir_lock.is_held(epath.Path(workdir) / "lock")


def validation_curve(workdir: str | os.PathLike) -> dict[int, float]:
    """Return the mean validation accuracy over all seeds, a fraction, by evaluated step.

    A diverged seed counts as accuracy 0, so that settings with diverged seeds do not win.
    Steps without validation accuracies are left out.
    """
    workdir, curve = pathlib.Path(workdir), {}
    for step in evaluated_steps(workdir):
        valid, _ = _summary(workdir, step)
        if valid:
            curve[step] = sum(value or 0.0 for value in valid) / len(valid)
    return curve


def _phase(workdir: pathlib.Path) -> tuple[str, str]:
    """Return the phase of a run, one of PHASES except "damaged", and the phase's reason or "".

    After a last log line "jbias: <reason>", the run is "interrupted" if the same command resumes it
    or a signal stopped it, else "failed". After another last line, or with a config.json only, the
    run is "interrupted" for the reason UNEXPLAINED. ValueError if stopped.json is damaged, or
    `done` is not text.
    """
    if (workdir / "done").exists():
        is_diverged = _text(workdir / "done").strip() == "diverged"
        return ("diverged", "every seed diverged") if is_diverged else ("done", "")
    if is_running(workdir):
        return "running", ""
    stopped_file = workdir / STOPPED_FILE
    if stopped_file.exists():
        try:
            content = json.loads(stopped_file.read_text("utf-8"))
            return "stopped", str(content["reason"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValueError(
                f"{stopped_file}: must be JSON with a reason, got something else; remove "
                "the file to resume the run"
            ) from None
    last_line = next((line for line in reversed(_log(workdir)) if line.strip()), "")
    if last_line.startswith("jbias: "):
        reason = last_line.removeprefix("jbias: ")
        can_resume = reason.endswith((RESUMES, *_LOST)) or _STOP_SIGNAL.match(reason)
        return ("interrupted" if can_resume else "failed"), reason
    if (workdir / "config.json").exists() or last_line:
        return "interrupted", UNEXPLAINED
    return "not started", ""


def _text(path: pathlib.Path) -> str:
    """Return the text of a file; ValueError unless it is UTF-8."""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: must be text in UTF-8, got {error.reason} at byte {error.start}; "
            "restore the file or remove it and resume the run"
        ) from None


def _log(workdir: pathlib.Path) -> list[str]:
    """Return the lines in the last 64 KiB of a run's log; empty if there is no log."""
    try:
        with (workdir / "log.txt").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []


def evaluated_steps(workdir: pathlib.Path | epath.Path) -> list[int]:
    """Return the steps with records in every branch of a run, in ascending order."""
    steps = [
        {int(p.stem) for p in folder.glob("evals/*.jsonl") if p.stem.isdecimal()}
        for folder in results.branch_folders(workdir)
    ]
    return sorted(set.intersection(*steps))


def _summary(
    workdir: pathlib.Path, step: int
) -> tuple[list[float | None], tuple[int, ...]]:
    """Return the validation accuracies at a step, and the diverged seeds in order.

    Accuracies are fractions, one per seed and branch; None for a diverged seed.
    """
    valid, diverged = [], set()
    for folder in results.branch_folders(workdir):
        path = folder / "evals" / f"{step}.jsonl"
        stat = path.stat()
        accuracies, seeds = _file_summary(str(path), stat.st_mtime_ns, stat.st_size)
        valid += accuracies
        diverged |= seeds
    return valid, tuple(sorted(diverged))


@functools.lru_cache(maxsize=1 << 17)
def _file_summary(
    path: str, _modified: int, _size: int
) -> tuple[list[float | None], set[int]]:
    """Return the validation accuracies and the diverged seeds of a file of records.

    Accuracies are fractions, one per seed; None for a diverged seed. _modified, _size:
    nanoseconds and bytes of the file, which make the cache read a changed file again.
    """
    records = results.loads(_text(pathlib.Path(path)), where=path)
    wanted = (results.VALID, "accuracy", "")
    valid = [r.value for r in records if (r.dataset, r.metric, r.condition) == wanted]
    return valid, {r.seed for r in records if r.status == "diverged"}


HEARTBEAT_FILE = "progress.json"
HEARTBEAT_VERSION = 1
_MAX_NUMBER = 1e15  # Of steps, seconds or images.
_FIELD_TYPES = {
    "at": str,
    "doing": str,
    "devices": str,
    "host": str,
    "step": int,
    "total": int,
    "rate": (int, float),
    "images": (int, float),
    "eta_seconds": (int, float),
    "log_seconds": (int, float),
}


class Heartbeat:
    """A writer of a run's progress.json.

    say: logs a line about the first failure to write the file.
    """

    def __init__(self, workdir: epath.Path, say: Callable[[str], None]):
        self._path, self._say = workdir / HEARTBEAT_FILE, say
        self._has_failed = False
        self._fields: dict[str, Any] = {
            "version": HEARTBEAT_VERSION,
            "host": socket.gethostname(),
            "pid": os.getpid(),
        }

    def update(self, doing: str, **fields: Any) -> None:
        """Write the current activity and fields; earlier values of other fields stay.

        doing: the activity, such as "stepping". fields: numbers and texts by the names in
        `_FIELD_TYPES`, such as step=100. A failure to write is logged once.
        """
        self._fields |= {"at": messages.utc_now(), "doing": doing, **fields}
        try:
            files.write(self._path, json.dumps(self._fields), lasting=False)
        except OSError as error:
            reason = " ".join(str(error).split())
            if not self._has_failed:
                self._say(
                    f"{HEARTBEAT_FILE} cannot be written ({reason}): --status cannot show "
                    "the run's progress; the run continues"
                )
            self._has_failed = True


def read_heartbeat(workdir: str | os.PathLike) -> dict[str, Any]:
    """Return the valid fields of a run's progress.json by name; {} if the file cannot be read.

    Names: those of `_FIELD_TYPES`, "version", "pid" and perhaps others. Fields of a wrong type,
    booleans and numbers of 1e15 or more are left out.
    """

    def is_valid(key: str, value: Any) -> bool:
        """Return True if a value has its key's type, and is neither a bool nor a huge number.

        For keys that are not in _FIELD_TYPES, values may have any type except bool.
        """
        if isinstance(value, (int, float)) and not abs(value) < _MAX_NUMBER:
            return False
        expected_type = _FIELD_TYPES.get(key, object)
        return isinstance(value, expected_type) and not isinstance(value, bool)

    try:
        fields = files.read_json(pathlib.Path(workdir) / HEARTBEAT_FILE, dict, "")
    except (OSError, ValueError):
        return {}
    return {key: value for key, value in fields.items() if is_valid(key, value)}
