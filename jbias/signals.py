"""Takes the signals by which schedulers and people ask a run to stop."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

from jbias import loop
from jbias.job import Job

_EARLY = "before a step was taken"
STOPPING = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class Heard:
    """Which signal came first, and the run that it is noted for.

    Without a run there is nothing to save: loop.Interrupted is raised at once.
    """

    def __init__(self) -> None:
        self.name = ""
        self.job: Job | None = None
        self._since = 0.0

    def take(self, number: int, frame: Any = None) -> None:
        """The handler. A cluster may send a signal twice, and a person means it."""
        del frame
        now, name = time.monotonic(), signal.Signals(number).name
        if self.name == name == "SIGINT" and now - self._since > 1:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        first = not self.name
        if first:
            self.name, self._since = name, now
        if self.job is None:
            raise loop.Interrupted(f"{self.name} {_EARLY}: the same command goes on")
        if first:
            said = f"\n{name}: saving after the steps under way ...\n"
            with contextlib.suppress(OSError):
                os.write(2, said.encode())
        self.job.stop = self.name

    def over(self) -> None:
        """Ends a run, if others follow; loop.Interrupted where it ended in spite of one."""
        self.job = None
        if self.name:
            raise loop.Interrupted(f"{self.name} after a run: the others are not begun")


@contextlib.contextmanager
def heard() -> Iterator[Heard]:
    """Notes the signals that ask to stop; they are the caller's affair in a thread."""
    by = Heard()
    try:
        before = {number: signal.signal(number, by.take) for number in STOPPING}
    except ValueError:
        yield by
        return
    try:
        yield by
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def is_early(stopped: loop.Interrupted) -> bool:
    """Whether it came before the processes of a run could agree on it."""
    return _EARLY in str(stopped)


def code(stopped: loop.Interrupted) -> int:
    """130 where a person asked to stop, 143 where a scheduler did: requeue it.

    These are what a shell says of processes that SIGINT and SIGTERM ended.
    """
    return 130 if str(stopped).startswith("SIGINT") else 143
