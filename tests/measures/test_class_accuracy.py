"""Accuracy by class, confusion matrices and the entropy of answers."""

import numpy as np
import pytest

from jbias import evals
from jbias.measures import accuracy


def test_accuracy_of_each_class_that_is_there():
    label = np.array([0, 0, 2, 2, 2, -1])
    decided = evals.Decisions(np.array([0, 1, 2, 2, 0, 0]), {"label": label})
    numbers = accuracy.make_by_class(classes=("cat", "dog", "bird")).numbers(
        {"": decided, "x": decided}
    )
    assert [(n.condition, n.count, n.n) for n in numbers] == [
        ("class=cat", 1, 2),
        ("class=bird", 2, 3),
        ("x class=cat", 1, 2),
        ("x class=bird", 2, 3),
    ]
    assert numbers[0].value == 0.5
    assert accuracy.make_by_class().numbers({"": decided})[1].condition == "class=2"
    with pytest.raises(ValueError, match="sequence of names, got 'cat'"):
        accuracy.make_by_class(classes="cat")


def test_confusion_columns_sum_to_a_hundred():
    random = np.random.default_rng(0)
    label, response = random.integers(0, 5, (2, 400))
    matrix = accuracy.confusion(response, label, 5)
    assert matrix.shape == (5, 5)
    np.testing.assert_allclose(matrix.sum(0), 100)
    for i in range(5):
        accuracy_of_class = (response[label == i] == i).mean()
        assert matrix[i, i] == pytest.approx(100 * accuracy_of_class)


def test_confusion_counts_missing_answers_and_has_nan_for_absent_classes():
    matrix = accuracy.confusion(np.array([0, -1, 1]), np.array([0, 0, -1]), 2)
    np.testing.assert_array_equal(matrix, [[50, np.nan], [0, np.nan], [50, np.nan]])


def test_entropy():
    assert accuracy.entropy(np.arange(16), 16) == 4
    assert accuracy.entropy(np.full(9, 3), 16) == 0
    # Half of the images have no answer; each other answer counts 1/4 log2 4.
    assert accuracy.entropy(np.array([0, 1, -1, -1]), 16) == 1
    # Answers of classes without images count, too.
    assert accuracy.entropy(np.array([0, 1, 14, 15]), 16) == 2
