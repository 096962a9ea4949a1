import numpy as np
import pytest

from jbias import evals
from jbias.evals import accuracy


def test_accuracy_of_each_class_that_is_there():
    label = np.array([0, 0, 2, 2, 2, -1])
    one = evals.Decisions(np.array([0, 1, 2, 2, 0, 0]), {"label": label})
    found = accuracy.make_by_class(classes=("cat", "dog", "bird")).numbers(
        {"": one, "x": one}
    )
    assert [(n.condition, n.count, n.n) for n in found] == [
        ("class=cat", 1, 2),
        ("class=bird", 2, 3),
        ("x class=cat", 1, 2),
        ("x class=bird", 2, 3),
    ]
    assert found[0].value == 0.5
    assert accuracy.make_by_class().numbers({"": one})[1].condition == "class=2"
    with pytest.raises(ValueError, match="sequence of names, got 'cat'"):
        accuracy.make_by_class(classes="cat")


def test_confusion_columns_sum_to_a_hundred():
    random = np.random.default_rng(0)
    label, response = random.integers(0, 5, (2, 400))
    found = accuracy.confusion(response, label, 5)
    assert found.shape == (5, 5)
    np.testing.assert_allclose(found.sum(0), 100)
    for i in range(5):
        right = (response[label == i] == i).mean()
        assert found[i, i] == pytest.approx(100 * right)


def test_confusion_of_none_and_of_no_images():
    found = accuracy.confusion(np.array([0, -1, 1]), np.array([0, 0, -1]), 2)
    np.testing.assert_array_equal(found, [[50, np.nan], [0, np.nan], [50, np.nan]])


def test_entropy():
    assert accuracy.entropy(np.arange(16), 16) == 4
    assert accuracy.entropy(np.full(9, 3), 16) == 0
    # Half is no answer: of what is left, as of a fourth twice, 1/4 log2 4 each.
    assert accuracy.entropy(np.array([0, 1, -1, -1]), 16) == 1
    # Of two classes with images, 0 and 1, the others are answered all the same.
    assert accuracy.entropy(np.array([0, 1, 14, 15]), 16) == 2
