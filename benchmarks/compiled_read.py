"""What a compiled program of `benchmarks.compiled_step` says, read from what is kept."""

import collections
import functools
import gzip
import json
import math
import pathlib
from collections.abc import Iterable
from typing import Any

from benchmarks import collectives, compiled_rows, compiled_step
from jbias import build
from jbias.training import hlo, targets

# Not one of them is work of its own: names for parts of others, and waits.
_NO_KERNELS = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while"),
    *("conditional", "call", "after-all", "partition-id", "copy-done", "async-done"),
    *(f"{name}-done" for name in hlo.COLLECTIVES),
}


def brief(name: str, target: str, keep: pathlib.Path) -> dict[str, Any] | None:
    """What was lowered for a row, and which program it is; None where nothing was."""
    path = keep / "rows" / compiled_step.file_of(name, target)
    return json.loads(path.read_text()) if path.exists() else None


def read(name: str, target: str, keep: pathlib.Path) -> dict[str, Any] | None:
    """What is known of a row on a target; None where it was not compiled."""
    told = brief(name, target, keep)
    if told is None or "error" in told:
        return told
    program = keep / "programs" / told["program"]
    if not program.with_suffix(".json").exists():
        earlier = compiled_step.known(name, target) or {}
        return (
            {**earlier, **told} if earlier.get("program") == told["program"] else None
        )
    said = json.loads(program.with_suffix(".json").read_text())
    row = compiled_rows.parse(name)
    file, seeds = program.with_suffix(".hlo.gz"), row.seeds
    found = _read(file, row.taken, told["times"], seeds)
    return {**told, **said, **found, "seeds": row.seeds, "views": _views(row)}


def _views(row: compiled_rows.Row) -> int:
    """In how many rows the inputs show an image."""
    return math.prod(one.views for one in build.transforms("inputs", row.inputs))


@functools.cache
def _read(path: pathlib.Path, taken: float, times: int, seeds: int) -> dict[str, Any]:
    text = gzip.decompress(path.read_bytes()).decode()
    return described(text, taken, times, seeds)


def described(
    text: str, taken: float, times: int = 1, seeds: int = 1
) -> dict[str, Any]:
    """What a program does that runs so many times: cycles, kernels, copies, traffic."""
    found = hlo.operations(text, taken=taken, seeds=seeds)
    parts = {part: times * n for part, n in hlo.by_part(found).items()}
    moved = collectives.collective_outputs(text)
    return {
        "cycles": sum(parts.values()),
        "parts": parts,
        "unestimated": hlo.unestimated(found),
        "touched": times * sum(one.bytes * one.runs for one in found),
        "kernels": times * _runs(one for one in found if one.code not in _NO_KERNELS),
        **_copies(found, times),
        "collectives": _runs(
            one for one in found if one.code.removesuffix("-done") in hlo.COLLECTIVES
        ),
        **{f"moved_{role}": n for role, n in collectives.by_role(moved).items()},
        "largest": [
            [one.name, one.code, one.part, one.total, one.scope]
            for one in sorted(found, key=lambda one: -one.total)[:12]
        ],
    }


def _runs(found: Iterable[hlo.Operation]) -> float:
    return sum(1 if one.times is None else one.times for one in found)


def _copies(found: Iterable[hlo.Operation], times: int) -> dict[str, float]:
    """Copies within the device's memory, and the bytes of what they make."""
    counted = collections.Counter()
    for one in found:
        if one.code == "copy":
            turns = times * (1 if one.times is None else one.times)
            counted["copies"] += turns
            counted["copied"] += turns * sum(size for _, size in hlo.arrays(one.out))
    return {"copies": 0, "copied": 0, **counted}


def seconds(found: dict[str, Any]) -> float | None:
    """What the cycles take on the target."""
    kind = targets.KINDS[targets.parse(_named(found["target"])).generation]
    return found["cycles"] / kind.hertz if kind.hertz else None


def _named(target: str) -> str:
    kind = targets.KINDS.get(target)
    return f"{target}:{'x'.join('1' * kind.axes)}" if kind and kind.axes else target
