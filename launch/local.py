"""Executor that runs trials on this machine, one per slot at a time.

A slot is a GPU or a share of the cores. The output of a trial's process goes to a log file
of the search. If a process ends without an explanation in its run's log, the executor
writes one.
"""

import collections
import glob
import os
import pathlib
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from jbias.launch import trials
from jbias.runs import status
from jbias.runtime import signals

OPTIONS = {"jobs": 0, "devices": ""}
MAX_RETRIES = 1  # Restarts of a trial whose process was killed.
ENDED_CODES = (0, 3)  # Exit codes of a run that is finished.
# Exit codes of a process that a signal ended before the run could save.
STOP_CODES = tuple(-number for number in signals.STOP_SIGNALS)
# Also of runs that were stopped, or that lost a process.
EXPECTED_CODES = (*ENDED_CODES, *STOP_CODES, signals.EXIT_LOST, 130, 143)


class Slot(NamedTuple):
    """A GPU or a share of the cores for one job at a time."""

    environment: Mapping[str, str]  # Variables for the job.
    prefix: tuple[str, ...]  # The start of the job's command.


def slots(jobs: int = 0, devices: str = "") -> list[Slot]:
    """Return a slot per GPU; without GPUs, `jobs` slots with equal shares of the cores.

    jobs: number of slots; 0: one per GPU, or one. devices: GPUs to use, such as "0+2"; ""
    for all GPUs. ValueError for more jobs than GPUs, or without GPUs than cores.
    """
    gpus = devices.split("+") if devices else _gpus()
    cores = sorted(os.sched_getaffinity(0))
    count = jobs or len(gpus) or 1
    if not 1 <= count <= len(gpus or cores):
        maximum = f"{len(gpus)} GPUs" if gpus else f"{len(cores)} cores"
        raise ValueError(f"--on=local: jobs must be 1 to {maximum}, got {jobs}")
    prefixes: list[tuple[str, ...]] = [()] * count
    if 1 < count <= len(cores):
        shares = [",".join(map(str, cores[i::count])) for i in range(count)]
        prefixes = [("taskset", "--cpu-list", share) for share in shares]
    environments = [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in gpus] or [{}] * count
    # There may be more GPUs than slots.
    return [Slot(*pair) for pair in zip(environments, prefixes, strict=False)]


def _gpus() -> list[str]:
    """Return the ids of the GPUs that this process may use, such as ["0", "1"]."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [gpu for gpu in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if gpu]
    return [str(i) for i, _ in enumerate(glob.glob("/dev/nvidia[0-9]*"))]


def log_path(trial: trials.Trial) -> pathlib.Path:
    """Return the path of the file for the output of a trial's process."""
    return trial.workdir.parent / ".sweep" / "logs" / f"{trial.name}.log"


class _LocalJob(NamedTuple):
    """A running process of a trial."""

    trial: trials.Trial
    process: subprocess.Popen
    slot: Slot
    log_size: int  # Of the run's log, in bytes, when the process started.


