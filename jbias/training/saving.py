"""What a run keeps: its states, with what stands beside them, and what it has cost."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from jbias.runs import checkpoints, costs, results, workdirs
from jbias.runtime import console, messages
from jbias.strategies import layout as layouts
from jbias.training import build, recorded, signs
from jbias.training.job import Job

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
    job.flush()
    job.check_lock()
    here = step == job.evaluated
    if here:
        for name, value in job.valid.items():
            job.best[name] = max(value, job.best.get(name, -1.0))
    info = {
        "step": step,
        "stage": stage.number,
        "watch": job.monitor.state(),
        "best": job.best,
        "sums": job.sums,
        "records": results.dumps(job.records) if here else "",
        "left": {key: job.config["run"][key] for key in _OBSERVED} if left else None,
    }
    valid = {f"{stage.number}/{name}": value for name, value in job.valid.items()}
    told = {} if left else (valid or None) if here else None
    job.saving = True
    write = checkpoints.replace if step == job.saved else checkpoints.save
    whole = stage.layout.unpack(states)
    known = _check_same(job, whole, step)
    if job.team.is_main:
        write(job.manager, step, whole, info, told, known)
    job.saved, job.complete, job.saving = step, here, False
    job.log(
        console.LogEvent(f"saved step {step}", "checkpoint", step=step).at(
            "debug", quiet=True
        )
    )
    if left:
        job.pending = step
        job.monitor.reset()
    write_cost(job)


def _check_same(job: Job, states: tuple, step: int) -> int | None:
    """Refuses to go on where the processes no longer train the same weights.

    Returns their sum, where there are several.
    """
    if job.team.count == 1:
        return None
    sums = job.team.all_gather("a checkpoint", checkpoints.states_checksum(states))
    if len(set(sums)) > 1:
        raise ValueError(
            f"processes: their weights differ at step {step} (sums {sums}), though all "
            "take the same steps; use machines, devices and packages of one kind, and "
            f"go on from the checkpoint of step {max(job.saved, 0)}"
        )
    return sums[0]


@contextlib.contextmanager
def saved_first(job: Job, stage: build.Stage, states: tuple, step: int) -> Iterator:
    """Saves what was trained before an image that does not decode ends the run."""
    try:
        yield
    except messages.UserCodeError:
        raise  # No image is to blame.
    except ValueError as error:
        if step > max(job.saved, stage.first):
            save(job, stage, states, step)
        if job.team.is_main:
            checkpoints.wait(job.manager)
        job.team.all_gather(
            "the end of a save", None
        )  # Who ends first ends the others.
        raise ValueError(
            f"{error}; step {step} is saved: with the file as it was when the run began "
            "the same command goes on; a repair that changes its length makes other data, "
            "for another --workdir; `python -m jbias.prepare check` names all damaged ones"
        ) from error


@dataclasses.dataclass
class Latest:
    """The latest states of a stage, and their step; None while losses are taken in."""

    states: layouts.Packed
    step: int | None


def rescue(job: Job, stage: build.Stage, latest: Latest, error: Exception) -> None:
    """Saves what was trained before an error that nobody foresaw, if it is whole.

    What became of it is noted on the error. The checkpoints that are there stay.
    """
    if job.team.count > 1:
        return  # The others would have to save, too.
    if isinstance(error, ValueError) and latest.step == job.saved:
        return  # `saved_first` has said so.
    try:
        _check_whole(job, latest)
        if latest.step > max(job.saved, stage.first):
            save(job, stage, latest.states, latest.step)
        job.manager.wait_until_finished()
    # Whatever it is, the error that ended the run is the one to tell.
    except Exception as other:  # noqa: BLE001
        reason = " ".join(str(other).split())[:200]
        with contextlib.suppress(Exception):
            job.manager.wait_until_finished()
        error.add_note(f"the latest step could not be saved ({reason}); {_held(job)}")
        return
    if job.saved >= 0:
        error.add_note(
            f"step {job.saved} is saved, the same command goes on from there"
        )


def _held(job: Job) -> str:
    """What is there to go on from, as far as can be seen."""
    try:
        known = checkpoints.steps(job.workdir / "checkpoints")
    except OSError:
        return "which one is cannot be seen now"
    return f"the latest checkpoint is of step {known[-1]}" if known else "none is"


def _check_whole(job: Job, latest: Latest) -> None:
    """ValueError where the states of that step are not there, or cannot be saved."""
    leaves = [x for x in jax.tree.leaves(latest.states) if isinstance(x, jax.Array)]
    if job.saving:
        raise ValueError("saving failed")
    if latest.step is None or any(x.is_deleted() for x in leaves):
        raise ValueError("it was in the midst of a step")
    jax.block_until_ready(leaves)


def is_best(job: Job) -> bool:
    """Whether any seed's validation accuracy is above all that were saved."""
    return any(value > job.best.get(name, -1.0) for name, value in job.valid.items())


def take_up(job: Job, info: dict[str, Any]) -> None:
    """Goes on from a checkpoint; puts its evaluation beside if a kill came between."""
    step = job.saved = info["step"]
    job.monitor.load(info["watch"])
    job.best, job.sums = info["best"], info.get("sums", {})
    total = job.stages[-1].last
    line = f"resuming {job.name} at step {step}/{total}"
    job.log(console.LogEvent(line, "resume", step=step, total=total))
    job.complete = bool(info["records"])
    written = job.team.is_main and recorded.written(job.workdir, step)
    written = job.team.broadcast("what is evaluated", written)
    if info.get("left") and (job.elsewhere or written):
        job.pending = step
        job.monitor.reset()
    if info["records"]:
        job.evaluated = step
    if info["records"] and job.team.is_main:
        records = results.loads(info["records"], where=f"the checkpoint of step {step}")
        recorded.write(job, step, records, again=False)
        signs.evaluated(job, step, records)
    recorded.mend(job, lambda at: checkpoints.read_info(job.manager, at))


def write_cost(job: Job) -> dict[str, Any]:
    """Writes what this start has cost until now beside what earlier ones have.

    Returns the sums over all starts; nothing where another process writes them.
    """
    if not job.team.is_main:
        return {}
    spent, step = job.meter.spent(), max(job.saved, 0)
    paid, assumed = (
        workdirs.billed_devices(job.devices, job.team.cores),
        energy(job.config),
    )
    start = costs.of_start(job.began, spent, paid, assumed, step)
    return workdirs.record_cost(job.workdir, start)


def energy(config: Mapping[str, Any]) -> costs.Energy:
    """What config.run.energy assumes; ValueError where it cannot be."""
    return costs.parse_energy("config.run.energy", config["run"].get("energy", {}))
