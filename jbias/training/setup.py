"""Open and check the data, networks and workdir of a run, and write its provenance."""

import collections
import functools
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from etils import epath

from jbias import build, data, errors, evals, extensions, run_spec, seals
from jbias import config as jc
from jbias.data import base, class_maps, config_sets, loader
from jbias.models import trained
from jbias.runs import checkpoints, costs, loggers, record_store, results, workdirs
from jbias.runtime import cuda_graphs, files, mesh, messages, xla
from jbias.runtime import processes as teams
from jbias.training import (
    decision_writer,
    evaluator,
    experiment,
    initial_nets,
    input_plan,
    monitoring,
    observers,
    optim,
    placement,
    run_costs,
    run_log,
    schedule,
    stages,
    stopping,
    store,
    strategies,
)
from jbias.training import step as train_step
from jbias.training.averaging import averages
from jbias.training.tuning import memory_estimate, profiling, strategy_choice


def check_names(spec: run_spec.RunSpec, *, run_code: bool = True) -> None:
    """Raise ValueError for unknown names in a config, before data sets are opened.

    run_code: True: import the user's files and require installed packages. False: check the
      form of names only, for a run that is listed or trains on another machine.
    """
    for stage in (stage for branch in spec.branches for stage in branch.stages):
        _check_names(stage, run_code)
    for _, where, options in test_options(spec.config):
        _check_set(where, options, run_code)
        for name in options.get("measures", ()):
            check_measure = evals.find_measure if run_code else evals.check_measure
            check_measure(name, f"{where}.measures")
    errors.check_known(
        "config.aggregate", spec.config["aggregate"], class_maps.AGGREGATES
    )
    loggers.check(spec.run.write, spec.run.wandb, packages=run_code)
    costs.parse_energy("config.run.energy", spec.run.energy)


def _check_names(stage: run_spec.StageSpec, run_code: bool) -> None:
    """Raise ValueError for unknown names in a stage; run_code: see `check_names`.

    Names of the algorithm, model, optimiser, schedule, transforms and data sets are checked.
    """
    check_name = build.lookup if run_code else build.check_name
    config, where = stage.config, stage.where
    check_name(f"{where}.algo", config["algo"], build.ALGORITHMS)
    check_name(f"{where}.model", config["model"], build.MODELS)
    check_name(f"{where}.optim", config["optim"], optim.OPTIMISERS)
    rate_schedule = config["optim"]["schedule"]
    check_name(f"{where}.optim.schedule", rate_schedule, optim.SCHEDULES)
    averages.check_name(f"{where}.optim.average", config["optim"].get("average", 0.0))
    for i, transform in enumerate(config["inputs"]):
        check_name(f"{where}.inputs[{i}]", transform, build.TRANSFORMS)
    train = config["train"]
    for set_options in (train, train.get("other") or {}, *train.get("also", ())):
        _check_set(f"{where}.train", set_options, run_code)


def _check_set(where: str, options: Mapping[str, Any], run_code: bool) -> None:
    """Raise ValueError if the options name an unknown data set.

    where: start of the error message. options: options of the set; `data` is not checked
    unless it is text. run_code: see `check_names`.
    """
    check_name = extensions.find if run_code else extensions.check_name
    name = options.get("data")
    if isinstance(name, str):
        check_name(where, name, data.REGISTRY, "data set")


class OpenedSets(NamedTuple):
    """The data sets of a run."""

    train: list[config_sets.TrainSet]  # One per stage.
    sources: dict[str, base.Source]  # All training sources, by name.
    tests: dict[str, base.Source]  # The sets to evaluate on, by name.
    class_maps: dict[
        str, class_maps.ClassMap
    ]  # From a network's classes to a test set's.


def open_train_sets(
    spec: run_spec.RunSpec,
    open_set: Callable[..., base.Source] = config_sets.open_source,
) -> list[config_sets.TrainSet]:
    """Return the training set of each stage; ValueError if a set cannot be opened.

    open_set: opens one data set, with the arguments of `config_sets.open_source`.
    """
    size = spec.config["size"]
    return [
        config_sets.train_set(
            f"{stage.where}.train", stage.config["train"], size, open_set
        )
        for stage in spec.stages
    ]


