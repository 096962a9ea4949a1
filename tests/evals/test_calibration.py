"""Calibration: closed forms, and networks whose confidence is what it should be."""

import jax.numpy as jnp
import numpy as np
import pytest

from jbias import evals
from jbias.evals import calibration, inference, probe_registry


def decided(confidence, right, likelihood=None) -> evals.Decisions:
    right = np.asarray(right)
    columns = {
        "label": np.zeros(len(right), int),
        "confidence": np.asarray(confidence, np.float32),
        "likelihood": np.asarray(
            confidence if likelihood is None else likelihood, np.float32
        ),
    }
    return evals.Decisions(np.where(right, 0, 1), columns)


def values(one: evals.Decisions, **options) -> dict[str, float | None]:
    return {n.metric: n.value for n in calibration.make(**options).numbers({"": one})}


def test_by_hand():
    """Two bins of width a half: gaps of 0.3 and 0.1, of two and three images."""
    confidence, right = [0.4, 0.2, 0.9, 0.8, 0.6], [1, 0, 1, 1, 0]
    found = values(decided(confidence, right), bins=2)
    gaps = abs(0.5 - 0.3), abs(2 / 3 - 2.3 / 3)
    assert found["ece"] == pytest.approx((2 * gaps[0] + 3 * gaps[1]) / 5)
    # By mass: 0.2, 0.4, 0.6 and 0.8, 0.9.
    gaps = abs(1 / 3 - 0.4), abs(1 - 0.85)
    assert found["ece_mass"] == pytest.approx((3 * gaps[0] + 2 * gaps[1]) / 5)
    assert found["nll"] == pytest.approx(-np.log(confidence).mean())
    squares = np.square(np.subtract(confidence, right))
    assert found["brier_top"] == pytest.approx(squares.mean())


def test_confidence_that_is_right_as_often_as_it_says():
    random = np.random.default_rng(0)
    confidence = random.uniform(0.2, 1, 200_000)
    right = random.random(200_000) < confidence
    found = values(decided(confidence, right))
    assert found["ece"] < 0.006 and found["ece_mass"] < 0.006
    shifted = values(decided(np.minimum(confidence + 0.1, 1), right))
    assert shifted["ece"] > 0.08 and shifted["brier_top"] > found["brier_top"]


def test_one_bin_is_the_gap_of_means():
    random = np.random.default_rng(1)
    confidence, right = random.random(500), random.random(500) < 0.7
    gap = abs(confidence.mean() - right.mean())
    found = values(decided(confidence, right), bins=1)
    assert found["ece"] == pytest.approx(gap) == found["ece_mass"]


def test_edges_belong_to_the_lower_bin():
    """Bins are (0, 1/4], (1/4, 1/2], ..., as in Guo et al."""
    confidence = np.array([0.25, 0.5, 0.75, 1.0, 0.0])
    found = calibration.reliability(confidence, np.ones(5, bool), bins=4)
    np.testing.assert_array_equal(found.count, [2, 1, 1, 1])
    np.testing.assert_array_equal(found.edges, [0, 0.25, 0.5, 0.75, 1])


def test_every_image_is_in_one_bin_and_empty_bins_say_so():
    confidence = np.random.default_rng(2).uniform(0.9, 1, 100)
    for equal in ("width", "mass"):
        found = calibration.reliability(confidence, confidence > 0.95, equal=equal)
        assert found.count.sum() == 100
        empty = found.count == 0
        assert np.isnan(found.accuracy[empty]).all()
        assert not np.isnan(found.accuracy[~empty]).any()
        assert empty.any() == (equal == "width")
    assert found.count.max() - found.count.min() <= 1


def test_images_without_a_right_class_are_left_out():
    one = decided([0.5, 0.9, 0.7], [1, 0, 1], [0.5, np.nan, 0.7])
    one.columns["label"][1] = -1
    (n,) = {number.n for number in calibration.make().numbers({"": one})}
    assert n == 2
    assert values(one) == values(decided([0.5, 0.7], [1, 1]))
    one.columns["label"][:] = -1
    assert set(values(one).values()) == {None}


def test_an_underflow_is_finite():
    assert values(decided([0.5], [0], [0.0]))["nll"] == pytest.approx(87.3, abs=0.05)


def test_groups_of_a_calibrated_network_are_so_by_their_sum():
    """Right classes are drawn from its own probabilities, over six classes.

    Groups of one and five have what their members have together; a mean over members is
    another number, which is not how often the group is right.
    """
    n, random = 20_000, np.random.default_rng(3)
    of = np.array([0, 1, 1, 1, 1, 1])
    image = random.integers(0, 256, (n, 2, 1, 3), np.uint8)

    lean = np.float32([[1, 0, 0, 0, 0, 0]])  # Towards the class that is a group alone.

    def apply(variables, image):
        return 2 * image.reshape(len(image), 6) + lean

    p = np.exp(image.reshape(n, 6) / 127.5 + lean)
    p /= p.sum(1, keepdims=True)
    right = (p.cumsum(1) < random.random((n, 1))).sum(1).clip(max=5)
    rows = np.arange(n, dtype=np.int32)
    label = of[right].astype(np.int32)
    batch = inference.Batch(image, rows, label, right.astype(np.int32), n)
    matrix = (of[:, None] == np.arange(2)).astype(np.float32)
    rules = {
        "sum_prob": inference.DecisionRule(n, jnp.asarray(matrix), "sum_prob"),
        "mean_prob": inference.DecisionRule(
            n, jnp.asarray(matrix / matrix.sum(0)), "mean_prob"
        ),
    }
    found = inference.run_probe(
        inference.BoundJaxNetwork(apply, {}),
        probe_registry.make_plain(),
        [batch],
        rules,
    )
    told = calibration.make().numbers(inference.to_decisions(found, {"label": label}))
    ece = {one.condition: one.value for one in told if one.metric == "ece"}
    # Of 20,000 images the bins differ by chance alone, by about 0.006 on average.
    assert ece["sum_prob"] < 0.015
    assert ece["mean_prob"] > 0.1


def test_refuses():
    with pytest.raises(ValueError, match="bins must be 1 or more, got 0"):
        calibration.make(bins=0)
    with pytest.raises(ValueError, match="equal must be 'width' or 'mass', got 'x'"):
        calibration.reliability(np.ones(1), np.ones(1), equal="x")
    bare = evals.Decisions(np.zeros(1, int), {"label": np.zeros(1, int)})
    with pytest.raises(ValueError, match="must have a column confidence, got label"):
        calibration.make().numbers({"": bare})
