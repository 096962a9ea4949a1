"""Join the processes of a run, exchange values between them, and end them together.

The number of this process comes from flags or from the cluster (SLURM, Open MPI, a TPU's
host). `join` starts jax's distributed service, at process 0, and checks that all processes
have the same settings.

All processes must take the same steps in the same order, so no process may act on something
that the other processes cannot see (a signal, a damaged image, its free memory). A ProcessGroup
exchanges such values through the key-value store and the barriers of jax's service. Only
process 0 reads and writes the workdir.
"""

import contextlib
import ctypes
import datetime
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

# Arguments of jax.distributed.initialize that jax detects if they are None.
_DETECTED = (
    "coordinator_address",
    "num_processes",
    "process_id",
    "local_device_ids",
    "cluster_detection_method",
)


class ProcessId(NamedTuple):
    """The number of a process, and the address to which all processes connect."""

    coordinator: str  # HOST:PORT of process 0; "" for a single process.
    count: int  # Number of processes.
    number: int  # Number of this process, from 0 on.
    devices: list[int] | None = None  # Local device ids to use; None: all.


def identify(address: str | None, count: int | None, number: int | None) -> ProcessId:
    """Return this process's id from flags, or without flags from the cluster.

    Without flags and without a cluster, return the id of a single process. A count of 1 without
    the other flags disables the detection of a cluster.
    address, count, number: the flags --coordinator, --processes and --process; None if not
    given. ValueError for an invalid combination of flags or an invalid value.
    """
    flags = {
        "--coordinator": address,
        "--processes": count,
        "--process": number,
    }
    if count == 1 and address is None and number is None:
        return ProcessId("", count=1, number=0)
    missing = [flag for flag, value in flags.items() if value is None]
    if len(missing) == len(flags):
        return _detect()
    if missing:
        raise ValueError(
            f"processes: --coordinator=HOST:PORT, --processes=N and --process=I must be "
            f"given together, got no {' and no '.join(missing)}"
        )
    host, _, port = address.rpartition(":")
    if not host or not numerals.is_count(port) or not 0 < int(port) < 2**16:
        raise ValueError(
            f"processes: --coordinator must be HOST:PORT of process 0, got {address!r}"
        )
    if count < 1 or not 0 <= number < count:
        raise ValueError(
            f"processes: --process must be 0 to {max(0, count - 1)} of --processes="
            f"{count}, got {number}"
        )
    return ProcessId(address, count=count, number=number)


def _detect() -> ProcessId:
    """Return this process's id in the cluster that jax detects.

    Return the id of a single process if jax detects no cluster. ValueError if jax fails, or if
    the number of this process is invalid.
    """
    remedy = (
        "--processes=1 trains with this process alone; or give --coordinator, --processes "
        "and --process"
    )
    try:
        # jax has no public function that only detects.
        from jax._src import clusters

        coordinator, count, number, devices = (
            clusters.ClusterEnv.auto_detect_unset_distributed_params(
                **dict.fromkeys(_DETECTED), initialization_timeout=300
            )
        )
    # Each type of cluster raises errors of its own, which may change with jax.
    except Exception as error:
        raise ValueError(
            f"processes: a cluster was detected, but not the number of this process "
            f"(jax {jax.__version__}: {error}); {remedy}"
        ) from error
    if coordinator is None or number is None or count in (None, 1):
        return ProcessId("", count=1, number=0)
    if not 0 <= number < count:
        raise ValueError(
            f"processes: the cluster's number of this process must be 0 to {count - 1}, as "
            f"there are {count} processes, got {number}; {remedy}"
        )
    if os.environ.get("JAX_LOCAL_DEVICE_IDS"):
        devices = None  # jax reads the variable only if it gets no devices.
    return ProcessId(coordinator, count=count, number=number, devices=devices)


