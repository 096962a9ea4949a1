r"""Measure networks with a suite, a file that lists measures and test sets.

    # A weights file on ImageNet:
    jbias evaluate --checkpoint=resnet50.pth --model=resnet50 \
        --suite=configs/suites/biases.py:data=imagenet,root=/data
    # All runs in a folder:
    jbias evaluate --checkpoint='runs/*' --suite=configs/suites/biases.py
    # Published decisions of many models, without any image:
    jbias evaluate --decisions=decisions-vlm
    # Decisions about images of your own:
    jbias evaluate --decisions=mine.csv --suite=configs/suites/biases.py
    # A run in progress, each checkpoint with a suite:
    jbias evaluate --follow=runs/x --suite=configs/suites/biases.py
    # A run in progress, each checkpoint on the test sets of its config:
    jbias evaluate --follow=runs/x
    # A function of images in a Python file:
    jbias evaluate --predict=my.py:predict --classes=names.txt \
        --suite=configs/suites/biases.py:data=imagenet,root=/data

The networks may be weights files, finished runs, runs in progress, or functions of images. To
measure one model on folders of images without a suite, use `jbias measure`.

With --suite or --decisions, the scores and decisions of each network are written to a folder of
its own, OUT/<network>/. To see them as tables and figures:

    jbias report measured --measured='measured/*' --out=report

`jbias report biases` then correlates the biases of many networks with their accuracies. If a
network cannot be read, a line on standard error names it, and the command continues with the
next network.

--predict=FILE.py:NAME measures a model in a Python file of yours, in any framework
(docs/measure-a-model.md). NAME is a function, a PyTorch module or a Predictor (of
jbias.evals.predictors). A function gets a batch of float images with values in [0, 1],
normalised by --mean and --std if you give them, and returns one row of logits or
probabilities per image. A PyTorch module is wrapped by jbias.torch.wrap.

--follow without --suite evaluates each new checkpoint of a run on the test sets of the run's
config, and writes the scores into the run's workdir. Start the run so that it leaves these
evaluations to this command:

    jbias train --config=configs/erm.py --config.run.evaluate=elsewhere \
        --workdir=runs/x

The same command resumes where it was stopped. Exit codes: 0 everything was measured; 1 a
network or a measure was left out, or your file raised an error; 2 nothing could be
measured, or arguments are wrong; 130 stopped by Ctrl-C, 143 by SIGTERM. Each reason is
printed once on standard error. The last line of standard error has the number of measured
networks. Set the environment variable JBIAS_TRACEBACK=1 to print the full traceback of an error.
"""

import argparse
import dataclasses
import os
import sys
from collections.abc import Sequence

from jbias import config as jc
from jbias.runtime import cli, files, model_paths, signals, timm_names

