"""Trains all seeds of a config, evaluates and saves on schedule, survives kills.

jbias.training.setup opens what the config names; here is what follows, down to the loop
over the steps of a stage. Started again with the same config, a run goes on where its
latest complete checkpoint stands.
"""

import contextlib
import functools
import itertools
import time
from collections.abc import Hashable, Mapping, Sequence
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
    heard: signals.StopSignal | None = None,
) -> bool:
    """Train, evaluate and record; return whether any seed stayed finite.

    Where several processes train together, `team` are they: the first alone touches the
    workdir. ValueError where the config cannot be carried out, OSError where the disk or the
    memory cannot take it, signals.Interrupted after one of signals.STOP_SIGNALS; each loses
    nothing that was saved. Who trains several runs gives what notes the signals, `heard`.
    jax's settings on which numbers depend are the run's own until it ends.
    """
    meter, main = costs.Stopwatch(), team.is_main
    with contextlib.ExitStack() as ends:
        heard = heard or ends.enter_context(signals.listen())
        overridden = ends.enter_context(xla.fixed_settings())
        spec = run_spec.RunSpec.from_config(config)
        setup.check_names(spec)
        workdir, options = files.resolve(workdir), spec.config["run"]
        if main:
            form = options.get("log", console.LOG_FORMATS[0])
            say = console.logger(workdir, form)
            ends.callback(console.flush, workdir)
            claimed = workdirs.claim(workdir, spec.config, say)
            guard = ends.enter_context(claimed).check
            ends.enter_context(memory.explain_lack())
            for line in overridden:
                say(line)
        else:
            of = f"process {team.number} of {team.count}"
            console.logger(None)(f"{of}: it is process 0 that says how far the run is")
            say, guard = (lambda line: None), (lambda: None)
            ends.enter_context(memory.explain_lack())
        if main:
            setup.check_same_code(spec, workdir)
        ends.enter_context(extensions.naming_files(spec.config))
        fate = workdirs.read_done(workdir) if main else ""
        if fate := team.broadcast("whether it is done", fate):
            if main:
                setup.check_same_data(spec, workdir)
                checkpoints.check_seals(workdir / "checkpoints", spec.config)
            mends = main and evaluations.needs_restoring(workdir, options, say)
            if not team.broadcast("whether files of it are lost", mends):
                so = "done, every seed diverged" if fate == "diverged" else "done"
                say(f"{workdir} is {so}: nothing to do; another --workdir trains again")
                return fate != "diverged"
        if main and (workdir / "config.json").exists():
            status.Heartbeat(workdir, say).update("opening")
        job = setup.open_run(spec, workdir, say, team=team, guard=guard, meter=meter)
        heard.attach(job)
        with contextlib.closing(job.writers):
            _train(job)
        if main:
            _end(job)
        return not job.monitor.all_diverged


def _end(job: RunContext) -> None:
    """Writes how the run ended, and tells it."""
    fate = "diverged" if job.monitor.all_diverged else "finished"
    job.check_lock()
    for folder in (*(b.folder for b in job.branches if b.folder), ""):
        files.save(job.workdir / folder / "done", fate + "\n")
    if not files.is_remote(job.workdir):
        # The records are in their own files; their reader names a damaged line.
        with contextlib.suppress(OSError, ValueError):
            results.compact(job.workdir)
    cost = costs.describe(checkpointing.write_cost(job))
    line = f"{fate}: {job.name} in {job.workdir}, {cost}"
    step, runs = max(job.checkpoints.step, 0), job.workdir
    job.log(console.LogEvent(line, "finished", step=step, fate=fate))
    telemetry.set_phase(job, fate, step)
    if job.config["vary"]:
        job.log(f"its branches side by side: jbias report --runs={runs}")
    if left := ", ".join(map(str, evaluations.pending(runs))):
        job.log(f"steps {left} are left to jbias evaluate --follow={runs}")


