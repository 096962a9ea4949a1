"""Trains all seeds of a config, evaluates and saves in its cadence, survives kills.

`build` makes what the config names; this is the loop. Started again with the same
config, a run goes on where its latest whole checkpoint stands.
"""

import contextlib
import dataclasses
import itertools
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath
from jax.sharding import NamedSharding, PartitionSpec

from jbias import build, checkpoint, console, evals, feed, mesh, results, seeds, watch
from jbias import config as jc
from jbias import workdir as workdirs
from jbias.evals import decisions, predict


class Interrupted(Exception):
    """The run was asked to stop; all that it did is saved."""


@dataclasses.dataclass
class _Run:
    """What stays the same in a run, and the few things that its loop changes."""

    config: dict[str, Any]
    workdir: epath.Path
    say: Callable[[str], None]
    devices: jax.sharding.Mesh
    tests: list[build.TestSet]
    stages: list[build.Stage]
    manager: ocp.CheckpointManager
    watch: watch.Watch
    best: dict[int, float] = dataclasses.field(default_factory=dict)
    records: list[results.Record] = dataclasses.field(default_factory=list)
    evaluated: int = -1  # The step that `records` and `valid` belong to.
    valid: dict[str, float] = dataclasses.field(default_factory=dict)
    saved: int = -1  # The latest step in the checkpoints,
    complete: bool = True  # and whether its evaluation, if one was due, is in there.
    note: str = ""
    stop: str = ""  # The signal's name once one has come.

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(self.config["seeds"])

    @property
    def name(self) -> str:
        return jc.run_name(self.config)


def run(config: Mapping[str, Any], workdir: epath.PathLike) -> bool:
    """Trains, evaluates and records; returns whether any seed stayed finite.

    ValueError where the config cannot be carried out, OSError where the disk cannot
    take it, Interrupted after SIGTERM or SIGINT; each loses nothing that was saved.
    """
    config = jc.plain(config)
    workdir = epath.Path(workdir).resolve()
    with workdirs.claim(workdir, config):
        say = console.logger(workdir)
        done = workdir / "done"
        if done.exists():
            say(f"{workdir} is done: nothing to do")
            return done.read_text().strip() != "diverged"
        job = _prepare(config, workdir, say)
        with _signals(job):
            _train(job)
        fate = "diverged" if job.watch.all_diverged else "finished"
        workdirs.write_text(done, fate + "\n")
        say(f"{fate}: {job.name} in {workdir}")
        return fate == "finished"


def _prepare(config: dict, workdir: epath.Path, say: Callable) -> _Run:
    """Opens every set before anything is trained, so that bad input costs nothing."""
    build.check_config(config)
    for cadence in ("eval_every", "save_every"):
        jc.steps(config[cadence], steps_per_epoch=1, total=1, where=f"config.{cadence}")
    for name in (results.TRAIN, results.VALID):
        if name in config["tests"] or any("/" in test for test in config["tests"]):
            raise ValueError(
                f"config.tests: names must not be {name!r} nor hold a slash, got "
                f"{', '.join(config['tests'])}; give the test sets other names"
            )
    devices = mesh.make(config["run"]["devices"])
    train = {
        f"train/{number}": build.source("config.train", part["train"], config["size"])
        for number, part in enumerate(jc.stages(config))
    }
    opened = {}
    for name, options in {results.VALID: config["valid"], **config["tests"]}.items():
        where = f"config.tests.{name}" if name in config["tests"] else "config.valid"
        opened[name] = build.source(where, options, config["size"])
    build.check_leaks(train, opened, say)
    everything = {**train, **opened}
    images = build.load_images(everything, say, **config["run"]["loading"])
    tests = [
        build.test_set(name, test, train["train/0"], images[name], say)
        for name, test in opened.items()
    ]
    stages = build.stages(
        config, [(source, images[name]) for name, source in train.items()], devices
    )
    sets = {name: build.describe(source) for name, source in everything.items()}
    for test in tests:
        sets[test.name]["scored"] = len(test.images)
    workdirs.record_config(workdir, config)
    facts = {"config": config, "data": sets, "own_code": build.own_code(config)}
    differing = workdirs.record_provenance(workdir, facts)
    if differing:
        say(
            "this start differs from the first, equal only within tolerance: "
            + "; ".join(differing)
        )
    manager = checkpoint.open(workdir / "checkpoints", keep=config["run"]["keep"])
    eyes = watch.Watch(tuple(config["seeds"]))
    return _Run(config, workdir, say, devices, tests, stages, manager, eyes)


