"""Saves a run and resumes it: states, the records that belong to them, what it has cost.

Records are written before the checkpoint that relies on them. Checksums of all files are
sealed; records that are not as they were written come back from the checkpoint of their
step. A run may start from the networks of another one (config.init).
"""

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from etils import epath

from jbias import run_spec
from jbias.models import trained
from jbias.runs import checkpoints, costs, evaluations, results, workdirs
from jbias.runtime import console, files, messages
from jbias.training import telemetry
from jbias.training.context import Evaluation, RunContext
from jbias.training.seed_axis import PackedStates
from jbias.training.stages import Stage

Net = trained.Net
# What of config.run an evaluation depends on.
_OBSERVED = ("eval_batch", "eval_norm", "decisions")


def save(
    job: RunContext, stage: Stage, states: PackedStates, step: int, left: bool = False
) -> None:
    """Saves; `left` where this step's evaluation is still to be made, elsewhere."""
    job.flush()
    job.check_lock()
    here, valid = step == job.evaluation.step, job.evaluation.valid
    if here:
        for name, value in valid.items():
            job.best[name] = max(value, job.best.get(name, -1.0))
    run = job.config["run"]
    info = {
        "step": step,
        "stage": stage.number,
        "watch": job.monitor.state(),
        "best": job.best,
        "sums": job.records.sums_until(step),
        "records": results.dumps(job.evaluation.records) if here else "",
        "left": {key: run[key] for key in _OBSERVED if key in run} if left else None,
    }
    told = {} if left else None
    if here and valid and not left:
        told = {f"{stage.number}/{name}": value for name, value in valid.items()}
    job.checkpoints.save(step, stage.layout.unpack(states), info, told)
    line = console.LogEvent(f"saved step {step}", "checkpoint", step=step)
    job.log(line.at("debug", quiet=True))
    if left:
        job.pending = step
        job.monitor.reset()
    write_cost(job)


@contextlib.contextmanager
def save_before_data_error(
    job: RunContext, stage: Stage, states: tuple, step: int
) -> Iterator:
    """Saves what was trained before an image that does not decode ends the run."""
    try:
        yield
    except messages.UserCodeError:
        raise  # No image is to blame.
    except ValueError as error:
        if step > max(job.checkpoints.step, stage.first):
            save(job, stage, states, step)
        job.checkpoints.wait()
        # Who ends first ends the others.
        job.team.all_gather("the end of a save", None)
        raise ValueError(
            f"{error}; step {step} is saved: with the file as it was when the run began "
            "the same command goes on; a repair that changes its length makes other data, "
            "for another --workdir; `jbias prepare check` names all damaged ones"
        ) from error


@dataclasses.dataclass
class LastGood:
    """The latest states of a stage, and their step; None while losses are taken in."""

    states: PackedStates
    step: int | None


@contextlib.contextmanager
def saving_on_crash(
    job: RunContext, stage: Stage, states: PackedStates, step: int
) -> Iterator[LastGood]:
    """Saves what was trained before an error that nobody foresaw, if it is whole.

    Yields what to note the latest states in. What became of them is noted on the error.
    The checkpoints that are there stay.
    """
    latest = LastGood(states, step)
    try:
        yield latest
    except Exception as error:
        said = isinstance(error, ValueError) and latest.step == job.checkpoints.step
        # Of several processes the others would have to save, too.
        alone = job.team.count == 1
        if alone and not said and (note := _save_latest(job, stage, latest)):
            error.add_note(note)
        raise


def _save_latest(job: RunContext, stage: Stage, latest: LastGood) -> str:
    """Returns what to say of it: "" where nothing is saved yet."""
    try:
        leaves = [x for x in jax.tree.leaves(latest.states) if isinstance(x, jax.Array)]
        if job.checkpoints.saving:
            raise ValueError("saving failed")
        if latest.step is None or any(x.is_deleted() for x in leaves):
            raise ValueError("it was in the midst of a step")
        jax.block_until_ready(leaves)
        if latest.step > max(job.checkpoints.step, stage.first):
            save(job, stage, latest.states, latest.step)
        job.checkpoints.wait()
    # Whatever it is, the error that ended the run is the one to tell.
    except Exception as other:  # noqa: BLE001
        reason = " ".join(str(other.__cause__ or other).split())[:200]
        with contextlib.suppress(Exception):
            job.checkpoints.wait()
        where = "which one is cannot be seen now"
        with contextlib.suppress(OSError):
            last = checkpoints.steps(job.workdir / "checkpoints")[-1:]
            where = f"the latest checkpoint is of step {last[0]}" if last else "none is"
        return f"the latest step could not be saved ({reason}); {where}"
    where = f"step {job.checkpoints.step} is saved, the same command goes on from there"
    return where if job.checkpoints.step >= 0 else ""


