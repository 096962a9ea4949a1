r"""Recomputes a published study of biases and generalisation, beside what is printed.

    jbias papers biases --benchmark=examples/published/biases_benchmark.csv \
        --printed=examples/published --out=report

From the results of "Can Biases in ImageNet Models Explain Generalization?" (CVPR 2024), the
page of `jbias report biases` with further sections. Writes to --out: index.html (one
page that needs no network), tables/ (CSV, Parquet, LaTeX, Markdown), figures/ (SVG; --figures),
results.json.
"""

import pathlib
import sys
from collections.abc import Sequence

from jbias.report import biases, options
from jbias.runtime import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Makes the report; returns 0, or 2 with one line on stderr if that is impossible."""
    return options.run(parser(), lambda args: _made(**vars(args)), argv)


def _made(benchmark, printed, out, images, figures, **asked) -> list[str]:
    """Makes the report; returns what is to be told."""
    # Only now: --help and wrong arguments need none of it.
    from jbias.papers import biases_published
    from jbias.report import bias_plots, bias_study, document

    models = biases_published.read(benchmark)
    vit = biases_published.read(benchmark, biases_published.VIT)
    studies = [bias_study.analyse(of, **asked) for of in (models, vit)]
    shown = bias_plots.read_photographs(images) if images else ()
    page = biases_published.report(models, *studies, printed=printed, images=shown)
    written = document.write(page, pathlib.Path(out), figures=figures)
    return [*page.answer, *models.told, written]


def parser() -> cli.Parser:
    """Gives what reads the arguments."""
    found = cli.Parser("papers.biases", __doc__)
    what = "the study's published raw-data/benchmark.csv"
    found.add_argument("--benchmark", required=True, metavar="CSV", help=what)
    what = "folder with biases_printed.csv and biases_poster.csv: sets them beside"
    found.add_argument("--printed", metavar="DIR", help=what)
    biases.add_study_flags(found)
    return found


if __name__ == "__main__":
    sys.exit(main())
