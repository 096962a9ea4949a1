"""Evaluates the checkpoints of a run that another process trains, as it comes to them.

The run is one with config.run.evaluate="elsewhere": it saves where it would evaluate,
with all that the records need, and keeps what is saved until evals/<step>.jsonl is there.
"""

import contextlib
import itertools
import textwrap
import time
from collections.abc import Callable

import jax
from etils import epath

from jbias import entries
from jbias import step as train_step
from jbias.models import trained
from jbias.runs import checkpoints, checksums, workdirs
from jbias.runtime import console, files, lock
from jbias.training import build, memory, observe, opening, parts, recorded, signs
from jbias.training.job import Job


def run(
    workdir: epath.PathLike,
    *,
    interval: float,
    once: bool = False,
    devices: int = 0,
) -> None:
    """Evaluates each step that is due until the run is done; `once`: those there are.

    interval: seconds between looks at the checkpoints. devices: how many to use of those
    here, whatever the run has; 0: all. ValueError or OSError where that cannot be; what
    was evaluated stands, and the same call goes on.
    """
    workdir = files.resolve(workdir, "--follow")
    say = _await_run(workdir, interval, once)
    with contextlib.ExitStack() as ends:
        ends.callback(console.flush, workdir)
        held = ends.enter_context(workdirs.claim_evaluation(workdir, say))
        job, again = None, iter(recorded.to_evaluate(workdir, say))
        while True:
            over = once or (workdir / "done").exists()
            for step in itertools.chain(again, recorded.left(workdir)):
                job = job or _opened(workdir, say, devices, held, ends)
                _evaluate(job, step)
            if over:
                count = len(recorded.all_written(workdir))
                own = _config(workdir)["run"].get("evaluate") == "here"
                by = "; the run evaluates by itself" if own else ""
                say(f"{workdir}: evaluated all that was due, {count} steps in all{by}")
                return
            job = job or _opened(workdir, say, devices, held, ends)
            time.sleep(interval)


def _await_run(workdir: epath.Path, interval: float, once: bool) -> Callable:
    """Waits while a run is being opened; ValueError where there is none."""
    told = False
    while not (workdir / "provenance.json").exists():
        if once or not workdirs.is_claimed(workdir):
            raise ValueError(
                f"--follow: {workdir} is no run (no provenance.json); start its "
                "training first, or name its workdir"
            )
        if not told:
            console.logger(None)(f"waiting until the run in {workdir} is opened ...")
        told = True
        time.sleep(interval)
    return console.logger(
        workdir, _config(workdir)["run"].get("log", console.LOG_FORMATS[0])
    )


def _config(workdir: epath.Path) -> dict:
    """The run's config; ValueError where it is no run's."""
    needed = (key for key in entries.KEYS if key not in entries.LATER)
    config = trained.read_json(workdir / "config.json", (*needed, "run.devices"))
    return parts.trusted(config, workdir)


def _opened(
    workdir: epath.Path,
    say: Callable,
    devices: int,
    held: lock.Lock,
    ends: contextlib.ExitStack,
) -> Job:
    """The run's data and networks, laid out for the devices of this process."""
    say(f"following {workdir}")
    config = _config(workdir)
    here = dict(spread=0, together=0, memory=0.0, strategy="auto")
    config["run"].update(here, devices=devices)
    job = opening.job(config, workdir, say, follows=True)
    job.check_lock = held.check
    job.sums = checksums.read(workdir, checksums.FOLLOWER)
    job.stages = [
        build.laid_out(stage, len(job.members), job.devices, together=_together(job, i))
        for i, stage in enumerate(job.stages)
    ]
    ends.callback(job.writers.close)
    signs.begin(job, 0, alone=False)
    return job


def _together(job: Job, number: int) -> int:
    """How many nets to have on the devices at once: half of the memory, 0 for all."""
    free = memory.room(job.devices)
    if free is None:
        return 0
    leaves = jax.tree.leaves(train_step.net_of(observe.template(job)(number)[0]))
    each = sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
    return max(1, free // 2 // each) * job.devices.shape["seed"]


def _evaluate(job: Job, step: int) -> None:
    """Makes one evaluation as the run itself would have made it."""
    folder = job.workdir / "checkpoints"
    try:
        states, info = checkpoints.read(folder, step, observe.template(job))
    except (*checkpoints.MACHINE_ERRORS, PermissionError):
        raise
    # Of damaged bytes, and of a step that goes meanwhile, orbax raises anything.
    except Exception as error:
        if step not in checkpoints.steps(folder):
            return
        reason = textwrap.shorten(str(error), 200, placeholder=" …")
        raise ValueError(
            f"checkpoint: {folder / str(step)} cannot be read ({reason}); if it "
            "is damaged, delete it, and this evaluation is never made"
        ) from error
    job.config["run"].update(info["left"])
    job.monitor.load(info["watch"])
    stage = job.stages[info["stage"]]
    nets = stage.layout.pack(map(observe.net_alone, states))
    del states
    observe.evaluate(job, stage, nets, step)
