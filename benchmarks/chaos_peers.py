"""Faults of runs that two processes train together: one is lost, the other ends as well.

The same command then goes on, with two processes or with one. What two have computed
must have the bits of an unbroken run of two; what one computed in their place is equal to
them up to the order of sums, as far as TOLERANCE goes.
"""

import functools
import json
import os
import pathlib
import random
import signal
import time
import types
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from benchmarks import chaos_ends, chaos_faults, chaos_hooks, chaos_runs
from jbias.runs import checkpoints
from jbias.runtime import processes, signals

FOR_FORKS = (checkpoints, processes)  # Imported once.
TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}  # Of weights, and of losses and norms.
# Rounding grows with the rate: at this one it stays small for all steps.
FLAGS = ("--config.optim.rate=0.003", "--config.run.devices=0")
WAIT = 30  # Seconds until both must be there.
SILENCE = 10.0  # Seconds after which a process that stands still is lost.
PROMPT_SECONDS = 60.0  # In which the other must have ended then, on a busy machine.


def start(
    bench: chaos_runs.Bench,
    before: Mapping[int, Callable[[], None]] = types.MappingProxyType({}),
) -> list[chaos_runs.Child]:
    """Starts the two processes of a run; `before` is called in that of its number."""
    at = f"--coordinator=localhost:{processes.free_port()}"
    flags = (*FLAGS, at, "--processes=2", f"--wait={WAIT}")

    def begin(number: int) -> None:
        processes.SILENCE_SECONDS = SILENCE
        before.get(number, lambda: None)()

    return [
        bench.start(
            functools.partial(begin, number),
            *(*flags, f"--process={number}"),
            compare=False,
        )
        for number in range(2)
    ]


def prepare(folder: pathlib.Path) -> None:
    """Makes the unbroken run of two, and counts its points, once for a folder."""
    if (folder / "pair.json").exists():
        return
    bench, counts = chaos_runs.Bench(folder, folder / "trial"), folder / "counts.part"

    def count() -> None:
        chaos_hooks.count(bench.workdir, counts)

    for _ in range(2):  # The first one also compiles.
        chaos_runs.cleared(bench.trial)
        began = time.monotonic()
        ends = [child.ended() for child in start(bench, {0: count})]
        seconds = time.monotonic() - began
        if any(ended.code for ended in ends):
            raise SystemExit(f"chaos: the unbroken run of two ended so: {ends}")
    chaos_runs.cleared(folder / "pair")
    bench.workdir.rename(_unbroken(bench))
    seen = {**json.loads(counts.read_text()), "seconds": seconds}
    (folder / "pair.json").write_text(json.dumps(seen))


def _unbroken(bench: chaos_runs.Bench) -> pathlib.Path:
    return bench.folder / "pair" / "run"


def killed(bench, random_):
    """SIGKILL to either, at a random point or moment, in a save too."""
    who, act = random_.randrange(2), chaos_hooks.die
    points = ("step", "time", "save", "rename", "touch")[: 2 if who else 5]
    point, counts = random_.choice(points), _counts(bench)
    number = random_.randint(1, max(1, counts.get(point, 1)))
    timed = point == "time"
    hook = chaos_hooks.at(bench.workdir, point, number, act)
    children = start(bench, {} if timed else {who: hook})
    if timed:
        # In the first second they meet, and jax starts.
        time.sleep(random_.uniform(0, random_.choice((1.0, counts["seconds"]))))
        chaos_hooks.late(bench.workdir, over=children[who].over)
        children[who].kill()
    lost = children[who].ended()
    other = children[1 - who].ended(PROMPT_SECONDS)
    if lost.code not in (0, -signal.SIGKILL):
        return chaos_runs.LOST, f"was to be killed, {point} {number}: {lost}"
    if why := _unlike(bench, other, who, "was lost"):
        return chaos_runs.LOST, f"{who} was killed, {point} {number}: {why}"
    return judged(bench, random_, other)


def stopped(bench, random_):
    """SIGSTOP to either after a random step; then it goes on, or is killed."""
    who = random_.randrange(2)

    def stop() -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    number = random_.randint(1, _counts(bench)["step"])
    hook = chaos_hooks.at(bench.workdir, "step", number, stop)
    children = start(bench, {who: hook})
    other = children[1 - who].ended()
    if why := _unlike(bench, other, who, "was lost"):
        children[who].kill()
        return chaos_runs.LOST, f"{who} stopped at step {number}: {why}"
    if wakes := random_.random() < 0.5:
        os.kill(children[who].pid, signal.SIGCONT)
    else:
        children[who].kill()
    late = children[who].ended(PROMPT_SECONDS)
    if wakes and (why := _unlike(bench, late, None, "")):
        return chaos_runs.LOST, f"{who} woke up after step {number}: {why}"
    return judged(bench, random_, other)


