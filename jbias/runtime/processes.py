"""The processes that train a run together: which one this is, how they join, collectives.

Flags or the cluster (SLURM, Open MPI, a TPU's host) say which process this is. `join`
meets the others, compares what all must have in common, and starts jax on one mesh of all
devices.

No process acts on what it alone knows (a signal, a damaged image, how much memory is
free): all must take the same steps in the same order, so a ProcessGroup tells every one.
Process 0 alone reads and writes the workdir. The messages themselves are in `coordinator`.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils
from jaxtyping import PyTree

from jbias.runtime import coordinator, signals

# What jax can be told, and finds where it is not.
_DETECTED = (
    *("coordinator_address", "num_processes", "process_id", "local_device_ids"),
    "cluster_detection_method",
)


class ProcessId(NamedTuple):
    """Where a process stands among those of a run."""

    coordinator: str  # HOST:PORT, at process 0.
    count: int
    number: int
    devices: list[int] | None = None  # Of its machine; None: all.


def identify(address: str | None, count: int | None, number: int | None) -> ProcessId:
    """Reads the flags, or without them what SLURM, Open MPI or a TPU's host says.

    A count of 1 alone trains alone, whatever is said there. ValueError where the flags
    do not fit each other.
    """
    given = [address, count, number]
    if count == 1 and address is None and number is None:
        return ProcessId("", 1, 0)
    if all(one is None for one in given):
        return _detected()
    if None in given:
        names = ("--coordinator", "--processes", "--process")
        absent = [name for name, one in zip(names, given) if one is None]
        raise ValueError(
            f"processes: --coordinator=HOST:PORT, --processes=N and --process=I go "
            f"together, got no {' and no '.join(absent)}"
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ValueError(
            f"processes: --coordinator must be HOST:PORT, where process 0 is, got "
            f"{address!r}"
        )
    if count < 1 or not 0 <= number < count:
        raise ValueError(
            f"processes: --process must be 0 to {max(0, count - 1)} of --processes="
            f"{count}, got {number}"
        )
    return ProcessId(address, count, number)


def _detected() -> ProcessId:
    """What jax's own detection finds; alone, where it finds nothing."""
    remedy = "--processes=1 trains alone; or give --coordinator, --processes, --process"
    try:
        # Nothing public tells it without starting all of jax's service.
        from jax._src import clusters

        found = clusters.ClusterEnv.auto_detect_unset_distributed_params(
            **dict.fromkeys(_DETECTED), initialization_timeout=300
        )
    # Each cluster raises its own, another jax what it likes.
    except Exception as error:
        raise ValueError(
            f"processes: the cluster that this seems to be does not say which processes "
            f"there are (jax {jax.__version__}: {error}); {remedy}"
        ) from error
    where = ProcessId(*found)
    if None in where[:3] or where.count == 1:
        return ProcessId("", 1, 0)
    if not 0 <= where.number < where.count:
        raise ValueError(
            "processes: the cluster that this seems to be must say 0 to "
            f"{where.count - 1} for a process of {where.count}, got {where.number}; "
            f"{remedy}"
        )
    chosen = os.environ.get("JAX_LOCAL_DEVICE_IDS")  # jax looks, if given none.
    return where._replace(devices=None) if chosen else where


class ProcessGroup:
    """The processes of a run; as it stands here, this one alone."""

    number, count = 0, 1

    @property
    def is_main(self) -> bool:
        """Whether this process reads and writes the workdir."""
        return self.number == 0

    @property
    def cores(self) -> int:
        """Cores of all machines that take part."""
        return len(os.sched_getaffinity(0))

    def all_gather(self, what: str, value: Any) -> list[Any]:
        """What each process says, in order, once all have; a barrier, too."""
        return [value]

    def broadcast(self, what: str, value: Any) -> Any:
        """What process 0 says."""
        return self.all_gather(what, value if self.is_main else None)[0]

    def all_min(self, number: int | None) -> int | None:
        """The least of what the processes say; None where one knows none."""
        numbers = self.all_gather("memory", number)
        return None if None in numbers else min(numbers)

    def gather_previous(self, value: Any) -> list[Any]:
        """What each process said at the call before, without a wait; alone, what is said."""
        return [value]

    def gather_results(self, what: str, act: Callable[[], Any]) -> list[Any]:
        """What `act` gives in each process; a ValueError of one is raised in all."""
        return [act()]

    @contextlib.contextmanager
    def raise_together(self, what: str, may_fail: bool = True) -> Iterator[None]:
        """Raises a ValueError from within in all processes, where one has it."""
        yield

    def preempted(self, step: int) -> bool:
        """Whether jax has told of a preemption; all ask with the same ascending steps."""
        return False

    def reporting(self) -> contextlib.AbstractContextManager:
        """Within it this process tells what ends it: nobody else's line comes beside."""
        return contextlib.nullcontext()

    def fail(self, line: str, code: int) -> None:
        """Ends the others with what ended this one, and this process; alone, does nothing."""

    def broadcast_tree(self, tree: PyTree) -> PyTree:
        """What process 0 has in the place of these arrays, on the host."""
        return tree


