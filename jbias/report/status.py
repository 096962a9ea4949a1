"""Functions that show the progress of runs, as a table for a terminal or as JSON.

Progress is read from files in the workdirs. States are those of `jbias.runs.status` and two
more: `stale`, a running run without a heartbeat for a long time, and `damaged`, a run whose
records cannot be read.
"""

import collections
import contextlib
import glob
import json
import os
import pathlib
import shutil
import textwrap
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jbias.runs import status
from jbias.runtime import files, messages

_RUN_FILES = ("log.txt", "lock")  # Every workdir has one of these from the start.
_MAX_DEPTH = 4  # Levels of nested folders that are searched for workdirs.
# Seconds without a heartbeat after which a running process is stale.
_PATIENCE = {"opening": 3600, "compiling": 3600, "evaluating": 1800, "stepping": 600}
_EXPLAINED = (
    "failed",
    "stale",
    "damaged",
    "stopped",
)  # States printed with their reason.
_MIN_NAME_WIDTH = 12  # Characters.


class RunProgress(NamedTuple):
    """The status and progress of one run; unknown fields are None or empty."""

    workdir: str
    state: str
    reason: str = ""
    doing: str = ""  # If running: opening, compiling, stepping or evaluating.
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


def rows(patterns: Sequence[str]) -> list[RunProgress]:
    """Return the status of all runs in folders or globs. Raise ValueError if there is no run.

    patterns: workdirs, folders of workdirs, or globs.
    """
    folders = [os.fspath(files.local_copy(pattern, "--runs")) for pattern in patterns]
    paths = dict.fromkeys(path for folder in folders for path in _find_workdirs(folder))
    if not paths:
        raise ValueError(
            f"--runs: no workdir of a run in {' '.join(patterns)}; check the path"
        )
    return [row(path) for path in paths]


def row(workdir: pathlib.Path) -> RunProgress:
    """Return the status and progress of the run in a workdir.

    If the run's records cannot be read, the state is "damaged" and the reason is the error. A
    running run is "stale" after a long time without a heartbeat or log line. Rates and eta_seconds
    are None unless the run is taking steps.
    """
    heartbeat = status.read_heartbeat(workdir)
    config = _config(workdir)
    age = _age(workdir)
    try:
        progress = status.read(workdir)
    except (ValueError, OSError) as error:
        reason = " ".join(str(error).split())
        return RunProgress(str(workdir), "damaged", reason, age_seconds=age)
    seconds = age or 0.0
    state = progress.phase
    reason = progress.reason
    doing = ""
    if state == "running":
        doing = heartbeat.get("doing", "")
        doing = "opening" if heartbeat and doing not in _PATIENCE else doing
        patience = _PATIENCE.get(doing, _PATIENCE["stepping"])
        if seconds > max(patience, 20 * heartbeat.get("log_seconds", 10)):
            state = "stale"
            reason = (
                "its process holds the lock but has written nothing for "
                f"{seconds / 60:.0f} minutes"
            )
    pace = heartbeat if (state, doing) == ("running", "stepping") else {}
    eta = pace.get("eta_seconds")
    seeds = config.get("seeds")
    valid = config.get("valid") if isinstance(config.get("valid"), dict) else {}
    return RunProgress(
        workdir=str(workdir),
        state=state,
        reason=reason,
        doing=doing,
        step=max(progress.step, heartbeat.get("step", 0)),
        total=progress.steps or heartbeat.get("total", 0),
        rate=pace.get("rate"),
        images_rate=pace.get("images"),
        eta_seconds=None if eta is None else max(0.0, eta - seconds),
        accuracy=progress.accuracy,
        accuracy_on="/".join(str(valid[k]) for k in ("data", "split") if valid.get(k)),
        evaluated=None if progress.evaluated < 0 else progress.evaluated,
        seeds=len(seeds) if isinstance(seeds, list) else 0,
        diverged=progress.diverged,
        devices=heartbeat.get("devices", ""),
        host=heartbeat.get("host", ""),
        age_seconds=age,
    )


def _find_workdirs(pattern: str) -> Iterator[pathlib.Path]:
    """Yield the workdirs in a folder, or in the matches of a glob, in order.

    pattern: folder, workdir or glob.
    """
    literal = os.path.exists(pattern) or not glob.has_magic(pattern)
    for match in [pattern] if literal else sorted(glob.glob(pattern)):
        yield from _walk(pathlib.Path(match), _MAX_DEPTH)


def _walk(folder: pathlib.Path, depth: int) -> Iterator[pathlib.Path]:
    """Yield the folder if it is a workdir, else the workdirs up to `depth` levels below."""
    if any((folder / name).exists() for name in _RUN_FILES):
        yield folder
    elif depth and folder.is_dir():
        for path in sorted(filter(pathlib.Path.is_dir, folder.iterdir())):
            yield from _walk(path, depth - 1)


def _age(workdir: pathlib.Path) -> float | None:
    """Return the seconds since the last change of the log, the heartbeat or the file "done".

    None if all of these files are missing.
    """
    times = []
    for name in ("done", status.HEARTBEAT_FILE, "log.txt"):
        with contextlib.suppress(OSError):
            times.append((workdir / name).stat().st_mtime)
    return max(0.0, time.time() - max(times)) if times else None


