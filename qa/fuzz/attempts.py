"""Run a command in this process on one malformed input, and judge how it ends."""

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

# Exit codes of commands that end in order, after a message of one line.
CODES = (0, 1, 2)
SECONDS = 90
# Warnings that Python hides from users by default.
_HIDDEN_WARNINGS = (
    DeprecationWarning,
    PendingDeprecationWarning,
    ImportWarning,
    ResourceWarning,
)
_MAX_LETTERS = 4000  # Length of a line that refuses an input.


class Case(NamedTuple):
    """A malformed input: a file of the folder with other bytes, or other arguments.

    words: description of the fault. argv: arguments of the command. file: file to damage,
    relative to the folder; "" for none. data: its malformed bytes.
    """

    words: str
    argv: tuple[str, ...]
    file: str = ""
    data: bytes = b""


class Outcome(NamedTuple):
    """The ending of a command: verdict "refused", "read", or one of FAILURES.

    message: the command's refusal, or the reason of a failure.
    """

    verdict: str
    case: Case
    message: str = ""

    @property
    def failed(self) -> bool:
        """True if the command neither refused the input nor read it rightly."""
        return self.verdict not in ("refused", "read")


FAILURES = ("traceback", "unclear", "overwritten", "hang", "wrong")


class _TimeoutError(BaseException):
    """The time is over. Commands do not catch it, since it is no Exception."""


def attempt(
    case: Case,
    command: Callable[[tuple[str, ...]], int],
    folder: pathlib.Path,
    check: Callable[[Case], str] = lambda case: "",
) -> Outcome:
    """Write the malformed input, run the command, and restore the file.

    folder: folder of the inputs. check: for inputs that were read, explains why they should
    have been refused; "" if they should not.
    """
    path = folder / case.file
    pristine = path.read_bytes() if case.file else b""
    try:
        if case.file:
            path.write_bytes(case.data)
        digests = contents(folder)
        verdict, message = _run(case, command)
        lost = _lost_file(digests, contents(folder))
        if verdict != "traceback" and lost:
            verdict, message = "overwritten", f"{lost}; {message}"
        error = check(case) if verdict == "read" else ""
        if error:
            verdict, message = "wrong", error
    finally:
        if case.file:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pristine)
    return Outcome(verdict, case, message)


def _run(case: Case, command: Callable) -> tuple[str, str]:
    """Run a command; return the verdict and the message."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with (
            _time_limit(SECONDS),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("always")
            for kind in _HIDDEN_WARNINGS:
                warnings.simplefilter("ignore", kind)
            code = command(case.argv)
    except SystemExit as ended:
        code = ended.code
    except _TimeoutError:
        return "hang", f"more than {SECONDS} s"
    except BaseException:  # noqa: BLE001
        return "traceback", traceback.format_exc()
    return judge(code, err.getvalue() or out.getvalue())


def judge(code: object, stderr: str) -> tuple[str, str]:
    """Return the verdict and the message for an exit code and standard error."""
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
    if not refusals or len(last) > _MAX_LETTERS or (code == 2 and ": " not in last):
        return "unclear", stderr[-600:] or "no message"
    return "refused", last if not usage else last.partition(": error: ")[2]


@contextlib.contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    """Raise _TimeoutError in the context after `seconds`."""

    def raise_timeout(number: int, frame: object) -> None:
        raise _TimeoutError

    previous = signal.signal(signal.SIGALRM, raise_timeout)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def contents(folder: pathlib.Path) -> dict[str, str]:
    """Return a digest of every file below a folder, by relative path."""
    digests = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                digests[os.path.relpath(path, folder)] = digest
    return digests


def _lost_file(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Return the first old file whose bytes are in no new file, or "".

    A renamed file is not lost. old, new: digests by path.
    """
    digests = set(new.values())
    lost = [name for name, digest in old.items() if digest not in digests]
    return lost[0] if lost else ""