ALONE = ProcessGroup()


class JoinedGroup(ProcessGroup):
    """One of several processes that have met; a thread listens to the others.

    Where another is lost, or has failed, the thread ends this process, wherever its own
    work stands, with one line and an exit code: `tell` hears both.
    """

    def __init__(
        self,
        line: coordinator.Connection,
        number: int,
        facts: list[dict],
        tell: Callable,
    ):
        self.number, self.count, self._facts = number, len(facts), facts
        self._line, self._report = line, tell
        self._calls, self._pulses, self._closed = 0, 0, False
        self._asked, self._voice = None, threading.Lock()
        self._said: dict[str, list] = {}
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._listen, name="team", daemon=True)
        self._thread.start()

    @property
    def cores(self) -> int:
        # Tasks of one machine may share its cores, or have some each.
        return len({(of["host"], core) for of in self._facts for core in of["cores"]})

    def all_gather(self, what: str, value: Any) -> list[Any]:
        self._calls += 1
        what = f"{what}#{self._calls}"
        self._line.send(kind="say", what=what, value=value)
        return self._wait_for(what)

    def gather_results(self, what: str, act: Callable[[], Any]) -> list[Any]:
        error, found = None, None
        try:
            found = act()
        except ValueError as raised:
            error = raised
        results = self.all_gather(what, [found, None if error is None else str(error)])
        if error is not None:
            raise error
        for number, (_, line) in enumerate(results):
            if line is not None:
                raise ValueError(f"process {number} of {self.count}: {line}")
        return [found for found, _ in results]

    @contextlib.contextmanager
    def raise_together(self, what: str, may_fail: bool = True) -> Iterator[None]:
        if not may_fail:
            yield
            return
        error = None
        try:
            yield
        except ValueError as raised:
            error = raised

        def ended() -> None:
            if error is not None:
                raise error

        self.gather_results(what, ended)

    def gather_previous(self, value: Any) -> list[Any]:
        self._pulses += 1
        self._line.send(kind="say", what=f"a step#p{self._pulses}", value=value)
        if self._pulses == 1:
            return []
        return self._wait_for(f"a step#p{self._pulses - 1}")

    def _wait_for(self, what: str) -> list[Any]:
        with self._news:
            self._news.wait_for(lambda: what in self._said)
            return self._said.pop(what)

    def preempted(self, step: int) -> bool:
        # jax chooses one of the steps to come, so none may be left out.
        first = step if self._asked is None else self._asked + 1
        self._asked = step
        asked = range(first, step + 1)
        return any(multihost_utils.reached_preemption_sync_point(n) for n in asked)

    @contextlib.contextmanager
    def reporting(self) -> Iterator[None]:
        with self._voice:
            self._report = lambda *_: None
            yield

    def fail(self, line: str, code: int) -> None:
        self._line.send(kind="fail", line=line, code=code)
        # The thread ends this process before.
        time.sleep(2 * coordinator.PARTING_SECONDS)

    def leave(self) -> None:
        """Ends the work of all, together."""
        self.all_gather("the end", None)
        jax.distributed.shutdown()
        self._closed = True
        self._line.send(kind="bye")
        self._line.shut()
        self._thread.join()

    def broadcast_tree(self, tree: PyTree) -> PyTree:
        leaves, structure = jax.tree.flatten(jax.device_get(tree))
        # As bytes: the sum that jax takes would make 0 of -0.
        sent = b"".join(leaf.tobytes() for leaf in leaves)
        found = multihost_utils.broadcast_one_to_all(np.frombuffer(sent, np.uint8))
        held, stop = np.asarray(found).tobytes(), 0
        for i, leaf in enumerate(leaves):
            start, stop = stop, stop + leaf.nbytes
            flat = np.frombuffer(held[start:stop], leaf.dtype)
            leaves[i] = flat.reshape(leaf.shape)
        return jax.tree.unflatten(structure, leaves)

    def _listen(self) -> None:
        beaten = turned = time.monotonic()
        while not self._closed:
            try:
                for word in self._line.read(coordinator.BEAT_SECONDS / 4):
                    self._take(word)
            except ConnectionError:
                if not self._closed:
                    self._first_lost("was lost")
                return
            before, turned = turned, time.monotonic()
            silence = coordinator.SILENCE_SECONDS
            if turned - before > silence / 2:  # It is this one that stood still.
                self._line.last_heard = turned
            if turned - self._line.last_heard > silence:
                self._first_lost(f"gave no sign of life for {silence:g} s")
            if time.monotonic() - beaten > coordinator.BEAT_SECONDS:
                beaten = time.monotonic()
                self._line.beat()

    def _take(self, word: Mapping[str, Any]) -> None:
        if word.get("kind") == "said":
            with self._news:
                self._said[word["what"]] = word["values"]
                self._news.notify_all()
        if word.get("kind") == "end" and not self._closed:
            self._die(word["line"], word["code"])

    def _first_lost(self, how: str) -> None:
        facts = self._facts[0]
        where = f"process 0 of {self.count} ({facts['host']}, pid {facts['pid']})"
        line = f"processes: {where} {how}; {coordinator.REMEDY}"
        self._die(line, coordinator.EXIT_LOST)

    def _die(self, line: str, code: int) -> None:
        with self._voice:
            self._report(line, code)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)  # The main thread may wait for the lost one for ever.


