"""Hooks at points of a run where a fault can be injected: writes, renames and steps."""

import collections
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

from jbias.training import monitoring

OVER = "CHAOS_OVER"  # Environment variable of a process whose run is over.
MEANT, ACTED = "meant", "acted"  # Files: a fault was planned; a fault happened.
POINTS = ("save", "eval", "rename", "write", "touch", "step")


def _points(workdir: str, event: str, args: tuple) -> tuple[str, ...]:
    """Return the points that an audit event of the interpreter passes.

    workdir: only events on paths below this folder count.
    """
    if event == "os.rename":
        return ("rename", "touch") if workdir in str(args[1]) else ()
    if event in ("os.mkdir", "os.remove", "os.rmdir", "os.listdir", "os.scandir"):
        return ("touch",) if workdir in str(args[0]) else ()
    if event != "open" or workdir not in str(args[0]):
        return ()
    path, mode, flags = str(args[0]), *args[1:]
    opens_for_writing = set(mode or "") & set("wax+")
    if not (opens_for_writing or (flags or 0) & (os.O_WRONLY | os.O_RDWR)):
        return ("touch",)
    if "/checkpoints/" in path:
        return ("touch", "write", "save")
    if "/evals/" in path or "/decisions/" in path:
        return ("touch", "write", "eval")
    return ("touch", "write")


def _call_at_points(workdir: pathlib.Path, callback: Callable[[str], None]) -> None:
    """Call `callback` with the name of each point that this process passes."""
    folder = str(workdir)

    def audit(event: str, args: tuple) -> None:
        if OVER in os.environ:
            return
        for point in _points(folder, event, args):
            callback(point)

    sys.addaudithook(audit)
    add = monitoring.Monitor.add

    def add_after_callback(self, *args):
        callback("step")
        return add(self, *args)

    monitoring.Monitor.add = add_after_callback


def act_at(
    workdir: pathlib.Path, point: str, number: int, act: Callable[[], None]
) -> Callable[[], None]:
    """Return a function that installs a hook in the process which calls it.

    The hook calls `act` once, when the process passes `point` for the `number`th time, in
    any thread. The files MEANT and ACTED in the workdir's parent record that the hook was
    installed and that `act` was called.
    """

    def install() -> None:
        lock, remaining = threading.Lock(), number
        (workdir.parent / MEANT).touch()

        def callback(passed_point: str) -> None:
            nonlocal remaining
            if passed_point != point or remaining <= 0:
                return
            with lock:
                remaining -= 1
                is_due = remaining == 0
            if is_due:
                (workdir.parent / ACTED).touch()
                act()

        _call_at_points(workdir, callback)

    return install


def note_outside_harm(workdir: pathlib.Path, *, is_over: bool) -> None:
    """Record a fault from outside the run; a run that is over does not suffer it."""
    for name in (MEANT,) if is_over else (MEANT, ACTED):
        (workdir.parent / name).touch()


def count_points(workdir: pathlib.Path, out: pathlib.Path) -> None:
    """Write to file `out` how often this process has passed each point."""
    counts = collections.Counter(dict.fromkeys(POINTS, 0))

    def callback(point: str) -> None:
        counts[point] += 1
        if point in ("step", "touch"):
            out.write_text(json.dumps(counts))

    _call_at_points(workdir, callback)


def is_missed(folder: pathlib.Path) -> bool:
    """Return True if the fault planned for the trial in `folder` did not happen."""
    return (folder / MEANT).exists() and not (folder / ACTED).exists()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(error: int) -> Callable[[], None]:
    """Return a function that raises OSError with the error number `error`."""

    def act() -> None:
        raise OSError(error, os.strerror(error))

    return act


@contextlib.contextmanager
def mounted(path: pathlib.Path, *options: str) -> Iterator[None]:
    """Mount at `path` within the context; raise OSError if mounting is not allowed.

    options: options and source of the command `mount`.
    """
    path.mkdir(exist_ok=True)
    command = ["mount", *options, path]
    process = subprocess.run(command, capture_output=True, check=False)
    if process.returncode:
        raise OSError(process.stderr.decode())
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def can_mount(folder: pathlib.Path) -> bool:
    """Return True if this process may mount a file system below `folder`."""
    try:
        with mounted(folder / "mount", "-t", "tmpfs", "tmpfs"):
            return True
    except OSError:
        return False
