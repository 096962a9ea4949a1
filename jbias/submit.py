r"""Check a folder of decisions for the standing table, and print its scores.

    jbias submit mymodel/ --init    # writes mymodel/submission.json
    jbias submit mymodel/

DIR has a table of decisions, CSV or Parquet, with one row for each of the 1,280 published
cue-conflict images of Geirhos et al. 2019, and the file submission.json, which says whose
decisions these are. The table needs two columns: imagename, such as airplane1-bicycle2, and
object_response, one of the 16 classes, or na for no answer. Instead of object_response, the
model's own words may be in a column raw_response: they are parsed. Several tables are several
observers. The decisions are compared with those of the standing table, as this version of jbias
has it: exact copies are refused. docs/submit.md explains all checks, and where to send a folder.

Scores are computed from the decisions; tables of scores are refused. All problems are printed,
each on one line with the file, the fault and what to do.

Exit codes: 0 the submission is accepted, or the template is written; 1 the submission has
problems; 2 DIR is no folder, or arguments are wrong; 130 stopped by Ctrl-C, 143 by SIGTERM.
"""

import argparse
import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jbias import errors
from jbias.runtime import cli, messages

if TYPE_CHECKING:
    from jbias.answers import observers, submission

_MAX_LINES = 50  # Printed lines of problems; --json has all.


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command `jbias submit`; return the exit code.

    argv: the arguments; None: the process's arguments. Invalid arguments raise SystemExit(2).
    """
    args = parser().parse_args(argv)
    work = _init if args.init else _check
    return cli.run(lambda: work(args), rerun="checks again")


def parser() -> cli.Parser:
    """Return the parser of the command line."""
    parser = cli.Parser("submit", __doc__, usage="%(prog)s DIR [options]")
    parser.add_argument("DIR", help="the folder of the submission")
    parser.add_argument(
        "--init",
        action="store_true",
        help="write a template of submission.json into DIR, and nothing else (default: check)",
    )
    parser.add_argument(
        "--known",
        action="append",
        default=[],
        metavar="PATH",
        help="further files or folders of decisions to find copies of, or a newer answers.csv of "
        "the standing table; may be repeated (default: the table of this version alone)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the result as JSON, with all problems (default: as text)",
    )
    return parser


def _init(args: argparse.Namespace) -> int:
    """Write the template of submission.json; ValueError if there is one."""
    from jbias.answers import submission_info

    path = os.path.join(args.DIR, submission_info.FILE)
    os.makedirs(args.DIR, exist_ok=True)
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(submission_info.template())
    except FileExistsError:
        errors.refuse(path, "not exist", remedy="edit it, or remove it first")
    lines = [f"{path} is written. Fill in:"]
    lines += [f"  {hint}" for hint in submission_info.hints()]
    messages.print_text("\n".join(lines))
    return 0


def _check(args: argparse.Namespace) -> int:
    """Check the submission and print the result; return the exit code."""
    from jbias.answers import submission

    known = _known(args.known)
    checked = submission.check(args.DIR, known=known)
    form = _json if args.json else _text
    messages.print_text(form(checked, num_known=len(known)))
    return 0 if checked.is_accepted else 1


def _known(paths: Sequence[str]) -> "list[observers.Observer]":
    """Return the observers of the standing table and those at the paths of --known.

    An observer of the table is left out if a path has one of its name.
    """
    from jbias.answers import letter_answers, submission_tables

    try:
        known = _read_known(paths) if paths else []
    except ValueError as error:
        line = submission_tables.without_flags(error).removeprefix("--decisions: ")
        raise ValueError(f"--known: {line}") from None
    names = {observer.name for observer in known}
    table = letter_answers.standing_table()
    return [*(observer for observer in table if observer.name not in names), *known]


def _read_known(paths: Sequence[str]) -> "list[observers.Observer]":
    """Return the observers in files and folders of decisions, or of answers as letters."""
    from jbias.answers import letter_answers, tables

    files = [file for path in paths for file in tables.find_files(path)]
    stored_files = [file for file in files if letter_answers.is_stored(file)]
    decision_files = [file for file in files if file not in stored_files]
    known = tables.read(decision_files) if decision_files else []
    for file in stored_files:
        known += letter_answers.to_observers(letter_answers.read(file))
    return known


def _json(checked: "submission.Submission", *, num_known: int) -> str:
    """Return the result as JSON; num_known: number of observers that were compared."""
    from jbias.answers import submission

    return messages.to_json(
        {
            "accepted": checked.is_accepted,
            "submission": checked.info and dataclasses.asdict(checked.info),
            "observers": [
                {
                    "name": observer.name,
                    **submission.scores(observer),
                    "file": os.path.basename(observer.path),
                    "sha256": observer.sha256,
                }
                for observer in checked.observers
            ],
            "problems": checked.problems,
            "warnings": checked.warnings,
            "num_compared": num_known,
        },
        indent=1,
    )


def _text(checked: "submission.Submission", *, num_known: int) -> str:
    """Return the result as lines; num_known: number of observers that were compared."""
    from jbias.answers import submission

    lines = [submission.sentence(observer) for observer in checked.observers]
    lines += [f"warning: {line}" for line in checked.warnings[:_MAX_LINES]]
    lines += [f"problem: {line}" for line in checked.problems[:_MAX_LINES]]
    hidden = max(len(checked.problems) - _MAX_LINES, 0)
    hidden += max(len(checked.warnings) - _MAX_LINES, 0)
    if hidden:
        lines.append(f"{hidden:,} more lines: --json has all")
    if checked.observers:
        lines.append(f"compared with {num_known:,} observers that are listed already")
    if checked.is_accepted:
        lines.append(
            f"accepted: {len(checked.observers):,} observer(s), "
            f"{len(checked.warnings):,} warning(s)"
        )
    else:
        lines.append(f"refused: {len(checked.problems):,} problem(s)")
    return "\n".join(map(messages.one_line, lines))


if __name__ == "__main__":
    sys.exit(main())
