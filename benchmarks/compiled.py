"""What compilers predict of every step, without a device: cycles, memory, traffic.

    python -m benchmarks.compiled [ROW ...] [--targets=v5e,v6e] [--only=REGEX] [--list]
        [--keep=DIR] [--known] [--report]

Rows are as benchmarks.compiled_rows says, by default all of its table, and on a target of
several devices each algorithm; targets those of jbias.training.targets, and the name of a
kind alone is one device of it. Each program is compiled in a process of its own, and once:
what the compiler said is kept in DIR, from which a run that was stopped goes on; with
--known the results' figures hold for rows whose program is still the same. --report
compiles nothing; with --known it leaves rows that are not in DIR as the results have them.
Writes benchmarks/results/compiled-TARGET.json and .md for each target, and compiled-goals.

All figures are predictions by the compiler for that target, no measurements. Cycles are
the sum of its estimates for all operations: those in a loop as often as it turns, those of
a conditional with the chance that they run. `algorithm` is what is in no other part. Of GPUs
the launches a step are counted: whole CUDA graphs, calls of cuDNN, and single kernels.
"""

import argparse
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks import (
    compiled_goals,
    compiled_read,
    compiled_rows,
    compiled_step,
    measured,
)
from jbias.training import targets

ROOT = pathlib.Path(__file__).parents[1]
GIB = 2**30
PARTS = (
    *("data", "inputs", "convolutions", "convolutions backwards", "normalisation"),
    *("activations", "algorithm", "optimiser", "guard"),
)


def fresh(name: str, target: str, keep: pathlib.Path, source: str) -> bool:
    """Whether nothing has changed since this row was lowered."""
    found = compiled_read.brief(name, target, keep)
    return found is not None and found["source"] == source and "error" not in found


def run(pairs: Sequence[tuple[str, str]], keep: pathlib.Path, *options: str) -> None:
    """Compiles what is not there, each in a process of its own; tells what is left."""
    source, began = compiled_step.source(), time.monotonic()
    todo = [pair for pair in pairs if not fresh(*pair, keep, source)]
    print(f"{len(pairs) - len(todo)} of {len(pairs)} are there", flush=True)
    for done, (name, target) in enumerate(todo, 1):
        module = "benchmarks.compiled_step"
        command = [sys.executable, "-m", module, name, target, keep, *options]
        ended = subprocess.run(
            command, check=False, cwd=ROOT, capture_output=True, text=True
        )
        left = (time.monotonic() - began) / done * (len(todo) - done) / 60
        found = compiled_read.read(name, target, keep)
        why = ended.stderr.strip()[-400:]
        if ended.returncode < 0:  # And libtpu's stack, hundreds of frames of it.
            why = f"ended by {signal.Signals(-ended.returncode).name}"
        said = _said(found) if ended.returncode == 0 else why
        told = f"{done}/{len(todo)} {name} {target}: {said}; {left:.0f} min left"
        print(told, flush=True)


def _said(found: Mapping[str, Any] | None) -> str:
    if found is None or "error" in found:
        return found["error"] if found else "nothing"
    return (
        f"{found['cycles'] / 1e6:.2f} Mcycles, temporary "
        f"{found['temporary'] / GIB:.3f} GiB, compiled in {found['seconds']:.0f} s"
    )


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """All rows of one target."""
    return measured.markdown(
        (
            *("row", "Mcycles", "ms", *PARTS, "Gflop", "GB", "temporary GiB"),
            *(
                "arguments GiB",
                "launches",
                "kernels",
                "copies",
                "collectives",
                "their MB",
            ),
            "no estimate",
        ),
        map(_cells, found),
    )


