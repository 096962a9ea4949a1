"""The status of runs as a table for a terminal, or as JSON."""

import json
import os
import shutil
import textwrap
from collections.abc import Sequence

from jbias.report import status
from jbias.runtime import messages

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
_NUMBERS = ("step", "%", "steps/s", "ETA", "valid %", "lost", "age")
# Of these it is told why.
_EXPLAINED = ("failed", "stale", "damaged", "stopped")
_LEAST = 12  # Columns that a name has at the least.


def as_json(rows: Sequence[status.Row]) -> str:
    """One object with all runs, and how many are in which state."""
    runs = [one._asdict() for one in rows]
    return json.dumps({"counts": counts(rows), "runs": runs}, indent=1)


def counts(rows: Sequence[status.Row]) -> dict[str, int]:
    """How many runs are in which state."""
    found = {}
    for one in rows:
        found[one.state] = found.get(one.state, 0) + 1
    return found


def as_text(rows: Sequence[status.Row], width: int | None = None) -> str:
    """A table in so many columns, those of the terminal by themselves."""
    width = width or shutil.get_terminal_size().columns
    told = ", ".join(f"{count} {state}" for state, count in counts(rows).items())
    shared = _shared([one.workdir for one in rows])
    some = f"{len(rows)} runs" if len(rows) > 1 else "1 run"
    lines = [
        *textwrap.wrap(messages.one_line(f"{some} in {shared}: {told}"), width),
        "",
    ]
    cells = [_cells(one, shared) for one in rows]
    kept = _kept(cells, width)
    sizes = {name: max(len(c[name]) for c in (*cells, _head())) for name in kept}
    rest = sum(sizes[name] + 2 for name in kept[1:])
    names = [one["run"] for one in cells]
    sizes["run"] = min(sizes["run"], _telling(names, max(_LEAST, width - rest)))
    for of in (_head(), *cells):
        lines.append("  ".join(_placed(of[n], n, sizes[n]) for n in kept).rstrip())
    reasons = [one for one in rows if one.reason and one.state in _EXPLAINED]
    for one in reasons:
        line = messages.one_line(f"{_name(one, shared)}: {one.state}: {one.reason}")
        lines += ["", *textwrap.wrap(line, width, subsequent_indent="  ")]
    return "\n".join(lines)


def _head() -> dict[str, str]:
    return {name: name for name in _HEAD}


def _kept(cells: Sequence[dict[str, str]], width: int) -> list[str]:
    """The columns that fit: those that say least go first."""
    kept = [n for n in _HEAD if n in ("run", "state") or any(c[n] for c in cells)]
    for name in ("hardware", "%", "lost", "steps/s", "age"):
        sizes = [max(len(c[n]) for c in (*cells, _head())) + 2 for n in kept[1:]]
        longest = max(len(c["run"]) for c in cells)
        if sum(sizes) + min(longest, 2 * _LEAST) <= width:
            break
        kept = [one for one in kept if one != name]
    return kept


def _cells(one: status.Row, shared: str) -> dict[str, str]:
    doing = one.doing if one.doing != "stepping" else ""
    state = doing if one.state == "running" and doing else one.state
    part = f"{100 * one.step / one.total:.0f}" if one.total else ""
    steps = f"{one.step}/{one.total}" if one.total else f"{one.step}" * bool(one.step)
    return {
        "run": messages.one_line(_name(one, shared)),
        "state": state,
        "step": steps,
        "%": part,
        "steps/s": "" if one.rate is None else f"{one.rate:.3g}",
        "ETA": "" if one.eta_seconds is None else _span(one.eta_seconds),
        "valid %": "" if one.accuracy is None else f"{100 * one.accuracy:.1f}",
        "lost": f"{len(one.diverged)}/{one.seeds}" if one.diverged else "",
        "hardware": messages.one_line(_hardware(one.devices)),
        "age": "" if one.age_seconds is None else _span(one.age_seconds),
    }


def _hardware(told: str) -> str:
    """What a run is billed for; of a CPU it is cores, which are no devices."""
    count, _, kind = told.partition(" x ")
    return f"{count} CPU cores" if kind == "cpu" else told


def _span(seconds: float) -> str:
    """At most two units: 12s, 3m05s, 2h10m, 4d03h."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours:02}h"
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


def _shared(paths: Sequence[str]) -> str:
    """The folder that all runs are in."""
    return os.path.commonpath(
        [os.path.dirname(os.path.abspath(path)) for path in paths]
    )


def _name(one: status.Row, shared: str) -> str:
    return os.path.relpath(os.path.abspath(one.workdir), shared)


def _placed(text: str, name: str, size: int) -> str:
    return text.rjust(size) if name in _NUMBERS else _cut(text, size).ljust(size)


def _cut(text: str, size: int) -> str:
    """The end of a path, which tells more than its beginning."""
    return text if len(text) <= size else "…" + text[len(text) - size + 1 :]


def _telling(names: Sequence[str], size: int) -> int:
    """So many columns, or the fewest more in which no two names are cut alike."""
    longest = max(map(len, names))
    while size < longest and len({_cut(n, size) for n in names}) < len({*names}):
        size += 1
    return size
