"""The loop over the steps of a stage: steps, evaluations and checkpoints in cadence."""

import contextlib
import functools
import itertools
import time
from collections.abc import Iterator

import jax

from jbias import config as jc
from jbias import seeds
from jbias.runtime import console, files, signals
from jbias.strategies import layout as layouts
from jbias.training import build, observe, profiling, saving, signs, vary
from jbias.training.job import Job


def run(
    job: Job, stage: build.Stage, states: layouts.Packed, step: int
) -> layouts.Packed:
    """Steps, evaluates and saves until the stage ends; returns the states."""
    latest = saving.Latest(states, step)
    try:
        return _run(job, stage, latest)
    except Exception as error:
        saving.rescue(job, stage, latest, error)
        raise


def _run(job: Job, stage: build.Stage, latest: saving.Latest) -> layouts.Packed:
    states, step = latest.states, latest.step
    config, last = job.config, stage.last
    cadence = {
        "steps_per_epoch": stage.order.steps_per_epoch,
        "total": job.stages[-1].last,
    }
    eval_every = jc.steps(config["eval_every"], **cadence)
    save_every = jc.steps(config["save_every"], **cadence)
    own = stage.layout.pack_on_devices(map(vary.seed_argument, job.members))
    assert step <= last, f"step {step} lies beyond its stage's last, {last}"
    progress = console.Progress(
        job.log,
        total=job.stages[-1].last,
        done=step,
        steps_per_epoch=stage.order.steps_per_epoch,
        images_per_step=stage.order.batch * len(job.members),
        seconds=config["run"]["log_seconds"],
        beat=functools.partial(signs.beat, job),
        plain=config["run"].get("log") == "json",
    )
    statics = set()
    with contextlib.closing(progress), job.meter.during("stepping"):
        while True:
            job.notice(step)
            job.stop_requested()
            local = step - stage.first
            measured = local and (step == last or local % eval_every == 0)
            if measured:
                job.flush()
            # Whatever was in flight, and where it went on: only here.
            ended = step == last or measured and job.monitor.all_diverged
            measured = measured and step not in (job.evaluated, job.pending)
            with progress.idle(), job.meter.during("evaluating"):
                if measured and not job.elsewhere and not job.halted:
                    signs.doing(job, "evaluating", step)
                    with saving.saved_first(job, stage, states, step):
                        observe.evaluate(job, stage, states, step)
                    signs.doing(job, "stepping", step)
                left = measured and step != job.evaluated
                best = step == job.evaluated and saving.is_best(job)
                due = local and local % save_every == 0
                # A stop may have cut the evaluation of the step it saved off.
                again = best and not job.complete or left and job.elsewhere
                again = again and step == job.saved
                due = due or left or ended or best or job.halted
                if due and step > job.saved or again:
                    saving.save(job, stage, states, step, left=left)
            if job.halted and step == job.saved:
                message = (
                    f"{job.halted} at step {step}: saved; the same command resumes"
                )
                raise signals.Interrupted(message)
            if ended:
                return states
            several = _steps_ahead(job, stage, step, (eval_every, save_every))
            static = stage.static(step)
            with saving.saved_first(job, stage, states, step):
                if not _ready(job, stage, step, progress):
                    continue
                held = stage.shared(step)
                args = _all_arguments(job, stage, step, several, own)
            new = static not in statics
            statics.add(static)
            profiled = config["run"]["profile"] and not new and not job.profiled
            profiled = profiled and job.team.is_main
            if stage.skips and job.team.count == 1 and not profiled:
                args = [_left(job, one) for one in args]
            with _announced(job, progress, step) if new else contextlib.nullcontext():
                advance = _profiled(job, stage) if profiled else stage.advance
                states, seen = advance(states, args, held, static)
            latest.states, latest.step = states, None
            del held  # Else the window is still there when the next is placed.
            for metrics in seen:
                step += 1
                job.log_divergences(job.monitor.add(step, metrics, stage.layout.split))
            latest.step = step
            progress.update(step, _note(job), counted=not new)


def _ready(job: Job, stage: build.Stage, step: int, progress: console.Progress) -> bool:
    """Waits until the data of a step are there; False where a stop came before."""
    if not stage.streams or job.team.count == 1 and stage.ready(step, lambda: True):
        return True
    first = step == stage.first or job.saved == step
    if first:
        job.log("reading the first window of the training set ...")
    with progress.idle() if first else contextlib.nullcontext():
        if job.team.count == 1:
            return stage.ready(step, lambda: bool(job.stop))
        return _all_ready(job, stage, step)


def _all_ready(job: Job, stage: build.Stage, step: int) -> bool:
    """Likewise, where each process reads its share: none goes on before all can."""
    while True:
        until = time.monotonic() + 1

        def look(until: float = until) -> tuple[bool, str]:
            return stage.ready(step, lambda: time.monotonic() > until), job.stop

        told = job.team.gather_results("the data of a step", look)
        job.halted = next((stop for _, stop in told if stop), "")
        if job.halted:
            return False
        if all(ready for ready, _ in told):
            return True


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


def _all_arguments(
    job: Job, stage: build.Stage, step: int, several: int, own: layouts.Packed
) -> list[layouts.Packed]:
    """The arguments of several steps; what one process cannot read ends all alike."""
    with job.team.raise_together("the images of a step", stage.streams):
        return [_arguments(job, stage, step + i, own) for i in range(several)]


def _arguments(
    job: Job, stage: build.Stage, step: int, own: layouts.Packed
) -> layouts.Packed:
    """What each seed has of its own, and the examples of its batch."""
    taken = [stage.batch(seed, step) for seed in job.seeds] * len(job.branches)
    placed = stage.layout.place(taken)
    return tuple(tuple(zip(*wave, strict=True)) for wave in zip(own, placed))


def _left(job: Job, args: layouts.Packed) -> layouts.Packed:
    """The arguments, None for seeds that diverged: they take no more steps."""
    live = (entry.name not in job.monitor.diverged for entry in job.members)
    return tuple(tuple(arg if next(live) else None for arg in wave) for wave in args)


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
            count=len(job.members),
            seconds=seconds[0],
        )
        files.write(job.workdir / "profile.md", page)
        job.log(f"profile of {len(args)} steps: {job.workdir / 'profile.md'}")
        job.profiled = True
        return states, seen

    return advance


@contextlib.contextmanager
def _announced(job: Job, progress: console.Progress, step: int) -> Iterator[None]:
    """Says that the step is being compiled, and how long until its first results."""
    began = time.monotonic()
    line = (
        f"compiling {jc.algorithm(job.config)} for seeds "
        f"{', '.join(map(str, job.seeds))}"
        + f", {len(job.branches)} branches of each" * (len(job.branches) > 1)
        + " ..."
    )
    job.log(console.LogEvent(line, "compile", step=step))
    signs.doing(job, "compiling", step)
    with job.meter.during("compiling"):
        yield
    progress.restart()
    took = time.monotonic() - began
    line = f"compiled, first steps done in {took:.1f} s"
    job.log(console.LogEvent(line, "compiled", step=step, seconds=round(took, 3)))
    signs.doing(job, "stepping", step)


def _note(job: Job) -> str:
    """What ends a line of progress."""
    loss = job.monitor.latest
    return job.note if loss is None else f"loss {loss:.3f}{job.note}"
