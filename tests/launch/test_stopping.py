"""The median rule: as published, on curves worked out by hand."""

import numpy as np

from jbias.launch import trials
from jbias.runs import results, status
from tests import cases

# Running averages up to step 2: 0.3, 0.5, 0.7; up to step 3: 0.4, 0.6, 0.8.
COMPLETED = [
    {1: 0.2, 2: 0.4, 3: 0.6},
    {1: 0.4, 2: 0.6, 3: 0.8},
    {1: 0.6, 2: 0.8, 3: 1.0},
]


@cases.each(
    ("curve", "stops"),
    [
        ({1: 0.3}, True),  # The median of 0.2, 0.4, 0.6 is 0.4.
        ({1: 0.4}, False),  # Not worse: strictly below is what stops.
        ({1: 0.45, 2: 0.1}, True),  # Its best, 0.45, against 0.5.
        ({1: 0.55, 2: 0.1}, False),
        ({1: 0.55, 2: 0.1, 3: 0.1}, True),  # The same best against 0.6.
        ({}, False),
    ],
)
def test_worked_by_hand(curve, stops):
    why = trials.median_rule(curve, COMPLETED)
    assert bool(why) == stops
    if stops:
        assert "the median of 3 completed trials' averages" in why


def test_the_rule_is_the_papers_on_random_curves():
    rng = np.random.default_rng(0)
    for _ in range(200):
        others = rng.uniform(size=(5, 6))
        mine = rng.uniform(size=rng.integers(1, 7))
        s = len(mine)
        wanted = mine.max() < np.median([one[:s].mean() for one in others])
        completed = [dict(enumerate(one, start=1)) for one in others]
        curve = dict(enumerate(mine, start=1))
        assert bool(trials.median_rule(curve, completed)) == wanted


def test_few_completed_trials_and_the_grace_stop_none():
    assert not trials.median_rule({1: 0.0}, COMPLETED[:2])
    assert trials.median_rule({1: 0.0}, COMPLETED[:2], fewest=2)
    assert not trials.median_rule({1: 0.0}, COMPLETED, grace=1)
    late = [{step + 10: value for step, value in one.items()} for one in COMPLETED]
    assert not trials.median_rule({1: 0.0}, late)


@cases.each("name", ["done", status.STOPPED_FILE, "evals/1.jsonl"])
def test_a_damaged_trial_has_no_say_and_stops_no_search(name, tmp_path):
    made = []
    for i, value in enumerate([0.1, 0.5, 0.6, 0.7, 0.0]):
        workdir = tmp_path / str(i)
        record = results.Record(
            *("r", "erm", "", "cnn", "shapes", 0, 0, 1, 1.0),
            *(results.VALID, "", "accuracy", value, None, None),
        )
        results.write(workdir / "evals" / "1.jsonl", [record])
        if i:
            (workdir / "done").write_text("finished\n")
        made.append(trials.Trial(str(i), workdir, (), {}, {}))
    if name == status.STOPPED_FILE:
        (made[4].workdir / "done").unlink()
    (made[4].workdir / name).write_bytes(b"\xff")
    assert made[4].state.phase == "damaged"
    assert str(made[4].workdir / name) in made[4].state.reason
    ((trial, why),) = trials.to_stop(made[:1], made, fewest=3, grace=0)
    assert trial is made[0] and "below 60.0, the median of 3 completed" in why
