"""Where processes meet: sockets stand for them, and hear what each would hear."""

import contextlib
import os
import re
import signal
import socket
import threading
import time
from concurrent import futures

import jax
import pytest

from jbias import config as jc
from jbias.runtime import coordinator, processes, signals


class Meeting:
    """A hub, and processes that are only a socket each."""

    def __init__(self, count: int, **options):
        self.server = socket.create_server(("127.0.0.1", 0))
        self.at = self.server.getsockname()
        self.lines = []
        kept = dict(differing=jc.diff, wait=30.0, patience=30.0) | options
        self.hub = coordinator.Coordinator(self.server, count, **kept)

    def call(self) -> coordinator.Connection:
        line = coordinator.Connection(socket.create_connection(self.at), 5.0)
        self.lines.append(line)
        return line

    def come(self, number: int, count: int, **alike) -> coordinator.Connection:
        line = self.call()
        facts = dict(alike=alike, host=f"host{number}", pid=number, cores=[0])
        line.send(kind="hello", number=number, count=count, facts=facts)
        return line

    def close(self) -> None:
        for line in self.lines:
            line.sock.close()
        self.hub.thread.join(30)
        self.server.close()


@pytest.fixture
def meet():
    with contextlib.ExitStack() as stack:

        def made(*args, **options) -> Meeting:
            return stack.enter_context(contextlib.closing(Meeting(*args, **options)))

        yield made


def heard(line: coordinator.Connection, kind: str, seconds: float = 30) -> dict:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for word in line.read(0.2):
            if word["kind"] == kind:
                return word
    raise AssertionError(f"no {kind!r} came")


def test_all_hear_what_each_says_in_order(meet):
    meeting = meet(3)
    lines = [meeting.come(number, 3) for number in (0, 2, 1)]
    facts = [heard(line, "go")["facts"] for line in lines]
    assert [one["host"] for one in facts[0]] == ["host0", "host1", "host2"]
    for line, value in zip(lines, ("a", "c", "b"), strict=True):
        line.send(kind="say", what="x#1", value=value)
    for line in lines:
        assert heard(line, "said")["values"] == ["a", "b", "c"]
    lines[2].send(kind="fail", line="its disk is full", code=7)
    for line in lines[::-1]:  # Process 0 is the last to hear.
        word = heard(line, "end")
        assert (word["code"], word["line"]) == (
            7,
            "processes: process 1 of 3: its disk is full",
        )
        line.sock.close()
    meeting.hub.thread.join(20)
    assert not meeting.hub.thread.is_alive()


@pytest.mark.slow
def test_leaving_in_order_is_no_loss(meet):
    meeting = meet(2)
    lines = [meeting.come(number, 2) for number in (0, 1)]
    for line in lines:
        heard(line, "go")
    lines[1].send(kind="bye")
    lines[1].sock.close()
    with pytest.raises(AssertionError, match="no 'end' came"):
        heard(lines[0], "end", seconds=2)
    lines[0].send(kind="bye")
    lines[0].sock.close()
    meeting.hub.thread.join(20)
    assert not meeting.hub.thread.is_alive()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("closed", "process 2 of 3 .host2, pid 2. was lost; start all again"),
        ("silent", "process 2 of 3 .host2, pid 2. gave no sign of life for 1 s"),
        ("absent", "process.es. 2 of 3 did not reach 'the data' within 1 s"),
    ],
)
def test_who_is_lost_is_named(meet, monkeypatch, how, message):
    monkeypatch.setattr(coordinator, "BEAT_SECONDS", 0.2)
    monkeypatch.setattr(coordinator, "PARTING_SECONDS", 0.5)
    options = {"silent": dict(silence=1.0), "absent": dict(patience=1.0)}
    meeting = meet(3, **options.get(how, {}))
    lines = [meeting.come(number, 3) for number in range(3)]
    for line in lines:
        heard(line, "go")
    for line in lines[:2]:
        line.send(kind="say", what="the data#3", value=None)
    if how == "closed":
        lines[2].sock.close()
    until, found = time.monotonic() + 30, {}
    while len(found) < 2 and time.monotonic() < until:
        for number, line in enumerate(lines[:2]):
            line.send(kind="beat")
            with contextlib.suppress(ConnectionError):
                for word in line.read(0.2):
                    if word["kind"] == "end":
                        found[number] = word
                        line.sock.close()
    assert {word["code"] for word in found.values()} == {coordinator.EXIT_LOST}
    for word in found.values():
        assert re.search(message, word["line"]), word


@pytest.mark.slow
def test_absent_doubled_and_strange_ones_are_told(meet):
    meeting = meet(3, wait=1.0)
    first = meeting.come(0, 3)
    with socket.create_connection(meeting.at) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert stranger.recv(100) == b""
    again = meeting.come(0, 3)
    said = heard(again, "end")["line"]
    assert "process 0 of 3 (host0, pid 0) is there already" in said
    said = heard(first, "end")["line"]
    assert "process(es) 1, 2 of 3 did not come within 1 s; start them" in said


