"""Writes a network for others, or for runs to start from.

    python -m jbias.prepare export --checkpoint=runs/erm --seed=0 --out=erm.safetensors
    python -m jbias.prepare export --checkpoint=resnet50.pth --out=imported

A name that ends with .safetensors makes such a file, under the names that the network is
published with; any other name makes a workdir, which `--config.init` can name. Other
files of weights, such as x.pth, are read and not written.
"""

import pathlib

from jbias import models
from jbias.models import class_names, state_dicts
from jbias.runtime import console


def add(parser) -> None:
    """Adds the arguments of the subcommand."""
    parser.set_defaults(command=export)
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


def export(
    checkpoint: str,
    out: str,
    *,
    model: str | None,
    names: str,
    step: str | None,
    overwrite: bool,
    **given: str | int | None,
) -> str:
    """Writes the network; returns what it did. Raises what models.load raises.

    ValueError, before anything is read, where `out` is there already, or is named as a
    file of another kind; `overwrite` replaces a file, never a workdir.
    """
    _check_new(pathlib.Path(out), overwrite)
    console.silence_warnings()
    options = {key: value for key, value in given.items() if value is not None}
    if step is not None:
        options["step"] = int(step) if step.isdecimal() else step
    module, variables = models.load(checkpoint, model, **options)
    classes = class_names.read(checkpoint)
    if classes and len(classes.names) != module.classes:
        classes = None  # A linear layer of another file.
    if out.endswith(".safetensors"):
        models.save_safetensors(out, module, variables, names, classes)
    else:
        models.save_run(out, module, variables, classes)
    return (
        f"{out}: {type(module).__name__} of {module.classes} classes from {checkpoint}"
    )


def _check_new(out: pathlib.Path, overwrite: bool) -> None:
    ending = out.suffix.lower()
    if ending in state_dicts.SUFFIXES and out.suffix != ".safetensors":
        raise ValueError(
            "prepare export: --out must end with .safetensors, or be a folder's name, got "
            f"{out}; no {ending} is written, and PyTorch reads safetensors"
        )
    if out.suffix == ".safetensors" and not out.is_dir():
        problem, remedy = out.exists() and not overwrite, " or give --overwrite"
    else:
        problem, remedy = out.is_file() or (out.is_dir() and any(out.iterdir())), ""
    if problem:
        raise ValueError(
            f"prepare export: --out must be new, got {out}, which is there; name another"
            f"{remedy}"
        )