def resume(job: RunContext, info: dict[str, Any]) -> None:
    """Goes on from a checkpoint; puts its evaluation beside if a kill came between."""
    step, total, main = info["step"], job.stages[-1].last, job.team.is_main
    job.monitor.load(info["watch"])
    job.best = info["best"]
    job.records.sums |= info.get("sums", {})
    line = f"resuming {job.name} at step {step}/{total}"
    job.log(console.LogEvent(line, "resume", step=step, total=total))
    written = main and evaluations.is_evaluated(job.workdir, step)
    written = job.team.broadcast("what is evaluated", written)
    if info.get("left") and (job.elsewhere or written):
        job.pending = step
        job.monitor.reset()
    if info["records"]:
        job.evaluation = Evaluation(step, (), {})
        if main:
            where = f"the checkpoint of step {step}"
            records = results.loads(info["records"], where=where)
            job.records.write_again(step, records)
            telemetry.log_evaluation(job, step, records)
    job.records.restore(job.checkpoints.info)


def write_cost(job: RunContext) -> dict[str, Any]:
    """Writes what this start has cost until now beside what earlier ones have.

    Returns the sums over all starts; nothing where another process writes them.
    """
    if not job.team.is_main:
        return {}
    spent, step = job.meter.spent(), max(job.checkpoints.step, 0)
    paid = workdirs.billed_devices(job.devices, job.team.cores)
    start = costs.of_start(job.meter.began, spent, paid, energy(job.config), step)
    start["stepped"] = job.stepped
    held = job.devices.local_devices[0].memory_stats() or {}
    if "peak_bytes_in_use" in held:  # A CPU does not say.
        start["peak_gib"] = held["peak_bytes_in_use"] / 2**30
    return workdirs.record_cost(job.workdir, start)


def energy(config: Mapping[str, Any]) -> costs.Energy:
    """What config.run.energy assumes; ValueError where it cannot be."""
    return costs.parse_energy("config.run.energy", config["run"].get("energy", {}))


def load_initial_nets(workdir: epath.PathLike, seeds: Sequence[int]) -> list[Net]:
    """Reads the nets of these seeds from the latest checkpoint of a run.

    A run of one seed gives its net to all; a folder of a run whose numbers vary, such as
    runs/x/vary/optim.rate=0.1, those of that branch. ValueError where the workdir holds
    no checkpoint, or none of such a seed.
    """
    where = "config.init"
    workdir = whole = epath.Path(files.local_copy(workdir, where, checkpoints=True))
    if workdir.parent.name == "vary" and not (workdir / "checkpoints").exists():
        whole = workdir.parent.parent
    config, folder = whole / "config.json", whole / "checkpoints"
    if not config.exists() or not folder.exists():
        raise ValueError(
            f"{where}: {workdir} must be the workdir of a run with checkpoints; "
            "train it first or name another"
        )
    found = json.loads(config.read_text("utf-8"))
    held, folders = found["seeds"], [b.folder for b in run_spec.branches(found)]
    branch = "" if whole == workdir else f"vary/{workdir.name}"
    if branch not in folders:
        raise ValueError(
            f"{where}: {workdir} must be one branch of the run in {whole}; name one, "
            f"such as {whole / folders[0]}"
        )
    alone, lacking = len(held) == 1, [seed for seed in seeds if seed not in held]
    if lacking and not alone:
        raise ValueError(
            f"{where}: {workdir} has the seeds {held} and not {lacking[0]}; "
            "train that one, or start from a run of a single seed"
        )
    if not (steps := checkpoints.steps(folder)):
        raise ValueError(f"{where}: {folder} holds no checkpoint yet")
    nets, _ = trained.read_nets(folder, steps[-1])
    first = folders.index(branch) * len(held)  # All seeds of a branch, then the next.
    return [nets[first if alone else first + held.index(seed)] for seed in seeds]


def graft_head(drawn: Net, given: Net, say: messages.Say) -> Net:
    """The given net; where its linear layer has other classes, the drawn one there.

    ValueError where it is another model.
    """
    shapes, drawn_shapes = (jax.tree.map(np.shape, tree) for tree in (given, drawn))
    if shapes == drawn_shapes:
        return given
    given = {**given, "params": {**given["params"], "fc": drawn["params"]["fc"]}}
    if jax.tree.map(np.shape, given) != drawn_shapes:
        raise ValueError(
            "config.init: holds another model than config.model; its config.json says "
            "which, so set config.model to that"
        )
    say("config.init: another number of classes, the linear layer is drawn anew")
    return given
