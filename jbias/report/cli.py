r"""Test which differences between algorithms are significant, and write a report.

    jbias report table.csv
    jbias report 'runs/*'
    jbias report examples/biasbed_table2.csv --points=0.5 --reference=ERM
    jbias report --status --runs=runs --watch

A table may be CSV, TSV, Markdown, LaTeX, Excel or Parquet, long or wide (docs/own-table.md);
folders are workdirs of runs. The report is written to --out (default: "report"): index.html (one
page that needs no network), tables/ (CSV, LaTeX, Markdown, Parquet), figures/ (SVG; --figures adds
PDF and PNG), results.json, methods.md and methods.bib.
"""

import argparse
import dataclasses
import glob
import importlib
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures

from jbias.report import options
from jbias.runtime import cli, heap, messages, outputs

# Flags that apply to a table of scores only.
_TABLE_FLAGS = ("columns", "rows", "decimal", "sheet", "brackets", "margins", "unit")
# Freed memory that the process keeps: columns of millions of records are often reallocated.
_KEPT_BYTES = 2 * 10**8
_OUT = "report"  # Default of --out.


def main(argv: Sequence[str] | None = None) -> int:
    """Make a report, or print the status of runs; return the exit code.

    0: done. 2: wrong input, with one line on stderr. 130: interrupted by Ctrl-C while reading the
    status; with --watch, Ctrl-C returns 0.

    argv: arguments of the command line; None for `sys.argv[1:]`.
    """
    parser = _parser()
    args = _with_sources(parser, parser.parse_args(argv))
    if args.status:
        if args.scores or args.out:
            parser.error(
                "--status needs --runs and writes nothing; remove --scores and --out"
            )
        try:
            return cli.print_lines("report", lambda: _status(args))
        except KeyboardInterrupt:
            return 130 if args.watch is None else 0
    _check_flags(parser, args)
    args.out = args.out or _OUT
    return cli.print_lines("report", lambda: _report(args))


