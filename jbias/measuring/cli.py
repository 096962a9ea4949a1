r"""Measure a model: shape bias, accuracy, and the suite of biases, as far as images are there.

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
critical band, attacks. What is missing for the rest is said in one line. To choose
measures yourself, use --only, or `jbias evaluate` with a suite.

Records are written into a folder of the network in --out; the same command resumes. Exit
codes: 0 all is measured that the images and the model allow; 1 a network, or a measure of
one, failed; 2 nothing was measured, or arguments are wrong. A table of decisions is measured
on the images that it has.
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
        "--stimuli=DIR": "Geirhos' stimuli: the folder of cue conflicts, with a folder for "
        "each of the 16 classes, or the folder that holds cue-conflict/, edge/ and "
        "silhouette/",
        "--imagenet=DIR": "ImageNet; DIR has val/<wnid>/",
        "--data=DIR": "labelled images of your own: DIR/<class>/, or DIR/<split>/<class>/, "
        "of which all splits but train are measured; or shapes, the embedded set",
        "--humans=DIR": "with --stimuli: people's answers, raw-data of model-vs-human",
        "--classes=FILE": "the classes of the outputs, in order: "
        f"{cli.OUTPUT_LISTS} (default: from the number of outputs)",
        "--columns=KEY=NAME,...": "for a table of decisions: your names of its columns, "
        "e.g. response=predicted,image=path",
        "--model=NAME": "for a file of weights: the network, e.g. resnet50 (default: from "
        "the names and shapes of the weights)",
        "--step=STEP": "for a run: the checkpoint: best (by validation; default), latest, "
        "or a number of steps",
        "--name=NAME": "for a function, a module or timm:NAME: the model's name in tables, "
        "and that of its folder in --out (default: the name of the function or network)",
        "--trained=DATA": "the data set that the model was trained on, for its records",
        "--method=NAME": "the method by which the model was trained, for its records",
    }
    cli.add_texts(arguments, texts)
    cli.add_constants(arguments, "of a file or a function")
    add = arguments.add_argument
    add("--random-weights", action="store_true", help="timm:NAME with random weights")
    add(
        "--size",
        type=cli.at_least(1),
        metavar="N",
        help="side of the images, in pixels (default: the size of the model, else 224)",
    )
    add(
        "--images",
        type=cli.at_least_0,
        default=0,
        metavar="N",
        help="number of images for measures that change images, such as corruptions; "
        "0 means all (default: %(default)s)",
    )
    cli.add_names(arguments, "--only", None, "names of measures to run (default: all)")
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
        help="number of devices of this machine to use; 0 means all (default: %(default)s)",
    )
    return arguments
