"""Opens and checks all that a run needs, and notes in its workdir what it is."""

import collections
import dataclasses
import functools
import operator
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
from etils import epath

from jbias import build, data, evals, extensions, run_spec, seals
from jbias import config as jc
from jbias.data import base, labels, loader, splits
from jbias.models import trained
from jbias.runs import checkpoints, costs, evaluations, loggers, results, workdirs
from jbias.runtime import console, files, mesh, messages, xla
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


def check_names(spec: run_spec.RunSpec, *, run_code: bool = True) -> None:
    """Raise ValueError for names of nothing that is known: to open sets may take minutes.

    run_code: whether files of a user that are named may be run, and packages must be
    installed: not where a run is only listed, or trains on another machine.
    """
    run, formats = spec.config["run"], console.LOG_FORMATS
    seed_axis.check_strategy(run["strategy"])
    for stage in (stage for branch in spec.branches for stage in branch.stages):
        _check_names(stage, run_code)
    for _, where, options in test_options(spec.config):
        _check_set(where, options, run_code)
        for name in options.get("measures", ()):
            check_measure = evals.find_measure if run_code else evals.check_measure
            check_measure(name, f"{where}.measures")
    jc.check_known("config.aggregate", spec.config["aggregate"], labels.AGGREGATES)
    if (form := run.get("log", formats[0])) not in formats:
        jc.refuse("config.run.log", f"be one of {', '.join(formats)}", form)
    loggers.check(run, packages=run_code)
    checkpointing.energy(spec.config)


def _check_names(stage: run_spec.StageSpec, run_code: bool) -> None:
    check_name = build.lookup if run_code else build.check_name
    _, place, config = stage
    train, chosen = config["train"], config["optim"]
    for where, options, names in (
        ("algo", config["algo"], build.ALGORITHMS),
        ("model", config["model"], build.MODELS),
        ("optim", chosen, optim.OPTIMISERS),
        ("optim.schedule", chosen["schedule"], optim.SCHEDULES),
        *(
            (f"inputs[{i}]", x, build.TRANSFORMS)
            for i, x in enumerate(config["inputs"])
        ),
    ):
        check_name(f"{place}.{where}", options, names)
    for one in (train, train.get("other") or {}, *train.get("also", ())):
        _check_set(f"{place}.train", one, run_code)


def _check_set(where: str, options: Mapping[str, Any], run_code: bool) -> None:
    check_name = extensions.find if run_code else extensions.check_name
    if isinstance(name := options.get("data"), str):
        check_name(where, name, data.REGISTRY, "data set")


class OpenedSets(NamedTuple):
    """The sets of a run: each stage's to train on, and those to evaluate on, by name."""

    train: list[splits.TrainSet]
    sources: dict[str, base.Source]  # All that is trained on, by name.
    tests: dict[str, base.Source]
    answers: dict[str, labels.ClassMap]  # How a network answers each of these.


def open_train_sets(
    spec: run_spec.RunSpec, opened: Callable[..., base.Source] = splits.open_source
) -> list[splits.TrainSet]:
    """Each stage's training set; `opened` is as for `splits.train_set`."""
    size = spec.config["size"]
    return [
        splits.train_set(f"{stage.where}.train", stage.config["train"], size, opened)
        for stage in spec.stages
    ]


def test_options(config: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping]]:
    """Name, place and options of each set to evaluate on."""
    yield results.VALID, "config.valid", config["valid"]
    for name, options in config["tests"].items():
        yield name, f"config.tests.{name}", options


def _open_sets(spec: run_spec.RunSpec) -> OpenedSets:
    config, train, tests, answers = spec.config, open_train_sets(spec), {}, {}
    for name, where, options in test_options(config):
        tests[name] = splits.open_test_source(where, options, config["size"])
        of = (tests[name], train[0].sources[0], config["aggregate"])
        answers[name] = splits.class_map(where, options, *of)
    named = (one.named(number) for number, one in enumerate(train))
    return OpenedSets(train, functools.reduce(operator.or_, named), tests, answers)