def test_another_number_of_processes_is_refused(meet):
    meeting = meet(2)
    first, other = meeting.come(0, 2), meeting.come(1, 3)
    for line in (other, first):
        assert (
            "process 1 of 2 (host1, pid 1) was told that there are 3"
            in (heard(line, "end")["line"])
        )
        line.sock.close()


@pytest.mark.slow
def test_waiting_for_the_last_is_no_silence(meet, monkeypatch):
    """Who waits longer than that is not lost once the last has come."""
    monkeypatch.setattr(coordinator, "BEAT_SECONDS", 0.2)
    meeting = meet(2, silence=1.0)
    first = meeting.come(1, 2)  # The first to be told.
    time.sleep(1.5)
    for line in (first, meeting.come(0, 2)):
        heard(line, "go")
    with pytest.raises(AssertionError, match="no 'end' came"):
        heard(first, "end", seconds=0.5)


FACTS = dict(alike={}, host="x", pid=1, cores=[0])
STRANGE = {
    "a number beyond": dict(number=5, facts=FACTS),
    "a negative number": dict(number=-1, facts=FACTS),
    "a number that is none": dict(number=[1], facts=FACTS),
    "facts without a host": dict(number=1, facts={"alike": {}, "pid": 1}),
    "cores that are none": dict(number=1, facts={**FACTS, "cores": [{}]}),
    "no facts": dict(number=1),
}


def test_what_is_no_process_of_the_run_is_shown_out_and_the_others_meet(meet):
    meeting = meet(2)
    first = meeting.come(0, 2)
    for name, hello in STRANGE.items():
        other = meeting.call()
        other.send(kind="hello", count=2, **hello)
        with pytest.raises(ConnectionError):
            heard(other, "go")
        assert meeting.hub.thread.is_alive(), name
    for sent in (b"GET / HTTP/1.1\r\n\r\n", b"\0\0\x27\x10" + b"[" * 10000):
        other = meeting.call()
        other.sock.sendall(sent)
        with pytest.raises(ConnectionError):
            heard(other, "go")
    second = meeting.come(1, 2)
    assert heard(first, "go")["facts"] == heard(second, "go")["facts"]
    second.send(kind="say", value=1)  # It does not say what.
    assert "process 1 of 2 (host1, pid 1) was lost" in heard(first, "end")["line"]


def test_an_error_of_the_meeting_itself_ends_all_with_a_line(meet, monkeypatch):
    def fail(*_):
        raise RecursionError("a bug")

    monkeypatch.setattr(coordinator, "PARTING_SECONDS", 0.2)
    meeting = meet(2, differing=fail)
    lines = [meeting.come(1, 2), meeting.come(0, 2)]
    for line in lines:
        word = heard(line, "end")
        assert "the meeting failed (RecursionError: a bug)" in word["line"]
        assert word["code"] == 1
    meeting.hub.thread.join(20)
    assert not meeting.hub.thread.is_alive()


def test_long_words_pass_whole_and_half_a_word_ends_the_line(meet, pair):
    meeting = meet(2)
    lines = [meeting.come(number, 2) for number in range(2)]
    for line in lines:
        heard(line, "go")
    long = "x" * 9 * 2**20
    for line, value in zip(lines, (long, None), strict=True):
        line.send(kind="say", what="it", value=value)
    threads = [threading.Thread(target=heard, args=(lines[0], "said"))]
    threads[0].start()
    assert heard(lines[1], "said")["values"] == [long, None]
    threads[0].join()
    one, other = pair
    one.send(kind="say", what="it", value=long)  # Nobody reads.
    one.send(kind="say", what="other", value=1)
    with pytest.raises(ConnectionError, match="closed"):
        for _ in range(1000):
            assert list(other.read(1)) == []


