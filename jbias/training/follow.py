"""Evaluate a run that another process trains with config.run.evaluate="elsewhere".

That run saves a checkpoint instead of each evaluation, and stores the checkpoint until
evals/<step>.jsonl exists. `follow` evaluates these checkpoints.
"""

import contextlib
import dataclasses
import functools
import itertools
import time
from collections.abc import Callable
from typing import Any

from etils import epath

from jbias import extensions, run_spec, seals
from jbias.models import trained
from jbias.runs import checkpoints, record_store, status, workdirs
from jbias.runtime import console, files, messages, workdir_lock
from jbias.training import resuming, setup


def follow(
    workdir: epath.PathLike, *, interval: float, once: bool = False, devices: int = 0
) -> None:
    """Evaluate the saved steps of a run that another process trains, until the run ends.

    workdir: workdir of the run. interval: seconds between two reads of the list of checkpoints.
    once: whether to return after the steps that are saved already. devices: number of this
      machine's devices to use; 0: all.

    ValueError if there is no run in the workdir (`_await_config`), or if another process
    evaluates the run. ValueError or OSError if a step cannot be evaluated; finished evaluations are
    not deleted, and a second call evaluates the remaining steps.
    """
    workdir = files.resolve(workdir, "--follow")
    config = _await_config(workdir, interval, once)
    log = console.logger(workdir, config["run"].get("log", console.LOG_FORMATS[0]))
    with contextlib.ExitStack() as stack:
        stack.callback(console.flush, workdir)
        claim = stack.enter_context(workdirs.claim_evaluation(workdir, log))
        stack.enter_context(extensions.naming_files(config))

        @functools.cache
        def open_run() -> setup.OpenRun:
            """Return the opened run; open the run in the first call only."""
            run = _open_followed(workdir, config, log=log, devices=devices, claim=claim)
            stack.callback(run.log.observers.close_loggers)
            run.log.observers.open_loggers(0, alone=False)
            return run

        damaged_steps = iter(record_store.damaged_steps(workdir, log))
        while True:
            # Checked first: steps saved before the end are pending below.
            is_last_look = once or (workdir / "done").exists()
            for step in itertools.chain(damaged_steps, record_store.pending(workdir)):
                _evaluate_step(open_run(), step)
            if is_last_look:
                count = len(status.evaluated_steps(workdir))
                evaluates_itself = config["run"].get("evaluate") == "here"
                hint = "; the run evaluates by itself" if evaluates_itself else ""
                log(
                    f"{workdir}: evaluated all that was due, {count} steps in all{hint}"
                )
                return
            open_run()
            time.sleep(interval)


def _await_config(workdir: epath.Path, interval: float, once: bool) -> dict[str, Any]:
    """Wait until the workdir has a run's config, and return the config.

    interval: seconds between two checks. once: do not wait. ValueError if there is no config,
    and either `once` is True or no process is starting a run there. ValueError also if the config
    lacks an entry, or if `run_spec.check_trusted` refuses the config.
    """
    has_logged = False
    while not (workdir / "provenance.json").exists():
        if once or not status.is_running(workdir):
            raise ValueError(
                f"--follow: {workdir} is no run (no provenance.json); start its "
                "training first, or name its workdir"
            )
        if not has_logged:
            console.logger(None)(f"waiting until the run in {workdir} is opened ...")
        has_logged = True
        time.sleep(interval)
    needed = (key for key in run_spec.KEYS if key not in run_spec.OPTIONAL_KEYS)
    config = trained.read_json(workdir / "config.json", (*needed, "run.devices"))
    return run_spec.check_trusted(config, workdir)


def _open_followed(
    workdir: epath.Path,
    config: dict[str, Any],
    *,
    log: Callable[[str], None],
    devices: int,
    claim: workdir_lock.Lock,
) -> setup.OpenRun:
    """Return the run, opened for this process to evaluate while another process trains.

    config: config of the run; its strategy and its options of devices and memory are not
    used. log: receives log lines. devices: number of devices to use; 0: all. claim: the lock
    for evaluation, checked before each write.
    """
    log(f"following {workdir}")
    run_options = {
        **config["run"],
        "spread": 0,
        "together": 0,
        "memory": 0.0,
        "strategy": "auto",
        "devices": devices,
    }
    spec = run_spec.RunSpec.from_config({**config, "run": run_options})
    setup.check_names(spec)
    return setup.open_run(spec, workdir, log, follows=True, guard=claim.check)


def _evaluate_step(run: setup.OpenRun, step: int) -> None:
    """Evaluate the checkpoint of a step exactly as the run itself would.

    Does nothing if the checkpoint was deleted meanwhile. ValueError if the checkpoint cannot be
    read; errors of the machine, such as OSError, and `seals.ForeignError` are raised unchanged.
    """
    folder = run.store.workdir / "checkpoints"
    try:
        states, info = checkpoints.read(
            folder,
            step,
            lambda number: run.stages[number].stage.state_shapes,
            run.seal.differences,
        )
    except (*checkpoints.MACHINE_ERRORS, PermissionError, seals.ForeignError):
        raise
    # For damaged files, and for a step that is deleted meanwhile, orbax raises any error.
    except Exception as error:
        if step not in checkpoints.steps(folder):
            return
        reason = messages.shorten(error)
        raise ValueError(
            f"checkpoint: {folder / str(step)} cannot be read ({reason}); if it "
            "is damaged, delete it, and this evaluation is never made"
        ) from error
    trained.check_statistics(folder / str(step), info)
    # An evaluation depends on these entries of config.run as the run had them at this step.
    # A later version may have recorded further entries.
    left = {key: info["left"][key] for key in info["left"] if key in run_spec.RUN_KEYS}
    run.evaluator.run = dataclasses.replace(run.evaluator.run, **left)
    run.monitor.load(info["watch"])
    placed = run.stages[info["stage"]]
    nets = placed.layout.pack(map(resuming.net_only, states))
    del states
    evaluation = run.evaluator.evaluate(placed, nets, step)
    if evaluation:
        run.store.write_evaluation(evaluation)
