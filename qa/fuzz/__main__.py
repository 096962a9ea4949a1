"""Give the jbias commands malformed input, and count how they end.

    python -m qa.fuzz
    python -m qa.fuzz --inputs=2000 --seed=1
    python -m qa.fuzz --only=sweeps

Configs, arguments, suites, records and the files next to them, tables of scores, data sets
and checkpoints are damaged at random (with the Hypothesis library): bytes, values, types,
encodings. A command must refuse each input in one line, or read it rightly, and no existing file
may be lost. Other endings are printed to standard error with the reason, and the exit code is then
1. Prints a table, with a row per kind of input, and writes it to OUT/fuzz.md. With --only, only
prints the table.

Takes about two minutes on two cores.
"""

import collections
import pathlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import hypothesis

from jbias.runtime import console
from qa import command
from qa.fuzz import (
    attempts,
    checkpoints,
    commands,
    configs,
    images,
    records,
    runs,
    sweeps,
)


class Kind(NamedTuple):
    """A kind of input.

    write_inputs: writes sound inputs to a folder. cases: maps the folder and an output
    folder to a strategy for malformed inputs. command: reads the inputs. percent: share of
    all inputs. check: explains why an input that was read should have been refused; "" if
    it should not.
    """

    write_inputs: Callable[[pathlib.Path], None]
    cases: Callable
    command: Callable[[tuple[str, ...]], int]
    percent: int
    check: Callable[[attempts.Case], str] = lambda case: ""


KINDS = {
    "config files": Kind(configs.write_inputs, configs.files, commands.training, 11),
    "--config.key=value": Kind(
        configs.write_inputs, configs.changes, commands.training, 9
    ),
    "config arguments": Kind(
        configs.write_inputs, configs.arguments, commands.training, 7
    ),
    "suites": Kind(configs.write_inputs, configs.suites, commands.measuring, 5),
    "records": Kind(
        records.write_inputs,
        records.records,
        commands.reporting,
        13,
        records.find_error_in_records,
    ),
    "beside records": Kind(
        records.write_inputs, records.adjacent_files, commands.reporting, 6
    ),
    "score tables": Kind(
        records.write_inputs,
        records.scores,
        commands.reporting,
        13,
        records.find_error_in_scores,
    ),
    "data sets": Kind(images.write_inputs, images.sets, commands.preparing, 10),
    "our checkpoints": Kind(
        checkpoints.write_inputs, checkpoints.ours, commands.preparing, 6
    ),
    "others' weights": Kind(
        checkpoints.write_inputs, checkpoints.others, commands.preparing, 6
    ),
    "status": Kind(
        runs.write_inputs, runs.runs, commands.reporting, 7, runs.find_error
    ),
    "sweeps": Kind(sweeps.write_inputs, sweeps.sweeps, commands.sweeping, 7),
}


def outcomes(kind: Kind, count: int, seed: int) -> Iterator[attempts.Outcome]:
    """Yield the outcomes of `count` inputs of a kind."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, out = (pathlib.Path(temporary) / name for name in ("in", "out"))
        folder.mkdir()
        kind.write_inputs(folder)
        for case in draw_cases(kind.cases(folder, out), count, seed):
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            yield attempts.attempt(case, kind.command, folder, kind.check)


def draw_cases(strategy, count: int, seed: int) -> list[attempts.Case]:
    """Return `count` different examples of a hypothesis strategy, or all if it has fewer."""
    cases: list[attempts.Case] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategy)
    def append_case(case: attempts.Case) -> None:
        cases.append(case)

    append_case()
    return cases[:count]


def main(argv: Sequence[str] | None = None) -> int:
    """Try all kinds of input, write the table, and return the exit code."""
    parser = command.parser("fuzz", __doc__)
    parser.add_argument(
        "--inputs",
        type=int,
        default=1000,
        metavar="N",
        help="total number of inputs, shared among the kinds (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="random seed of the inputs (default: %(default)s)",
    )
    command.add_only(parser, KINDS)
    command.add_out(parser, "fuzz.md")
    args = parser.parse_args(argv)
    console.silence_warnings()
    rows, num_failed = [], 0
    for name, kind in KINDS.items():
        if args.only and name != args.only:
            continue
        start, counts = time.monotonic(), collections.Counter()
        for outcome in outcomes(kind, -(-kind.percent * args.inputs // 100), args.seed):
            counts[outcome.verdict] += 1
            if outcome.failed:
                num_failed += 1
                line = f"{name}: {outcome.verdict}: {outcome.case.words!r:.300}"
                print(f"{line}\n{outcome.message}\n", file=sys.stderr)
        seconds = time.monotonic() - start
        rows.append((name, counts, seconds))
        print(_row(name, counts, seconds), flush=True)
    text = _table(rows, args.seed)
    if not args.only:
        (args.out / "fuzz.md").write_text(text)
    print(text)
    return 1 if num_failed else 0


def _row(name: str, counts: collections.Counter, seconds: float) -> str:
    """Return the row of a kind as Markdown; counts: by verdict."""
    verdicts = ("refused", "read", *attempts.FAILURES)
    cells = [
        name,
        counts.total(),
        *(counts[verdict] for verdict in verdicts),
        f"{seconds:.0f}",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def _table(rows: list[tuple[str, collections.Counter, float]], seed: int) -> str:
    """Return the page; rows: name, counts by verdict and seconds of each kind."""
    total = sum((counts for _, counts, _ in rows), collections.Counter())
    head = ("", "tried", "refused in a line", "read rightly", *attempts.FAILURES, "s")
    lines = [f"| {' | '.join(head)} |", "|:--" + "|--:" * (len(head) - 1) + "|"]
    lines += [_row(name, counts, seconds) for name, counts, seconds in rows]
    lines.append(_row("all", total, sum(seconds for _, _, seconds in rows)))
    introduction = (
        f"Malformed inputs, drawn with seed {seed}: `python -m qa.fuzz`. Where the "
        "columns of failures are 0, no existing file was lost, no traceback was shown, and "
        f"no input took longer than {attempts.SECONDS} s.\n\n"
    )
    table = "\n".join([*lines, ""])
    return f"# How the commands end on malformed input\n\n{introduction}{table}"


if __name__ == "__main__":
    sys.exit(main())