PATIENCE_SECONDS = 1800.0  # A process may read data or compile alone for so long.
_GRACE_SECONDS = 8.0  # Seconds until a lost process, the cause of an error, is known.
# In errors of jax that a lost process causes in the others.
_OF_OTHERS = ("Gloo", "NCCL", "coordination", "UNAVAILABLE", "DEADLINE_EXCEEDED")


@contextlib.contextmanager
def join(
    where: ProcessId,
    alike: Callable[[], Mapping[str, Any]],
    tell: Callable[[str, int], None],
    *,
    differing: Callable[[Mapping, Mapping], list[str]],
    wait: float = 300.0,
    patience: float = PATIENCE_SECONDS,
) -> Iterator[ProcessGroup]:
    """Meets the other processes of a run and starts jax on all; alone, does nothing.

    alike: gives what all must have in common. tell: hears the line and the exit code
    that another's end gives this process. differing: tells what two `alike` differ in.
    ValueError where they do not come within `wait` seconds, or are to do other things.
    """
    if where.count == 1:
        yield ALONE
        return
    host, _, port = where.coordinator.rpartition(":")
    served = None
    if not where.number:
        options = dict(differing=differing, wait=wait, patience=patience)
        options["silence"] = coordinator.SILENCE_SECONDS
        server = _serving(host, int(port))
        served = coordinator.Coordinator(server, where.count, **options)
    line = _connected(host, int(port), where, wait)
    with contextlib.ExitStack() as stack:
        stack.enter_context(line.sock)
        try:
            go = _met(line, where, alike(), wait, tell)
        except BaseException as error:
            if isinstance(error, signals.Interrupted):
                line.send(kind="fail", line=str(error), code=signals.exit_code(error))
            if served is not None:
                served.thread.join(2 * coordinator.PARTING_SECONDS)
            raise
        # Before jax starts: there, too, another may be lost.
        team = JoinedGroup(line, where.number, go["facts"], tell)
        try:
            stack.enter_context(_started(where, host, go["port"]))
            yield team
            team.leave()
        except BaseException as error:
            _fail(team, error, tell)
            raise
    if served is not None:
        # The others may be slower to leave.
        served.thread.join(coordinator.SILENCE_SECONDS)


def _fail(team: ProcessGroup, error: BaseException, tell: Callable) -> None:
    """Ends all with what ended this one, and this process."""
    line, code = f"{type(error).__name__}: {error}", 1
    if isinstance(error, signals.Interrupted):
        line, code = str(error), signals.exit_code(error)
    else:
        is_of_lost_process(error)  # Then this process ends in there.
    if isinstance(error, ConnectionError):
        line, code = str(error), coordinator.EXIT_LOST
    with team.reporting():
        traceback.print_exc() if code == 1 else tell(line, code)
    team.fail(line, code)


def _serving(host: str, port: int) -> socket.socket:
    own = _loopback(host)
    both = not own and socket.has_dualstack_ipv6()
    how = dict(family=socket.AF_INET6, dualstack_ipv6=True) if both else {}
    try:
        return socket.create_server((own, port), backlog=512, **how)
    except OSError as error:
        raise ValueError(
            f"processes: process 0 cannot listen at port {port} ({error.strerror}); "
            "give all another --coordinator"
        ) from error


