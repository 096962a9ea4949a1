"""Predict cycles, memory and traffic of training steps by compiling them for absent devices.

    python -m benchmarks.compiled [ROW ...] [--targets=v5e,v6e] [--only=REGEX] [--list]
        [--keep=DIR] [--known] [--report]

benchmarks.compiled_rows describes rows. The default is its whole table, or each algorithm
on a target of several devices. jbias.training.tuning.targets lists targets; a kind alone, such as
v5e, means one device. Each program is compiled once, in its own process. The compiler's
analysis is stored in DIR, so an interrupted run continues there. With --known, figures of the
committed results are used for rows whose program has not changed. --report compiles nothing;
--report --known takes rows that are not in DIR from the committed results.
Writes benchmarks/results/compiled-TARGET.json and .md for each target, and compiled-goals.

All figures are predictions by the compiler for the target, not measurements. Cycles are the
sum of its estimates for all operations: those in a loop times its iterations, those of a
conditional times the chance that they run. Part `algorithm` is everything in no other part.
For GPUs the launches per step are counted: CUDA graphs, calls of cuDNN and single kernels.

Takes from seconds to 47 minutes per program on two cores: hours for all rows of a target.
--report takes seconds.
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
    result_files,
)
from jbias.training.tuning import targets

ROOT = pathlib.Path(__file__).parents[1]
GIB = 2**30
PARTS = (
    "data",
    "inputs",
    "convolutions",
    "convolutions backwards",
    "normalisation",
    "activations",
    "algorithm",
    "optimiser",
    "guard",
)


def is_current(name: str, target: str, keep: pathlib.Path, source: str) -> bool:
    """Return True if the row was lowered without an error from the same source.

    source: digest of the code, as compiled_step.source computes it.
    """
    record = compiled_read.read_row(name, target, keep)
    return record is not None and record["source"] == source and "error" not in record


def run(
    pairs: Sequence[tuple[str, str]], keep: pathlib.Path, *, known: bool = False
) -> None:
    """Compile all rows that are not in folder `keep`, each in its own process.

    Prints a line per program with its cycles and the estimated minutes left.

    pairs: names of row and target. known: do not compile programs that the committed
    results already describe.
    """
    source, began = compiled_step.source(), time.monotonic()
    todo = [
        (name, target)
        for name, target in pairs
        if not is_current(name, target, keep=keep, source=source)
    ]
    print(f"{len(pairs) - len(todo)} of {len(pairs)} are already compiled", flush=True)
    for number, (name, target) in enumerate(todo, 1):
        command = [sys.executable, "-m", "benchmarks.compiled_step"]
        command += [name, target, keep, *(["known"] if known else [])]
        process = subprocess.run(
            command, check=False, cwd=ROOT, capture_output=True, text=True
        )
        minutes = (time.monotonic() - began) / number * (len(todo) - number) / 60
        if process.returncode == 0:
            outcome = _summary(compiled_read.read_program(name, target, keep))
        elif process.returncode < 0:
            # libtpu's standard error has hundreds of stack frames.
            outcome = f"ended by {signal.Signals(-process.returncode).name}"
        else:
            outcome = process.stderr.strip()[-400:]
        progress = f"{number}/{len(todo)} {name} {target}"
        print(f"{progress}: {outcome}; {minutes:.0f} min left", flush=True)


def _summary(program: Mapping[str, Any] | None) -> str:
    if program is None or "error" in program:
        return program["error"] if program else "nothing was written"
    return (
        f"{program['cycles'] / 1e6:.2f} Mcycles, temporary "
        f"{program['temporary'] / GIB:.3f} GiB, compiled in {program['seconds']:.0f} s"
    )


def table(programs: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown table of a target's programs, a row each."""
    head = (
        "row",
        "Mcycles",
        "ms",
        *PARTS,
        "Gflop",
        "GB",
        "temporary GiB",
        "arguments GiB",
        "launches",
        "kernels",
        "copies",
        "collectives",
        "their MB",
        "no estimate",
    )
    return result_files.markdown(head, map(_cells, programs))


