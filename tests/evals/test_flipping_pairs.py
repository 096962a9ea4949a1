"""The weights of images give the accuracies of the shift; pairs are of one class, and flip."""

import numpy as np
import pytest

from jbias.data import shifts
from jbias.evals import attribute_audit, attribute_reliance
from tests import cases

K, M, N = 4, 4, 900


@pytest.fixture(scope="module")
def made():
    """A model that takes the first values for the first classes, on unlike cells."""
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
def test_weights_give_the_accuracies_of_the_extreme_level(made, kind):
    correct, label, value, found = made
    both = attribute_audit.shift_weights(found, kind, label, value)
    extreme = found.kinds[kind].extreme
    for weight, expected in zip(both, (extreme.within, extreme.outside)):
        assert weight.sum() == pytest.approx(1)
        assert (weight * correct).sum(1).mean() == pytest.approx(expected)
        assert (weight >= 0).all() and not weight[:30].any()


def test_sides_are_those_of_the_cue(made):
    _, label, value, found = made
    side = attribute_audit.agreement(found, "conditional", label, value)
    agrees = np.where((label < K // 2) == (value < M // 2), 1, -1)
    assert (side[30:] == agrees[30:]).all()
    assert not side[:30].any()


def test_a_joint_shift_has_images_of_neither_side(made):
    """Classes of neither group stand for nothing, as one of three does."""
    _, label, value, _ = made
    three = label % 3
    correct = np.random.default_rng(1).random((1, N)) < 0.5
    found = attribute_reliance.measure(correct, three, value, draws=100)
    side = attribute_audit.agreement(found, "joint", three, value)
    lone = found.kinds["joint"].chosen.groups == -1
    assert lone.sum() == 1
    assert not side[three == np.flatnonzero(lone)[0]].any()


def test_pairs_flip_within_a_class(made):
    correct, label, value, found = made
    rng = np.random.default_rng(2)
    likelihood = np.where(correct[0], 0.6, 0.2) + 0.2 * rng.random(N)
    side = attribute_audit.agreement(found, "conditional", label, value)
    others = rng.integers(0, 3, (4, N))
    pairs = attribute_audit.flipping_pairs(
        correct[0], likelihood, side, label, others, 10
    )
    assert len(pairs) == 10
    assert len({image for pair in pairs for image in pair[:2]}) == 20
    assert {label[pair.agrees] for pair in pairs[:K]} == set(range(K))
    for pair in pairs:
        assert label[pair.agrees] == label[pair.disagrees]
        assert correct[0, pair.agrees] and side[pair.agrees] == 1
        assert not correct[0, pair.disagrees] and side[pair.disagrees] == -1
        same = (others[:, pair.agrees] == others[:, pair.disagrees]).sum()
        assert pair.shared == same >= 3
    wrong = np.flatnonzero((side < 0) & ~correct[0])
    assert likelihood[pairs[0].disagrees] == likelihood[wrong].min()


def test_pairs_share_what_else_flips_answers(made):
    """If another attribute also makes images wrong, it is equal in both images of a pair."""
    _, label, value, found = made
    rng = np.random.default_rng(3)
    bug, others = rng.integers(0, 2, (1, N)), rng.integers(0, 9, (3, N))
    side = attribute_audit.agreement(found, "conditional", label, value)
    right = (side > 0) & (rng.random(N) < 0.9) & (rng.random(N) < 0.3 + 0.7 * bug[0])
    likelihood = np.where(right, 0.9, 0.3) - 0.2 * (bug[0] == 0)
    for pair in attribute_audit.flipping_pairs(
        right, likelihood, side, label, others, 8, first=bug
    ):
        assert bug[0, pair.agrees] == bug[0, pair.disagrees]


def test_no_pairs_where_nothing_is_wrong(made):
    _, label, value, found = made
    side = attribute_audit.agreement(found, "conditional", label, value)
    right, none = np.ones(N, bool), np.zeros((0, N), int)
    assert attribute_audit.flipping_pairs(right, np.ones(N), side, label, none, 8) == []
