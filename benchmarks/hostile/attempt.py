"""Runs a command on one hostile input in a process of its own, and judges how it ends."""

import contextlib
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks.fuzz import attempts

SECONDS, BYTES = 60, 2_000_000_000
_ROOT = pathlib.Path(__file__).parents[2]
# What commands name by paths from where they run.
_NAMED = ("jbias", "configs", "launch", "examples", "README.md")


class Case(NamedTuple):
    """One input.

    write: puts it below an empty folder and returns the arguments of Python that read it.
    expects: a regular expression that the answer must hold.
    """

    words: str
    write: Callable[[pathlib.Path], Sequence[str]]
    expects: str = ""


def attempt(case: Case) -> tuple[str, str]:
    """The verdict, and what the command said or how it failed."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "set"
        root.mkdir()
        here = pathlib.Path(folder) / "here"
        here.mkdir()
        for name in _NAMED:
            (here / name).symlink_to(_ROOT / name)
        code, told, megabytes = _ended([sys.executable, *case.write(root)], here)
    if code is None:
        return "hang", f"more than {SECONDS} s"
    if megabytes * 2**20 > BYTES:
        return "memory", f"{megabytes} MB: {told[-300:]}"
    if code < 0:
        return "crash", f"signal {-code}: {told[-300:]}"
    verdict, why = attempts.judged(code, told)
    if not re.search(case.expects, told):
        return "unclear", f"no {case.expects!r} in {told[-600:]!r}"
    return verdict, why


def _ended(command: Sequence[str], here: pathlib.Path) -> tuple[int | None, str, int]:
    """The exit code, None if it took too long; what was printed; megabytes at most.

    here: where it runs, so that nothing is left elsewhere.
    """
    most, until = 0, time.monotonic() + SECONDS
    with tempfile.TemporaryFile() as out:
        started = subprocess.Popen(
            command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=here
        )
        while (code := started.poll()) is None and time.monotonic() < until:
            most = max(most, _most(started.pid))
            time.sleep(0.02)
        if code is None:
            started.kill()
            started.wait()
        out.seek(0)
        told = out.read(100_000).decode(errors="backslashreplace")
    return code, told, most


def _most(process: int) -> int:
    """Megabytes it had at most, by itself: ru_maxrss begins with those of its parent."""
    with contextlib.suppress(OSError):
        status = pathlib.Path(f"/proc/{process}/status").read_text()
        if found := re.search(r"VmHWM:\s+(\d+) kB", status):
            return int(found[1]) >> 10
    return 0
