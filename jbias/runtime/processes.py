"""The processes that train a run together: which one this is, how they join, collectives.

Flags or the cluster (SLURM, Open MPI, a TPU's host) say which process this is. `join`
starts jax's own service, at process 0, compares what all must have in common, and makes
one mesh of all devices.

No process acts on what it alone knows (a signal, a damaged image, how much memory is
free): all must take the same steps in the same order, so a ProcessGroup tells every one,
by the key-value store and the barriers of jax's service. Process 0 alone reads and writes
the workdir.
"""

import contextlib
import ctypes
import datetime
import functools
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils
from jaxtyping import PyTree

from jbias import numerals
from jbias.runtime import messages, signals

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
    if not host or not numerals.is_count(port) or not 0 < int(port) < 2**16:
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

    def gather_results(self, what: str, act: Callable[[], Any]) -> list[Any]:
        """What `act` gives in each process; a ValueError of one is raised in all."""
        return [act()]

    @contextlib.contextmanager
    def raise_together(self, what: str, may_fail: bool = True) -> Iterator[None]:
        """Raises a ValueError from within in all processes, where one has it."""
        yield

    def agree_to_stop(self, signal_name: str, step: int | None) -> str:
        """The signal that all stop for, here; "" for none. All ask at the same places.

        signal_name: what has come to this process. step: where it asks between steps,
        each time a later one; jax's own notice of a preemption is heard of there.
        """
        return signal_name

    def reporting(self) -> contextlib.AbstractContextManager:
        """Within it this process tells what ends it: nobody else's line comes beside."""
        return contextlib.nullcontext()

    def fail(self, line: str, code: int) -> None:
        """Ends the others with what ended this one, and this process; alone, does nothing."""

    def broadcast_tree(self, tree: PyTree) -> PyTree:
        """What process 0 has in the place of these arrays, on the host."""
        return tree


ALONE = ProcessGroup()

PATIENCE_SECONDS = 1800.0  # A process may read data or compile alone for so long.
SILENCE_SECONDS = 30.0  # Seconds without a sign of life until a process counts as lost.
_WATCH_SECONDS = 1.0  # Seconds between two looks at the others.
_PARTING_SECONDS = 5.0  # Seconds that the others have to leave before process 0 does.
_REMEDY = "start all again with the same command: it goes on from the latest checkpoint"
# Under which keys of jax's service what is kept; it is jax's that a preemption is told by.
_FAILED, _STOPS, _LEFT = "jbias/failed", "jbias/stop", "jbias/left"
_PREEMPTED = "RECEIVED_PREEMPTION_NOTICE"
# In errors of jax that a lost process causes in the others.
_OF_OTHERS = ("Gloo", "NCCL", "coordination", "UNAVAILABLE", "DEADLINE_EXCEEDED")