# Flags that say what to measure; exactly one is given.
_SOURCES = ("checkpoint", "predict", "decisions", "follow")
# Flags of tables of decisions that need no images.
_TABLE_FLAGS = ("set", "parse", "options", "humans")
# For each flag of a source, the flags that are not used with this source.
_UNUSED = {
    "--checkpoint": ("once", "interval", "columns", *_TABLE_FLAGS),
    "--decisions and --suite": (
        "ensemble",
        "once",
        "interval",
        "step",
        *cli.FILE_FLAGS,
        *_TABLE_FLAGS,
    ),
    "--decisions alone": ("ensemble", "once", "interval", "step", *cli.FILE_FLAGS),
    "--predict": (
        "ensemble",
        "once",
        "interval",
        "step",
        "columns",
        "model",
        "zoo",
        *_TABLE_FLAGS,
    ),
    "--follow and --suite": (
        "ensemble",
        "step",
        "columns",
        *cli.FILE_FLAGS,
        *_TABLE_FLAGS,
    ),
    "--follow alone": (
        "ensemble",
        "only",
        "out",
        "step",
        "columns",
        *cli.FILE_FLAGS,
        *_TABLE_FLAGS,
    ),
}
# Defaults of optional flags, set after the check for unused ones.
_DEFAULTS = {
    "once": False,
    "interval": 10.0,
    "only": (),
    "out": "measured",
    "set": "",
    "parse": "published",
    "options": "",
    "humans": "",
}
_MAX_NAMES = 8  # Networks that the last line names.
_USAGE = """%(prog)s --checkpoint PATH --suite FILE[:ARGS] [options]
       %(prog)s --predict FILE.py:NAME --suite FILE[:ARGS] [options]
       %(prog)s --decisions PATH [--suite FILE[:ARGS]] [options]
       %(prog)s --follow WORKDIR [--suite FILE[:ARGS]] [options]"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command `jbias evaluate`; return the exit code.

    Exit codes: see the module's docstring. Invalid arguments raise SystemExit(2).
    argv: the arguments; None: the process's arguments.
    """
    args, changes = cli.parse(parser(), argv, "suite", jc.check)
    sources = [name for name in _SOURCES if getattr(args, name)]
    if len(sources) != 1:
        *names, last = (f"--{name}" for name in _SOURCES)
        parser().error(f"give one of {', '.join(names)} and {last}")
    works_alone = args.follow or args.decisions
    if (not works_alone or changes) and not args.suite:
        parser().error("--suite is missing, e.g. --suite=jbias:suites/biases")
    source = f"--{sources[0]}"
    if works_alone:
        source += " and --suite" if args.suite else " alone"
    if args.predict:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    cli.settle(parser, args, _UNUSED[source], f"with {source}", _DEFAULTS)
    if args.suite:
        return cli.run(
            lambda: measure(args, changes),
            rerun="resumes",
            check=lambda: _check_paths(args),
        )
    if args.decisions:
        return cli.run(lambda: _measure_tables(args), rerun="resumes")
    return cli.run(lambda: _follow_run(args), rerun="resumes")


def _check_paths(args: argparse.Namespace) -> None:
    """Raise ValueError for a path of --checkpoint or --predict at which nothing is."""
    model_paths.check_checkpoints(args.checkpoint or (), "--checkpoint (or --runs)")
    if args.predict:
        model_paths.check_code(args.predict, "--predict")


def _follow_run(args: argparse.Namespace) -> int:
    """Evaluate the checkpoints of a run as the run itself would; return the exit code, 0."""
    from jbias.training import follow

    follow.follow(
        args.follow, interval=args.interval, once=args.once, devices=args.devices
    )
    return 0


def parser() -> cli.Parser:
    """Return the parser of the command line."""
    parser = cli.Parser("evaluate", __doc__, usage=_USAGE)
    cli.add_suite_flags(
        parser,
        subject="for weights files and --predict",
        mean_default="for weights files, the value of the first of --zoo, the file and the "
        "architecture that has one; a printed line about each file shows it; for PyTorch modules, "
        "the module's value, else ImageNet's; for functions, no normalisation",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="with --suite or --decisions: folder to write into; the results of a network are "
        "in DIR/<network>/ (default: measured)",
    )
    parser.add_argument(
        "--decisions",
        metavar="PATH",
        help="instead of --checkpoint: decisions of models that ran elsewhere or of people, as "
        "a CSV or Parquet file, or a folder of these. Without --suite no images are needed: the "
        "images' names say their classes, as airplane1-bicycle2, or the table has a column with "
        "them, such as label (docs/own-decisions.md)",
    )
    parser.add_argument(
        "--columns",
        metavar="KEY=NAME,...",
        help="with --decisions: the names of the columns in your files, e.g. "
        "response=predicted,image=path,network=model,set=split,raw=answer,label=truth; "
        "docs/own-decisions.md lists the keys (default: recognised by their names)",
    )
    parser.add_argument(
        "--set",
        metavar="NAME",
        help="with --decisions and no --suite: name of the set of the images (default: "
        "recognised by the names of images and files, else images)",
    )
    parser.add_argument(
        "--parse",
        choices=("published", "raw"),
        help="with --decisions and no --suite: published reads the column of decisions; raw "
        "parses the models' own words again, if the table has them (default: published)",
    )
    parser.add_argument(
        "--options",
        metavar="LETTER=CLASS,...|FILE",
        help="with --decisions and no --suite: the options of the question that the models' own "
        "words answer, such as A=airplane,B=bear, or a CSV file with the columns letter and "
        "class (default: the classes in alphabetical order)",
    )
    parser.add_argument(
        "--humans",
        metavar="DIR",
        help="with --decisions and no --suite: folder raw-data of the repository "
        "https://github.com/bethgelab/model-vs-human, for error consistency with people "
        "(default: no comparison with people)",
    )
    parser.add_argument(
        "--predict",
        metavar="FILE.py:NAME",
        help="instead of --checkpoint: a function of images, a PyTorch module or a Predictor "
        "in a Python file of yours, see above",
    )
    parser.add_argument(
        "--ensemble",
        choices=("logits", "probabilities"),
        help="with --checkpoint: for each run with several seeds, also measure the ensemble of "
        "its seeds, the mean of their logits or probabilities (default: only the seeds)",
    )
    parser.add_argument(
        "--follow",
        metavar="WORKDIR",
        help="instead of --checkpoint: workdir of a run in progress. Each checkpoint that the "
        "run saves is measured, with --suite by the suite, without --suite on the test sets "
        "of the run's config",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        default=None,
        help="with --follow: measure the checkpoints that exist now, and stop (default: also "
        "wait for new checkpoints until the run ends)",
    )
    parser.add_argument(
        "--interval",
        type=cli.positive,
        metavar="SECONDS",
        help="with --follow: seconds between two looks for new checkpoints (default: 10)",
    )
    return parser


