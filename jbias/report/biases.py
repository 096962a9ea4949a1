r"""Correlate models' biases with their accuracies in and out of distribution.

    jbias report biases --measured='measured/*' --out=report

Reads the folders that `jbias evaluate` wrote with the suite configs/suites/biases.py, one per
network. Writes to --out: index.html (a page that can be read offline), tables/ (CSV, Parquet,
LaTeX, Markdown), figures/ (SVG; --figures adds PDF and PNG), results.json (all numbers).
"""

import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from jbias.report import options
from jbias.runtime import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Write the report; return 0, or 2 with one line on stderr for wrong input.

    argv: arguments of the command line; None for `sys.argv[1:]`.
    """
    return options.run(
        parser(),
        lambda args: _write(**vars(args)),
        argv,
        spread="--measured",
        moved="--benchmark --printed",
    )


def _write(
    measured: Sequence[str],
    kinds: str | None,
    each_seed: bool,
    out: str,
    images: str | None,
    figures: Sequence[str],
    **settings: Any,
) -> list[str]:
    """Write the report to the folder `out`; return the lines to print.

    The lines are the headline, the sentences on data and tests below the headline of the page (the
    entry "basis" of results.json), the notes on the models, and "written: <path of the page>".
    measured, kinds, each_seed, out, images, figures: values of the flags of the same names.
    settings: options of `bias_models.analyse`.
    """
    # Imported late: --help and argument errors should not wait for these imports.
    from jbias.report import document, network_frame
    from jbias.report.pages.biases import bias_models, bias_plots, biases_page

    kinds_table = network_frame.read_kinds(kinds) if kinds else None
    models = bias_models.read(measured, kinds_table, each_seed=each_seed)
    study = bias_models.analyse(models, **settings)
    photographs = bias_plots.read_photographs(images) if images else ()
    page = biases_page.report(models, study, images=photographs)
    written = document.write(page, pathlib.Path(out), figures=figures)
    return [*page.answer, *models.notes, written]


def parser() -> cli.Parser:
    """Return the argument parser of `jbias report biases`."""
    arguments = cli.Parser("report.biases", __doc__)
    arguments.add_argument(
        "--measured",
        **cli.WORKDIRS,
        required=True,
        help="folders of measured networks, which `jbias evaluate` wrote; the folder that "
        "contains them; or globs",
    )
    arguments.add_argument(
        "--kinds",
        metavar="CSV",
        help="CSV file with one row per model and the columns model (its name in --measured), "
        "name (the name to show), training (its category, such as contrastive) and, if you like, "
        "epsilon (strength of adversarial training) (default: networks of the published study "
        "have the study's categories, and the category of other models is their training "
        "algorithm)",
    )
    arguments.add_argument(
        "--each-seed",
        action="store_true",
        help="count each seed of a run as a model of its own, although p-values are then too "
        "small (default: a model is the mean over the seeds of a run)",
    )
    add_study_flags(arguments)
    return arguments


def add_study_flags(parser: cli.Parser) -> None:
    """Add to `parser` --out, --figures, --images and the flags of the permutation test."""
    parser.add_argument("--out", **cli.OUT, help="folder to write the report into")
    cli.add_figures(parser)
    parser.add_argument(
        "--images",
        metavar="DIR",
        help="folder of photographs, the first three of which are shown on the page, unchanged "
        "and after the low- and high-pass filters of the measures (default: no photographs)",
    )
    cli.add_permutation_flags(parser)


if __name__ == "__main__":
    sys.exit(main())