class JoinedGroup(ProcessGroup):
    """One of several processes that have joined; a thread watches the others.

    Where another is lost, or has failed, the thread ends this process, wherever its own
    work stands, with one line and an exit code: `tell` hears both.
    """

    def __init__(self, number: int, count: int, tell: Callable[[str, int], None]):
        # Nothing public reaches the service that jax.distributed has started.
        from jax._src import distributed

        self.number, self.count = number, count
        self._client = distributed.global_state.client
        self._report, self._voice = tell, threading.Lock()
        self._calls = self._looks = 0
        self._asked: int | None = None
        self._told = False
        self._ending: threading.Timer | None = None
        self.closed = threading.Event()
        self._facts = [{"host": "a host", "pid": "?", "cores": []}] * count
        self._thread = threading.Thread(target=self._watch, name="team", daemon=True)
        self._thread.start()

    def meet(self, alike: Mapping, differing: Callable[..., list[str]]) -> str:
        """Tells each of all; returns in which way they are to do different things."""
        facts = dict(host=socket.gethostname(), pid=os.getpid())
        facts |= dict(cores=sorted(os.sched_getaffinity(0)))
        alike = {**alike, "processes": self.count}
        found = self.all_gather("the start", {**facts, "alike": alike})
        for number, of in enumerate(found):
            if unlike := differing(found[0]["alike"], of["alike"]):
                name = f"process {number} ({of['host']}, pid {of['pid']})"
                return (
                    f"processes: process 0 and {name} are to do different things "
                    f"({'; '.join(unlike)}); start all with the same command, code and "
                    "packages"
                )
        self._facts = found
        return ""

    def _name(self, number: int) -> str:
        of = self._facts[number]
        return f"process {number} of {self.count} ({of['host']}, pid {of['pid']})"

    @property
    def cores(self) -> int:
        # Tasks of one machine may share its cores, or have some each.
        return len({(of["host"], core) for of in self._facts for core in of["cores"]})

    def all_gather(self, what: str, value: Any) -> list[Any]:
        self._calls += 1
        key = f"jbias/said/{self._calls}"
        self._client.key_value_set(f"{key}/{self.number:06}", json.dumps(value))
        try:
            self._client.wait_at_barrier(key, round(1000 * PATIENCE_SECONDS))
        except jax.errors.JaxRuntimeError as error:
            raise self._absent(what, str(error)) from error
        said = sorted(self._client.key_value_dir_get(key))
        if self.is_main:  # All that passed this barrier have read what came before.
            self._client.key_value_delete(f"jbias/said/{self._calls - 1}")
        return [json.loads(text) for _, text in said]

    def _absent(self, what: str, error: str) -> ConnectionError:
        names = re.search(r"timed out task names:\s*([\d\s]+)", error)
        if not names:
            said = " ".join(error.split())[:200]
            line = f"jax's service failed at {what!r} ({said}); {_REMEDY}"
            return ConnectionError(f"processes: {line}")
        return ConnectionError(
            f"processes: process(es) {', '.join(names[1].split())} of {self.count} did not "
            f"reach {what!r} within {PATIENCE_SECONDS:g} s of the first, though alive; see "
            f"what they do there, then {_REMEDY}"
        )

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

    def agree_to_stop(self, signal_name: str, step: int | None) -> str:
        if signal_name and not self._told:
            self._told = True
            self._client.key_value_set(f"{_STOPS}/{self.number:06}", signal_name)
            # Told as a preemption is: jax has all processes agree on one of the steps to
            # come, and asks nothing of them before.
            now = datetime.datetime.now(datetime.UTC).isoformat()
            self._client.key_value_set(_PREEMPTED, now, allow_overwrite=True)
        if step is None:
            return self._follow()
        first = step if self._asked is None else self._asked + 1
        self._asked = step  # jax may choose any step, so none is left out.
        asked = range(first, step + 1)
        if any(multihost_utils.reached_preemption_sync_point(n) for n in asked):
            return self.broadcast("a stop", self._first_stop() or "a preemption notice")
        return ""

    def _first_stop(self) -> str:
        told = sorted(self._client.key_value_dir_get(_STOPS))
        return told[0][1] if told else ""

    def _follow(self) -> str:
        """What process 0, which waits for no other, says of a stop at this call."""
        self._looks += 1
        key = f"jbias/look/{self._looks}"
        if self.is_main:
            stop = self._first_stop()
            self._client.key_value_set(key, json.dumps(stop))
            # The others are a few batches behind at most.
            self._client.key_value_delete(f"jbias/look/{self._looks - 1000}")
            return stop
        wait = round(1000 * PATIENCE_SECONDS)
        try:
            return json.loads(self._client.blocking_key_value_get(key, wait))
        except jax.errors.JaxRuntimeError as error:
            raise self._absent("a stop", str(error)) from error

    @contextlib.contextmanager
    def reporting(self) -> Iterator[None]:
        with self._voice:
            self._report = lambda *_: None
            yield

    def fail(self, line: str, code: int) -> None:
        line = f"processes: process {self.number} of {self.count}: {line}"
        ending = self._end_soon(code)
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            key = f"{_FAILED}/{self.number}"
            self._client.key_value_set(key, json.dumps([line, code]))
        ending.join()

    def leave(self) -> None:
        """Ends the work of all, together; process 0, with jax's service, is the last."""
        self.all_gather("the end", None)
        self._client.key_value_set(f"{_LEFT}/{self.number}", "")
        self.closed.set()
        until = time.monotonic() + SILENCE_SECONDS
        while self.is_main and time.monotonic() < until:
            if len(self._client.get_live_nodes([*range(self.count)])) == 1:
                break
            time.sleep(0.05)
        jax.distributed.shutdown()
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

    def answers(self) -> bool:
        """Whether process 0 still does, within some seconds."""
        said = []

        def ask() -> None:
            with contextlib.suppress(jax.errors.JaxRuntimeError):
                said.append(self._client.key_value_dir_get(_FAILED))

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(_PARTING_SECONDS)
        return bool(said)

    def _watch(self) -> None:
        everyone = [*range(self.count)]
        while not self.closed.wait(_WATCH_SECONDS):
            try:
                live = self._client.get_live_nodes(everyone)  # Once all have asked.
                left = self._client.key_value_dir_get(_LEFT)
                said = self._client.key_value_dir_get(_FAILED)
            except jax.errors.JaxRuntimeError:
                continue  # Process 0 is gone, which ends this process (_on_abort).
            there = {*live, *(int(key.rpartition("/")[2]) for key, _ in left)}
            lost = [number for number in everyone if number not in there]
            if self._ending or not (said or lost):
                continue
            if said:
                line, code = json.loads(said[0][1])
            else:
                line = f"processes: {self._name(lost[0])} was lost; {_REMEDY}"
                code = signals.EXIT_LOST
            with self._voice:
                self._report(line, code)
            if self.number in lost:  # It stood still: nobody waits for its answers.
                _leave_at_once(code)
            self._end_soon(code)

    def _end_soon(self, code: int) -> threading.Timer:
        """Ends this process in a while: the main thread may wait for a lost one for ever.

        Until then the thread goes on answering, so that all others hear of it, too. With
        process 0 goes jax's service, which others would miss.
        """
        seconds = _PARTING_SECONDS if self.is_main else 2 * _WATCH_SECONDS
        self._ending = threading.Timer(seconds, _leave_at_once, [code])
        self._ending.daemon = True
        self._ending.start()
        return self._ending


