r"""Tests which differences between algorithms are real, and reports them.

    jbias report table.csv
    jbias report 'runs/*'
    jbias report examples/biasbed_table2.csv --points=0.5 --reference=ERM
    jbias report --status --runs=runs --watch

A table may be CSV, TSV, Markdown, LaTeX, Excel or Parquet, long or wide (docs/own-table.md);
folders are workdirs of runs. Writes to --out, "report" if it is not named: index.html (one page
that needs no network), tables/ (CSV, LaTeX, Markdown, Parquet), figures/ (SVG; --figures=pdf
writes PDF for a paper as well), results.json, methods.md and methods.bib.
"""

import argparse
import dataclasses
import glob
import importlib
import os
import pathlib
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent import futures

from jbias.report import options
from jbias.runtime import cli, heap, messages, outputs

_OF_FILES = ("columns", "rows", "decimal", "sheet", "brackets", "margins", "unit")
# Of freed memory, for the columns of millions of records, which come and go all the time.
_KEPT_BYTES = 2 * 10**8
_OUT = "report"  # The folder of a report for which --out names none.


def main(argv: Sequence[str] | None = None) -> int:
    """Makes a report; returns 0, or 2 with one line on stderr if that is impossible."""
    parser = _parser()
    args = _with_sources(parser, parser.parse_args(argv))
    if args.status:
        if args.scores or args.out:
            parser.error("--status needs --runs and writes nothing: leave the rest out")
        try:
            return cli.print_lines("report", lambda: _status(args))
        except KeyboardInterrupt:
            return 130 if args.watch is None else 0
    of_runs = [name for name in ("selection", "last", "metric") if getattr(args, name)]
    of_files = [name for name in _OF_FILES if getattr(args, name)]
    for wrong, message in (
        (args.watch is not None or args.json, "--watch and --json need --status"),
        (
            (args.selection == "best_on") != bool(args.best_on),
            "--selection=best_on and --best-on=DATASET need each other",
        ),
        (
            args.epoch is not None and args.selection != "at_epoch",
            "--epoch has no say without --selection=at_epoch",
        ),
        (
            args.scores and of_runs,
            f"--{(of_runs or [''])[0]} has no say for --scores: it is about runs",
        ),
        (
            args.runs and of_files,
            f"--{(of_files or [''])[0]} has no say for runs: it is about a file of scores",
        ),
    ):
        if wrong:
            parser.error(message)
    args.out = args.out or _OUT
    return cli.print_lines("report", lambda: _report(args))


def _with_sources(
    parser: argparse.ArgumentParser, args: argparse.Namespace
) -> argparse.Namespace:
    """Return the arguments with what stands without a flag as --scores or --runs.

    A single file is a table of scores; all else are workdirs of runs.
    """
    given = bool(args.sources) + bool(args.runs) + bool(args.scores)
    if given != 1:
        parser.error(
            "name one table of scores, as in `jbias report table.csv`, or workdirs of runs, "
            f"as in `jbias report 'runs/*'`; got {'neither' if not given else 'both'}"
        )
    if len(args.sources) == 1 and not _is_runs(args.sources[0]):
        args.scores = args.sources[0]
    elif args.sources:
        files = [path for path in args.sources if os.path.isfile(path)]
        if files:
            parser.error(f"{files[0]}: give one table of scores alone")
        args.runs = args.sources
    return args


def _is_runs(path: str) -> bool:
    """Return whether a path is a folder, or a glob or address of such."""
    return (
        os.path.isdir(path)
        or "://" in path
        or (glob.has_magic(path) and not os.path.exists(path))
    )


def _report(args: argparse.Namespace) -> Iterator[str]:
    """Check the folder, prepare the process and make the report; return what to print."""
    outputs.check_report_folder(args.out)
    _progress(f"reading {args.scores or ' '.join(args.runs)} ...")
    # Matrices are small: threads would spend longer on waiting than on products.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    heap.keep_freed(_KEPT_BYTES)
    heap.skip_last_collection()
    with heap.no_collection():
        return _make(args)


def _make(args: argparse.Namespace) -> Iterator[str]:
    """Make the report; return what is to be printed."""
    # Only now: what is slow to import delays neither --help nor the first line.
    records = _read_while_importing(args.runs) if args.runs else None
    from jbias.report import (
        benchmark,
        benchmark_tables,
        document,
        inputs,
        prose,
        tables,
    )

    given = {key: value for key, value in vars(args).items() if value is not None}
    asked = given.keys() & {one.name for one in dataclasses.fields(options.Options)}
    wanted = options.Options(**{key: given[key] for key in asked})
    if args.scores:
        study = inputs.from_scores(args.scores, wanted)
    else:
        study = inputs.from_runs(args.runs, wanted, records=records)
        heap.trim()  # Threads have selected, each with freed memory of its own.
    algorithms = tables.count(len(study.algorithms), "algorithm")
    datasets = tables.count(len(study.datasets), "data set")
    _progress(f"testing {algorithms} on {datasets} ...")
    report = benchmark.report(study)
    lost = report.results["tested"]["left_out"]
    left = [f"left out of the tests: {one['name']} ({one['reason']})" for one in lost]
    said = {f"{one['name']} is not in the tests: {one['reason']}." for one in lost}
    # Without its full stop a note ends with the flag to copy.
    notes = [text.removesuffix(".") for text in report.warnings if text not in said]
    notes = [f"note: {text}" for text in notes]
    for line in study.understood:
        messages.print_text(line, to_stderr=True)
    _progress("writing ...")
    written = document.write(report, pathlib.Path(args.out), figures=args.figures)
    headline, basis = report.answer
    biases = prose.shape_biases(benchmark_tables.shape_biases(study))
    return iter([headline, *biases, basis, *left, *notes, written])


