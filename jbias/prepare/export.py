"""Write a network to a weights file, to share it, or to a workdir, to start runs from it.

    jbias prepare export --checkpoint=runs/erm --seed=0 --out=erm.safetensors
    jbias prepare export --checkpoint=resnet50.pth --out=imported

The first command writes a weights file that other programs can read, too (see --names). The
second command writes a new workdir, and `--config.init=imported` starts a run from it. Weights
files of other kinds, such as .pth, can be read but not written.
"""

import argparse
import pathlib

from jbias import models, numerals
from jbias.models import class_names, state_dicts
from jbias.prepare import dataset
from jbias.runtime import console


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `jbias prepare export` to its parser."""
    add = parser.add_argument
    checkpoint_help = "network to write: a weights file, or the workdir of a run"
    add("--checkpoint", required=True, metavar="PATH", help=checkpoint_help)
    out_help = (
        "weights file to write, ending in .safetensors; any other name is a new workdir"
    )
    add("--out", required=True, metavar="PATH", help=out_help)
    model_help = f"architecture of a weights file: one of {', '.join(models.MODELS)} "
    model_help += "(default: recognised by names and shapes of the weights)"
    add("--model", metavar="NAME", help=model_help)
    head_help = (
        "weights file of the linear classifier, if it was published as a separate "
    )
    head_help += "file (default: no separate file)"
    add("--head", metavar="FILE", help=head_help)
    entry_help = (
        "for weights files with several state dicts: key of the one to write, such "
    )
    entry_help += (
        "as model_ema (default: the only one; with several, stop with an error)"
    )
    add("--entry", metavar="KEY", help=entry_help)
    seed_help = (
        "for runs: seed whose network is written; required if the run has several "
    )
    seed_help += "seeds (default: the only seed)"
    add("--seed", type=int, metavar="N", help=seed_help)
    step_help = "for runs: checkpoint to write, which is best (the highest validation accuracy), "
    step_help += "latest, or the number of a saved training step (default: best)"
    add("--step", metavar="STEP", help=step_help)
    names_help = "names of the arrays in the .safetensors file: published (as in the "
    names_help += (
        "published weights of this architecture, which other programs can read) "
    )
    names_help += "or own (the names that jbias uses) (default: published)"
    add("--names", default="published", choices=("published", "own"), help=names_help)
    overwrite_help = (
        "replace an existing .safetensors file (default: stop with an error)"
    )
    add("--overwrite", action="store_true", help=overwrite_help)


def run(args: argparse.Namespace) -> str:
    """Write the network to --out; return a line with its name and path.

    args: the flags of `add`. Raises the errors of models.load. Before anything is read, raises
    ValueError if --out exists or has the ending of another kind of file; --overwrite replaces
    a .safetensors file, never a workdir.
    """
    out = args.out
    _check_new(pathlib.Path(out), args.overwrite)
    console.silence_warnings()
    options = dataset.select(args, "head", "entry", "seed", "step")
    options = {key: value for key, value in options.items() if value is not None}
    if args.step and numerals.is_count(args.step):
        options["step"] = int(args.step)
    module, variables = models.load(args.checkpoint, args.model, **options)
    classes = class_names.read(args.checkpoint)
    if classes and len(classes.names) != module.classes:
        classes = None  # A linear layer of another file.
    if out.endswith(".safetensors"):
        models.save_safetensors(out, module, variables, args.names, classes)
    else:
        models.save_run(out, module, variables, classes)
    network = f"{type(module).__name__} of {module.classes} classes"
    return f"{out}: {network} from {args.checkpoint}"


def _check_new(out: pathlib.Path, overwrite: bool) -> None:
    """Raise ValueError if `out` exists, or has the ending of another kind of weights file.

    An empty folder counts as new. overwrite: True allows an existing .safetensors file.
    """
    ending = out.suffix.lower()
    if ending in state_dicts.SUFFIXES and out.suffix != ".safetensors":
        must = "prepare export: --out must end with .safetensors, or be a folder's name"
        remedy = f"no {ending} is written, and PyTorch reads safetensors"
        raise ValueError(f"{must}, got {out}; {remedy}")
    if out.suffix == ".safetensors" and not out.is_dir():
        is_taken, remedy = out.exists() and not overwrite, " or give --overwrite"
    else:
        is_taken, remedy = out.is_file() or (out.is_dir() and any(out.iterdir())), ""
    if is_taken:
        got = f"got {out}, which is there; name another{remedy}"
        raise ValueError(f"prepare export: --out must be new, {got}")