def _counts(bench: chaos_runs.Bench) -> Mapping[str, float]:
    return json.loads((bench.folder / "pair.json").read_text())


def _unlike(bench, ended: chaos_runs.Ended, who: int | None, how: str) -> str:
    """What is wrong with the end of the one that is left; "" for nothing.

    One line names the lost one (None: any) and what became of it; where it may be process
    0, whose service the other misses, below a trace of jax's own. Where that came to nothing before
    both were there the line says so; a run that was over may end well.
    """
    lines = [line for line in ended.said.splitlines() if line.startswith("jbias: ")]
    if ended.code == 0 and (bench.workdir / "done").exists():
        return ""
    if ended.refused and "processes reached" in lines[0]:
        return ""
    name = "of 2 (" if who is None else f"process {who} of 2 ("
    named = len(lines) == 1 and name in lines[0] and how in lines[0]
    without = who == 0 or who is None and bool(lines) and "process 0 of 2" in lines[0]
    clear = ended.clear and (without or "***" not in ended.said)
    if ended.code == signals.EXIT_LOST and named and clear:
        return ""
    return f"the other ended by {ended.code}: {ended.said[-3000:]}"


def judged(bench, random_: random.Random, other: chaos_runs.Ended) -> tuple[str, str]:
    """How it ended, and why it is lost: two go on, or one, to the right numbers."""
    there = [path.name for path in bench.workdir.glob("checkpoints/*")]
    step = max((int(name) for name in there if name.isdecimal()), default=-1)
    if two := random_.random() < 0.5:
        ends = [child.ended() for child in start(bench)]
    else:
        ends = [bench.start(lambda: None, *FLAGS, compare=False).ended()]
    if any(ended.code or not ended.clear for ended in ends):
        return chaos_runs.LOST, f"{len(ends)} do not go on: {ends}"

    def compare() -> int:
        other = differing(bench.workdir, _unbroken(bench), None if two else step)
        print("differing from the unbroken run of two:", other or "nothing")
        return chaos_runs.OTHER_BITS if other else 0

    if (compared := chaos_runs.forked(compare).ended()).code:
        said = f"{compared.said[-1500:]} {ends[0].said[-1500:]}"
        return chaos_runs.LOST, f"{len(ends)} went on from step {step}: {said}"
    return (chaos_runs.REFUSED if other.refused else chaos_runs.RECOVERED), ""


def differing(
    workdir: pathlib.Path, unbroken: pathlib.Path, step: int | None
) -> list[str]:
    """What is not as in the other run: to the bit until this step, then within reason."""
    found, wanted = chaos_ends.end_of(workdir), chaos_ends.end_of(unbroken)
    other = [key for key in found | wanted if found.get(key) != wanted.get(key)]
    if step is None or found.keys() != wanted.keys():
        return other
    trees = chaos_ends.weights(workdir), chaos_ends.weights(unbroken)
    far = []
    for name in other:
        if name == chaos_ends.BEST:
            continue  # Of nearly equal accuracies it may be another.
        if name in trees[0]:
            near = np.allclose(*(tree[name] for tree in trees), **TOLERANCE)
        else:
            paths = workdir / name, unbroken / name
            near = int(pathlib.Path(name).stem) > step and _near(*paths)
        far += [] if near else [name]
    return far


def _near(path: pathlib.Path, wanted: pathlib.Path) -> bool:
    """Whether records, or decisions, are equal but for rounding, and one image by it."""
    if path.suffix == ".parquet":
        one, other = pd.read_parquet(path), pd.read_parquet(wanted)
        same = one.drop(columns=_DECIDED).equals(other.drop(columns=_DECIDED))
        return same and (one.prediction != other.prediction).sum() <= 1
    pairs = [
        [json.loads(line) for line in one.read_text().splitlines()]
        for one in (path, wanted)
    ]
    return len(pairs[0]) == len(pairs[1]) and all(map(_near_record, *pairs))


_DECIDED = ["prediction", "confidence", "likelihood"]


def _near_record(one: dict, other: dict) -> bool:
    results = [(r.pop("value"), r.pop("count")) for r in (one, other)]
    (value, count), (wanted, expected) = results
    if one != other:
        return False
    if count is not None and expected is not None:
        return abs(count - expected) <= 1
    return value == wanted or np.isclose(value, wanted, **TOLERANCE)


KINDS: Mapping[str, chaos_faults.Fault] = types.MappingProxyType(
    {"a peer is killed": killed, "a peer stands still": stopped}
)
