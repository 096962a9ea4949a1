"""Class for the options of `jbias report`, and a function that runs a command with a report."""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterable, Sequence

from jbias.runtime import cli, outputs

# Rules that select the evaluation of a seed.
SELECTIONS = (
    "best_validation",
    "last_n",
    "at_epoch",
    "best_on",
    "worst_class",
    "oracle",
)
DROPS = ("datasets", "algorithms", "runs")


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of `jbias report`, named as its flags."""

    selection: str = "best_validation"
    last: int | None = None  # Evaluations of last_n; None: 30 % of all.
    epoch: float | None = None  # Epoch of at_epoch; None: the last common epoch.
    best_on: str = ""  # The data set of best_on.
    alpha: float = 0.05  # Significance level.
    datasets: tuple[str, ...] = ()  # () for all.
    algorithms: tuple[str, ...] = ()  # () for all.
    drop: str = ""  # Part to leave out if cells are missing; "": an error.
    trained_on: str = ""  # A CSV file: algorithm, test set that it was trained on.
    strict: bool = False  # Leave out test sets that some algorithm was trained on.
    # The smallest difference that matters, in the page's unit; None: 1, or 0.01 for fractions.
    points: float | None = None
    metric: str = "accuracy"
    larger_is_better: bool = True
    reference: str | None = None
    columns: str = ""  # Roles of the columns of a file of scores.
    rows: str = ""  # Content of the rows of a wide table.
    decimal: str = ""  # The decimal sign of a file of scores.
    sheet: str = ""  # Sheet or table to read, in a file with several.
    brackets: str = ""  # Meaning of a whole number in brackets.
    margins: str = ""  # "ignore" or "keep" rows or columns such as All.
    unit: str = ""  # Unit of all scores of a file, if ambiguous.
    paired_seeds: bool = False  # Pair equal seeds; for one or two data sets.
    blocks: int | None = None  # Blocks of similar data sets; None: r >= 0.5.


def run(
    parser: cli.Parser,
    make: Callable[[argparse.Namespace], Iterable[str]],
    argv: Sequence[str] | None,
    *,
    spread: str = "",
    moved: str = "",
) -> int:
    """Parse flags, make a report and print its lines; return the exit code.

    The code is 0, or 2 with one line on stderr if `make`, or the check of the folder args.out
    before it, raises a ValueError or an OSError. Other errors are not caught. Wrong flags end the
    process with the exit code 2 (SystemExit).

    make: function that makes the report from the parsed flags and returns the lines to print. argv:
    arguments of the command line; None for `sys.argv[1:]`. spread: flags, separated by spaces,
    whose globs the shell may have expanded to several values. moved: flags, separated by spaces,
    that only the command of the same name in `jbias papers` has; `run` refuses these flags.
    """
    command = parser.prog.rpartition(" ")[2]
    argv = sys.argv[1:] if argv is None else argv
    for flag in spread.split():
        argv = cli.split_values(argv, flag)
    for flag in (word.partition("=")[0] for word in argv):
        if flag in moved.split():
            parser.error(
                f"{flag}: this flag has moved; use `jbias papers {command}` instead"
            )
    args = parser.parse_args(argv)

    def check_and_make() -> Iterable[str]:
        outputs.check_report_folder(args.out)
        return make(args)

    return cli.print_lines(command, check_and_make)
