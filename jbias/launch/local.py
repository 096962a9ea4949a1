"""Runs trials on this machine: as many at a time as there are places for."""

import collections
import contextlib
import glob
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from jbias.launch import job, stopping, trials

OPTIONS = {"jobs": 0, "devices": ""}


class Place(NamedTuple):
    """Where one job at a time runs."""

    environment: Mapping[str, str]
    cores: tuple[int, ...]  # Empty for all.


class Running(NamedTuple):
    """A job at work."""

    trial: trials.Trial
    process: subprocess.Popen
    place: Place
    log_size: int  # Of its log before it began.


def places(jobs: int = 0, devices: str = "") -> list[Place]:
    """One place for each GPU; without any, `jobs` equal shares of the cores.

    jobs: 0 is one for each GPU, or one. devices: such as 0+2, of all GPUs otherwise.
    """
    named = devices.split("+") if devices else _gpus()
    cores = sorted(os.sched_getaffinity(0))
    count = jobs or len(named) or 1
    if named and count > len(named) or not 1 <= count <= len(cores):
        there = f"{len(named)} GPUs" if named else f"{len(cores)} cores"
        raise ValueError(f"--on=local: jobs must be 1 to {there}, got {jobs}")
    shares = [tuple(cores[i::count]) if count > 1 else () for i in range(count)]
    if not named:
        return [Place({}, share) for share in shares]
    return [
        Place({"CUDA_VISIBLE_DEVICES": name}, share)
        for name, share in zip(named[:count], shares, strict=True)
    ]


def _gpus() -> list[str]:
    """The GPUs that this process may use."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [one for one in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if one]
    return [str(i) for i, _ in enumerate(glob.glob("/dev/nvidia[0-9]*"))]


def log_of(trial: trials.Trial) -> pathlib.Path:
    """Where a trial's process writes what it would show on a terminal."""
    return trial.workdir.parent / ".sweep" / "logs" / f"{trial.name}.log"


def run(
    todo: Sequence[trials.Trial],
    all_trials: Sequence[trials.Trial],
    where: Sequence[Place],
    *,
    say: Callable[[str], None],
    stop: Callable[[list], list] | None = None,
    every: float = 60.0,
    look: float = 0.5,
) -> str:
    """Runs these trials; returns the name of the signal that ended it early, or "".

    stop: says which of the running trials to stop, and why. every: seconds between lines
    of progress. look: seconds between looks at the jobs.
    """
    waiting, running = collections.deque(todo), list[Running]()
    free, began = collections.deque(where), time.monotonic()
    first, said = trials.share([one.state for one in all_trials]), began
    reasons: dict[str, str] = {}  # Why a trial is stopped for good.
    sent: set[str] = set()  # Who was asked to save: a second time would be fatal.
    with _signals() as asked, _none_left(running):
        while waiting or running:
            while waiting and free and not asked:
                running.append(_started(waiting.popleft(), free.popleft(), say))
            time.sleep(look)
            for one in [one for one in running if one.process.poll() is not None]:
                running.remove(one)
                free.append(one.place)
                _ended(one, reasons.get(one.trial.name, ""), say)
            if asked:
                waiting.clear()
                for one in running:
                    _end(one, sent, kill=len(asked) > 1)
                continue
            fresh = {r.trial.name: r for r in running if r.trial.name not in sent}
            due = stop([one.trial for one in fresh.values()]) if stop else ()
            for trial, why in due:
                reasons[trial.name] = why
                _end(fresh[trial.name], sent)
            if time.monotonic() - said >= every:
                said = time.monotonic()
                say(progress(all_trials, first, said - began))
    return asked[0] if asked else ""


@contextlib.contextmanager
def _none_left(running: list[Running]) -> Iterator[None]:
    """Where an error ends this, lets what runs save and leave before."""
    try:
        yield
    except BaseException:
        for one in running:
            one.process.terminate()
        for one in running:
            one.process.wait()
        raise


def progress(all_trials: Sequence[trials.Trial], first: float, spent: float) -> str:
    """How many are in which state, when all will be done, and which is best."""
    looks = trials.seen(all_trials)
    states = [one.state for one in looks]
    now = trials.share(states)
    told = trials.count(states)
    if now > first:
        left = int((1 - now) * spent / (now - first))
        hours, minutes, seconds = left // 3600, left // 60 % 60, left % 60
        told += f"; ETA {hours}:{minutes:02}:{seconds:02}"
    if found := trials.best(looks):
        told += f"; best valid {100 * found.best[0]:.1f}: {found.trial.name}"
    return told


def _started(trial: trials.Trial, place: Place, say: Callable) -> Running:
    stopping.unmark(trial.workdir)
    log, size = log_of(trial), job.told(trial.workdir)
    say(f"starting {trial.name}, its output in {log}")
    words = trials.command(trial)
    process = job.start(words, log, place.environment, cores=place.cores)
    return Running(trial, process, place, size)


def _ended(one: Running, stopped: str, say: Callable) -> None:
    trial = one.trial
    code = one.process.returncode
    job.note_end(trial.workdir, code, log_of(trial), one.log_size)
    if stopped and not (trial.workdir / "done").exists():
        stopping.mark(trial.workdir, stopped)
    say(trials.line(trial, trial.state))


def _end(one: Running, sent: set[str], *, kill: bool = False) -> None:
    """Asks a run to save and leave, once."""
    if kill:
        one.process.kill()
    elif one.trial.name not in sent:
        sent.add(one.trial.name)
        one.process.terminate()


@contextlib.contextmanager
def _signals() -> Iterator[list[str]]:
    """Notes SIGTERM and SIGINT."""
    asked: list[str] = []

    def note(number: int, _) -> None:
        asked.append(signal.Signals(number).name)
        os.write(2, b"\nwaiting until the running trials have saved ...\n")

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
