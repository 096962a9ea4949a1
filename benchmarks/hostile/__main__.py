r"""No benchmark of speed: inputs made to harm who reads them, and what comes of each.

    python -m benchmarks.hostile
    python -m benchmarks.hostile --only='data sets' --match=tar

Each is read by a process of its own, whose time and memory are measured. It must be read
rightly or refused in one line, within 60 s and 2 GB, and nothing that a terminal obeys may
reach it. Exit code 1 if any is not, and standard error says how.
"""

import argparse
import collections
import pathlib
import sys
import time
from collections.abc import Sequence

from benchmarks import measured
from benchmarks.hostile import algorithms, attempt, flags, frames, sets, workdirs

KINDS = {
    "data sets": sets.cases,
    "damaged runs": workdirs.cases,
    "algorithms of one's own": algorithms.cases,
    "flags and names": flags.cases,
    "tables for statistics": frames.cases,
}
VERDICTS = ("refused", "read", "traceback", "unclear", "hang", "memory", "crash")


def main(argv: Sequence[str] | None = None) -> int:
    """Tries all inputs, writes the table; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hostile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default="", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--match", default="", help="part of an input's description")
    parser.add_argument("--verbose", action="store_true", help="prints every answer")
    parser.add_argument("--out", default=measured.RESULTS, type=pathlib.Path)
    args = parser.parse_args(argv)
    rows = [_row("", "tried", *VERDICTS, "s"), "|:--" + "|--:" * 9 + "|"]
    total, spent = collections.Counter(), 0.0
    for name, cases in KINDS.items():
        if args.only and name != args.only:
            continue
        began, found = time.monotonic(), collections.Counter()
        for case in cases():
            if args.match in case.words:
                verdict, told = attempt.attempt(case)
                found[verdict] += 1
                if args.verbose or verdict not in VERDICTS[:2]:
                    line = f"{name}: {verdict}: {case.words}: {told}\n"
                    print(line, file=sys.stderr, flush=True)
        seconds = time.monotonic() - began
        rows.append(_counted(name, found, seconds))
        print(rows[-1], flush=True)
        total, spent = total + found, spent + seconds
    text = "\n".join([*rows, _counted("all", total, spent), ""])
    if not (args.only or args.match):
        measured.write("hostile", total, f"{_HEAD}{text}", ratios={}, out=args.out)
    else:
        print(text)
    return 1 if set(total) - {"refused", "read"} else 0


_HEAD = (
    "# What hostile input does\n\nEach is read by a process of its own, in at most"
    f" {attempt.SECONDS} s and {attempt.BYTES / 1e9:g} GB. Nothing was shown that a terminal"
    " obeys, and no command crashed, where the columns of failures are 0.\n\n"
)


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _counted(name: str, found: collections.Counter, seconds: float) -> str:
    counts = (found[verdict] for verdict in VERDICTS)
    return _row(name, found.total(), *counts, f"{seconds:.0f}")


if __name__ == "__main__":
    sys.exit(main())