def open_run(
    spec: run_spec.RunSpec,
    workdir: epath.Path,
    say: Callable,
    *,
    team: teams.ProcessGroup = teams.ALONE,
    follows: bool = False,
    guard: Callable[[], None] = lambda: None,
    meter: costs.Stopwatch | None = None,
) -> RunContext:
    """Opens every set before anything is trained, so that bad input costs nothing.

    A job that `follows` another process's run has neither training images nor
    checkpoints to write; ValueError where it finds other data than that run, or than
    the other processes of its team, of which the first alone writes. `guard` is called
    before anything is written; OSError where the workdir is another's by now. `meter`
    counts the run's seconds; the steps that are compiled here count as compiling.
    """
    spec = _with_norms_as_begun(spec, workdir)
    config, run, main = spec.config, spec.config["run"], team.is_main
    meter = meter or costs.Stopwatch()
    count = len(spec.members)
    devices = mesh.make(run["devices"], count, run["spread"], run["together"])
    sets = _open_sets(spec)
    train = sets.sources
    check_leaks(train, sets.tests, say)
    plans = input_plan.plan_stages(spec.stages, sets.train)
    streams = (one for stage in plans for one in stage.values() if one.stream)
    streamed = {name: one.description for one in streams for name in one.opened}
    kept = train.keys() - ({*train} if follows else {*streamed})
    held = {name: one for name, one in train.items() if name in kept}
    threads = stages.reader_options(run["loading"], devices).threads
    hosts = team.all_gather("the hosts", socket.gethostname())
    images = loader.load_into_memory(
        held,
        sets.tests,
        say,
        gib=run["loading"]["gib"],
        threads=threads,
        # The most of any machine: all processes keep the same sets, or one would wait.
        sharing=max(collections.Counter(hosts).values()),
    )
    for name, how in streamed.items():
        say(f"{name}: {len(train[name])} images of {train[name].name}, {how}")
    tests = [
        splits.test_set(name, test, sets.answers[name], images.get(name), say)
        for name, test in sets.tests.items()
    ]
    facts = {
        "config": config,
        "data": _describe_data(sets, streamed, tests),
        "own_code": build.user_file_digests(config),
        "init": None,
    }
    imports = extensions.import_digests(config)
    if imports:
        facts["own_imports"] = imports
    if spec.command:
        facts["command"] = spec.command
    if follows:
        built = stages.build_stages(spec, plans, None, devices)
    else:
        build_on = functools.partial(stages.build_stages, spec, plans, images)
        if xla.platform() == "gpu" and xla.graph_failure():
            say(f"CUDA graphs: {xla.describe_graphs()}")
        before = workdirs.provenance(workdir) if main else {}
        before = before.get("chosen") or before.get("layout")
        with meter.during("compiling"):
            placed = memory.fit_stages(build_on, count, run, say, team.all_min)
            chosen = autotune.choose_strategy(placed, before, say)
        devices, built = placed.devices, placed.lay_out(chosen["strategy"], say)
        facts["layout"] = _layout(built, devices, chosen["strategy"])
        facts["layout"] |= _folding(built, run)
        facts["chosen"] = chosen
    _check_alike(team, facts)
    nets = None
    if main:
        nets, facts["init"] = _initial_nets(config, workdir, follows)
    guard()
    differing = []
    if main and follows:
        differing = workdirs.record_follower(
            workdir, facts, layout=_folding(built, run)
        )
    elif main:
        differing = workdirs.record_run(workdir, spec, facts)
    if differing:
        text = "this start differs from the first, equal only within tolerance: "
        say(text + "; ".join(differing))
    options = dict(check_lock=guard, follower=follows)
    written = spec.branches if main else ()
    records = evaluations.RecordStore(workdir, written, say, **options)
    members = tuple(member.name for member in spec.members)
    data_identity = workdirs.data_identity(facts)
    seal = seals.Seal(
        config=config,
        data={key: data_identity[key] for key in ("data", "own_code")},
        members=members,
        runs=[branch.fields["run"] for branch in spec.branches],
        last_steps=[stage.last for stage in built],
    )
    store = None
    if not follows:
        records.add_facts()
        store = checkpoints.CheckpointStore(
            workdir / "checkpoints",
            team,
            keep=run["keep"],
            valid_at=functools.partial(evaluations.validation_at, workdir),
            seal=seal.to_json(),
            differences=lambda info: (
                seal.differences(info) or records.contradictions(info)
            ),
        )
    monitor = divergence.Monitor(members)
    parts = (devices, tests, built, store, records, monitor, seal, nets)
    return RunContext(
        spec, workdir, say, *parts, team=team, check_lock=guard, meter=meter
    )


