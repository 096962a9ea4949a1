"""The iOcclusion index: its laws, and its curves of accuracies by condition."""

import numpy as np
import pytest

from jbias.measures import iocclusion


def test_the_index_equals_a_calculation_by_hand():
    """A gap of 0.2 becomes one of 0.05, or of -0.1."""
    indices = iocclusion.index(1.0, 0.8, np.array([0.6, 0.4]), np.array([0.55, 0.5]))
    np.testing.assert_allclose(indices, [0.25, 0.5])


def test_the_index_does_not_depend_on_scale_offset_and_order_of_sets():
    random = np.random.default_rng(0)
    train, test, hidden_train, hidden_test = random.random((4, 100))
    indices = iocclusion.index(train, test, hidden_train, hidden_test)
    assert (indices >= 0).all()
    np.testing.assert_allclose(iocclusion.index(train, test, train, test), 1)
    # A scale and offset of all accuracies, and a swap of the sets, change nothing.
    args = (0.1 + 0.5 * x for x in (train, test, hidden_train, hidden_test))
    np.testing.assert_allclose(iocclusion.index(*args), indices)
    swapped = iocclusion.index(test, train, hidden_test, hidden_train)
    np.testing.assert_allclose(swapped, indices)


def test_the_index_is_undefined_without_a_gap():
    indices = iocclusion.index(
        np.array([0.9, 0.9, 0.9]),
        np.array([0.9, 0.9 + 5e-7, 0.9 + 2e-6]),
        np.full(3, 0.5),
        np.full(3, 0.4),
    )
    assert np.isnan(indices[:2]).all() and indices[2] == pytest.approx(0.1 / 2e-6)
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
    del test["fourier 0.3"]  # Curves need the condition on both sets.
    curves = iocclusion.curves(train, test)
    assert set(curves) == {"grad_cam most", "rectangle"}
    saliency_curve = curves["grad_cam most"]
    np.testing.assert_array_equal(saliency_curve.fraction, [0, 0.1, 0.5])
    np.testing.assert_allclose(saliency_curve.iocclusion[:2], np.ones((2, 3)))
    np.testing.assert_allclose(saliency_curve.iocclusion[2], 0.1 / (0.2 - runs))
    np.testing.assert_allclose(saliency_curve.test[1], 0.6)
    one_run = iocclusion.curves(
        {name: float(values[1]) for name, values in train.items()},
        {name: float(values[1]) for name, values in test.items()},
    )["grad_cam most"]
    np.testing.assert_allclose(one_run.iocclusion, saliency_curve.iocclusion[:, 1])


def test_curves_without_unchanged_images_are_refused():
    with pytest.raises(ValueError, match="the test set must be measured as it is"):
        iocclusion.curves({"": 1.0, "rectangle 0.3": 0.5}, {"rectangle 0.3": 0.5})