class ProcessGroup:
    """The processes of a run; this base class is a group of a single process.

    number: number of this process. count: number of processes. A `label` names a collective in
    error messages; all processes must call the same collectives in the same order.
    """

    number, count = 0, 1

    @property
    def is_main(self) -> bool:
        """True in process 0, which reads and writes the workdir."""
        return self.number == 0

    @property
    def cores(self) -> int:
        """Number of CPU cores that the processes may use, on all machines."""
        return len(os.sched_getaffinity(0))

    def all_gather(self, label: str, value: Any) -> list[Any]:
        """Return the values of all processes, in the order of their numbers.

        value: a JSON value of this process. The call waits for all processes.
        """
        return [value]

    def broadcast(self, label: str, value: Any) -> Any:
        """Return the `value` of process 0, a JSON value, in all processes."""
        return self.all_gather(label, value if self.is_main else None)[0]

    def all_min(self, number: int | None) -> int | None:
        """Return the minimum over the processes; None if any process has None."""
        numbers = self.all_gather("memory", number)
        return None if None in numbers else min(numbers)

    def gather_results(self, label: str, act: Callable[[], Any]) -> list[Any]:
        """Call `act` in all processes; return their results, in the order of the numbers.

        Results are JSON values. If `act` raises a ValueError in one process, all processes
        raise the error.
        """
        return [act()]

    @contextlib.contextmanager
    def raise_together(self, label: str, may_fail: bool = True) -> Iterator[None]:
        """If the context raises a ValueError in one process, raise it in all.

        may_fail: whether the context can raise; False skips the exchange.
        """
        yield

    def agree_to_stop(self, signal_name: str, step: int | None) -> str:
        """Return the name of the signal for which all processes stop now, or "".

        signal_name: the signal that this process has received, or "".
        step: the current step, never smaller than in earlier calls; None for a call that is not
          between two steps. With a step, preemption notices that jax receives count as signals.
        """
        return signal_name

    def reporting(self) -> contextlib.AbstractContextManager:
        """Return a context in which the thread that watches other processes reports nothing.

        The caller reports an error of the run inside the context.
        """
        return contextlib.nullcontext()

    def fail(self, line: str, code: int) -> None:
        """End all processes with an exit code; the other processes report the line.

        Does nothing in a group of one process.
        """

    def broadcast_tree(self, tree: PyTree) -> PyTree:
        """Return process 0's values of a tree of arrays, as numpy arrays."""
        return tree


ALONE = ProcessGroup()

PATIENCE_SECONDS = (
    1800.0  # For a process to reach a barrier: it may read data or compile.
)
SILENCE_SECONDS = 30.0  # A process counts as lost after this time without a heartbeat.
_WATCH_SECONDS = 1.0  # Between two checks of the other processes.
_PARTING_SECONDS = 5.0  # For the other processes to end before process 0 ends.
_REMEDY = "start all processes again with the same command to resume from the latest checkpoint"
# Folders of keys in the key-value store of jax's service.
_FAILED, _STOPS, _LEFT = "jbias/failed", "jbias/stop", "jbias/left"
_PREEMPTED = "RECEIVED_PREEMPTION_NOTICE"  # jax's own key for a preemption notice.
# Words in the errors that jax raises after another process was lost.
_LOST_WORDS = ("Gloo", "NCCL", "coordination", "UNAVAILABLE", "DEADLINE_EXCEEDED")


