"""Opens and checks all that a run needs, and notes in its workdir what it is."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
from etils import epath

from jbias import algos, augment, build, data, models, run_spec
from jbias import config as jc
from jbias.data import base, labels, loader, splits
from jbias.models import trained
from jbias.runs import checkpoints, checksums, evaluations, loggers, results, workdirs
from jbias.runtime import console, files, mesh
from jbias.runtime import processes as teams
from jbias.training import (
    autotune,
    checkpointing,
    divergence,
    input_plan,
    memory,
    optim,
    seed_axis,
    stages,
)
from jbias.training.context import RunContext


def check_names(spec: run_spec.RunSpec) -> None:
    """Refuses names of nothing that is known: to open sets may take minutes."""
    config, run = spec.config, spec.config["run"]
    seed_axis.check_strategy(run["strategy"])
    for branch in spec.branches:
        for number, part in enumerate(jc.stage_configs(branch.config)):
            _names(part, f"config.stages[{number}]" if config["stages"] else "config")
    _set("config.valid", config["valid"])
    for name, test in config["tests"].items():
        _set(f"config.tests.{name}", test)
    jc.check_known("config.aggregate", config["aggregate"], labels.AGGREGATES)
    if run.get("log", console.LOG_FORMATS[0]) not in console.LOG_FORMATS:
        raise ValueError(
            f"config.run.log: must be one of {', '.join(console.LOG_FORMATS)}, got "
            f"{run['log']!r}"
        )
    loggers.check(run)
    checkpointing.energy(config)


def _names(config: Mapping[str, Any], place: str) -> None:
    algo, train, chosen = config["algo"], config["train"], config["optim"]
    name, known = algo["name"], algos.ALGOS
    if ":" in name:
        known = {name: build.locate_user_algorithm(name)}
    for where, options, names in (
        ("algo", algo, known),
        ("model", config["model"], models.MODELS),
        ("optim", chosen, optim.OPTIMISERS),
        ("optim.schedule", chosen["schedule"], optim.SCHEDULES),
        *(
            (f"inputs[{i}]", x, augment.AUGMENTS)
            for i, x in enumerate(config["inputs"])
        ),
    ):
        build.lookup(f"{place}.{where}", options, names)
    for one in (train, train.get("other") or {}, *train.get("also", ())):
        _set(f"{place}.train", one)


def _set(where: str, options: Mapping[str, Any]) -> None:
    if isinstance(name := options.get("data"), str):
        jc.check_known(where, name, data.DATASETS, "data set")


def open_run(
    spec: run_spec.RunSpec,
    workdir: epath.Path,
    say: Callable,
    *,
    team: teams.ProcessGroup = teams.ALONE,
    follows: bool = False,
    guard: Callable[[], None] = lambda: None,
) -> RunContext:
    """Opens every set before anything is trained, so that bad input costs nothing.

    A job that `follows` another process's run has neither training images nor
    checkpoints to write; ValueError where it finds other data than that run, or than
    the other processes of its team, of which the first alone writes. `guard` is called
    before anything is written; OSError where the workdir is another's by now.
    """
    config, branches, entries = spec.config, spec.branches, spec.members
    run = config["run"]
    devices = mesh.make(run["devices"], len(entries), run["spread"], run["together"])
    train_sets, train, opened, answers = _open_sets(config)
    check_leaks(train, opened, say)
    reading = stages.reader_options(config["run"]["loading"], devices)
    streamed = _streamed(config, train_sets)
    resident = {name: one for name, one in train.items() if name not in streamed}
    images = loader.load_into_memory(
        {} if follows else resident,
        opened,
        say,
        gib=config["run"]["loading"]["gib"],
        threads=reading.threads,
    )
    for name, how in streamed.items():
        say(f"{name}: {len(train[name])} images of {train[name].name}, {how}")
    tests = [
        splits.test_set(name, test, answers[name], images.get(name), say)
        for name, test in opened.items()
    ]
    made = functools.partial(stages.build_stages, config, train_sets)
    chosen = {"strategy": run["strategy"]}
    if follows:
        built = made(None, devices)
    else:
        own = [*map(stages.seed_argument, entries)]
        on = functools.partial(made, images)
        before = workdirs.provenance(workdir) if team.is_main else {}
        kept = before.get("chosen") or before.get("layout")

        def choosing(*laid) -> str:
            chosen.update(autotune.choose_strategy(config, own, kept, say, *laid))
            return chosen["strategy"]

        asked = (on, own, devices, run, say, team.all_min, choosing)
        devices, built = memory.fit_stages(*asked)
    told = {name: splits.describe(one) for name, one in {**train, **opened}.items()}
    for name, how in streamed.items():
        told[name]["preprocessing"] = how
    for test in tests:
        rule = answers[test.name]
        told[test.name].update(scored=len(test.images), decision=rule.description)
        if rule.digest:
            told[test.name]["answers"] = rule.digest
    code = build.user_file_digests(config)
    _check_alike(team, {"data": told, "own_code": code})
    given, init = (
        _initial_nets(config, workdir, follows) if team.is_main else (None, None)
    )
    writes = team.is_main and not follows
    guard()
    if writes:
        workdirs.record_config(workdir, config, anew=True)
    facts = {"config": config, "data": told, "own_code": code, "init": init}
    if writes:
        facts["layout"] = _layout(built, devices, chosen["strategy"])
        facts["chosen"] = chosen
    record = workdirs.record_follower if follows else workdirs.record_provenance
    if writes and (held := checksums.read(workdir)):  # Until what changes now stands.
        checksums.write(
            workdir, {k: v for k, v in held.items() if not checksums.is_fact(k)}
        )
    differing = record(workdir, facts) if team.is_main else []
    if differing:
        say(
            "this start differs from the first, equal only within tolerance: "
            + "; ".join(differing)
        )
    recorded = dict(check_lock=guard, writes=team.is_main, follower=follows)
    records = evaluations.RecordStore(workdir, branches, say, **recorded)
    store = None
    if not follows:
        store = checkpoints.CheckpointStore(
            workdir / "checkpoints",
            team,
            keep=config["run"]["keep"],
            valid_at=functools.partial(evaluations.validation_at, workdir),
        )
    if writes:
        for branch in branches if config["vary"] else ():
            own_facts = {**facts, "config": branch.config}
            (workdir / branch.folder).mkdir(parents=True, exist_ok=True)
            workdirs.record_config(workdir / branch.folder, branch.config)
            workdirs.record_provenance(workdir / branch.folder, own_facts)
        records.add_facts()
    eyes = divergence.Monitor(tuple(entry.name for entry in entries))
    parts_of = (devices, tests, built, store, records, eyes, given)
    return RunContext(spec, workdir, say, *parts_of, team=team, check_lock=guard)


def check_same_data(config: dict, workdir: epath.Path) -> None:
    """Refuses the data of other places than a run that is done had, if they are others.

    Where data lies is no part of a run's identity, which gives it its folder.
    """
    kept = files.read_json(workdir / "config.json", dict, "name another --workdir")
    places = [{**one, "run": None} for one in (kept, config)]
    if places[0] == places[1]:
        return
    _, train, opened, _ = _open_sets(config)
    now = {name: one.fingerprint for name, one in {**train, **opened}.items()}
    told = workdirs.provenance(workdir).get("data") or {}
    then = {name: of.get("fingerprint") for name, of in told.items()}
    if then and (found := jc.diff({"data": then}, {"data": now})):
        raise ValueError(
            f"workdir: {workdir} is done, with other data (then != now): "
            f"{'; '.join(found)}; name another --workdir"
        )


def _check_alike(team: teams.ProcessGroup, facts: dict) -> None:
    """Refuses processes that found other images or code than the first."""
    first, *others = team.all_gather("the data", workdirs.data_identity(facts))
    for number, other in enumerate(others, 1):
        if found := jc.diff(first, other):
            raise ValueError(
                f"processes: process 0 and process {number} of {team.count} found "
                f"different data or code ({'; '.join(found)}); give all the same files"
            )


def _layout(stages: list, devices: jax.sharding.Mesh, strategy: str) -> dict:
    """What the numbers depend on of how the seeds lie: only stacked ones see others."""
    layout = {"spread": devices.shape["seed"], "devices": devices.size}
    if seed_axis.resolve_strategy(strategy, devices).stacked:
        layout["strategy"] = strategy
        layout["waves"] = [stage.layout.waves for stage in stages]
    return layout


def _open_sets(config: dict) -> tuple[list[splits.TrainSet], dict, dict, dict]:
    """Each stage's training set, all sources of these, those to evaluate on, and how."""
    train_sets = [
        splits.train_set(
            f"config.stages[{number}].train" if number else "config.train",
            part["train"],
            config["size"],
        )
        for number, part in enumerate(jc.stage_configs(config))
    ]
    train = {
        name: source
        for number, train_set in enumerate(train_sets)
        for name, source in train_set.named(number).items()
    }
    opened, answers = {}, {}
    for name, options in {results.VALID: config["valid"], **config["tests"]}.items():
        where = f"config.tests.{name}" if name in config["tests"] else "config.valid"
        opened[name] = splits.open_test_source(where, options, config["size"])
        answers[name] = splits.class_map(
            where, options, opened[name], train["train/0"], config["aggregate"]
        )
    return train_sets, train, opened, answers


