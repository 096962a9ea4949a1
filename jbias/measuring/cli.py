r"""Measure shape bias, accuracy and other biases of a model on your folders of images.

    jbias measure resnet50.pth --stimuli=/data/geirhos
    jbias measure timm:convnext_tiny --stimuli=/data/geirhos --imagenet=/data/imagenet
    jbias measure my.py:predict --data=photos --classes=names.txt
    jbias measure runs/x --data=photos/test
    jbias measure decisions.csv

MODEL is one of
    PATH                  a weights file, the workdir of a run, or a folder of these, or a
                          glob in quotes
    timm:NAME             a network of timm; its weights must be in the Hugging Face cache.
                          timm:NAME@FILE has the weights of a file (.safetensors, .pth ...),
                          timm:NAME?pretrained=false has random weights
    hf:OWNER/NAME@COMMIT  weights on the Hugging Face Hub (needs pip install 'jbias[hub]')
    FILE.py:NAME          a function of images, a PyTorch module or a Predictor in a Python
                          file of yours (docs/measure-a-model.md); FILE.py is short for
                          FILE.py:predict
    FILE.csv              decisions of a model that ran elsewhere (docs/own-decisions.md);
                          FILE.parquet, a folder of these and a glob in quotes work, too

Give at least one folder of images, and the command runs all measures that these images allow. A
table of decisions needs none if the images' names say their classes, as airplane1-bicycle2, or if
it has a column with them, such as label; with folders, it is measured on the images that it
contains. A run that was trained on the embedded set needs no folder: it is measured on this set.
--stimuli: shape bias, accuracy by shape and by texture, accuracy on edges and silhouettes.
--imagenet or --data: accuracy, calibration, corruptions, spectral bias, critical band,
attacks. One printed line lists the measures that cannot run and the images that they need. To
choose measures yourself, use --only, or `jbias evaluate` with a suite.

The results are printed and written to OUT/<network>/, where OUT is the folder of --out. The
same command resumes a stopped measurement. Exit codes: 0 everything was measured that the
images and the model allow; 1 a network, or a measure of a network, failed; 2 nothing was
measured, or arguments are wrong; 130 stopped by Ctrl-C, 143 by SIGTERM.
"""

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jbias import config as jc
from jbias.measuring import named_sets
from jbias.runtime import cli, model_paths, timm_names

if TYPE_CHECKING:
    from jbias.measuring import run

_MODEL = "the model to measure: a weights file, run, function or table of decisions, see above"
_USAGE = "%(prog)s MODEL [--stimuli DIR] [--imagenet DIR] [--data DIR|NAME:DIR|shapes] [options]"


def main(argv: Sequence[str] | None = None) -> int:
    """Run `jbias measure`; return the exit code (see the module).

    argv: the arguments; None: the arguments of the process.
    """
    args, changes = cli.parse(parser(), argv, "suite", jc.check)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    return cli.run(
        lambda: _measure(args, changes),
        rerun="resumes",
        check=lambda: check_paths(args),
    )


def _measure(args: argparse.Namespace, changes: Sequence[str]) -> int:
    """Measure and print the results; return the exit code.

    args: the flags. changes: overrides of the suite's entries, "--suite.key=value".
    """
    from jbias.measuring import run

    return run.command(request(args, changes))


def check_paths(args: argparse.Namespace) -> None:
    """Raise ValueError for paths at which nothing is, before any large package is imported.

    args: the flags, of which MODEL and the folders of images are used.
    """
    model_paths.check_model(args.MODEL)
    folders = {key: getattr(args, key) for key in ("stimuli", "imagenet", "humans")}
    model_paths.check_folders(folders)
    if args.data:
        named_sets.check(args.data)
    if timm_names.is_timm(args.MODEL):
        from jbias import timm_networks

        timm_networks.check([args.MODEL], "MODEL", is_random=args.random_weights)


