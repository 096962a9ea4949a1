r"""Compare models and people by their decisions about single images; no images are needed.

    jbias report decisions --decisions=answers/ --out=report-decisions

Reads CSV files with one row per image, as published or as model-vs-human writes them: a file per
model or person, or folders of files. The names of the images tell the set and the right classes
(Geirhos' cue conflicts, the sets of model-vs-human), or a column does. Folders of measured networks
are read, too. The page has shape bias
and accuracy with intervals, simultaneous confidence intervals of ranks, differences of all pairs
on the same images, error consistency with people and between models, and prompt and task as
factors. Images without an answer are counted, not dropped. Writes to --out: index.html (a page
that can be read offline), tables/ (CSV, Parquet, LaTeX, Markdown), figures/ (SVG; --figures adds
PDF and PNG), results.json (all numbers).
"""

import argparse
import pathlib
import sys
from collections.abc import Iterator, Sequence

from jbias.report import options
from jbias.runtime import cli, messages

PARSES = ("published", "raw")
_NAME_COLUMNS = ("name", "label", "group")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page; return 0, or 2 with one line on stderr for wrong input.

    argv: arguments of the command line; None for `sys.argv[1:]`.
    """
    return options.run(_parser(), _write, argv, spread="--decisions")


def _write(args: argparse.Namespace) -> Iterator[str]:
    """Write the page for the parsed flags `args`; return the lines to print.

    The lines are the headline, the sentences on the data below the headline of the page (the entry
    "basis" of results.json), the warnings, and "written: <path of the page>".
    """
    # Imported late: --help and argument errors should not wait for these imports.
    from jbias.answers import columns, letter_options, observers, tables
    from jbias.report import document, measured_observers
    from jbias.report.pages.decisions import decisions_page, standing

    names = read_names(args.names) if args.names else None
    notes: list[str] = []
    folders, paths = measured_observers.split_paths(args.decisions)
    observed = measured_observers.read(folders)
    if paths:
        observed += tables.read(
            paths,
            columns=columns.parse(args.columns or ""),
            dataset=args.set or "",
            parse=args.parse,
            options=letter_options.parse(args.options),
            say=notes.append,
        )
    measured_observers.check_unique(observed)
    if names is not None:
        observed, unused = standing.renamed(observed, names)
        notes += [f"{args.names}: no observer is called {name!r}." for name in unused]
    report = decisions_page.report(observers.panels(observed), notes=notes)
    written = document.write(report, pathlib.Path(args.out), figures=args.figures)
    return iter([*report.answer, *report.warnings, written])


def read_names(path: str) -> "pd.DataFrame":
    """Return the table of names: columns name, and label or group or both, as text.

    Raise ValueError, with the file, for other columns and for a name that is empty or repeated.
    """
    import pandas as pd

    try:
        frame = pd.read_csv(
            path, dtype=str, keep_default_na=False, encoding="utf-8-sig"
        )
    except ValueError as error:  # Includes errors of pandas' parser.
        raise ValueError(
            f"{path}: must be a CSV file with the columns {', '.join(_NAME_COLUMNS)}: "
            f"{messages.one_line(error)}"
        ) from error
    headers = [*frame.columns]
    if "name" not in headers or len(headers) < 2 or not {*headers} <= {*_NAME_COLUMNS}:
        raise ValueError(
            f"{path}: must have the column name, and label or group or both, got "
            f"{', '.join(map(str, headers))}; rename the columns"
        )
    for line, name in enumerate(frame["name"], 2):
        if not name or (frame["name"] == name).sum() > 1:
            raise ValueError(
                f"{path}:{line}: names must be unique and not empty, got {name!r}; keep one row "
                "per observer"
            )
    return frame


def _parser() -> argparse.ArgumentParser:
    """Return the argument parser of `jbias report decisions`."""
    parser = cli.Parser("report.decisions", __doc__)
    parser.add_argument(
        "--decisions",
        nargs="+",
        action="extend",
        metavar="PATH",
        required=True,
        help="CSV files of decisions, or folders, which are searched with all their subfolders; "
        "the name of a subfolder is the group of its observers. Folders of networks that `jbias "
        "measure` wrote, and the folder that contains them, are read, too",
    )
    parser.add_argument("--out", **cli.OUT, help="folder to write the page into")
    cli.add_figures(parser)
    parser.add_argument(
        "--columns",
        metavar="KEY=NAME,...",
        help="names of the columns in your files, e.g. response=predicted,image=path. The keys "
        "are response (the decided class), raw (the model's own words), image, label (the "
        "correct class), network, prompt (a factor of the network), set and options (drawn for "
        "each image) (default: recognised by their names; ambiguous columns "
        "are refused)",
    )
    parser.add_argument(
        "--set",
        metavar="NAME",
        help="name of the set that the images are of, e.g. cue-conflict (default: recognised by "
        "the names of the images)",
    )
    parser.add_argument(
        "--parse",
        choices=PARSES,
        default=PARSES[0],
        help="decisions to use where a file has both the raw words of a model and a class: "
        "published (the class in the file) or raw (read from the raw words by the parser of "
        "jbias) (default: %(default)s)",
    )
    parser.add_argument(
        "--options",
        default="",
        metavar="LETTER=CLASS,...|FILE",
        help="the options of the question that the models' own words answer, such as "
        "A=airplane,B=bear, or a CSV file with the columns letter and class (default: the "
        "classes in alphabetical order)",
    )
    parser.add_argument(
        "--names",
        metavar="FILE",
        help="a CSV file with the columns name (of an observer, as on the page without this "
        "flag), label (shown in place of it) and group (for colours); label or group may be "
        "missing (default: names of files and folders)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
