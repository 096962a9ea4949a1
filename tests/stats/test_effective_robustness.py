"""Effective robustness against the authors' numbers, scipy's regression, and invariants."""

import pathlib

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from jbias import stats
from tests import cases

AUTHORS = pd.read_csv(
    pathlib.Path(__file__).parents[1] / "oracles" / "effective_robustness.csv",
    index_col="model",
)
OTHERS = (
    "resnet50",
    "resnet50_trained_on_SIN",
    "resnet50_l2_eps3_robust",
    "efficientnet-l2-noisystudent",
)
X, Y = [50, 60, 70, 80, 65], [30, 42, 50, 66, 55]
FIRST_FOUR = [True] * 4 + [False]


@cases.each(
    ("ood", "within", "n_fit", "slope", "intercept", "r_squared", "robustness"),
    [
        ("v2", "val", 85, 0.9232, -0.4977, 0.9960, (-0.738, 1.463, 0.390, 1.108)),
        ("sketch", "val", 85, 1.0709, -2.3701, 0.8690, (-0.361, 17.354, 7.774, 2.706)),
        ("r", "val_r", 80, 0.6368, -2.1077, 0.8894, (-0.602, 16.744, 14.473, 17.087)),
        (
            "objectnet",
            "val_objectnet",
            85,
            0.9809,
            -1.9283,
            0.9525,
            (1.152, 2.372, -1.215, 3.264),
        ),
    ],
)
def test_results_equal_those_of_the_authors(
    ood, within, n_fit, slope, intercept, r_squared, robustness
):
    """Fits and the values of four networks equal those of the authors' code."""
    frame = AUTHORS.dropna(subset=[ood, within])
    result = stats.effective_robustness(
        frame[within], frame[ood], standard=frame["standard"], resamples=20
    )
    assert result.n_fit == n_fit
    line = result.slope[0], result.intercept, result.r_squared
    assert line == pytest.approx((slope, intercept, r_squared), abs=5e-5)
    ours = result.robustness[frame.index.get_indexer(OTHERS)]
    assert ours == pytest.approx(robustness, abs=5e-4)


def test_by_hand():
    robustness = stats.effective_robustness(X, Y, standard=FIRST_FOUR)
    assert (robustness.slope[0], robustness.intercept) == pytest.approx(
        (1.0564731, -0.8237175)
    )
    assert robustness.robustness[4] == pytest.approx(9.232826, abs=5e-7)
    assert robustness.residual[:4].sum() == pytest.approx(0, abs=1e-12)
    assert abs(robustness.robustness[:4].sum()) > 0.01  # In points they need not.
    assert not (robustness.extrapolated.any() or robustness.corrected.any())


def test_line_is_scipys_regression_of_probits():
    x, y = np.asarray(X), np.asarray(Y)
    theirs = scipy.stats.linregress(*scipy.stats.norm.ppf([x / 100, y / 100]))
    robustness = stats.effective_robustness(x, y, scale="probit", resamples=10)
    line = robustness.slope[0], robustness.intercept, robustness.r_squared
    assert line == pytest.approx((theirs.slope, theirs.intercept, theirs.rvalue**2))
    on_line = scipy.stats.norm.ppf(x / 100) * theirs.slope + theirs.intercept
    expected = 100 * scipy.stats.norm.cdf(on_line)
    np.testing.assert_allclose(robustness.predicted, expected)
    np.testing.assert_allclose(robustness.robustness, y - expected)


def test_models_on_the_line_have_robustness_0_and_extrapolation_is_marked():
    odds = [0.2, 0.5, 1, 3, 40]
    x = [100 * odd / (1 + odd) for odd in odds]
    y = [100 * odd**2 / (2 + odd**2) for odd in odds]  # Twice the logit, less log 2.
    robustness = stats.effective_robustness(x, y, standard=FIRST_FOUR)
    np.testing.assert_allclose(robustness.robustness, 0, atol=1e-10)
    np.testing.assert_allclose([robustness.low, robustness.high], 0, atol=1e-8)
    assert robustness.extrapolated.tolist() == [False] * 4 + [True]
    assert robustness.slope[0] == pytest.approx(2)