def _read_while_importing(patterns: Sequence[str]):
    """Return the records of runs; meanwhile a thread imports what makes the report.

    The thread only fills the cache of modules: an error of an import is raised again where
    the main thread imports.
    """
    from jbias.report import workdirs

    with futures.ThreadPoolExecutor(1) as pool:
        pool.submit(importlib.import_module, "jbias.report.benchmark")
        return workdirs.read(patterns)


def _status(args: argparse.Namespace) -> Iterator[str]:
    """Tells how far runs are; again and again, until Ctrl-C, if asked to."""
    from jbias.report import status

    shape = status.as_json if args.json else status.as_text
    first = shape(status.rows(args.runs))
    return iter([first]) if args.watch is None else _watched(shape, args)


def _watched(shape, args: argparse.Namespace) -> Iterator[str]:
    from jbias.report import status

    while True:
        try:
            text = shape(status.rows(args.runs))
        except (ValueError, OSError) as error:
            text = f"report: {messages.one_line(error)}"
        if not args.json:
            messages.clear_screen()
        yield text
        time.sleep(args.watch)


def _progress(line: str) -> None:
    """Says what is done to who waits at a terminal."""
    if sys.stderr.isatty():
        messages.print_text(line, to_stderr=True)


def _parser() -> argparse.ArgumentParser:
    parser = cli.Parser("report", __doc__)

    def add(flag: str, what: str, to=parser, **kind) -> None:
        to.add_argument(flag, help=what, **kind)

    out = cli.OUT | {"required": False}
    add("--out", f"folder of the report; made if needed (default: {_OUT})", **out)
    cli.add_figures(parser)
    what = "tell how far the runs are instead; --runs may be a folder of folders"
    add("--status", what, action="store_true")
    what = "tell the status again every so many seconds (default: %(const)s)"
    every = dict(type=cli.positive, nargs="?", const=5.0, metavar="SECONDS")
    add("--watch", what, **every)
    add("--json", "tell the status as JSON, for scripts", action="store_true")
    what = "a table of scores, or workdirs of runs or globs of them"
    add("sources", what, nargs="*", metavar="FILE|WORKDIR")
    add("--runs", "workdirs of runs, or globs of them", **cli.WORKDIRS)
    what = (
        "a table of scores of any form: CSV, TSV, Markdown, LaTeX, JSON, Excel, Parquet"
    )
    add("--scores", what, metavar="FILE")
    what = (
        "which column of the table is what, e.g. algorithm=method,score=acc; known are "
    )
    what += "algorithm, dataset, run, score, deviation, trained_on and ignore"
    add("--columns", what, metavar="ROLE=NAME,...")
    what = "what the rows of a wide table are, where names do not say"
    add("--rows", what, choices=("algorithms", "datasets"))
    add("--decimal", "the decimal sign of the table", choices=(".", ","))
    add(
        "--sheet",
        "the sheet of an Excel file, or the number of a table",
        metavar="NAME",
    )
    what = "what a whole number in brackets after a score is"
    add("--brackets", what, choices=("deviation", "ignore"))
    what = "whether to leave out a row or column called All, Average and the like"
    add("--margins", what, choices=("ignore", "keep"))
    what = "the unit of all scores, where some look like fractions among percentages"
    add("--unit", what, choices=("percent", "fraction"))
    what = "which evaluation of a seed counts (default: best_validation)"
    add("--selection", what, choices=options.SELECTIONS)
    what = "evaluations that last_n averages (default: 30 %% of them)"
    add("--last", what, type=cli.at_least_1, metavar="N")
    what = "epoch that at_epoch takes (default: the last that all seeds have)"
    add("--epoch", what, type=cli.positive, metavar="E")
    what = "data set whose accuracy best_on looks at; it leaves the tests"
    add("--best-on", what, metavar="DATASET")
    what = "level of the tests, between 0 and 1 (default: %(default)s)"
    add("--alpha", what, **cli.ALPHA)
    what = "data sets to report and test, in this order (default: all test sets)"
    cli.add_names(parser, "--datasets", (), what)
    what = "algorithms to report and test, in this order (default: all)"
    cli.add_names(parser, "--algorithms", (), what)
    what = "what to leave out where cells are missing (default: refuse)"
    add("--drop", what, choices=options.DROPS)
    what = "a table with the columns algorithm, dataset: who trained on which test set, beside "
    what += "what the runs tell themselves"
    add("--trained-on", what, metavar="CSV")
    what = "leave out the test sets that some algorithm trained on"
    add("--strict", what, action="store_true")
    what = (
        "blocks of data sets that are alike (default: joined where r is at least 0.5)"
    )
    add("--blocks", what, type=cli.at_least_1, metavar="N")
    what = "the smallest difference that matters to you, in the unit shown: for equivalence and "
    what += "power (default: 1, or 0.01 where no score exceeds 1) and few seeds (ten times that)"
    add("--points", what, type=cli.positive, metavar="D")
    what = "metric of the runs: accuracy (default), shape_bias, fraction_neither, mrr_shape, "
    what += "mrr_texture or another that they have"
    add("--metric", what, metavar="NAME")
    what = "the smallest score ranks first"
    lower = dict(dest="larger_is_better", action="store_false")
    add("--lower-is-better", what, **lower)
    what = "with one or two data sets: compare runs of the same seed (or `run`) as pairs, for "
    what += "designs in which equal seeds share something (default: unpaired)"
    add("--paired-seeds", what, action="store_true")
    add("--reference", "also show differences to this one", metavar="ALGORITHM")
    return parser
