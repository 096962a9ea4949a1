r"""Recomputes a published study of biases and generalisation, beside what is printed.

    python -m jbias.papers.biases --benchmark=examples/published/biases_benchmark.csv \
        --printed=examples/published --out=report

From the results of "Can Biases in ImageNet Models Explain Generalization?" (CVPR 2024), the
page of `python -m jbias.report.biases` with further sections. Writes to --out: index.html (one
page that needs no network), tables/ and figures/ in all formats, results.json.
"""

import pathlib
import sys
from collections.abc import Sequence

from jbias.report import biases
from jbias.runtime import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Makes the report; returns 0, or 2 with one line on stderr if that is impossible."""
    args = _parser().parse_args(argv)
    return cli.print_lines("biases", lambda: _made(**vars(args)))


def _made(benchmark, printed, out, images, **asked) -> list[str]:
    """Makes the report; returns what is to be told."""
    # Only now: --help and wrong arguments need none of it.
    from jbias.papers import biases_published
    from jbias.report import bias_plots, bias_study, document

    models = biases_published.read(benchmark)
    vit = biases_published.read(benchmark, biases_published.VIT)
    report = biases_published.report(
        models,
        bias_study.analyse(models, **asked),
        bias_study.analyse(vit, **asked),
        printed=printed,
        images=bias_plots.read_photographs(images) if images else (),
    )
    written = document.write(report, pathlib.Path(out))
    return [*report.answer, *models.told, written]


def _parser() -> cli.Parser:
    parser = cli.Parser("papers.biases", __doc__)
    parser.add_argument(
        "--benchmark",
        required=True,
        metavar="CSV",
        help="the study's published raw-data/benchmark.csv",
    )
    parser.add_argument(
        "--printed",
        metavar="DIR",
        help="folder with biases_printed.csv and biases_poster.csv: sets them beside",
    )
    biases.add_study_flags(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
