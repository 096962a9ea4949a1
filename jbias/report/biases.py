r"""Studies whether models' biases go with their generalisation.

    jbias report biases --measured='measured/*' --out=report

From workdirs of `jbias evaluate`, one a checkpoint. Writes to --out: index.html (one
page that needs no network), tables/ (CSV, Parquet, LaTeX, Markdown), figures/ (SVG; --figures),
results.json.
"""

import pathlib
import sys
from collections.abc import Sequence

from jbias.report import options
from jbias.runtime import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Makes the report; returns 0, or 2 with one line on stderr if that is impossible."""
    how = dict(spread="--measured", moved="--benchmark --printed")
    return options.run(parser(), lambda args: _made(**vars(args)), argv, **how)


def _made(measured, kinds, each_seed, out, images, figures, **asked) -> list[str]:
    """Makes the report; returns what is to be told."""
    # Only now: --help and wrong arguments need none of it.
    from jbias.report import bias_plots, bias_study, document, network_frame

    named = network_frame.read_kinds(kinds) if kinds else None
    models = bias_study.read(measured, named, each_seed=each_seed)
    study = bias_study.analyse(models, **asked)
    shown = bias_plots.read_photographs(images) if images else ()
    page = bias_study.report(models, study, images=shown)
    written = document.write(page, pathlib.Path(out), figures=figures)
    return [*page.answer, *models.told, written]


def parser() -> cli.Parser:
    """Gives what reads the arguments."""
    found = cli.Parser("report.biases", __doc__)
    add = found.add_argument
    what = "workdirs of measured checkpoints, the folder that holds them, or globs"
    add("--measured", **cli.WORKDIRS, required=True, help=what)
    what = "names of checkpoints: model, name, training (its category) and, if any, epsilon"
    what += (
        " of adversarial training (default: the published study's, else the algorithm)"
    )
    add("--kinds", metavar="CSV", help=what)
    what = "seeds of one run as models of their own, which makes p too small (default:"
    what += " a model is the mean over the seeds of a run)"
    add("--each-seed", action="store_true", help=what)
    add_study_flags(found)
    return found


def add_study_flags(to: cli.Parser) -> None:
    """Adds the flags that are the same wherever the models come from."""
    to.add_argument("--out", **cli.OUT, help="folder of the report")
    cli.add_figures(to)
    what = "photographs; the first three are shown as filters leave them"
    to.add_argument("--images", metavar="DIR", help=what)
    cli.add_permutation_flags(to)


if __name__ == "__main__":
    sys.exit(main())
