"""Training of all seeds of a config: stages, scheduled evaluations and saves, resuming.

`run` trains from a config, `train_stage` is the loop over the steps of a stage. Data,
networks and algorithm are opened by jbias.training.setup. A run that is started again with
the same config continues from its latest complete checkpoint. The argument `job` of
functions is the open run: its config, stages, files, log and processes. A member is a seed
of a branch (a combination of the values of config.vary); all members train together.
"""

import contextlib
import functools
import itertools
import time
from collections.abc import Hashable, Mapping
from typing import Any

from etils import epath

from jbias import config as jc
from jbias import extensions, run_spec
from jbias.runs import (
    checkpoints,
    checksums,
    costs,
    evaluations,
    results,
    status,
    workdirs,
)
from jbias.runtime import console, files, signals, xla
from jbias.runtime import processes as teams
from jbias.training import checkpointing, evaluator, memory, setup, telemetry
from jbias.training import step as train_step
from jbias.training.context import RunContext
from jbias.training.seed_axis import PackedStates
from jbias.training.stages import Stage


def run(
    config: Mapping[str, Any] | run_spec.RunSpec,
    workdir: epath.PathLike,
    team: teams.ProcessGroup = teams.ALONE,
    *,
    stop_signal: signals.StopSignal | None = None,
) -> bool:
    """Train and evaluate a run, and write its records; return True unless every seed diverged.

    A run that is done is not trained again. team: the processes that train together; only
    process 0 uses the workdir. stop_signal: records stop signals; to train several runs one
    after another, pass the same object to each. During the run, jax's settings that affect
    numbers have fixed values.
    ValueError for an invalid config or data, OSError for errors of disk or memory; earlier
    saves stay complete. After one of signals.STOP_SIGNALS the state is saved, and
    signals.Interrupted is raised.
    """
    stopwatch = costs.Stopwatch()
    is_main = team.is_main
    with contextlib.ExitStack() as stack:
        if stop_signal is None:
            stop_signal = stack.enter_context(signals.listen())
        overridden = stack.enter_context(xla.fixed_settings())
        spec = run_spec.RunSpec.from_config(config)
        setup.check_names(spec)
        workdir = files.resolve(workdir)
        options = spec.config["run"]
        if is_main:
            log_format = options.get("log", console.LOG_FORMATS[0])
            log = console.logger(workdir, log_format)
            stack.callback(console.flush, workdir)
            claim = workdirs.claim(workdir, spec.config, log, command=spec.command)
            check_lock = stack.enter_context(claim).check
            stack.enter_context(memory.explain_lack())
            for line in overridden:
                log(line)
        else:
            console.logger(None)(
                f"process {team.number} of {team.count}: process 0 reports the progress"
            )
            log, check_lock = (lambda line: None), (lambda: None)
            stack.enter_context(memory.explain_lack())
        if is_main:
            setup.check_same_code(spec, workdir)
        stack.enter_context(extensions.naming_files(spec.config))
        outcome = workdirs.read_done(workdir) if is_main else ""
        outcome = team.broadcast("whether it is done", outcome)
        if outcome:
            if is_main:
                setup.check_same_data(spec, workdir)
                checkpoints.check_seals(workdir / "checkpoints", spec.config)
            has_lost_files = is_main and evaluations.needs_restoring(
                workdir, options, log
            )
            if not team.broadcast("whether files of it are lost", has_lost_files):
                done = "done, every seed diverged" if outcome == "diverged" else "done"
                log(
                    f"{workdir} is {done}: nothing to do; another --workdir trains again"
                )
                return outcome != "diverged"
        if is_main and (workdir / "config.json").exists():
            status.Heartbeat(workdir, log).update("opening")
        job = setup.open_run(
            spec, workdir, log, team=team, guard=check_lock, meter=stopwatch
        )
        stop_signal.attach(job)
        with contextlib.closing(job.writers):
            _train(job)
        if is_main:
            _end(job)
        return not job.monitor.all_diverged


def _end(job: RunContext) -> None:
    """Write the files `done` of the run and its branches, and the run's cost; log the end.

    The records of a local run are compacted (`results.compact`). Steps that wait for an evaluation
    by another process are logged.
    """
    outcome = "diverged" if job.monitor.all_diverged else "finished"
    job.check_lock()
    branch_folders = [branch.folder for branch in job.branches if branch.folder]
    for folder in (*branch_folders, ""):
        files.save(job.workdir / folder / "done", outcome + "\n")
    if not files.is_remote(job.workdir):
        # An optional copy of the records. A damaged line is reported when it is read.
        with contextlib.suppress(OSError, ValueError):
            results.compact(job.workdir)
    cost = costs.describe(checkpointing.write_cost(job))
    line = f"{outcome}: {job.name} in {job.workdir}, {cost}"
    step = max(job.checkpoints.step, 0)
    job.log(console.LogEvent(line, "finished", step=step, fate=outcome))
    telemetry.set_phase(job, outcome, step)
    if job.config["vary"]:
        job.log(f"to compare its branches: jbias report --runs={job.workdir}")
    pending = ", ".join(map(str, evaluations.pending(job.workdir)))
    if pending:
        job.log(
            f"steps {pending} are to be evaluated: jbias evaluate "
            f"--follow={job.workdir}"
        )