@pytest.fixture
def pair():
    """Two ends of one connection."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
        server.accept()[0] as other,
    ):
        yield coordinator.Connection(one, 0.2), coordinator.Connection(other, 0.2)


def test_words_behind_the_one_that_was_waited_for_are_not_lost(pair):
    one, other = pair
    one.send(kind="go")
    one.send(kind="end")
    time.sleep(0.1)
    next(other.read(1))
    one.shut()
    assert next(other.read(1)) == {"kind": "end"}


class Seat:
    """One process that is a thread here: what `joined` does in it, but for jax."""

    def __init__(self, at: int, number: int, count: int):
        self.told, self.ended, self.since = [], None, 0.0
        self.inside, self.go_on = threading.Event(), threading.Event()
        self.place = processes.ProcessId(f"localhost:{at}", count, number)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        def tell(line: str, code: int) -> None:
            self.told.append((line, code))

        try:
            with processes.join(self.place, dict, tell, differing=jc.diff) as self.team:
                self.inside.set()
                self.go_on.wait(30)
        except BaseException as error:  # noqa: BLE001
            self.ended = error
        self.since = time.monotonic()


@pytest.fixture
def seated(monkeypatch):
    """Seats of processes whose jax does nothing; ends of them are only noted."""

    def begun(*_):
        return contextlib.nullcontext()

    monkeypatch.setattr(processes, "_started", begun)
    monkeypatch.setattr(jax.distributed, "shutdown", lambda: None)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        at = free.getsockname()[1]
    return lambda number, count=2: Seat(at, number, count)


def test_process_0_leaves_at_once_but_last(seated, monkeypatch):
    """A peer that is slow to leave is waited for, and not told that 0 was lost."""
    monkeypatch.setattr(coordinator, "PARTING_SECONDS", 0.1)
    leaving, seats = threading.Event(), [seated(number) for number in range(2)]

    def shutdown() -> None:
        if threading.current_thread() is seats[1].thread:
            leaving.wait(30)

    monkeypatch.setattr(jax.distributed, "shutdown", shutdown)
    for seat in seats:
        assert seat.inside.wait(30)
        seat.go_on.set()
    time.sleep(1)
    assert seats[0].thread.is_alive()
    began = time.monotonic()
    leaving.set()
    for seat in seats[::-1]:
        seat.thread.join(30)
        assert (seat.ended, seat.told) == (None, [])
    assert seats[0].since - began < 2


def test_all_hear_what_each_finds_or_cannot_do(seated):
    seats = [seated(number) for number in range(2)]

    def act(number: int) -> int:
        if number == wrong:
            raise ValueError("no such file")
        return number

    def each(seat) -> list | str:
        assert seat.inside.wait(30)
        try:
            return seat.team.gather_results("it", lambda: act(seat.place.number))
        except ValueError as error:
            return str(error)

    with futures.ThreadPoolExecutor(2) as pool:
        wrong = None
        assert [*pool.map(each, seats)] == [[0, 1], [0, 1]]
        wrong = 1
        told = ["process 1 of 2: no such file", "no such file"]
        assert [*pool.map(each, seats)] == told
    for seat in seats:
        seat.go_on.set()
    for seat in seats:
        seat.thread.join(30)


def test_a_peer_lost_while_jax_starts_is_named(seated, monkeypatch):
    begun, ends, codes = threading.Event(), threading.Event(), []

    @contextlib.contextmanager
    def starting(*_):
        begun.set()
        ends.wait(30)
        raise RuntimeError("stopped by the test")
        yield

    def over(code):
        codes.append(code)
        ends.set()
        threading.Event().wait()  # As nothing comes behind it.

    monkeypatch.setattr(processes, "_started", starting)
    monkeypatch.setattr(processes.os, "_exit", over)
    monkeypatch.setattr(processes.JoinedGroup, "fail", lambda *_: None)
    seat = seated(0)
    other = None
    while other is None:
        with contextlib.suppress(OSError):
            at = seat.place.coordinator.rpartition(":")[2]
            other = coordinator.Connection(
                socket.create_connection(("127.0.0.1", at)), 5.0
            )
    other.send(kind="hello", number=1, count=2, facts=FACTS)
    heard(other, "go")
    assert begun.wait(30)
    other.sock.close()
    assert ends.wait(10)
    [(line, code)] = seat.told
    assert "process 1 of 2 (x, pid 1) was lost" in line
    assert codes == [code] == [coordinator.EXIT_LOST]


@pytest.mark.parametrize("parting", [0.1, 60])
def test_what_answers_and_says_nothing_is_not_waited_for(monkeypatch, parting):
    """Neither beyond --wait nor beyond the time of signs of life."""
    monkeypatch.setattr(coordinator, "PARTING_SECONDS", parting)
    monkeypatch.setattr(coordinator, "SILENCE_SECONDS", 60 if parting < 1 else 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        at = f"localhost:{server.getsockname()[1]}"
        where, began = processes.ProcessId(at, 2, 1), time.monotonic()
        with (
            pytest.raises(ValueError, match="has not begun a run, and said nothing"),
            processes.join(where, dict, print, differing=jc.diff, wait=0.5),
        ):
            pass
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(("name", "code"), [("SIGUSR1", 143), ("SIGINT", 130)])
def test_a_stop_while_processes_meet_ends_all(seated, monkeypatch, name, code):
    seat, number = seated(1, 3), getattr(signal, name)

    def compare(at: coordinator.Coordinator) -> None:
        if len(at._there) == 2:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(coordinator.Coordinator, "_compare", compare)
    with (
        signals.listen(),
        pytest.raises(signals.Interrupted, match=name),
        processes.join(seat.place._replace(number=0), dict, print, differing=jc.diff),
    ):
        pass
    seat.thread.join(30)
    [(line, told)] = seat.told
    assert f"process 0 of 3: {name} before a step" in line and told == code
    assert seat.ended.code == code
