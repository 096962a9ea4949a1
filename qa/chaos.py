"""Inject faults into small real runs and check that nothing is lost.

    python -m qa.chaos
    python -m qa.chaos --kinds='SIGKILL*,disk full' --trials=20 --seed=1

A trial injects one fault at a random point of a run on the embedded data set; the kinds of
fault take turns. Outcomes of a trial:

    recovered  the rerun, with the same command, gives bit-identical weights, records and
               decisions as a run without a fault
    refused    the run ended with a one-line message and exit code 2, and overwrote nothing;
               after the remedy that the message names, it continued to the same bits
    missed     the run was over before the fault happened; does not count as tried
    lost       anything else; the exit code is then 1

Prints the lost trials, and writes OUT/chaos.json and OUT/chaos.md. Kinds that this machine cannot
inject, such as those that need mounts, are listed under `lacking` in chaos.json. Run the same
command again to continue after an interruption.

Takes about an hour on two cores (an estimate).
"""

import argparse
import collections
import fnmatch
import json
import os
import pathlib
import random
import shutil
import sys
import time
import types

import tqdm

from benchmarks import result_files
from jbias import errors
from qa import chaos_faults, chaos_hooks, chaos_processes, chaos_runs, command

MOUNTS = ("disk full", "read-only")
KINDS = types.MappingProxyType({**chaos_faults.KINDS, **chaos_processes.KINDS})


def run_trial(number: int, kind: str, seed: int, folder: pathlib.Path) -> dict:
    """Inject one fault in a folder of its own; return the trial's record."""
    bench = chaos_runs.Bench(folder, folder / f"trial-{number}")
    chaos_runs.make_empty(bench.trial)
    began = time.monotonic()
    rng = random.Random(f"{seed}/{kind}/{number}")
    outcome, why = KINDS[kind](bench, rng)
    if outcome == chaos_runs.RECOVERED and chaos_hooks.is_missed(bench.trial):
        outcome = chaos_runs.MISSED
    if outcome != chaos_runs.LOST:
        shutil.rmtree(bench.trial)
    seconds = round(time.monotonic() - began, 2)
    return dict(trial=number, kind=kind, outcome=outcome, why=why, seconds=seconds)


def work(numbers: list[int], kinds: list[str], seed: int, folder: pathlib.Path) -> None:
    """Run trials one after the other; append a record of each to trials.jsonl.

    numbers: numbers of the trials. kinds: all kinds; trial i takes kind i modulo their
    number.
    """
    with (folder / "trials.jsonl").open("a") as file:
        for number in numbers:
            kind = kinds[number % len(kinds)]
            record = run_trial(number, kind, seed=seed, folder=folder)
            file.write(json.dumps(record) + "\n")
            file.flush()


def read_trials(folder: pathlib.Path, trials: int, kinds: list[str]) -> dict[int, dict]:
    """Return the records of finished trials by number; skip lines that a kill cut."""
    path, records = folder / "trials.jsonl", {}
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.endswith("}"):
            record = json.loads(line)
            records[record["trial"]] = record
    return {
        number: record
        for number, record in sorted(records.items())
        if number < trials and record["kind"] == kinds[number % len(kinds)]
    }


def run_trials(
    trials: int, kinds: list[str], seed: int, folder: pathlib.Path, jobs: int
) -> dict[int, dict]:
    """Run all unfinished trials with a progress bar; return the records of all trials.

    trials: number of trials. jobs: number of processes.
    """
    todo = sorted(set(range(trials)) - set(read_trials(folder, trials, kinds)))
    pids = set()
    for job in range(jobs):
        pid = os.fork()
        if not pid:
            code = 1
            try:
                work(todo[job::jobs], kinds, seed=seed, folder=folder)
                code = 0
            except BaseException:  # noqa: BLE001
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(code)
        pids.add(pid)
    with tqdm.tqdm(total=trials, unit="trial", mininterval=5, smoothing=0) as bar:
        while pids:
            for pid in [*pids]:
                ended_pid, status = os.waitpid(pid, os.WNOHANG)
                pids -= {ended_pid}
                if ended_pid and status:
                    raise SystemExit("chaos: a worker failed; its error is above")
            bar.update(len(read_trials(folder, trials, kinds)) - bar.n)
            time.sleep(0.5)
    return read_trials(folder, trials, kinds)