@contextlib.contextmanager
def _signals(job: _Run) -> Iterator[None]:
    """Notes SIGTERM and SIGINT; the loop saves and leaves. A second one is fatal."""

    def note(number: int, frame: Any) -> None:
        del frame
        job.stop = signal.Signals(number).name
        signal.signal(number, signal.SIG_DFL)

    try:
        before = {s: signal.signal(s, note) for s in (signal.SIGTERM, signal.SIGINT)}
    except ValueError:
        yield  # Not the main thread: signals are the caller's affair.
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _train(job: _Run) -> None:
    restored = checkpoint.restore(
        job.manager, [_template(job, stage) for stage in job.stages], job.say
    )
    first, states = 0, None
    if restored is not None:
        states, info = restored
        first = info["stage"]
        _take_up(job, info)
    try:
        for stage in job.stages[first:]:
            if states is None or stage.number > first:
                job.best = {}
                states = _start(job, stage, states)
            states = _loop(job, stage, states)
            if job.watch.all_diverged:
                break
    finally:
        checkpoint.finish(job.manager)
    if job.watch.all_diverged:
        job.say(f"every seed diverged: {_fates(job)}; lower config.optim.rate")


def _template(job: _Run, stage: build.Stage) -> tuple:
    """Shapes and places of a stage's states, to read a checkpoint into."""
    shapes = jax.eval_shape(stage.draw, seeds.key(0), None)
    place = NamedSharding(job.devices, PartitionSpec())
    state = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
        shapes,
    )
    return (state,) * len(job.seeds)


def _start(job: _Run, stage: build.Stage, before: tuple | None) -> tuple:
    nets = [None] * len(job.seeds)
    if before is not None:
        nets = [{"params": s.params["net"], "stats": s.stats["net"]} for s in before]
    states = [build.start(stage, seed, net) for seed, net in zip(job.seeds, nets)]
    return mesh.replicate(tuple(states), job.devices)


def _take_up(job: _Run, info: dict[str, Any]) -> None:
    """Goes on from a checkpoint; puts its evaluation beside if a kill came between."""
    step = job.saved = info["step"]
    job.watch.load(info["watch"])
    job.best = {int(seed): value for seed, value in info["best"].items()}
    job.say(f"resuming {job.name} at step {step}/{job.stages[-1].last}")
    job.complete = bool(info["records"])
    if info["records"]:
        job.evaluated, path = step, _records_path(job, step)
        if not path.exists():
            results.write(path, results.loads(info["records"], where=str(path)))


