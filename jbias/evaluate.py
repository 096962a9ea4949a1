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
import sys
from collections.abc import Sequence

from jbias import presets
from jbias.measure import command, flags
from jbias.terminal import parsing

# Of what need not be known to be given, once it is known not to be ignored.
_DEFAULTS = {"once": False, "interval": 10.0, "only": (), "out": "measured"}
# What is not looked at, and with what.
_IGNORED = (
    (("once", "interval"), "--checkpoint"),
    (("step", *flags.OF_FILES), "--follow and --suite"),
    (("only", "out", "step", *flags.OF_FILES), "--follow alone"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Does what the arguments say; returns the exit code."""
    args, changes = command.parse(parser(), argv, "suite", presets.check)
    if bool(args.follow) == bool(args.checkpoint):
        parser().error("give one of --checkpoint and --follow")
    if (args.checkpoint or changes) and not args.suite:
        parser().error("--suite is missing, e.g. --suite=jbias:suites/biases")
    for names, where in _IGNORED:
        given = [name for name in names if getattr(args, name) is not None]
        if where == _kind(args) and given:
            parser().error(f"--{given[0]} says nothing with {where}; leave it out")
    for name, value in _DEFAULTS.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    return command.run(lambda: _work(args, changes), stopped="goes on")


def _work(args: argparse.Namespace, changes: Sequence[str]) -> int:
    from jbias.measure import measuring
    from jbias.training import follow

    if args.suite:
        return measuring.run(args, changes)
    follow.run(
        args.follow, interval=args.interval, once=args.once, devices=args.devices
    )
    return 0


def _kind(args: argparse.Namespace) -> str:
    if args.checkpoint:
        return "--checkpoint"
    return "--follow and --suite" if args.suite else "--follow alone"


def parser() -> parsing.Parser:
    """The command line."""
    made = parsing.Parser("evaluate", __doc__)
    add = made.add_argument
    flags.add(made)
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
        type=parsing.positive,
        metavar="SECONDS",
        help="with --follow: between looks at the checkpoints (default: 10)",
    )
    return made


if __name__ == "__main__":
    sys.exit(main())
