"""What `python -m jbias.study` does: one run for each recipe, attribute and level."""

import argparse
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import ml_collections
from etils import epath

from jbias import config as jc
from jbias import config_files, train
from jbias.data import shifted, shifts, spec
from jbias.feeding import sets
from jbias.rundir import run_state
from jbias.store import disk
from jbias.terminal import console, signals


class Run(NamedTuple):
    """One network under one shift, all seeds of it."""

    config: ml_collections.ConfigDict
    workdir: epath.Path

    @property
    def state(self) -> str:
        return run_state.read(self.workdir).word


def run(args: argparse.Namespace, changes: Sequence[str]) -> int:
    """Trains what is not trained yet; returns the exit code."""
    say = console.logger(None)
    if disk.is_remote(args.workdir):
        raise ValueError(
            f"--workdir: must be a local directory, got {args.workdir}; mount the "
            "bucket, or copy the study when it is done"
        )
    runs, refused = planned(args, changes)
    for line in refused:
        say(f"left out: {line}")
    if args.dry_run:
        for one in runs:
            print(f"{one.workdir}: {one.state}")
        return 1 if refused else 0
    with signals.heard() as heard:
        try:
            lost = _trained(runs, heard, say)
        except signals.Interrupted as stopped:
            say(f"stopped: {stopped}")
            return signals.code(stopped)
    if lost == len(runs):
        raise ValueError("no network was trained; above stands why")
    say(
        f"{len(runs) - lost} networks in {args.workdir}: python -m jbias.report.shifts "
        f"--runs='{args.workdir}/*/*/*'"
    )
    return 1 if lost or refused else 0


def _trained(runs: Sequence[Run], heard: signals.Heard, say: Callable) -> int:
    """Trains what is not; returns how many could not be, or diverged."""
    lost = 0
    for number, one in enumerate(runs, start=1):
        if one.state in ("done", "diverged"):
            say(f"{number} of {len(runs)}: {one.workdir} is done")
            continue
        say(f"{number} of {len(runs)}: {one.workdir}")
        try:
            lost += not train.run(one.config, one.workdir, heard=heard)
        except ValueError as error:
            say(f"not trained: {one.workdir}: {' '.join(str(error).split())}")
            lost += 1
        heard.detach()
        jax.clear_caches()  # Each run has programs of its own.
    return lost


def planned(
    args: argparse.Namespace, changes: Sequence[str]
) -> tuple[list[Run], list[str]]:
    """All runs in order, and why others cannot be; each is tried before any is trained."""
    runs, refused, seen = [], [], {}
    models = args.models or ("",)
    for named in args.config:
        for model in models:
            base = (
                f"{named}{',' if ':' in named else ':'}model={model}"
                if model
                else named
            )
            recipe = functools.partial(_config, base, changes)
            name = _name(recipe("M0", args.attributes[0]))
            if seen.setdefault(name, base) is not base:
                raise ValueError(
                    f"--config: {seen[name]!r} and {base!r} are both called {name}; "
                    "study the second in another --workdir"
                )
            here = epath.Path(args.workdir) / name
            for attribute in args.attributes:
                source, options = _source(recipe("M0", attribute))
                for level in _levels(source, args.levels, attribute):
                    try:
                        shifted.apply(source, {**options, "level": level})
                    except shifts.Infeasible as error:
                        refused.append(f"{name}, {attribute}, {level}: {error}")
                        continue
                    workdir = here / attribute / level.replace("/", "-")
                    runs.append(Run(recipe(level, attribute), workdir))
    if not runs:
        raise ValueError(f"nothing to train: {refused[0]}")
    return runs, refused


def _config(
    named: str, changes: Sequence[str], level: str, attribute: str
) -> ml_collections.ConfigDict:
    if "shift" in jc.given(named.partition(":")[2]):
        raise ValueError(
            "--config: must leave shift out, which --levels says, got " + repr(named)
        )
    told = f"shift={level},attribute={attribute}"
    joined = f"{named}{',' if ':' in named else ':'}{told}"
    return config_files.load(joined, changes, flag="config")


def _name(config: ml_collections.ConfigDict) -> str:
    """What a recipe's folder is called."""
    parts = (jc.algorithm(config), config.variant, config.model.name)
    return "-".join(filter(None, parts)).replace("/", "-")


def _levels(
    source: spec.Source, asked: Sequence[str], attribute: str
) -> tuple[str, ...]:
    """The levels asked for, each once."""
    values = shifted.names(source, attribute)
    known = {kind[0].upper() for kind in shifts.KINDS} | {"only", *shifts.LEVELS}
    found = []
    for one in asked:
        if one == "only":
            found += [f"only-{value}" for value in values]
        elif one in known or one.startswith("only-"):
            of_kind = [level for level in shifts.LEVELS if level[0] == one]
            found += of_kind or [one]
        else:
            raise ValueError(f"--levels: unknown {one!r}; {jc.nearest(one, known)}")
    return tuple(dict.fromkeys(found))


def _source(config: ml_collections.ConfigDict) -> tuple[spec.Source, Mapping[str, Any]]:
    """The set that parts are taken from, and the options of a part."""
    options = jc.plain(config)["train"]
    shift = options.pop("shift")
    return sets.train_set("config.train", options, config.size).sources[0], shift
