"""Weights of images reproduce a shift's accuracies; flipping pairs share the class."""

import numpy as np
import pytest

from jbias.data import shifts
from jbias.measures import attribute_audit, attribute_reliance
from tests import cases

K, M, N = 4, 4, 900


@pytest.fixture(scope="module")
def shortcut_model():
    """Return answers of a model that links the first values to the first classes.

    Cells of class and value have different sizes. Returned: correct, label, value, reliance.
    """
    rng = np.random.default_rng(0)
    label, value = rng.integers(0, K, N), rng.choice(M, N, p=[0.4, 0.3, 0.2, 0.1])
    value[:30] = -1
    agrees = (label < K // 2) == (value < M // 2)
    correct = rng.random((2, N)) < np.where(agrees, 0.9, 0.3)
    return (
        correct,
        label,
        value,
        attribute_reliance.measure(correct, label, value, draws=100),
    )


@cases.each("kind", shifts.KINDS)
def test_weights_give_the_accuracies_of_the_extreme_level(shortcut_model, kind):
    correct, label, value, reliance = shortcut_model
    weights = attribute_audit.shift_weights(reliance, kind, label, value)
    extreme = reliance.kinds[kind].extreme
    for weight, expected in zip(weights, (extreme.within, extreme.outside)):
        assert weight.sum() == pytest.approx(1)
        assert (weight * correct).sum(1).mean() == pytest.approx(expected)
        assert (weight >= 0).all() and not weight[:30].any()


def test_sides_follow_the_cue(shortcut_model):
    _, label, value, reliance = shortcut_model
    side = attribute_audit.agreement(reliance, "conditional", label, value)
    agrees = np.where((label < K // 2) == (value < M // 2), 1, -1)
    assert (side[30:] == agrees[30:]).all()
    assert not side[:30].any()


def test_a_joint_shift_has_images_of_neither_side(shortcut_model):
    """One of three classes belongs to neither group, so its images have no side."""
    _, label, value, _ = shortcut_model
    three = label % 3
    correct = np.random.default_rng(1).random((1, N)) < 0.5
    reliance = attribute_reliance.measure(correct, three, value, draws=100)
    side = attribute_audit.agreement(reliance, "joint", three, value)
    is_ungrouped = reliance.kinds["joint"].chosen.groups == -1
    assert is_ungrouped.sum() == 1
    assert not side[three == np.flatnonzero(is_ungrouped)[0]].any()


def test_pairs_flip_within_a_class(shortcut_model):
    correct, label, value, reliance = shortcut_model
    rng = np.random.default_rng(2)
    likelihood = np.where(correct[0], 0.6, 0.2) + 0.2 * rng.random(N)
    side = attribute_audit.agreement(reliance, "conditional", label, value)
    other_attributes = rng.integers(0, 3, (4, N))
    pairs = attribute_audit.flipping_pairs(
        correct[0], likelihood, side, label, other_attributes, 10
    )
    assert len(pairs) == 10
    assert len({image for pair in pairs for image in pair[:2]}) == 20
    assert {label[pair.agrees] for pair in pairs[:K]} == set(range(K))
    for pair in pairs:
        assert label[pair.agrees] == label[pair.disagrees]
        assert correct[0, pair.agrees] and side[pair.agrees] == 1
        assert not correct[0, pair.disagrees] and side[pair.disagrees] == -1
        num_shared = (
            other_attributes[:, pair.agrees] == other_attributes[:, pair.disagrees]
        ).sum()
        assert pair.shared == num_shared >= 3
    wrong_images = np.flatnonzero((side < 0) & ~correct[0])
    assert likelihood[pairs[0].disagrees] == likelihood[wrong_images].min()


def test_pairs_share_the_value_of_another_bug(shortcut_model):
    """If another attribute also makes images wrong, it is equal in both images of a pair."""
    _, label, value, reliance = shortcut_model
    rng = np.random.default_rng(3)
    other_bug, other_attributes = rng.integers(0, 2, (1, N)), rng.integers(0, 9, (3, N))
    side = attribute_audit.agreement(reliance, "conditional", label, value)
    is_right = (
        (side > 0) & (rng.random(N) < 0.9) & (rng.random(N) < 0.3 + 0.7 * other_bug[0])
    )
    likelihood = np.where(is_right, 0.9, 0.3) - 0.2 * (other_bug[0] == 0)
    for pair in attribute_audit.flipping_pairs(
        is_right, likelihood, side, label, other_attributes, 8, first=other_bug
    ):
        assert other_bug[0, pair.agrees] == other_bug[0, pair.disagrees]


def test_without_wrong_answers_there_are_no_pairs(shortcut_model):
    _, label, value, reliance = shortcut_model
    side = attribute_audit.agreement(reliance, "conditional", label, value)
    is_right, no_attributes = np.ones(N, bool), np.zeros((0, N), int)
    assert (
        attribute_audit.flipping_pairs(
            is_right, np.ones(N), side, label, no_attributes, 8
        )
        == []
    )
