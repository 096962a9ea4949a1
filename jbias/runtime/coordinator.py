"""Where the processes of a run meet: who is there, what each reports, who was lost.

Process 0 serves it from a thread, at an address that all processes are given, from before
jax starts until the run ends. jax's own service takes minutes to notice a lost process,
and then ends the others with a C++ trace; a closed socket is noticed at once. Nobody is
let in once all are there. A `Connection` carries JSON messages, each prefixed with its
length.
"""

import contextlib
import json
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

MAX_BYTES = 2**30  # Bytes of a word.
_HEAD = 4  # Bytes that say how long it is.


class Connection:
    """A socket that carries words of JSON, each behind its length, for several threads.

    Where a word does not go out within `patience` seconds the line is shut, which both
    ends notice: what follows half a word would be read wrongly.
    """

    def __init__(self, sock: socket.socket, patience: float):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(patience)
        self.sock, self.last_heard, self.max_bytes = sock, time.monotonic(), MAX_BYTES
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
        self.last_heard = time.monotonic()
        self._rest += data
        yield from self._words()

    def _words(self) -> Iterator[dict[str, Any]]:
        while (word := self._word()) is not None:
            yield word

    def _word(self) -> dict[str, Any] | None:
        """The next that has come whole."""
        end = _HEAD + int.from_bytes(self._rest[:_HEAD], "big")
        if len(self._rest) >= _HEAD and end > self.max_bytes:
            raise ConnectionError("no word of this protocol")
        if len(self._rest) < end:
            return None
        said = bytes(self._rest[_HEAD:end])
        del self._rest[:end]
        with contextlib.suppress(ValueError, RecursionError):
            if isinstance(word := json.loads(said), dict):
                return word
        raise ConnectionError("no word of this protocol")


EXIT_LOST = 69  # Exit code: another process of the run was lost (EX_UNAVAILABLE).
EXIT_REFUSED = 2
BEAT_SECONDS = 2.0  # Seconds between signs of life.
SILENCE_SECONDS = 60.0  # Seconds without one until a process counts as lost.
PARTING_SECONDS = 5.0  # Seconds that the others have to leave before process 0 does.
REMEDY = "start all again with the same command: it goes on from the latest checkpoint"
_STRANGER_BYTES = 2**22  # Bytes of a word of one that is not known yet.
_SEND_SECONDS = 10.0  # Seconds that one process may keep what serves all.