def test_options(config: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping]]:
    """Yield (name, place, options) of each data set to evaluate on.

    place: name of the entry in the config, such as "config.tests.cue". options: the entry.
    """
    yield results.VALID, "config.valid", config["valid"]
    for name, options in config["tests"].items():
        yield name, f"config.tests.{name}", options


def _open_sets(spec: run_spec.RunSpec) -> OpenedSets:
    """Return all data sets of a run, opened without reading images.

    ValueError if a set cannot be opened, or its classes do not fit the training set's.
    """
    config, train_sets, tests, class_maps = spec.config, open_train_sets(spec), {}, {}
    for name, where, options in test_options(config):
        tests[name] = config_sets.open_test_source(where, options, config["size"])
        class_maps[name] = config_sets.class_map(
            where,
            options,
            test=tests[name],
            train=train_sets[0].sources[0],
            aggregate=config["aggregate"],
        )
    sources = {}
    for number, train_set in enumerate(train_sets):
        sources |= train_set.named(number)
    return OpenedSets(train_sets, sources, tests, class_maps)


class OpenRun(NamedTuple):
    """A run whose data are open and whose programs are built; nothing is trained yet."""

    spec: run_spec.RunSpec
    stages: list[placement.PlacedStage]  # All stages of the run, on the devices.
    experiments: list[experiment.Experiment]  # One per stage.
    evaluator: evaluator.Evaluator
    store: store.RunStore
    monitor: monitoring.Monitor
    log: run_log.RunLog
    stop: stopping.AgreedStop
    group: teams.ProcessGroup
    seal: seals.Seal  # Seal of the run's checkpoints.
    initial_nets: list[initial_nets.Net] | None  # Nets to start from, one per seed.