def _loop(job: _Run, stage: build.Stage, states: tuple) -> tuple:
    """Steps, evaluates and saves until the stage ends; returns the states."""
    config, last = job.config, stage.last
    cadence = {
        "steps_per_epoch": stage.order.steps_per_epoch,
        "total": job.stages[-1].last,
    }
    eval_every = jc.steps(config["eval_every"], **cadence)
    save_every = jc.steps(config["save_every"], **cadence)
    keys = tuple(seeds.key(seed) for seed in job.seeds)
    step = int(states[0].step)
    assert step <= last, f"step {step} lies beyond its stage's last, {last}"
    progress = console.Progress(
        job.say,
        total=job.stages[-1].last,
        done=step,
        steps_per_epoch=stage.order.steps_per_epoch,
        images_per_step=stage.order.batch * len(job.seeds),
        seconds=config["run"]["log_seconds"],
    )
    statics = set()
    with contextlib.closing(progress):
        while True:
            local = step - stage.first
            ended = step == last or job.watch.all_diverged
            measured = local and (ended or local % eval_every == 0)
            if measured:
                _settle(job)
            with progress.idle():
                if measured and step != job.evaluated and not job.stop:
                    _evaluate(job, stage, states, step)
                best = step == job.evaluated and _is_best(job)
                due = local and local % save_every == 0
                # A stop may have cut the evaluation of the step it saved off.
                again = best and step == job.saved and not job.complete
                if (ended or best or due or job.stop) and step > job.saved or again:
                    _save(job, stage, states, step)
            if job.stop:
                message = f"{job.stop} at step {step}: saved; the same command resumes"
                raise Interrupted(message)
            if ended:
                return states
            several = _steps_ahead(job, stage, step, (eval_every, save_every))
            static = stage.algo.static(step)
            args = [_arguments(job, stage, step + i, keys) for i in range(several)]
            new = static not in statics
            statics.add(static)
            with _announced(job, progress) if new else contextlib.nullcontext():
                states, seen = stage.advance(states, args, stage.data, static)
            for metrics in seen:
                step += 1
                _tell(job, job.watch.add(step, metrics))
            progress.update(step, _note(job), counted=not new)


