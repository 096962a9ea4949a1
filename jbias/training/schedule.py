"""Schedule of a stage: the next action of the training loop, from the step and the progress.

`due` returns the next action of the training loop. It knows nothing of devices, files or
processes; a table of cases is its test.
"""

import enum
from collections.abc import Mapping
from typing import Any, NamedTuple

from jbias import config as jc

NEVER = -1  # The step of an event that has not happened.


class Schedule(NamedTuple):
    """The steps of a stage, and the intervals of its evaluations and saves in steps."""

    first: int  # The step before the stage's first update.
    last: int
    eval_interval: int
    save_interval: int
    evaluates_elsewhere: bool = False  # Another process evaluates the checkpoints.

    @property
    def num_evaluations(self) -> int:
        """Number of evaluations that are scheduled in the stage."""
        return -(-(self.last - self.first) // self.eval_interval)

    def is_evaluation(self, step: int) -> bool:
        """Return True if an evaluation is scheduled after this step."""
        done = step - self.first
        return done > 0 and (done % self.eval_interval == 0 or step == self.last)

    def is_save(self, step: int) -> bool:
        """Return True if a save is scheduled after this step."""
        done = step - self.first
        return done > 0 and done % self.save_interval == 0

    def next_event(self, step: int) -> int:
        """Return the first later step with a scheduled evaluation or save, or the last step."""
        done = step - self.first
        intervals = self.eval_interval, self.save_interval
        events = (self.first + (done // n + 1) * n for n in intervals)
        return min(self.last, min(events))


def of_stage(
    config: Mapping[str, Any],
    *,
    first: int,
    last: int,
    steps_per_epoch: int,
    total: int,
) -> Schedule:
    """Return the schedule of a stage, by config.eval_every, save_every and run.evaluate.

    first, last: the stage's steps. total: the run's last step. The intervals are rounded to whole
    steps: "0.5 epochs" of 33 steps is an evaluation every 16 steps, at 16, 32, 48, ...
    """

    def interval(duration: str) -> int:
        """Return the number of steps of a duration such as "1 epochs"."""
        return jc.to_steps(duration, steps_per_epoch=steps_per_epoch, total=total)

    return Schedule(
        first=first,
        last=last,
        eval_interval=interval(config["eval_every"]),
        save_interval=interval(config["save_every"]),
        evaluates_elsewhere=config["run"]["evaluate"] == "elsewhere",
    )


class Progress(NamedTuple):
    """Progress of a run so far; steps are counted over all stages, NEVER if there is none."""

    evaluated: int = NEVER  # The latest evaluated step.
    # The latest step whose evaluation is left to another process, or to the next start.
    left: int = NEVER
    saved: int = NEVER  # The step of the latest checkpoint.
    # The latest checkpoint has the records of its step's evaluation.
    has_records: bool = True
    # The latest evaluation has a seed's best validation accuracy, and is not yet saved.
    is_best: bool = False


class Action(enum.Enum):
    """The next action of the training loop."""

    EVALUATE = "evaluate the current step"
    SAVE = "save the current step"
    STOP = "raise Interrupted: a stop is requested, and the current step is saved"
    END = "return the states: the stage is complete, or every seed diverged"
    ADVANCE = "train the next steps"


class Due(NamedTuple):
    """The next action, with the arguments of SAVE and ADVANCE."""

    action: Action
    # SAVE: the step's evaluation is due, and is left to the next start or another process.
    without_evaluation: bool = False
    # ADVANCE: the first later step at which another action may be due.
    until: int = NEVER


def due(
    step: int,
    schedule: Schedule,
    progress: Progress,
    *,
    stop_requested: bool,
    all_diverged: bool,
) -> Due:
    """Return the next action after `step`.

    The loop calls this function again after each action, with the new progress. A step is thus
    evaluated before it is saved, and a stop that arrives during an evaluation leaves that
    evaluation to the next start.

    A requested stop does not keep a complete stage from its end. stop_requested: all processes have
    agreed to stop. all_diverged: every seed diverged; exact at scheduled evaluations only, as the
    metrics of other steps are read some steps later.
    """
    is_evaluation = schedule.is_evaluation(step)
    is_unevaluated = is_evaluation and step not in (progress.evaluated, progress.left)
    if is_unevaluated and not (stop_requested or schedule.evaluates_elsewhere):
        return Due(Action.EVALUATE)
    ends = step == schedule.last or is_evaluation and all_diverged
    is_best = progress.is_best and step == progress.evaluated
    if step > progress.saved:
        is_scheduled = schedule.is_save(step) or ends
        saves = is_scheduled or stop_requested or is_unevaluated or is_best
    elif step == progress.saved:
        # The step was saved before its evaluation: an earlier start was stopped in between, or
        # another process evaluates.
        saves_best = is_best and not progress.has_records
        saves = saves_best or is_unevaluated and schedule.evaluates_elsewhere
    else:
        saves = False
    if saves:
        return Due(Action.SAVE, without_evaluation=is_unevaluated)
    is_complete = step == progress.evaluated or schedule.evaluates_elsewhere
    if ends and (is_complete or not stop_requested):
        return Due(Action.END)
    if stop_requested and step == progress.saved:
        return Due(Action.STOP)
    return Due(Action.ADVANCE, until=schedule.next_event(step))
