r"""No benchmark of speed: malformed input for the commands, and what comes of it.

    python -m benchmarks.fuzz --inputs=1000 --seed=0

Configs, arguments, suites, records and what lies beside them, tables of scores, data sets
and checkpoints are damaged at random (by hypothesis): bytes, values, types, encodings.
Each must be refused in one line, or read rightly; nothing that was there may be lost. Exit
code 1 if any is not, and standard error says how.
"""

import argparse
import collections
import pathlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import hypothesis

from benchmarks import measured
from benchmarks.fuzz import (
    attempts,
    checkpoints,
    commands,
    configs,
    images,
    records,
    runs,
    sweeps,
)
from jbias.runtime import console


class Kind(NamedTuple):
    """One kind of input: its folder, what is wrong with it, and who reads it."""

    made: Callable[[pathlib.Path], None]
    cases: Callable
    command: Callable[[tuple[str, ...]], int]
    share: int  # Of a hundred inputs.
    right: Callable[[attempts.Case], str] = lambda case: ""


KINDS = {
    "config files": Kind(configs.made, configs.files, commands.training, 11),
    "--config.key=value": Kind(configs.made, configs.changes, commands.training, 9),
    "config arguments": Kind(configs.made, configs.argued, commands.training, 7),
    "suites": Kind(configs.made, configs.suites, commands.measuring, 5),
    "records": Kind(
        *(records.made, records.records, commands.reporting, 13),
        records.wrong_records,
    ),
    "beside records": Kind(records.made, records.beside, commands.reporting, 6),
    "score tables": Kind(
        *(records.made, records.scores, commands.reporting, 13),
        records.wrong_scores,
    ),
    "data sets": Kind(images.made, images.sets, commands.preparing, 10),
    "our checkpoints": Kind(checkpoints.made, checkpoints.ours, commands.preparing, 6),
    "others' weights": Kind(
        checkpoints.made, checkpoints.others, commands.preparing, 6
    ),
    "status": Kind(runs.made, runs.runs, commands.reporting, 7, runs.wrong),
    "sweeps": Kind(sweeps.made, sweeps.sweeps, commands.sweeping, 7),
}


def outcomes(kind: Kind, count: int, seed: int) -> Iterator[attempts.Outcome]:
    """Tries so many inputs of a kind."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, out = (pathlib.Path(temporary) / name for name in ("in", "out"))
        folder.mkdir()
        kind.made(folder)
        for case in drawn(kind.cases(folder, out), count, seed):
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            yield attempts.attempt(case, kind.command, folder, kind.right)


def drawn(strategy, count: int, seed: int) -> list[attempts.Case]:
    """So many different examples of a strategy."""
    found: list[attempts.Case] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategy)
    def note(case: attempts.Case) -> None:
        found.append(case)

    note()
    return found[:count]


def main(argv: Sequence[str] | None = None) -> int:
    """Tries all kinds, writes the table; returns the exit code."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--inputs", type=int, default=1000, metavar="N", help="in all")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--only", default="", metavar="KIND", help=", ".join(KINDS))
    made.add_argument("--out", default=measured.RESULTS, type=pathlib.Path)
    args = made.parse_args(argv)
    console.silence_warnings()
    rows, failed = [], 0
    for name, kind in KINDS.items():
        if args.only and name != args.only:
            continue
        began, found = time.monotonic(), collections.Counter()
        for outcome in outcomes(kind, -(-kind.share * args.inputs // 100), args.seed):
            found[outcome.verdict] += 1
            if outcome.failed:
                failed += 1
                told = f"{name}: {outcome.verdict}: {outcome.case.words!r:.300}"
                print(f"{told}\n{outcome.told}\n", file=sys.stderr)
        rows.append((name, found, time.monotonic() - began))
        print(_row(*rows[-1]), flush=True)
    text = _table(rows, args.seed)
    if not args.only:
        (args.out / "fuzz.md").write_text(text)
    print(text)
    return 1 if failed else 0


def _row(name: str, found: collections.Counter, seconds: float) -> str:
    kinds = ("refused", "read", *attempts.FAILURES)
    cells = [name, found.total(), *(found[kind] for kind in kinds), f"{seconds:.0f}"]
    return f"| {' | '.join(map(str, cells))} |"


def _table(rows: list[tuple], seed: int) -> str:
    total = sum((found for _, found, _ in rows), collections.Counter())
    head = ("", "tried", "refused in a line", "read rightly", *attempts.FAILURES, "s")
    lines = [f"| {' | '.join(head)} |", "|:--" + "|--:" * (len(head) - 1) + "|"]
    lines += [_row(*row) for row in rows]
    lines.append(_row("all", total, sum(seconds for *_, seconds in rows)))
    told = (
        f"Malformed inputs, drawn with seed {seed}: `python -m benchmarks.fuzz`. Nothing "
        "that was there was lost, no traceback was shown, and none took longer than "
        f"{attempts.SECONDS} s, where the columns of failures are 0.\n\n"
    )
    return f"# What malformed input does\n\n{told}" + "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
