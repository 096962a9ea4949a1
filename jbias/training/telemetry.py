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
from jbias.training import profiling, seed_axis, stages
from jbias.training.context import RunContext

DIVERGED = f"{results.TRAIN}/diverged"


def open_loggers(job: RunContext, step: int, *, alone: bool = True) -> None:
    """Opens the writers of a run that begins or goes on at a step, in its first process alone.

    `alone` is False in a process that evaluates what another one trains.
    """
    if not job.team.is_main:
        return
    configs = {b.folder.rpartition("/")[2]: b.config for b in job.branches}
    run = loggers.RunInfo(job.workdir, job.name, job.config, step, alone, configs)
    job.writers.begin(loggers.configured(job.config["run"]), run)


def set_phase(job: RunContext, what: str, step: int) -> None:
    """Says what the run does from now on."""
    if not job.team.is_main:
        return
    paid = workdirs.billed_devices(job.devices, job.team.cores)
    _write_heartbeat(
        job,
        what,
        step=step,
        total=job.stages[-1].last,
        devices=f"{paid.count} x {paid.kind}",
        log_seconds=job.config["run"]["log_seconds"],
        diverged={str(k): v for k, v in job.monitor.diverged.items()},
    )


@contextlib.contextmanager
def stepping(job: RunContext, stage: stages.Stage, step: int) -> Iterator[None]:
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
    began = time.monotonic()
    line = (
        f"compiling {jc.algorithm_name(job.config)} for seeds "
        f"{', '.join(map(str, job.seeds))}"
        + f", {len(job.branches)} branches of each" * (len(job.branches) > 1)
        + " ..."
    )
    job.log(console.LogEvent(line, "compile", step=step))
    set_phase(job, "compiling", step)
    with job.meter.during("compiling"):
        yield
    job.progress.restart()
    took = time.monotonic() - began
    line = f"compiled, first steps done in {took:.1f} s"
    job.log(console.LogEvent(line, "compiled", step=step, seconds=round(took, 3)))
    set_phase(job, "stepping", step)


def is_profile_due(job: RunContext) -> bool:
    """Whether the next steps are to be profiled, by the process that writes."""
    return job.config["run"]["profile"] and not job.profiled and job.team.is_main


def profiled(job: RunContext, stage: stages.Stage) -> seed_axis.MultiStep:
    """Takes steps as the stage does, traced, and writes what they took."""

    def advance(states, args, held, static):
        jax.block_until_ready(states)
        folder = job.workdir / "profile"
        with profiling.trace(folder) as seconds:
            states, seen = stage.advance(states, args, held, static)
            jax.block_until_ready(states)
        page = profiling.markdown_page(
            folder,
            stage,
            static,
            steps=len(args),
            count=len(job.members),
            seconds=seconds[0],
        )
        files.write(job.workdir / "profile.md", page)
        job.log(f"profile of {len(args)} steps: {job.workdir / 'profile.md'}")
        job.profiled = True
        return states, seen

    return advance


def show_progress(job: RunContext, step: int, *, counted: bool) -> None:
    """Shows that so many steps are taken; `counted`: as part of the rate."""
    loss = job.monitor.latest
    note = job.note if loss is None else f"loss {loss:.3f}{job.note}"
    job.progress.update(step, note, counted=counted)


def _beat(job: RunContext, speed: console.Speed) -> None:
    """Shows how far the run is, how fast, and its losses since the last time."""
    if not job.team.is_main:
        return
    rates = {
        "rate": speed.rate,
        "images": speed.images,
        "eta_seconds": speed.seconds_left,
    }
    _write_heartbeat(
        job,
        "stepping",
        step=speed.done,
        diverged={str(k): v for k, v in job.monitor.diverged.items()},
        **{key: round(value, 4) for key, value in rates.items()},
    )
    rates = {"speed/steps": speed.rate, "speed/images": speed.images}
    by_entry = {
        of: {f"progress/{name}": value for name, value in means.items()}
        for of, means in _since(job).items()
    }
    job.writers.scalars(speed.done, _merged({loggers.MEAN: rates}, _means(by_entry)))


def _write_heartbeat(job: RunContext, what: str, **facts: Any) -> None:
    with contextlib.suppress(OSError):  # Saving says whose the workdir is now.
        job.check_lock()
        job.life.update(what, **facts)


def log_evaluation(
    job: RunContext, step: int, records: Iterable[results.Record]
) -> None:
    """Gives an evaluation's numbers away: of each seed, and means over the seeds."""
    branches = {b.fields["run"]: b for b in job.branches}
    found = collections.defaultdict(dict)
    for r in records:
        if r.value is not None:
            tag = "/".join(filter(None, (r.dataset, r.metric, r.condition)))
            found[_scalar_prefix(run_spec.Member(r.seed, branches[r.run]))][tag] = (
                r.value
            )
    job.writers.scalars(step, _means(found))


def _scalar_prefix(entry: run_spec.Member) -> str:
    """What a writer calls a seed: `seed-0`, or `optim.rate=0.1/seed-0`."""
    branch = entry.branch.folder.rpartition("/")[2]
    return "/".join(filter(None, (branch, f"seed-{entry.seed}")))


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
        _scalar_prefix(entry): {
            name: (total - had.get(entry.name, {}).get(name, 0.0)) / steps[entry.name]
            for name, total in sums[entry.name].items()
        }
        for entry in job.members
        if steps.get(entry.name) and entry.name not in watched.diverged
    }


def _means(found: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """The numbers, and beside each branch's seeds their means."""
    pooled = collections.defaultdict(lambda: collections.defaultdict(list))
    for of, values in found.items():
        mean = "/".join(filter(None, (of.rpartition("/")[0], loggers.MEAN)))
        for tag, value in values.items():
            if tag != DIVERGED:
                pooled[mean][tag].append(value)
    means = {
        of: {tag: sum(values) / len(values) for tag, values in tags.items()}
        for of, tags in pooled.items()
    }
    return {**found, **means}


def _merged(*several: Mapping[str, Mapping[str, float]]) -> dict[str, dict]:
    merged = collections.defaultdict(dict)
    for numbers in several:
        for of, values in numbers.items():
            merged[of] |= values
    return merged
