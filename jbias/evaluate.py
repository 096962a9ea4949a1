r"""Measures networks: files that others wrote, runs of ours, and runs under way.

    python -m jbias.evaluate --checkpoint=resnet50.pth --model=resnet50 \
        --suite=configs/suites/biases.py:data=imagenet,root=/data
    python -m jbias.evaluate --checkpoint='runs/*' --suite=configs/suites/biases.py
    python -m jbias.evaluate --follow=runs/x --suite=configs/suites/biases.py
    python -m jbias.evaluate --follow=runs/x

With --suite each network gets a folder in --out with records, and what it decided; then
`python -m jbias.report.measured --measured='measured/*' --out=report` shows them, and
`jbias.report.biases` studies many of them. Networks that cannot be read are named, and
the others measured.

With --follow alone the checkpoints of a run are evaluated as the run itself would have:

    python -m jbias.main --config=configs/erm.py --config.run.evaluate=elsewhere \
        --workdir=runs/x

The same command goes on where it was stopped. Exit codes: 0 done, with all that is here;
1 some network, or a measure of one, was left out; 2 none could be measured, or arguments
are wrong; 130 stopped. Standard error says why, once of each, and in its last line how
many were measured. JBIAS_TRACEBACK=1 shows where wrong arguments were refused.
"""

import argparse
import functools
import os
import sys
from collections.abc import Sequence

from jbias import xla

# Of what need not be known to be given, once it is known not to be ignored.
_DEFAULTS = {"once": False, "interval": 10.0, "only": "", "out": "measured"}
_OF_FILES = ("model", "classes", "mean", "std", "zoo")
# What is not looked at, and with what.
_IGNORED = (
    (("once", "interval"), "--checkpoint"),
    (("step", *_OF_FILES), "--follow and --suite"),
    (("only", "out", "step", *_OF_FILES), "--follow alone"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Does what the arguments say; returns the exit code."""
    args, rest = parser().parse_known_args(argv)
    changes = [text for text in rest if text.startswith("--suite.")]
    if len(changes) < len(rest):
        unknown = next(text for text in rest if text not in changes)
        paths = (
            ""
            if unknown[0] == "-"
            else "; a path is --checkpoint=PATH, a glob in quotes"
        )
        parser().error(f"unknown argument {unknown!r}{paths}")
    if bool(args.follow) == bool(args.checkpoint):
        parser().error("give one of --checkpoint and --follow")
    if (args.checkpoint or changes) and not args.suite:
        parser().error("--suite is missing, e.g. --suite=configs/suites/biases.py")
    for names, where in _IGNORED:
        given = [name for name in names if getattr(args, name) is not None]
        if where == _kind(args) and given:
            parser().error(f"--{given[0]} says nothing with {where}; leave it out")
    if args.only is not None and not all(map(str.strip, args.only.split(","))):
        parser().error(f"--only must name measures, as A,B, got {args.only!r}")
    for name, value in _DEFAULTS.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    xla.set_flags()
    try:
        # Only now: --help and wrong arguments need none of it, and flags are set.
        from jbias import console, follow, measuring, opening

        console.hush()
        opening.keep_programs()
        if args.suite:
            return measuring.run(args, changes)
        follow.run(
            args.follow,
            interval=args.interval,
            once=args.once,
            devices=args.devices,
        )
    except (ValueError, OSError) as error:
        if os.environ.get("JBIAS_TRACEBACK"):
            raise
        print(f"jbias: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("jbias: stopped; the same command goes on", file=sys.stderr)
        return 130
    return 0


def _kind(args: argparse.Namespace) -> str:
    if args.checkpoint:
        return "--checkpoint"
    return "--follow and --suite" if args.suite else "--follow alone"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m jbias.evaluate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = made.add_argument
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
        "--suite",
        metavar="FILE[:ARGS]",
        help="what is measured, e.g. configs/suites/biases.py:images=1000; ARGS are the "
        "suite's own, which the top of its file lists; --suite.KEY=VALUE, as often as "
        "wanted, changes an entry of it, e.g. --suite.measures.pgd.steps=10 or "
        "--suite.run.precision=float32",
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
        "category are known; --zoo= is none (default: configs/zoo.py, where it is)",
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
        "--step",
        metavar="STEP",
        help="of a run: best (by validation), latest, or a number (default: the suite's "
        "run.step, which is best if it does not say)",
    )
    add(
        "--only",
        metavar="A,B",
        help="measures of the suite, by their names there; all if not given",
    )
    add(
        "--out",
        metavar="DIR",
        help="with --suite: where the networks' folders are (default: measured)",
    )
    add(
        "--follow",
        metavar="WORKDIR",
        help="a run under way: evaluates, or with --suite measures, what it saves",
    )
    add(
        "--once",
        action="store_true",
        default=None,
        help="with --follow: takes what is there, and does not wait for more",
    )
    add(
        "--interval",
        type=_seconds,
        metavar="SECONDS",
        help="with --follow: between looks at the checkpoints (default: 10)",
    )
    add(
        "--devices",
        type=int,
        default=0,
        metavar="N",
        help="how many of those here are used, whatever the run or the suite has; 0 is "
        "all, or what the suite says (default: %(default)s)",
    )
    return made


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


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number, got {text!r}")
    return value


if __name__ == "__main__":
    sys.exit(main())
