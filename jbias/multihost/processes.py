"""How the processes that train a run together meet: compared, started, ended.

Each has devices of its own; jax makes one mesh of them all. What they do from then on is
the affair of `team`, and of `hub`, which serves the meeting; `places` has which is which.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
from jax.experimental import multihost_utils

from jbias.multihost import hub, places, wire
from jbias.multihost import team as teams
from jbias.terminal import signals

PATIENCE = 1800.0  # Seconds: a process may read data or compile alone for so long.
_GRACE = 8.0  # Seconds until a lost process, the cause of an error, is known.
# In errors of jax that a lost process causes in the others.
_OF_OTHERS = ("Gloo", "NCCL", "coordination", "UNAVAILABLE", "DEADLINE_EXCEEDED")


@contextlib.contextmanager
def joined(
    where: places.Place,
    alike: Callable[[], Mapping[str, Any]],
    tell: Callable[[str, int], None],
    *,
    differing: Callable[[Mapping, Mapping], list[str]],
    wait: float = 300.0,
    patience: float = PATIENCE,
) -> Iterator[teams.Team]:
    """Meets the other processes of a run and starts jax on all; alone, does nothing.

    alike: gives what all must have in common. tell: hears the line and the exit code
    that another's end gives this process. differing: tells what two `alike` differ in.
    ValueError where they do not come within `wait` seconds, or are to do other things.
    """
    if where.count == 1:
        yield teams.ALONE
        return
    host, _, port = where.coordinator.rpartition(":")
    served = None
    if not where.number:
        server = _serving(host, int(port))
        options = dict(differing=differing, wait=wait, patience=patience)
        served = hub.Hub(server, where.count, silence=hub.SILENCE, **options)
    line = _connected(host, int(port), where, wait)
    with contextlib.ExitStack() as stack:
        stack.enter_context(line.sock)
        try:
            go = _met(line, where, alike(), wait, tell)
        except BaseException as error:
            if isinstance(error, signals.Interrupted):
                line.send(kind="fail", line=str(error), code=signals.code(error))
            if served is not None:
                served.thread.join(2 * hub.PARTING)
            raise
        # Before jax starts: there, too, another may be lost.
        team = teams.Joined(line, where.number, go["facts"], tell)
        try:
            stack.enter_context(_started(where, host, go["port"]))
            yield team
            team.leave()
        except BaseException as error:
            _fail(team, error, tell)
            raise
    if served is not None:
        served.thread.join(hub.SILENCE)  # The others may be slower to leave.


def _fail(team: teams.Team, error: BaseException, tell: Callable) -> None:
    """Ends all with what ended this one, and this process."""
    line, code = f"{type(error).__name__}: {error}", 1
    if isinstance(error, signals.Interrupted):
        line, code = str(error), signals.code(error)
    else:
        of_others(error)  # Then this process ends in there.
    if isinstance(error, ConnectionError):
        line, code = str(error), hub.LOST
    with team.reporting():
        traceback.print_exc() if code == 1 else tell(line, code)
    team.fail(line, code)


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


def _connected(host: str, port: int, where: places.Place, wait: float) -> wire.Line:
    until, reason = time.monotonic() + wait, ""
    while time.monotonic() < until:
        try:
            sock = socket.create_connection((host.strip("[]"), port), timeout=5)
        except OSError as error:
            reason = error.strerror or str(error)
            time.sleep(0.2)
            continue
        return wire.Line(sock, hub.SILENCE)
    raise ValueError(
        f"processes: process 0 of {where.count} did not come: nothing answers at "
        f"{where.coordinator} within {wait:g} s ({reason}); start it, or name its host "
        "and a free port with --coordinator"
    )


def _met(
    line: wire.Line,
    where: places.Place,
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
    # Process 0 waits as long, and says then who is missing.
    until, beaten = time.monotonic() + wait + 2 * hub.PARTING, time.monotonic()
    while time.monotonic() < until:
        try:
            for word in line.read(hub.BEAT / 4):
                match word:
                    case {"kind": "go"}:
                        return word
                    case {"kind": "end", "line": said, "code": hub.REFUSED}:
                        raise ValueError(said)
                    case {"kind": "end", "line": said, "code": code}:
                        tell(said, code)
                        raise SystemExit(code)
        except ConnectionError as error:
            raise ValueError(
                "processes: process 0 ended before all were there; see what it says"
            ) from error
        if time.monotonic() - line.heard > hub.SILENCE:
            break
        if time.monotonic() - beaten > hub.BEAT:
            beaten = time.monotonic()
            line.beat()
    silent = time.monotonic() - line.heard
    raise ValueError(
        f"processes: what answers at {where.coordinator} has not begun a run, and said "
        f"nothing for {silent:.0f} s; see whether process 0 is there and alive"
    )


@contextlib.contextmanager
def _started(where: places.Place, host: str, port: int) -> Iterator[None]:
    """Starts jax's own service behind the meeting, at a port of its own."""
    # Signals are this package's affair; a notice of jax's own is asked for in `team`.
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
            heartbeat_timeout_seconds=round(3 * hub.SILENCE),
        )
    except RuntimeError as error:
        raise ConnectionError(
            f"jax's service did not start at port {port} of {host} "
            f"({' '.join(str(error).split())[:200]}); {hub.REMEDY}"
        ) from error
    signals.again()
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
        ["sh", "-c", f"trap '' INT TERM USR1; read gone; sleep {hub.PARTING:g}"],
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
