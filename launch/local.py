"""Runs trials on this machine: as many at a time as there are slots for.

A trial's process writes to a log of its own; why it ended is noted in the run's log, where
the run itself could not.
"""

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

from jbias.launch import trials
from jbias.runs import status
from jbias.runtime import signals

OPTIONS = {"jobs": 0, "devices": ""}


class Slot(NamedTuple):
    """Where one job at a time runs."""

    environment: Mapping[str, str]
    cores: tuple[int, ...]  # Empty for all.


class RunningJob(NamedTuple):
    """A job at work."""

    trial: trials.Trial
    process: subprocess.Popen
    place: Slot
    log_size: int  # Of its log before it began.


def slots(jobs: int = 0, devices: str = "") -> list[Slot]:
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
        return [Slot({}, share) for share in shares]
    return [
        Slot({"CUDA_VISIBLE_DEVICES": name}, share)
        for name, share in zip(named[:count], shares, strict=True)
    ]


def _gpus() -> list[str]:
    """The GPUs that this process may use."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [one for one in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if one]
    return [str(i) for i, _ in enumerate(glob.glob("/dev/nvidia[0-9]*"))]


def log_path(trial: trials.Trial) -> pathlib.Path:
    """Where a trial's process writes what it would show on a terminal."""
    return trial.workdir.parent / ".sweep" / "logs" / f"{trial.name}.log"


def run(
    todo: Sequence[trials.Trial],
    all_trials: Sequence[trials.Trial],
    where: Sequence[Slot],
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
    waiting, running = collections.deque(todo), list[RunningJob]()
    free, began = collections.deque(where), time.monotonic()
    first, said = trials.fraction_done([one.state for one in all_trials]), began
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
def _none_left(running: list[RunningJob]) -> Iterator[None]:
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
    looks = trials.statuses(all_trials)
    states = [one.state for one in looks]
    now = trials.fraction_done(states)
    told = trials.count_line(states)
    if now > first:
        left = int((1 - now) * spent / (now - first))
        hours, minutes, seconds = left // 3600, left // 60 % 60, left % 60
        told += f"; ETA {hours}:{minutes:02}:{seconds:02}"
    if found := trials.best(looks):
        told += f"; best valid {100 * found.best[0]:.1f}: {found.trial.name}"
    return told


def _started(trial: trials.Trial, place: Slot, say: Callable) -> RunningJob:
    trials.clear_stopped(trial.workdir)
    log, size = log_path(trial), log_size(trial.workdir)
    say(f"starting {trial.name}, its output in {log}")
    words = trials.command(trial)
    process = start_process(words, log, place.environment, cores=place.cores)
    return RunningJob(trial, process, place, size)


def _ended(one: RunningJob, stopped: str, say: Callable) -> None:
    trial = one.trial
    code = one.process.returncode
    log_exit(trial.workdir, code, log_path(trial), one.log_size)
    if stopped and not (trial.workdir / "done").exists():
        trials.mark_stopped(trial.workdir, stopped)
    say(trials.status_line(trial, trial.state))


def _end(one: RunningJob, sent: set[str], *, kill: bool = False) -> None:
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


ENDED_CODES = (0, 3)  # Exit codes of a run that has ended by itself.
INTERRUPTED_CODES = (signals.EXIT_LOST, 130, 143)  # Asked to stop, or a peer lost.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)  # To save and leave.


def start_process(
    command: Sequence[str],
    log: pathlib.Path,
    environment: Mapping[str, str],
    *,
    cores: Sequence[int] = (),
    apart: bool = True,
) -> subprocess.Popen:
    """Starts a command that writes to `log`, on these cores, or all.

    apart: in a session of its own, so that Ctrl-C of the terminal does not reach it.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    before = os.sched_getaffinity(0)
    with log.open("ab") as file:
        try:
            if cores:
                os.sched_setaffinity(0, cores)  # Of this thread; the child inherits it.
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=apart,
            )
        finally:
            os.sched_setaffinity(0, before)


def log_size(workdir: pathlib.Path) -> int:
    """How long a run's log is."""
    path = workdir / "log.txt"
    return path.stat().st_size if path.exists() else 0


def log_exit(workdir: pathlib.Path, code: int, log: pathlib.Path, before: int) -> None:
    """Tells in a run's log why its process ended, where the run itself could not.

    before: how long that log was when the process began.
    """
    if status.is_running(workdir):
        return  # It is another's, who was there before.
    try:
        why = status.read(workdir).from_log
    except (ValueError, OSError):
        why = False  # What is damaged there ends no search.
    if code in ENDED_CODES or why and log_size(workdir) > before:
        return
    workdir.mkdir(parents=True, exist_ok=True)
    with (workdir / "log.txt").open("a") as file:
        file.write(f"jbias: {exit_reason(code, tail(log))}\n")


def exit_reason(code: int, output: str) -> str:
    """Why a process ended: its own last word, or the signal that killed it."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if -code in STOP_SIGNALS:
        name = signal.Signals(-code).name
        return f"{name} before there was anything to save; {status.RESUMES}"
    if code < 0:
        name = signal.Signals(-code).name
        hint = " (out of memory?)" if -code == signal.SIGKILL else ""
        return f"ended by {name}{hint}"
    own = [line for line in lines if line.startswith("jbias: ")]
    if own and (code != 1 or own[-1] == lines[-1]):
        return own[-1].removeprefix("jbias: ")
    return f"exit code {code}{': ' if lines else ''}{lines[-1] if lines else ''}"


def tail(path: pathlib.Path) -> str:
    """The end of a file of output."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            return file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
