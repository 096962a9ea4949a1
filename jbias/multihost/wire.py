"""What carries the words between the processes of a run: `hub` has what they mean."""

import contextlib
import json
import select
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

LONGEST = 2**30  # Bytes of a word.
_HEAD = 4  # Bytes that say how long it is.


class Line:
    """A socket that carries words of JSON, each behind its length, for several threads.

    Where a word does not go out within `patience` seconds the line is shut, which both
    ends notice: what follows half a word would be read wrongly.
    """

    def __init__(self, sock: socket.socket, patience: float):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(patience)
        self.sock, self.heard, self.longest = sock, time.monotonic(), LONGEST
        self._rest, self._lock = bytearray(), threading.Lock()

    def send(self, **word: Any) -> None:
        """Sends one word; one that is gone hears no more, which is noticed elsewhere."""
        with self._lock:
            self._put(word)

    def beat(self) -> None:
        """Gives a sign of life, which a word that is just being sent is, too."""
        if self._lock.acquire(blocking=False):
            try:
                self._put({"kind": "beat"})
            finally:
                self._lock.release()

    def _put(self, word: Mapping[str, Any]) -> None:
        data = json.dumps(word).encode()
        try:
            self.sock.sendall(len(data).to_bytes(_HEAD, "big") + data)
        except OSError:
            self.shut()

    def shut(self) -> None:
        """Ends both directions; who reads sees what has come, then the end."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def read(self, seconds: float) -> Iterator[dict[str, Any]]:
        """The words that come within that time; ConnectionError where no more will."""
        yield from self._words()  # Of which a reader may have left some.
        try:
            poll = select.poll()
            poll.register(self.sock, select.POLLIN)
            if not poll.poll(1000 * seconds):
                return
            data = self.sock.recv(2**16)
        except (OSError, ValueError) as error:
            raise ConnectionError(str(error)) from error
        if not data:
            raise ConnectionError("closed")
        self.heard = time.monotonic()
        self._rest += data
        yield from self._words()

    def _words(self) -> Iterator[dict[str, Any]]:
        while (word := self._word()) is not None:
            yield word

    def _word(self) -> dict[str, Any] | None:
        """The next that has come whole."""
        end = _HEAD + int.from_bytes(self._rest[:_HEAD], "big")
        if len(self._rest) >= _HEAD and end > self.longest:
            raise ConnectionError("no word of this protocol")
        if len(self._rest) < end:
            return None
        said = bytes(self._rest[_HEAD:end])
        del self._rest[:end]
        with contextlib.suppress(ValueError, RecursionError):
            if isinstance(word := json.loads(said), dict):
                return word
        raise ConnectionError("no word of this protocol")
