r"""Measures networks: checkpoints from elsewhere, finished runs, and runs in progress.

    jbias evaluate --checkpoint=resnet50.pth --model=resnet50 \
        --suite=configs/suites/biases.py:data=imagenet,root=/data
    jbias evaluate --checkpoint='runs/*' --suite=configs/suites/biases.py
    jbias evaluate --decisions=mine.csv --suite=configs/suites/biases.py
    jbias evaluate --follow=runs/x --suite=configs/suites/biases.py
    jbias evaluate --follow=runs/x
    jbias evaluate --predict=my.py:predict --classes=names.txt \
        --suite=configs/suites/biases.py:data=imagenet,root=/data

With --suite each network gets a folder in --out with records, and what it decided; then
`jbias report measured --measured='measured/*' --out=report` shows them, and
`jbias report biases` studies many of them. Networks that cannot be read are named, and
the others measured.

With --predict it is a function of images in a file of your own, whatever stands behind
it (docs/measure-a-model.md): a name of a jbias.evals.predictors.Predictor, of a module of
PyTorch, which is wrapped as by jbias.torch.wrap, or of a function that answers float
images less --mean and divided by --std, if these are given.

With --follow alone the checkpoints of a run are evaluated as the run itself would have:

    jbias train --config=configs/erm.py --config.run.evaluate=elsewhere \
        --workdir=runs/x

The same command goes on where it was stopped. Exit codes: 0 done, with all that is here;
1 some network, or a measure of one, was left out, or a file of your own raised an error;
2 none could be measured, or arguments are wrong; 130 stopped by Ctrl-C, 143 by SIGTERM.
Standard error says why, once of each, and in its last line how many were measured.
JBIAS_TRACEBACK=1 shows where wrong arguments were refused.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from jbias import config as jc
from jbias.runtime import cli, files, signals

_WAYS = ("checkpoint", "predict", "decisions", "follow")
# Flags that say nothing, by what is asked for.
_IGNORED = {
    "--checkpoint": ("once", "interval", "columns"),
    "--decisions": ("once", "interval", "step", *cli.FILE_FLAGS),
    "--predict": ("once", "interval", "step", "columns", "model", "zoo"),
    "--follow and --suite": ("step", "columns", *cli.FILE_FLAGS),
    "--follow alone": ("only", "out", "step", "columns", *cli.FILE_FLAGS),
}
# Of flags that need not be given, once it is known that none is ignored.
_DEFAULTS = {"once": False, "interval": 10.0, "only": (), "out": "measured"}
_NAMED = 8  # Networks that the last line names.


def main(argv: Sequence[str] | None = None) -> int:
    """Does what the arguments say; returns the exit code."""
    args, changes = cli.parse(parser(), argv, "suite", jc.check)
    asked = [key for key in _WAYS if getattr(args, key)]
    if len(asked) != 1:
        parser().error(f"give one of --{', --'.join(_WAYS[:-1])} and --{_WAYS[-1]}")
    if (not args.follow or changes) and not args.suite:
        parser().error("--suite is missing, e.g. --suite=jbias:suites/biases")
    where = f"--{asked[0]}"
    if args.follow:
        where += " and --suite" if args.suite else " alone"
    if args.predict:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    cli.settle(parser, args, _IGNORED[where], f"with {where}", _DEFAULTS)
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
    what = "decisions made elsewhere: a CSV file, or a folder of these (docs/own-decisions.md)"
    add("--decisions", metavar="PATH", help=what)
    what = (
        "with --decisions: your names of its columns, e.g. response=predicted,image=path; "
        "also network and set (default: those of model-vs-human)"
    )
    add("--columns", metavar="KEY=NAME,...", help=what)
    what = "a function of images, or a Predictor, in a file of your own"
    add("--predict", metavar="FILE.py:NAME", help=what)
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

    from jbias.evals import (
        command,
        decision_tables,
        model_inputs,
        networks,
        predictors,
        runner,
        suites,
    )

    out, call = epath.Path(args.out), command.Command("measured")
    config = command.load_suite(args, changes)
    columns = decision_tables.parse_columns(args.columns or "")
    if args.decisions:
        decision_tables.find_files(args.decisions)
    paths = networks.check_arguments(args, args.out, config)
    if args.follow and files.is_remote(args.follow):
        raise ValueError(
            f"--follow: with --suite must be a local directory, got {args.follow}; leave "
            "--suite out, or measure what it has saved by --checkpoint="
            f"{args.follow}"
        )
    if args.follow and not (epath.Path(args.follow) / "config.json").exists():
        raise ValueError(f"--follow: {args.follow} is no run (no config.json)")
    said = {key: getattr(args, key) for key in ("classes", "mean", "std")}
    said = {key: value for key, value in said.items() if value is not None}
    predictor = args.predict and _load_predictor(args.predict, said)
    asked = suites.open_suite(config, call.say, only=args.only)
    if not args.decisions:
        remedy = "size=N among the suite's arguments changes the size"
        for line in model_inputs.describe_enlarged(asked.sources, asked.size, remedy):
            call.say(line)
    opened = call.load(paths, args, asked.run["step"])
    if predictor:
        about = dict(trained=args.trained or "", method=args.method or "")
        about |= {"sets": predictors.prepared_ways(asked)}
        of = predictor, asked.size, call.say
        opened = [predictors.open_predictor(*of, **about)]
    if args.follow:
        opened = networks.follow(args, call.say, call.leave_out)
    if args.decisions:
        opened = decision_tables.load(args.decisions, asked, columns, call.say)
    partly = []
    for network in opened:
        name, ours = network.name, True
        try:
            of = network, asked, out, call.say
            lacking = runner.run_suite(*of, has_all_measures=not args.only)
        except networks.NETWORK_ERRORS as error:
            signals.raise_interrupt(error)
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


def _load_predictor(named: str, said: Mapping[str, Any]) -> "predictors.Predictor":
    """Return what --predict names; a module of PyTorch is wrapped, as by jbias.torch.wrap."""
    from jbias.evals import predictors

    loaded = predictors.load_object(named, "--predict")
    if hasattr(loaded, "named_modules") and hasattr(loaded, "state_dict"):
        from jbias import torch

        return torch.wrap(loaded, name=named.rpartition(":")[2], **said)
    return predictors.as_predictor(loaded, **said)


def _summary(done: int, partly: list[str], failed: list[str], out: "epath.Path") -> str:
    """How many were measured, and which were not; why has been told of each."""
    line = f"measured {done} network{'' if done == 1 else 's'} in {out}"
    if partly:
        line += f", {len(partly)} of them in part ({_listed(partly)})"
    return line + (f"; {len(failed)} not ({_listed(failed)})" if failed else "")


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


if __name__ == "__main__":
    sys.exit(main())