class Executor:
    """Jobs on this machine, one per slot at a time.

    say: logs a line. stop: name of the signal that stopped the search, or ""; with a signal
    all jobs save and exit.
    """

    poll_seconds = 0.5
    stop = ""

    def __init__(self, slots: Sequence[Slot], say: Callable[[str], None]):
        self._free_slots, self._say = collections.deque(slots), say
        self._jobs: dict[str, _LocalJob] = {}
        self._num_retries = collections.Counter[str]()
        # Trials that were asked to save; a second signal would kill them.
        self._asked_to_stop: set[str] = set()

    def active_trials(self) -> dict[str, str]:
        """Return {name: ""} of the running trials; restart trials that were killed."""
        for name, job in [*self._jobs.items()]:
            code = job.process.poll()
            if code is not None:
                del self._jobs[name]
                self._free_slots.append(job.slot)
                trial = job.trial
                log_exit(trial.workdir, code, log_path(trial), old_size=job.log_size)
                was_killed = code == -signal.SIGKILL and name not in self._asked_to_stop
                may_retry = self._num_retries[name] < MAX_RETRIES and self.num_free()
                if was_killed and may_retry:
                    self._num_retries[name] += 1
                    self.start([trial])
            elif self.stop:
                self.end(job.trial)
        return dict.fromkeys(self._jobs, "")

    def num_free(self) -> int:
        """Return the number of trials that may be started."""
        return 0 if self.stop else len(self._free_slots)

    def start(self, todo: Sequence[trials.Trial]) -> None:
        """Start trials in free slots; at most `num_free` trials."""
        for trial in todo:
            trials.clear_stopped(trial.workdir)
            slot, log = self._free_slots.popleft(), log_path(trial)
            self._say(f"starting {trial.name}, its output in {log}")
            old_size = log_size(trial.workdir)
            command = (*slot.prefix, *trials.command(trial))
            process = start_process(command, log, environment=slot.environment)
            self._jobs[trial.name] = _LocalJob(
                trial, process, slot=slot, log_size=old_size
            )

    def end(self, trial: trials.Trial) -> None:
        """Send a running trial the signal to save and exit; do nothing in later calls."""
        if trial.name not in self._asked_to_stop:
            self._asked_to_stop.add(trial.name)
            self._jobs[trial.name].process.terminate()

    def close(self) -> None:
        """Let running trials save, and wait until they have ended."""
        for job in self._jobs.values():
            self.end(job.trial)
        for job in self._jobs.values():
            job.process.wait()


def start_process(
    command: Sequence[str],
    log: pathlib.Path,
    environment: Mapping[str, str],
    *,
    new_session: bool = True,
) -> subprocess.Popen:
    """Start a command whose output is appended to the file `log`; return the process.

    environment: variables in addition to this process's environment. new_session: True:
    Ctrl-C in the terminal does not reach the command.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=new_session,
        )


def log_size(workdir: pathlib.Path) -> int:
    """Return the size of a run's log in bytes; 0 without a log."""
    path = workdir / "log.txt"
    return path.stat().st_size if path.exists() else 0


def log_exit(
    workdir: pathlib.Path, code: int, log: pathlib.Path, old_size: int
) -> None:
    """Append the reason why a process ended to its run's log, unless the run logged one.

    code: the exit code. log: the file with the process's output.
    old_size: size of the run's log in bytes when the process started.
    """
    if status.is_running(workdir):
        return  # Another process trains the run.
    try:
        has_reason = status.read(workdir).from_log
    except (ValueError, OSError):
        has_reason = False  # Damaged files must not end the search.
    has_new_reason = has_reason and log_size(workdir) > old_size
    if code not in ENDED_CODES and not has_new_reason:
        workdir.mkdir(parents=True, exist_ok=True)
        with (workdir / "log.txt").open("a") as file:
            file.write(f"jbias: {exit_reason(code, log)}\n")


def exit_reason(code: int, log: pathlib.Path) -> str:
    """Return the reason why a process ended: the last line of its output, or the signal.

    code: the exit code, negative for a signal. log: the file with the process's output.
    """
    if code in STOP_CODES:
        name = signal.Signals(-code).name
        return f"{name} before there was anything to save; {status.RESUMES}"
    if code < 0:
        hint = " (out of memory?)" if -code == signal.SIGKILL else ""
        return f"ended by {signal.Signals(-code).name}{hint}"
    output = log.read_bytes()[-4096:].decode("utf-8", "replace") if log.exists() else ""
    lines = [line for line in map(str.strip, output.splitlines()) if line]
    jbias_lines = [line for line in lines if line.startswith("jbias: ")]
    # Exit code 1 is an unexpected error, whose traceback may follow an earlier line.
    if jbias_lines and (code != 1 or jbias_lines[-1] == lines[-1]):
        return jbias_lines[-1].removeprefix("jbias: ")
    return ": ".join([f"exit code {code}", *lines[-1:]])
