"""Effect sizes against scipy's U and Harrell-Davis medians, formulas, and invariants."""

import math

import numpy as np
import pytest
import scipy.stats

from jbias import stats
from jbias.stats import effects


@pytest.fixture
def array():
    rng = np.random.default_rng(0)
    return (rng.normal(size=(6, 3, 8)) + 0.4 * np.arange(3)[:, None]).round(1)


@pytest.fixture
def result_of_array(array):
    return stats.effect_sizes(array, larger_is_better=True, draws=300)


def test_a12_is_mann_whitneys_u(array, result_of_array):
    for d in range(6):
        u = scipy.stats.mannwhitneyu(array[d, 2], array[d, 0]).statistic
        assert result_of_array.a12[d, 2, 0] == pytest.approx(u / 64)
    np.testing.assert_allclose(
        result_of_array.cliffs_delta, 2 * result_of_array.a12 - 1
    )
    improvement = stats.probability_of_improvement(
        array, larger_is_better=True, draws=300
    )
    for name in ("value", "low", "high"):
        np.testing.assert_allclose(
            getattr(result_of_array.a12_mean, name),
            getattr(improvement.pairs, name),
            atol=1e-12,
        )


def test_gamma_from_harrell_and_davis_medians(array, result_of_array):
    def centre(x):
        middle = scipy.stats.mstats.hdmedian(x)
        return middle, scipy.stats.mstats.hdmedian(np.abs(x - middle)) * 1.4826022

    (x, x_mad), (y, y_mad) = (centre(array[3, j]) for j in (1, 0))
    expected = (x - y) / math.sqrt((x_mad**2 + y_mad**2) / 2)
    assert result_of_array.gamma[3, 1, 0] == pytest.approx(float(expected), rel=1e-6)
    assert result_of_array.gamma_median[1, 0] == np.median(
        result_of_array.gamma[:, 1, 0]
    )


def test_gamma_is_cohens_d_of_normals():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(2, 2, 1500)) + np.array([[0.0], [0.8]])
    result = stats.effect_sizes(scores, larger_is_better=True, draws=100)
    # Medians and MADs of 1500 err by 0.04 and 0.03.
    assert result.gamma_median[1, 0] == pytest.approx(0.8, abs=0.12)


def test_rank_biserial_is_wilcoxons_statistic(array, result_of_array):
    d = (array[:, 2] - array[:, 0]).mean(axis=1)
    plus = scipy.stats.wilcoxon(d, alternative="greater").statistic
    total = 6 * 7 / 2
    assert result_of_array.rank_biserial.value[2, 0] == pytest.approx(
        2 * plus / total - 1
    )
    zeros = np.zeros((1, 5, 1))
    assert effects.rank_biserial(zeros) == 0
    assert effects.rank_biserial(zeros + 1) == 1


def test_hedges_g_by_hand(array, result_of_array):
    d = (array[:, 2] - array[:, 0]).mean(axis=1)
    exact = math.gamma(2.5) / (math.sqrt(2.5) * math.gamma(2))
    assert exact == pytest.approx(
        1 - 3 / (4 * 5 - 1), abs=2e-3
    )  # Hedges' own short cut.
    expected = exact * d.mean() / d.std(ddof=1)
    assert result_of_array.hedges_g.value[2, 0] == pytest.approx(expected)
    constant = np.full((1, 4, 1), 0.3)
    assert effects.hedges_g(constant) == np.inf
    assert effects.hedges_g(0 * constant) == 0


@pytest.mark.parametrize("other", [3.0, 3.1])
def test_hedges_g_of_two_data_sets_is_undefined(other):
    assert np.isnan(effects.hedges_g(np.array([[[3.0], [other]]])))
    scores = np.zeros((2, 2, 2))
    scores[:, 1] = [[3.0], [other]]
    result = stats.effect_sizes(scores, larger_is_better=True, draws=100)
    assert np.isnan(result.hedges_g.value[0, 1])


def test_hedges_g_is_unbiased():
    rng = np.random.default_rng(0)
    g = effects.hedges_g(rng.normal(0.5, 1, size=(1, 5, 100000)))
    assert g.mean() == pytest.approx(
        0.5, abs=0.01
    )  # Deviation 0.65 / sqrt(1e5), times 5.


def test_direction_and_symmetry(array, result_of_array):
    turned = stats.effect_sizes(-array, larger_is_better=False, draws=300)
    for name in ("rank_biserial", "hedges_g", "a12_mean", "cliffs_delta_mean"):
        up, down = getattr(result_of_array, name), getattr(turned, name)
        np.testing.assert_allclose(up.value, down.value, atol=1e-12)
        assert (up.low <= up.high).all()
    np.testing.assert_allclose(result_of_array.gamma, turned.gamma, atol=1e-12)
    np.testing.assert_allclose(
        result_of_array.gamma, -result_of_array.gamma.transpose(0, 2, 1)
    )
    np.testing.assert_allclose(
        result_of_array.hedges_g.value, -result_of_array.hedges_g.value.T
    )


def test_effects_without_spread_are_infinite():
    scores = np.zeros((3, 2, 2))
    scores[:, 1] = 1
    result = stats.effect_sizes(scores, larger_is_better=True, draws=100)
    assert result.gamma[0, 1, 0] == np.inf
    assert result.gamma[0, 0, 1] == -np.inf
    assert result.hedges_g.value[1, 0] == np.inf
    assert result.rank_biserial.low[1, 0] == 1


def test_infinite_effects_of_both_signs_cancel():
    scores = np.zeros((4, 2, 2))
    scores[:2, 0] = scores[2:, 1] = 1
    result = stats.effect_sizes(scores, larger_is_better=True, draws=100)
    assert result.gamma[:, 0, 1].tolist() == [np.inf, np.inf, -np.inf, -np.inf]
    assert result.gamma_median[0, 1] == 0