def _train(job: RunContext) -> None:
    """Run the stages, starting from the latest checkpoint, if any.

    Lost files of decisions are recomputed first. Stages and checkpoints are closed at the end and
    after errors. If every seed diverged, the remaining stages are skipped, and a line is logged.
    """
    job.check_lock()  # Restoring moves damaged checkpoints away.
    restored = job.checkpoints.restore(job.state_shapes, job.log)
    first, packed, step, info = 0, None, 0, {}
    if restored is not None:
        states, info = restored
        first, step = info["stage"], info["step"]
        packed = job.stages[first].layout.pack(states)
        del states, restored
    event = console.LogEvent(
        f"{job.name} begins at step {step}",
        "start",
        run=job.name,
        seeds=job.seeds,
        total=job.stages[-1].last,
        step=step,
    )
    job.log(event.at("info", quiet=True))
    telemetry.open_loggers(job, step)
    telemetry.set_phase(job, "opening", step)
    if packed is not None:
        checkpointing.resume(job, info)
    _restore_decisions(job)
    try:
        for stage in job.stages[first:]:
            if packed is None or stage.number > first:
                job.best, step = {}, stage.first
                # Nearly all of the time to draw the weights is compilation.
                with job.meter.during("compiling"):
                    packed = _start(job, stage, packed)
            packed = train_stage(job, stage, packed, step)
            stage.close()
            if job.monitor.all_diverged:
                break
    finally:
        for stage in job.stages:
            stage.close()
        job.checkpoints.close()
    if job.monitor.all_diverged:
        seeds = [f"seed {k} at step {v}" for k, v in job.monitor.diverged.items()]
        job.log(f"every seed diverged: {', '.join(seeds)}; lower config.optim.rate")


def _restore_decisions(job: RunContext) -> None:
    """Recompute lost files of decisions from checkpoints, and write the checksums.

    A line is logged if files cannot be recomputed, as their steps have no checkpoint. A stop
    signal ends the work; the next start continues.
    """
    checksums_of_decisions = {
        path: checksum
        for path, checksum in job.records.sums.items()
        if not checksums.is_record(path)
    }
    lost, steps = evaluations.find_damaged(
        job.workdir, checksums_of_decisions, job.config["run"]
    )
    for step in job.team.broadcast("lost decisions", steps):
        if job.halted:
            break
        restored = job.checkpoints.restore_step(step, job.state_shapes)
        if restored:
            states, info = restored
            stage = job.stages[info["stage"]]
            nets = stage.layout.pack(map(evaluator.net_only, states))
            evaluator.rebuild_decisions(job, stage, nets, step)
    # After a stop, the next start recomputes the remaining files.
    job.records.seal(() if job.halted else lost)


def _start(
    job: RunContext, stage: Stage, previous: PackedStates | None
) -> PackedStates:
    """Return the initial states of all members in a stage.

    previous: last states of the previous stage; None for the first stage, whose networks
    come from another run (config.init) or are drawn.
    """
    nets = None
    if previous is not None:
        layout = job.stages[stage.number - 1].layout
        nets = [train_step.net_of(state) for state in layout.unpack(previous)]
    elif job.initial_nets:
        drawn = [train_step.net_of(stage.init_state(seed)) for seed in job.seeds]
        nets = [
            checkpointing.graft_head(new_net, loaded_net, job.log)
            for new_net, loaded_net in zip(drawn, job.initial_nets, strict=True)
        ]
        nets *= len(job.branches)
    return stage.start(nets, job.team.broadcast_tree)


