r"""Test which differences between algorithms are significant, and write a report.

    jbias report table.csv
    jbias report 'runs/*'
    jbias report examples/biasbed_table2.csv --points=0.5 --reference=ERM
    jbias report --status --runs=runs --watch

The input is one table of scores or the workdirs of runs (of `jbias train`). A table is a CSV, TSV,
Markdown, LaTeX, JSON, Excel or Parquet file, long (one score per row) or wide (one row per
algorithm or data set), see docs/own-table.md.

The headline is printed, and the report is written to the folder --out: index.html (a page that can
be read offline), tables/ (CSV, LaTeX, Markdown, Parquet), figures/ (SVG; --figures adds PDF and
PNG), results.json (all numbers), methods.md (a paragraph for a paper) and methods.bib (its
citations). Exit codes: 0 done; 2 the input or the arguments are wrong, and standard error has the
reason.

Other reports, each with its own --help:
  jbias report measured    tables and figures of networks that `jbias measure` or `evaluate` measured
  jbias report biases      correlations of models' biases with their generalisation
  jbias report decisions   models and people compared by their decisions about single images
  jbias report correlate   rank correlations between columns of a CSV file, one row per model
  jbias report distortion  effects of distorted images on networks
  jbias report shifts      drops of accuracy of networks trained by `jbias study`
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
# Freed memory that is not returned to the system: large columns are often reallocated.
_KEPT_BYTES = 2 * 10**8
_OUT = "report"  # Default of --out.
_USAGE = """%(prog)s FILE [options]
       %(prog)s WORKDIR [WORKDIR ...] [options]
       %(prog)s --status --runs WORKDIR [WORKDIR ...] [--watch [SECONDS]] [--json]"""


def main(argv: Sequence[str] | None = None) -> int:
    """Make a report, or print the status of runs; return the exit code.

    0: done. 2: wrong input, with one line on stderr; wrong flags end the process with code 2.
    130: interrupted by Ctrl-C while reading the status; with --watch, Ctrl-C returns 0.

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
    """End the process, with one line on stderr, if flags do not fit together.

    Flags do not fit together if a flag requires a missing flag, if a flag of runs is given with
    --scores, or if a flag of tables is given with --runs. args: flags of a command without
    --status.
    """
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

    A single source is a table of scores, except a folder, an address or a glob (see `_is_runs`);
    all other sources are workdirs of runs. Ends the process with one line on stderr unless exactly
    one of positional sources, --runs and --scores is given. Also ends the process if one of several
    positional sources is a file.
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
    """Return True for an existing folder, an address with "://", or a glob that is not a file."""
    return (
        os.path.isdir(path)
        or "://" in path
        or (glob.has_magic(path) and not os.path.exists(path))
    )


def _report(args: argparse.Namespace) -> Iterator[str]:
    """Make the report; return the lines to print.

    See `_make` for the lines. First, args.out is checked (raises ValueError as
    `outputs.check_report_folder` does), and memory is prepared for large tables.
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
    """Read scores, make the report and write it to args.out; return the lines to print.

    The lines are the headline, the shape biases, the sentences on the tests (the entry "basis" of
    results.json), the data sets and algorithms left out of the tests, the warnings, and "written:
    <path of the page>". Notes on the layout of a table are printed to standard error.
    """
    # Imported late: --help and the first progress line should not wait for these imports.
    records = _read_while_importing(args.runs) if args.runs else None
    from jbias.report import document, tables
    from jbias.report.pages.benchmark import benchmark_page, inputs

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
        heap.trim()  # Return the memory that the threads of the selection freed.
    algorithms = tables.count(len(study.algorithms), "algorithm")
    datasets = tables.count(len(study.datasets), "data set")
    _progress(f"testing {algorithms} on {datasets} ...")
    report = benchmark_page.report(study)
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


def _read_while_importing(patterns: Sequence[str]) -> "workdirs.RunRecords":
    """Return the records of runs; import the modules of the report in a thread meanwhile.

    patterns: workdirs (paths or globs). An import error in the thread is ignored: the main thread
    raises it when it imports the same module.
    """
    from jbias.report import workdirs

    with futures.ThreadPoolExecutor(1) as pool:
        pool.submit(
            importlib.import_module, "jbias.report.pages.benchmark.benchmark_page"
        )
        return workdirs.read(patterns)


def _status(args: argparse.Namespace) -> Iterator[str]:
    """Return the status of runs as text or JSON: one item, or endless items with --watch."""
    from jbias.report import status

    render = status.as_json if args.json else status.as_text
    first = render(status.rows(args.runs))
    return iter([first]) if args.watch is None else _watched(render, args)


def _watched(render: Callable[..., str], args: argparse.Namespace) -> Iterator[str]:
    """Yield the status of args.runs as text or JSON, every args.watch seconds without end.

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
    parser = cli.Parser("report", __doc__, usage=_USAGE)
    _add_output_flags(parser)
    _add_source_flags(parser)
    _add_selection_flags(parser)
    _add_test_flags(parser)
    return parser


