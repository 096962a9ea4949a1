"""Trains all seeds of a config, evaluates and saves in its cadence, survives kills.

`opening` makes what the config names; this is the loop. Started again with the same
config, a run goes on where its latest whole checkpoint stands.
"""

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Iterator, Mapping
from typing import Any

import jax
from etils import epath

from jbias import (
    build,
    checkpoint,
    checks,
    console,
    costs,
    observe,
    opening,
    profiling,
    results,
    seeds,
    warmstart,
)
from jbias import config as jc
from jbias import layout as layouts
from jbias import step as train_step
from jbias import workdir as workdirs
from jbias.job import Job

# What of config.run an evaluation depends on.
OBSERVED = ("eval_batch", "decisions")


class Interrupted(Exception):
    """The run was asked to stop; all that it did is saved."""


def run(config: Mapping[str, Any], workdir: epath.PathLike) -> bool:
    """Trains, evaluates and records; returns whether any seed stayed finite.

    ValueError where the config cannot be carried out, OSError where the disk cannot
    take it, Interrupted after SIGTERM or SIGINT; each loses nothing that was saved.
    """
    meter = costs.Meter()
    config = jc.plain(config)
    checks.whole(config)
    _energy(config)
    workdir = epath.Path(workdir).resolve()
    with workdirs.claim(workdir, config):
        say = console.logger(workdir)
        done = workdir / "done"
        if done.exists():
            say(f"{workdir} is done: nothing to do; another --workdir trains again")
            return done.read_text().strip() != "diverged"
        job = opening.job(config, workdir, say)
        job.meter = meter
        with _signals(job):
            _train(job)
        fate = "diverged" if job.watch.all_diverged else "finished"
        for folder in (*(b.folder for b in job.branches if b.folder), ""):
            workdirs.write_text(workdir / folder / "done", fate + "\n")
        cost = costs.words(_tell_cost(job))
        say(f"{fate}: {job.name} in {workdir}, {cost}")
        if config["vary"]:
            say(f"its branches side by side: python -m jbias.report --runs={workdir}")
        if left := [*observe.left(workdir)]:
            say(
                f"steps {', '.join(map(str, left))} are left to "
                f"python -m jbias.evaluate --follow={workdir}"
            )
        return fate == "finished"


@contextlib.contextmanager
def _signals(job: Job) -> Iterator[None]:
    """Notes SIGTERM and SIGINT; the loop saves and leaves. A second one is fatal."""

    def note(number: int, frame: Any) -> None:
        del frame
        job.stop = signal.Signals(number).name
        os.write(2, f"\n{job.stop}: saving after the steps under way ...\n".encode())
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


def _train(job: Job) -> None:
    restored = checkpoint.restore(
        job.manager,
        lambda number: build.template(job.stages[number], len(job.entries)),
        job.say,
    )
    first, packed, step = 0, None, 0
    if restored is not None:
        states, info = restored
        first, step = info["stage"], info["step"]
        packed = job.stages[first].layout.pack(states)
        del states, restored
        _take_up(job, info)
    try:
        for number in range(first, len(job.stages)):
            stage = job.stages[number]
            if packed is None or number > first:
                job.best, step = {}, stage.first
                packed = _start(job, stage, packed)
            packed = _loop(job, stage, packed, step)
            stage.close()
            if job.watch.all_diverged:
                break
    finally:
        for stage in job.stages:
            stage.close()
        checkpoint.finish(job.manager)
    if job.watch.all_diverged:
        job.say(f"every seed diverged: {_fates(job)}; lower config.optim.rate")


def _start(
    job: Job, stage: build.Stage, before: layouts.Packed | None
) -> layouts.Packed:
    nets = [None] * len(job.entries)
    if before is not None:
        layout = job.stages[stage.number - 1].layout
        nets = [train_step.net_of(state) for state in layout.unpack(before)]
    elif job.given:
        drawn = [train_step.net_of(build.start(stage, seed)) for seed in job.seeds]
        pairs = zip(drawn, job.given, strict=True)
        nets = [warmstart.grafted(*pair, job.say) for pair in pairs] * len(job.branches)
    return stage.layout.pack(
        build.start(stage, entry.seed, net)
        for entry, net in zip(job.entries, nets, strict=True)
    )


