"""Runs a command inside this process on one malformed input, and judges how it ends."""

import contextlib
import hashlib
import io
import os
import pathlib
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

# What ends a command in order: its own code, and an answer of one line.
CODES = (0, 1, 2)
SECONDS = 90
# As Python itself does, for who runs a command.
_SILENT = (
    DeprecationWarning,
    PendingDeprecationWarning,
    ImportWarning,
    ResourceWarning,
)
_LETTERS = 4000  # Of a line that refuses.


class Case(NamedTuple):
    """One malformed input: a file of the folder with other bytes, or other arguments."""

    words: str  # What is wrong, for who looks at a failure.
    argv: tuple[str, ...]
    file: str = ""
    data: bytes = b""


class Outcome(NamedTuple):
    """How a command ended: refused, read, or a failure of one of four kinds."""

    verdict: str
    case: Case
    told: str = ""

    @property
    def failed(self) -> bool:
        return self.verdict not in ("refused", "read")


FAILURES = ("traceback", "unclear", "overwritten", "hang", "wrong")


class _Late(BaseException):
    """The time is over; nothing but the harness may catch it."""


def attempt(
    case: Case,
    command: Callable[[tuple[str, ...]], int],
    folder: pathlib.Path,
    right: Callable[[Case], str] = lambda case: "",
) -> Outcome:
    """Puts the input there, runs the command, and puts all back as it was.

    right: says what is wrong with the answer where the input was read; "" is nothing.
    """
    path = folder / case.file
    pristine = path.read_bytes() if case.file else b""
    try:
        if case.file:
            path.write_bytes(case.data)
        before = contents(folder)
        verdict, told = _run(case, command)
        lost = _lost(before, contents(folder))
        if verdict != "traceback" and lost:
            verdict, told = "overwritten", f"{lost}; {told}"
        if verdict == "read" and (wrong := right(case)):
            verdict, told = "wrong", wrong
    finally:
        if case.file:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pristine)
    return Outcome(verdict, case, told)


def _run(case: Case, command: Callable) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    try:
        with (
            _limited(SECONDS),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("always")
            for kind in _SILENT:
                warnings.simplefilter("ignore", kind)
            code = command(case.argv)
    except SystemExit as ended:
        code = ended.code
    except _Late:
        return "hang", f"more than {SECONDS} s"
    except BaseException:  # noqa: BLE001
        return "traceback", traceback.format_exc()
    return judged(code, err.getvalue() or out.getvalue())


def judged(code: object, stderr: str) -> tuple[str, str]:
    """The verdict on an exit code and on what stands on standard error."""
    lines = stderr.strip().splitlines()
    last = lines[-1] if lines else ""
    if "Traceback (most" in stderr:
        return "traceback", stderr[-3000:]
    if not all(c.isprintable() or c in "\n\t" for c in stderr):
        return "unclear", f"a terminal would obey {stderr[-600:]!r}"
    if "Warning: " in stderr:
        return "unclear", stderr[-600:]
    if code not in CODES:
        return "unclear", f"exit code {code!r}: {last}"
    if code == 0:
        return "read", last
    usage = lines[:1] and lines[0].startswith("usage: ")
    refusals = [line for line in lines if ": " in line]
    if not refusals or len(last) > _LETTERS or (code == 2 and ": " not in last):
        return "unclear", stderr[-600:] or "no word"
    return "refused", last if not usage else last.partition(": error: ")[2]


@contextlib.contextmanager
def _limited(seconds: int) -> Iterator[None]:
    def late(number: int, frame: object) -> None:
        raise _Late

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def contents(folder: pathlib.Path) -> dict[str, str]:
    """A digest of every file below a folder, links as they are."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                found[os.path.relpath(path, folder)] = digest
    return found


def _lost(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """The first file whose bytes are nowhere any more; moved aside is not lost."""
    held = set(after.values())
    lost = [name for name, digest in before.items() if digest not in held]
    return lost[0] if lost else ""