def _steps_ahead(
    job: _Run, stage: build.Stage, step: int, cadences: tuple[int, ...]
) -> int:
    """How many steps to dispatch at once: up to the next event or change of program."""
    static = stage.algo.static(step)
    local = step - stage.first
    ends = [stage.last, *(stage.first + (local // c + 1) * c for c in cadences)]
    limit = min(*ends, step + job.config["run"]["steps_per_dispatch"])
    same = itertools.takewhile(
        lambda ahead: stage.algo.static(ahead) == static, range(step, limit)
    )
    return sum(1 for _ in same)


def _arguments(job: _Run, stage: build.Stage, step: int, keys: tuple) -> tuple:
    """Each seed's key and the examples of its batch."""
    index = tuple(stage.order.index(seed, step - stage.first) for seed in job.seeds)
    return tuple(zip(keys, mesh.split(index, job.devices), strict=True))


@contextlib.contextmanager
def _announced(job: _Run, progress: console.Progress) -> Iterator[None]:
    """Says that the step is being compiled, and how long until its first results."""
    began = time.monotonic()
    job.say(
        f"compiling {jc.algorithm(job.config)} for seeds "
        f"{', '.join(map(str, job.seeds))} ..."
    )
    yield
    progress.restart()
    job.say(f"compiled, first steps done in {time.monotonic() - began:.1f} s")


def _note(job: _Run) -> str:
    """What ends a line of progress."""
    loss = job.watch.latest
    return job.note if loss is None else f"loss {loss:.3f}{job.note}"


def _settle(job: _Run) -> None:
    _tell(job, job.watch.settle())


def _tell(job: _Run, diverged: list[int]) -> None:
    for seed in diverged:
        at = job.watch.diverged[seed]
        others = "no other is left" if job.watch.all_diverged else "the others go on"
        job.say(f"seed {seed} diverged: loss not finite at step {at}; {others}")


def _fates(job: _Run) -> str:
    return ", ".join(f"seed {k} at step {v}" for k, v in job.watch.diverged.items())


def _evaluate(job: _Run, stage: build.Stage, states: tuple, step: int) -> None:
    """Measures every seed on every set; leaves records and `valid` in the job."""
    began = time.monotonic()
    variables = tuple(
        {"params": s.params["net"], "stats": s.stats["net"]} for s in states
    )
    records = list(_train_records(job, stage, step))
    for test in job.tests:
        size = job.config["run"]["eval_batch"]
        predicted = predict.predict(
            stage.decide,
            variables,
            test.images,
            test.matrix,
            batches=feed.padded(len(test.images), size),
            put=lambda batch: mesh.split(batch, job.devices),
            halt=lambda: bool(job.stop),
        )
        if predicted is None:
            return  # Asked to stop; this evaluation is made again on resuming.
        by_seed = {
            seed: evals.Decisions(one, test.columns)
            for seed, one in zip(job.seeds, predicted)
        }
        records += _test_records(job, stage, step, test, by_seed)
        if job.config["run"]["decisions"]:
            name = f"decisions/{test.name}/{step}.parquet"
            decisions.write(job.workdir / name, by_seed)
    results.write(_records_path(job, step), records)
    job.records, job.evaluated = records, step
    job.valid = {
        str(r.seed): r.value
        for r in records
        if (r.dataset, r.metric, r.status) == (results.VALID, "accuracy", "ok")
    }
    job.watch.reset()
    job.note = f" valid {100 * _mean(job.valid.values()):.1f}"
    job.say(
        f"step {step}/{job.stages[-1].last}: {_summary(records)} "
        f"({time.monotonic() - began:.1f} s)"
    )


def _summary(records: list[results.Record]) -> str:
    """Accuracies in percent and shape biases, each a mean over the finite seeds."""
    cells = {}
    for r in records:
        if r.dataset != results.TRAIN and r.value is not None:
            cells.setdefault((r.dataset, r.metric), []).append(r.value)
    return ", ".join(
        f"{name} {100 * _mean(values):.1f}"
        if metric == "accuracy"
        else f"{metric.replace('_', ' ')} {_mean(values):.2f}"
        for (name, metric), values in cells.items()
    )


def _mean(values) -> float:
    values = list(values)
    return sum(values) / len(values) if values else float("nan")


def _record(job: _Run, stage: build.Stage, step: int, **fields: Any) -> results.Record:
    config = job.config
    epochs = [(s.last - s.first) / s.order.steps_per_epoch for s in job.stages]
    here = (step - stage.first) / stage.order.steps_per_epoch
    return results.Record(
        run=job.name,
        algorithm=jc.algorithm(config),
        variant=config["variant"],
        model=config["model"]["name"],
        train_data=jc.train_data(config),
        stage=stage.number,
        step=step,
        epoch=round(sum(epochs[: stage.number]) + here, 4),
        **{"condition": "", **fields},
    )


def _train_records(
    job: _Run, stage: build.Stage, step: int
) -> Iterator[results.Record]:
    """Mean losses since the evaluation before, or the step a seed diverged at."""
    for seed in job.seeds:
        common = {"seed": seed, "dataset": results.TRAIN}
        if seed in job.watch.diverged:
            yield _record(
                job,
                stage,
                step,
                **common,
                metric="diverged",
                value=job.watch.diverged[seed],
                status="diverged",
            )
            continue
        for name, value in job.watch.means(seed).items():
            yield _record(job, stage, step, **common, metric=name, value=value)


def _test_records(
    job: _Run, stage: build.Stage, step: int, test: build.TestSet, by_seed: Mapping
) -> Iterator[results.Record]:
    for seed, decided in by_seed.items():
        lost = seed in job.watch.diverged
        for measure in test.measures:
            for number in evals.MEASURES[measure](decided):
                fields = number._asdict()
                if lost:
                    fields.update(value=None, count=None, status="diverged")
                yield _record(job, stage, step, seed=seed, dataset=test.name, **fields)


def _records_path(job: _Run, step: int) -> epath.Path:
    return job.workdir / "evals" / f"{step}.jsonl"


def _is_best(job: _Run) -> bool:
    return any(
        value > job.best.get(int(seed), -1.0) for seed, value in job.valid.items()
    )


def _save(job: _Run, stage: build.Stage, states: tuple, step: int) -> None:
    _settle(job)
    here = step == job.evaluated
    if here:
        for seed, value in job.valid.items():
            job.best[int(seed)] = max(value, job.best.get(int(seed), -1.0))
    info = {
        "step": step,
        "stage": stage.number,
        "watch": job.watch.state(),
        "best": {str(seed): value for seed, value in job.best.items()},
        "records": results.dumps(job.records) if here else "",
    }
    valid = {f"{stage.number}/{seed}": value for seed, value in job.valid.items()}
    save = checkpoint.replace if step == job.saved else checkpoint.save
    save(job.manager, step, states, info, valid if here else None)
    job.saved, job.complete = step, here