def _take_up(job: Job, info: dict[str, Any]) -> None:
    """Goes on from a checkpoint; puts its evaluation beside if a kill came between."""
    step = job.saved = info["step"]
    job.watch.load(info["watch"])
    job.best = info["best"]
    job.say(f"resuming {job.name} at step {step}/{job.stages[-1].last}")
    job.complete = bool(info["records"])
    if info.get("left") and (_elsewhere(job) or observe.written(job.workdir, step)):
        job.left = step
        job.watch.reset()
    if info["records"]:
        job.evaluated = step
        records = results.loads(info["records"], where=f"the checkpoint of step {step}")
        observe.write(job, step, records, again=False)


def _loop(
    job: Job, stage: build.Stage, states: layouts.Packed, step: int
) -> layouts.Packed:
    """Steps, evaluates and saves until the stage ends; returns the states."""
    config, last = job.config, stage.last
    cadence = {
        "steps_per_epoch": stage.order.steps_per_epoch,
        "total": job.stages[-1].last,
    }
    eval_every = jc.steps(config["eval_every"], **cadence)
    save_every = jc.steps(config["save_every"], **cadence)
    own = stage.layout.here(entry.own for entry in job.entries)
    assert step <= last, f"step {step} lies beyond its stage's last, {last}"
    progress = console.Progress(
        job.say,
        total=job.stages[-1].last,
        done=step,
        steps_per_epoch=stage.order.steps_per_epoch,
        images_per_step=stage.order.batch * len(job.entries),
        seconds=config["run"]["log_seconds"],
    )
    statics = set()
    with contextlib.closing(progress), job.meter.during("stepping"):
        while True:
            local = step - stage.first
            ended = step == last or job.watch.all_diverged
            measured = local and (ended or local % eval_every == 0)
            measured = measured and step not in (job.evaluated, job.left)
            if measured:
                _settle(job)
            with progress.idle(), job.meter.during("evaluating"):
                if measured and not _elsewhere(job) and not job.stop:
                    with _saved_first(job, stage, states, step):
                        observe.evaluate(job, stage, states, step)
                left = measured and step != job.evaluated
                best = step == job.evaluated and _is_best(job)
                due = local and local % save_every == 0
                # A stop may have cut the evaluation of the step it saved off.
                again = best and not job.complete or left and _elsewhere(job)
                again = again and step == job.saved
                due = due or left or ended or best or job.stop
                if due and step > job.saved or again:
                    _save(job, stage, states, step, left=left)
            if job.stop:
                message = f"{job.stop} at step {step}: saved; the same command resumes"
                raise Interrupted(message)
            if ended:
                return states
            several = _steps_ahead(job, stage, step, (eval_every, save_every))
            static = stage.static(step)
            with _saved_first(job, stage, states, step):
                if not _ready(job, stage, step, progress):
                    continue
                held = stage.held(step)
                args = [_arguments(job, stage, step + i, own) for i in range(several)]
            new = static not in statics
            statics.add(static)
            profiled = config["run"]["profile"] and not new and not job.profiled
            with _announced(job, progress) if new else contextlib.nullcontext():
                advance = _profiled(job, stage) if profiled else stage.advance
                states, seen = advance(states, args, held, static)
            del held  # Else the window is still there when the next is placed.
            for metrics in seen:
                step += 1
                _tell(job, job.watch.add(step, metrics, stage.layout.split))
            progress.update(step, _note(job), counted=not new)


def _ready(job: Job, stage: build.Stage, step: int, progress: console.Progress) -> bool:
    """Waits until the data of a step are there; False where a stop came before."""
    if stage.ready(step, lambda: True):
        return True
    first = step == stage.first or job.saved == step
    if first:
        job.say("reading the first window of the training set ...")
    with progress.idle() if first else contextlib.nullcontext():
        return stage.ready(step, lambda: bool(job.stop))


def _profiled(job: Job, stage: build.Stage) -> seeds.Advance:
    """Takes steps as the stage does, traced, and writes what they took."""

    def advance(states, args, held, static):
        jax.block_until_ready(states)
        folder = job.workdir / "profile"
        with profiling.traced(folder) as seconds:
            states, seen = stage.advance(states, args, held, static)
            jax.block_until_ready(states)
        page = profiling.page(
            folder,
            stage,
            (stage.layout.first(args[0]), held, static),
            steps=len(args),
            count=len(job.entries),
            seconds=seconds[0],
        )
        workdirs.write_text(job.workdir / "profile.md", page)
        job.say(f"profile of {len(args)} steps: {job.workdir / 'profile.md'}")
        job.profiled = True
        return states, seen

    return advance