class Coordinator:
    """Serves the meeting of `count` processes, until all have left.

    differing: tells what two processes' `alike` differ in, which must be nothing.
    wait: seconds until all must be there. patience: seconds that those who have said
    their part wait for the others'.
    """

    def __init__(
        self,
        server: socket.socket,
        count: int,
        *,
        differing: Callable[[Mapping, Mapping], list[str]],
        wait: float,
        patience: float,
        silence: float = SILENCE_SECONDS,
    ):
        self._server, self._count, self._differing = server, count, differing
        self._wait, self._patience, self._silence = wait, patience, silence
        self._selector = selectors.DefaultSelector()
        self._selector.register(server, selectors.EVENT_READ)
        self._strangers: set[Connection] = set()
        # By number, with its facts, and who has taken leave.
        self._there: dict[int, tuple[Connection, dict]] = {}
        self._left: set[int] = set()
        self._said: dict[str, tuple[float, dict[int, Any]]] = {}  # By what, since when.
        self._met, self._over, self._last = False, 0.0, {}
        self._beaten = 0.0
        self._began = self._looked = time.monotonic()
        self.thread = threading.Thread(target=self._serve, name="hub", daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        try:
            while not self._is_over():
                self._turn()
        # Whatever it is: nobody may wait for words that never come.
        except Exception as error:  # noqa: BLE001
            said = f"the meeting failed ({type(error).__name__}: {error}); {REMEDY}"
            self._end(said, 1)
            time.sleep(PARTING_SECONDS)
            self._send_all(**self._last)
        for line in (*self._strangers, *(line for line, _ in self._there.values())):
            line.sock.close()
        self._server.close()
        self._selector.close()

    def _turn(self) -> None:
        for key, _ in self._selector.select(BEAT_SECONDS / 4):
            if key.fileobj is self._server:
                self._accept()
            else:
                self._hear(key.data)
        if time.monotonic() - self._beaten > BEAT_SECONDS:
            self._beaten = time.monotonic()
            for line, _ in self._there.values():
                line.beat()
            self._look_at_the_clock()

    def _is_over(self) -> bool:
        others = [number for number in self._there if number]
        if self._over and (not others or time.monotonic() > self._over):
            # Process 0 leaves last: with it goes jax's service, which others miss.
            if 0 in self._there:
                self._there[0][0].send(**self._last)
            return True
        return self._met and not self._there

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            sock, _ = self._server.accept()
            line = Connection(sock, _SEND_SECONDS)
            line.max_bytes = _STRANGER_BYTES
            self._strangers.add(line)
            self._selector.register(sock, selectors.EVENT_READ, line)

    def _hear(self, line: Connection) -> None:
        number = next((n for n, (one, _) in self._there.items() if one is line), None)
        try:
            for word in line.read(0):
                if number is None:
                    number = self._welcome(line, word)
                else:
                    self._take(number, word)
        except ConnectionError:
            self._forget(line, number)

    def _forget(self, line: Connection, number: int | None) -> None:
        self._selector.unregister(line.sock)
        line.sock.close()
        self._strangers.discard(line)
        if number is None:
            return
        _, facts = self._there.pop(number)
        if self._met and number not in self._left:
            self._end(f"{self._name(number, facts)} was lost; {REMEDY}", EXIT_LOST)

    def _name(self, number: int, facts: Mapping[str, Any]) -> str:
        where = f"{facts['host']}, pid {facts['pid']}"
        return f"process {number} of {self._count} ({where})"

    def _welcome(self, line: Connection, word: Mapping[str, Any]) -> int:
        """Lets one in that says who it is; ConnectionError for others."""
        match word:
            case {"kind": "hello", "number": int(number), "count": int(count)}:
                facts = word.get("facts")
            case _:
                raise ConnectionError("no process of a run")
        if not 0 <= number < count or not _is_complete(facts):
            raise ConnectionError("no process of such a run")
        name = self._name(number, facts)
        said = ""
        if count != self._count:
            said = f"{name} was told that there are {count}; give all the same number"
        elif number in self._there:
            one = self._name(number, self._there[number][1])
            said = f"{one} is there already; give each process a number of its own"
        if said:
            line.send(kind="end", line=f"processes: {said}", code=EXIT_REFUSED)
            if count != self._count:
                self._end(said, EXIT_REFUSED)
            raise ConnectionError(said)
        self._strangers.discard(line)
        self._there[number] = line, facts
        line.max_bytes = MAX_BYTES
        if self._over:
            line.send(**self._last)
        self._compare()
        if len(self._there) == self._count and not self._over:
            self._selector.unregister(self._server)
            self._server.close()
            self._met = True
            all_facts = []
            for _, (each, of_it) in sorted(self._there.items()):
                each.last_heard = time.monotonic()  # Nobody was lost while all waited.
                all_facts.append({key: of_it[key] for key in ("host", "pid", "cores")})
            self._send_all(kind="go", port=free_port(), facts=all_facts)
        return number

    def _compare(self) -> None:
        """Ends the meeting where not all are to do the same."""
        if 0 not in self._there:
            return
        first = self._there[0][1]["alike"]
        for number, (_, facts) in sorted(self._there.items()):
            if found := self._differing(first, facts["alike"]):
                self._end(
                    f"process 0 and {self._name(number, facts)} are to do different "
                    f"things ({'; '.join(found)}); start all with the same command, "
                    "code and packages",
                    EXIT_REFUSED,
                )
                return

    def _take(self, number: int, word: Mapping[str, Any]) -> None:
        match word:
            case {"kind": "say", "what": str(what), "value": value}:
                _, said = self._said.setdefault(what, (time.monotonic(), {}))
                said[number] = value
                if len(said) == self._count:
                    del self._said[what]
                    values = [said[n] for n in range(self._count)]
                    self._send_all(kind="said", what=what, values=values)
            case {"kind": "fail", "line": str(line), "code": int(code)}:
                self._end(f"process {number} of {self._count}: {line}", code)
            case {"kind": "bye"}:
                self._left.add(number)
            case {"kind": "beat"}:
                pass
            case _:
                raise ConnectionError("no word of this protocol")

    def _look_at_the_clock(self) -> None:
        now, before = time.monotonic(), self._looked
        self._looked = now
        # Whether it is this one that stood still.
        if now - before > BEAT_SECONDS + self._silence / 2:
            for line, _ in self._there.values():
                line.last_heard = now
        if not self._met and now - self._began > self._wait:
            absent = sorted({*range(self._count)} - {*self._there})
            self._end(
                f"process(es) {', '.join(map(str, absent))} of {self._count} did not "
                f"come within {self._wait:g} s; start them, or give --wait=SECONDS",
                EXIT_REFUSED,
            )
        for number, (line, facts) in self._there.items() if self._met else ():
            if now - line.last_heard > self._silence and number not in self._left:
                name = self._name(number, facts)
                said = f"{name} gave no sign of life for {self._silence:g} s; {REMEDY}"
                return self._end(said, EXIT_LOST)
        for what, (since, said) in self._said.items():
            if now - since > self._patience:
                absent = (str(n) for n in range(self._count) if n not in said)
                numbers = ", ".join(absent)
                return self._end(
                    f"process(es) {numbers} of {self._count} did not reach "
                    f"{what.split('#')[0]!r} within {self._patience:g} s of the first, "
                    f"though alive; see what they do there, then {REMEDY}",
                    EXIT_LOST,
                )
        return None

    def _send_all(self, **word: Any) -> None:
        for line, _ in self._there.values():
            line.send(**word)

    def _end(self, said: str, code: int) -> None:
        """Ends all the others, then, once they are gone, process 0."""
        if self._over:
            return
        self._over = time.monotonic() + PARTING_SECONDS
        self._last = dict(kind="end", line=f"processes: {said}", code=code)
        for number, (line, _) in self._there.items():
            if number:
                line.send(**self._last)


def _is_complete(facts: Any) -> bool:
    """Whether what a process tells of itself has all that is needed of it."""
    match facts:
        case {"alike": dict(), "host": str(), "pid": int(), "cores": [*cores]}:
            return all(isinstance(core, int) for core in cores)
    return False


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as one:
        one.bind(("", 0))
        return one.getsockname()[1]