class JoinedGroup(ProcessGroup):
    """A group of several joined processes; a thread watches the other processes.

    If another process is lost or fails, the thread calls `report` with a line and an exit
    code, and ends this process, even if the main thread is blocked.
    """

    def __init__(self, number: int, count: int, report: Callable[[str, int], None]):
        # jax has no public access to the service that jax.distributed has started.
        from jax._src import distributed

        self.number, self.count = number, count
        self._client = distributed.global_state.client
        self._report, self._report_lock = report, threading.Lock()
        self._num_gathers = self._num_stop_checks = 0
        self._last_step: int | None = None  # Of `agree_to_stop`.
        self._has_sent_stop = False
        self._exit_timer: threading.Timer | None = None
        self.closed = threading.Event()
        self._hosts = [{"host": "a host", "pid": "?", "cores": []}] * count
        self._thread = threading.Thread(target=self._watch, name="team", daemon=True)
        self._thread.start()

    def compare_settings(
        self,
        settings: Mapping[str, Any],
        describe_differences: Callable[[Mapping, Mapping], list[str]],
    ) -> str:
        """Exchange hosts and settings; return an error line if settings differ, else "".

        settings: settings of this process. describe_differences: returns the differences
        between the settings of process 0 and of another process.
        """
        process_info = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "cores": sorted(os.sched_getaffinity(0)),
            "settings": {**settings, "processes": self.count},
        }
        infos = self.all_gather("the start", process_info)
        for number, info in enumerate(infos):
            differences = describe_differences(infos[0]["settings"], info["settings"])
            if differences:
                name = f"process {number} ({info['host']}, pid {info['pid']})"
                return (
                    f"processes: process 0 and {name} have different settings "
                    f"({messages.join_differences(differences)}); start all processes with the same "
                    "command, code and packages"
                )
        self._hosts = infos
        return ""

    def _name(self, number: int) -> str:
        """Return a process's number, host and pid as text for messages."""
        host = self._hosts[number]
        return f"process {number} of {self.count} ({host['host']}, pid {host['pid']})"

    @property
    def cores(self) -> int:
        """Number of CPU cores that the processes may use, on all machines."""
        # Processes of one machine may share cores, which count once.
        return len(
            {(host["host"], core) for host in self._hosts for core in host["cores"]}
        )

    def all_gather(self, label: str, value: Any) -> list[Any]:
        """Return the JSON values of all processes, in the order of their numbers.

        ConnectionError if a process is lost, or late by more than PATIENCE_SECONDS.
        """
        self._num_gathers += 1
        key = f"jbias/gather/{self._num_gathers}"
        self._client.key_value_set(f"{key}/{self.number:06}", json.dumps(value))
        try:
            self._client.wait_at_barrier(key, round(1000 * PATIENCE_SECONDS))
        except jax.errors.JaxRuntimeError as error:
            raise self._barrier_error(label, str(error)) from error
        items = sorted(self._client.key_value_dir_get(key))
        # After this barrier, all processes have read the previous values.
        if self.is_main:
            self._client.key_value_delete(f"jbias/gather/{self._num_gathers - 1}")
        return [json.loads(text) for _, text in items]

    def _barrier_error(self, label: str, error: str) -> ConnectionError:
        """Return the error for a barrier that failed, for example because a process was lost.

        label: name of the collective. error: text of jax's error.
        """
        late_processes = re.search(r"timed out task names:\s*([\d\s]+)", error)
        if not late_processes:
            reason = " ".join(error.split())[:200]
            return ConnectionError(
                f"processes: jax's service failed at {label!r} ({reason}); {_REMEDY}"
            )
        numbers = ", ".join(late_processes[1].split())
        return ConnectionError(
            f"processes: process(es) {numbers} of {self.count} did not reach {label!r} "
            f"within {PATIENCE_SECONDS:g} s of the first, though alive; check what they "
            f"are doing, then {_REMEDY}"
        )

    def gather_results(self, label: str, act: Callable[[], Any]) -> list[Any]:
        """Call `act` in all processes; return their results, in the order of the processes.

        label: name of the call in error messages. Results are JSON values. If `act` raises a
        ValueError in one process, all raise a
        ValueError; in the other processes its text names the first process that failed.
        """
        error, result = None, None
        try:
            result = act()
        except ValueError as raised:
            error = raised
        error_text = None if error is None else str(error)
        answers = self.all_gather(label, [result, error_text])
        if error is not None:
            raise error
        for number, (_, line) in enumerate(answers):
            if line is not None:
                raise ValueError(f"process {number} of {self.count}: {line}")
        return [result for result, _ in answers]

    @contextlib.contextmanager
    def raise_together(self, label: str, may_fail: bool = True) -> Iterator[None]:
        """If the context raises a ValueError in one process, raise it in all.

        may_fail: whether the context can raise; False skips the exchange. The text in the
        other processes: see `gather_results`.
        """
        if not may_fail:
            yield
            return
        error = None
        try:
            yield
        except ValueError as raised:
            error = raised

        def raise_error() -> None:
            if error is not None:
                raise error

        self.gather_results(label, raise_error)

    def agree_to_stop(self, signal_name: str, step: int | None) -> str:
        """Return the signal for which all processes stop now, or "".

        Arguments: see `ProcessGroup`. Return "a preemption notice" if jax received such a
        notice. With a step, all processes stop at the same step, which may be later than the
        signal. With None, the signal that process 0 has received is returned.
        """
        if signal_name and not self._has_sent_stop:
            self._has_sent_stop = True
            self._client.key_value_set(f"{_STOPS}/{self.number:06}", signal_name)
            # Sent like a preemption notice: jax then lets all processes agree on a later
            # step, and costs nothing before.
            now = datetime.datetime.now(datetime.UTC).isoformat()
            self._client.key_value_set(_PREEMPTED, now, allow_overwrite=True)
        if step is None:
            return self._stop_of_main()
        # jax may choose any step, so all steps since the last call are checked.
        first_step = step if self._last_step is None else self._last_step + 1
        self._last_step = step
        for checked_step in range(first_step, step + 1):
            if multihost_utils.reached_preemption_sync_point(checked_step):
                stop = self._first_stop() or "a preemption notice"
                return self.broadcast("a stop", stop)
        return ""

    def _first_stop(self) -> str:
        """Return the signal from the process with the lowest number; "" without a signal."""
        items = sorted(self._client.key_value_dir_get(_STOPS))
        return items[0][1] if items else ""

    def _stop_of_main(self) -> str:
        """Return the signal that process 0 has received, or ""; equal in all processes.

        The n-th call in each process returns the signal that process 0 had received at its n-th
        call. Process 0 does not wait for the other processes.
        """
        self._num_stop_checks += 1
        key = f"jbias/look/{self._num_stop_checks}"
        if self.is_main:
            stop = self._first_stop()
            self._client.key_value_set(key, json.dumps(stop))
            # The other processes are at most a few batches behind.
            self._client.key_value_delete(f"jbias/look/{self._num_stop_checks - 1000}")
            return stop
        timeout = round(1000 * PATIENCE_SECONDS)
        try:
            return json.loads(self._client.blocking_key_value_get(key, timeout))
        except jax.errors.JaxRuntimeError as error:
            raise self._barrier_error("a stop", str(error)) from error

    @contextlib.contextmanager
    def reporting(self) -> Iterator[None]:
        """Keep the watching thread from reporting an error inside the context."""
        with self._report_lock:
            self._report = lambda *_: None
            yield

    def fail(self, line: str, code: int) -> None:
        """End all processes with an exit code; the other processes report the line."""
        line = f"processes: process {self.number} of {self.count}: {line}"
        timer = self._exit_soon(code)
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            key = f"{_FAILED}/{self.number}"
            self._client.key_value_set(key, json.dumps([line, code]))
        timer.join()

    def leave(self) -> None:
        """Leave the group after a barrier; process 0, which runs jax's service, leaves last."""
        self.all_gather("the end", None)
        self._client.key_value_set(f"{_LEFT}/{self.number}", "")
        self.closed.set()
        deadline = time.monotonic() + SILENCE_SECONDS
        while self.is_main and time.monotonic() < deadline:
            if len(self._client.get_live_nodes([*range(self.count)])) == 1:
                break
            time.sleep(0.05)
        jax.distributed.shutdown()
        self._thread.join()

    def broadcast_tree(self, tree: PyTree) -> PyTree:
        """Return process 0's values of a tree of arrays, as numpy arrays."""
        leaves, structure = jax.tree.flatten(jax.device_get(tree))
        # As bytes: jax broadcasts by a sum, which would turn -0 into 0.
        local_bytes = b"".join(leaf.tobytes() for leaf in leaves)
        broadcast = multihost_utils.broadcast_one_to_all(
            np.frombuffer(local_bytes, np.uint8)
        )
        main_bytes, stop = np.asarray(broadcast).tobytes(), 0
        for i, leaf in enumerate(leaves):
            start, stop = stop, stop + leaf.nbytes
            flat = np.frombuffer(main_bytes[start:stop], leaf.dtype)
            leaves[i] = flat.reshape(leaf.shape)
        return jax.tree.unflatten(structure, leaves)

    def answers(self) -> bool:
        """Return True if process 0 answers within _PARTING_SECONDS."""
        has_answered = threading.Event()

        def ask() -> None:
            with contextlib.suppress(jax.errors.JaxRuntimeError):
                self._client.key_value_dir_get(_FAILED)
                has_answered.set()

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(_PARTING_SECONDS)
        return has_answered.is_set()

    def _watch(self) -> None:
        """End this process, after a call of `report`, once another process is lost or failed."""
        all_numbers = [*range(self.count)]
        while not self.closed.wait(_WATCH_SECONDS):
            try:
                # Returns when all processes have called it.
                live = self._client.get_live_nodes(all_numbers)
                left_items = self._client.key_value_dir_get(_LEFT)
                failures = self._client.key_value_dir_get(_FAILED)
            except jax.errors.JaxRuntimeError:
                continue  # Process 0 is gone, which ends this process (_on_abort).
            left = {int(key.rpartition("/")[2]) for key, _ in left_items}
            lost = [
                number
                for number in all_numbers
                if number not in live and number not in left
            ]
            if self._exit_timer or not (failures or lost):
                continue
            if failures:
                line, code = json.loads(failures[0][1])
            else:
                line = f"processes: {self._name(lost[0])} was lost; {_REMEDY}"
                code = signals.EXIT_LOST
            with self._report_lock:
                self._report(line, code)
            # If this process itself counts as lost, no process waits for its answers.
            if self.number in lost:
                _exit_now(code)
            self._exit_soon(code)

    def _exit_soon(self, code: int) -> threading.Timer:
        """Start a timer that ends this process, even if its main thread is blocked.

        Until then the watching thread answers the other processes, which thus report the
        failure, too. Process 0 waits longer, because jax's service ends with it.
        """
        seconds = _PARTING_SECONDS if self.is_main else 2 * _WATCH_SECONDS
        self._exit_timer = threading.Timer(seconds, _exit_now, [code])
        self._exit_timer.daemon = True
        self._exit_timer.start()
        return self._exit_timer


