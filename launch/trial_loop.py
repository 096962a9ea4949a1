"""The loop that starts trials, watches them, and waits until they have ended."""

import argparse
import collections
import time
from collections.abc import Callable

from jbias.launch import local, slurm, study, trials
from jbias.runs import status


def run_trials(
    ledger: study.Ledger,
    executor: local.Executor | slurm.Executor,
    phases_to_start: list[str],
    *,
    args: argparse.Namespace,
    say: Callable[[str], None],
) -> None:
    """Start all trials of the given phases, and wait until they have ended.

    ledger: the trials of a study, or an object with the same methods, see `rounds.Round`.
    phases_to_start: such as "not started" and "interrupted". args: the parsed arguments.
    say: logs a line. Evaluations are reported to the study, and trials that its pruner
    rejects are stopped. A trial is started at most once. Without `args.wait`, returns once
    all trials are started.
    """
    ledger.prepare(phases_to_start)
    open_trials, started = dict[str, trials.Trial](), set[str]()
    last_states: dict[str, tuple] = {}  # By trial: the state in its last status line.
    start_time = last_line_time = time.monotonic()
    statuses, num_queued = ledger.statuses(), len(executor.active_trials())
    start_fraction = trials.fraction_done(statuses)
    num_trials = ledger.num_undrawn + len(statuses)
    num_to_run = ledger.num_undrawn + sum(
        trial_status.state.phase in phases_to_start for trial_status in statuses
    )
    say(f"{num_to_run} of {num_trials} trials to run, {num_queued} are queued already")
    while True:
        active, ready = executor.active_trials(), list[trials.Trial]()
        waiting = collections.deque(open_trials.values())
        while waiting or len(ready) < executor.num_free():
            trial = waiting.popleft() if waiting else ledger.next_trial()
            if not trial:
                break
            name = trial.name
            open_trials[name] = trial
            trial_status = trials.read_status(trial)
            phase = trial_status.state.phase
            job_state = active.get(name)  # None: no job; "": no state of a scheduler.
            is_active = job_state is not None or phase == "running"
            last_state = last_states.get(name)
            state = (job_state, phase, trial_status.state.evaluated)
            is_changed = state != last_state and (is_active or last_state)
            if job_state != "" and is_changed:
                say(trials.status_line(trial_status, job_state or ""))
            last_states[name] = state
            if job_state is not None:
                is_stopped = (trial.workdir / status.STOPPED_FILE).exists()
                reason = "" if is_stopped else ledger.report(trial_status)
                if reason:
                    trials.mark_stopped(trial.workdir, reason)
                    executor.end(trial)
            elif phase in phases_to_start and name not in started:
                ready.append(trial)
            elif not is_active:  # Otherwise another process runs the trial.
                ledger.finish(trial_status)
                del open_trials[name]
        ready = ready[: executor.num_free()]
        executor.start(ready)
        started |= {trial.name for trial in ready}
        has_open_trials = args.wait and open_trials
        if not has_open_trials or executor.stop and not active:
            return
        if time.monotonic() - last_line_time >= args.every:
            last_line_time = time.monotonic()
            seconds = last_line_time - start_time
            say(trials.progress(ledger.statuses(), start_fraction, seconds))
        time.sleep(executor.poll_seconds)