def request(args: argparse.Namespace, changes: Sequence[str]) -> "run.Request":
    """Return the request of parsed arguments; changes: see `_measure`."""
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
        dataset=args.set or "",
        parse=args.parse,
        letters=args.options,
        mean=args.mean,
        std=args.std,
        model=args.model,
        step=args.step,
        trained=args.trained,
        method=args.method,
    )
    return run.Request(
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


def parser() -> cli.Parser:
    """Return the parser of `jbias measure`."""
    arguments = cli.Parser("measuring", __doc__, usage=_USAGE)
    arguments.add_argument("MODEL", help=_MODEL)
    add_flags(arguments)
    return arguments


def add_flags(arguments: cli.Parser) -> None:
    """Add the flags of `jbias measure` to a parser."""
    texts = {
        "--stimuli=DIR": "folder of Geirhos' stimuli: either DIR/<class>/ with the cue "
        "conflicts of the 16 classes, or a folder that contains cue-conflict/, edge/ and "
        "silhouette/ (default: no stimuli)",
        "--imagenet=DIR": "folder of ImageNet, whose validation images are in "
        "DIR/val/<wnid>/, such as DIR/val/n01440764/ (default: no ImageNet)",
        "--data=DIR": "folder of labelled images of your own, DIR/<class>/ or "
        "DIR/<split>/<class>/; the split train is not measured. --data=NAME:DIR is a set of "
        f"docs/data.md: {', '.join(named_sets.NAMES)}. --data=shapes is the embedded "
        "set, which needs no files (default: no images of your own)",
        "--humans=DIR": "with --stimuli or a table of decisions: folder raw-data of the repository "
        "https://github.com/bethgelab/model-vs-human, which has people's answers to these "
        "stimuli (default: no comparison with people)",
        "--classes=FILE": "classes of the model's outputs, in the order of the outputs: "
        f"{cli.OUTPUT_LISTS_HELP.format(folders=cli.FOLDERS_LIST)} (default: the class "
        "names stored in the run or weights file, else imagenet; for functions and modules, "
        "the list above whose length is the number of outputs)",
        "--columns=KEY=NAME,...": "for a table of decisions: the names of its columns, "
        "e.g. response=predicted,image=path; docs/own-decisions.md lists the keys (default: "
        "recognised by their names)",
        "--set=NAME": "for a table of decisions without folders of images: name of the set of "
        "its images (default: recognised by the names of images and files, else images)",
        "--options=LETTER=CLASS,...|FILE": "for a table of decisions without folders of images: "
        "the options of the question that the model's own words answer, such as "
        "A=airplane,B=bear, or a CSV file with the columns letter and class (default: the "
        "classes in alphabetical order)",
        "--model=NAME": "for weights files: the architecture, such as resnet50; "
        "docs/models.md lists the names (default: recognised by names and shapes of the "
        "weights)",
        "--step=STEP": f"{cli.STEP_HELP} (default: best)",
        "--name=NAME": "for a function, a module or timm:NAME: name of the model in tables "
        "and of its folder in --out (default: NAME in MODEL; for FILE.py:predict "
        "it is FILE)",
        "--trained=DATA": cli.TRAINED_HELP,
        "--method=NAME": cli.METHOD_HELP,
    }
    cli.add_texts(arguments, texts)
    cli.add_constants(
        arguments,
        "for weights files and functions",
        "for weights files, the value of the first of the list of published files, the file and "
        "the architecture that has one; a printed line shows it; for PyTorch modules, the "
        "module's value, else ImageNet's; for functions, no normalisation",
    )
    add = arguments.add_argument
    add(
        "--parse",
        choices=("published", "raw"),
        default="published",
        help="for a table of decisions without folders of images: published reads the column "
        "of decisions; raw parses the models' own words again, if the table has them (default: "
        "%(default)s)",
    )
    add(
        "--random-weights",
        action="store_true",
        help="for timm:NAME: use random weights, for comparison with the trained network "
        "(default: trained weights)",
    )
    add(
        "--size",
        type=cli.at_least(1),
        metavar="PIXELS",
        help="side of the images in pixels (default: the size at which the model was trained "
        "if known, else 224)",
    )
    add(
        "--images",
        type=cli.at_least_0,
        default=0,
        metavar="N",
        help="number of images per test set for the slow measures, which change the images, "
        "such as corruptions and attacks; 0 uses all images (default: %(default)s)",
    )
    cli.add_names(
        arguments,
        "--only",
        None,
        "measures to run, separated by commas, such as shape_bias,accuracy; docs/measures.md "
        "describes them, and an unknown name is refused with a list of all names (default: "
        "all that the images allow)",
    )
    add(
        "--out",
        type=cli.output_folder,
        default="measured",
        metavar="DIR",
        help="folder to write into; the results of a network are in DIR/<network>/ "
        "(default: %(default)s)",
    )
    add(
        "--devices",
        type=cli.at_least_0,
        default=0,
        metavar="N",
        help="number of GPUs, TPU chips or CPUs of this machine to use; 0 uses all (default: "
        "%(default)s)",
    )