def _check_flags(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """End the process with one line on stderr if two flags contradict each other."""
    if args.watch is not None or args.json:
        parser.error("--watch and --json need --status; add it")
    if (args.selection == "best_on") != bool(args.best_on):
        parser.error("--selection=best_on and --best-on=DATASET need each other")
    if args.epoch is not None and args.selection != "at_epoch":
        parser.error("--epoch needs --selection=at_epoch; add it or remove --epoch")
    run_flags = [
        name for name in ("selection", "last", "metric") if getattr(args, name)
    ]
    if args.scores and run_flags:
        parser.error(f"--{run_flags[0]} is for runs, not for --scores; remove it")
    table_flags = [name for name in _TABLE_FLAGS if getattr(args, name)]
    if args.runs and table_flags:
        parser.error(
            f"--{table_flags[0]} is for a file of scores, not for runs; remove it"
        )


def _with_sources(
    parser: argparse.ArgumentParser, args: argparse.Namespace
) -> argparse.Namespace:
    """Return `args`, changed in place, with positional sources stored as --scores or --runs.

    A single file is a table of scores; all other sources are workdirs of runs. Ends the process
    with one line on stderr unless exactly one kind of source is given.
    """
    num_inputs = bool(args.sources) + bool(args.runs) + bool(args.scores)
    if num_inputs != 1:
        parser.error(
            "name one table of scores, as in `jbias report table.csv`, or workdirs of runs, "
            f"as in `jbias report 'runs/*'`; got {'neither' if not num_inputs else 'both'}"
        )
    if len(args.sources) == 1 and not _is_runs(args.sources[0]):
        args.scores = args.sources[0]
    elif args.sources:
        files = [path for path in args.sources if os.path.isfile(path)]
        if files:
            parser.error(
                f"{files[0]}: a table of scores must be the only source; remove the other sources"
            )
        args.runs = args.sources
    return args


def _is_runs(path: str) -> bool:
    """Return True for an existing folder, an address with "://", or a glob that is no file."""
    return (
        os.path.isdir(path)
        or "://" in path
        or (glob.has_magic(path) and not os.path.exists(path))
    )


def _report(args: argparse.Namespace) -> Iterator[str]:
    """Make the report; return the lines to print.

    The folder args.out is checked, and memory is prepared for large tables.
    """
    outputs.check_report_folder(args.out)
    _progress(f"reading {args.scores or ' '.join(args.runs)} ...")
    # Matrices are small: threads would spend longer on waiting than on products.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    heap.keep_freed(_KEPT_BYTES)
    heap.skip_last_collection()
    with heap.no_collection():
        return _make(args)


def _make(args: argparse.Namespace) -> Iterator[str]:
    """Read scores, make the report and write it to args.out; return the lines to print."""
    # Slow imports are made here so that --help and the first progress line come fast.
    records = _read_while_importing(args.runs) if args.runs else None
    from jbias.report import (
        benchmark,
        document,
        inputs,
        tables,
    )

    names = {field.name for field in dataclasses.fields(options.Options)}
    report_options = options.Options(
        **{
            name: value
            for name, value in vars(args).items()
            if name in names and value is not None
        }
    )
    if args.scores:
        study = inputs.from_scores(args.scores, report_options)
    else:
        study = inputs.from_runs(args.runs, report_options, records=records)
        heap.trim()  # Each selection thread leaves freed memory behind.
    algorithms = tables.count(len(study.algorithms), "algorithm")
    datasets = tables.count(len(study.datasets), "data set")
    _progress(f"testing {algorithms} on {datasets} ...")
    report = benchmark.report(study)
    left_out = report.results["tested"]["left_out"]
    left_out_lines = [
        f"left out of the tests: {entry['name']} ({entry['reason']})"
        for entry in left_out
    ]
    repeated = {
        f"{entry['name']} is not in the tests: {entry['reason']}." for entry in left_out
    }
    # No full stop at the end: some notes end with a flag to copy.
    notes = [
        f"note: {text.removesuffix('.')}"
        for text in report.warnings
        if text not in repeated
    ]
    for line in study.layout_notes:
        messages.print_text(line, to_stderr=True)
    _progress("writing ...")
    written = document.write(report, pathlib.Path(args.out), figures=args.figures)
    headline, basis = report.answer
    return iter([headline, *report.highlights, basis, *left_out_lines, *notes, written])


def _read_while_importing(patterns: Sequence[str]) -> "workdirs.Records":
    """Return the records of runs; import the modules of the report in a thread meanwhile.

    patterns: workdirs (paths or globs). An import error in the thread is ignored: the main thread
    raises it when it imports the same module.
    """
    from jbias.report import workdirs

    with futures.ThreadPoolExecutor(1) as pool:
        pool.submit(importlib.import_module, "jbias.report.benchmark")
        return workdirs.read(patterns)


def _status(args: argparse.Namespace) -> Iterator[str]:
    """Return the status of runs as text or JSON, one item; with --watch, items without end."""
    from jbias.report import status

    render = status.as_json if args.json else status.as_text
    first = render(status.rows(args.runs))
    return iter([first]) if args.watch is None else _watched(render, args)


def _watched(render: Callable[..., str], args: argparse.Namespace) -> Iterator[str]:
    """Yield the status of args.runs as text, every args.watch seconds without end.

    Without --json, the screen is cleared before each item. A ValueError or OSError becomes a line
    of text. render: function of the rows of `report.status.rows` that returns text.
    """
    from jbias.report import status

    while True:
        try:
            text = render(status.rows(args.runs))
        except (ValueError, OSError) as error:
            text = f"report: {messages.one_line(error)}"
        if not args.json:
            messages.clear_screen()
        yield text
        time.sleep(args.watch)


def _progress(line: str) -> None:
    """Print a progress line to standard error if it is a terminal."""
    if sys.stderr.isatty():
        messages.print_text(line, to_stderr=True)


def _parser() -> argparse.ArgumentParser:
    """Return the argument parser of `jbias report`."""
    parser = cli.Parser("report", __doc__)
    _add_output_flags(parser)
    _add_source_flags(parser)
    _add_selection_flags(parser)
    _add_test_flags(parser)
    return parser


def _add_output_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the report's folder and of --status to `parser`."""
    out = cli.OUT | {"required": False}
    parser.add_argument(
        "--out",
        help=f"folder to write the report into; made if needed (default: {_OUT})",
        **out,
    )
    cli.add_figures(parser)
    parser.add_argument(
        "--status",
        action="store_true",
        help="print the progress of the runs and write no report (default: write a report). "
        "--runs may then also be a folder that contains workdirs, up to four levels deep",
    )
    parser.add_argument(
        "--watch",
        type=cli.positive,
        nargs="?",
        const=5.0,
        metavar="SECONDS",
        help="with --status: print the status again every SECONDS seconds, until Ctrl-C "
        "(default: print it once; --watch alone means %(const)g seconds)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="with --status: print the status as JSON, for scripts (default: as a table)",
    )


def _add_source_flags(parser: argparse.ArgumentParser) -> None:
    """Add the sources, and the flags on the layout of a table of scores, to `parser`."""
    parser.add_argument(
        "sources",
        nargs="*",
        metavar="FILE|WORKDIR",
        help="a table of scores, or workdirs of runs, or globs of workdirs",
    )
    parser.add_argument(
        "--runs",
        help="workdirs of runs, or globs of workdirs; the same as naming them without a flag",
        **cli.WORKDIRS,
    )
    parser.add_argument(
        "--scores",
        metavar="FILE",
        help="a table of scores: CSV, TSV, Markdown, LaTeX, JSON, Excel or Parquet; the same "
        "as naming it without a flag",
    )
    parser.add_argument(
        "--columns",
        metavar="ROLE=NAME,...",
        help="roles of the table's columns, e.g. algorithm=method,score=acc. The roles are "
        "algorithm, dataset, run, score, deviation, trained_on and ignore (default: guessed "
        "from the names)",
    )
    parser.add_argument(
        "--rows",
        choices=("algorithms", "datasets"),
        help="what each row of a wide table is: an algorithm or a data set (default: guessed "
        "from the names)",
    )
    parser.add_argument(
        "--decimal",
        choices=(".", ","),
        help="decimal sign of the table (default: guessed)",
    )
    parser.add_argument(
        "--sheet",
        metavar="NAME",
        help="sheet of an Excel file with several sheets, by name, or table of a Markdown or "
        "LaTeX file with several tables, by its number from 1 (default: the only one; with "
        "several, stop with an error)",
    )
    parser.add_argument(
        "--brackets",
        choices=("deviation", "ignore"),
        help="how to read a whole number in brackets, such as (2) in `73.8 (2)`: as a "
        "standard deviation, or not at all, e.g. a rank (default: stop with an error if both "
        "are possible)",
    )
    parser.add_argument(
        "--margins",
        choices=("ignore", "keep"),
        help="ignore or keep a row or column called All, Average or similar (default: guessed "
        "from its scores; stop with an error if unclear)",
    )
    parser.add_argument(
        "--unit",
        choices=("percent", "fraction"),
        help="unit of all scores; required if some scores look like fractions among "
        "percentages (default: guessed from the scores)",
    )


def _add_selection_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose evaluations, data sets and algorithms to `parser`."""
    parser.add_argument(
        "--selection",
        choices=options.SELECTIONS,
        help="rule that chooses the evaluation of each seed: best_validation (the highest "
        "validation accuracy), last_n (the mean of the last evaluations, see --last), at_epoch "
        "(the evaluation at --epoch), best_on (the highest accuracy on --best-on), worst_class "
        "(the highest validation accuracy of the worst class, or of the worst group of class "
        "and attribute), oracle (the best evaluation on each test set itself: an upper bound, "
        "not a valid result) (default: best_validation)",
    )
    parser.add_argument(
        "--last",
        type=cli.at_least_1,
        metavar="N",
        help="with --selection=last_n: number of last evaluations to average (default: 30 %% "
        "of all evaluations)",
    )
    parser.add_argument(
        "--epoch",
        type=cli.positive,
        metavar="E",
        help="with --selection=at_epoch: the epoch (default: the last epoch at which all "
        "seeds were evaluated)",
    )
    parser.add_argument(
        "--best-on",
        metavar="DATASET",
        help="with --selection=best_on: data set whose accuracy selects the evaluation; it "
        "is left out of the tests (default: none)",
    )
    cli.add_names(
        parser,
        "--datasets",
        (),
        "data sets to report and test, in this order (default: all test sets)",
    )
    cli.add_names(
        parser,
        "--algorithms",
        (),
        "algorithms to report and test, in this order (default: all)",
    )
    parser.add_argument(
        "--drop",
        choices=options.DROPS,
        help="if some scores are missing: leave out the data sets, algorithms or runs that "
        "lack them (default: stop with an error)",
    )
    parser.add_argument(
        "--trained-on",
        metavar="CSV",
        help="CSV file with the columns algorithm and dataset: one row per test set that an "
        "algorithm was also trained on; adds to the entries that the runs record (default: "
        "none)",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="leave out the test sets that an algorithm was trained on, see --trained-on "
        "(default: keep them)",
    )
    parser.add_argument(
        "--metric",
        metavar="NAME",
        help="metric of the runs to test: accuracy (default), another recorded metric, or, for "
        "images whose cues conflict, shape_bias (share of shape among the decisions for shape "
        "or texture), fraction_neither (share of decisions for neither cue), mrr_shape or "
        "mrr_texture (mean of 1 / rank of the cue's class among all classes)",
    )


def _add_test_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the statistical tests to `parser`."""
    parser.add_argument(
        "--alpha",
        help="significance level of the tests, between 0 and 1 (default: %(default)s)",
        metavar="P",
        **cli.ALPHA,
    )
    parser.add_argument(
        "--blocks",
        type=cli.at_least_1,
        metavar="N",
        help="group the data sets into N blocks of similar ones, and test also over the "
        "blocks (default: data sets whose correlation r over the algorithms is at least 0.5 "
        "are in one block)",
    )
    parser.add_argument(
        "--points",
        type=cli.positive,
        metavar="D",
        help="smallest difference that matters to you, in the unit of the scores. Tests of "
        "equivalence and power use it (default: 1, or 0.01 if no score exceeds 1). The section "
        "on few seeds uses it, too, but its default is ten times as large",
    )
    parser.add_argument(
        "--lower-is-better",
        dest="larger_is_better",
        action="store_false",
        help="rank the smallest score first, e.g. for errors (default: the largest score "
        "first)",
    )
    parser.add_argument(
        "--paired-seeds",
        action="store_true",
        help="with one or two data sets: compare runs of the same seed (or `run`) as pairs, "
        "for designs in which equal seeds share a source of noise (default: unpaired)",
    )
    parser.add_argument(
        "--reference",
        metavar="ALGORITHM",
        help="algorithm that all others are also compared with, by its name in the tables, "
        "such as ERM (default: none)",
    )