def _steps_ahead(
    job: Job, stage: build.Stage, step: int, cadences: tuple[int, ...]
) -> int:
    """How many steps to dispatch at once: up to the next event or change of program."""
    static = stage.static(step)
    local = step - stage.first
    ends = [stage.last, *(stage.first + (local // c + 1) * c for c in cadences)]
    ends += [stage.until(step), step + job.config["run"]["steps_per_dispatch"]]
    limit = min(ends)
    same = itertools.takewhile(
        lambda ahead: stage.static(ahead) == static, range(step, limit)
    )
    return sum(1 for _ in same)


def _arguments(
    job: Job, stage: build.Stage, step: int, own: layouts.Packed
) -> layouts.Packed:
    """What each seed has of its own, and the examples of its batch."""
    taken = [stage.take(seed, step) for seed in job.seeds] * len(job.branches)
    placed = stage.layout.place(taken)
    return tuple(tuple(zip(*wave, strict=True)) for wave in zip(own, placed))


@contextlib.contextmanager
def _saved_first(job: Job, stage: build.Stage, states: tuple, step: int) -> Iterator:
    """Saves what was trained before an image that does not decode ends the run."""
    try:
        yield
    except ValueError as error:
        if step > max(job.saved, stage.first):
            _save(job, stage, states, step)
        raise ValueError(
            f"{error}; step {step} is saved: repair the file and the same command goes "
            "on; `python -m jbias.prepare check` names all that are damaged"
        ) from error


@contextlib.contextmanager
def _announced(job: Job, progress: console.Progress) -> Iterator[None]:
    """Says that the step is being compiled, and how long until its first results."""
    began = time.monotonic()
    job.say(
        f"compiling {jc.algorithm(job.config)} for seeds "
        f"{', '.join(map(str, job.seeds))}"
        + f", {len(job.branches)} branches of each" * (len(job.branches) > 1)
        + " ..."
    )
    with job.meter.during("compiling"):
        yield
    progress.restart()
    job.say(f"compiled, first steps done in {time.monotonic() - began:.1f} s")


def _note(job: Job) -> str:
    """What ends a line of progress."""
    loss = job.watch.latest
    return job.note if loss is None else f"loss {loss:.3f}{job.note}"


def _settle(job: Job) -> None:
    _tell(job, job.watch.settle())


def _tell(job: Job, diverged: list[int]) -> None:
    for seed in diverged:
        at = job.watch.diverged[seed]
        others = "no other is left" if job.watch.all_diverged else "the others go on"
        job.say(f"seed {seed} diverged: loss not finite at step {at}; {others}")


def _fates(job: Job) -> str:
    return ", ".join(f"seed {k} at step {v}" for k, v in job.watch.diverged.items())


def _is_best(job: Job) -> bool:
    return any(value > job.best.get(name, -1.0) for name, value in job.valid.items())


def _elsewhere(job: Job) -> bool:
    """Whether another process evaluates."""
    return job.config["run"]["evaluate"] == "elsewhere"


def _save(
    job: Job,
    stage: build.Stage,
    states: layouts.Packed,
    step: int,
    *,
    left: bool = False,
) -> None:
    """Saves; `left` where this step's evaluation is still to be made, elsewhere."""
    _settle(job)
    here = step == job.evaluated
    if here:
        for name, value in job.valid.items():
            job.best[name] = max(value, job.best.get(name, -1.0))
    info = {
        "step": step,
        "stage": stage.number,
        "watch": job.watch.state(),
        "best": job.best,
        "records": results.dumps(job.records) if here else "",
        "left": {key: job.config["run"][key] for key in OBSERVED} if left else None,
    }
    valid = {f"{stage.number}/{name}": value for name, value in job.valid.items()}
    told = {} if left else (valid or None) if here else None
    save = checkpoint.replace if step == job.saved else checkpoint.save
    save(job.manager, step, stage.layout.unpack(states), info, told)
    job.saved, job.complete = step, here
    if left:
        job.left = step
        job.watch.reset()
    _tell_cost(job)


def _tell_cost(job: Job) -> dict[str, Any]:
    """Writes what this start has cost until now beside what earlier ones have."""
    spent, step = job.meter.spent(), max(job.saved, 0)
    energy = _energy(job.config)
    start = costs.start(job.began, spent, workdirs.paid(job.devices), energy, step)
    return workdirs.record_cost(job.workdir, start)


def _energy(config: Mapping[str, Any]) -> costs.Energy:
    given = config["run"].get("energy", {})
    known = costs.Energy._fields
    for key in given:
        if key not in known:
            raise ValueError(
                f"config.run.energy: unknown {key!r}; {jc.nearest(key, known)}"
            )
    return costs.Energy(**given).checked("config.run.energy")