def _streamed(config: dict, train_sets: list[splits.TrainSet]) -> dict[str, str]:
    """Which training sets are read from their files while training, and how."""
    return {
        name: plan.description
        for number, (part, train) in enumerate(
            zip(jc.stage_configs(config), train_sets)
        )
        for plan in input_plan.plan_inputs(number, part, train).values()
        if plan.stream
        for name in plan.opened
    }


def _initial_nets(
    config: dict, workdir: epath.Path, follows: bool
) -> tuple[list | None, str | None]:
    """The nets to start from and their digest; a run under way needs them no more."""
    if not config["init"]:
        return None, None
    if follows or checkpoints.steps(workdir / "checkpoints"):
        return None, workdirs.provenance(workdir).get("init")
    given = checkpointing.load_initial_nets(config["init"], config["seeds"])
    return given, trained.weights_digest(given)


def check_leaks(
    train: Mapping[str, base.Source], watched: Mapping[str, base.Source], say: Callable
) -> None:
    """Refuses a set that is validated or tested on and the same as a training set."""
    seen = {}
    for name, source in {**train, **watched}.items():
        other = seen.setdefault(source.fingerprint, name)
        if name in watched and other in train:
            raise ValueError(
                f"config: {name} is the training set {source.name} itself; choose "
                "another split"
            )
        if other != name and name in watched:
            say(f"note: {name} and {other} are the same images")
