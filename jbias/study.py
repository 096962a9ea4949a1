r"""Train a config once per attribute and level of distribution shift (docs/shifts.md).

    jbias study --config=configs/erm.py:data=colored_mnist,root=/data/mnist
    jbias study --config=configs/erm.py:data=attributed,root=DIR,seeds=5 \
        --attributes=hair,background --levels=M4,C --workdir=runs/faces
    jbias report shifts --runs='runs/study/*/*/*' --out=report-shifts

The drop in accuracy at each level, compared with level 0 (no shift), shows which attributes a
network uses as a shortcut; the last command computes the drops. Each level is a run in its own
workdir, <workdir>/<recipe>/<attribute>/<level>, where <recipe> is the algorithm, variant and
network of the config, such as erm-resnet18. All seeds of a level train together. The same command
resumes where it was stopped. --config.KEY=VALUE changes an entry of all configs.

Exit codes: 0 all runs are trained; 1 some runs could not be trained; 2 no run was trained, or
arguments are wrong; 130 stopped by Ctrl-C, 143 by SIGTERM, with all work saved. Standard error
has the reason.
"""

import argparse
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jbias import config as jc
from jbias import errors
from jbias.runtime import cli, console, files, messages, signals


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command `jbias study`; return the exit code.

    Exit codes: see the module's docstring. Invalid arguments raise SystemExit(2).
    argv: the arguments; None: the process's arguments.
    """
    args, changes = cli.parse(parser(), argv, "config", jc.check)
    if not args.config:
        parser().error("--config is missing, e.g. --config=jbias:erm")
    return cli.run(lambda: run(args, changes), rerun="resumes")


def parser() -> cli.Parser:
    """Return the parser of the command line."""
    usage = (
        "%(prog)s --config FILE:ARGUMENTS [--attributes A,B] [--levels A,B] [options]"
    )
    parser = cli.Parser("study", __doc__, usage=usage)
    parser.add_argument(
        "--config",
        action="append",
        metavar="FILE:ARGUMENTS",
        help="required: config, as for `jbias train`, but without the argument shift; repeat "
        "the flag to train several configs",
    )
    cli.add_names(
        parser,
        "--models",
        (),
        "networks to train with each config, separated by commas, such as resnet18,bagnet9; "
        "docs/models.md lists the names (default: the network of the config)",
    )
    cli.add_names(
        parser,
        "--attributes",
        ("attribute",),
        "columns of the data set to shift, one after the other, separated by commas (default: "
        "the column called attribute)",
    )
    cli.add_names(
        parser,
        "--levels",
        ("M", "C", "J"),
        "levels of shift, separated by commas, such as M4,C6. A letter alone means all levels "
        "of its kind: M (marginal, M0 to M4: P(value) changes), C (conditional, C0 to C6: P(value "
        "| class) changes) or J (joint, J0 to J4: both change). `only` trains one run per value, on "
        "images with this value alone (default: M,C,J)",
    )
    parser.add_argument(
        "--workdir",
        default="runs/study",
        metavar="DIR",
        help="folder in which each run gets its workdir (default: %(default)s)",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print the workdir and the state of each run, and train nothing (default: train)",
    )
    return parser


class ShiftRun(NamedTuple):
    """A network to train under one shift, with all its seeds."""

    config: "ml_collections.ConfigDict"
    workdir: "epath.Path"

    @property
    def state(self) -> str:
        """The phase of the run, such as "done", "diverged" or "running" (`status.PHASES`)."""
        from jbias.runs import status

        return status.read(self.workdir).phase


def run(args: argparse.Namespace, changes: Sequence[str]) -> int:
    """Train the networks that are not trained yet; return the exit code.

    args: the parsed arguments; with --dry-run, only print each run and its state. changes: changes
    of all configs, such as --config.epochs=5. A stop signal ends the training; all work is saved.
    ValueError for a remote --workdir, for errors of `plan_runs`, and if no network is trained.
    """
    log = console.logger(None)
    if files.is_remote(args.workdir):
        errors.refuse(
            "--workdir",
            f"be a local directory, got {args.workdir}",
            remedy="mount the bucket, or copy the study when it is done",
        )
    runs, infeasible = plan_runs(args, changes)
    for reason in infeasible:
        log(f"left out: {reason}")
    if args.dry_run:
        for run in runs:
            messages.print_text(f"{run.workdir}: {run.state}")
        return 1 if infeasible else 0
    with signals.listen() as stop_signal:
        try:
            num_trained = _train_all(runs, stop_signal, log)
        except signals.Interrupted as stopped:
            log(f"stopped: {stopped}")
            return signals.exit_code(stopped)
    if not num_trained:
        raise ValueError("no network was trained; the lines above say why")
    report = f"jbias report shifts --runs='{args.workdir}/*/*/*'"
    log(f"{num_trained} networks in {args.workdir}: {report}")
    return 1 if num_trained < len(runs) or infeasible else 0


def _train_all(
    runs: Sequence[ShiftRun],
    stop_signal: signals.StopSignal,
    log: Callable[[str], None],
) -> int:
    """Train unfinished runs; return the number of runs that are done and have not diverged.

    A run that raises ValueError is logged and skipped. After a stop signal
    signals.Interrupted is raised, and the remaining runs are not started.
    stop_signal: records stop signals. log: receives log lines.
    """
    import jax

    from jbias import train
    from jbias.evals import command

    call = command.Command("trained", say=log)
    for number, run in enumerate(runs, start=1):
        name = f"{number} of {len(runs)}: {run.workdir}"
        state = run.state
        if state == "done":
            log(f"{name} is done")
            call.done.append(name)
            continue
        if state == "diverged":
            log(f"{name} diverged, every seed")
            continue
        log(name)
        with call.leaving_out(str(run.workdir), ValueError):
            if train.run(run.config, run.workdir, stop_signal=stop_signal):
                call.done.append(name)
        stop_signal.detach()
        jax.clear_caches()  # Each run compiles its own programs.
    return len(call.done)


def plan_runs(
    args: argparse.Namespace, changes: Sequence[str]
) -> tuple[list[ShiftRun], list[str]]:
    """Return all runs in order, and the reasons why other shifts are infeasible, as lines.

    args: the parsed arguments. changes: changes of all configs, such as --config.epochs=5.
    Every config is loaded and every shift is tried before any network is trained. ValueError
    if two configs have the same folder, or no shift is feasible.
    """
    from etils import epath

    from jbias import run_spec
    from jbias.data import config_sets, shifts
    from jbias.training import setup

    runs, infeasible, recipes_by_name = [], [], {}
    for config_flag, model in itertools.product(args.config, args.models or ("",)):
        recipe = config_flag
        if model:
            recipe = _add_argument(config_flag, f"model={model}")
        example = _load(recipe, changes, level="M0", attribute=args.attributes[0])
        name = _recipe_name(example)
        if recipes_by_name.setdefault(name, recipe) is not recipe:
            raise ValueError(
                f"--config: {recipes_by_name[name]!r} and {recipe!r} are both called "
                f"{name}; study the second in another --workdir"
            )
        for attribute in args.attributes:
            config = _load(recipe, changes, level="M0", attribute=attribute)
            setup.check_names(run_spec.RunSpec.from_config(config))
            options = jc.to_dict(config)["train"]
            shift = options.pop("shift")
            train_set = config_sets.train_set("config.train", options, config.size)
            source = train_set.sources[0]  # Without the shift: the set to divide.
            folder = epath.Path(args.workdir) / name / attribute
            for level in _levels(source, args.levels, attribute):
                try:
                    shifts.apply(source, {**shift, "level": level})
                except shifts.Infeasible as error:
                    infeasible.append(f"{name}, {attribute}, {level}: {error}")
                    continue
                config = _load(recipe, changes, level=level, attribute=attribute)
                runs.append(ShiftRun(config, folder / level.replace("/", "-")))
    if not runs:
        raise ValueError(f"nothing to train: {infeasible[0]}")
    return runs, infeasible


def _recipe_name(config: "ml_collections.ConfigDict") -> str:
    """Return the name of a recipe's folder: algorithm, variant and network."""
    names = (jc.algorithm_name(config), config.variant, config.model.name)
    return "-".join(filter(None, names)).replace("/", "-")