def _cells(one: Mapping[str, Any]) -> Iterator[str]:
    yield one["row"]
    if "error" in one:
        yield one["error"].splitlines()[0].replace("|", "/")[:200]
        return
    cycles, seconds = one["cycles"], compiled_read.seconds(one)
    yield f"{cycles / 1e6:.2f}" if cycles else "–"
    yield f"{1e3 * seconds:.2f}" if cycles and seconds else "–"
    for part in PARTS:
        yield f"{100 * one['parts'][part] / cycles:.1f} %" if cycles else "–"
    yield f"{one['times'] * one['flops'] / 1e9:,.1f}" if one["flops"] else "–"
    # GPUs' compiler counts no bytes: then what its operations are given and give.
    moved = one["times"] * one["bytes"] if one["bytes"] else one.get("touched")
    yield f"{moved / 1e9:,.1f}" if moved else "–"
    yield f"{one['temporary'] / GIB:.3f}"
    yield f"{one['arguments'] / GIB:.3f}"
    launches = one.get("launches")
    yield _launches(launches, one["times"]) if launches else "–"
    yield f"{one['kernels']:,.0f}"
    yield f"{one['copies']:,.0f}"
    yield f"{one['collectives']:,.0f}"
    moved = sum(one[f"moved_{role}"] for role in ("scalars", "norm", "other"))
    yield f"{moved / 1e6:.2f}"
    yield ", ".join(f"{n:g} {name}" for name, n in one["unestimated"].items())


def _launches(launches: Mapping[str, float], times: int) -> str:
    """Return a GPU's launches for all seeds, the graphs and calls of cuDNN among them."""
    graphs = times * launches.get("kCommandBuffer", 0)
    calls = times * launches.get("kConvolution", 0)
    total = times * sum(launches.values())
    return f"{total:,g}: {graphs:,g} graphs, {calls:,g} cuDNN"


def report(
    pairs: Sequence[tuple[str, str]], keep: pathlib.Path, out, *, known: bool = False
) -> None:
    """Writes what is there, by target, and how far the goals are reached.

    known: of rows that were not lowered here, what the results have.
    """
    by_target: dict[str, list] = {}
    for name, target in pairs:
        found = compiled_read.read(name, target, keep)
        if found is None and known:
            found = compiled_step.known(name, target)
        if found is not None:
            by_target.setdefault(target, []).append(found)
    for target, found in by_target.items():
        base = {one["row"]: one for one in found if "error" not in one}
        by = ", ".join(" ".join(one) for one in compiled_step.versions().items())
        text = f"{_INTRO} {target}, by {by}.\n\n{table(found)}"
        measured.write(compiled_step.results(target), found, text, ratios={}, out=out)
        if text := compiled_goals.table(base, target):
            name = compiled_step.results(target, "compiled-goals")
            goals = compiled_goals.reached(base)
            above = {what: one for what, one in goals.items() if one["now"]}
            ratios = {what: one["most"] / one["now"] for what, one in above.items()}
            measured.write(name, goals, text, ratios=ratios, out=out)


def _usual(target: str) -> Sequence[str]:
    one = target in targets.KINDS
    return compiled_rows.ROWS if one else compiled_rows.SHARED


_INTRO = (
    "Predictions by the compiler, not measurements. Shares are of the cycles; operations "
    "in a loop count as often as it turns, those of a branch with the chance that it is "
    "taken. Target:"
)


def main() -> None:
    """Compiles, and writes the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("rows", nargs="*")
    add("--targets", default="v5e,v6e,v5e:16x16")
    add("--only", default="", help="a regular expression")
    add("--list", action="store_true", help="the rows, and nothing else")
    add("--known", action="store_true", help="take the results' of the same programs")
    add("--report", action="store_true", help="of what is there")
    add("--keep", type=pathlib.Path, default=ROOT / "build" / "compiled")
    add("--out", type=pathlib.Path, default=measured.RESULTS)
    args = parser.parse_args()
    pairs = [
        (name, target)
        for target in args.targets.split(",")
        for name in args.rows or _usual(target)
        if re.search(args.only, name)
    ]
    for name, _ in pairs:
        compiled_rows.parse(name)
    if args.list:
        print(*(f"{name} {target}" for name, target in pairs), sep="\n")
        return
    if not args.report:
        run(pairs, args.keep.resolve(), *(("known",) if args.known else ()))
    report(pairs, args.keep.resolve(), args.out, known=args.known)


if __name__ == "__main__":
    main()