def table(records: dict[int, dict], kinds: list[str]) -> tuple[dict, str]:
    """Return the counts of outcomes by kind and in all, as a dict and as Markdown.

    records: records of trials by number.
    """
    outcomes = (
        chaos_runs.RECOVERED,
        chaos_runs.REFUSED,
        chaos_runs.LOST,
        chaos_runs.MISSED,
    )
    counts = {}
    for kind in kinds:
        of_kind = collections.Counter(
            record["outcome"] for record in records.values() if record["kind"] == kind
        )
        tried = of_kind.total() - of_kind[chaos_runs.MISSED]
        counts[kind] = {
            "tried": tried,
            **{outcome: of_kind[outcome] for outcome in outcomes},
        }
    counts["all"] = {
        key: sum(row[key] for row in counts.values()) for key in ("tried", *outcomes)
    }
    rows = [(kind, *row.values()) for kind, row in counts.items()]
    return counts, result_files.markdown(("kind", "tried", *outcomes), rows)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = command.parser("chaos", __doc__)
    add = parser.add_argument
    add(
        "--trials",
        type=int,
        default=200,
        metavar="N",
        help="number of trials (default: %(default)s)",
    )
    add(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="random seed of the faults (default: %(default)s)",
    )
    add(
        "--kinds",
        default="*",
        help="names or globs of kinds, separated by commas; see --list (default: all)",
    )
    add("--list", action="store_true", help="print the kinds of fault and exit")
    add(
        "--jobs",
        type=int,
        default=2,
        metavar="N",
        help="number of trials at the same time (default: %(default)s)",
    )
    add(
        "--work",
        type=pathlib.Path,
        default=pathlib.Path("runs/chaos"),
        metavar="DIR",
        help="folder for the runs (default: %(default)s)",
    )
    command.add_out(parser, "the results")
    return parser.parse_args(argv)


def select_kinds(patterns: str) -> list[str]:
    """Return the kinds that match the patterns, which are separated by commas.

    Raises SystemExit for a pattern that matches no kind.
    """
    kinds = []
    for pattern in patterns.split(","):
        matches = [kind for kind in KINDS if fnmatch.fnmatch(kind, pattern)]
        if not matches:
            nearest = errors.suggest(pattern, [*KINDS])
            raise SystemExit(f"chaos: --kinds: no {pattern!r}; {nearest}")
        kinds += [kind for kind in matches if kind not in kinds]
    return kinds


def main(argv: list[str] | None = None) -> int:
    """Run all trials, print and write their outcomes; return 1 if any was lost."""
    options = parse(argv)
    if options.list:
        print("\n".join(KINDS))
        return 0
    kinds = select_kinds(options.kinds)
    folder = options.work.resolve() / f"seed-{options.seed}"
    with chaos_runs.share_cache(folder):
        chaos_runs.prepare(folder)
        if {*chaos_processes.KINDS} & {*kinds}:
            chaos_processes.prepare(folder)
        lacking = [] if chaos_hooks.can_mount(folder) else [*MOUNTS]
        kinds = [kind for kind in kinds if kind not in lacking]
        records = run_trials(
            options.trials,
            kinds,
            seed=options.seed,
            folder=folder,
            jobs=options.jobs,
        )
    counts, text = table(records, kinds)
    lost = [x for x in records.values() if x["outcome"] == chaos_runs.LOST]
    for record in lost:
        print(f"lost: trial {record['trial']}, {record['kind']}: {record['why']}\n")
    results = {"seed": options.seed, "lacking": lacking, "kinds": counts}
    result_files.write("chaos", results, text, ratios={}, out=options.out)
    return bool(lost)


if __name__ == "__main__":
    sys.exit(main())
