r"""Measure shape bias, accuracy and other biases of a model, on the image folders that you give.

    jbias measure resnet50.pth --stimuli=/data/geirhos
    jbias measure timm:convnext_tiny --stimuli=/data/geirhos --imagenet=/data/imagenet
    jbias measure my.py:predict --data=photos --classes=names.txt
    jbias measure runs/x --data=photos/test
    jbias measure decisions.csv --stimuli=/data/geirhos

MODEL is one of
    PATH                  a file of weights, a run's workdir, or a folder or glob of these
    timm:NAME             a network of timm; its weights must be in the Hugging Face cache.
                          timm:NAME?pretrained=false has random weights
    hf:OWNER/NAME@COMMIT  weights on the Hugging Face Hub (extra `hub`)
    FILE.py:NAME          a function of images, a module of PyTorch, or a Predictor
                          (docs/measure-a-model.md); FILE.py means its function `predict`
    FILE.csv              decisions made elsewhere (docs/own-decisions.md), also Parquet

With --stimuli: shape bias, accuracy by shape and by texture, accuracy on edges and
silhouettes. With --imagenet or --data: accuracy, calibration, corruptions, spectral bias,
critical band, attacks. One line lists the measures that cannot run and the images that they
need. To choose measures yourself, use --only, or `jbias evaluate` with a suite. A table of
decisions is measured on the images that it contains.

Records are written into a folder of the network in --out. The same command resumes a stopped
measurement. Exit codes: 0 everything was measured that the images and the model allow; 1 a
network, or a measure of a network, failed; 2 nothing was measured, or arguments are wrong.
"""

import argparse
import os
from collections.abc import Sequence

from jbias import config as jc
from jbias.runtime import cli

_MODEL = "the model to measure: a file, run, function or table, see above"


def main(argv: Sequence[str] | None = None) -> int:
    """Run `jbias measure`; return the exit code (see the module).

    argv: the arguments; None: those of the process.
    """
    args, changes = cli.parse(parser(), argv, "suite", jc.check)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    return cli.run(lambda: _measure(args, changes), rerun="resumes")


def _measure(args: argparse.Namespace, changes: Sequence[str]) -> int:
    """Measure and print the results; return the exit code.

    args: the flags. changes: overrides of the suite's entries, "--suite.key=value".
    """
    from jbias.measuring import models, run, sets

    if args.devices:
        changes = [*changes, f"--suite.run.devices={args.devices}"]
    folders = sets.Folders(
        stimuli=args.stimuli,
        imagenet=args.imagenet,
        data=args.data,
        humans=args.humans,
    )
    settings = models.Settings(
        random_weights=args.random_weights,
        classes=args.classes,
        columns=args.columns,
        mean=args.mean,
        std=args.std,
        model=args.model,
        step=args.step,
        trained=args.trained,
        method=args.method,
    )
    request = run.Request(
        args.MODEL,
        folders,
        settings=settings,
        size=args.size,
        images=args.images,
        only=args.only or (),
        changes=changes,
        out=args.out,
        options={"name": args.name} if args.name else {},
    )
    return run.command(request)


def parser() -> cli.Parser:
    """Return the parser of `jbias measure`."""
    arguments = cli.Parser("measuring", __doc__)
    arguments.add_argument("MODEL", help=_MODEL)
    texts = {
        "--stimuli=DIR": "folder of Geirhos' stimuli: either the cue conflicts, with a "
        "folder for each of the 16 classes, or the folder that contains cue-conflict/, "
        "edge/ and silhouette/ (default: no stimuli)",
        "--imagenet=DIR": "folder of ImageNet; its validation images are in DIR/val/<wnid>/ "
        "(default: no ImageNet)",
        "--data=DIR": "labelled images of your own: DIR/<class>/, or DIR/<split>/<class>/, "
        "of which all splits but train are measured; or the word shapes, the embedded data "
        "set (default: no images of your own)",
        "--humans=DIR": "with --stimuli: folder of people's answers, which is raw-data of "
        "the repository model-vs-human (default: no comparison with people)",
        "--classes=FILE": "classes of the model's outputs, in their order: "
        f"{cli.OUTPUT_LISTS_HELP.format(folders=cli.FOLDERS_LIST)} (default: from the "
        "number of outputs)",
        "--columns=KEY=NAME,...": "for a table of decisions: your names of its columns, "
        "e.g. response=predicted,image=path; docs/own-decisions.md lists the keys (default: "
        "the names of model-vs-human)",
        "--model=NAME": "for weights files: the architecture, such as resnet50; "
        "docs/models.md lists the names (default: recognised by names and shapes of the "
        "weights)",
        "--step=STEP": f"{cli.STEP_HELP} (default: best)",
        "--name=NAME": "for a function, a module or timm:NAME: the model's name in tables, "
        "and that of its folder in --out (default: the name of the function or network)",
        "--trained=DATA": cli.TRAINED_HELP,
        "--method=NAME": cli.METHOD_HELP,
    }
    cli.add_texts(arguments, texts)
    cli.add_constants(
        arguments,
        "for weights files and functions",
        "detected for weights files, as a printed line shows; functions get images in "
        "[0, 1]",
    )
    add = arguments.add_argument
    add(
        "--random-weights",
        action="store_true",
        help="for timm:NAME: use random weights, to compare with untrained networks "
        "(default: trained weights)",
    )
    add(
        "--size",
        type=cli.at_least(1),
        metavar="PIXELS",
        help="side of the images in pixels (default: the size that the model was trained "
        "with if known, else 224)",
    )
    add(
        "--images",
        type=cli.at_least_0,
        default=0,
        metavar="N",
        help="number of images per test set for costly measures, which change images, such "
        "as corruptions; 0 uses all images (default: %(default)s)",
    )
    cli.add_names(
        arguments,
        "--only",
        None,
        "names of measures to run, such as shape_bias,accuracy; docs/measures.md describes "
        "them, and an unknown name prints all names (default: all)",
    )
    add(
        "--out",
        type=cli.output_folder,
        default="measured",
        metavar="DIR",
        help="folder in which the network's folder is written (default: %(default)s)",
    )
    add(
        "--devices",
        type=cli.at_least_0,
        default=0,
        metavar="N",
        help="number of devices (GPUs, TPU chips or CPUs) of this machine to use; 0 uses all "
        "(default: %(default)s)",
    )
    return arguments