def _add_output_flags(parser: argparse.ArgumentParser) -> None:
    """Add --out, --figures, --status, --watch and --json to `parser`."""
    out = cli.OUT | {"required": False}
    parser.add_argument(
        "--out",
        help=f"folder to write the report into, made if needed (default: {_OUT})",
        **out,
    )
    cli.add_figures(parser)
    parser.add_argument(
        "--status",
        action="store_true",
        help="print the progress of the runs in --runs, which may then also be a folder with "
        "workdirs up to four levels below it; write no report (default: write a report)",
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
    """Add the sources and the flags on the layout of a table of scores to `parser`.

    Sources: positional `sources`, --runs and --scores. Layout: the flags of `_TABLE_FLAGS`.
    """
    parser.add_argument(
        "sources",
        nargs="*",
        metavar="FILE|WORKDIR",
        help="one table of scores, or one or more workdirs of runs (globs in quotes)",
    )
    parser.add_argument(
        "--runs",
        help="workdirs of runs, or globs of workdirs; the flag may be left out",
        **cli.WORKDIRS,
    )
    parser.add_argument(
        "--scores",
        metavar="FILE",
        help="a table of scores: CSV, TSV, Markdown, LaTeX, JSON, Excel or Parquet; the flag "
        "may be left out",
    )
    parser.add_argument(
        "--columns",
        metavar="ROLE=NAME,...",
        help="for a table: the names of its columns by role, e.g. algorithm=method,score=acc "
        "if the column `method` has the algorithms. The roles are algorithm, dataset, run, "
        "score, deviation (standard deviation over runs), trained_on and ignore (default: "
        "guessed from the names)",
    )
    parser.add_argument(
        "--rows",
        choices=("algorithms", "datasets"),
        help="for a wide table: each row is one algorithm, or one data set (default: guessed "
        "from the names)",
    )
    parser.add_argument(
        "--decimal",
        choices=(".", ","),
        metavar="SIGN",
        help="for a table: decimal sign of its numbers, a point (.) or a comma (,) "
        "(default: guessed from the numbers)",
    )
    parser.add_argument(
        "--sheet",
        metavar="NAME",
        help="for a file with several tables: name of the sheet (Excel), or number of the "
        "table, from 1 (Markdown, LaTeX) (default: the only table; with several, stop with an "
        "error)",
    )
    parser.add_argument(
        "--brackets",
        choices=("deviation", "ignore"),
        help="for a table: meaning of a whole number in brackets, such as (2) in `73.8 (2)`: "
        "deviation (a standard deviation) or ignore (something else, such as a rank) (default: "
        "guessed; stop with an error if unclear)",
    )
    parser.add_argument(
        "--margins",
        choices=("ignore", "keep"),
        help="for a table: ignore a row or column called All, Average or similar, or keep it "
        "as an algorithm or data set (default: guessed from its scores; stop with an error if "
        "unclear)",
    )
    parser.add_argument(
        "--unit",
        choices=("percent", "fraction"),
        help="for a table: unit of all scores, percent (0 to 100) or fraction (0 to 1); "
        "required if some scores look like percentages and some like fractions (default: "
        "guessed from the scores)",
    )


def _add_selection_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose evaluations, data sets and algorithms to `parser`.

    The flags are --selection, --last, --epoch, --best-on, --datasets, --algorithms, --drop,
    --trained-on, --strict and --metric.
    """
    parser.add_argument(
        "--selection",
        choices=options.SELECTIONS,
        help="for runs: rule that chooses which evaluation of a seed counts: best_validation "
        "(the highest validation accuracy), last_n (the mean of the last evaluations, see "
        "--last), at_epoch (the evaluation at --epoch), best_on (the highest accuracy on "
        "--best-on), worst_class (the highest validation accuracy of the worst class, or of "
        "the worst group if the data set has an attribute), oracle (the best evaluation on "
        "each test set itself: an upper bound, not a valid result) (default: best_validation)",
    )
    parser.add_argument(
        "--last",
        type=cli.at_least_1,
        metavar="N",
        help="with --selection=last_n: number of last evaluations of each seed to average "
        "(default: 30 %% of the evaluations, at least 1)",
    )
    parser.add_argument(
        "--epoch",
        type=cli.positive,
        metavar="E",
        help="with --selection=at_epoch: epoch of the evaluation that counts (default: the "
        "last epoch at which all seeds were evaluated)",
    )
    parser.add_argument(
        "--best-on",
        metavar="DATASET",
        help="with --selection=best_on, which needs it: data set whose accuracy selects the "
        "evaluation; this data set is left out of the statistical tests",
    )
    cli.add_names(
        parser,
        "--datasets",
        (),
        "data sets to report and test, in this order, separated by commas (default: all test "
        "sets)",
    )
    cli.add_names(
        parser,
        "--algorithms",
        (),
        "algorithms to report and test, in this order, separated by commas (default: all)",
    )
    parser.add_argument(
        "--drop",
        choices=options.DROPS,
        help="if some scores are missing: leave out every data set, every algorithm or every "
        "run that lacks a score (default: stop with an error)",
    )
    parser.add_argument(
        "--trained-on",
        metavar="CSV",
        help="CSV file with the columns algorithm and dataset; each row names a test set that "
        "the algorithm was trained on. Such pairs that the runs record need no row (default: "
        "no file)",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="leave out the test sets that some but not all algorithms were trained on, see "
        "--trained-on (default: keep them)",
    )
    parser.add_argument(
        "--metric",
        metavar="NAME",
        help="for runs: recorded metric to test, such as accuracy; for cue conflicts (images "
        "with the shape of one class and the texture of another) also shape_bias (decisions for "
        "the shape, as a share of the decisions for shape or texture), fraction_neither (share "
        "of decisions for neither), mrr_shape or mrr_texture (mean of 1 / rank of the class of "
        "the shape or texture) (default: accuracy)",
    )


def _add_test_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the statistical tests to `parser`.

    The flags are --alpha, --blocks, --points, --lower-is-better, --paired-seeds and --reference.
    """
    parser.add_argument(
        "--alpha",
        help="significance level of the tests, between 0 and 1, not in percent (default: "
        "%(default)s)",
        metavar="P",
        **cli.ALPHA,
    )
    parser.add_argument(
        "--blocks",
        type=cli.at_least_1,
        metavar="N",
        help="also test over N blocks of similar data sets, each block as one data set "
        "(default: blocks are formed from data sets whose scores correlate over the "
        "algorithms with r of at least 0.5)",
    )
    parser.add_argument(
        "--points",
        type=cli.positive,
        metavar="D",
        help="smallest difference between two algorithms that matters to you, in the unit of "
        "the scores; used by the tests of equivalence, the power, the section on few seeds and "
        "the comparisons after every seed (default: 1 for percentages, 0.01 for scores of at "
        "most 1; in the section on few seeds 10 for percentages, and 0.1 for scores of at "
        "most 1; after every seed, equivalence is not tested)",
    )
    parser.add_argument(
        "--lower-is-better",
        dest="larger_is_better",
        action="store_false",
        help="small scores are better, as for errors (default: large scores are better)",
    )
    parser.add_argument(
        "--paired-seeds",
        action="store_true",
        help="for one or two data sets: compare two algorithms seed by seed (in a table, by "
        "the column `run`), if equal seeds share noise, such as the same split of the data "
        "(default: compare them as independent samples)",
    )
    parser.add_argument(
        "--reference",
        metavar="ALGORITHM",
        help="baseline: also compare all algorithms with this algorithm; its name as in the "
        "tables, such as ERM (default: no baseline)",
    )
