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

from etils import epath

from jbias import config as jc
from jbias.runtime import cli, console, files

# Of what need not be known to be given, once it is known not to be ignored.
_DEFAULTS = {"once": False, "interval": 10.0, "only": (), "out": "measured"}
# What is not looked at, and with what.
_IGNORED = (
    (("once", "interval"), "--checkpoint"),
    (("step", *cli.FILE_FLAGS), "--follow and --suite"),
    (("only", "out", "step", *cli.FILE_FLAGS), "--follow alone"),
)
_HEADS = "--checkpoint names linear layers alone"
_NAMED = 8  # Networks that the last line names.


def main(argv: Sequence[str] | None = None) -> int:
    """Does what the arguments say; returns the exit code."""
    args, changes = cli.parse(parser(), argv, "suite", jc.check)
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
    return cli.run(lambda: _work(args, changes), stopped="goes on")


def _work(args: argparse.Namespace, changes: Sequence[str]) -> int:
    if args.suite:
        return measure(args, changes)
    from jbias.training import evaluator

    evaluator.follow(
        args.follow, interval=args.interval, once=args.once, devices=args.devices
    )
    return 0


def _kind(args: argparse.Namespace) -> str:
    if args.checkpoint:
        return "--checkpoint"
    return "--follow and --suite" if args.suite else "--follow alone"


def parser() -> cli.Parser:
    """The command line."""
    made = cli.Parser("evaluate", __doc__)
    add = made.add_argument
    cli.add_suite_flags(made)
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
        type=cli.positive,
        metavar="SECONDS",
        help="with --follow: between looks at the checkpoints (default: 10)",
    )
    return made


def measure(args: argparse.Namespace, changes: Sequence[str]) -> int:
    """Measures what the arguments name; returns the exit code."""
    from jbias.evals import loading, networks, runner, suite

    out = epath.Path(args.out)
    say = console.logger(None)
    config = jc.load(args.suite, changes, flag="suite")
    if args.devices:
        config.run.devices = args.devices
    paths = loading.check_arguments(args, out, config)
    if args.follow and files.is_remote(args.follow):
        raise ValueError(
            f"--follow: with --suite must be a local directory, got {args.follow}; leave "
            "--suite out, or measure what it has saved by --checkpoint="
            f"{args.follow}"
        )
    if args.follow and not (epath.Path(args.follow) / "config.json").exists():
        raise ValueError(f"--follow: {args.follow} is no run (no config.json)")
    asked = suite.open_suite(config, say, only=args.only)
    opened = (
        loading.follow_run(args, say)
        if args.follow
        else loading.open_networks(paths, args, say, asked.run["step"])
    )
    done, partly, failed = [], [], []
    for name, subject, refused in opened:
        into = failed
        if subject:
            try:
                lacking = runner.run_suite(
                    subject, asked, out, say, whole=not args.only
                )
            except loading.NETWORK_ERRORS as error:
                refused = f"{name}: {networks.describe_error(error)}"
                # The folder is another's, or holds what was measured otherwise.
                lacking = None if isinstance(error, ValueError) else [refused]
            if lacking is not None:
                records = (out / name / "evals").glob("*.jsonl")
                into = done if not lacking else partly if any(records) else failed
        if refused:
            say(f"not measured: {refused}")
        into.append(name)
    if not (done or partly or failed):
        why = f"{args.follow} holds no checkpoint yet" if args.follow else _HEADS
        say(f"not measured: {why}")
    say(_summary(len(done), partly, failed, out))
    return 2 if not (done or partly) else 1 if partly or failed else 0


def _summary(done: int, partly: list[str], failed: list[str], out: epath.Path) -> str:
    """How many were measured, and which were not; why has been told of each."""
    count = done + len(partly)
    line = f"measured {count} network{'' if count == 1 else 's'} in {out}"
    if partly:
        line += f", {len(partly)} of them in part ({_listed(partly)})"
    return line + (f"; {len(failed)} not ({_listed(failed)})" if failed else "")


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


if __name__ == "__main__":
    sys.exit(main())
