"""Runs trials on this machine: as many at a time as there are slots for.

A trial's process writes to a log of its own; why it ended is noted in the run's log, where
the run itself could not.
"""

import collections
import glob
import os
import pathlib
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

from jbias.launch import trials
from jbias.runs import status
from jbias.runtime import signals

OPTIONS = {"jobs": 0, "devices": ""}
RETRIES = 1  # How often a trial goes on whose process was killed.
ENDED_CODES = (0, 3)  # Exit codes of a run that has ended by itself.
STOP_CODES = tuple(-one for one in signals.STOP_SIGNALS)  # Before it could save.
# Beside these: asked to stop, or a peer was lost.
EXPECTED_CODES = (*ENDED_CODES, *STOP_CODES, signals.EXIT_LOST, 130, 143)

# Where one job at a time runs: what is in its environment, and what begins its command.
Slot = tuple[Mapping[str, str], tuple[str, ...]]


def slots(jobs: int = 0, devices: str = "") -> list[Slot]:
    """One place for each GPU; without any, `jobs` equal shares of the cores.

    jobs: 0 is one for each GPU, or one. devices: such as 0+2, of all GPUs otherwise; where
    there are more than cores, all share these.
    """
    named = devices.split("+") if devices else _gpus()
    cores = sorted(os.sched_getaffinity(0))
    count = jobs or len(named) or 1
    if not 1 <= count <= len(named or cores):
        there = f"{len(named)} GPUs" if named else f"{len(cores)} cores"
        raise ValueError(f"--on=local: jobs must be 1 to {there}, got {jobs}")
    where = [{"CUDA_VISIBLE_DEVICES": name} for name in named] or [{}] * count
    shares = (",".join(map(str, cores[i::count])) for i in range(count))
    pins = (("taskset", "--cpu-list", share) for share in shares)
    return [
        *zip(where, pins if 1 < count <= len(cores) else [()] * count, strict=False)
    ]


def _gpus() -> list[str]:
    """The GPUs that this process may use."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [one for one in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if one]
    return [str(i) for i, _ in enumerate(glob.glob("/dev/nvidia[0-9]*"))]


def log_path(trial: trials.Trial) -> pathlib.Path:
    """Where a trial's process writes what it would show on a terminal."""
    return trial.workdir.parent / ".sweep" / "logs" / f"{trial.name}.log"


class Executor:
    """The jobs of this machine."""

    poll_seconds = 0.5
    stop = ""  # The signal that ends this; jobs save and leave.

    def __init__(self, where: Sequence[Slot], say: Callable[[str], None]):
        self._free, self._say = collections.deque(where), say
        self._jobs: dict[str, tuple[trials.Trial, subprocess.Popen, Slot, int]] = {}
        self._killed = collections.Counter[str]()
        self._sent: set[str] = set()  # Who was asked to save: a second time is fatal.

    def alive(self) -> dict[str, str]:
        """The trials at work, by name."""
        for name, (trial, process, slot, size) in [*self._jobs.items()]:
            if (code := process.poll()) is not None:
                del self._jobs[name]
                self._free.append(slot)
                log_exit(trial.workdir, code, log_path(trial), size)
                again = code == -signal.SIGKILL and name not in self._sent
                if again and self._killed[name] < RETRIES and self.room():
                    self._killed[name] += 1
                    self.start([trial])
            elif self.stop:
                self.end(trial)
        return dict.fromkeys(self._jobs, "")

    def room(self) -> int:
        """How many trials may be started."""
        return 0 if self.stop else len(self._free)

    def start(self, todo: Sequence[trials.Trial]) -> None:
        """Starts trials, each in a free slot."""
        for trial in todo:
            trials.clear_stopped(trial.workdir)
            slot, log = self._free.popleft(), log_path(trial)
            self._say(f"starting {trial.name}, its output in {log}")
            size = log_size(trial.workdir)
            words = (*slot[1], *trials.command(trial))
            process = start_process(words, log, slot[0])
            self._jobs[trial.name] = (trial, process, slot, size)

    def end(self, trial: trials.Trial) -> None:
        """Asks a run to save and leave, once."""
        if trial.name not in self._sent:
            self._sent.add(trial.name)
            self._jobs[trial.name][1].terminate()

    def close(self) -> None:
        """Lets what runs still, after an error, save and leave."""
        for trial, *_ in self._jobs.values():
            self.end(trial)
        for _, process, *_ in self._jobs.values():
            process.wait()


def start_process(
    command: Sequence[str],
    log: pathlib.Path,
    environment: Mapping[str, str],
    *,
    apart: bool = True,
) -> subprocess.Popen:
    """Starts a command that writes to `log`.

    apart: in a session of its own, so that Ctrl-C of the terminal does not reach it.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    options = dict(env={**os.environ, **environment}, start_new_session=apart)
    with log.open("ab") as out:
        streams = dict(stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        return subprocess.Popen(command, **streams, **options)


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
    if code not in ENDED_CODES and not (why and log_size(workdir) > before):
        workdir.mkdir(parents=True, exist_ok=True)
        with (workdir / "log.txt").open("a") as file:
            file.write(f"jbias: {exit_reason(code, log)}\n")


def exit_reason(code: int, log: pathlib.Path) -> str:
    """Why a process ended: its own last word, or the signal that killed it."""
    if code in STOP_CODES:
        name = signal.Signals(-code).name
        return f"{name} before there was anything to save; {status.RESUMES}"
    if code < 0:
        hint = " (out of memory?)" if -code == signal.SIGKILL else ""
        return f"ended by {signal.Signals(-code).name}{hint}"
    output = log.read_bytes()[-4096:].decode("utf-8", "replace") if log.exists() else ""
    lines = [line for line in map(str.strip, output.splitlines()) if line]
    own = [line for line in lines if line.startswith("jbias: ")]
    if own and (code != 1 or own[-1] == lines[-1]):
        return own[-1].removeprefix("jbias: ")
    return ": ".join([f"exit code {code}", *lines[-1:]])
