"""Harms small real runs in many ways, and sees that nothing is lost.

    python -m benchmarks.chaos [--trials=200] [--seed=0] [--kinds='SIGKILL*'] [--jobs=2]

A trial does one harm to a run of the embedded set at a random point; kinds take turns.
It is recovered where the same command then ends with the bits of an unbroken run:
weights, records and decisions. It is refused where it first ended in one line and exit
code 2, nothing overwritten, and goes on to those bits once the line's remedy is done. One
that was over before anything happened is missed, and not tried. All
else is lost, and none may be: the exit code is then 1. What cannot be had here, such as
mounting, is told. Stopped and started again, it goes on. Writes
benchmarks/results/chaos.json and .md.
"""

import argparse
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

from benchmarks import chaos_faults, chaos_hooks, chaos_peers, chaos_runs, measured
from jbias import config as jc

MOUNTS = ("disk full", "read-only")
KINDS = types.MappingProxyType({**chaos_faults.KINDS, **chaos_peers.KINDS})


def trial(number: int, kind: str, seed: int, folder: pathlib.Path) -> dict:
    """Does one harm, in a folder of its own; says what came of it."""
    bench = chaos_runs.Bench(folder, folder / f"trial-{number}")
    chaos_runs.cleared(bench.trial)
    began = time.monotonic()
    random_ = random.Random(f"{seed}/{kind}/{number}")
    outcome, why = KINDS[kind](bench, random_)
    if outcome == chaos_runs.RECOVERED and chaos_hooks.missed(bench.trial):
        outcome = chaos_runs.MISSED
    if outcome != chaos_runs.LOST:
        shutil.rmtree(bench.trial)
    seconds = round(time.monotonic() - began, 2)
    return dict(trial=number, kind=kind, outcome=outcome, why=why, seconds=seconds)


def work(numbers: list[int], kinds: list[str], seed: int, folder: pathlib.Path) -> None:
    """Does trials one after the other, each told in a line of its own."""
    with (folder / "trials.jsonl").open("a") as told:
        for number in numbers:
            found = trial(number, kinds[number % len(kinds)], seed, folder)
            told.write(json.dumps(found) + "\n")
            told.flush()


def done(folder: pathlib.Path, trials: int, kinds: list[str]) -> dict[int, dict]:
    """What trials have come to, by their number; lines that a kill cut are none."""
    path, found = folder / "trials.jsonl", {}
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.endswith("}"):
            one = json.loads(line)
            found[one["trial"]] = one
    return {
        number: one
        for number, one in sorted(found.items())
        if number < trials and one["kind"] == kinds[number % len(kinds)]
    }


def run(trials: int, kinds: list[str], seed: int, folder: pathlib.Path, jobs: int):
    """Does all trials that are not done, in some processes, under a bar; gives all."""
    left = sorted(set(range(trials)) - set(done(folder, trials, kinds)))
    pids = set()
    for job in range(jobs):
        pid = os.fork()
        if not pid:
            code = 1
            try:
                work(left[job::jobs], kinds, seed, folder)
                code = 0
            except BaseException:  # noqa: BLE001
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(code)
        pids.add(pid)
    with tqdm.tqdm(total=trials, unit="trial", mininterval=5, smoothing=0) as bar:
        while pids:
            for pid in [*pids]:
                ended, status = os.waitpid(pid, os.WNOHANG)
                pids -= {ended}
                if ended and status:
                    raise SystemExit("chaos: a worker failed, see above")
            bar.update(len(done(folder, trials, kinds)) - bar.n)
            time.sleep(0.5)
    return done(folder, trials, kinds)


def table(found: dict[int, dict], kinds: list[str]) -> tuple[dict, str]:
    """Counts by kind, as data and as a page."""
    outcomes = chaos_runs.RECOVERED, chaos_runs.REFUSED, chaos_runs.LOST
    outcomes = (*outcomes, chaos_runs.MISSED)
    counts = {
        kind: {
            "tried": sum(
                one["kind"] == kind and one["outcome"] != chaos_runs.MISSED
                for one in found.values()
            ),
            **{
                outcome: sum(
                    (one["kind"], one["outcome"]) == (kind, outcome)
                    for one in found.values()
                )
                for outcome in outcomes
            },
        }
        for kind in kinds
    }
    counts["all"] = {
        key: sum(row[key] for row in counts.values()) for key in ("tried", *outcomes)
    }
    rows = [(kind, *row.values()) for kind, row in counts.items()]
    return counts, measured.markdown(("kind", "tried", *outcomes), rows)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--trials", type=int, default=200)
    add("--seed", type=int, default=0)
    add("--kinds", default="*", help="names or globs, with commas; see --list")
    add("--list", action="store_true", help="the kinds, and ends")
    add("--jobs", type=int, default=2, help="processes at a time")
    add("--work", type=pathlib.Path, default=pathlib.Path("runs/chaos"))
    add("--out", type=pathlib.Path, default=measured.RESULTS)
    return parser.parse_args(argv)


def chosen(asked: str) -> list[str]:
    """The kinds that are asked for and can be had here."""
    kinds = []
    for pattern in asked.split(","):
        fits = [one for one in KINDS if fnmatch.fnmatch(one, pattern)]
        if not fits:
            nearest = jc.suggest(pattern, [*KINDS])
            raise SystemExit(f"chaos: --kinds: no {pattern!r}; {nearest}")
        kinds += [one for one in fits if one not in kinds]
    return kinds


def main(argv: list[str] | None = None) -> int:
    """Tries, prints and writes; 1 where anything was lost."""
    options = parse(argv)
    if options.list:
        print("\n".join(KINDS))
        return 0
    kinds = chosen(options.kinds)
    folder = options.work.resolve() / f"seed-{options.seed}"
    with chaos_runs.cached(folder):
        chaos_runs.prepare(folder)
        if {*chaos_peers.KINDS} & {*kinds}:
            chaos_peers.prepare(folder)
        lacking = [] if chaos_hooks.may_mount(folder) else [*MOUNTS]
        kinds = [kind for kind in kinds if kind not in lacking]
        found = run(options.trials, kinds, options.seed, folder, options.jobs)
    counts, text = table(found, kinds)
    lost = [one for one in found.values() if one["outcome"] == chaos_runs.LOST]
    for one in lost:
        print(f"lost: trial {one['trial']}, {one['kind']}: {one['why']}\n")
    told = {"seed": options.seed, "lacking": lacking, "kinds": counts}
    measured.write("chaos", told, text, ratios={}, out=options.out)
    return bool(lost)


if __name__ == "__main__":
    sys.exit(main())
