"""Run a command on one hostile input in a new process, and judge how it ends."""

import contextlib
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from qa.fuzz import attempts

SECONDS, BYTES = 60, 2_000_000_000
_ROOT = pathlib.Path(__file__).parents[2]
# Files of the checkout that commands name by relative paths.
_LINKED = ("jbias", "configs", "launch", "examples", "README.md")


class Case(NamedTuple):
    """A hostile input.

    words: description. write: writes the input to an empty folder, and returns the
    arguments of Python that read it. expects: regular expression that must match in the
    command's output.
    """

    words: str
    write: Callable[[pathlib.Path], Sequence[str]]
    expects: str = ""


def attempt(case: Case) -> tuple[str, str]:
    """Return the verdict, and the command's message or the reason of a failure."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "set"
        root.mkdir()
        cwd = pathlib.Path(folder) / "here"
        cwd.mkdir()
        for name in _LINKED:
            (cwd / name).symlink_to(_ROOT / name)
        command = [sys.executable, *case.write(root)]
        code, output, megabytes = _run(command, cwd)
    if code is None:
        return "hang", f"more than {SECONDS} s"
    if megabytes * 2**20 > BYTES:
        return "memory", f"{megabytes} MB: {output[-300:]}"
    if code < 0:
        return "crash", f"signal {-code}: {output[-300:]}"
    verdict, message = attempts.judge(code, output)
    if not re.search(case.expects, output):
        return "unclear", f"no {case.expects!r} in {output[-600:]!r}"
    return verdict, message


def _run(command: Sequence[str], cwd: pathlib.Path) -> tuple[int | None, str, int]:
    """Return exit code (None after a timeout), output, and the peak of megabytes.

    cwd: folder in which the command runs.
    """
    peak, deadline = 0, time.monotonic() + SECONDS
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=cwd
        )
        code = process.poll()
        while code is None and time.monotonic() < deadline:
            peak = max(peak, _peak_megabytes(process.pid))
            time.sleep(0.02)
            code = process.poll()
        if code is None:
            process.kill()
            process.wait()
        out.seek(0)
        output = out.read(100_000).decode(errors="backslashreplace")
    return code, output, peak


def _peak_megabytes(pid: int) -> int:
    """Return the largest resident memory of a process, or 0 if it has ended.

    ru_maxrss would start with the memory of the parent process.
    """
    with contextlib.suppress(OSError):
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        peak = re.search(r"VmHWM:\s+(\d+) kB", status)
        if peak:
            return int(peak[1]) >> 10
    return 0