def _with_norms_as_begun(
    spec: run_spec.RunSpec, workdir: epath.Path
) -> run_spec.RunSpec:
    """Return the run with the exact batch norms that its first evaluations had.

    By itself (`eval_norm` "auto") a run does not change in the middle of its curve, whichever
    device or version it began on; nor does a follower evaluate otherwise than its trainer.
    """
    run, layout = spec.config["run"], workdirs.provenance(workdir).get("layout")
    norms = run.get("eval_norm", run_spec.EVAL_NORMS[0])
    if norms != run_spec.EVAL_NORMS[0] or layout is None or "folded_norms" in layout:
        return spec
    config = {**spec.config, "run": {**run, "eval_norm": "exact"}}
    return dataclasses.replace(spec, config=config)


def _describe_data(
    sets: OpenedSets, streamed: Mapping[str, str], tests: Iterable[splits.TestSet]
) -> dict[str, dict[str, Any]]:
    """What provenance says of each set."""
    every = {**sets.sources, **sets.tests}
    found = {name: splits.describe(one) for name, one in every.items()}
    for name, how in streamed.items():
        found[name]["preprocessing"] = how
    for test in tests:
        rule = sets.answers[test.name]
        found[test.name].update(scored=len(test.images), decision=rule.description)
        if rule.digest:
            found[test.name]["answers"] = rule.digest
    return found


def check_same_code(spec: run_spec.RunSpec, workdir: epath.Path) -> None:
    """Raise ValueError where the user's own code has changed since the run began."""
    if workdirs.provenance(workdir).get("own_code"):
        digests = build.user_file_digests(spec.config)
        imports = extensions.import_digests(spec.config)
        workdirs.check_own_code(workdir, {**digests, **imports})


def check_same_data(spec: run_spec.RunSpec, workdir: epath.Path) -> None:
    """Refuses the data of other places than a run that is done had, if they are others.

    Where data lies is no part of a run's identity, which gives it its folder.
    """
    kept = files.read_json(workdir / "config.json", dict, "name another --workdir")
    if {**kept, "run": None} == {**spec.config, "run": None}:
        return
    sets = _open_sets(spec)
    now = {name: x.fingerprint for name, x in {**sets.sources, **sets.tests}.items()}
    data = workdirs.provenance(workdir).get("data") or {}
    then = {name: one.get("fingerprint") for name, one in data.items()}
    if then and (differing := jc.diff({"data": then}, {"data": now})):
        raise ValueError(
            f"workdir: {workdir} is done, with other data (then != now): "
            f"{messages.join_differences(differing)}; name another --workdir"
        )


def _check_alike(team: teams.ProcessGroup, facts: dict) -> None:
    """Refuses processes that found other images or code than the first."""
    first, *others = team.all_gather("the data", workdirs.data_identity(facts))
    for number, other in enumerate(others, 1):
        if found := jc.diff(first, other):
            raise ValueError(
                f"processes: process 0 and process {number} of {team.count} found "
                f"different data or code ({messages.join_differences(found)}); give all the same files"
            )


def _folding(stages: list, run: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of batch norms that evaluations fold; empty where none is folded."""
    norms = [stage.foldable_norms for stage in stages if stage.folds_norms(run)]
    return {"folded_norms": max(norms)} if norms else {}


def _layout(stages: list, devices: jax.sharding.Mesh, strategy: str) -> dict:
    """What the numbers depend on of how the seeds lie: only stacked ones see others."""
    layout = {"spread": devices.shape["seed"], "devices": devices.size}
    if seed_axis.resolve_strategy(strategy, devices).stacked:
        layout["strategy"] = strategy
        layout["waves"] = [stage.layout.waves for stage in stages]
    if xla.platform() == "gpu":
        layout["graphs"] = xla.describe_graphs()
    return layout


def _initial_nets(config: dict, workdir: epath.Path, follows: bool) -> tuple:
    """The nets to start from and their digest; a run under way needs them no more."""
    if not config["init"]:
        return None, None
    if follows or checkpoints.steps(workdir / "checkpoints"):
        return None, workdirs.provenance(workdir).get("init")
    seeds = [config.get("fix", {}).get("init", seed) for seed in config["seeds"]]
    given = checkpointing.load_initial_nets(config["init"], seeds)
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
