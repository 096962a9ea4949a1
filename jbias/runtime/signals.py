"""Handlers of the signals by which schedulers and users stop a run early."""

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator
from typing import Any

_EARLY = "before a step was taken"
EXIT_REFUSED = 2  # Exit code of an invalid request.
EXIT_LOST = 69  # Exit code if another process of the run was lost (EX_UNAVAILABLE).
# Signals after which a run saves and exits. SIGHUP: a terminal was closed or a connection
# lost. SIGXCPU: a time limit is near. The other signals come from schedulers and users.
# Messages and documents list them in this order.
STOP_SIGNALS = (
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGXCPU,
    signal.SIGINT,
)
# nohup ignores SIGHUP; shells ignore SIGQUIT in background jobs.
_IGNORABLE = (signal.SIGHUP, signal.SIGQUIT)


class Interrupted(BaseException):
    """Raised when a signal has stopped the run and all its work is saved.

    Not a subclass of Exception: the signal may arrive in any code, also in code that
    catches every Exception.
    """


class Terminated(KeyboardInterrupt):
    """Raised when a signal ends a command, as Ctrl-C does."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number  # The convention of shells.


_TERMINATED = re.compile(r"\bTerminated: (SIG\w+)")


def raise_interrupt(error: BaseException) -> None:
    """Raise the interrupt that stopped a callback of jax; do nothing for other errors.

    error: raised by jax, which replaces an interrupt in a callback by an error of its own,
    with the callback's traceback as text.
    """
    terminated = _TERMINATED.search(str(error))
    if terminated:
        raise Terminated(signal.Signals[terminated[1]]) from error
    if re.search(r"\bKeyboardInterrupt\b", str(error)):
        raise KeyboardInterrupt from error


class StopSignal:
    """The first stop signal of this process, which is passed on to the attached run.

    Before a run is attached there is nothing to save: the first signal raises Interrupted.

    name: the first signal's name, "" before it arrives. run: the attached run's object, or None;
    its attribute `received` is set to the signal's name.
    """

    def __init__(self) -> None:
        self.name = ""
        self.run: Any = None
        self._arrival_time = 0.0

    def handle(self, number: int, _: Any = None) -> None:
        """Record a signal and stop the attached run; a handler for `signal.signal`.

        number: number of the signal. The first signal stops the attached run after its current
        steps; without a run, it raises Interrupted. A second SIGINT, more than a second after
        the first, ends the process immediately. Other repeated signals are ignored, because
        clusters may send a signal twice.
        """
        now, name = time.monotonic(), signal.Signals(number).name
        if self.name == name == "SIGINT" and now - self._arrival_time > 1:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        is_first = not self.name
        if is_first:
            self.name, self._arrival_time = name, now
        if self.run is None:
            # A second signal must not interrupt the exit after the first.
            if is_first:
                raise Interrupted(
                    f"{name} {_EARLY}: run the same command again to continue"
                )
            return
        if is_first:
            line = f"\n{name}: saving after the current steps ...\n"
            with contextlib.suppress(OSError):
                os.write(2, line.encode())
        self.run.received = self.name

    def attach(self, run: Any) -> None:
        """Attach a run: set `run.received` to the name of the first signal, once it arrives.

        run: an object with the attribute `received`, such as a stopping.AgreedStop.
        """
        self.run = run
        run.received = self.name

    def detach(self) -> None:
        """Detach a finished run before the next one; raise Interrupted if a signal arrived."""
        self.run = None
        if self.name:
            raise Interrupted(
                f"{self.name} after a run: the remaining runs have not started"
            )


@contextlib.contextmanager
def listen() -> Iterator[StopSignal]:
    """Handle stop signals in the context; yield the StopSignal that records them.

    SIGHUP and SIGQUIT stay ignored if they were ignored before, as under nohup. Python allows
    handlers in the main thread only, so in another thread nothing is handled.
    """
    stop_signal = StopSignal()
    try:
        old_handlers = {
            number: signal.signal(number, stop_signal.handle)
            for number in STOP_SIGNALS
            if number not in _IGNORABLE or signal.getsignal(number) != signal.SIG_IGN
        }
    except ValueError:
        yield stop_signal
        return
    try:
        yield stop_signal
    finally:
        for number, handler in old_handlers.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def termination_interrupts() -> Iterator[None]:
    """Raise Terminated on SIGTERM or SIGHUP in the context, so that a command can clean up.

    A signal that already has a handler, or is ignored, is not changed. Outside the main
    thread, no signal is changed.
    """
    old_handlers = {}

    def interrupt(number: int, _: Any) -> None:
        # A second signal must not interrupt the exit after the first.
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
    """Install Python's handlers again after a C library has replaced them by its own."""
    with contextlib.suppress(ValueError):  # Raised in a thread.
        for number in STOP_SIGNALS:
            if handler := signal.getsignal(number):
                signal.signal(number, handler)


def is_early(stopped: Interrupted) -> bool:
    """Return True if a stop signal came before the run began, so nothing was saved."""
    return _EARLY in str(stopped)


def exit_code(stopped: Interrupted) -> int:
    """Return the exit code of a stopped run: 130 after SIGINT, 143 after any other signal.

    Shells report SIGINT and SIGTERM by these codes. After 143 a scheduler may requeue the
    job.
    """
    return 130 if str(stopped).startswith("SIGINT") else 143
