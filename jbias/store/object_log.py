"""A log that grows in a store, whose objects do not: it is written anew every few seconds.

Two processes may write to one, the one that trains and one that evaluates elsewhere: each
replaces only what it knows, or reads first what the other has added.
"""

import functools
import threading

from jbias.store import objects

SECONDS = 5.0  # Between two writes of a log; what it lacks after a kill.
_RATE = 20_000  # Bytes a second that may go into writing a long one again.


class Log:
    """One log: lines go in, and are written in the background."""

    def __init__(self, path: str):
        self._path, self._pending = path, b""
        self._known = objects.Seen(b"", 0, 0.0)
        self._lines, self._writing = threading.Lock(), threading.Lock()
        self._timer: threading.Timer | None = None

    def add(self, line: str) -> None:
        """Takes a line."""
        with self._lines:
            self._pending += line.encode() + b"\n"
            self._soon()

    def _soon(self) -> None:
        if self._timer is None:
            seconds = max(SECONDS, len(self._known.content) / _RATE)
            self._timer = threading.Timer(seconds, self._try)
            self._timer.daemon = True
            self._timer.start()

    def drop(self) -> None:
        """Forgets what was not written yet."""
        with self._lines:
            self._pending = b""

    def flush(self) -> None:
        """Writes what is there now; OSError where it cannot be, and stays to be written."""
        with self._writing:
            with self._lines:
                taken, self._pending = self._pending, b""
                self._timer = None
            if not taken:
                return
            try:
                self._known = self._written(taken)
            except BaseException:
                with self._lines:
                    self._pending = taken + self._pending
                raise

    def _try(self) -> None:
        """Writes; what cannot be written now is tried again."""
        try:
            self.flush()
        except OSError:
            with self._lines:
                self._soon()

    def _written(self, added: bytes) -> objects.Seen:
        known = self._known
        for _ in range(10):
            whole = known.content + added
            try:
                generation = objects.replace(self._path, whole, known.generation)
                return objects.Seen(whole, generation, 0.0)
            except FileExistsError:
                known = objects.read(self._path)
            if known.content.startswith(whole):
                return known  # Only the answer had been lost.
        raise OSError(f"{self._path} changes all the time")


@functools.cache
def of(path: str) -> Log:
    """The log of a path: one in a process."""
    return Log(path)
