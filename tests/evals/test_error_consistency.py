"""Error consistency: published values, and what it must be for any two."""

import itertools
import pathlib

import numpy as np
import pytest

from jbias import evals
from jbias.evals import human

ORACLE = np.load(pathlib.Path(__file__).parents[1] / "oracles" / "human.npz")
CORRECT = ORACLE["cue-conflict/response"] == ORACLE["cue-conflict/category"]
RESNET, PEOPLE = 1, range(3, 13)


def test_published_answers():
    """ResNet-50 and ten people on all 1,280 cue conflicts, right where it is the shape."""
    with_people = [
        evals.error_consistency(CORRECT[RESNET], CORRECT[i]).kappa for i in PEOPLE
    ]
    assert np.mean(with_people) == pytest.approx(0.0674, abs=5e-5)
    pairs = list(itertools.combinations(PEOPLE, 2))
    among = [evals.error_consistency(CORRECT[i], CORRECT[j]).kappa for i, j in pairs]
    assert len(among) == 45
    assert np.mean(among) == pytest.approx(0.3311, abs=5e-5)
    value, low, high = human.mean_kappa(CORRECT, pairs, draws=200)
    assert value == pytest.approx(np.mean(among), abs=1e-12)
    assert low < value < high


def test_bounds_and_symmetry():
    random = np.random.default_rng(0)
    for share in (0.1, 0.5, 0.9):
        a, b = random.random((2, 200)) < share
        one, other = evals.error_consistency(a, b), evals.error_consistency(b, a)
        assert one == other and one.kappa <= 1
        assert evals.error_consistency(a, a).kappa == 1
        assert one.observed == (a == b).mean()
        p, q = a.mean(), b.mean()
        assert one.expected == pytest.approx(p * q + (1 - p) * (1 - q))


def test_always_right_agrees_with_always_right():
    yes, no = np.ones(5, bool), np.zeros(5, bool)
    assert evals.error_consistency(yes, yes).kappa == 1
    assert evals.error_consistency(no, no).kappa == 1
    never = evals.error_consistency(yes, no)
    assert (never.kappa, never.observed, never.expected) == (0, 0, 0)


def test_independent_errors_are_not_consistent():
    a, b = np.random.default_rng(1).random((2, 200_000)) < [[0.7], [0.4]]
    assert abs(evals.error_consistency(a, b).kappa) < 0.01


@pytest.mark.slow
def test_interval_covers():
    """Of 200 pairs of a known kappa, 95 % of intervals hold it, up to chance."""
    random = np.random.default_rng(2)
    common, n = 0.3, 400
    # With this share of images the second copies the first: kappa is that share.
    held = 0
    for i in range(200):
        a, b = random.random((2, n)) < 0.6
        b = np.where(random.random(n) < common, a, b)
        _, low, high = human.mean_kappa(np.stack([a, b]), ((0, 1),), draws=300, seed=i)
        held += low <= common <= high
    assert 0.90 <= held / 200 <= 0.99


def test_conditions_count_the_same():
    """Whatever their number of images; the value is the mean of theirs."""
    random = np.random.default_rng(3)
    correct = random.random((2, 90)) < 0.5
    names = np.array(["a"] * 60 + ["b"] * 30)
    each = [evals.error_consistency(*correct[:, names == name]).kappa for name in "ab"]
    value, _, _ = human.mean_kappa(correct, ((0, 1),), names.tolist(), draws=10)
    assert value == pytest.approx(np.mean(each), abs=1e-12)


def test_refuses():
    with pytest.raises(ValueError, match=r"got \(\(3,\), \(2,\)\)"):
        evals.error_consistency(np.ones(3, bool), np.ones(2, bool))
    with pytest.raises(ValueError, match="got ..0,., .0,.."):
        evals.error_consistency(np.ones(0, bool), np.ones(0, bool))
    with pytest.raises(ValueError, match="must be true where an answer is right"):
        evals.error_consistency(np.arange(3), np.arange(3))
