"""Accuracy, also with several accepted classes per image, and stored decisions."""

import numpy as np
import pytest

from jbias import evals
from jbias.evals import decision_files
from jbias.measures import accuracy


def test_accuracy_is_counts():
    decided = evals.Decisions(np.array([1, 2, 3]), {"label": np.array([1, 0, 3])})
    (number,) = evals.MEASURES["accuracy"](decided)
    assert (number.count, number.n) == (2, 3)
    assert number.value == 2 / 3


def real_accuracy(prediction, *accepted):
    columns = {f"accepted_{i}": np.array(classes) for i, classes in enumerate(accepted)}
    columns["label"] = np.zeros(len(prediction), int)
    return evals.MEASURES["real_accuracy"](
        evals.Decisions(np.array(prediction), columns)
    )


def test_right_is_any_accepted_class_and_none_is_left_out():
    # Accepted: {1}, {0, 2}, {0, 2}, {}, {3, 1, 0}; right: yes, yes, no, -, yes.
    (number,) = real_accuracy(
        [1, 2, 1, 0, 0], [1, 0, 0, -1, 3], [-1, 2, 2, -1, 1], [-1] * 4 + [0]
    )
    assert number.metric == "real_accuracy"
    assert (number.count, number.n) == (3, 4)
    assert number.value == 3 / 4


def test_no_answer_is_none_of_the_accepted_classes():
    """-1 means no answer, and fills the columns of images with fewer accepted classes."""
    (number,) = real_accuracy([-1, -1, -1, 2], [1, 0, -1, 2], [-1, 2, -1, -1])
    assert (number.count, number.n) == (1, 3)


def test_one_accepted_class_each_is_accuracy():
    rng = np.random.default_rng(0)
    label, prediction = rng.integers(0, 4, (2, 500))
    columns = {"label": label, "accepted_0": label}
    decided = evals.Decisions(prediction, columns)
    (plain,), (real,) = (
        evals.MEASURES[name](decided) for name in ("accuracy", "real_accuracy")
    )
    assert plain[1:] == real[1:]


def test_no_accepted_class_at_all_is_recorded_as_null():
    (number,) = real_accuracy([0, 1], [-1, -1])
    assert (number.value, number.count, number.n) == (None, 0, 0)


def test_a_set_without_accepted_classes_is_refused():
    with pytest.raises(ValueError, match="columns accepted_0, .* got label; open"):
        real_accuracy([0, 1])


def test_accepted_classes_go_through_parquet(tmp_path):
    columns = {"label": np.array([1, 0]), "accepted_0": np.array([1, 2])}
    columns["accepted_10"] = np.array([-1, 0])
    decided = evals.Decisions(np.array([0, 0]), columns)
    decision_files.write(tmp_path / "10.parquet", {0: decided})
    decided_read = decision_files.read(tmp_path / "10.parquet")[0]
    measure = evals.MEASURES["real_accuracy"]
    assert measure(decided_read) == measure(decided)
    assert measure(decided_read)[0][1:4] == (0.5, 1, 2)


def test_columns_of_another_length_are_refused():
    with pytest.raises(ValueError, match="column label must have 3 entries, got 2"):
        evals.Decisions(np.array([1, 2, 3]), {"label": np.array([1, 0])})


def test_decisions_go_through_parquet(tmp_path):
    columns = {"label": np.array([1, 0, 3]), "texture": np.array([2, 2, -1])}
    by_seed = {
        seed: evals.Decisions(np.array([seed, 2, 3]), columns) for seed in (0, 5)
    }
    decision_files.write(tmp_path / "edge" / "10.parquet", by_seed)
    decisions_read = decision_files.read(tmp_path / "edge" / "10.parquet")
    assert decisions_read.keys() == by_seed.keys()
    for seed, decided in by_seed.items():
        np.testing.assert_array_equal(
            decisions_read[seed].prediction, decided.prediction
        )
        for name, column in columns.items():
            np.testing.assert_array_equal(decisions_read[seed].columns[name], column)


def test_an_undefined_number_has_no_interval():
    drawn = np.linspace(0, 1, 101)
    ends = [
        [number.value for number in accuracy.bootstrap_interval("x", drawn, 5, value=x)]
        for x in (0.5, np.nan)
    ]
    assert ends == [[pytest.approx(0.025), pytest.approx(0.975), 0], [None, None, 0]]