def _cells(program: Mapping[str, Any]) -> Iterator[str]:
    yield program["row"]
    if "error" in program:
        yield program["error"].splitlines()[0].replace("|", "/")[:200]
        return
    cycles, seconds = program["cycles"], compiled_read.seconds(program)
    times, flops = program["times"], program["flops"]
    yield f"{cycles / 1e6:.2f}" if cycles else "–"
    yield f"{1e3 * seconds:.2f}" if cycles and seconds else "–"
    for part in PARTS:
        yield f"{100 * program['parts'][part] / cycles:.1f} %" if cycles else "–"
    yield f"{times * flops / 1e9:,.1f}" if flops else "–"
    # The GPU compiler counts no bytes: take the operations' inputs and outputs.
    traffic = times * program["bytes"] if program["bytes"] else program.get("touched")
    yield f"{traffic / 1e9:,.1f}" if traffic else "–"
    yield f"{program['temporary'] / GIB:.3f}"
    yield f"{program['arguments'] / GIB:.3f}"
    launches = program.get("launches")
    yield _launches(launches, times) if launches else "–"
    yield f"{program['kernels']:,.0f}"
    yield f"{program['copies']:,.0f}"
    yield f"{program['collectives']:,.0f}"
    moved = sum(program[f"moved_{role}"] for role in ("scalars", "norm", "other"))
    yield f"{moved / 1e6:.2f}"
    yield ", ".join(f"{n:g} {name}" for name, n in program["unestimated"].items())


def _launches(launches: Mapping[str, float], times: int) -> str:
    """Return a GPU's launches for all seeds, with its graphs and calls of cuDNN."""
    graphs = times * launches.get("kCommandBuffer", 0)
    calls = times * launches.get("kConvolution", 0)
    total = times * sum(launches.values())
    return f"{total:,g}: {graphs:,g} graphs, {calls:,g} cuDNN"


def report(
    pairs: Sequence[tuple[str, str]], keep: pathlib.Path, out, *, known: bool = False
) -> None:
    """Write the compiled rows to folder `out`, by target, and compare them with the goals.

    pairs: names of row and target. keep: folder of compiled programs. known: take rows
    that are not in `keep` from the committed results.
    """
    by_target: dict[str, list] = {}
    for name, target in pairs:
        program = compiled_read.read_program(name, target, keep)
        if program is None and known:
            program = compiled_step.read_committed(name, target)
        if program is not None:
            by_target.setdefault(target, []).append(program)
    versions = ", ".join(
        f"{package} {version}" for package, version in compiled_step.versions().items()
    )
    for target, programs in by_target.items():
        text = f"{_INTRO} {target}, by {versions}.\n\n{table(programs)}"
        name = compiled_step.results_name(target)
        result_files.write(name, programs, text, ratios={}, out=out)
        by_row = {
            program["row"]: program for program in programs if "error" not in program
        }
        goals_text = compiled_goals.table(by_row, target)
        if goals_text:
            name = compiled_step.results_name(target, "compiled-goals")
            goals = compiled_goals.compare(by_row)
            ratios = {
                goal_name: goal["most"] / goal["now"]
                for goal_name, goal in goals.items()
                if goal["now"]
            }
            result_files.write(name, goals, goals_text, ratios=ratios, out=out)


def _default_rows(target: str) -> Sequence[str]:
    is_one_device = target in targets.KINDS
    return compiled_rows.ROWS if is_one_device else compiled_rows.SHARED


_INTRO = (
    "Predictions by the compiler, not measurements. Shares are of the cycles. Operations "
    "in a loop count once per iteration, those of a branch with the chance that it runs. "
    "Target:"
)


def main() -> None:
    """Compile the rows of the command line and write their results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("rows", nargs="*", help="names of rows; default: the table of each target")
    add(
        "--targets",
        default="v5e,v6e,v5e:16x16",
        help="targets, separated by commas (default: %(default)s)",
    )
    add(
        "--only",
        default="",
        help="compile only rows that match this regular expression (default: all)",
    )
    add("--list", action="store_true", help="print the rows and exit")
    add(
        "--known",
        action="store_true",
        help="reuse figures of the committed results for unchanged programs",
    )
    add(
        "--report",
        action="store_true",
        help="compile nothing; write the results of the rows that are in --keep",
    )
    add(
        "--keep",
        type=pathlib.Path,
        default=ROOT / "build" / "compiled",
        help="folder for compiled programs (default: build/compiled)",
    )
    add(
        "--out",
        type=pathlib.Path,
        default=result_files.RESULTS,
        help="folder for the results (default: benchmarks/results)",
    )
    args = parser.parse_args()
    pairs = [
        (name, target)
        for target in args.targets.split(",")
        for name in args.rows or _default_rows(target)
        if re.search(args.only, name)
    ]
    for name, _ in pairs:
        compiled_rows.parse(name)
    if args.list:
        print(*(f"{name} {target}" for name, target in pairs), sep="\n")
        return
    if not args.report:
        run(pairs, args.keep.resolve(), known=args.known)
    report(pairs, args.keep.resolve(), args.out, known=args.known)


if __name__ == "__main__":
    main()
