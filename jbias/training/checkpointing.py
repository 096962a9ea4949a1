"""Save and resume a run: states, records and costs; load networks of another run.

Records are written before the checkpoint that relies on them. Checkpoints have checksums
of all record files; records that were changed or lost are restored from the checkpoint of
their step. A run may start from the networks of another run (config.init).
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
# The entries of config.run that an evaluation depends on.
_EVALUATION_ENTRIES = ("eval_batch", "eval_norm", "decisions")


def save(
    job: RunContext,
    stage: Stage,
    states: PackedStates,
    step: int,
    *,
    evaluate_later: bool = False,
) -> None:
    """Save a checkpoint of a step, with the records of the step's evaluation, if any.

    Also updates `job.best` from that evaluation, and writes the run's cost.

    states: the states of all members (all seeds of all branches) after `step`.
    evaluate_later: another process evaluates the step from the checkpoint; sets
    `job.pending` and resets the monitor. OSError if the disk fails, or if the workdir is
    missing or belongs to another process.
    """
    job.flush()
    job.check_lock()
    is_evaluated, valid = step == job.evaluation.step, job.evaluation.valid
    if is_evaluated:
        for name, value in valid.items():
            job.best[name] = max(value, job.best.get(name, -1.0))
    run = job.config["run"]
    info = {
        "step": step,
        "stage": stage.number,
        "watch": job.monitor.state(),
        "best": job.best,
        "sums": job.records.sums_until(step),
        "records": results.dumps(job.evaluation.records) if is_evaluated else "",
        "left": None,
    }
    accuracies = None
    if evaluate_later:
        info["left"] = {key: run[key] for key in _EVALUATION_ENTRIES if key in run}
        accuracies = {}
    elif is_evaluated and valid:
        accuracies = {f"{stage.number}/{name}": value for name, value in valid.items()}
    job.checkpoints.save(step, stage.layout.unpack(states), info, accuracies)
    line = console.LogEvent(f"saved step {step}", "checkpoint", step=step)
    job.log(line.at("debug", quiet=True))
    if evaluate_later:
        job.pending = step
        job.monitor.reset()
    write_cost(job)


@contextlib.contextmanager
def save_before_data_error(
    job: RunContext, stage: Stage, states: PackedStates, step: int
) -> Iterator[None]:
    """Save the states if the context ends with a ValueError, as for an undecodable image.

    The error is raised again as a ValueError with instructions for the user. Nothing is saved
    if `step` is saved already or the stage has taken no step. A `UserCodeError` is raised
    unchanged, and nothing is saved.

    states: the states of all members after `step`.
    """
    try:
        yield
    except messages.UserCodeError:
        raise  # The error is not about an image.
    except ValueError as error:
        if step > max(job.checkpoints.step, stage.first):
            save(job, stage, states, step)
        job.checkpoints.wait()
        # Wait for all processes: the first one to exit kills its peers.
        job.team.all_gather("the end of a save", None)
        raise ValueError(
            f"{error}; step {step} is saved: restore the file as it was when the run began "
            "and run the same command to continue. A repair that changes the file's length "
            "changes the data set and needs a new --workdir. `jbias prepare check` lists "
            "all damaged files"
        ) from error


@dataclasses.dataclass
class LastGood:
    """The latest states of a stage, and their step."""

    states: PackedStates
    step: int | None  # None while the losses of a step are checked.


@contextlib.contextmanager
def saving_on_crash(
    job: RunContext, stage: Stage, states: PackedStates, step: int
) -> Iterator[LastGood]:
    """Save the latest states if the context ends with an unexpected error.

    Yields a `LastGood`, in which the training loop stores its latest states and step. The
    error is raised again, with a note that says whether the states were saved. With several
    processes, and after a ValueError whose step is saved already, nothing is saved and there
    is no note. Earlier checkpoints are not deleted.
    """
    latest = LastGood(states, step)
    try:
        yield latest
    except Exception as error:
        # `save_before_data_error` has saved the step and says so in the message.
        is_saved = isinstance(error, ValueError) and latest.step == job.checkpoints.step
        # With several processes all would have to save together.
        if job.team.count == 1 and not is_saved:
            note = _save_latest(job, stage, latest)
            if note:
                error.add_note(note)
        raise


def _save_latest(job: RunContext, stage: Stage, latest: LastGood) -> str:
    """Save the latest states; return a note that says which step is saved.

    If saving failed, the note gives the reason. The note is "" if there was no new step to
    save and the run has no checkpoint. Raises no errors.
    """
    try:
        leaves = [x for x in jax.tree.leaves(latest.states) if isinstance(x, jax.Array)]
        if job.checkpoints.saving:
            raise ValueError("saving failed")
        if latest.step is None or any(x.is_deleted() for x in leaves):
            raise ValueError("the error came during a step")
        jax.block_until_ready(leaves)
        if latest.step > max(job.checkpoints.step, stage.first):
            save(job, stage, latest.states, latest.step)
        job.checkpoints.wait()
    # Report the error that ended the run, even if saving fails, too.
    except Exception as save_error:  # noqa: BLE001
        reason = " ".join(str(save_error.__cause__ or save_error).split())[:200]
        with contextlib.suppress(Exception):
            job.checkpoints.wait()
        saved = "the folder of checkpoints cannot be read now"
        with contextlib.suppress(OSError):
            last = checkpoints.steps(job.workdir / "checkpoints")[-1:]
            saved = "there is no checkpoint"
            if last:
                saved = f"the latest checkpoint is of step {last[0]}"
        return f"the latest step could not be saved ({reason}); {saved}"
    if job.checkpoints.step < 0:
        return ""
    return f"step {job.checkpoints.step} is saved; run the same command to continue"


def resume(job: RunContext, info: dict[str, Any]) -> None:
    """Restore the monitor, best accuracies and record files of `job` from a checkpoint.

    info: the checkpoint's `info`, as `save` stores it. Records of the step's evaluation that
    were not written before the run was killed are written now. If another process evaluates
    the step or has evaluated it, `job.pending` is set and the monitor is reset.
    """
    step, total, is_main = info["step"], job.stages[-1].last, job.team.is_main
    job.monitor.load(info["watch"])
    job.best = info["best"]
    job.records.sums |= info.get("sums", {})
    line = f"resuming {job.name} at step {step}/{total}"
    job.log(console.LogEvent(line, "resume", step=step, total=total))
    is_evaluated = is_main and evaluations.is_evaluated(job.workdir, step)
    is_evaluated = job.team.broadcast("what is evaluated", is_evaluated)
    if info.get("left") and (job.elsewhere or is_evaluated):
        job.pending = step
        job.monitor.reset()
    if info["records"]:
        job.evaluation = Evaluation(step, (), {})
        if is_main:
            where = f"the checkpoint of step {step}"
            records = results.loads(info["records"], where=where)
            job.records.write_again(step, records)
            telemetry.log_evaluation(job, step, records)
    job.records.restore(job.checkpoints.info)


def write_cost(job: RunContext) -> dict[str, Any]:
    """Write the cost of this start of the run so far; return the total of all starts.

    The total is as `costs.total` returns it. Only process 0 writes; the other processes return
    {}.
    """
    if not job.team.is_main:
        return {}
    start = costs.of_start(
        job.meter.began,
        job.meter.spent(),
        devices=workdirs.billed_devices(job.devices, job.team.cores),
        energy=energy(job.config),
        step=max(job.checkpoints.step, 0),
    )
    start["stepped"] = job.stepped
    memory_stats = job.devices.local_devices[0].memory_stats() or {}
    if "peak_bytes_in_use" in memory_stats:  # Missing on a CPU.
        start["peak_gib"] = memory_stats["peak_bytes_in_use"] / 2**30
    return workdirs.record_cost(job.workdir, start)


def energy(config: Mapping[str, Any]) -> costs.Energy:
    """Return config.run.energy, with defaults for missing entries.

    ValueError for unknown or invalid entries.
    """
    return costs.parse_energy("config.run.energy", config["run"].get("energy", {}))


def load_initial_nets(workdir: epath.PathLike, seeds: Sequence[int]) -> list[Net]:
    """Return the networks of `seeds`, in the same order, from a run's latest checkpoint.

    workdir: the workdir of the run; for a run with config.vary, the folder of one branch,
    such as runs/x/vary/optim.rate=0.1. If the run has one seed, its network is returned for
    every seed. ValueError if the folder is not a run or a single branch, has no checkpoint
    yet, or lacks one of the seeds.
    """
    where = "config.init"
    workdir = epath.Path(files.local_copy(workdir, where, checkpoints=True))
    run_workdir = workdir
    if workdir.parent.name == "vary" and not (workdir / "checkpoints").exists():
        run_workdir = workdir.parent.parent
    config_path, folder = run_workdir / "config.json", run_workdir / "checkpoints"
    if not config_path.exists() or not folder.exists():
        raise ValueError(
            f"{where}: {workdir} must be the workdir of a run with checkpoints; "
            "train it first or name another"
        )
    config = json.loads(config_path.read_text("utf-8"))
    run_seeds = config["seeds"]
    folders = [branch.folder for branch in run_spec.branches(config)]
    branch = "" if run_workdir == workdir else f"vary/{workdir.name}"
    if branch not in folders:
        raise ValueError(
            f"{where}: {workdir} must be one branch of the run in {run_workdir}; name one, "
            f"such as {run_workdir / folders[0]}"
        )
    has_one_seed = len(run_seeds) == 1
    missing = [seed for seed in seeds if seed not in run_seeds]
    if missing and not has_one_seed:
        raise ValueError(
            f"{where}: {workdir} has the seeds {run_seeds} and not {missing[0]}; "
            f"train seed {missing[0]} there, or start from a run of a single seed"
        )
    steps = checkpoints.steps(folder)
    if not steps:
        raise ValueError(
            f"{where}: {folder} has no checkpoint yet; wait for the first one"
        )
    nets, _ = trained.read_nets(folder, steps[-1])
    # The networks are in the order of branches, and of seeds within a branch.
    first = folders.index(branch) * len(run_seeds)
    return [
        nets[first if has_one_seed else first + run_seeds.index(seed)] for seed in seeds
    ]


def graft_head(drawn: Net, loaded: Net, say: messages.Say) -> Net:
    """Return `loaded`, with the last linear layer of `drawn` if the numbers of classes differ.

    drawn: a network with random initial weights of the model to train. loaded: the network
    to start from. say: receives a log line if the layer is replaced. ValueError if any other
    shapes differ.
    """
    shapes, drawn_shapes = (jax.tree.map(np.shape, net) for net in (loaded, drawn))
    if shapes == drawn_shapes:
        return loaded
    grafted = loaded
    if "fc" in drawn["params"]:
        head = drawn["params"]["fc"]
        grafted = {**loaded, "params": {**loaded["params"], "fc": head}}
    if jax.tree.map(np.shape, grafted) != drawn_shapes:
        raise ValueError(
            "config.init: the model differs from config.model; set config.model to the "
            "model in that run's config.json"
        )
    say("config.init: the number of classes differs; the linear layer is drawn anew")
    return grafted
