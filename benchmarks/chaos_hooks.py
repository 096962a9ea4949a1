"""Points that a run passes, where it may come to harm: its writes, renames and steps."""

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

from jbias.training import divergence

OVER = "CHAOS_OVER"  # In the environment of a process whose run is over.
MEANT, ACTED = "meant", "acted"
POINTS = ("save", "eval", "rename", "write", "touch", "step")


def _points(workdir: str, event: str, args: tuple) -> tuple[str, ...]:
    """Which points an event of the interpreter is."""
    if event == "os.rename":
        return ("rename", "touch") if workdir in str(args[1]) else ()
    if event in ("os.mkdir", "os.remove", "os.rmdir", "os.listdir", "os.scandir"):
        return ("touch",) if workdir in str(args[0]) else ()
    if event != "open" or workdir not in str(args[0]):
        return ()
    path, mode, flags = str(args[0]), *args[1:]
    if not (set(mode or "") & set("wax+") or (flags or 0) & (os.O_WRONLY | os.O_RDWR)):
        return ("touch",)
    inside = "eval" if "/evals/" in path or "/decisions/" in path else "write"
    inside = "save" if "/checkpoints/" in path else inside
    return ("touch", "write") if inside == "write" else ("touch", "write", inside)


def _heard(workdir: pathlib.Path, hear: Callable[[str], None]) -> None:
    """Calls `hear` with each point that this process passes."""
    within = str(workdir)

    def hook(event: str, args: tuple) -> None:
        if OVER in os.environ:
            return
        for point in _points(within, event, args):
            hear(point)

    sys.addaudithook(hook)
    add = divergence.Monitor.add

    def counted(self, *args):
        hear("step")
        return add(self, *args)

    divergence.Monitor.add = counted


def at(
    workdir: pathlib.Path, point: str, number: int, act: Callable[[], None]
) -> Callable[[], None]:
    """What makes a process `act` at the numberth passing of a point, from any thread.

    Beside the workdir stands then that it was meant to, and that it did.
    """

    def before() -> None:
        lock, left = threading.Lock(), number
        (workdir.parent / MEANT).touch()

        def hear(passed: str) -> None:
            nonlocal left
            if passed != point or left <= 0:
                return
            with lock:
                left -= 1
                now = left == 0
            if now:
                (workdir.parent / ACTED).touch()
                act()

        _heard(workdir, hear)

    return before


def late(workdir: pathlib.Path, *, over: bool) -> None:
    """Notes what is done from outside: nothing happens where the run is `over`."""
    for name in (MEANT,) if over else (MEANT, ACTED):
        (workdir.parent / name).touch()


def count(workdir: pathlib.Path, out: pathlib.Path) -> None:
    """Keeps in a file how often this process has passed each point."""
    counts = collections.Counter(dict.fromkeys(POINTS, 0))

    def hear(passed: str) -> None:
        counts[passed] += 1
        if passed in ("step", "touch"):
            out.write_text(json.dumps(counts))

    _heard(workdir, hear)


def missed(folder: pathlib.Path) -> bool:
    """Whether what was meant to happen in a trial's folder never did."""
    return (folder / MEANT).exists() and not (folder / ACTED).exists()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(error: int) -> Callable[[], None]:
    """What raises an error of the system."""

    def act() -> None:
        raise OSError(error, os.strerror(error))

    return act


@contextlib.contextmanager
def mounted(path: pathlib.Path, *options: str) -> Iterator[None]:
    """Mounts there, as long as the context lasts; OSError where that is not allowed."""
    path.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *options, path], capture_output=True, check=False)
    if done.returncode:
        raise OSError(done.stderr.decode())
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def may_mount(folder: pathlib.Path) -> bool:
    """Whether this process may mount a file system there."""
    try:
        with mounted(folder / "mount", "-t", "tmpfs", "tmpfs"):
            return True
    except OSError:
        return False
