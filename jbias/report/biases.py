r"""Studies whether biases of models go with their generalisation.

    python -m jbias.report.biases --measured='measured/*' --out=report

From workdirs of `python -m jbias.evaluate`, one a checkpoint. Writes to --out: index.html (one
page that needs no network), tables/ and figures/ in all formats, results.json.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

from jbias.runtime import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Makes the report; returns 0, or 2 with one line on stderr if that is impossible."""
    parser, argv = _parser(), cli.split_values(argv, "--measured")
    for flag in (word.partition("=")[0] for word in argv):
        if flag in ("--benchmark", "--printed"):
            parser.error(f"{flag}: is a flag of python -m jbias.papers.biases now")
    args = parser.parse_args(argv)
    return cli.print_lines("biases", lambda: _made(**vars(args)))


def _made(measured, kinds, each_seed, out, images, **asked) -> list[str]:
    """Makes the report; returns what is to be told."""
    # Only now: --help and wrong arguments need none of it.
    from jbias.report import bias_plots, bias_study, document, network_frame

    named = network_frame.read_kinds(kinds) if kinds else None
    models = bias_study.read(measured, named, each_seed=each_seed)
    study = bias_study.analyse(models, **asked)
    photographs = bias_plots.read_photographs(images) if images else ()
    report = bias_study.report(models, study, images=photographs)
    written = document.write(report, pathlib.Path(out))
    return [*report.answer, *models.told, written]


def _parser() -> cli.Parser:
    parser = cli.Parser("report.biases", __doc__)
    parser.add_argument(
        "--measured",
        **cli.WORKDIRS,
        required=True,
        help="workdirs of measured checkpoints, the folder that holds them, or globs",
    )
    parser.add_argument(
        "--kinds",
        metavar="CSV",
        help="names of checkpoints: model, name, training (its category) and, if any, "
        "epsilon of adversarial training (default: the published study's, else the algorithm)",
    )
    parser.add_argument(
        "--each-seed",
        action="store_true",
        help="seeds of one run as models of their own, which makes p too small (default: a "
        "model is the mean over the seeds of a run)",
    )
    add_study_flags(parser)
    return parser


def add_study_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that are the same wherever the models come from."""
    parser.add_argument("--out", **cli.OUT, help="folder of the report")
    parser.add_argument(
        "--images",
        metavar="DIR",
        help="photographs; the first three are shown as filters leave them",
    )
    cli.add_permutation_flags(parser)


if __name__ == "__main__":
    sys.exit(main())
