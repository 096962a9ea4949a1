"""Group accuracies are known ones where decisions are made by hand."""

import numpy as np
import pytest
from PIL import Image

from jbias import data, evals
from jbias.evals import accuracy


def made(label, value, right):
    label, right = np.asarray(label), np.asarray(right, bool)
    prediction = np.where(right, label, label + 1)
    return evals.Decisions(prediction, {"label": label, "attribute": np.asarray(value)})


def numbers(decided):
    found = evals.MEASURES["groups"](decided)
    return {(one.metric, one.condition): one for one in found}


def test_known_answers():
    """Group 0/0: 3 of 4, 0/1: 1 of 2, 1/1: 0 of 1; class 1 with value 0 has none."""
    found = numbers(made([0] * 6 + [1], [0, 0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 1, 0, 0]))
    assert found["worst_group_accuracy", ""][1:4] == (0, 0, 1)
    assert found["group_balanced_accuracy", ""].value == pytest.approx(1.25 / 3)
    assert found["class_balanced_accuracy", ""].value == pytest.approx((4 / 6) / 2)
    told = {name: one[1:4] for name, one in found.items() if "group_accuracy" in name}
    assert told == {
        ("group_accuracy", "group=0/0"): (0.75, 3, 4),
        ("group_accuracy", "group=0/1"): (0.5, 1, 2),
        ("group_accuracy", "group=1/1"): (0.0, 0, 1),
    }


def test_of_groups_alike_the_larger_is_the_worst():
    found = numbers(made([0, 0, 0, 1], [0, 1, 1, 0], [0, 0, 0, 1]))
    assert found["worst_group_accuracy", ""][1:4] == (0, 0, 2)


def test_sums_to_accuracy():
    """Groups are a partition: their counts are those of plain accuracy."""
    rng = np.random.default_rng(0)
    decided = made(*rng.integers(0, 4, (2, 999)), rng.random(999) < 0.7)
    (plain,) = evals.MEASURES["accuracy"](decided)
    each = [n for n in accuracy.by_group(decided) if n.metric == "group_accuracy"]
    assert len(each) == 16
    assert sum(n.count for n in each) == plain.count
    assert sum(n.n for n in each) == plain.n


def test_images_without_class_or_value_count_for_nothing():
    some = made([0, 0, 1, -1, 1], [0, 1, 0, 1, -1], [1, 0, 1, 1, 0])
    kept = made([0, 0, 1], [0, 1, 0], [1, 0, 1])
    assert numbers(some) == numbers(kept)
    assert numbers(made([-1], [0], [0])) == {}


def test_many_groups_are_not_told_one_by_one():
    value = np.arange(accuracy.MAX_GROUPS + 1)
    found = numbers(made(value % 2, value, value % 3 > 0))
    assert {metric for metric, _ in found} == {
        "worst_group_accuracy",
        "group_balanced_accuracy",
        "class_balanced_accuracy",
    }


def test_without_the_column_is_refused():
    decided = evals.Decisions(np.zeros(1, int), {"label": np.zeros(1, int)})
    with pytest.raises(
        ValueError, match="^groups: .*a column attribute, got label; open"
    ):
        accuracy.by_group(decided)


def test_sets_made_for_shifts_have_it(tmp_path):
    for name in ("a/x", "a/y", "b/x"):
        (tmp_path / "test" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "test" / name / "1.png")
    source = data.load("attributed", "test", root=str(tmp_path), size=8)
    assert source.measures == ("accuracy", "groups")
