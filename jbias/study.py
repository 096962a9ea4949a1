r"""Audits a recipe: trains it under every kind and level of shift of each attribute.

    jbias study --config=configs/erm.py:data=colored_mnist,root=/data/mnist
    jbias study --config=configs/erm.py:data=attributed,root=DIR,seeds=5 \
        --attributes=hair,background --levels=M4,C --workdir=runs/faces
    jbias report shifts --runs='runs/study/*/*/*' --out=report-shifts

Each network has a workdir of its own, <workdir>/<recipe>/<attribute>/<level>; all seeds
of one train together. The same command goes on where it was stopped, and what is done
stays. Several --config, such as a recipe and its remedies, or --models make a study of
each; --config.key=value changes an entry of all.

Exit codes: 0 all are trained; 1 some could not be, and standard error says why; 2 none,
or arguments are wrong; 130 or 143 stopped with all work saved.
"""

import argparse
import functools
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jbias import config as jc
from jbias.runtime import cli, console, files, messages, signals


def main(argv: Sequence[str] | None = None) -> int:
    """Does what the arguments say; returns the exit code."""
    args, changes = cli.parse(parser(), argv, "config", jc.check)
    if not args.config:
        parser().error("--config is missing, e.g. --config=jbias:erm")
    return cli.run(lambda: run(args, changes), stopped="goes on")


def parser() -> cli.Parser:
    """The command line."""
    made = cli.Parser("study", __doc__)
    add = made.add_argument
    what = "the recipe, as for jbias train, without shift; may be given several times"
    add("--config", action="append", metavar="FILE:ARGUMENTS", help=what)
    several = functools.partial(cli.add_names, made)
    what = "networks to train each recipe with (default: the recipe's own)"
    several("--models", (), what)
    what = "columns of the data set (default: attribute)"
    several("--attributes", ("attribute",), what)
    what = (
        "such as M4,C6; a letter is all of its kind, `only` trains on each value alone "
        "(default: M,C,J)"
    )
    several("--levels", ("M", "C", "J"), what)
    add("--workdir", default="runs/study", metavar="DIR", help="(default: %(default)s)")
    what = "tells which networks there are and how far each is, and trains none"
    add("--dry-run", action="store_true", help=what)
    return made


class Run(NamedTuple):
    """One network under one shift, all seeds of it."""

    config: "ml_collections.ConfigDict"
    workdir: "epath.Path"

    @property
    def state(self) -> str:
        from jbias.runs import status

        return status.read(self.workdir).phase


def run(args: argparse.Namespace, changes: Sequence[str]) -> int:
    """Trains what is not trained yet; returns the exit code."""
    say = console.logger(None)
    if files.is_remote(args.workdir):
        remedy = "mount the bucket, or copy the study when it is done"
        must = f"be a local directory, got {args.workdir}"
        jc.refuse("--workdir", must, remedy=remedy)
    runs, refused = planned(args, changes)
    for line in refused:
        say(f"left out: {line}")
    if args.dry_run:
        for one in runs:
            messages.print_text(f"{one.workdir}: {one.state}")
        return 1 if refused else 0
    with signals.listen() as heard:
        try:
            trained = _trained(runs, heard, say)
        except signals.Interrupted as stopped:
            say(f"stopped: {stopped}")
            return signals.exit_code(stopped)
    if not trained:
        raise ValueError("no network was trained; above stands why")
    report = f"jbias report shifts --runs='{args.workdir}/*/*/*'"
    say(f"{trained} networks in {args.workdir}: {report}")
    return 1 if trained < len(runs) or refused else 0


def _trained(runs: Sequence[Run], heard: signals.StopSignal, say: Callable) -> int:
    """Trains what is not; returns how many are, without those that diverged."""
    import jax

    from jbias import train
    from jbias.evals import command

    call = command.Command("trained", say=say)
    for number, one in enumerate(runs, start=1):
        told, state = f"{number} of {len(runs)}: {one.workdir}", one.state
        if state in ("done", "diverged"):
            say(f"{told} {'is done' if state == 'done' else 'diverged, every seed'}")
            call.done += [told] * (state == "done")
            continue
        say(told)
        with call.leaving_out(str(one.workdir), ValueError):
            if train.run(one.config, one.workdir, heard=heard):
                call.done.append(told)
        heard.detach()
        jax.clear_caches()  # Each run has programs of its own.
    return len(call.done)


def planned(
    args: argparse.Namespace, changes: Sequence[str]
) -> tuple[list[Run], list[str]]:
    """All runs in order, and why others cannot be; each is tried before any is trained."""
    from etils import epath

    from jbias import run_spec
    from jbias.data import shifts, splits
    from jbias.training import setup

    runs, refused, seen = [], [], {}
    for named, model in itertools.product(args.config, args.models or ("",)):
        base = _with_argument(named, f"model={model}") if model else named
        recipe = functools.partial(_config, base, changes)
        first = recipe("M0", args.attributes[0])
        parts = jc.algorithm_name(first), first.variant, first.model.name
        name = "-".join(filter(None, parts)).replace("/", "-")
        if seen.setdefault(name, base) is not base:
            raise ValueError(
                f"--config: {seen[name]!r} and {base!r} are both called {name}; "
                "study the second in another --workdir"
            )
        for attribute in args.attributes:
            config = recipe("M0", attribute)
            setup.check_names(run_spec.RunSpec.from_config(config))
            options = jc.to_dict(config)["train"]
            shift = options.pop("shift")
            taken = splits.train_set("config.train", options, config.size)
            source = taken.sources[0]  # The set that parts are taken from.
            here = epath.Path(args.workdir) / name / attribute
            for level in _levels(source, args.levels, attribute):
                try:
                    shifts.apply(source, {**shift, "level": level})
                except shifts.Infeasible as error:
                    refused.append(f"{name}, {attribute}, {level}: {error}")
                    continue
                workdir = here / level.replace("/", "-")
                runs.append(Run(recipe(level, attribute), workdir))
    if not runs:
        raise ValueError(f"nothing to train: {refused[0]}")
    return runs, refused


def _config(
    named: str, changes: Sequence[str], level: str, attribute: str
) -> "ml_collections.ConfigDict":
    if "shift" in jc.explicit_arguments(named.partition(":")[2]):
        must = "must leave shift out, which --levels says"
        raise ValueError(f"--config: {must}, got {named!r}")
    joined = _with_argument(named, f"shift={level},attribute={attribute}")
    return jc.load(joined, changes, flag="config")


def _with_argument(named: str, argument: str) -> str:
    return f"{named}{',' if ':' in named else ':'}{argument}"


def _levels(source: "base.Source", asked: Sequence, attribute: str) -> tuple[str, ...]:
    """The levels asked for, each once."""
    from jbias.data import shifts

    values = shifts.attribute_values(source, attribute)
    kinds = {kind[0].upper(): [] for kind in shifts.KINDS}
    for level in shifts.LEVELS:
        kinds[level[0]].append(level)
    known = {"only": [f"only-{value}" for value in values], **kinds}
    known |= {level: [level] for level in shifts.LEVELS}
    found = []
    for one in asked:
        if one not in known and not one.startswith("only-"):
            raise ValueError(f"--levels: unknown {one!r}; {jc.suggest(one, known)}")
        found += known.get(one, [one])
    return tuple(dict.fromkeys(found))


if __name__ == "__main__":
    sys.exit(main())