def _leave_at_once(code: int) -> None:
    messages.flush()
    os._exit(code)


@contextlib.contextmanager
def join(
    where: ProcessId,
    alike: Callable[[], Mapping[str, Any]],
    tell: Callable[[str, int], None],
    *,
    differing: Callable[[Mapping, Mapping], list[str]],
    wait: float = 300.0,
) -> Iterator[ProcessGroup]:
    """Meets the other processes of a run and starts jax on all; alone, does nothing.

    alike: gives what all must have in common. tell: hears the line and the exit code
    that another's end gives this process. differing: tells what two `alike` differ in.
    ValueError where they are to do different things. Where they do not all come within
    `wait` seconds this process ends, with a line and exit code 2.
    """
    if where.count == 1:
        yield ALONE
        return
    facts, joined = alike(), []
    with _on_abort(functools.partial(_why_aborted, where, wait, joined), tell):
        _start(where, wait)
        signals.reinstall()
        team = JoinedGroup(where.number, where.count, tell)
        joined.append(team)
        try:
            if line := team.meet(facts, differing):
                team.leave()
                raise ValueError(line)
            # All at once: XLA gives them half a minute to find each other.
            multihost_utils.sync_global_devices("met")
            yield team
            team.leave()
        except BaseException as error:
            if not team.closed.is_set():
                _fail(team, error, tell)
            raise


