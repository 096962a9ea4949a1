"""The next action of the training loop, as a table of cases."""

import itertools

import pytest

from jbias.training import schedule
from jbias.training.schedule import Action, Due, Progress, Schedule

# From step 10 to step 20, evaluated at 14, 18 and 20, saved at 13, 16 and 19.
STAGE = Schedule(first=10, last=20, eval_interval=4, save_interval=3)
ELSEWHERE = STAGE._replace(evaluates_elsewhere=True)
EVALUATE, STOP, END = Due(Action.EVALUATE), Due(Action.STOP), Due(Action.END)
SAVE, SAVE_ONLY = Due(Action.SAVE), Due(Action.SAVE, without_evaluation=True)


def advance(until: int) -> Due:
    return Due(Action.ADVANCE, until=until)


def due(step, progress, plan=STAGE, *, stop=False, diverged=False) -> Due:
    return schedule.due(
        step, plan, progress, stop_requested=stop, all_diverged=diverged
    )


SAVED_13 = Progress(saved=13)
EVALUATED_14 = Progress(evaluated=14, saved=13)


@pytest.mark.parametrize(
    ("step", "progress", "options", "expected"),
    [
        # Training ends at the next event.
        (10, Progress(), {}, advance(13)),
        (11, Progress(), {}, advance(13)),
        (12, Progress(), {}, advance(13)),
        (13, SAVED_13, {}, advance(14)),
        (19, Progress(evaluated=18, saved=19), {}, advance(20)),
        # Scheduled saves and evaluations; an evaluation comes before the save of its step.
        (13, Progress(), {}, SAVE),
        (14, SAVED_13, {}, EVALUATE),
        (14, EVALUATED_14, {}, advance(16)),
        (14, EVALUATED_14._replace(is_best=True), {}, SAVE),
        (14, Progress(evaluated=14, saved=14), {}, advance(16)),
        (16, EVALUATED_14._replace(is_best=True), {}, SAVE),
        (15, EVALUATED_14._replace(is_best=True), {}, advance(16)),
        # The end of the stage, and the end if every seed diverged.
        (20, Progress(evaluated=18, saved=19), {}, EVALUATE),
        (20, Progress(evaluated=20, saved=19), {}, SAVE),
        (20, Progress(evaluated=20, saved=20), {}, END),
        (14, SAVED_13, {"diverged": True}, EVALUATE),
        (14, EVALUATED_14, {"diverged": True}, SAVE),
        (14, Progress(evaluated=14, saved=14), {"diverged": True}, END),
        (15, Progress(evaluated=14, saved=14), {"diverged": True}, advance(16)),
        # A stop: the step is saved first, and a due evaluation is left to the next start.
        (11, Progress(), {"stop": True}, SAVE),
        (11, Progress(saved=11), {"stop": True}, STOP),
        (14, SAVED_13, {"stop": True}, SAVE_ONLY),
        (14, Progress(left=14, saved=14), {"stop": True}, STOP),
        (10, Progress(), {"stop": True}, SAVE),
        (20, Progress(left=20, saved=20), {"stop": True}, STOP),
        # A stop does not keep a complete stage from its end.
        (20, Progress(evaluated=20, saved=20), {"stop": True}, END),
        (20, Progress(evaluated=20, saved=19), {"stop": True}, SAVE),
        (20, Progress(left=20, saved=20), {"stop": True, "plan": ELSEWHERE}, END),
        # The next start: the step of the checkpoint is evaluated, then saved again if best.
        (14, Progress(saved=14, has_records=False), {}, EVALUATE),
        (
            14,
            Progress(evaluated=14, saved=14, has_records=False, is_best=True),
            {},
            SAVE,
        ),
        (14, Progress(evaluated=14, saved=14, is_best=True), {}, advance(16)),
        # Another process evaluates: every evaluation is a checkpoint instead.
        (14, SAVED_13, {"plan": ELSEWHERE}, SAVE_ONLY),
        (14, Progress(left=14, saved=14), {"plan": ELSEWHERE}, advance(16)),
        (20, Progress(left=18, saved=19), {"plan": ELSEWHERE}, SAVE_ONLY),
        (20, Progress(left=20, saved=20), {"plan": ELSEWHERE}, END),
        (14, Progress(saved=14), {"plan": ELSEWHERE}, SAVE_ONLY),
        # The first step of a stage was saved at the end of the previous stage.
        (10, Progress(evaluated=10, saved=10, is_best=True), {}, advance(13)),
        # A checkpoint of a later step is never replaced by an earlier one.
        (13, Progress(saved=16), {}, advance(14)),
    ],
)
def test_the_next_action(step, progress, options, expected):
    assert due(step, progress, **options) == expected


