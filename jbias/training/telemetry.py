"""What a run shows of itself as it goes on, beside its records.

A heartbeat for who looks at many runs, progress, and numbers for the loggers it asks for.
"""

import collections
import contextlib
import functools
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax

from jbias import config as jc
from jbias import run_spec
from jbias.runs import loggers, results, workdirs
from jbias.runtime import console, files
from jbias.training import profiling
from jbias.training.context import RunContext
from jbias.training.stages import Stage


def open_loggers(job: RunContext, step: int, *, alone: bool = True) -> None:
    """Opens the writers of a run that begins or goes on at a step, in its first process alone.

    `alone` is False in a process that evaluates what another one trains.
    """
    if job.team.is_main:
        configs = {branch.name: branch.config for branch in job.branches}
        run = loggers.RunInfo(job.workdir, job.name, job.config, step, alone, configs)
        job.writers.begin(loggers.configured(job.config["run"]), run)


def set_phase(job: RunContext, what: str, step: int) -> None:
    """Says what the run does from now on."""
    paid = workdirs.billed_devices(job.devices, job.team.cores)
    devices, seconds = f"{paid.count} x {paid.kind}", job.config["run"]["log_seconds"]
    facts = dict(total=job.stages[-1].last, devices=devices, log_seconds=seconds)
    _write_heartbeat(job, what, step, **facts)


@contextlib.contextmanager
def stepping(job: RunContext, stage: Stage, step: int) -> Iterator[None]:
    """Shows how far the run is, as long as a stage is trained."""
    job.progress = console.Progress(
        job.log,
        total=job.stages[-1].last,
        done=step,
        steps_per_epoch=stage.order.steps_per_epoch,
        images_per_step=stage.order.batch * len(job.members),
        seconds=job.config["run"]["log_seconds"],
        beat=functools.partial(_beat, job),
        plain=job.config["run"].get("log") == "json",
    )
    with contextlib.closing(job.progress), job.meter.during("stepping"):
        yield


@contextlib.contextmanager
def saving(job: RunContext) -> Iterator[None]:
    """What takes time inside is no part of the rate, and counts as evaluation."""
    with job.progress.idle(), job.meter.during("evaluating"):
        yield


@contextlib.contextmanager
def evaluating(job: RunContext, step: int) -> Iterator[None]:
    """Likewise, and shown as what the run does."""
    with saving(job):
        set_phase(job, "evaluating", step)
        yield
        set_phase(job, "stepping", step)


@contextlib.contextmanager
def compiling(job: RunContext, step: int) -> Iterator[None]:
    """Says that the step is being compiled, and how long until its first results."""
    began, several = time.monotonic(), len(job.branches)
    name, seeds = jc.algorithm_name(job.config), ", ".join(map(str, job.seeds))
    seeds += f", {several} branches of each" * (several > 1)
    line = f"compiling {name} for seeds {seeds} ..."
    job.log(console.LogEvent(line, "compile", step=step))
    set_phase(job, "compiling", step)
    with job.meter.during("compiling"):
        yield
    job.progress.restart()
    took = time.monotonic() - began
    line = f"compiled, first steps done in {took:.1f} s"
    job.log(console.LogEvent(line, "compiled", step=step, seconds=round(took, 3)))
    set_phase(job, "stepping", step)


def advance_profiled(
    job: RunContext, stage: Stage, states: Any, args: Any, held: Any, static: Any
) -> tuple[Any, list]:
    """Take steps as `stage.advance` does, traced, and write the times of their operations.

    Steps that are one program are dispatched one by one, as the page names the operations
    of a single step; the first of them compiles it, and is not traced.
    """
    dispatches, metrics = [args], []
    if 1 < len(args) == stage.scanned:
        states, metrics = stage.advance(states, args[:1], held, static)
        args = args[1:]
        dispatches = [[arg] for arg in args]
    jax.block_until_ready(states)
    folder, page = job.workdir / "profile", job.workdir / "profile.md"
    with jax.profiler.trace(str(folder)):  # TensorBoard and Perfetto read it.
        began = time.perf_counter()
        for steps in dispatches:
            states, outputs = stage.advance(states, steps, held, static)
            metrics = [*metrics, *outputs]
        jax.block_until_ready(states)
        seconds = time.perf_counter() - began
    counts = dict(steps=len(args), count=len(job.members), seconds=seconds)
    files.write(page, profiling.markdown_page(folder, stage, static, **counts))
    job.log(f"profile of {len(args)} steps: {page}")
    job.profiled = True
    return states, metrics


def _beat(job: RunContext, speed: console.Speed) -> None:
    """Shows how far the run is, how fast, and its losses since the last time."""
    facts = dict(rate=speed.rate, images=speed.images, eta_seconds=speed.seconds_left)
    facts = {key: round(value, 4) for key, value in facts.items()}
    _write_heartbeat(job, "stepping", speed.done, **facts)
    rates = {"speed/steps": speed.rate, "speed/images": speed.images}
    numbers = _with_means(_since(job))
    numbers[loggers.MEAN] = rates | numbers.get(loggers.MEAN, {})
    job.writers.scalars(speed.done, numbers)


def _write_heartbeat(job: RunContext, what: str, step: int, **facts: Any) -> None:
    if job.team.is_main:
        diverged = {str(k): v for k, v in job.monitor.diverged.items()}
        with contextlib.suppress(OSError):  # Saving says whose the workdir is now.
            job.check_lock()
            job.life.update(what, step=step, diverged=diverged, **facts)


def log_evaluation(job: RunContext, step: int, records: Iterable) -> None:
    """Gives an evaluation's numbers away: of each seed, and means over the seeds."""
    branches = {branch.fields["run"]: branch for branch in job.branches}
    found = collections.defaultdict(dict)
    for r in records:
        if r.value is not None:
            tag = "/".join(filter(None, (r.dataset, r.metric, r.condition)))
            found[_scalar_prefix(r.seed, branches[r.run])][tag] = r.value
    job.writers.scalars(step, _with_means(found))


def _scalar_prefix(seed: int, branch: run_spec.Branch) -> str:
    """What a writer calls a seed: `seed-0`, or `optim.rate=0.1/seed-0`."""
    return "/".join(filter(None, (branch.name, f"seed-{seed}")))


def _since(job: RunContext) -> dict[str, dict[str, float]]:
    """Each finite seed's mean metrics since this was last asked."""
    watched = job.monitor
    resets, before, had = job.last_progress
    if resets != watched.resets:
        before, had = {}, {}  # An evaluation has begun new means.
    sums = {name: dict(of) for name, of in watched.sums.items()}
    job.last_progress = watched.resets, dict(watched.counts), sums
    steps = {name: n - before.get(name, 0) for name, n in watched.counts.items()}
    return {
        _scalar_prefix(member.seed, member.branch): {
            f"progress/{tag}": (total - had.get(name, {}).get(tag, 0.0)) / steps[name]
            for tag, total in sums[name].items()
        }
        for name, member in ((member.name, member) for member in job.members)
        if steps.get(name) and name not in watched.diverged
    }


def _with_means(found: Mapping[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """The numbers, and beside each branch's seeds their means."""
    pooled = collections.defaultdict(lambda: collections.defaultdict(list))
    for of, values in found.items():
        mean = "/".join(filter(None, (of.rpartition("/")[0], loggers.MEAN)))
        for tag, value in values.items():
            if tag != f"{results.TRAIN}/diverged":
                pooled[mean][tag].append(value)
    means = dict(found)
    for of, tags in pooled.items():
        means[of] = {tag: sum(values) / len(values) for tag, values in tags.items()}
    return means