def _exit_now(code: int) -> None:
    """End the process without waiting for its threads."""
    messages.flush()
    os._exit(code)


@contextlib.contextmanager
def join(
    process: ProcessId,
    settings: Callable[[], Mapping[str, Any]],
    report: Callable[[str, int], None],
    *,
    describe_differences: Callable[[Mapping, Mapping], list[str]],
    wait: float = 300.0,
) -> Iterator[ProcessGroup]:
    """Join the processes of a run and start jax's service; yield the group.

    A single process yields ALONE and starts nothing.

    settings: returns the settings that must be equal in all processes.
    report: called with a message and an exit code before this process exits because another
      process has ended.
    describe_differences: returns the differences of two processes' settings.
    wait: seconds until all processes must have joined; otherwise this process reports a
    line and exits with code 2.

    ValueError if the settings differ or jax's service does not start. An error inside the
    context ends all processes.
    """
    if process.count == 1:
        yield ALONE
        return
    own_settings = settings()
    joined: list[JoinedGroup] = []  # Empty until this process has joined.
    with _on_abort(lambda: _explain_abort(process, wait, joined), report):
        _start(process, wait)
        signals.reinstall()
        team = JoinedGroup(process.number, process.count, report=report)
        joined.append(team)
        try:
            if line := team.compare_settings(own_settings, describe_differences):
                team.leave()
                raise ValueError(line)
            # XLA's collectives give the processes only half a minute to connect.
            multihost_utils.sync_global_devices("met")
            yield team
            team.leave()
        except BaseException as error:
            if not team.closed.is_set():
                _fail(team, error, report=report)
            raise