def open_run(
    spec: run_spec.RunSpec,
    workdir: epath.Path,
    say: Callable[[str], None],
    *,
    team: teams.ProcessGroup = teams.ALONE,
    follows: bool = False,
    guard: Callable[[], None] = lambda: None,
    meter: costs.Stopwatch | None = None,
) -> OpenRun:
    """Open and check a run; nothing is trained.

    All data sets are opened and checked first, so that a wrong config fails immediately. Then
    process 0 writes config.json and provenance.json to the workdir, or evaluate.json if `follows`.

    say: receives log lines. team: the processes that train together; only process 0 writes.
    follows: whether another process trains the run and this process only evaluates the run; if so,
      no training images and no checkpoints are opened. guard: called before each write; raises
      OSError if another process owns the workdir. meter: counts the run's seconds per phase.

    ValueError if the config cannot be trained or its data cannot be opened, if memory is too
    small, and if the data differ from the data of the run's first start or between processes.
    OSError from `guard`.
    """
    eval_norm = _with_norms_as_begun(spec, workdir).run.eval_norm
    eval_norm = team.broadcast("batch norms of evaluations", eval_norm)
    if eval_norm != spec.run.eval_norm:
        spec = spec.with_run(eval_norm=eval_norm)
    config, run, is_main = spec.config, spec.run, team.is_main
    meter = meter or costs.Stopwatch()
    num_members = len(spec.members)
    devices = mesh.make(
        run.devices, num_members, spread=run.spread, together=run.together
    )
    sets = _open_sets(spec)
    sources = sets.sources
    check_leaks(sources, sets.tests, say)
    if config_sets.is_trained_on(config):
        say(
            "note: config.valid has images of config.train: its accuracy is that of training "
            "images, so take the last checkpoint (--step=latest) and the last evaluation "
            "(--selection=last_n:1), not the best"
        )
    plans = input_plan.plan_stages(spec.stages, sets.train)
    streamed = {
        name: plan.description
        for stage_plans in plans
        for plan in stage_plans.values()
        if plan.stream
        for name in plan.sources
    }
    resident = {}
    if not follows:
        resident = {
            name: source for name, source in sources.items() if name not in streamed
        }
    threads = stages.reader_options(run.loading, devices).threads
    hosts = team.all_gather("the hosts", socket.gethostname())
    images = loader.load_into_memory(
        resident,
        sets.tests,
        say,
        gib=run.loading.gib,
        threads=threads,
        # The maximum over machines, so that all processes keep the same sets in memory.
        sharing=max(collections.Counter(hosts).values()),
    )
    for name, description in streamed.items():
        source = sources[name]
        say(f"{name}: {len(source)} images of {source.name}, {description}")
    tests = [
        config_sets.test_set(name, test, sets.class_maps[name], images.get(name), say)
        for name, test in sets.tests.items()
    ]
    provenance_entries = {
        "config": config,
        "data": _describe_data(sets, streamed, tests),
        "own_code": build.user_file_digests(config),
        "init": None,
    }
    imports = extensions.import_digests(config)
    if imports:
        provenance_entries["own_imports"] = imports
    if spec.command:
        provenance_entries["command"] = spec.command
    if follows:
        built = stages.build_stages(spec, plans, None, devices)
        placed_stages = [_fit_for_evaluation(stage, devices) for stage in built]
    else:

        def build_on(devices: jax.sharding.Mesh) -> list[stages.Stage]:
            return stages.build_stages(spec, plans, images, devices)

        first_start = workdirs.provenance(workdir) if is_main else {}
        recorded = first_start.get("chosen") or first_start.get("layout")
        with meter.during("compiling"):
            placed = memory_estimate.fit_stages(
                build_on, num_members, run=run, say=say, all_min=team.all_min
            )
            choice = strategy_choice.choose_strategy(placed, recorded, say)
        devices, built = placed.devices, placed.stages
        placed_stages = placed.lay_out(choice["strategy"], say)
        provenance_entries["layout"] = _describe_layout(
            placed_stages, devices, choice["strategy"]
        )
        provenance_entries["layout"] |= _describe_folding(built, run.eval_norm)
        provenance_entries["chosen"] = choice
    _check_equal_data(team, provenance_entries)
    nets = None
    if is_main:
        nets, provenance_entries["init"] = _initial_nets(config, workdir, follows)
    guard()
    differing = []
    if is_main and follows:
        differing = workdirs.record_follower(
            workdir, provenance_entries, layout=_describe_folding(built, run.eval_norm)
        )
    elif is_main:
        differing = workdirs.record_run(workdir, spec, provenance_entries)

        def report_graphs(line: str) -> None:
            """Print and record that the capture of a step as a CUDA graph failed."""
            say(f"CUDA graphs: {line}")
            workdirs.record_graphs(workdir, line)

        cuda_graphs.set_listener(report_graphs)
    if differing:
        text = "this start differs from the first, equal only within tolerance: "
        say(text + "; ".join(differing))
    records = record_store.RecordStore(
        workdir,
        spec.branches if is_main else (),
        say,
        check_lock=guard,
        follower=follows,
    )
    members = tuple(member.name for member in spec.members)
    data_identity = workdirs.data_identity(provenance_entries)
    seal = seals.Seal(
        config=config,
        data={key: data_identity[key] for key in ("data", "own_code")},
        members=members,
        runs=[branch.fields["run"] for branch in spec.branches],
        last_steps=[stage.last for stage in built],
    )
    checkpoint_store = None
    if not follows:
        records.add_facts()
        checkpoint_store = checkpoints.CheckpointStore(
            workdir / "checkpoints",
            team,
            keep=run.keep,
            valid_at=functools.partial(record_store.validation_at, workdir),
            seal=seal.to_json(),
            differences=lambda info: (
                seal.differences(info) or records.contradictions(info)
            ),
        )
    monitor, stop = monitoring.Monitor(members), stopping.AgreedStop(team)
    run_costs_writer = run_costs.RunCosts(
        spec, workdir, group=team, devices=devices, meter=meter
    )
    run_observers = observers.Observers(
        spec,
        workdir,
        say,
        group=team,
        billed=run_costs_writer.billed,
        total=built[-1].last,
        monitor=monitor,
        check_lock=guard,
    )
    log = run_log.RunLog(
        spec,
        say,
        total=built[-1].last,
        monitor=monitor,
        meter=meter,
        observers=run_observers,
    )
    run_evaluator = evaluator.Evaluator(
        spec,
        tests,
        devices=devices,
        group=team,
        stop=stop,
        monitor=monitor,
        epochs=[_epochs(stage) for stage in built],
        say=say,
    )
    run_store = store.RunStore(
        spec,
        workdir,
        group=team,
        checkpoints=checkpoint_store,
        records=records,
        decisions=decision_writer.DecisionWriter(
            spec, workdir, group=team, records=records, check_lock=guard
        ),
        costs=run_costs_writer,
        monitor=monitor,
        log=log,
        check_lock=guard,
    )
    profiler = None
    if run.profile and is_main:
        profiler = profiling.Profiler(workdir, say)
    experiments = [
        experiment.Experiment(
            placed_stage,
            _schedule(config, placed_stage.stage, built[-1].last),
            evaluator=run_evaluator,
            group=team,
            stop=stop,
            log=log,
            monitor=monitor,
            steps_per_dispatch=run.steps_per_dispatch,
            profiler=profiler,
        )
        for placed_stage in placed_stages
    ]
    return OpenRun(
        spec=spec,
        stages=placed_stages,
        experiments=experiments,
        evaluator=run_evaluator,
        store=run_store,
        monitor=monitor,
        log=log,
        stop=stop,
        group=team,
        seal=seal,
        initial_nets=nets,
    )


