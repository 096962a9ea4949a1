"""What one can ask of a report, and how a command that makes one runs."""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterable, Sequence

from jbias.runtime import cli, outputs

# Which evaluation of a seed counts: rules of results.py.
SELECTIONS = ("best_validation", "last_n", "at_epoch", "best_on")
SELECTIONS += ("worst_class", "oracle")
DROPS = ("datasets", "algorithms", "runs")


@dataclasses.dataclass(frozen=True)
class Options:
    """The choices of the user of `jbias report`."""

    selection: str = "best_validation"
    last: int | None = None  # Evaluations of last_n; None: 30 % of all.
    epoch: float | None = None  # Epoch of at_epoch; None: the last common one.
    best_on: str = ""  # The data set of best_on.
    alpha: float = 0.05
    datasets: tuple[str, ...] = ()  # () is all of them.
    algorithms: tuple[str, ...] = ()  # () is all of them.
    drop: str = ""  # Part to leave out if cells are missing; "": an error.
    trained_on: str = ""  # A CSV file: algorithm, test set it was trained on.
    strict: bool = False
    # The smallest difference that matters, as scores are shown; None: 1, of fractions 0.01.
    points: float | None = None
    metric: str = "accuracy"
    larger_is_better: bool = True
    reference: str | None = None
    columns: str = ""  # Roles of the columns of a file of scores.
    rows: str = ""  # Content of the rows of a wide table.
    decimal: str = ""  # The decimal sign of a file of scores.
    sheet: str = ""  # The sheet, or the table, of a file with several.
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
    """Makes a report; returns 0, or 2 with one line on stderr if that is impossible.

    spread: flags whose values a shell may have spread. moved: those that are now of the
    command of this name in `jbias.papers`.
    """
    command = parser.prog.rpartition(" ")[2]
    argv = sys.argv[1:] if argv is None else argv
    for flag in spread.split():
        argv = cli.split_values(argv, flag)
    for flag in (word.partition("=")[0] for word in argv):
        if flag in moved.split():
            parser.error(f"{flag}: is a flag of jbias papers {command} now")
    args = parser.parse_args(argv)

    def checked() -> Iterable[str]:
        outputs.check_report_folder(args.out)
        return make(args)

    return cli.print_lines(command, checked)
