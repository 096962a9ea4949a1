"""Read the files of `benchmarks.compiled_step`: costs of compiled programs."""

import functools
import gzip
import json
import math
import pathlib
from collections.abc import Iterable
from typing import Any

from benchmarks import collectives, compiled_rows, compiled_step
from jbias import build
from jbias.training.tuning import hlo, targets

# Operations that start no kernel: names for parts of other operations, and waits.
_NO_KERNELS = {
    "parameter",
    "constant",
    "tuple",
    "get-tuple-element",
    "bitcast",
    "while",
    "conditional",
    "call",
    "after-all",
    "partition-id",
    "copy-done",
    "async-done",
    *(f"{name}-done" for name in hlo.COLLECTIVES),
}


def read_row(name: str, target: str, keep: pathlib.Path) -> dict[str, Any] | None:
    """Return the record of a lowered row with its program's digest.

    None if the row was not lowered into folder `keep`.
    """
    path = keep / "rows" / compiled_step.file_of(name, target)
    return json.loads(path.read_text()) if path.exists() else None


def read_program(name: str, target: str, keep: pathlib.Path) -> dict[str, Any] | None:
    """Return the record of a row with the costs of its compiled program.

    None if the row was not compiled, neither into folder `keep` nor in the committed
    results. A row whose compilation failed has the key "error" instead of costs.
    """
    record = read_row(name, target, keep)
    if record is None or "error" in record:
        return record
    program = keep / "programs" / record["program"]
    if not program.with_suffix(".json").exists():
        committed = compiled_step.read_committed(name, target) or {}
        is_current = committed.get("program") == record["program"]
        return {**committed, **record} if is_current else None
    compiler_analysis = json.loads(program.with_suffix(".json").read_text())
    row = compiled_rows.parse(name)
    costs = _read_costs(
        program.with_suffix(".hlo.gz"),
        row.branch_chance,
        times=record["times"],
        seeds=row.seeds,
    )
    return {
        **record,
        **compiler_analysis,
        **costs,
        "seeds": row.seeds,
        "views": _count_views(row),
    }


def _count_views(row: compiled_rows.Row) -> int:
    """Return how often the row's inputs repeat an image within a batch."""
    transforms = build.transforms("inputs", row.inputs)
    return math.prod(transform.views for transform in transforms)


@functools.cache
def _read_costs(
    path: pathlib.Path, branch_chance: float, *, times: int, seeds: int
) -> dict[str, Any]:
    text = gzip.decompress(path.read_bytes()).decode()
    return sum_costs(text, branch_chance, times=times, seeds=seeds)


def sum_costs(
    text: str, branch_chance: float, *, times: int = 1, seeds: int = 1
) -> dict[str, Any]:
    """Return cycles, kernels, copies and traffic of a compiled program.

    text: the program's HLO. branch_chance: chance that an algorithm's branch runs.
    times: runs of the program in a step. seeds: seeds in the program.
    """
    operations = hlo.operations(text, branch_probability=branch_chance, seeds=seeds)
    cycles_by_part = {part: times * n for part, n in hlo.by_part(operations).items()}
    moved = collectives.collective_outputs(text)
    kernels = [
        operation for operation in operations if operation.code not in _NO_KERNELS
    ]
    collective_operations = [
        operation
        for operation in operations
        if operation.code.removesuffix("-done") in hlo.COLLECTIVES
    ]
    by_cycles = sorted(operations, key=lambda operation: -operation.total)
    return {
        "cycles": sum(cycles_by_part.values()),
        "parts": cycles_by_part,
        "unestimated": hlo.unestimated(operations),
        "touched": times
        * sum(operation.bytes * operation.runs for operation in operations),
        "kernels": times * _count_runs(kernels),
        **_sum_copies(operations, times),
        "collectives": _count_runs(collective_operations),
        **{f"moved_{role}": n for role, n in collectives.by_role(moved).items()},
        "largest": [
            [
                operation.name,
                operation.code,
                operation.part,
                operation.total,
                operation.scope,
            ]
            for operation in by_cycles[:12]
        ],
    }


def _count_runs(operations: Iterable[hlo.Operation]) -> float:
    return sum(
        1 if operation.times is None else operation.times for operation in operations
    )


def _sum_copies(operations: Iterable[hlo.Operation], times: int) -> dict[str, float]:
    """Return the number and bytes of copies within the device's memory."""
    totals = {"copies": 0, "copied": 0}
    for operation in operations:
        if operation.code == "copy":
            runs = times * (1 if operation.times is None else operation.times)
            size = sum(size for _, size in hlo.arrays(operation.out))
            totals["copies"] += runs
            totals["copied"] += runs * size
    return totals


def seconds(program: dict[str, Any]) -> float | None:
    """Return the seconds that the program's cycles take; None without a clock rate."""
    target = targets.parse(_add_topology(program["target"]))
    kind = targets.KINDS[target.generation]
    return program["cycles"] / kind.hertz if kind.hertz else None


def _add_topology(target: str) -> str:
    """Return the full name of a target: a kind alone means one device."""
    kind = targets.KINDS.get(target)
    return f"{target}:{'x'.join('1' * kind.axes)}" if kind and kind.axes else target
