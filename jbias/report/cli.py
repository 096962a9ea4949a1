r"""Tests which differences between algorithms are real, and reports them.

    python -m jbias.report --runs='runs/*' --out=report
    python -m jbias.report --scores=examples/biasbed_table2.csv --out=report
    python -m jbias.report --scores=mine.csv --out=report --points=0.5 --reference=ERM
    python -m jbias.report --status --runs=runs --watch

Writes to --out: index.html (one page that needs no network), tables/ (CSV, LaTeX,
Markdown, Parquet), figures/ (SVG, PDF), results.json, methods.md and methods.bib.
"""

import argparse
import pathlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from jbias.report import options as options_lib
from jbias.runtime import cli, messages


def main(argv: Sequence[str] | None = None) -> int:
    """Makes a report; returns 0, or 2 with one line on stderr if that is impossible."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.status:
        if args.scores or args.out:
            parser.error("--status needs --runs and writes nothing: leave the rest out")
        try:
            return cli.print_lines("report", lambda: _status(args))
        except KeyboardInterrupt:
            return 130 if args.watch is None else 0
    if args.watch is not None or args.json:
        parser.error("--watch and --json have no say without --status")
    if not args.out:
        parser.error("the following arguments are required: --out")
    if (args.selection == "best_on") != bool(args.best_on):
        parser.error("--selection=best_on and --best-on=DATASET need each other")
    if args.epoch is not None and args.selection != "at_epoch":
        parser.error("--epoch has no say without --selection=at_epoch")
    given = [name for name in ("selection", "last", "metric") if getattr(args, name)]
    if args.scores and given:
        parser.error(f"--{given[0]} has no say for --scores: it is about runs")
    return cli.print_lines("report", lambda: _made(args))


def _made(args: argparse.Namespace) -> Iterator[str]:
    """Makes the report; returns what is to be told."""
    # Only now: --help and wrong arguments need none of it.
    from jbias.report import benchmark, document, gather, scores

    options = options_lib.Options(
        selection=args.selection or "best_validation",
        last=args.last,
        epoch=args.epoch,
        best_on=args.best_on,
        alpha=args.alpha,
        datasets=args.datasets,
        algorithms=args.algorithms,
        drop=args.drop,
        trained_on=args.trained_on,
        strict=args.strict,
        points=args.points,
        metric=args.metric or "accuracy",
        larger_is_better=not args.lower_is_better,
        reference=args.reference,
    )
    _tell(f"reading {args.scores or ' '.join(args.runs)} ...")
    if args.scores:
        study = scores.from_scores(args.scores, options)
    else:
        study = gather.from_runs(args.runs, options)
    _tell(f"testing {len(study.algorithms)} algorithms on {len(study.datasets)} ...")
    made = benchmark.report(study, options)
    left = [
        f"left out of the tests: {one['name']} ({one['reason']})"
        for one in made.results["tested"]["left_out"]
    ]
    written = document.write(made, pathlib.Path(args.out))
    return iter([*made.answer, *left, written])


def _status(args: argparse.Namespace) -> Iterator[str]:
    """Tells how far runs are; again and again if asked to."""
    from jbias.report import status, status_table

    shape = status_table.as_json if args.json else status_table.as_text
    first = shape(status.rows(args.runs))
    if args.watch is None:
        return iter([first])
    return _watched(lambda: shape(status.rows(args.runs)), args)


def _watched(tell: Callable[[], str], args: argparse.Namespace) -> Iterator[str]:
    """What is told, again and again until Ctrl-C."""
    clear = "\033[H\033[2J" * (sys.stdout.isatty() and not args.json)
    while True:
        try:
            yield clear + tell()
        except (ValueError, OSError) as error:
            yield f"{clear}report: {messages.one_line(error)}"
        sys.stdout.flush()
        time.sleep(args.watch)


def _tell(line: str) -> None:
    """Says what is done to who waits at a terminal."""
    if sys.stderr.isatty():
        print(line, file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = cli.Parser("report", __doc__)
    add = parser.add_argument
    out = {**cli.OUT, "required": False}
    add("--out", **out, help="folder of the report; made if needed")
    add(
        "--status",
        action="store_true",
        help="tell how far the runs are instead; --runs may be a folder of folders",
    )
    add(
        "--watch",
        type=cli.positive,
        nargs="?",
        const=5.0,
        metavar="SECONDS",
        help="tell the status again every so many seconds (default: %(const)s)",
    )
    add("--json", action="store_true", help="tell the status as JSON, for scripts")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--runs",
        **cli.WORKDIRS,
        help="workdirs of runs, or globs of them",
    )
    source.add_argument(
        "--scores",
        metavar="FILE",
        help="CSV or Parquet with the columns algorithm, dataset, score and, if any, run "
        "and trained_on (yes or no)",
    )
    add(
        "--selection",
        choices=options_lib.SELECTIONS,
        help="which evaluation of a seed counts (default: best_validation)",
    )
    add(
        "--last",
        type=cli.at_least_1,
        metavar="N",
        help="evaluations that last_n averages (default: 30 %% of them)",
    )
    add(
        "--epoch",
        type=cli.positive,
        metavar="E",
        help="epoch that at_epoch takes (default: the last that all seeds have)",
    )
    add(
        "--best-on",
        default="",
        metavar="DATASET",
        help="data set whose accuracy best_on looks at; it leaves the tests",
    )
    add(
        "--alpha",
        **cli.ALPHA,
        help="level of the tests, between 0 and 1 (default: %(default)s)",
    )
    add(
        "--datasets",
        type=cli.names,
        default=(),
        metavar="A,B",
        help="data sets to report and test, in this order (default: all test sets)",
    )
    add(
        "--algorithms",
        type=cli.names,
        default=(),
        metavar="A,B",
        help="algorithms to report and test, in this order (default: all)",
    )
    add(
        "--drop",
        choices=options_lib.DROPS,
        default="",
        help="what to leave out where cells are missing (default: refuse)",
    )
    add(
        "--trained-on",
        default="",
        metavar="CSV",
        help="a table with the columns algorithm, dataset: who trained on which test set, "
        "beside what the runs tell themselves",
    )
    add(
        "--strict",
        action="store_true",
        help="leave out the test sets that some algorithm trained on",
    )
    add(
        "--points",
        type=cli.positive,
        metavar="D",
        help="the smallest difference that matters to you, in the unit shown: for "
        "equivalence and power (default: 1, or 0.01 where no score exceeds 1)",
    )
    add("--metric", metavar="NAME", help="metric of the runs (default: accuracy)")
    add("--lower-is-better", action="store_true", help="the smallest score ranks first")
    add("--reference", metavar="ALGORITHM", help="also show differences to this one")
    return parser
