"""Stop requests: the signals by which schedulers and people end a run early."""

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator
from typing import Any

_EARLY = "before a step was taken"
EXIT_REFUSED = 2  # Exit code: what was asked for cannot be done.
EXIT_LOST = 69  # Exit code: another process of the run was lost (EX_UNAVAILABLE).
# Signals after which a run saves and ends. SIGHUP comes where a terminal is closed or a
# connection lost, SIGXCPU where a limit of time is near, the others from schedulers and
# people. The order is that in which messages and documents name them.
STOP_SIGNALS = (
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGXCPU,
    signal.SIGINT,
)
# Whoever starts a run under nohup, or a shell in the background, has these ignored.
_IGNORABLE = (signal.SIGHUP, signal.SIGQUIT)


class Interrupted(BaseException):
    """The run was asked to stop; all that it did is saved.

    No Exception: it may come wherever Python stands, also where others take any error
    for one of theirs.
    """


class Terminated(KeyboardInterrupt):
    """A signal asked a command to end, as a person does who presses Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number  # What a shell says of it.


_NAMED = re.compile(r"\bTerminated: (SIG\w+)")


def raise_interrupt(error: BaseException) -> None:
    """Raise the interrupt that ended a callback, of which jax makes an error of its own.

    error: what jax raised, with the callback's traceback as text. Nothing is raised for
    another error.
    """
    terminated = _NAMED.search(str(error))
    if terminated:
        raise Terminated(signal.Signals[terminated[1]]) from error
    if re.search(r"\bKeyboardInterrupt\b", str(error)):
        raise KeyboardInterrupt from error


class StopSignal:
    """Which signal came first, and the run that it is noted for.

    Without a run there is nothing to save: Interrupted is raised, once.
    """

    def __init__(self) -> None:
        self.name = ""
        self.job: Any = None  # One with `stop`, the signal's name.
        self._since = 0.0

    def handle(self, number: int, _: Any = None) -> None:
        """The handler. A cluster may send a signal twice, and a person means it."""
        now, name = time.monotonic(), signal.Signals(number).name
        if self.name == name == "SIGINT" and now - self._since > 1:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        first = not self.name
        if first:
            self.name, self._since = name, now
        if self.job is None:
            if first:  # Another might come while this one ends the process.
                raise Interrupted(f"{name} {_EARLY}: the same command goes on")
            return
        if first:
            said = f"\n{name}: saving after the steps under way ...\n"
            with contextlib.suppress(OSError):
                os.write(2, said.encode())
        self.job.stop = self.name

    def attach(self, job: Any) -> None:
        """From now on there is something to save: `job` hears of what comes, or came."""
        self.job = job
        job.stop = self.name

    def detach(self) -> None:
        """Ends a run, if others follow; Interrupted where it ended in spite of one."""
        self.job = None
        if self.name:
            raise Interrupted(f"{self.name} after a run: the others are not begun")


@contextlib.contextmanager
def listen() -> Iterator[StopSignal]:
    """Note the signals that ask to stop; they are the caller's affair in a thread.

    SIGHUP and SIGQUIT stay ignored where they are, as under nohup.
    """
    by = StopSignal()
    try:
        before = {
            number: signal.signal(number, by.handle)
            for number in STOP_SIGNALS
            if number not in _IGNORABLE or signal.getsignal(number) != signal.SIG_IGN
        }
    except ValueError:
        yield by
        return
    try:
        yield by
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def termination_interrupts() -> Iterator[None]:
    """Raise Terminated where SIGTERM or SIGHUP comes, so that a command can end as by Ctrl-C.

    Only signals that nobody handles or ignores yet; none in a thread.
    """
    old_handlers = {}

    def interrupt(number: int, _: Any) -> None:
        # Another might come while this one ends all.
        signal.signal(number, signal.SIG_IGN)
        raise Terminated(number)

    with contextlib.suppress(ValueError):
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:
                old_handlers[number] = signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in old_handlers.items():
            signal.signal(number, handler)


def reinstall() -> None:
    """Takes back what a library's own handlers, not Python's, have taken."""
    with contextlib.suppress(ValueError):  # In a thread.
        for number in STOP_SIGNALS:
            if handler := signal.getsignal(number):
                signal.signal(number, handler)


def is_early(stopped: Interrupted) -> bool:
    """Whether it came before the processes of a run could agree on it."""
    return _EARLY in str(stopped)


def exit_code(stopped: Interrupted) -> int:
    """130 where a person asked to stop, 143 where a scheduler did: requeue it.

    These are what a shell says of processes that SIGINT and SIGTERM ended.
    """
    return 130 if str(stopped).startswith("SIGINT") else 143