def _start(where: ProcessId, wait: float) -> None:
    """Starts jax's own service, at process 0, and joins it."""
    # Else the loss of one ends all others by abort(), before they can say of whom.
    jax.config.update("jax_enable_recoverability", True)
    # Signals are this package's affair; a notice of jax's own is asked for at each step.
    jax.config.update("jax_enable_preemption_service", True)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    host, _, port = where.coordinator.rpartition(":")
    # In a thread, so that a stop is heard of while the others are waited for.
    pool = futures.ThreadPoolExecutor(1)
    started = pool.submit(
        jax.distributed.initialize,
        *where,
        cluster_detection_method="deactivate",
        initialization_timeout=round(wait),
        coordinator_bind_address=f"{_loopback(host) or '[::]'}:{port}",
        heartbeat_timeout_seconds=round(SILENCE_SECONDS),
    )
    pool.shutdown(wait=False)
    try:
        started.result()
    except RuntimeError as error:
        raise ValueError(
            f"processes: jax's service did not start at port {port} of {host} "
            f"({' '.join(str(error).split())[:200]}); give all another --coordinator"
        ) from error


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as one:
        one.bind(("", 0))
        return one.getsockname()[1]


def _loopback(host: str) -> str:
    """Where to listen for this machine alone; "" where others are to come, too."""
    if host in ("localhost", "::1"):
        return "127.0.0.1"
    return host if re.fullmatch(r"127(\.\d+){3}", host) else ""


@contextlib.contextmanager
def _on_abort(
    why: Callable[[], tuple[str, int] | None], tell: Callable[[str, int], None]
) -> Iterator[None]:
    """Within it what jax's service ends by abort() ends by one line and an exit code.

    `why` gives both; None for an abort of another origin, which stays one. jax lets no
    Python be called in the place of its abort (of jaxlib 0.10: std::bad_cast).
    """

    def handle(_: int) -> None:
        if said := why():
            tell(*said)
            _leave_at_once(said[1])

    libc, handler = ctypes.CDLL(None), ctypes.CFUNCTYPE(None, ctypes.c_int)(handle)
    libc.signal.argtypes = ctypes.c_int, ctypes.c_void_p
    libc.signal.restype = ctypes.c_void_p
    before = libc.signal(signal.SIGABRT, ctypes.cast(handler, ctypes.c_void_p))
    try:
        yield
    finally:
        libc.signal(signal.SIGABRT, before)


def _why_aborted(
    where: ProcessId, wait: float, joined: Sequence[JoinedGroup]
) -> tuple[str, int] | None:
    """What the abort of a process says of the others, and the exit code."""
    if not joined:
        line = (
            f"processes: not all of {where.count} came to {where.coordinator} within "
            f"{wait:g} s, or two have one number; start each of 0 to {where.count - 1} "
            "once, name process 0's host and a free port with --coordinator, or give "
            "--wait=SECONDS"
        )
        return line, signals.EXIT_REFUSED
    if where.number and not joined[0].answers():
        host = where.coordinator.rpartition(":")[0]
        line = f"processes: process 0 of {where.count} ({host}) was lost; {_REMEDY}"
        return line, signals.EXIT_LOST
    return None


def _fail(team: ProcessGroup, error: BaseException, tell: Callable) -> None:
    """Ends all with what ended this one, and this process."""
    line, code = f"{type(error).__name__}: {error}", 1
    if isinstance(error, signals.Interrupted):
        line, code = str(error), signals.exit_code(error)
    else:
        is_of_lost_process(error)  # Then this process ends in there.
    if isinstance(error, ConnectionError):
        line, code = str(error), signals.EXIT_LOST
    with team.reporting():
        if code == 1:
            messages.print_traceback(type(error), error, error.__traceback__)
        else:
            tell(line, code)
    team.fail(line, code)


def is_of_lost_process(error: BaseException) -> bool:
    """Whether an error may be what a lost process causes; waits until that is known."""
    if found := any(word in str(error) for word in _OF_OTHERS):
        time.sleep(SILENCE_SECONDS + _PARTING_SECONDS + 5 * _WATCH_SECONDS)
    return found
