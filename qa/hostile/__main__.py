"""Give the jbias commands inputs that are made to do harm, and count how they end.

    python -m qa.hostile
    python -m qa.hostile --only='data sets' --match=tar

Each input is read by a process of its own, whose time and memory are measured. It must be
read rightly or refused in one line, within 60 s and 2 GB, and no control characters may
reach the terminal. Other endings are printed to standard error with the reason, and the
exit code is then 1. Prints a row per kind of input, and writes the totals to OUT/hostile.json and
the table to OUT/hostile.md. With --only or --match, prints the table and writes no file.

Takes about half an hour on two cores (an estimate).
"""

import collections
import sys
import time
from collections.abc import Sequence

from benchmarks import result_files
from qa import command
from qa.hostile import algorithms, attempt, flags, frames, sets, workdirs

KINDS = {
    "data sets": sets.cases,
    "damaged runs": workdirs.cases,
    "algorithms of one's own": algorithms.cases,
    "flags and names": flags.cases,
    "tables for statistics": frames.cases,
}
PASSED = {"refused", "read"}
VERDICTS = ("refused", "read", "traceback", "unclear", "hang", "memory", "crash")


def main(argv: Sequence[str] | None = None) -> int:
    """Try all inputs, write the table, and return the exit code."""
    parser = command.parser("hostile", __doc__)
    command.add_only(parser, KINDS)
    parser.add_argument(
        "--match",
        default="",
        metavar="TEXT",
        help="text in the descriptions of the inputs to try (default: try all inputs)",
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="print the description and the message of every input (default: of those that fail)",
    )
    command.add_out(parser, "the results")
    args = parser.parse_args(argv)
    rows = [_row(["", "tried", *VERDICTS, "s"]), "|:--" + "|--:" * 9 + "|"]
    total, total_seconds = collections.Counter(), 0.0
    for name, cases in KINDS.items():
        if args.only and name != args.only:
            continue
        start, counts = time.monotonic(), collections.Counter()
        for case in cases():
            if args.match in case.words:
                verdict, message = attempt.attempt(case)
                counts[verdict] += 1
                if args.verbose or verdict not in PASSED:
                    line = f"{name}: {verdict}: {case.words}: {message}\n"
                    print(line, file=sys.stderr, flush=True)
        seconds = time.monotonic() - start
        rows.append(_count_row(name, counts, seconds))
        print(rows[-1], flush=True)
        total, total_seconds = total + counts, total_seconds + seconds
    if not total:
        parser.error(
            f"--match: no input has {args.match!r} in its description; use a shorter text"
        )
    text = "\n".join([*rows, _count_row("all", total, total_seconds), ""])
    if not (args.only or args.match):
        result_files.write("hostile", total, f"{_HEAD}{text}", ratios={}, out=args.out)
    else:
        print(text)
    return 1 if set(total) - PASSED else 0


_HEAD = (
    "# How the commands end on hostile input\n\nEach input is read by a process of its own,"
    f" in at most {attempt.SECONDS} s and {attempt.BYTES / 1e9:g} GB. Where the columns of"
    " failures are 0, no control character was printed, and no command crashed.\n\n"
)


def _row(cells: Sequence[object]) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def _count_row(name: str, counts: collections.Counter, seconds: float) -> str:
    """Return the row of a kind; counts: by verdict."""
    by_verdict = [counts[verdict] for verdict in VERDICTS]
    return _row([name, counts.total(), *by_verdict, f"{seconds:.0f}"])


if __name__ == "__main__":
    sys.exit(main())
