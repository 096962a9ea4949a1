"""How the processes that train a run together meet: found or told, compared, started.

Each has devices of its own; jax makes one mesh of them all. What they do from then on is
the affair of `team`, and of `hub`, which serves the meeting.
"""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
from jax.experimental import multihost_utils

from jbias import config as jc
from jbias import hub
from jbias import team as teams
from jbias import workdir as workdirs

PATIENCE = 1800.0  # Seconds: a process may read data or compile alone for so long.
_GRACE = 8.0  # Seconds until a lost process, the cause of an error, is known.
# In errors of jax that a lost process causes in the others.
_OF_OTHERS = ("Gloo", "NCCL", "coordination", "UNAVAILABLE", "DEADLINE_EXCEEDED")


class Place(NamedTuple):
    """Where a process stands among those of a run."""

    coordinator: str  # HOST:PORT, at process 0.
    count: int
    number: int
    devices: list[int] | None = None  # Of its machine; None: all.


def place(coordinator: str | None, count: int | None, number: int | None) -> Place:
    """Reads the flags, or without them what SLURM, Open MPI or a TPU's host says.

    A count of 1 alone trains alone, whatever is said there. ValueError where the flags
    do not fit each other.
    """
    given = [coordinator, count, number]
    if count == 1 and coordinator is None and number is None:
        return Place("", 1, 0)
    if all(one is None for one in given):
        return _detected()
    if None in given:
        names = ("--coordinator", "--processes", "--process")
        absent = [name for name, one in zip(names, given) if one is None]
        raise ValueError(
            f"processes: --coordinator=HOST:PORT, --processes=N and --process=I go "
            f"together, got no {' and no '.join(absent)}"
        )
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 2**16:
        raise ValueError(
            f"processes: --coordinator must be HOST:PORT, where process 0 is, got "
            f"{coordinator!r}"
        )
    if count < 1 or not 0 <= number < count:
        raise ValueError(
            f"processes: --process must be 0 to {max(0, count - 1)} of --processes="
            f"{count}, got {number}"
        )
    return Place(coordinator, count, number)


def _detected() -> Place:
    """What jax's own detection finds; alone, where it finds nothing."""
    from jax._src import clusters

    # Nothing public tells it without starting all of jax's service.
    try:
        found = clusters.ClusterEnv.auto_detect_unset_distributed_params(
            *(None,) * 5, 300
        )
    except Exception as error:  # Each cluster raises its own.
        raise ValueError(
            f"processes: the cluster that this seems to be does not say which processes "
            f"there are ({error}); --processes=1 trains alone, or give --coordinator, "
            "--processes and --process"
        ) from error
    coordinator, count, number, devices = found
    if None in (coordinator, count, number) or count == 1:
        return Place("", 1, 0)
    told = os.environ.get("JAX_LOCAL_DEVICE_IDS")  # jax looks, if given none.
    return Place(coordinator, count, number, None if told else devices)


@contextlib.contextmanager
def joined(
    where: Place,
    config: Mapping[str, Any],
    tell: Callable[[str, int], None],
    *,
    wait: float = 300.0,
    patience: float = PATIENCE,
) -> Iterator[teams.Team]:
    """Meets the other processes of a run and starts jax on all; alone, does nothing.

    tell: hears the line and the exit code that another's end gives this process.
    ValueError where they do not come within `wait` seconds, or are to do other things.
    """
    if where.count == 1:
        yield teams.ALONE
        return
    host, _, port = where.coordinator.rpartition(":")
    if not where.number:
        server = _serving(host, int(port))
        options = dict(differing=jc.differing, wait=wait, patience=patience)
        served = hub.Hub(server, where.count, silence=hub.SILENCE, **options)
    line = _connected(host, int(port), where, wait)
    try:
        go = _met(line, where, config)
    except ValueError:
        if not where.number:
            served.thread.join(hub.PARTING)
        raise
    # Before jax starts: there, too, another may be lost.
    team = teams.Joined(line, where.number, go["facts"], tell)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(_started(where, host, go["port"]))
            yield team
            team.leave()
        except BaseException as error:
            of_others(error)  # Then this process ends in there.
            with team.telling():
                traceback.print_exc()
            team.fail(f"{type(error).__name__}: {error}", 1)
            raise
    if not where.number:
        served.thread.join(hub.PARTING)


def _serving(host: str, port: int) -> socket.socket:
    own = _loopback(host)
    try:
        if not own and socket.has_dualstack_ipv6():
            family = socket.AF_INET6
            return socket.create_server(
                ("", port), family=family, dualstack_ipv6=True, backlog=512
            )
        return socket.create_server((own, port), backlog=512)
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


def _connected(host: str, port: int, where: Place, wait: float) -> hub.Line:
    until, reason = time.monotonic() + wait, ""
    while time.monotonic() < until:
        try:
            sock = socket.create_connection((host.strip("[]"), port), timeout=5)
        except OSError as error:
            reason = error.strerror or str(error)
            time.sleep(0.2)
            continue
        sock.settimeout(hub.BEAT / 4)
        return hub.Line(sock)
    raise ValueError(
        f"processes: process 0 of {where.count} did not come: nothing answers at "
        f"{where.coordinator} within {wait:g} s ({reason}); start it, or name its host "
        "and a free port with --coordinator"
    )


def _met(line: hub.Line, where: Place, config: Mapping[str, Any]) -> dict[str, Any]:
    """Says who this is, and waits until all are there."""
    software = json.loads(json.dumps(workdirs.software()))
    facts = {
        "alike": {"config": jc.plain(config), **software},
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "cores": len(os.sched_getaffinity(0)),
    }
    line.send(kind="hello", number=where.number, count=where.count, facts=facts)
    while True:
        try:
            for word in line.read():
                if word.get("kind") == "go":
                    return word
                if word.get("kind") == "end":
                    raise ValueError(word["line"])
        except ConnectionError as error:
            raise ValueError(
                "processes: process 0 ended before all were there; see what it says"
            ) from error


@contextlib.contextmanager
def _started(where: Place, host: str, port: int) -> Iterator[None]:
    """Starts jax's own service behind the meeting, at a port of its own."""
    # Signals are this package's affair; a notice of jax's own is asked for in `team`.
    jax.config.update("jax_enable_preemption_service", True)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    bind = f"{_loopback(host) or '[::]'}:{port}"
    jax.distributed.initialize(
        f"{host}:{port}",
        where.count,
        where.number,
        where.devices,
        cluster_detection_method="deactivate",
        coordinator_bind_address=bind,
        heartbeat_timeout_seconds=round(3 * hub.SILENCE),
    )
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
    return subprocess.Popen(
        ["sh", "-c", f"read gone; sleep {hub.PARTING:g}"],
        stdin=subprocess.PIPE,  # Ends with this process.
        stdout=subprocess.DEVNULL,  # Who reads what this one says need not wait.
        stderr=subprocess.DEVNULL,
        pass_fds=held,
        start_new_session=True,
    )


def of_others(error: BaseException) -> bool:
    """Whether an error may be what a lost process causes; waits until that is known."""
    found = any(word in str(error) for word in _OF_OTHERS)
    if found:
        time.sleep(_GRACE)
    return found
