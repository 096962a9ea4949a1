"""Calibration: closed forms, and networks that are calibrated by construction."""

import jax.numpy as jnp
import numpy as np
import pytest

from jbias import evals
from jbias.evals import inference, plain
from jbias.measures import calibration
from jbias.stimuli import shown


def make_decisions(confidence, right, likelihood=None) -> evals.Decisions:
    right = np.asarray(right)
    columns = {
        "label": np.zeros(len(right), int),
        "confidence": np.asarray(confidence, np.float32),
        "likelihood": np.asarray(
            confidence if likelihood is None else likelihood, np.float32
        ),
    }
    return evals.Decisions(np.where(right, 0, 1), columns)


def measure(decided: evals.Decisions, **options) -> dict[str, float | None]:
    """Return the numbers of calibration by metric."""
    numbers = calibration.make(**options).numbers({"": decided})
    return {number.metric: number.value for number in numbers}


def test_all_numbers_equal_a_calculation_by_hand():
    """Two bins of width 1/2: gaps of 0.2 and 0.1, of two and three images."""
    confidence, is_right = [0.4, 0.2, 0.9, 0.8, 0.6], [1, 0, 1, 1, 0]
    values = measure(make_decisions(confidence, is_right), bins=2)
    gaps = abs(0.5 - 0.3), abs(2 / 3 - 2.3 / 3)
    assert values["ece"] == pytest.approx((2 * gaps[0] + 3 * gaps[1]) / 5)
    # By mass: 0.2, 0.4, 0.6 and 0.8, 0.9.
    gaps = abs(1 / 3 - 0.4), abs(1 - 0.85)
    assert values["ece_mass"] == pytest.approx((3 * gaps[0] + 2 * gaps[1]) / 5)
    assert values["nll"] == pytest.approx(-np.log(confidence).mean())
    squares = np.square(np.subtract(confidence, is_right))
    assert values["brier_top"] == pytest.approx(squares.mean())


def test_a_calibrated_confidence_has_no_error():
    random = np.random.default_rng(0)
    confidence = random.uniform(0.2, 1, 200_000)
    is_right = random.random(200_000) < confidence
    values = measure(make_decisions(confidence, is_right))
    assert values["ece"] < 0.006 and values["ece_mass"] < 0.006
    shifted = measure(make_decisions(np.minimum(confidence + 0.1, 1), is_right))
    assert shifted["ece"] > 0.08 and shifted["brier_top"] > values["brier_top"]


def test_one_bin_is_the_gap_of_means():
    random = np.random.default_rng(1)
    confidence, is_right = random.random(500), random.random(500) < 0.7
    gap = abs(confidence.mean() - is_right.mean())
    values = measure(make_decisions(confidence, is_right), bins=1)
    assert values["ece"] == pytest.approx(gap) == values["ece_mass"]


def test_edges_belong_to_the_lower_bin():
    """Bins are (0, 1/4], (1/4, 1/2], ..., as in Guo et al."""
    confidence = np.array([0.25, 0.5, 0.75, 1.0, 0.0])
    diagram = calibration.reliability(confidence, np.ones(5, bool), bins=4)
    np.testing.assert_array_equal(diagram.count, [2, 1, 1, 1])
    np.testing.assert_array_equal(diagram.edges, [0, 0.25, 0.5, 0.75, 1])


def test_every_image_is_in_one_bin_and_empty_bins_are_nan():
    confidence = np.random.default_rng(2).uniform(0.9, 1, 100)
    for equal in ("width", "mass"):
        diagram = calibration.reliability(confidence, confidence > 0.95, equal=equal)
        assert diagram.count.sum() == 100
        empty = diagram.count == 0
        assert np.isnan(diagram.accuracy[empty]).all()
        assert not np.isnan(diagram.accuracy[~empty]).any()
        assert empty.any() == (equal == "width")
    assert diagram.count.max() - diagram.count.min() <= 1


def test_images_without_a_right_class_are_left_out():
    decided = make_decisions([0.5, 0.9, 0.7], [1, 0, 1], [0.5, np.nan, 0.7])
    decided.columns["label"][1] = -1
    (n,) = {number.n for number in calibration.make().numbers({"": decided})}
    assert n == 2
    assert measure(decided) == measure(make_decisions([0.5, 0.7], [1, 1]))
    decided.columns["label"][:] = -1
    assert set(measure(decided).values()) == {None}


def test_an_underflow_is_finite():
    assert measure(make_decisions([0.5], [0], [0.0]))["nll"] == pytest.approx(
        87.3, abs=0.05
    )


def test_sums_of_a_calibrated_networks_probabilities_are_calibrated():
    """True classes are drawn from the network's own probabilities over six classes.

    Groups have one and five members. The sum over members is the probability of the group;
    the mean over members is not.
    """
    n, random = 20_000, np.random.default_rng(3)
    group_of_class = np.array([0, 1, 1, 1, 1, 1])
    image = random.integers(0, 256, (n, 2, 1, 3), np.uint8)

    bias = np.float32([[1, 0, 0, 0, 0, 0]])  # Favours the group of one member.

    def apply(variables, image):
        return 2 * image.reshape(len(image), 6) + bias

    p = np.exp(image.reshape(n, 6) / 127.5 + bias)
    p /= p.sum(1, keepdims=True)
    true_class = (p.cumsum(1) < random.random((n, 1))).sum(1).clip(max=5)
    rows = np.arange(n, dtype=np.int32)
    label = group_of_class[true_class].astype(np.int32)
    batch = inference.Batch(image, rows, label, true_class.astype(np.int32), n)
    matrix = (group_of_class[:, None] == np.arange(2)).astype(np.float32)
    rules = {
        "sum_prob": inference.DecisionRule(n, jnp.asarray(matrix), "sum_prob"),
        "mean_prob": inference.DecisionRule(
            n, jnp.asarray(matrix / matrix.sum(0)), "mean_prob"
        ),
    }
    columns = inference.run_probe(
        inference.BoundJaxNetwork(apply, {}),
        shown.unchanged(plain.make()),
        [batch],
        rules,
    )
    numbers = calibration.make().numbers(
        inference.to_decisions(columns, {"label": label})
    )
    ece = {
        number.condition: number.value for number in numbers if number.metric == "ece"
    }
    # With 20,000 images, bins differ by about 0.006 on average by chance.
    assert ece["sum_prob"] < 0.015
    assert ece["mean_prob"] > 0.1


def test_invalid_arguments_are_refused():
    with pytest.raises(ValueError, match="bins must be 1 or more, got 0"):
        calibration.make(bins=0)
    with pytest.raises(ValueError, match="equal must be 'width' or 'mass', got 'x'"):
        calibration.reliability(np.ones(1), np.ones(1), equal="x")
    decided = evals.Decisions(np.zeros(1, int), {"label": np.zeros(1, int)})
    with pytest.raises(ValueError, match="must have a column confidence, got label"):
        calibration.make().numbers({"": decided})