def _loopback(host: str) -> str:
    """Where to listen for this machine alone; "" where others are to come, too."""
    if host in ("localhost", "::1"):
        return "127.0.0.1"
    return host if re.fullmatch(r"127(\.\d+){3}", host) else ""


def _connected(
    host: str, port: int, where: ProcessId, wait: float
) -> coordinator.Connection:
    until, reason = time.monotonic() + wait, ""
    while time.monotonic() < until:
        try:
            sock = socket.create_connection((host.strip("[]"), port), timeout=5)
        except OSError as error:
            reason = error.strerror or str(error)
            time.sleep(0.2)
            continue
        return coordinator.Connection(sock, coordinator.SILENCE_SECONDS)
    raise ValueError(
        f"processes: process 0 of {where.count} did not come: nothing answers at "
        f"{where.coordinator} within {wait:g} s ({reason}); start it, or name its host "
        "and a free port with --coordinator"
    )


def _met(
    line: coordinator.Connection,
    where: ProcessId,
    alike: Mapping[str, Any],
    wait: float,
    tell: Callable[[str, int], None],
) -> dict[str, Any]:
    """Says who this is, and waits until all are there."""
    facts = {
        "alike": alike,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "cores": sorted(os.sched_getaffinity(0)),
    }
    line.send(kind="hello", number=where.number, count=where.count, facts=facts)
    beaten = time.monotonic()
    # Process 0 waits as long, and says then who is missing.
    until = beaten + wait + 2 * coordinator.PARTING_SECONDS
    while time.monotonic() < until:
        try:
            for word in line.read(coordinator.BEAT_SECONDS / 4):
                match word:
                    case {"kind": "go"}:
                        return word
                    case {"kind": "end", "line": said, "code": code}:
                        if code == coordinator.EXIT_REFUSED:
                            raise ValueError(said)
                        tell(said, code)
                        raise SystemExit(code)
        except ConnectionError as error:
            raise ValueError(
                "processes: process 0 ended before all were there; see what it says"
            ) from error
        if time.monotonic() - line.last_heard > coordinator.SILENCE_SECONDS:
            break
        if time.monotonic() - beaten > coordinator.BEAT_SECONDS:
            beaten = time.monotonic()
            line.beat()
    silent = time.monotonic() - line.last_heard
    raise ValueError(
        f"processes: what answers at {where.coordinator} has not begun a run, and said "
        f"nothing for {silent:.0f} s; see whether process 0 is there and alive"
    )


@contextlib.contextmanager
def _started(where: ProcessId, host: str, port: int) -> Iterator[None]:
    """Starts jax's own service behind the meeting, at a port of its own."""
    # Signals are this package's affair; a notice of jax's own is asked for by `preempted`.
    jax.config.update("jax_enable_preemption_service", True)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    bind = f"{_loopback(host) or '[::]'}:{port}"
    try:
        jax.distributed.initialize(
            f"{host}:{port}",
            where.count,
            where.number,
            where.devices,
            cluster_detection_method="deactivate",
            coordinator_bind_address=bind,
            heartbeat_timeout_seconds=round(3 * coordinator.SILENCE_SECONDS),
        )
    except RuntimeError as error:
        raise ConnectionError(
            f"jax's service did not start at port {port} of {host} "
            f"({' '.join(str(error).split())[:200]}); {coordinator.REMEDY}"
        ) from error
    signals.reinstall()
    keeper = None if where.number else _keep(port)
    try:
        # All at once: XLA gives them half a minute to find each other.
        multihost_utils.sync_global_devices("met")
        yield
    finally:
        if keeper is not None:
            keeper.kill()


def _keep(port: int) -> subprocess.Popen | None:
    """Holds the connections of jax's service a moment longer than this process lives.

    Else the others' jax, which ends a process with a trace of C++ as soon as process 0
    is gone, is faster than the line that says so.
    """
    held = []
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as s:
            s.getpeername()  # One that is connected,
            if s.getsockname()[1] == port:  # at the service's end.
                held.append(int(name))
    if not held or not shutil.which("sh"):
        return None
    wait = f"trap '' INT TERM USR1; read gone; sleep {coordinator.PARTING_SECONDS:g}"
    return subprocess.Popen(
        ["sh", "-c", wait],
        stdin=subprocess.PIPE,  # Ends with this process.
        stdout=subprocess.DEVNULL,  # Who reads what this one says need not wait.
        stderr=subprocess.DEVNULL,
        pass_fds=held,
        start_new_session=True,
    )


def is_of_lost_process(error: BaseException) -> bool:
    """Whether an error may be what a lost process causes; waits until that is known."""
    if found := any(word in str(error) for word in _OF_OTHERS):
        time.sleep(_GRACE_SECONDS)
    return found