def test_two_sets_in_distribution_are_a_plane():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(9, 2))
    x = 100 / (1 + np.exp(-logits))
    y = 100 / (1 + np.exp(1 - logits @ [0.5, 2]))
    robustness = stats.effective_robustness(x, y, resamples=10)
    assert robustness.slope == pytest.approx([0.5, 2])
    assert robustness.intercept == pytest.approx(-1)
    np.testing.assert_allclose(robustness.robustness, 0, atol=1e-10)


def test_interval_is_of_lines_through_models_drawn_again():
    """Equals numpy's polynomials on the same draws; draws of a single model give no line."""
    rows = np.random.default_rng(3).integers(4, size=(200, 4))
    logits = [np.log(np.asarray(v) / (100 - np.asarray(v))) for v in (X, Y)]
    drawn = []
    for row in rows:
        if len(set(row)) > 1:
            slope, intercept = np.polyfit(logits[0][row], logits[1][row], 1)
            drawn.append(100 / (1 + np.exp(-slope * logits[0] - intercept)))
    low, high = np.quantile(drawn, [0.05, 0.95], axis=0)
    options = dict(standard=FIRST_FOUR, level=0.9, resamples=200, seed=3)
    robustness = stats.effective_robustness(X, Y, **options)
    np.testing.assert_allclose(robustness.low, np.asarray(Y) - high, atol=1e-9)
    np.testing.assert_allclose(robustness.high, np.asarray(Y) - low, atol=1e-9)
    assert robustness.singular == 200 - len(drawn) > 0


def test_half_an_image_is_added_at_the_ends_alone():
    y = [0, 42, 50, 100, 55]
    options = dict(ood_images=50, resamples=10)
    robustness = stats.effective_robustness(X, y, **options)
    near = [100 * 0.5 / 51, 42, 50, 100 * 50.5 / 51, 55]
    other = stats.effective_robustness(X, near, **options)
    np.testing.assert_allclose(robustness.predicted, other.predicted)
    np.testing.assert_allclose(robustness.robustness, y - other.predicted)
    assert robustness.corrected.tolist() == [True, False, False, True, False]


def call(x=X, y=Y, **options):
    return lambda: stats.effective_robustness(x, y, **options)


REFUSED = {
    "unequal": (call(y=Y[:4]), "one length"),
    "words": (call(x=["a", *X[1:]]), "id_accuracy 0: must be a finite number"),
    "one": (call(x=50), "one length"),
    "nan": (call(y=[*Y[:4], np.nan]), "ood_accuracy: must be a finite number"),
    "shares": (call(x=[0.5, 0.6, 0.7, 0.8, 0.65]), "id_accuracy: .* multiply shares"),
    "ood shares": (call(y=np.array(Y) / 100), "ood_accuracy: .* multiply shares"),
    "above": (call(y=[*Y[:4], 101]), "ood_accuracy: must be per cent, .* got 101"),
    "zero": (call(y=[0, *Y[1:]]), "ood_accuracy: .* got 0; .* ood_images"),
    "images": (call(x=[100, *X[1:]], id_images=0), "id_images: must be at least 1"),
    "two": (call(standard=[True, True, False, False, False]), "at least 3 .* got 2"),
    "mask": (call(standard=[1, 1, 1, 0, 0]), "standard: must be true or false"),
    "alike": (call(x=[50] * 5), "whose id_accuracy differs"),
    "plane": (call(x=np.stack([X, X], 1)), "in its own way"),
    "scale": (call(scale="log"), "scale: must be one of logit, probit"),
    "level": (call(level=95), "level"),
    "resamples": (call(resamples=0), "resamples"),
}


@cases.each("name", REFUSED)
def test_refuses_in_one_line(name):
    make, message = REFUSED[name]
    with pytest.raises(ValueError, match=message) as refused:
        make()
    assert "\n" not in str(refused.value)
