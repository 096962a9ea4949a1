"""Writes a network for others, or for runs to start from.

    jbias prepare export --checkpoint=runs/erm --seed=0 --out=erm.safetensors
    jbias prepare export --checkpoint=resnet50.pth --out=imported

A name that ends with .safetensors makes such a file, under the names that the network is
published with; any other name makes a workdir, which `--config.init` can name. Other
files of weights, such as x.pth, are read and not written.
"""

import argparse
import pathlib

from jbias import models, numerals
from jbias.models import class_names, state_dicts
from jbias.prepare import dataset
from jbias.runtime import console


def add(parser) -> None:
    """Adds the arguments of the subcommand."""
    add = parser.add_argument
    network = "a file that models.load reads, or the workdir of a run"
    add("--checkpoint", required=True, help=network)
    file = "x.safetensors, or a new workdir, under any name that is no file's"
    add("--out", required=True, help=file)
    add("--model", help=f"one of {', '.join(models.MODELS)}")
    add("--head", help="a second file, with the linear layer")
    add("--entry", help="the state dict to take, where there are several")
    add("--seed", type=int, help="of a run (default: its only one)")
    add("--step", help="of a run: best (default), latest or a number")
    names = dict(default="published", choices=("published", "own"))
    add("--names", help="of the arrays in the file", **names)
    add("--overwrite", action="store_true", help="replaces a file that is there")


def run(args: argparse.Namespace) -> str:
    """Writes the network; returns what it did. Raises what models.load raises.

    ValueError, before anything is read, where `out` is there already, or is named as a
    file of another kind; `overwrite` replaces a file, never a workdir.
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
    what = f"{type(module).__name__} of {module.classes} classes"
    return f"{out}: {what} from {args.checkpoint}"


def _check_new(out: pathlib.Path, overwrite: bool) -> None:
    ending = out.suffix.lower()
    if ending in state_dicts.SUFFIXES and out.suffix != ".safetensors":
        must = "prepare export: --out must end with .safetensors, or be a folder's name"
        remedy = f"no {ending} is written, and PyTorch reads safetensors"
        raise ValueError(f"{must}, got {out}; {remedy}")
    if out.suffix == ".safetensors" and not out.is_dir():
        problem, remedy = out.exists() and not overwrite, " or give --overwrite"
    else:
        problem, remedy = out.is_file() or (out.is_dir() and any(out.iterdir())), ""
    if problem:
        got = f"got {out}, which is there; name another{remedy}"
        raise ValueError(f"prepare export: --out must be new, {got}")