def train_stage(
    job: RunContext, stage: Stage, states: PackedStates, step: int
) -> PackedStates:
    """Train a stage from `step` to its end, with evaluations and saves; return the last states.

    states: states of all members after `step`. Ends earlier if every seed diverged.
    signals.Interrupted, after a save, if a stop is requested.
    """
    assert step <= stage.last, f"step {step} is after its stage's last, {stage.last}"

    def interval(duration: str) -> int:
        """Return the steps of a duration such as "1 epoch"."""
        return jc.to_steps(
            duration,
            steps_per_epoch=stage.order.steps_per_epoch,
            total=job.stages[-1].last,
        )

    eval_interval = interval(job.config["eval_every"])
    save_interval = interval(job.config["save_every"])
    compiled = set()
    with (
        checkpointing.saving_on_crash(job, stage, states, step) as latest,
        telemetry.stepping(job, stage, step),
    ):
        while True:
            # Decide what is due at this step, equally in all processes.
            stop = job.stop_requested(step)
            done_steps = step - stage.first
            is_last = step == stage.last
            eval_due = done_steps > 0 and (done_steps % eval_interval == 0 or is_last)
            save_due = done_steps > 0 and done_steps % save_interval == 0
            if eval_due:
                job.flush()
            ends = is_last or eval_due and job.monitor.all_diverged
            evaluates = eval_due and step not in (job.evaluation.step, job.pending)
            if evaluates and not (stop or job.elsewhere):
                with (
                    telemetry.evaluating(job, step),
                    checkpointing.save_before_data_error(job, stage, states, step),
                ):
                    evaluator.evaluate(job, stage, states, step)
            is_unevaluated = evaluates and step != job.evaluation.step
            must_save = save_due or stop or ends
            if _is_save_due(job, step, must_save, is_unevaluated=is_unevaluated):
                with telemetry.saving(job):
                    checkpointing.save(
                        job, stage, states, step, evaluate_later=is_unevaluated
                    )
            # A stop signal may have arrived during the evaluation.
            if job.halted and step == job.checkpoints.step:
                raise signals.Interrupted(
                    f"{job.halted} at step {step}: saved; the same command resumes"
                )
            if ends:
                return states
            next_event = min(
                stage.first + (done_steps // every + 1) * every
                for every in (eval_interval, save_interval)
            )
            count, static = _steps_to_dispatch(job, stage, step, next_event)
            with checkpointing.save_before_data_error(job, stage, states, step):
                if not _wait_for_data(job, stage, step):
                    continue
                shared = stage.shared(step)
                # A read error in one process stops all of them.
                with job.team.raise_together("the images of a step", stage.streams):
                    batches = stage.batches(step, count)
            program = static, count if count == stage.scanned else 1
            is_new = program not in compiled
            compiled.add(program)
            advance = stage.advance
            profiles = job.config["run"]["profile"] and job.team.is_main
            if profiles and not (is_new or job.profiled):
                advance = functools.partial(telemetry.advance_profiled, job, stage)
            elif stage.can_skip_members and job.team.count == 1:
                batches = [
                    stage.skip_members(batch, job.monitor.diverged) for batch in batches
                ]
            with telemetry.compiling(job, step) if is_new else contextlib.nullcontext():
                states, step_metrics = advance(states, batches, shared, static)
            latest.states, latest.step = states, None
            del shared  # Free the window before the next one is placed.
            for metrics in step_metrics:
                step += 1
                job.log_divergences(job.monitor.add(step, metrics, stage.layout.split))
            latest.step = step
            job.stepped += 0 if is_new else len(step_metrics)
            loss = job.monitor.latest
            note = job.note if loss is None else f"loss {loss:.3f}{job.note}"
            job.progress.update(step, note, counted=not is_new)


def _is_save_due(
    job: RunContext, step: int, must_save: bool, *, is_unevaluated: bool
) -> bool:
    """Return True if a checkpoint of a step must be saved.

    True also for a new best validation accuracy, after a stop signal, and if an evaluation that is
    due is not run. A step that is saved already is saved again only if its evaluation came
    later, or is left to another process. False for a step before the latest saved one.

    must_save: True if a save is scheduled, or the run stops or ends at this step.
    is_unevaluated: True if an evaluation is due at this step and has not been run.
    """
    valid = job.evaluation.valid.items() if step == job.evaluation.step else ()
    is_best = any(value > job.best.get(name, -1.0) for name, value in valid)
    if step > job.checkpoints.step:
        return must_save or bool(job.halted) or is_unevaluated or is_best
    if step < job.checkpoints.step:
        return False
    # Save this step again if a stop came between its save and its evaluation.
    return is_best and not job.checkpoints.complete or is_unevaluated and job.elsewhere


def _wait_for_data(job: RunContext, stage: Stage, step: int) -> bool:
    """Wait for the data of a step; return False if a stop signal arrived before the data.

    True without waiting if the stage's data is in memory (not `stage.streams`). If each process
    reads a share of the data, all wait for the slowest, and stop if any got a stop signal, which
    is then in `job.halted`.
    """
    is_alone = job.team.count == 1
    if not stage.streams or is_alone and stage.wait(step, lambda: True):
        return True
    is_first = step == stage.first or job.checkpoints.step == step
    if is_first:
        job.log("reading the first window of the training set ...")
    with job.progress.idle() if is_first else contextlib.nullcontext():
        if is_alone:
            return stage.wait(step, lambda: bool(job.stop))
        while True:

            def wait_a_second(until: float = time.monotonic() + 1) -> tuple[bool, str]:
                return stage.wait(step, lambda: time.monotonic() > until), job.stop

            answers = job.team.gather_results("the data of a step", wait_a_second)
            job.halted = next((stop for _, stop in answers if stop), "")
            if job.halted or all(is_ready for is_ready, _ in answers):
                return not job.halted


def _steps_to_dispatch(
    job: RunContext, stage: Stage, step: int, next_event: int
) -> tuple[int, Hashable]:
    """Return the number of steps to run next, and the static arguments of their program.

    The steps start at `step`. They end at the next evaluation or save (`next_event`), the stage's
    end, the next change of the data that seeds share, or the next change of the program, and are at
    most config.run.steps_per_dispatch.
    """
    static = stage.static(step)
    stop = min(
        next_event,
        stage.last,
        stage.next_change(step),
        step + job.config["run"]["steps_per_dispatch"],
    )
    is_same = (stage.static(later) == static for later in range(step, stop))
    return sum(itertools.takewhile(bool, is_same)), static
