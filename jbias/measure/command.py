"""How the commands that have one parser begin and end."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jbias import xla
from jbias.terminal import faults, messages, parsing


def parse(
    parser: parsing.Parser,
    argv: Sequence[str] | None,
    changed: str,
    check: Callable[[Mapping[str, Any]], None],
) -> tuple[argparse.Namespace, list[str]]:
    """Reads the arguments; those of entries, --<changed>.KEY=VALUE, come second.

    Ends with exit code 2 where they are wrong, and where `check`, which sees them by
    name, raises a ValueError.
    """
    parser.entries = changed
    args, rest = parser.parse_known_args(argv)
    changes = [text for text in rest if text.startswith(f"--{changed}.")]
    if len(changes) < len(rest):
        unknown = next(text for text in rest if text not in changes)
        paths = unknown[0] != "-" and "--checkpoint" in parser.format_usage()
        hint = "; a path is --checkpoint=PATH, a glob in quotes" if paths else ""
        parser.error(f"unknown argument {unknown!r}{hint}")
    if wrong := next((text for text in changes if "=" not in text), None):
        parser.error(f"{wrong}: must be --{changed}.KEY=VALUE")
    try:
        check(vars(args))
    except ValueError as error:
        parser.error(str(error))
    return args, changes


def run(work: Callable[[], int], *, stopped: str) -> int:
    """Does the work and returns its exit code; 2 for what is refused, 1 for an
    error in the user's own code, 130 if stopped.

    `work` imports what it needs: --help and wrong arguments wait for nothing. `stopped`
    says what the same command does then. JBIAS_TRACEBACK=1 lets errors pass.
    """
    xla.set_flags()
    try:
        from jbias.terminal import console, heap

        console.hush()
        heap.bound()
        xla.keep_programs()
        return work()
    except (ValueError, OSError) as error:
        if os.environ.get("JBIAS_TRACEBACK"):
            raise
        print(f"jbias: {messages.line(error)}", file=sys.stderr)
        return 1 if isinstance(error, faults.Own) else 2
    except KeyboardInterrupt:
        print(f"jbias: stopped; the same command {stopped}", file=sys.stderr)
        return 130
