"""comparison.json keeps the whole plan, and refuses settings that differ from it."""

import dataclasses

import pytest

from jbias.deciding import comparison as comparison_lib
from jbias.deciding import state_file

CONFIGS = {
    name: {"algo": {"name": name}, "optim": {"rate": 0.1}} for name in ("new", "old")
}
PLAN = comparison_lib.Comparison(
    settings=comparison_lib.Settings(
        metric="shape_bias", dataset="cue_conflict", points=5.0, bounds=(0.1, 0.9)
    ),
    methods=("new",),
    reference="old",
    first_seeds=(0, 2, 3),
    are_trained=True,
)


def test_what_is_written_is_read_again(tmp_path):
    batches = [comparison_lib.Batch("new", (0, 2)), comparison_lib.Batch("new", (3, 4))]
    plan = PLAN.with_batches(batches).with_scores(
        {"new": {0: 1 / 3, 2: None}, "old": {0: 0.1, 2: 0.7}}
    )
    assert state_file.read(tmp_path) is None
    state_file.write(tmp_path, state_file.State(plan, CONFIGS))
    assert state_file.read(tmp_path) == (plan, CONFIGS)
    assert state_file.resume(tmp_path, state_file.State(PLAN, CONFIGS))[0] == plan


CHANGED = {
    "metric": ("accuracy", "comparison.metric: 'shape_bias' != 'accuracy'"),
    "dataset": ("edge", "comparison.dataset: 'cue_conflict' != 'edge'"),
    "selection": ("last_n:5", "comparison.selection: 'best_validation' != 'last_n:5'"),
    "alpha": (0.1, "comparison.alpha: 0.05 != 0.1"),
    "points": (None, "comparison.points: 5.0 != None"),
    "quantity": ("wins", "comparison.quantity: 'mean' != 'wins'"),
    "bounds": ((0.0, 1.0), r"comparison.bounds: \[0.1, 0.9\] != \[0.0, 1.0\]"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_changed_setting_is_refused(tmp_path, name):
    value, message = CHANGED[name]
    assert {*CHANGED} == {
        field.name for field in dataclasses.fields(comparison_lib.Settings)
    }
    plan = PLAN.with_batches([comparison_lib.Batch("new", (0, 2))])
    settings = dataclasses.replace(PLAN.settings, **{name: value})
    # Before the first score of a method, the batches stay, and scores of the reference do not.
    begun = plan.with_scores({"old": {0: 0.5}})
    state_file.write(tmp_path, state_file.State(begun, CONFIGS))
    unseen = dataclasses.replace(PLAN, settings=settings)
    stored, _ = state_file.resume(tmp_path, state_file.State(unseen, CONFIGS))
    assert stored == dataclasses.replace(plan, settings=settings)
    begun = begun.with_scores({"new": {0: None}})
    state_file.write(tmp_path, state_file.State(begun, CONFIGS))
    changed = dataclasses.replace(PLAN, settings=settings)
    with pytest.raises(ValueError, match=message) as raised:
        state_file.resume(tmp_path, state_file.State(changed, CONFIGS))
    assert "another --workdir starts anew" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_batches_without_the_file_are_refused(tmp_path):
    """Otherwise another level could be chosen after the scores are known."""
    batch = tmp_path / "new-seeds-0-3"
    batch.mkdir()
    assert state_file.resume(tmp_path, state_file.State(PLAN, CONFIGS))[0] == PLAN
    (batch / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="has new-seeds-0-3, seeds of a comparison"):
        state_file.resume(tmp_path, state_file.State(PLAN, CONFIGS))


def test_another_config_method_or_kind_of_reference_is_refused(tmp_path):
    state_file.write(tmp_path, state_file.State(PLAN, CONFIGS))
    changed = {**CONFIGS, "new": {**CONFIGS["new"], "optim": {"rate": 0.2}}}
    with pytest.raises(ValueError, match=r"config.new.optim.rate: 0.1 != 0.2"):
        state_file.resume(tmp_path, state_file.State(PLAN, changed))
    renamed = dataclasses.replace(PLAN, methods=("newer",))
    configs = {"newer": changed["new"], "old": CONFIGS["old"]}
    with pytest.raises(
        ValueError, match=r"\): config.new.optim.rate: 0.1 != 0.2; methods: \['new'\]"
    ):
        state_file.resume(tmp_path, state_file.State(renamed, configs))
    trained_here = dataclasses.replace(PLAN, are_trained=False)
    with pytest.raises(ValueError, match=r"reference.is: 'runs' != 'a config'"):
        state_file.resume(tmp_path, state_file.State(trained_here, CONFIGS))
    with_third = dataclasses.replace(PLAN, methods=("new", "third"))
    with pytest.raises(ValueError, match=r"methods: \['new'\] != \['new', 'third'\]"):
        state_file.resume(tmp_path, state_file.State(with_third, CONFIGS))


def test_runs_that_are_added_to_the_reference_change_no_pair(tmp_path):
    state_file.write(tmp_path, state_file.State(PLAN, CONFIGS))
    added = dataclasses.replace(PLAN, first_seeds=(0, 1, 2, 3, 7))
    stored, _ = state_file.resume(tmp_path, state_file.State(added, CONFIGS))
    assert stored.first_seeds == (0, 2, 3)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 1}', '{"version": 2}', '{"version": 1, "se']
)
def test_a_damaged_file_is_an_error_of_one_line(tmp_path, text):
    (tmp_path / state_file.NAME).write_text(text)
    with pytest.raises(ValueError, match=r"comparison.json is") as raised:
        state_file.read(tmp_path)
    assert "\n" not in str(raised.value)
