r"""Measures networks: files that others wrote, runs of ours, and runs under way.

    python -m jbias.evaluate --checkpoint=resnet50.pth --model=resnet50 \
        --suite=configs/suites/biases.py:data=imagenet,root=/data
    python -m jbias.evaluate --checkpoint='runs/*' --suite=configs/suites/biases.py
    python -m jbias.evaluate --follow=runs/x --suite=configs/suites/biases.py
    python -m jbias.evaluate --follow=runs/x

With --suite each network gets a folder in --out with records, and what it decided; then
`python -m jbias.report.measured --measured='measured/*' --out=report` shows them, and
`jbias.report.biases` studies many of them. The part after the
colon holds the suite's own arguments (see the top of its file), --suite.key=value changes
any entry of it. Networks that cannot be read are named, and the others measured.

With --follow alone the checkpoints of a run are evaluated as the run itself would have:

    python -m jbias.main --config=configs/erm.py --config.run.evaluate=elsewhere \
        --workdir=runs/x

The same command goes on where it was stopped. Exit codes: 0 done, with all that is here;
1 some network, or a measure of one, was left out; 2 none could be measured, in one line
on standard error; 130 stopped.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from jbias import xla


def main(argv: Sequence[str] | None = None) -> int:
    """Does what the arguments say; returns the exit code."""
    args, rest = parser().parse_known_args(argv)
    changes = [text for text in rest if text.startswith("--suite.")]
    if len(changes) < len(rest):
        unknown = next(text for text in rest if text not in changes)
        parser().error(f"unknown argument {unknown!r}")
    if not (args.follow or args.checkpoint):
        parser().error("--checkpoint or --follow is missing")
    if args.checkpoint and not args.suite:
        parser().error("--suite is missing, e.g. --suite=configs/suites/biases.py")
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
        help="a file of weights, a run's workdir, a folder of these, or a glob; may be "
        "given again, and under either name",
    )
    add(
        "--suite",
        metavar="FILE[:ARGS]",
        help="what is measured, e.g. configs/suites/biases.py",
    )
    add(
        "--model",
        metavar="NAME",
        help="of jbias.models.MODELS, for files; found by names and shapes if not given",
    )
    add(
        "--zoo",
        default="configs/zoo.py" if os.path.isfile("configs/zoo.py") else "",
        metavar="FILE",
        help="a table of published files, by whose names model, mean, deviation and "
        "category are known (default: configs/zoo.py, where it is)",
    )
    add(
        "--classes",
        default="imagenet",
        metavar="FILE",
        help="what the outputs of a file's network are: imagenet, or a file with a class "
        "name or WordNet id a line (default: %(default)s)",
    )
    add(
        "--step",
        default="",
        metavar="STEP",
        help="of a run: best (by validation), latest, or a number (default: the suite's "
        "run.step, which is best if it does not say)",
    )
    add(
        "--only",
        default="",
        metavar="A,B",
        help="measures of the suite; all if not given",
    )
    add(
        "--out",
        default="measured",
        metavar="DIR",
        help="where the networks' folders are (default: %(default)s)",
    )
    add(
        "--follow",
        metavar="WORKDIR",
        help="a run under way: evaluates, or with --suite measures, what it saves",
    )
    add(
        "--once",
        action="store_true",
        help="with --follow: takes what is there, and does not wait for more",
    )
    add(
        "--interval",
        type=_seconds,
        default=10.0,
        metavar="SECONDS",
        help="between looks at the checkpoints (default: %(default)s)",
    )
    add(
        "--devices",
        type=int,
        default=0,
        metavar="N",
        help="of those here, whatever the run has; 0 is all (default: %(default)s)",
    )
    return made


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