def _schedule(
    config: Mapping[str, Any], stage: stages.Stage, total: int
) -> schedule.Schedule:
    """Return the schedule of a built stage; total: the run's last step."""
    return schedule.of_stage(
        config,
        first=stage.first,
        last=stage.last,
        steps_per_epoch=stage.order.steps_per_epoch,
        total=total,
    )


def _epochs(stage: stages.Stage) -> float:
    """Return the length of a stage in epochs."""
    return (stage.last - stage.first) / stage.order.steps_per_epoch


def _fit_for_evaluation(
    stage: stages.Stage, devices: jax.sharding.Mesh
) -> placement.PlacedStage:
    """Return the stage placed on `devices` for evaluation only.

    The networks that are on a device at the same time fill at most half of the device's free memory
    (`memory_estimate.free_bytes`); at least one network is placed. If the free memory is unknown,
    all networks are on the devices at the same time.
    """
    together, free = 0, memory_estimate.free_bytes(devices)
    if free is not None:  # Else all nets are on the devices at the same time.
        net_bytes = memory_estimate.tree_bytes(train_step.net_of(stage.state_shape))
        together = max(1, free // 2 // net_bytes) * devices.shape["seed"]
    return placement.fit_to_devices(stage, devices, together=together)


def _with_norms_as_begun(
    spec: run_spec.RunSpec, workdir: epath.Path
) -> run_spec.RunSpec:
    """Return the spec, with eval_norm "auto" replaced if an earlier start used exact norms.

    The new value is "exact". Otherwise the spec is returned unchanged. All evaluations of a run
    with eval_norm "auto" thus use the same kind of batch norm. Without this rule, a later start, or
    a process that follows the run, could choose a different kind on different devices.
    """
    layout = workdirs.provenance(workdir).get("layout")
    is_auto = spec.run.eval_norm == "auto"
    if not is_auto or layout is None or "folded_norms" in layout:
        return spec
    if workdirs.never_ran(workdir):  # A refused first start evaluated nothing.
        return spec
    return spec.with_run(eval_norm="exact")


def _describe_data(
    sets: OpenedSets, streamed: Mapping[str, str], tests: Iterable[config_sets.TestSet]
) -> dict[str, dict[str, Any]]:
    """Return the entries of provenance.json about each data set, by name of the set.

    An entry is the result of `config_sets.describe`; "preprocessing" is replaced for a streamed
    set. Entries of `tests` also have "scored" (number of images), "decision" (description of the
    class map) and, if the class map has a digest, "answers" (this digest).

    sets: the opened data sets. streamed: descriptions of the streamed sets, by name. tests: the
    sets to evaluate on.
    """
    all_sets = {**sets.sources, **sets.tests}
    entries = {name: config_sets.describe(source) for name, source in all_sets.items()}
    for name, description in streamed.items():
        entries[name]["preprocessing"] = description
    for test in tests:
        class_map, entry = sets.class_maps[test.name], entries[test.name]
        entry["scored"] = len(test.images)
        entry["decision"] = class_map.description
        if class_map.digest:
            entry["answers"] = class_map.digest
    return entries


def check_same_code(spec: run_spec.RunSpec, workdir: epath.Path) -> None:
    """Raise ValueError if the user's own code has changed since the run began.

    Nothing is checked if the run used no such code.
    """
    if workdirs.provenance(workdir).get("own_code"):
        digests = build.user_file_digests(spec.config)
        imports = extensions.import_digests(spec.config)
        workdirs.check_own_code(workdir, {**digests, **imports})


def check_same_data(spec: run_spec.RunSpec, workdir: epath.Path) -> None:
    """Raise ValueError if a finished run was trained on other data than the config names.

    The default workdir is named by the run's identity, which leaves out the paths of data,
    so two configs with different data may have the same workdir. The data are not opened if
    both configs are equal, apart from "run". No error if the run has no record of its data.
    """
    config = files.read_json(workdir / "config.json", dict, "name another --workdir")
    if {**config, "run": None} == {**spec.config, "run": None}:
        return
    sets = _open_sets(spec)
    all_sets = {**sets.sources, **sets.tests}
    fingerprints = {name: source.fingerprint for name, source in all_sets.items()}
    data = workdirs.provenance(workdir).get("data") or {}
    recorded = {name: entry.get("fingerprint") for name, entry in data.items()}
    differing = jc.diff({"data": recorded}, {"data": fingerprints})
    if recorded and differing:
        raise ValueError(
            f"workdir: {workdir} is done, with other data (then != now): "
            f"{messages.join_differences(differing)}; name another --workdir"
        )


def _check_equal_data(
    team: teams.ProcessGroup, provenance_entries: dict[str, Any]
) -> None:
    """Raise ValueError if a process has images or code that differ from those of process 0.

    team: the processes that train together. provenance_entries: entries of provenance.json
    in this process; only digests of data and code are compared.
    """
    first, *later = team.all_gather(
        "the data", workdirs.data_identity(provenance_entries)
    )
    for number, other in enumerate(later, 1):
        differing = jc.diff(first, other)
        if differing:
            raise ValueError(
                f"processes: process 0 and process {number} of {team.count} found "
                f"different data or code ({messages.join_differences(differing)}); give "
                "all the same files"
            )


def _describe_folding(
    built_stages: Sequence[stages.Stage], eval_norm: str
) -> dict[str, int]:
    """Return {"folded_norms": number of batch norms that evaluations fold}, or {} if 0.

    The number is the largest of all stages. eval_norm: config.run.eval_norm.
    """
    norms = [
        stage.foldable_norms for stage in built_stages if stage.folds_norms(eval_norm)
    ]
    return {"folded_norms": max(norms)} if norms else {}


def _describe_layout(
    placed_stages: Sequence[placement.PlacedStage],
    devices: jax.sharding.Mesh,
    strategy: str,
) -> dict[str, Any]:
    """Return the layout of the seeds on the devices, by name, for the provenance.

    Only entries that records depend on: "spread", "devices", on a GPU "graphs", and for
    stacked seeds "strategy" and "waves". The results of seeds that are not stacked do not
    depend on the other seeds.
    """
    layout = {"spread": devices.shape["seed"], "devices": devices.size}
    if strategies.resolve_strategy(strategy, devices).stacked:
        layout["strategy"] = strategy
        layout["waves"] = [placed.layout.waves for placed in placed_stages]
    if xla.platform() == "gpu":
        layout["graphs"] = cuda_graphs.describe(devices.size)
    return layout


def _initial_nets(
    config: dict[str, Any], workdir: epath.Path, follows: bool
) -> tuple[list[initial_nets.Net] | None, str | None]:
    """Return the networks of config.init, one per seed, and the digest of their weights.

    The networks are None if they are not needed: without config.init, in a run that has
    checkpoints, and if this process `follows` a run. In a run that has checkpoints or is
    followed, the digest is read from provenance.json. Without config.init both are None.
    """
    if not config["init"]:
        return None, None
    if follows or checkpoints.steps(workdir / "checkpoints"):
        return None, workdirs.provenance(workdir).get("init")
    seeds = [config.get("fix", {}).get("init", seed) for seed in config["seeds"]]
    nets = initial_nets.load_initial_nets(config["init"], seeds)
    return nets, trained.weights_digest(nets)


def check_leaks(
    train: Mapping[str, base.Source],
    evaluated: Mapping[str, base.Source],
    say: Callable[[str], None],
) -> None:
    """Raise ValueError if a validation or test set has the fingerprint of a training set.

    train, evaluated: data sets by name. say: receives a note for each evaluation set that
    equals an earlier one.
    """
    first_names = {}  # By fingerprint.
    for name, source in {**train, **evaluated}.items():
        first_name = first_names.setdefault(source.fingerprint, name)
        if name in evaluated and first_name in train:
            raise ValueError(
                f"config: {name} is the training set {source.name} itself; choose "
                "another split"
            )
        if first_name != name and name in evaluated:
            say(f"note: {name} and {first_name} are the same images")
