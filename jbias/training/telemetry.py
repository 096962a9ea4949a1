"""Report a run in progress: heartbeat file, progress lines, and numbers for loggers."""

import collections
import contextlib
import functools
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax

from jbias import config as jc
from jbias import run_spec
from jbias.runs import loggers, results, workdirs
from jbias.runtime import console, files
from jbias.training import profiling
from jbias.training.context import RunContext
from jbias.training.seed_axis import PackedStates
from jbias.training.stages import Stage


def open_loggers(job: RunContext, step: int, *, alone: bool = True) -> None:
    """Open the loggers of a run that starts or resumes at a step, in process 0 only.

    alone: whether no other process writes to these loggers; False in a process that only
    evaluates the run.
    """
    if job.team.is_main:
        run = loggers.RunInfo(
            workdir=job.workdir,
            name=job.name,
            config=job.config,
            step=step,
            alone=alone,
            branches={branch.name: branch.config for branch in job.branches},
        )
        job.writers.begin(loggers.configured(job.config["run"]), run)


def set_phase(job: RunContext, phase: str, step: int) -> None:
    """Write the run's current phase and step to the heartbeat file (progress.json).

    Only process 0 writes; errors of the disk are ignored. phase: such as "stepping".
    """
    billed = workdirs.billed_devices(job.devices, job.team.cores)
    _write_heartbeat(
        job,
        phase,
        step,
        total=job.stages[-1].last,
        devices=f"{billed.count} x {billed.kind}",
        log_seconds=job.config["run"]["log_seconds"],
    )


@contextlib.contextmanager
def stepping(job: RunContext, stage: Stage, step: int) -> Iterator[None]:
    """Show the run's progress inside the context, in which a stage is trained from `step`.

    Sets `job.progress`; the time inside the context counts as the phase "stepping".
    """
    job.progress = console.Progress(
        job.log,
        total=job.stages[-1].last,
        done=step,
        steps_per_epoch=stage.order.steps_per_epoch,
        images_per_step=stage.order.batch * len(job.members),
        seconds=job.config["run"]["log_seconds"],
        beat=functools.partial(_report_progress, job),
        plain=job.config["run"].get("log") == "json",
    )
    with contextlib.closing(job.progress), job.meter.during("stepping"):
        yield


@contextlib.contextmanager
def saving(job: RunContext) -> Iterator[None]:
    """Count the time inside the context as evaluation; leave it out of the training rate."""
    with job.progress.idle(), job.meter.during("evaluating"):
        yield


@contextlib.contextmanager
def evaluating(job: RunContext, step: int) -> Iterator[None]:
    """Show the phase "evaluating" inside the context; count its duration as `saving` does."""
    with saving(job):
        set_phase(job, "evaluating", step)
        yield
        set_phase(job, "stepping", step)


@contextlib.contextmanager
def compiling(job: RunContext, step: int) -> Iterator[None]:
    """Log that the step is being compiled; after the context, log the seconds spent in it.

    The context contains the first steps after a start, which compile the step.
    """
    start, num_branches = time.monotonic(), len(job.branches)
    name, seeds = jc.algorithm_name(job.config), ", ".join(map(str, job.seeds))
    if num_branches > 1:
        seeds += f", {num_branches} branches of each"
    line = f"compiling {name} for seeds {seeds} ..."
    job.log(console.LogEvent(line, "compile", step=step))
    set_phase(job, "compiling", step)
    with job.meter.during("compiling"):
        yield
    job.progress.restart()
    seconds = time.monotonic() - start
    line = f"compiled, first steps done in {seconds:.1f} s"
    job.log(console.LogEvent(line, "compiled", step=step, seconds=round(seconds, 3)))
    set_phase(job, "stepping", step)


def advance_profiled(
    job: RunContext,
    stage: Stage,
    states: PackedStates,
    steps: Sequence[PackedStates],
    shared: Any,
    static: Hashable,
) -> tuple[PackedStates, list[PackedStates]]:
    """Run steps under the profiler, write profile.md, and return (states, metrics per step).

    Steps of a compiled loop are dispatched one by one, because the page has the operations of a
    single step; the first of these dispatches compiles the step and is not traced. Metrics are
    returned for all steps. Sets `job.profiled`.

    states, steps, shared, static: the arguments of `stage.advance`; `steps` has the
    arguments of each step.
    """
    dispatches, metrics = [steps], []
    if 1 < len(steps) == stage.scanned:
        states, metrics = stage.advance(states, steps[:1], shared, static)
        steps = steps[1:]
        dispatches = [[step] for step in steps]
    jax.block_until_ready(states)
    folder, page = job.workdir / "profile", job.workdir / "profile.md"
    with jax.profiler.trace(str(folder)):  # A trace for TensorBoard and Perfetto.
        start = time.perf_counter()
        for dispatched_steps in dispatches:
            states, outputs = stage.advance(states, dispatched_steps, shared, static)
            metrics = [*metrics, *outputs]
        jax.block_until_ready(states)
        seconds = time.perf_counter() - start
    text = profiling.markdown_page(
        folder,
        stage,
        static,
        steps=len(steps),
        count=len(job.members),
        seconds=seconds,
    )
    files.write(page, text)
    job.log(f"profile of {len(steps)} steps: {page}")
    job.profiled = True
    return states, metrics


