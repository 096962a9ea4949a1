"""How far the runs in a folder are, as a table for a terminal or as JSON.

It is read from what they leave in their workdirs. States are those of `jbias.runs.status`;
beside them a running one that gives no sign of life for long is `stale`, and one whose
records cannot be read is `damaged`.
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

_OURS = ("log.txt", "lock")  # What every run has from its first moment on.
_DEPTH = 4  # Of folders of sweeps and studies below the one named.
# Seconds without a sign of life after which a running process is called stale.
_PATIENCE = {"opening": 3600, "compiling": 3600, "evaluating": 1800, "stepping": 600}
_EXPLAINED = ("failed", "stale", "damaged", "stopped")  # Of these it is told why.
_LEAST = 12  # Columns that a name has at the least.


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
    paths = dict.fromkeys(path for one in here for path in _runs(one))
    if not paths:
        told = "--runs: must hold workdirs of runs, got none"
        raise ValueError(f"{told}: {' '.join(patterns)}")
    return [row(path) for path in paths]


def row(workdir: pathlib.Path) -> Row:
    """The state of the run in a folder."""
    beat, config, age = status.read_heartbeat(workdir), _config(workdir), _age(workdir)
    try:
        found = status.read(workdir)
    except (ValueError, OSError) as error:
        reason = " ".join(str(error).split())
        return Row(str(workdir), "damaged", reason, age_seconds=age)
    seconds, state, reason, doing = age or 0.0, found.phase, found.reason, ""
    if state == "running":
        doing = beat.get("doing", "")
        doing = "opening" if beat and doing not in _PATIENCE else doing
        patience = _PATIENCE.get(doing, _PATIENCE["stepping"])
        if seconds > max(patience, 20 * beat.get("log_seconds", 10)):
            told = f"has told nothing for {seconds / 60:.0f} minutes"
            state, reason = "stale", f"its process holds the lock and {told}"
    pace = beat if (state, doing) == ("running", "stepping") else {}
    eta, seeds = pace.get("eta_seconds"), config.get("seeds")
    valid = config.get("valid") if isinstance(config.get("valid"), dict) else {}
    return Row(
        *(str(workdir), state, reason, doing),
        step=max(found.step, beat.get("step", 0)),
        total=found.steps or beat.get("total", 0),
        rate=pace.get("rate"),
        images_rate=pace.get("images"),
        eta_seconds=None if eta is None else max(0.0, eta - seconds),
        accuracy=found.accuracy,
        accuracy_on="/".join(str(valid[k]) for k in ("data", "split") if valid.get(k)),
        evaluated=None if found.evaluated < 0 else found.evaluated,
        seeds=len(seeds) if isinstance(seeds, list) else 0,
        diverged=found.diverged,
        devices=beat.get("devices", ""),
        host=beat.get("host", ""),
        age_seconds=age,
    )


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
        for path in sorted(filter(pathlib.Path.is_dir, folder.iterdir())):
            yield from _below(path, depth - 1)


def _age(workdir: pathlib.Path) -> float | None:
    """Seconds since the run last wrote a line or its sign of life."""
    times = []
    for name in ("done", status.HEARTBEAT_FILE, "log.txt"):
        with contextlib.suppress(OSError):
            times.append((workdir / name).stat().st_mtime)
    return max(0.0, time.time() - max(times)) if times else None


def _config(workdir: pathlib.Path) -> dict[str, Any]:
    try:
        config = json.loads((workdir / "config.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def as_json(rows: Sequence[Row]) -> str:
    """One object with all runs, and how many are in which state."""
    counts = collections.Counter(one.state for one in rows)
    runs = [one._asdict() for one in rows]
    return messages.to_json({"counts": counts, "runs": runs}, indent=1)


def as_text(rows: Sequence[Row], width: int | None = None) -> str:
    """A line for each run, as wide as the terminal; lines that explain follow."""
    width = width or shutil.get_terminal_size().columns
    counts = collections.Counter(one.state for one in rows)
    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    folders = [os.path.dirname(os.path.abspath(one.workdir)) for one in rows]
    shared = os.path.commonpath(folders)
    names = [os.path.relpath(os.path.abspath(one.workdir), shared) for one in rows]
    some = f"{len(rows)} runs" if len(rows) > 1 else "1 run"
    summary = messages.one_line(f"{some} in {shared}: {states}")
    cells = [_cells(one, name) for one, name in zip(rows, names, strict=True)]
    table = [{name: name for name in _HEAD}, *cells]
    shown = _columns(table, width)
    sizes = {name: max(len(line[name]) for line in table) for name in shown}
    rest = sum(sizes[name] + 2 for name in shown[1:])
    short = [one["run"] for one in cells]
    sizes["run"] = min(sizes["run"], _telling(short, max(_LEAST, width - rest)))
    lines = [*textwrap.wrap(summary, width), ""]
    for line in table:
        cut = [_cut(line[name], sizes[name]) for name in shown]
        wide = [f"{cell:{_ALIGN.get(n, '>')}{sizes[n]}}" for n, cell in zip(shown, cut)]
        lines.append("  ".join(wide).rstrip())
    for one, name in zip(rows, names, strict=True):
        if one.reason and one.state in _EXPLAINED:
            line = messages.one_line(f"{name}: {one.state}: {one.reason}")
            lines += ["", *textwrap.wrap(line, width, subsequent_indent="  ")]
    return "\n".join(lines)


_HEAD = ("run", "state", "step", "%", "steps/s", "ETA", "valid %", "lost")
_HEAD += ("hardware", "age")
_ALIGN = {"run": "<", "state": "<", "hardware": "<"}


def _columns(table: Sequence[dict[str, str]], width: int) -> list[str]:
    """The columns that fit: those that say least go first."""
    needed = ("run", "state")
    shown = [n for n in _HEAD if n in needed or any(line[n] for line in table[1:])]
    longest = max(len(line["run"]) for line in table[1:])
    for name in ("hardware", "%", "lost", "steps/s", "age"):
        rest = sum(max(len(line[n]) for line in table) + 2 for n in shown[1:])
        if rest + min(longest, 2 * _LEAST) <= width:
            break
        shown = [one for one in shown if one != name]
    return shown


def _cells(one: Row, name: str) -> dict[str, str]:
    doing = one.doing if one.doing != "stepping" else ""
    count, _, kind = one.devices.partition(" x ")
    # What a run is billed for; of a CPU it is cores, which are no devices.
    hardware = f"{count} CPU cores" if kind == "cpu" else one.devices
    return {
        "run": messages.one_line(name),
        "state": doing if one.state == "running" and doing else one.state,
        "step": f"{one.step}/{one.total}" if one.total else str(one.step or ""),
        "%": f"{100 * one.step / one.total:.0f}" if one.total else "",
        "steps/s": "" if one.rate is None else f"{one.rate:.3g}",
        "ETA": _span(one.eta_seconds),
        "valid %": "" if one.accuracy is None else f"{100 * one.accuracy:.1f}",
        "lost": f"{len(one.diverged)}/{one.seeds}" if one.diverged else "",
        "hardware": messages.one_line(hardware),
        "age": _span(one.age_seconds),
    }


def _span(seconds: float | None) -> str:
    """At most two units: 12s, 3m05s, 2h10m, 4d03h."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours:02}h"
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


def _cut(text: str, size: int) -> str:
    """The end of a path, which tells more than its beginning."""
    return text if len(text) <= size else "…" + text[len(text) - size + 1 :]


def _telling(names: Sequence[str], size: int) -> int:
    """So many columns, or the fewest more in which no two names are cut alike."""
    longest = max(map(len, names))
    while size < longest and len({_cut(n, size) for n in names}) < len({*names}):
        size += 1
    return size
