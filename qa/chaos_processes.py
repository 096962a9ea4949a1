"""Faults of runs with two processes: one process is lost, and the other must end as well.

The same command must then resume, with two processes or with one. Results of two processes
must have the bits of an unbroken run of two. Results of one process may differ from them by
TOLERANCE, since sums are taken in another order.
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

from jbias.runs import checkpoints
from jbias.runtime import processes, signals
from qa import chaos_digests, chaos_faults, chaos_hooks, chaos_runs

FOR_FORKS = (checkpoints, processes)  # Imported before forking.
TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}  # For weights, losses and norms.
# Rounding errors grow with the learning rate: at this one they stay small in all steps.
FLAGS = ("--config.optim.rate=0.003", "--config.run.devices=0")
WAIT = 30  # Seconds until both processes must have met.
SILENCE = 10.0  # Seconds without a heartbeat after which a process counts as lost.
PROMPT_SECONDS = 60.0  # Time for the other process to end then, on a busy machine.


def start(
    bench: chaos_runs.Bench,
    hooks: Mapping[int, Callable[[], None]] = types.MappingProxyType({}),
) -> list[chaos_runs.Child]:
    """Fork the two processes of a run and return them.

    hooks: functions to call at the start of a process, by its number.
    """
    coordinator = f"--coordinator=localhost:{processes.free_port()}"
    flags = (*FLAGS, coordinator, "--processes=2", f"--wait={WAIT}")

    def begin(number: int) -> None:
        processes.SILENCE_SECONDS = SILENCE
        if number in hooks:
            hooks[number]()

    return [
        bench.start(
            functools.partial(begin, number),
            *flags,
            f"--process={number}",
            compare=False,
        )
        for number in range(2)
    ]


def prepare(folder: pathlib.Path) -> None:
    """Make the unbroken run of two processes and count its points, once per folder."""
    if (folder / "pair.json").exists():
        return
    bench = chaos_runs.Bench(folder, folder / "trial")
    counts_path = folder / "counts.part"

    def count() -> None:
        chaos_hooks.count_points(bench.workdir, counts_path)

    for _ in range(2):  # The first run also compiles.
        chaos_runs.make_empty(bench.trial)
        began = time.monotonic()
        ends = [child.wait() for child in start(bench, {0: count})]
        seconds = time.monotonic() - began
        if any(ended.code for ended in ends):
            raise SystemExit(f"chaos: the unbroken run of two processes failed: {ends}")
    chaos_runs.make_empty(folder / "pair")
    bench.workdir.rename(_unbroken(bench))
    counts = {**json.loads(counts_path.read_text()), "seconds": seconds}
    (folder / "pair.json").write_text(json.dumps(counts))


def _unbroken(bench: chaos_runs.Bench) -> pathlib.Path:
    return bench.folder / "pair" / "run"


def kill_peer(bench, rng):
    """Send SIGKILL to one of the processes, at a random point or time."""
    victim = rng.randrange(2)
    # Only process 0 writes files.
    points = ("step", "time") if victim else ("step", "time", "save", "rename", "touch")
    point, counts = rng.choice(points), _counts(bench)
    number = rng.randint(1, max(1, counts.get(point, 1)))
    is_timed = point == "time"
    hook = chaos_hooks.act_at(bench.workdir, point, number, chaos_hooks.die)
    children = start(bench, {} if is_timed else {victim: hook})
    if is_timed:
        # In the first second the processes meet, and JAX starts.
        time.sleep(rng.uniform(0, rng.choice((1.0, counts["seconds"]))))
        is_over = children[victim].is_over
        chaos_hooks.note_outside_harm(bench.workdir, is_over=is_over)
        children[victim].kill()
    lost = children[victim].wait()
    other = children[1 - victim].wait(PROMPT_SECONDS)
    if lost.code not in (0, -signal.SIGKILL):
        return chaos_runs.LOST, f"SIGKILL at {point} {number} did not end a run: {lost}"
    why = _describe_bad_end(bench, other, lost=victim, what="was lost")
    if why:
        reason = f"process {victim} was killed, {point} {number}: {why}"
        return chaos_runs.LOST, reason
    return judge(bench, rng, other)


def stop_peer(bench, rng):
    """Send SIGSTOP to one of the processes after a random step, then wake or kill it."""
    victim = rng.randrange(2)

    def stop() -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    number = rng.randint(1, _counts(bench)["step"])
    hook = chaos_hooks.act_at(bench.workdir, "step", number, stop)
    children = start(bench, {victim: hook})
    other = children[1 - victim].wait()
    why = _describe_bad_end(bench, other, lost=victim, what="was lost")
    if why:
        children[victim].kill()
        return chaos_runs.LOST, f"process {victim} stopped at step {number}: {why}"
    wakes_up = rng.random() < 0.5
    if wakes_up:
        os.kill(children[victim].pid, signal.SIGCONT)
    else:
        children[victim].kill()
    late_end = children[victim].wait(PROMPT_SECONDS)
    if wakes_up:
        why = _describe_bad_end(bench, late_end, lost=None, what="")
        if why:
            reason = f"process {victim} woke up after step {number}: {why}"
            return chaos_runs.LOST, reason
    return judge(bench, rng, other)


def _counts(bench: chaos_runs.Bench) -> Mapping[str, float]:
    return json.loads((bench.folder / "pair.json").read_text())


def _describe_bad_end(
    bench, ended: chaos_runs.Ended, *, lost: int | None, what: str
) -> str:
    """Return what is wrong with the end of the remaining process; "" if nothing is.

    The output must have one error line that names the lost process and says `what`
    happened to it. A trace of JAX is allowed if process 0 was lost, which runs JAX's
    coordination service. Two other ends are right: a finished run, and a refusal because
    the processes never met.

    lost: number of the lost process; None: any.
    """
    lines = [line for line in ended.output.splitlines() if line.startswith("jbias: ")]
    if ended.code == 0 and (bench.workdir / "done").exists():
        return ""
    if ended.is_refusal and "processes reached" in lines[0]:
        return ""
    name = "of 2 (" if lost is None else f"process {lost} of 2 ("
    is_named = len(lines) == 1 and name in lines[0] and what in lines[0]
    lost_coordinator = lost == 0 or (
        lost is None and bool(lines) and "process 0 of 2" in lines[0]
    )
    is_clean = ended.is_clean and (lost_coordinator or "***" not in ended.output)
    if ended.code == signals.EXIT_LOST and is_named and is_clean:
        return ""
    return f"the other ended with code {ended.code}: {ended.output[-3000:]}"


def judge(bench, rng: random.Random, other: chaos_runs.Ended) -> tuple[str, str]:
    """Resume with one or two processes; return the outcome and why it is lost, if it is.

    other: the end of the process that was not harmed.
    """
    names = [path.name for path in bench.workdir.glob("checkpoints/*")]
    step = max((int(name) for name in names if name.isdecimal()), default=-1)
    with_two = rng.random() < 0.5
    if with_two:
        ends = [child.wait() for child in start(bench)]
    else:
        ends = [bench.start(lambda: None, *FLAGS, compare=False).wait()]
    if any(ended.code or not ended.is_clean for ended in ends):
        return chaos_runs.LOST, f"resuming with {len(ends)} processes fails: {ends}"

    def compare() -> int:
        exact_until = None if with_two else step
        names = list_differences(bench.workdir, _unbroken(bench), exact_until)
        print("differing from the unbroken run of two:", names or "nothing")
        return chaos_runs.OTHER_BITS if names else 0

    comparison = chaos_runs.fork_run(compare).wait()
    if comparison.code:
        output = f"{comparison.output[-1500:]} {ends[0].output[-1500:]}"
        reason = f"{len(ends)} processes resumed from step {step}: {output}"
        return chaos_runs.LOST, reason
    return (chaos_runs.REFUSED if other.is_refusal else chaos_runs.RECOVERED), ""


def list_differences(
    workdir: pathlib.Path, unbroken: pathlib.Path, exact_until: int | None
) -> list[str]:
    """Return the names of files and weights that differ from the unbroken run.

    exact_until: files of later steps, and weights, may differ within tolerance; None:
    nothing may.
    """
    end, wanted = chaos_digests.read_end(workdir), chaos_digests.read_end(unbroken)
    unequal = [key for key in end | wanted if end.get(key) != wanted.get(key)]
    if exact_until is None or end.keys() != wanted.keys():
        return unequal
    weights = chaos_digests.weights(workdir)
    wanted_weights = chaos_digests.weights(unbroken)
    different = []
    for name in unequal:
        if name == chaos_digests.BEST:
            continue  # The best step may change among nearly equal accuracies.
        if name in weights:
            is_close = np.allclose(weights[name], wanted_weights[name], **TOLERANCE)
        else:
            is_later = int(pathlib.Path(name).stem) > exact_until
            is_close = is_later and _is_close(workdir / name, unbroken / name)
        if not is_close:
            different.append(name)
    return different


def _is_close(path: pathlib.Path, wanted: pathlib.Path) -> bool:
    """Return True if two files of records or decisions are equal up to rounding.

    Rounding may change the decision of one image.
    """
    if path.suffix == ".parquet":
        decisions, wanted_decisions = pd.read_parquet(path), pd.read_parquet(wanted)
        keys = decisions.drop(columns=_DECIDED)
        if not keys.equals(wanted_decisions.drop(columns=_DECIDED)):
            return False
        return (decisions.prediction != wanted_decisions.prediction).sum() <= 1
    records = [json.loads(line) for line in path.read_text().splitlines()]
    wanted_records = [json.loads(line) for line in wanted.read_text().splitlines()]
    return len(records) == len(wanted_records) and all(
        map(_is_close_record, records, wanted_records)
    )


_DECIDED = ["prediction", "confidence", "likelihood"]


def _is_close_record(record: dict, wanted_record: dict) -> bool:
    """Return True if two records are equal up to rounding, or one image; drops values."""
    value, count = record.pop("value"), record.pop("count")
    wanted, wanted_count = wanted_record.pop("value"), wanted_record.pop("count")
    if record != wanted_record:
        return False
    if count is not None and wanted_count is not None:
        return abs(count - wanted_count) <= 1
    return value == wanted or np.isclose(value, wanted, **TOLERANCE)


KINDS: Mapping[str, chaos_faults.Fault] = types.MappingProxyType(
    {"a peer is killed": kill_peer, "a peer stands still": stop_peer}
)
