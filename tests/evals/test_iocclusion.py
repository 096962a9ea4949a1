"""The iOcclusion index: its laws, and its curves of accuracies by condition."""

import numpy as np
import pytest

from jbias.evals import iocclusion


def test_by_hand():
    """A gap of 0.2 becomes one of 0.05, or of -0.1."""
    found = iocclusion.index(1.0, 0.8, np.array([0.6, 0.4]), np.array([0.55, 0.5]))
    np.testing.assert_allclose(found, [0.25, 0.5])


def test_laws():
    random = np.random.default_rng(0)
    train, test, hidden_train, hidden_test = random.random((4, 100))
    found = iocclusion.index(train, test, hidden_train, hidden_test)
    assert (found >= 0).all()
    np.testing.assert_allclose(iocclusion.index(train, test, train, test), 1)
    # Scale and shift of all accuracies, and which set is which, change nothing.
    scaled = (0.1 + 0.5 * x for x in (train, test, hidden_train, hidden_test))
    np.testing.assert_allclose(iocclusion.index(*scaled), found)
    swapped = iocclusion.index(test, train, hidden_test, hidden_train)
    np.testing.assert_allclose(swapped, found)


def test_no_gap_has_no_index():
    found = iocclusion.index(
        np.array([0.9, 0.9, 0.9]),
        np.array([0.9, 0.9 + 5e-7, 0.9 + 2e-6]),
        np.full(3, 0.5),
        np.full(3, 0.4),
    )
    assert np.isnan(found[:2]).all() and found[2] == pytest.approx(0.1 / 2e-6)
    assert np.isnan(iocclusion.index(0.5, 0.5, 0.5, 0.5))


def test_curves_of_runs():
    runs = np.array([0.0, 0.01, 0.02])
    train = {
        "": 1 - runs,
        "grad_cam most 0.5": 0.6 - runs,
        "grad_cam most 0.1": 0.8 - runs,
        "rectangle 0.3": 0.7 - runs,
        "fourier 0.3": 0.7 - runs,
    }
    test = {name: values - 0.2 + runs for name, values in train.items()}
    test["grad_cam most 0.5"] = train["grad_cam most 0.5"] - 0.1
    del test["fourier 0.3"]  # Only what both have.
    found = iocclusion.curves(train, test)
    assert set(found) == {"grad_cam most", "rectangle"}
    one = found["grad_cam most"]
    np.testing.assert_array_equal(one.fraction, [0, 0.1, 0.5])
    np.testing.assert_allclose(one.iocclusion[:2], np.ones((2, 3)))
    np.testing.assert_allclose(one.iocclusion[2], 0.1 / (0.2 - runs))
    np.testing.assert_allclose(one.test[1], 0.6)
    alone = iocclusion.curves(
        {name: float(values[1]) for name, values in train.items()},
        {name: float(values[1]) for name, values in test.items()},
    )["grad_cam most"]
    np.testing.assert_allclose(alone.iocclusion, one.iocclusion[:, 1])


def test_what_is_refused():
    with pytest.raises(ValueError, match="the test set must be measured as it is"):
        iocclusion.curves({"": 1.0, "rectangle 0.3": 0.5}, {"rectangle 0.3": 0.5})