def _start(process: ProcessId, wait: float) -> None:
    """Start jax's service in process 0, and connect to it from all processes.

    wait: seconds until all processes must have connected. ValueError if the service does not
    start.
    """
    # Otherwise the loss of a process ends the other processes by abort(), unexplained.
    jax.config.update("jax_enable_recoverability", True)
    # jbias handles the signals; preemption notices of jax are checked at each step.
    jax.config.update("jax_enable_preemption_service", True)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    host, _, port = process.coordinator.rpartition(":")
    # In a thread, so that a stop signal is handled while this waits for other processes.
    pool = futures.ThreadPoolExecutor(1)
    started = pool.submit(
        jax.distributed.initialize,
        coordinator_address=process.coordinator,
        num_processes=process.count,
        process_id=process.number,
        local_device_ids=process.devices,
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
            f"({' '.join(str(error).split())[:200]}); give all processes another "
            "--coordinator"
        ) from error


def free_port() -> int:
    """Return a TCP port that is not in use."""
    with socket.socket() as unbound:
        unbound.bind(("", 0))
        return unbound.getsockname()[1]


def _loopback(host: str) -> str:
    """Return the IP address of `host` if it is this machine's loopback, else ""."""
    if host in ("localhost", "::1"):
        return "127.0.0.1"
    return host if re.fullmatch(r"127(\.\d+){3}", host) else ""


