r"""Recompute a published study of biases and generalisation, and compare with its tables.

    jbias papers biases --benchmark=examples/published/biases_benchmark.csv \
        --printed=examples/published --out=report

Writes the report of `jbias report biases`, with further sections, from the published results
of "Can Biases in ImageNet Models Explain Generalization?" (CVPR 2024). No network is needed.
Writes to --out: index.html (a page that can be read offline), tables/ (CSV, Parquet, LaTeX,
Markdown), figures/ (SVG; --figures adds PDF and PNG), results.json (all numbers).
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

from jbias.report import biases, options
from jbias.runtime import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Run `jbias papers biases`; return the exit code: 0, or 2 with one line on stderr.

    argv: the arguments; None: the process's arguments.
    """
    return options.run(parser(), _write_report, argv)


def _write_report(args: argparse.Namespace) -> list[str]:
    """Write the report; return the lines to print. args: the flags of `parser`."""
    # Late, so that --help and errors in arguments are fast.
    from jbias.papers import biases_published
    from jbias.report import document
    from jbias.report.pages.biases import bias_models, bias_plots

    test_options = {
        "adjust": args.adjust,
        "alpha": args.alpha,
        "permutations": args.permutations,
        "seed": args.seed,
    }
    models = biases_published.read(args.benchmark)
    vit = biases_published.read(args.benchmark, biases_published.VIT)
    page = biases_published.report(
        models,
        study=bias_models.analyse(models, **test_options),
        appendix=bias_models.analyse(vit, **test_options),
        printed=args.printed,
        images=bias_plots.read_photographs(args.images) if args.images else (),
    )
    written = document.write(page, pathlib.Path(args.out), figures=args.figures)
    return [*page.answer, *models.notes, written]


def parser() -> cli.Parser:
    """Return the parser of `jbias papers biases`."""
    biases_parser = cli.Parser("papers.biases", __doc__)
    biases_parser.add_argument(
        "--benchmark",
        required=True,
        metavar="CSV",
        help="results of the study: its published file raw-data/benchmark.csv, which is in "
        "this repository as examples/published/biases_benchmark.csv",
    )
    biases_parser.add_argument(
        "--printed",
        metavar="DIR",
        help="folder with the numbers that the paper and its poster print, as "
        "biases_printed.csv and biases_poster.csv (default: no comparison)",
    )
    biases.add_study_flags(biases_parser)
    return biases_parser


if __name__ == "__main__":
    sys.exit(main())
