"""Flags of the commands that show networks a suite: which networks, and of what."""

import argparse
import functools

from jbias.terminal import parsing

OF_FILES = ("model", "classes", "mean", "std", "trained", "method", "zoo")


def add_networks(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that say which networks."""
    add = parser.add_argument
    add(
        "--checkpoint",
        "--runs",
        action="append",
        default=[],
        metavar="PATH",
        help="a file of weights (.pth, .pt, .tar, .bin, .ckpt, .torch, .safetensors, "
        ".npz), a run's workdir, a folder of these, or a glob; may be given "
        "again, and under either name",
    )
    add(
        "--model",
        metavar="NAME",
        help="of jbias.models.MODELS, e.g. resnet50, for files that --zoo does not know; "
        "found by names and shapes if not given",
    )
    add(
        "--zoo",
        metavar="FILE",
        help="a table of published files, by whose names model, mean, deviation and "
        "category are known; --zoo= is none (default: jbias:zoo)",
    )
    add(
        "--classes",
        metavar="FILE",
        help="what the outputs of a file's network are: imagenet, or a file with a class "
        "name or WordNet id a line (default: what the file itself says, else imagenet)",
    )
    for key, what in (("mean", "taken off"), ("std", "what is then divided by")):
        add(
            f"--{key}",
            type=functools.partial(_constants, least=-1e9 if key == "mean" else 1e-9),
            metavar="R,G,B",
            help=f"of a file's network: {what} of images in [0, 1], three numbers or one; "
            "found as the line about each file says if not given",
        )
    add(
        "--trained",
        metavar="DATA",
        help="of a file's network: the data set that it was trained on, as "
        "jbias.data.DATASETS has it, for its records and reports (default: unknown)",
    )
    add(
        "--method",
        metavar="NAME",
        help="of a file's network: how it was trained, for its records and reports, e.g. "
        "basic or fmix, as a config calls its variant (default: nothing)",
    )
    add(
        "--step",
        metavar="STEP",
        help="of a run: best (by validation), latest, or a number (default: the suite's "
        "run.step, which is best if it does not say)",
    )


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that these commands share."""
    add_networks(parser)
    add = parser.add_argument
    add(
        "--suite",
        metavar="FILE[:ARGS]",
        help="what is measured, e.g. jbias:suites/biases:images=1000 of the package (`jbias:` "
        "lists them) or a file of your own, my/suite.py:images=1000; ARGS are the "
        "suite's own, which the top of its file lists; --suite.KEY=VALUE, as often as "
        "wanted, changes an entry of it, e.g. --suite.measures.pgd.steps=10 or "
        "--suite.run.precision=float32",
    )
    add(
        "--only",
        type=parsing.names,
        metavar="A,B",
        help="measures of the suite, by their names there; all if not given",
    )
    add(
        "--devices",
        type=int,
        default=0,
        metavar="N",
        help="how many of those here are used, whatever the run or the suite has; 0 is "
        "all, or what the suite says (default: %(default)s)",
    )


def _constants(text: str, least: float) -> tuple[float, ...]:
    try:
        values = tuple(map(float, text.split(",")))
    except ValueError:
        values = ()
    if len(values) not in (1, 3) or not all(least <= x <= 1e9 for x in values):
        more = "positive " if least > 0 else ""
        raise argparse.ArgumentTypeError(
            f"must be three {more}numbers such as 0.485,0.456,0.406, or one, got {text!r}"
        )
    return values * (3 // len(values))
