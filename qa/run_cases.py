"""Run a folder of small cases, one after the other, and print which fail.

    python -m qa.run_cases DIR

A case is a script `run.sh` in a subfolder of DIR, or any *.sh in a subfolder without run.sh. A
case is right if its script ends with exit code 0. Scripts run with bash from the project's folder;
$PY is the path of this Python. Prints one line for each case, and writes no file. The exit code
is 1 if any case failed, 2 if DIR has none.

Takes as long as the cases: at most 10 minutes each, or --seconds.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from jbias.runtime import cli, messages
from qa import command

ROOT = pathlib.Path(__file__).parents[1]
_GRACE_SECONDS = 5.0  # Between the request to stop and the end by force.


class Outcome(NamedTuple):
    """The end of a case."""

    is_right: bool
    reason: str  # "" if the case is right.
    seconds: float
    last_line: str  # Of the script's output.


def find(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the scripts of a folder of cases, by name."""
    scripts = [path for path in folder.glob("*/*.sh") if path.is_file()]
    with_run = {path.parent for path in scripts if path.name == "run.sh"}
    return sorted(
        path for path in scripts if path.name == "run.sh" or path.parent not in with_run
    )


def run(script: pathlib.Path, limit_seconds: float) -> Outcome:
    """Run one case; what it started ends with it, or at the limit."""
    environment = {**os.environ, "PY": sys.executable}
    began = time.monotonic()
    process = subprocess.Popen(
        ["bash", str(script.resolve())],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    reason = ""
    try:
        output, _ = process.communicate(timeout=limit_seconds)
        if process.returncode:
            reason = f"exit code {process.returncode}"
    except subprocess.TimeoutExpired:
        reason = f"not done after {limit_seconds:g} seconds"
        _stop(process)
        output, _ = process.communicate()
    except KeyboardInterrupt:
        _stop(process)
        raise
    seconds = time.monotonic() - began
    lines = output.decode(errors="backslashreplace").strip().splitlines()
    return Outcome(not reason, reason, seconds, lines[-1] if lines else "")


def _stop(process: subprocess.Popen) -> None:
    """End a script and all that it started, which are a session of their own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(_GRACE_SECONDS)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def describe(name: str, outcome: Outcome) -> str:
    """Return the line about a case."""
    word = "ok" if outcome.is_right else "FAILED"
    if not outcome.is_right:
        name = f"{name}: {outcome.reason}: {outcome.last_line}".removesuffix(": ")
    return f"{word:6} {outcome.seconds:6.1f} s  {messages.one_line(name)}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run all cases of a folder; return the exit code."""
    parser = command.parser("run_cases", __doc__)
    parser.add_argument("folder", metavar="DIR", help="folder of cases")
    parser.add_argument(
        "--seconds",
        type=cli.positive,
        default=600.0,
        metavar="S",
        help="time limit of a case in seconds (default: %(default)g)",
    )
    options = parser.parse_args(argv)
    folder = pathlib.Path(options.folder)
    if not folder.is_dir():
        parser.error(f"DIR must be a folder of cases, got {options.folder!r}")
    scripts = find(folder)
    if not scripts:
        parser.error(f"{options.folder}: must hold */run.sh or */*.sh, but holds none")
    failed = 0
    for script in scripts:
        outcome = run(script, options.seconds)
        name = script.relative_to(folder).as_posix().removesuffix("/run.sh")
        failed += not outcome.is_right
        messages.print_text(describe(name, outcome))
    messages.print_text(f"{failed} of {len(scripts)} cases failed")
    return int(failed > 0)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        messages.print_text("run_cases: stopped", to_stderr=True)
        sys.exit(130)
