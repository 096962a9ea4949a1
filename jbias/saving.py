"""What a run keeps: its states, with what stands beside them, and what it has cost."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from jbias import build, checkpoint, console, costs, observe, results, signs
from jbias import layout as layouts
from jbias import workdir as workdirs
from jbias.job import Job

# What of config.run an evaluation depends on.
_OBSERVED = ("eval_batch", "decisions")


def save(
    job: Job,
    stage: build.Stage,
    states: layouts.Packed,
    step: int,
    *,
    left: bool = False,
) -> None:
    """Saves; `left` where this step's evaluation is still to be made, elsewhere."""
    job.settle()
    job.guard()
    here = step == job.evaluated
    if here:
        for name, value in job.valid.items():
            job.best[name] = max(value, job.best.get(name, -1.0))
    info = {
        "step": step,
        "stage": stage.number,
        "watch": job.watch.state(),
        "best": job.best,
        "sums": job.sums,
        "records": results.dumps(job.records) if here else "",
        "left": {key: job.config["run"][key] for key in _OBSERVED} if left else None,
    }
    valid = {f"{stage.number}/{name}": value for name, value in job.valid.items()}
    told = {} if left else (valid or None) if here else None
    write = checkpoint.replace if step == job.saved else checkpoint.save
    write(job.manager, step, stage.layout.unpack(states), info, told)
    job.saved, job.complete = step, here
    job.say(
        console.Line(f"saved step {step}", "checkpoint", step=step).at(
            "debug", quiet=True
        )
    )
    if left:
        job.left = step
        job.watch.reset()
    write_cost(job)


@contextlib.contextmanager
def saved_first(job: Job, stage: build.Stage, states: tuple, step: int) -> Iterator:
    """Saves what was trained before an image that does not decode ends the run."""
    try:
        yield
    except ValueError as error:
        if step > max(job.saved, stage.first):
            save(job, stage, states, step)
        raise ValueError(
            f"{error}; step {step} is saved: repair the file and the same command goes "
            "on; `python -m jbias.prepare check` names all that are damaged"
        ) from error


def is_best(job: Job) -> bool:
    """Whether any seed's validation accuracy is above all that were saved."""
    return any(value > job.best.get(name, -1.0) for name, value in job.valid.items())


def take_up(job: Job, info: dict[str, Any]) -> None:
    """Goes on from a checkpoint; puts its evaluation beside if a kill came between."""
    step = job.saved = info["step"]
    job.watch.load(info["watch"])
    job.best, job.sums = info["best"], info.get("sums", {})
    total = job.stages[-1].last
    line = f"resuming {job.name} at step {step}/{total}"
    job.say(console.Line(line, "resume", step=step, total=total))
    job.complete = bool(info["records"])
    if info.get("left") and (job.elsewhere or observe.written(job.workdir, step)):
        job.left = step
        job.watch.reset()
    if info["records"]:
        job.evaluated = step
        records = results.loads(info["records"], where=f"the checkpoint of step {step}")
        observe.write(job, step, records, again=False)
        signs.evaluated(job, step, records)
    observe.mend(job, lambda at: checkpoint.position(job.manager, at))


def write_cost(job: Job) -> dict[str, Any]:
    """Writes what this start has cost until now beside what earlier ones have."""
    spent, step = job.meter.spent(), max(job.saved, 0)
    paid, assumed = workdirs.paid(job.devices), energy(job.config)
    start = costs.start(job.began, spent, paid, assumed, step)
    return workdirs.record_cost(job.workdir, start)


def energy(config: Mapping[str, Any]) -> costs.Energy:
    """What config.run.energy assumes; ValueError where it cannot be."""
    return costs.energy("config.run.energy", config["run"].get("energy", {}))