def _train(job: RunContext) -> None:
    """Runs the stages, from where the latest checkpoint stands."""
    job.check_lock()  # What is damaged is moved.
    restored = job.checkpoints.restore(job.state_shapes, job.log)
    first, packed, step, info = 0, None, 0, {}
    if restored is not None:
        states, info = restored
        first, step = info["stage"], info["step"]
        packed = job.stages[first].layout.pack(states)
        del states, restored
    told = dict(run=job.name, seeds=job.seeds, total=job.stages[-1].last, step=step)
    line = console.LogEvent(f"{job.name} begins at step {step}", "start", **told)
    job.log(line.at("info", quiet=True))
    telemetry.open_loggers(job, step)
    telemetry.set_phase(job, "opening", step)
    if packed is not None:
        checkpointing.resume(job, info)
    _decide_again(job)
    try:
        for stage in job.stages[first:]:
            if packed is None or stage.number > first:
                job.best, step = {}, stage.first
                with job.meter.during(
                    "compiling"
                ):  # Drawing the weights takes no time.
                    packed = _start(job, stage, packed)
            packed = train_stage(job, stage, packed, step)
            stage.close()
            if job.monitor.all_diverged:
                break
    finally:
        for stage in job.stages:
            stage.close()
        job.checkpoints.close()
    if fates := job.monitor.all_diverged and job.monitor.diverged.items():
        each = ", ".join(f"seed {k} at step {v}" for k, v in fates)
        job.log(f"every seed diverged: {each}; lower config.optim.rate")


def _decide_again(job: RunContext) -> None:
    """Makes decisions anew that are lost, where their step's states are kept; seals all."""
    held = {k: v for k, v in job.records.sums.items() if not checksums.is_record(k)}
    lost, steps = evaluations.find_damaged(job.workdir, held, job.config["run"])
    for step in job.team.broadcast("lost decisions", steps):
        if job.halted:
            break
        if found := job.checkpoints.restore_step(step, job.state_shapes):
            stage = job.stages[found[1]["stage"]]
            nets = stage.layout.pack(map(evaluator.net_only, found[0]))
            evaluator.rebuild_decisions(job, stage, nets, step)
    # Halted, it goes on another time.
    job.records.seal(() if job.halted else lost)


def _start(job: RunContext, stage: Stage, before: PackedStates | None) -> PackedStates:
    """The first states of a stage: new ones, with the nets of the stage before it."""
    nets = None
    if before is not None:
        layout = job.stages[stage.number - 1].layout
        nets = [train_step.net_of(state) for state in layout.unpack(before)]
    elif job.initial_nets:
        drawn = [train_step.net_of(stage.init_state(seed)) for seed in job.seeds]
        pairs = zip(drawn, job.initial_nets, strict=True)
        nets = [checkpointing.graft_head(*pair, job.log) for pair in pairs]
        nets *= len(job.branches)
    return stage.start(nets, job.team.broadcast_tree)