@contextlib.contextmanager
def _on_abort(
    explain: Callable[[], tuple[str, int] | None], report: Callable[[str, int], None]
) -> Iterator[None]:
    """Report an abort() by jax's service in the context as one line, and exit.

    explain: returns the line and the exit code, or None for an abort of another cause, which is
    not changed.
    report: called with the line and the code before the process exits. jax's own callback
    for this case does not work from Python (jaxlib 0.10: std::bad_cast).
    """

    def handle(_: int) -> None:
        """Report the abort and exit, unless `explain` returns None."""
        explanation = explain()
        if explanation:
            line, code = explanation
            report(line, code)
            _exit_now(code)

    libc, handler = ctypes.CDLL(None), ctypes.CFUNCTYPE(None, ctypes.c_int)(handle)
    libc.signal.argtypes = ctypes.c_int, ctypes.c_void_p
    libc.signal.restype = ctypes.c_void_p
    old_handler = libc.signal(signal.SIGABRT, ctypes.cast(handler, ctypes.c_void_p))
    try:
        yield
    finally:
        libc.signal(signal.SIGABRT, old_handler)


def _explain_abort(
    process: ProcessId, wait: float, joined: Sequence[JoinedGroup]
) -> tuple[str, int] | None:
    """Return a line and the exit code for an abort that another process caused, else None.

    process: the id of this process. wait: seconds in which all processes must join. joined:
    this process's group, or empty if it has not joined.
    """
    if not joined:
        line = (
            f"processes: not all of {process.count} processes reached "
            f"{process.coordinator} within {wait:g} s, or two have the same number; start "
            f"each of 0 to {process.count - 1} once, set --coordinator to process 0's host "
            "and a free port, or give a longer --wait=SECONDS"
        )
        return line, signals.EXIT_REFUSED
    if process.number and not joined[0].answers():
        host = process.coordinator.rpartition(":")[0]
        line = f"processes: process 0 of {process.count} ({host}) was lost; {_REMEDY}"
        return line, signals.EXIT_LOST
    return None


def _fail(
    team: ProcessGroup, error: BaseException, report: Callable[[str, int], None]
) -> None:
    """End all processes because of an error in this one.

    The exit code is that of a stop signal, EXIT_LOST for a ConnectionError, else 1. report:
    called with a line about the error and the exit code, unless the code is 1; then the
    traceback is printed.
    """
    line, code = f"{type(error).__name__}: {error}", 1
    if isinstance(error, signals.Interrupted):
        line, code = str(error), signals.exit_code(error)
    else:
        # If a lost process is the cause, the watching thread ends this process meanwhile.
        is_of_lost_process(error)
    if isinstance(error, ConnectionError):
        line, code = str(error), signals.EXIT_LOST
    with team.reporting():
        if code == 1:
            messages.print_traceback(type(error), error, error.__traceback__)
        else:
            report(line, code)
    team.fail(line, code)


def is_of_lost_process(error: BaseException) -> bool:
    """Return True if a lost process may have caused an error.

    If so, the function first waits long enough for the watching thread to notice a loss and to
    end this process.
    """
    may_be_lost = any(word in str(error) for word in _LOST_WORDS)
    if may_be_lost:
        time.sleep(SILENCE_SECONDS + _PARTING_SECONDS + 5 * _WATCH_SECONDS)
    return may_be_lost