def measure(args: argparse.Namespace, changes: Sequence[str]) -> int:
    """Measure the given networks with the suite; return the exit code.

    args: the parsed arguments. changes: changes of the suite, such as --suite.run.batch=8. A
    network that fails is left out, with a line on stderr; ValueError for invalid arguments.
    """
    from etils import epath

    from jbias import timm_networks
    from jbias.answers import columns as answer_columns
    from jbias.answers import tables
    from jbias.evals import (
        command,
        decision_tables,
        ensembles,
        model_inputs,
        networks,
        predictors,
        suites,
    )

    out = epath.Path(args.out)
    call = command.Command("measured")
    config = command.load_suite(args, changes)
    columns = answer_columns.parse(args.columns or "")
    if args.decisions:
        tables.find_files(args.decisions)
    paths = networks.check_arguments(args, args.out, config)
    timm_networks.check([x for x in paths if timm_names.is_timm(x)], "--checkpoint")
    if args.follow and files.is_remote(args.follow):
        raise ValueError(
            f"--follow: with --suite must be a local directory, got {args.follow}; leave "
            f"--suite out, or measure its checkpoints by --checkpoint={args.follow}"
        )
    if args.follow and not (epath.Path(args.follow) / "config.json").exists():
        raise ValueError(
            f"--follow: {args.follow} is not a run, as it has no config.json; name the "
            "--workdir of a run"
        )
    predictor = _load_predictor(args) if args.predict else None
    opened_suite = suites.open_suite(config, call.say, only=args.only)
    if not args.decisions:
        remedy = "size=N among the suite's arguments changes the size"
        for line in model_inputs.describe_enlarged(
            opened_suite.sources, opened_suite.size, remedy
        ):
            call.say(line)
    if predictor:
        measured_networks = [
            predictors.open_predictor(
                predictor,
                opened_suite.size,
                call.say,
                trained=args.trained or "",
                method=args.method or "",
                sets=predictors.describe_sets(opened_suite),
            )
        ]
    elif args.follow:
        measured_networks = networks.follow(args, call.say, call.leave_out)
    elif args.decisions:
        measured_networks = decision_tables.load(
            args.decisions, opened_suite, columns, call.say
        )
    else:
        open_timm = timm_networks.opener(args, opened_suite, call.say)
        measured_networks = call.load(
            paths, args, opened_suite.run["step"], open_timm=open_timm
        )
        if args.ensemble:
            measured_networks = ensembles.with_ensembles(
                measured_networks, args.ensemble
            )
    in_part: list[str] = []
    for network in measured_networks:
        _run_suite(network, opened_suite, out, call, in_part, whole=not args.only)
    if not (call.done or call.left_out):
        if args.follow:
            call.say(f"not measured: {args.follow} has no checkpoint yet")
        else:
            call.say("not measured: --checkpoint names only files of linear layers")
    call.say(_summary(call, in_part, out))
    return call.code