def train_stage(
    job: RunContext, stage: Stage, states: PackedStates, step: int
) -> PackedStates:
    """Steps, evaluates and saves until the stage ends; returns the states."""
    assert step <= stage.last, f"step {step} lies beyond its stage's last, {stage.last}"
    scale = dict(steps_per_epoch=stage.order.steps_per_epoch, total=job.stages[-1].last)
    events = job.config["eval_every"], job.config["save_every"]
    cadence = [jc.to_steps(every, **scale) for every in events]
    compiled = set()
    with (
        checkpointing.saving_on_crash(job, stage, states, step) as latest,
        telemetry.stepping(job, stage, step),
    ):
        while True:
            # What is due at this step, in all processes alike.
            stop, local, last = job.stop_requested(step), step - stage.first, stage.last
            evaluates, saves = (local and local % every == 0 for every in cadence)
            if evaluates := local and (evaluates or step == last):
                job.flush()
            ends = step == last or evaluates and job.monitor.all_diverged
            evaluates &= step not in (job.evaluation.step, job.pending)
            if evaluates and not (stop or job.elsewhere):
                with (
                    telemetry.evaluating(job, step),
                    checkpointing.save_before_data_error(job, stage, states, step),
                ):
                    evaluator.evaluate(job, stage, states, step)
            left = evaluates and step != job.evaluation.step
            if _is_save_due(job, step, saves or stop or ends, left=left):
                with telemetry.saving(job):
                    checkpointing.save(job, stage, states, step, left=left)
            if job.halted and step == job.checkpoints.step:  # It may have come since.
                then = "saved; the same command resumes"
                raise signals.Interrupted(f"{job.halted} at step {step}: {then}")
            if ends:
                return states
            count, static = _steps_ahead(job, stage, step, cadence)
            with checkpointing.save_before_data_error(job, stage, states, step):
                if not _wait_for_data(job, stage, step):
                    continue
                held = stage.shared(step)
                # What one process cannot read ends all alike.
                with job.team.raise_together("the images of a step", stage.streams):
                    args = stage.batches(step, count)
            program = static, count if count == stage.scanned else 1
            new, advance = program not in compiled, stage.advance
            compiled.add(program)
            profiles = job.config["run"]["profile"] and job.team.is_main
            if profiles and not (new or job.profiled):
                advance = functools.partial(telemetry.advance_profiled, job, stage)
            elif stage.skips and job.team.count == 1:
                args = [stage.without(one, job.monitor.diverged) for one in args]
            with telemetry.compiling(job, step) if new else contextlib.nullcontext():
                states, seen = advance(states, args, held, static)
            latest.states, latest.step = states, None
            del held  # Else the window is still there when the next is placed.
            for metrics in seen:
                step += 1
                job.log_divergences(job.monitor.add(step, metrics, stage.layout.split))
            latest.step = step
            job.stepped += 0 if new else len(seen)
            loss = job.monitor.latest
            note = job.note if loss is None else f"loss {loss:.3f}{job.note}"
            job.progress.update(step, note, counted=not new)


def _is_save_due(job: RunContext, step: int, due: bool, *, left: bool) -> bool:
    """Whether to save; `left`: this step's evaluation is still to be made."""
    valid = job.evaluation.valid.items() if step == job.evaluation.step else ()
    best = any(value > job.best.get(name, -1.0) for name, value in valid)
    if step > job.checkpoints.step:
        return due or bool(job.halted) or left or best
    # A stop may have cut the evaluation of the step it saved off.
    again = best and not job.checkpoints.complete or left and job.elsewhere
    return step == job.checkpoints.step and again


def _wait_for_data(job: RunContext, stage: Stage, step: int) -> bool:
    """Waits until the data of a step are there; False where a stop came before.

    Where each process reads its share, none goes on before all can.
    """
    alone = job.team.count == 1
    if not stage.streams or alone and stage.wait(step, lambda: True):
        return True
    first = step == stage.first or job.checkpoints.step == step
    if first:
        job.log("reading the first window of the training set ...")
    with job.progress.idle() if first else contextlib.nullcontext():
        if alone:
            return stage.wait(step, lambda: bool(job.stop))
        while True:

            def look(until: float = time.monotonic() + 1) -> tuple[bool, str]:
                return stage.wait(step, lambda: time.monotonic() > until), job.stop

            told = job.team.gather_results("the data of a step", look)
            job.halted = next((stop for _, stop in told if stop), "")
            if job.halted or all(ready for ready, _ in told):
                return not job.halted


def _steps_ahead(
    job: RunContext, stage: Stage, step: int, cadence: Sequence[int]
) -> tuple[int, Hashable]:
    """How many steps to dispatch at once, up to the next event, and their program."""
    static, local = stage.static(step), step - stage.first
    ends = [stage.first + (local // every + 1) * every for every in cadence]
    ends += [stage.last, stage.next_change(step)]
    stop = min(*ends, step + job.config["run"]["steps_per_dispatch"])
    same = (stage.static(ahead) == static for ahead in range(step, stop))
    return sum(itertools.takewhile(bool, same)), static
