"""One job: a trial's command, run to its end, and its end told in the trial's log."""

import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

from jbias.runs import status
from jbias.runtime import coordinator

TOLD = (0, 3)  # Exit codes of a run that has ended by itself.
LEFT = (coordinator.EXIT_LOST, 130, 143)  # Asked to stop, or a peer lost.
ASKED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)  # To save and leave.


def start(
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


def told(workdir: pathlib.Path) -> int:
    """How long a run's log is."""
    path = workdir / "log.txt"
    return path.stat().st_size if path.exists() else 0


def note_end(workdir: pathlib.Path, code: int, log: pathlib.Path, before: int) -> None:
    """Tells in a run's log why its process ended, where the run itself could not.

    before: how long that log was when the process began.
    """
    if status.is_running(workdir):
        return  # It is another's, who was there before.
    try:
        why = status.read(workdir).from_log
    except (ValueError, OSError):
        why = False  # What is damaged there ends no search.
    if code in TOLD or why and told(workdir) > before:
        return
    workdir.mkdir(parents=True, exist_ok=True)
    with (workdir / "log.txt").open("a") as file:
        file.write(f"jbias: {reason(code, tail(log))}\n")


def reason(code: int, output: str) -> str:
    """Why a process ended: its own last word, or the signal that killed it."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if -code in ASKED:
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


class Job:
    """A trial's command for a scheduler that calls it, and says when to save (submitit).

    Every process of the job gets the scheduler's signal; the run saves and ends by itself,
    and is told so only if it has not. On several nodes each calls this, and the processes
    train together: where one is lost, another puts the job into the queue again, `again`
    times at most.
    """

    def __init__(
        self,
        command: Sequence[str],
        workdir: str,
        log: str,
        patience: float,
        again: int = 0,
    ):
        self.command, self.workdir, self.log = tuple(command), workdir, log
        self.patience = patience  # Seconds to wait for a run to save.
        self.again = again
        self._pid = 0

    def __call__(self) -> int:
        """Runs to the end; returns the exit code."""
        number = int(os.environ.get("SLURM_PROCID", "0"))
        log, workdir = pathlib.Path(self.log), pathlib.Path(self.workdir)
        log = log.with_suffix(f".{number}.log") if number else log
        before = told(workdir)
        process = start(self.command, log, {}, apart=False)
        self._pid = process.pid
        code = process.wait()
        if not number:  # The others write nothing into the workdir.
            note_end(workdir, code, log, before)
        if code == coordinator.EXIT_LOST:
            self._requeue()
        if code not in (*TOLD, *LEFT, *(-one for one in ASKED)):
            raise RuntimeError(f"{self.workdir}: {reason(code, tail(log))}")
        return code

    def checkpoint(self) -> Any:
        """What is to be run once the scheduler gives a place again: the same."""
        import submitit

        self._settle()
        again = Job(self.command, self.workdir, self.log, self.patience, self.again)
        return submitit.helpers.DelayedSubmission(again)

    def _requeue(self) -> None:
        """Starts the job's processes once more, all of them: one was lost."""
        restarts = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
        name = os.environ.get("SLURM_JOB_ID")
        if not name or restarts >= self.again:
            return
        print(f"a process was lost: job {name} goes back into the queue", flush=True)
        # Where another was faster this does nothing, or fails.
        subprocess.run(["scontrol", "requeue", name], check=False)

    def _settle(self) -> None:
        """Waits until the run has ended, having saved; asks it to after a while."""
        began, asked = time.monotonic(), False
        while self._pid and not _over(self._pid):
            spent = time.monotonic() - began
            if spent > self.patience:
                return
            if spent > self.patience / 2 and not asked:
                asked = True
                os.kill(self._pid, signal.SIGTERM)
            time.sleep(0.1)


def _over(pid: int) -> bool:
    """Whether a child has ended; another wait for it still learns how."""
    how = os.WEXITED | os.WNOHANG | os.WNOWAIT
    try:
        return os.waitid(os.P_PID, pid, how) is not None
    except ChildProcessError:
        return True
