r"""Studies whether biases of models go with their generalisation.

    python -m jbias.report.biases --measured='measured/*' --out=report
    python -m jbias.report.biases --benchmark=examples/published/biases_benchmark.csv \
        --printed=examples/published --out=report

From workdirs of `python -m jbias.evaluate`, one a checkpoint, or from the published results
of "Can Biases in ImageNet Models Explain Generalization?" (CVPR 2024). Writes to --out:
index.html (one page that needs no network), tables/*.csv and *.tex, figures/*.svg, *.pdf
and *.png, results.json.
"""

import argparse
import pathlib
import sys
from collections.abc import Iterator, Sequence

from jbias.runtime import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Makes the report; returns 0, or 2 with one line on stderr if that is impossible."""
    parser = _parser()
    args = parser.parse_args(cli.split_values(argv, "--measured"))
    if args.printed and not args.benchmark:
        parser.error("--printed has no say without --benchmark: it is about its models")
    if args.kinds and args.benchmark:
        parser.error("--kinds has no say for --benchmark: the study names its models")
    if args.each_seed and args.benchmark:
        parser.error("--each-seed has no say for --benchmark: it has one seed a model")
    return cli.print_lines("biases", lambda: _made(args))


def _made(args: argparse.Namespace) -> Iterator[str]:
    """Makes the report; returns what is to be told."""
    # Only now: --help and wrong arguments need none of it.
    from jbias.report import bias_page, bias_stimuli, bias_study, document

    asked = dict(
        adjust=args.adjust,
        alpha=args.alpha,
        permutations=args.permutations,
        seed=args.seed,
    )
    if args.seed < 0:
        raise ValueError(f"--seed: must be 0 or larger, got {args.seed}")
    models, appendix = _read(args)
    study = bias_study.analyse(models, **asked)
    folder = pathlib.Path(args.printed) if args.printed else None
    printed = folder and bias_page.compare(models, study, folder)
    report = bias_page.report(
        models,
        study,
        printed=printed,
        appendix=appendix and bias_study.analyse(appendix, **asked),
        images=bias_stimuli.load(args.images) if args.images else (),
    )
    told = [printed.told] if printed else []
    written = document.write(report, pathlib.Path(args.out))
    return iter([*report.answer, *told, *models.told, written])


def _read(args: argparse.Namespace):
    """Gives the models of the study and those of its appendix, if any."""
    from jbias.report import bias_measured, bias_models, bias_published

    if args.benchmark:
        vit = bias_published.read(args.benchmark, who=bias_published.VIT)
        return bias_published.read(args.benchmark), vit
    kinds = bias_models.read_kinds(args.kinds) if args.kinds else None
    return bias_measured.read(args.measured, kinds, each_seed=args.each_seed), None


def _parser() -> argparse.ArgumentParser:
    parser = cli.Parser("report.biases", __doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--measured",
        **cli.WORKDIRS,
        help="workdirs of measured checkpoints, the folder that holds them, or globs",
    )
    source.add_argument(
        "--benchmark",
        metavar="CSV",
        help="the study's published raw-data/benchmark.csv",
    )
    add = parser.add_argument
    add("--out", **cli.OUT, help="folder of the report")
    add(
        "--kinds",
        metavar="CSV",
        help="names of checkpoints: model, name, training (its category) and, if any, "
        "epsilon of adversarial training (default: the published study's, else the algorithm)",
    )
    add(
        "--each-seed",
        action="store_true",
        help="seeds of one run as models of their own, which makes p too small (default: a "
        "model is the mean over the seeds of a run)",
    )
    add(
        "--printed",
        metavar="DIR",
        help="folder with biases_printed.csv and biases_poster.csv: sets them beside",
    )
    add(
        "--images",
        metavar="DIR",
        help="photographs; the first three are shown as filters leave them",
    )
    cli.add_permutation_flags(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