def _measure_tables(args: argparse.Namespace) -> int:
    """Measure tables of decisions without images; return the exit code.

    args: the parsed arguments. A table whose name or sets cannot be measured is left out, with a
    line on stderr; ValueError for invalid arguments and files.
    """
    from etils import epath

    from jbias.answers import columns as answer_columns
    from jbias.answers import letter_options
    from jbias.evals import command, table_suites

    try:
        out = epath.Path(cli.output_folder(args.out))
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"--out: {error}") from None
    call = command.Command("measured")
    loaded = table_suites.load(
        args.decisions,
        columns=answer_columns.parse(args.columns or ""),
        dataset=args.set,
        parse=args.parse,
        options=letter_options.parse(args.options),
        humans=args.humans,
        only=args.only,
        devices=args.devices,
        say=call.say,
        refuse=call.leave_out,
    )
    in_part: list[str] = []
    for network, suite, say in table_suites.numbered(loaded, call.say):
        numbered_call = dataclasses.replace(call, say=say)  # With the same lists.
        _run_suite(network, suite, out, numbered_call, in_part, whole=not args.only)
    call.say(_summary(call, in_part, out))
    return call.code


def _run_suite(
    network: "networks.Network",
    suite: "suites.Suite",
    out: "epath.Path",
    call: "command.Command",
    in_part: list[str],
    *,
    whole: bool,
) -> None:
    """Measure a network, and add its name to the lists of `call`.

    out: the parent of the network's folder. in_part: names of networks without some measures, to
    which the network's name is added if it is one of these. whole: whether these are all of the
    suite's measures.
    """
    from jbias.evals import networks, runner

    name, has_results = network.name, True
    try:
        problems = runner.run_suite(
            network, suite, out, call.say, has_all_measures=whole
        )
    except networks.NETWORK_ERRORS as error:
        signals.raise_interrupt(error)
        problems = [f"{name}: {networks.describe_error(error)}"]
        call.leave_out(name, *problems)
        # After a ValueError the folder has results of another network or suite.
        has_results = not isinstance(error, ValueError)
    if problems:
        call.left_out.setdefault(name, problems[0])
    if not problems:
        call.done.append(name)
    elif has_results and any((out / name / "evals").glob("*.jsonl")):
        call.done.append(name)
        in_part.append(name)


def _load_predictor(args: argparse.Namespace) -> "predictors.Predictor":
    """Return the Predictor of --predict; wrap PyTorch modules by jbias.torch.wrap.

    The flags --classes, --mean and --std are its options, if given.
    """
    from jbias.evals import predictors

    options = {name: getattr(args, name) for name in ("classes", "mean", "std")}
    options = {name: value for name, value in options.items() if value is not None}
    loaded = predictors.load_model(args.predict, "--predict")
    if hasattr(loaded, "named_modules") and hasattr(loaded, "state_dict"):
        from jbias import torch

        return torch.wrap(loaded, name=args.predict.rpartition(":")[2], **options)
    return predictors.as_predictor(loaded, **options)


def _summary(call: "command.Command", in_part: list[str], out: "epath.Path") -> str:
    """Return the command's last line, with the numbers of measured and failed networks.

    in_part: names of networks without some measures. out: folder of the results.
    """
    num_measured = len(call.done)
    failed = [name for name in call.left_out if name not in call.done]
    plural = "" if num_measured == 1 else "s"
    line = f"measured {num_measured} network{plural} in {out}"
    if in_part:
        line += f", {len(in_part)} of them in part ({_join_some(in_part)})"
    if failed:
        line += f"; {len(failed)} not ({_join_some(failed)})"
    return line


def _join_some(names: Sequence[str]) -> str:
    """Return at most _MAX_NAMES names joined by commas, and the number of further names."""
    num_more = len(names) - _MAX_NAMES
    joined = ", ".join(names[:_MAX_NAMES])
    return f"{joined} and {num_more} more" if num_more > 0 else joined


if __name__ == "__main__":
    sys.exit(main())