def _load(
    recipe: str, changes: Sequence[str], *, level: str, attribute: str
) -> "ml_collections.ConfigDict":
    """Return the config of a recipe under a level of shift of an attribute.

    recipe: FILE:ARGUMENTS of --config. changes: such as --config.epochs=5. level: such as
    "M4". attribute: name of the column. ValueError if the recipe itself has the argument shift, and
    as `config.load` raises it.
    """
    if "shift" in jc.explicit_arguments(recipe.partition(":")[2]):
        raise ValueError(
            f"--config: must not have shift, which --levels sets, got {recipe!r}"
        )
    shifted = _add_argument(recipe, f"shift={level},attribute={attribute}")
    return jc.load(shifted, changes, flag="config")


def _add_argument(recipe: str, argument: str) -> str:
    """Return a recipe FILE:ARGUMENTS with a further argument, such as "seeds=2"."""
    return f"{recipe}{',' if ':' in recipe else ':'}{argument}"


def _levels(
    source: "base.Source", requested: Sequence[str], attribute: str
) -> tuple[str, ...]:
    """Return the requested levels of shift without repetitions.

    requested: such as "M4", or "C", which stands for C0 to C6, or "only", which stands for
    only-VALUE for each value of the attribute. attribute: name of the column of `source`.
    ValueError for an unknown level; the VALUE of only-VALUE is not checked.
    """
    from jbias.data import shifts

    values = shifts.attribute_values(source, attribute)
    kinds = {kind[0].upper(): [] for kind in shifts.KINDS}
    for level in shifts.LEVELS:
        kinds[level[0]].append(level)
    known = {"only": [f"only-{value}" for value in values], **kinds}
    for level in shifts.LEVELS:
        known[level] = [level]
    levels = []
    for name in requested:
        if name not in known and not name.startswith("only-"):
            raise ValueError(
                f"--levels: unknown {name!r}; {errors.suggest(name, known)}"
            )
        levels += known.get(name, [name])
    return tuple(dict.fromkeys(levels))


if __name__ == "__main__":
    sys.exit(main())
