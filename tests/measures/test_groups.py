"""Group accuracies of decisions made by hand."""

import numpy as np
import pytest
from PIL import Image

from jbias import data, evals
from jbias.measures import accuracy


def make_decisions(label, value, is_right):
    label, is_right = np.asarray(label), np.asarray(is_right, bool)
    prediction = np.where(is_right, label, label + 1)
    return evals.Decisions(prediction, {"label": label, "attribute": np.asarray(value)})


def measure_groups(decided):
    measured = evals.MEASURES["groups"](decided)
    return {(number.metric, number.condition): number for number in measured}


def test_numbers_equal_a_calculation_by_hand():
    """Group 0/0 has 3 of 4 right, 0/1 1 of 2, 1/1 0 of 1; group 1/0 has no image."""
    numbers = measure_groups(
        make_decisions([0] * 6 + [1], [0, 0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 1, 0, 0])
    )
    assert numbers["worst_group_accuracy", ""][1:4] == (0, 0, 1)
    assert numbers["group_balanced_accuracy", ""].value == pytest.approx(1.25 / 3)
    assert numbers["class_balanced_accuracy", ""].value == pytest.approx((4 / 6) / 2)
    group_numbers = {
        name: number[1:4]
        for name, number in numbers.items()
        if "group_accuracy" in name
    }
    assert group_numbers == {
        ("group_accuracy", "group=0/0"): (0.75, 3, 4),
        ("group_accuracy", "group=0/1"): (0.5, 1, 2),
        ("group_accuracy", "group=1/1"): (0.0, 0, 1),
    }


def test_the_larger_of_equally_bad_groups_is_the_worst():
    numbers = measure_groups(make_decisions([0, 0, 0, 1], [0, 1, 1, 0], [0, 0, 0, 1]))
    assert numbers["worst_group_accuracy", ""][1:4] == (0, 0, 2)


def test_group_counts_sum_to_those_of_the_accuracy():
    """Groups are a partition of the images."""
    rng = np.random.default_rng(0)
    decided = make_decisions(*rng.integers(0, 4, (2, 999)), rng.random(999) < 0.7)
    (plain,) = evals.MEASURES["accuracy"](decided)
    group_numbers = [
        n for n in accuracy.by_group(decided) if n.metric == "group_accuracy"
    ]
    assert len(group_numbers) == 16
    assert sum(n.count for n in group_numbers) == plain.count
    assert sum(n.n for n in group_numbers) == plain.n


def test_images_without_class_or_value_count_for_nothing():
    with_unknown = make_decisions([0, 0, 1, -1, 1], [0, 1, 0, 1, -1], [1, 0, 1, 1, 0])
    without_unknown = make_decisions([0, 0, 1], [0, 1, 0], [1, 0, 1])
    assert measure_groups(with_unknown) == measure_groups(without_unknown)
    assert measure_groups(make_decisions([-1], [0], [0])) == {}


def test_many_groups_have_only_summary_numbers():
    value = np.arange(accuracy.MAX_GROUPS + 1)
    numbers = measure_groups(make_decisions(value % 2, value, value % 3 > 0))
    assert {metric for metric, _ in numbers} == {
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


def test_attributed_sets_have_the_measure(tmp_path):
    for name in ("a/x", "a/y", "b/x"):
        (tmp_path / "test" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "test" / name / "1.png")
    source = data.load("attributed", "test", root=str(tmp_path), size=8)
    assert source.measures == ("accuracy", "groups")
