"""Training of all seeds of a config: the loop over stages and steps.

`run` trains from a config. `train_stage` is the loop over the steps of a stage: it asks
`schedule.due` for the next action, and does it. A run that is started again with the same config
continues from its latest complete checkpoint. A member is a seed of a branch (a combination of the
values of config.vary); all members train together.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

from etils import epath

from jbias import run_spec
from jbias.runs import costs, record_store
from jbias.runtime import processes as teams
from jbias.runtime import signals
from jbias.training import claiming, initial_nets, resuming, schedule, setup
from jbias.training.experiment import Experiment
from jbias.training.schedule import Action
from jbias.training.seed_axis import PackedStates


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
    with contextlib.ExitStack() as stack:
        if stop_signal is None:
            stop_signal = stack.enter_context(signals.listen())
        claim = stack.enter_context(claiming.claim(config, workdir, team))
        if claim.outcome:
            return claim.outcome != "diverged"
        opened = setup.open_run(
            claim.spec,
            claim.workdir,
            claim.log,
            team=team,
            guard=claim.check_lock,
            meter=stopwatch,
        )
        stop_signal.attach(opened.stop)
        try:
            _train(opened)
        finally:
            opened.log.observers.close_loggers()
        if team.is_main:
            _end(opened)
        return not opened.monitor.all_diverged


def _train(run: setup.OpenRun) -> None:
    """Train all stages, starting from the latest checkpoint if there is one.

    Lost files of decisions are recomputed first. Readers and checkpoints are closed at the end and
    after errors. If every seed diverged, the remaining stages are skipped, and a line is logged.
    """
    store, first, states, step = run.store, 0, None, 0
    position = resuming.restore(store, run.stages)
    if position is not None:
        first, states, step = position.stage, position.states, position.step
    run.log.start(step)
    if position is not None:
        average = run.stages[first].stage.average
        needs_evaluation = average is not None and average.valley is not None
        resuming.resume(store, position.info, needs_evaluation=needs_evaluation)
        del position  # Its states are donated to the first steps.
    resuming.restore_decisions(
        store, run.stages, decide=run.evaluator.decide, stop=run.stop
    )
    try:
        for number, experiment in enumerate(run.experiments[first:], first):
            if states is None or number > first:
                store.start_stage()
                step = experiment.stage.first
                # Nearly all of the time to draw the weights is compilation.
                with run.log.meter.during("compiling"):
                    states = experiment.start(_nets(run, number, states))
            states = train_stage(run, experiment, states, step)
            experiment.close()
            if run.monitor.all_diverged:
                break
    finally:
        for experiment in run.experiments:
            experiment.close()
        store.checkpoints.close()
    if run.monitor.all_diverged:
        seeds = [f"seed {k} at step {v}" for k, v in run.monitor.diverged.items()]
        run.log.say(f"every seed diverged: {', '.join(seeds)}; lower config.optim.rate")


def _nets(
    run: setup.OpenRun, number: int, previous: PackedStates | None
) -> list[initial_nets.Net] | None:
    """Return the networks that a stage starts from, one per member; None: weights are drawn.

    number: index of the stage. previous: last states of the previous stage; None for the first
    stage, whose networks come from another run (config.init) or are drawn.
    """
    if previous is not None:
        return run.stages[number - 1].nets(previous)
    if run.initial_nets:
        first_stage = run.experiments[0].stage
        return initial_nets.graft_heads(run.initial_nets, first_stage, run.log.say)
    return None


def train_stage(
    run: setup.OpenRun, experiment: Experiment, states: PackedStates, step: int
) -> PackedStates:
    """Train, evaluate and save from `step` to the stage's end; return the last states.

    states: states of all members after `step`. Ends earlier if every seed diverged.
    signals.Interrupted, after a save, if a stop is requested.
    """
    store, last = run.store, experiment.stage.last
    assert step <= last, f"step {step} is after its stage's last, {last}"
    with (
        store.saving_on_crash(experiment, states, step) as latest,
        experiment.showing_progress(step),
    ):
        while True:
            # All processes decide alike.
            todo = schedule.due(
                step,
                experiment.plan,
                store.progress,
                stop_requested=run.stop.is_agreed(step),
                all_diverged=experiment.all_diverged,
            )
            if todo.action is Action.EVALUATE:
                with store.saving_on_data_error(latest):
                    decided = experiment.decide_averages(states, step)
                    if decided is None:  # A stop was requested.
                        continue
                    latest.states = decided
                    is_done = experiment.recompute_statistics(latest, step)
                    states = latest.states
                    if not is_done:  # A stop was requested.
                        continue
                    evaluation = experiment.evaluate(states, step)
                    if evaluation is not None:  # None: a stop was requested.
                        store.write_evaluation(evaluation)
            elif todo.action is Action.SAVE:
                with store.saving_on_data_error(latest):
                    experiment.recompute_statistics(latest, step)
                states = latest.states
                store.save(
                    experiment, states, step, without_evaluation=todo.without_evaluation
                )
            elif todo.action is Action.STOP:
                raise signals.Interrupted(
                    f"{run.stop.agreed} at step {step}: saved; the same command resumes"
                )
            elif todo.action is Action.END:
                return states
            else:
                with store.saving_on_data_error(latest):
                    steps = experiment.take(step, todo.until)
                if steps is None:  # A stop signal arrived before the data.
                    continue
                states, metrics = experiment.advance(states, steps)
                latest.states, latest.step = states, None
                experiment.read_metrics(metrics, steps)
                step += steps.count
                latest.step = step
                experiment.show_progress(steps)
                # Free the rows that seeds share before the next ones are placed.
                del steps


def _end(run: setup.OpenRun) -> None:
    """Write that the run has ended, and log its cost and what is left to do.

    Left to do are a comparison of branches, and evaluations by another process.
    """
    store, outcome = run.store, "diverged" if run.monitor.all_diverged else "finished"
    cost = store.end(outcome)
    step = max(store.checkpoints.step, 0)
    run.log.end(outcome, step, workdir=store.workdir, cost=cost)
    if run.spec.config["vary"]:
        run.log.say(f"to compare its branches: jbias report --runs={store.workdir}")
    pending = ", ".join(map(str, record_store.pending(store.workdir)))
    if pending:
        run.log.say(
            f"steps {pending} are to be evaluated: jbias evaluate "
            f"--follow={store.workdir}"
        )