def _config(workdir: pathlib.Path) -> dict[str, Any]:
    """Return the config of the run in a workdir; {} if missing or unreadable."""
    try:
        config = json.loads((workdir / "config.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def as_json(rows: Sequence[RunProgress]) -> str:
    """Return JSON text: {"counts": number of runs by state, "runs": list of the runs' fields}."""
    counts = collections.Counter(row.state for row in rows)
    runs = [row._asdict() for row in rows]
    return messages.to_json({"counts": counts, "runs": runs}, indent=1)


def as_text(rows: Sequence[RunProgress], width: int | None = None) -> str:
    """Return a summary, a table with one line per run, and the reasons of unusual states, as text.

    The summary has the number of runs by state and the folder that all runs share. To fit into
    `width`, the table drops its least important columns and then shortens the names of runs at the
    front; different names stay different, so a line may be wider than `width`. A reason follows for
    each failed, stopped, stale or damaged run that has one. The summary and the reasons are
    wrapped.

    rows: result of `rows`, at least one. width: characters per line; None for the width of the
    terminal.
    """
    width = width or shutil.get_terminal_size().columns
    counts = collections.Counter(row.state for row in rows)
    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    folders = [os.path.dirname(os.path.abspath(row.workdir)) for row in rows]
    shared = os.path.commonpath(folders)
    names = [os.path.relpath(os.path.abspath(row.workdir), shared) for row in rows]
    num_runs = f"{len(rows)} runs" if len(rows) > 1 else "1 run"
    summary = messages.one_line(f"{num_runs} in {shared}: {states}")
    cells = [_cells(row, name) for row, name in zip(rows, names, strict=True)]
    table = [{name: name for name in _HEAD}, *cells]
    shown = _columns(table, width)
    sizes = {name: max(len(line[name]) for line in table) for name in shown}
    other_columns = sum(sizes[name] + 2 for name in shown[1:])
    run_names = [line["run"] for line in cells]
    name_width = max(_MIN_NAME_WIDTH, width - other_columns)
    sizes["run"] = min(sizes["run"], _distinct_width(run_names, name_width))
    lines = [*textwrap.wrap(summary, width), ""]
    for line in table:
        padded = [
            f"{_cut(line[name], sizes[name]):{_ALIGN.get(name, '>')}{sizes[name]}}"
            for name in shown
        ]
        lines.append("  ".join(padded).rstrip())
    for row, name in zip(rows, names, strict=True):
        if row.reason and row.state in _EXPLAINED:
            line = messages.one_line(f"{name}: {row.state}: {row.reason}")
            lines += ["", *textwrap.wrap(line, width, subsequent_indent="  ")]
    return "\n".join(lines)


_HEAD = (
    "run",
    "state",
    "step",
    "%",
    "steps/s",
    "ETA",
    "valid %",
    "lost",
    "hardware",
    "age",
)
_ALIGN = {"run": "<", "state": "<", "hardware": "<"}


def _columns(table: Sequence[dict[str, str]], width: int) -> list[str]:
    """Return the names of the columns that fit; the least important are dropped first.

    Columns without text in any run are dropped, too; "run" and "state" always stay. table: text by
    column; the first dict has the heads, the next dicts are one per run. width: characters per
    line.
    """
    needed = ("run", "state")
    shown = [n for n in _HEAD if n in needed or any(line[n] for line in table[1:])]
    longest = max(len(line["run"]) for line in table[1:])
    for name in ("hardware", "%", "lost", "steps/s", "age"):
        other_columns = sum(max(len(line[n]) for line in table) + 2 for n in shown[1:])
        if other_columns + min(longest, 2 * _MIN_NAME_WIDTH) <= width:
            break
        shown = [column for column in shown if column != name]
    return shown


def _cells(row: RunProgress, name: str) -> dict[str, str]:
    """Return the text of each cell of a run by column of `_HEAD`; "" if unknown or inapplicable.

    "%" and "valid %" are numbers without a sign; durations are such as "2h10m". row: an item of
    `rows`. name: name of the run in the table.
    """
    doing = row.doing if row.doing != "stepping" else ""
    count, _, kind = row.devices.partition(" x ")
    hardware = f"{count} CPU cores" if kind == "cpu" else row.devices
    return {
        "run": messages.one_line(name),
        "state": doing if row.state == "running" and doing else row.state,
        "step": f"{row.step}/{row.total}" if row.total else str(row.step or ""),
        "%": f"{100 * row.step / row.total:.0f}" if row.total else "",
        "steps/s": "" if row.rate is None else f"{row.rate:.3g}",
        "ETA": _span(row.eta_seconds),
        "valid %": "" if row.accuracy is None else f"{100 * row.accuracy:.1f}",
        "lost": f"{len(row.diverged)}/{row.seeds}" if row.diverged else "",
        "hardware": messages.one_line(hardware),
        "age": _span(row.age_seconds),
    }


def _span(seconds: float | None) -> str:
    """Return a duration in at most two units: 12s, 3m05s, 2h10m, 4d03h; "" for None."""
    if seconds is None:
        return ""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours:02}h"
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{seconds:02}s" if minutes else f"{seconds}s"


def _cut(text: str, size: int) -> str:
    """Return a path as at most `size` characters: a longer path is "…" and its last characters.

    The end of a path is its most specific part.
    """
    return text if len(text) <= size else "…" + text[len(text) - size + 1 :]


def _distinct_width(names: Sequence[str], size: int) -> int:
    """Return the smallest width >= `size` at which different names differ after `_cut`."""
    longest = max(map(len, names))
    while size < longest and len({_cut(n, size) for n in names}) < len({*names}):
        size += 1
    return size
