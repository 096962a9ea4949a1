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

from jbias import config as jc
from jbias.runtime import cli, files

# Flags that say nothing, by what is asked for.
_IGNORED = {
    "--checkpoint": ("once", "interval"),
    "--follow and --suite": ("step", *cli.FILE_FLAGS),
    "--follow alone": ("only", "out", "step", *cli.FILE_FLAGS),
}
# Of flags that need not be given, once it is known that none is ignored.
_DEFAULTS = {"once": False, "interval": 10.0, "only": (), "out": "measured"}
_NAMED = 8  # Networks that the last line names.


def main(argv: Sequence[str] | None = None) -> int:
    """Does what the arguments say; returns the exit code."""
    args, changes = cli.parse(parser(), argv, "suite", jc.check)
    if bool(args.follow) == bool(args.checkpoint):
        parser().error("give one of --checkpoint and --follow")
    if (args.checkpoint or changes) and not args.suite:
        parser().error("--suite is missing, e.g. --suite=jbias:suites/biases")
    where = f"--follow {'and --suite' if args.suite else 'alone'}"
    where = "--checkpoint" if args.checkpoint else where
    for name in _IGNORED[where]:
        if getattr(args, name) is not None:
            parser().error(f"--{name} says nothing with {where}; leave it out")
    for name, value in _DEFAULTS.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    work = measure if args.suite else _evaluate
    return cli.run(lambda: work(args, changes), stopped="goes on")


def _evaluate(args: argparse.Namespace, _: Sequence[str]) -> int:
    from jbias.training import evaluator

    how = dict(interval=args.interval, once=args.once, devices=args.devices)
    evaluator.follow(args.follow, **how)
    return 0


def parser() -> cli.Parser:
    """The command line."""
    made = cli.Parser("evaluate", __doc__)
    add = made.add_argument
    cli.add_suite_flags(made)
    what = "with --suite: where the networks' folders are (default: measured)"
    add("--out", metavar="DIR", help=what)
    what = "a run under way: evaluates, or with --suite measures, what it saves"
    add("--follow", metavar="WORKDIR", help=what)
    what = "with --follow: takes what is there, and does not wait for more"
    add("--once", action="store_true", default=None, help=what)
    what = "with --follow: between looks at the checkpoints (default: 10)"
    add("--interval", type=cli.positive, metavar="SECONDS", help=what)
    return made


def measure(args: argparse.Namespace, changes: Sequence[str]) -> int:
    """Measures what the arguments name; returns the exit code."""
    from etils import epath

    from jbias.evals import command, networks, runner, suite

    out, call = epath.Path(args.out), command.Command("measured")
    config = jc.load(args.suite, changes, flag="suite")
    if args.devices:
        config.run.devices = args.devices
    paths = networks.check_arguments(args, args.out, config)
    if args.follow and files.is_remote(args.follow):
        raise ValueError(
            f"--follow: with --suite must be a local directory, got {args.follow}; leave "
            "--suite out, or measure what it has saved by --checkpoint="
            f"{args.follow}"
        )
    if args.follow and not (epath.Path(args.follow) / "config.json").exists():
        raise ValueError(f"--follow: {args.follow} is no run (no config.json)")
    asked = suite.open_suite(config, call.say, only=args.only)
    opened = call.load(paths, args, asked.run["step"])
    if args.follow:
        opened = networks.follow(args, call.say, call.leave_out)
    partly = []
    for network in opened:
        name, ours = network.name, True
        try:
            of = network, asked, out, call.say
            lacking = runner.run_suite(*of, whole=not args.only)
        except networks.NETWORK_ERRORS as error:
            lacking = [f"{name}: {networks.describe_error(error)}"]
            call.leave_out(name, *lacking)
            # The folder is another's, or holds what was measured otherwise.
            ours = not isinstance(error, ValueError)
        if lacking:
            call.left_out.setdefault(name, lacking[0])
        if not lacking or ours and any((out / name / "evals").glob("*.jsonl")):
            call.done.append(name)
            partly += [name] * bool(lacking)
    if not (call.done or call.left_out):
        empty = f"{args.follow} holds no checkpoint yet"
        heads = "--checkpoint names linear layers alone"
        call.say(f"not measured: {empty if args.follow else heads}")
    failed = [name for name in call.left_out if name not in call.done]
    call.say(_summary(len(call.done), partly, failed, out))
    return call.code


def _summary(
    count: int, partly: list[str], failed: list[str], out: "epath.Path"
) -> str:
    """How many were measured, and which were not; why has been told of each."""
    line = f"measured {count} network{'' if count == 1 else 's'} in {out}"
    if partly:
        line += f", {len(partly)} of them in part ({_listed(partly)})"
    return line + (f"; {len(failed)} not ({_listed(failed)})" if failed else "")


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


if __name__ == "__main__":
    sys.exit(main())