@pytest.mark.parametrize("stop_at", [None, 10, 13, 14, 17, 20])
@pytest.mark.parametrize("plan", [STAGE, ELSEWHERE])
def test_a_loop_that_follows_the_actions_evaluates_and_saves_each_step_once(
    plan, stop_at
):
    """The loop is simulated, with a stop that arrives at a step and stays."""
    step, progress, done = plan.first, Progress(), []
    for _ in range(100):
        stop = stop_at is not None and step >= stop_at
        todo = due(step, progress, plan, stop=stop)
        if todo.action is Action.EVALUATE:
            progress = progress._replace(evaluated=step, is_best=step == 14)
        elif todo.action is Action.SAVE:
            has_records = step == progress.evaluated
            left = step if todo.without_evaluation else progress.left
            progress = Progress(progress.evaluated, left, step, has_records)
        elif todo.action is Action.ADVANCE:
            assert step < todo.until <= plan.last
            step = todo.until
            continue
        done.append((todo.action, step))
        if todo.action in (Action.STOP, Action.END):
            break
    last_action, last_step = done[-1]
    # A stage whose last evaluation is left to another process is complete.
    is_complete = plan.evaluates_elsewhere and stop_at == plan.last
    is_stopped = stop_at is not None and not is_complete
    assert last_action is (Action.STOP if is_stopped else Action.END)
    assert len(set(done)) == len(done)
    assert (Action.SAVE, last_step) in done
    evaluated = [step for action, step in done if action is Action.EVALUATE]
    if plan.evaluates_elsewhere:
        assert not evaluated
        assert is_stopped or {14, 18, 20} <= {s for a, s in done if a is Action.SAVE}
    else:
        assert evaluated == [s for s in (14, 18, 20) if not is_stopped or s < stop_at]


def test_next_event_is_the_next_scheduled_step():
    events = {
        step
        for step in range(STAGE.first + 1, STAGE.last + 1)
        if STAGE.is_evaluation(step) or STAGE.is_save(step)
    }
    assert events == {13, 14, 16, 18, 19, 20}
    for step in range(STAGE.first, STAGE.last):
        assert STAGE.next_event(step) == min(e for e in events if e > step)
    assert [STAGE.is_evaluation(STAGE.first), STAGE.is_save(STAGE.first)] == [False] * 2


def test_all_progress_leads_to_an_end_in_few_actions():
    """No combination of what is done so far makes the loop repeat an action at a step."""
    steps = (schedule.NEVER, 13, 14, 20)
    for step, evaluated, left, saved in itertools.product((13, 14, 20), *[steps] * 3):
        for complete, best, stop, diverged in itertools.product(
            (False, True), repeat=4
        ):
            for plan in (STAGE, ELSEWHERE):
                progress = Progress(evaluated, left, saved, complete, best)
                for _ in range(4):
                    todo = due(step, progress, plan, stop=stop, diverged=diverged)
                    if todo.action is Action.EVALUATE:
                        progress = progress._replace(evaluated=step)
                    elif todo.action is Action.SAVE:
                        has_records = step == progress.evaluated
                        left_now = step if todo.without_evaluation else progress.left
                        progress = Progress(
                            progress.evaluated, left_now, step, has_records
                        )
                    else:
                        break
                else:
                    pytest.fail(f"{step}, {progress}, {plan}: no end")


@pytest.mark.parametrize(
    ("eval_every", "steps"),
    [
        ("0.5 epochs", [16, 32, 48, 64, 66]),
        ("1 epoch", [33, 66]),
        ("40 steps", [40, 66]),
        ("10 %", [13, 26, 39, 52, 65, 66]),
    ],
)
def test_the_schedule_of_a_config_rounds_each_interval_once(eval_every, steps):
    config = {
        "eval_every": eval_every,
        "save_every": "1 epoch",
        "run": {"evaluate": "here"},
    }
    stage = schedule.of_stage(config, first=0, last=66, steps_per_epoch=33, total=132)
    assert [step for step in range(67) if stage.is_evaluation(step)] == steps
    assert stage.num_evaluations == len(steps)
    assert stage.save_interval == 33