def _report_progress(job: RunContext, speed: console.Speed) -> None:
    """Write progress and speed to the heartbeat; send speed and recent means to the loggers.

    The loggers get the speed as "speed/steps" and "speed/images" (per second), with the means
    over seeds.
    """
    _write_heartbeat(
        job,
        "stepping",
        speed.done,
        rate=round(speed.rate, 4),
        images=round(speed.images, 4),
        eta_seconds=round(speed.seconds_left, 4),
    )
    rates = {"speed/steps": speed.rate, "speed/images": speed.images}
    numbers = _with_means(_recent_means(job))
    numbers[loggers.MEAN] = rates | numbers.get(loggers.MEAN, {})
    job.writers.scalars(speed.done, numbers)


def _write_heartbeat(job: RunContext, phase: str, step: int, **fields: Any) -> None:
    """Update the heartbeat file in process 0; an OSError is ignored.

    phase: current activity. fields: further fields of `status.Heartbeat.update`.
    """
    if job.team.is_main:
        diverged = {str(k): v for k, v in job.monitor.diverged.items()}
        # If another process owns the workdir now, the next save reports that.
        with contextlib.suppress(OSError):
            job.check_lock()
            job.life.update(phase, step=step, diverged=diverged, **fields)


def log_evaluation(
    job: RunContext, step: int, records: Iterable[results.Record]
) -> None:
    """Send the values of an evaluation to the loggers: per seed, and means over seeds.

    A tag is "<data set>/<metric>", with "/<condition>" if the record has one. Records
    without a value are left out.
    """
    branches = {branch.fields["run"]: branch for branch in job.branches}
    numbers = collections.defaultdict(dict)
    for record in records:
        if record.value is not None:
            tag_parts = (record.dataset, record.metric, record.condition)
            tag = "/".join(filter(None, tag_parts))
            prefix = _scalar_prefix(record.seed, branches[record.run])
            numbers[prefix][tag] = record.value
    job.writers.scalars(step, _with_means(numbers))


def _scalar_prefix(seed: int, branch: run_spec.Branch) -> str:
    """Return a seed's name in loggers: seed-0, or optim.rate=0.1/seed-0 in a branch."""
    return "/".join(filter(None, (branch.name, f"seed-{seed}")))


def _recent_means(job: RunContext) -> dict[str, dict[str, float]]:
    """Return the mean of each metric of training since the last call of this function.

    The means are by name of the seed in loggers, then by tag, such as "progress/loss_class".
    The means start again after an evaluation. Seeds that diverged, or took no step in that
    time, are left out.
    """
    monitor = job.monitor
    resets, last_counts, last_sums = job.last_progress
    if resets != monitor.resets:
        last_counts, last_sums = {}, {}  # An evaluation has reset the sums.
    sums = {name: dict(by_metric) for name, by_metric in monitor.sums.items()}
    job.last_progress = monitor.resets, dict(monitor.counts), sums
    means = {}
    for member in job.members:
        name = member.name
        num_steps = monitor.counts.get(name, 0) - last_counts.get(name, 0)
        if not num_steps or name in monitor.diverged:
            continue
        last = last_sums.get(name, {})
        means[_scalar_prefix(member.seed, member.branch)] = {
            f"progress/{metric}": (total - last.get(metric, 0.0)) / num_steps
            for metric, total in sums[name].items()
        }
    return means


def _with_means(
    numbers: Mapping[str, dict[str, float]],
) -> dict[str, dict[str, float]]:
    """Return a copy of `numbers` to which the means over the seeds of each branch are added.

    numbers: by name of the seed in loggers, then by tag. Means have the name
    "<branch>/mean", or "mean" in a run without branches; the tag "train/diverged" has no mean.
    """
    values = collections.defaultdict(lambda: collections.defaultdict(list))
    for name, by_tag in numbers.items():
        branch_name = name.rpartition("/")[0]
        mean_name = "/".join(filter(None, (branch_name, loggers.MEAN)))
        for tag, value in by_tag.items():
            if tag != f"{results.TRAIN}/diverged":
                values[mean_name][tag].append(value)
    with_means = dict(numbers)
    for mean_name, by_tag in values.items():
        with_means[mean_name] = {tag: sum(v) / len(v) for tag, v in by_tag.items()}
    return with_means
