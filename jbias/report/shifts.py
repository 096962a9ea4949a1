r"""Report the drops in accuracy of networks that were trained under a distribution shift.

    jbias report shifts --runs='runs/shifts/*' --out=report-shifts
    jbias report shifts --runs='runs/study/*/*/*' --out=report-shifts --tau=10

Reads the workdirs of runs that were trained under a shift: by `jbias study`, or by
`jbias train --config=configs/erm.py:shift=C6,attribute=colour`. Ranks training recipes and
attributes by the drop in accuracy under the shift, with intervals and tests, and says which
attributes are 'bugs' (see --tau). Also shows how much smaller the drop is with other algorithms
(remedies) than with plain training, the drop at each level of shift, and the agreement of models'
ranks in and out of distribution.

Writes to --out: index.html (a page that can be read offline), tables/ (CSV, Parquet, LaTeX,
Markdown), figures/ (SVG; --figures adds PDF and PNG), results.json (all numbers). For Tables 1
to 3 of Hu, Sang, Wang and Jiang 2021 use `jbias papers shifts`.
"""

import argparse
import pathlib
import sys
from collections.abc import Callable, Sequence

from jbias.report import options
from jbias.runtime import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Write the report; return 0, or 2 with one line on stderr for wrong input.

    argv: arguments of the command line; None for `sys.argv[1:]`.
    """
    return options.run(parser(), write, argv, spread="--runs", moved="--printed")


def write(args: argparse.Namespace, extend: Callable | None = None) -> list[str]:
    """Write the report; return the lines to print.

    args: parsed flags of `parser`. extend: function of (page, study, args) that returns the page
    to write; None to write the page unchanged. Raises ValueError for --last without
    --selection=last_n, and as `shift_cells.read` and `shifts_page.report` do.
    """
    if args.last is not None and args.selection != "last_n":
        raise ValueError(
            "--last: is ignored without --selection=last_n; add this flag or remove --last"
        )
    # Imported late: --help and argument errors should not wait for these imports.
    from jbias.report import document
    from jbias.report.pages.shifts import shift_cells, shifts_page

    study = shift_cells.read(args.runs, selection=args.selection, last=args.last)
    page = shifts_page.report(study, args)
    page = extend(page, study, args) if extend else page
    written = document.write(page, pathlib.Path(args.out), figures=args.figures)
    return [*page.answer, *study.notes, written]


def parser(command: str = "report.shifts", doc: str = __doc__) -> cli.Parser:
    """Return the argument parser of a command that reports shifts.

    command: name of the command after `jbias`. doc: text of its --help.
    """
    arguments = cli.Parser(command, doc)
    add = arguments.add_argument
    text = "workdirs of runs, or globs of workdirs; runs without a shift are ignored"
    add("--runs", **cli.WORKDIRS, required=True, help=text)
    out = cli.OUT | {"required": False, "default": "report-shifts"}
    text = "folder to write the report into (default: %(default)s)"
    add("--out", **out, help=text)
    cli.add_figures(arguments)
    text = "rule that chooses which evaluation of a seed counts: best_validation (the highest "
    text += "validation accuracy), last_n (the mean of the last evaluations) or oracle (the "
    text += (
        "best evaluation on each test set itself: an upper bound, not a valid result) "
    )
    text += "(default: %(default)s)"
    rules = ("best_validation", "last_n", "oracle")
    add("--selection", choices=rules, default=rules[0], help=text)
    text = (
        "with --selection=last_n: number of last evaluations of each seed to average "
    )
    text += "(default: 30 %% of the evaluations, at least 1)"
    add("--last", type=cli.at_least_1, metavar="N", help=text)
    text = "smallest drop in accuracy that counts, in percentage points: an attribute is a "
    text += "'bug' if its drop is significantly more than POINTS larger than the drop at the "
    text += "control level, which has no shift (default: %(default)g)"
    add("--tau", type=cli.positive, default=5.0, metavar="POINTS", help=text)
    text = "significance level of the tests, between 0 and 1 (default: %(default)s)"
    add("--alpha", **cli.ALPHA, metavar="P", help=text)
    text = "algorithm that counts as plain training. All other algorithms are remedies, and are "
    text += "compared with it on the same network, data, attribute and level. To name a variant, "
    text += "write --reference='NAME (VARIANT)' (default: %(default)s)"
    add("--reference", default="erm", metavar="ALGORITHM", help=text)
    text = "number of bootstrap samples of seeds and images for intervals, at least 100"
    cli.add_count(arguments, "--draws", low=100, default=2_000, help=text)
    text = "random seed of the bootstrap samples"
    cli.add_count(arguments, "--seed", low=0, default=0, help=text)
    return arguments


if __name__ == "__main__":
    sys.exit(main())
