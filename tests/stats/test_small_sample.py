"""Draws of the mean of few networks, and the test of a mean, against Student's t."""

import numpy as np
import pytest
import scipy.stats

from jbias.stats import two_sample
from tests import cases


@cases.each("s", [2, 3, 5, 20])
def test_percentiles_of_a_mean_are_the_t_interval(s):
    x = np.random.default_rng(s).normal(size=s)
    drawn = two_sample.t_weights(s, 100_000, np.random.default_rng(0)) @ x
    expected = scipy.stats.t.interval(0.95, s - 1, x.mean(), x.std(ddof=1) / np.sqrt(s))
    result = np.percentile(drawn, (2.5, 97.5))
    np.testing.assert_allclose(result - x.mean(), expected - x.mean(), rtol=0.05)


@cases.each("s", [2, 3, 5])
def test_intervals_cover_as_often_as_they_say(s):
    rng, covered, times = np.random.default_rng(s), 0, 1500
    for _ in range(times):
        drawn = two_sample.t_weights(s, 400, rng) @ rng.normal(size=s)
        low, high = np.percentile(drawn, (2.5, 97.5))
        covered += low < 0 < high
    assert abs(covered / times - 0.95) < 0.025


def test_two_measurements_of_the_same_networks_go_together():
    weights = two_sample.t_weights(4, 50_000, np.random.default_rng(0))
    x = np.array([0.1, 0.4, 0.2, 0.9])
    np.testing.assert_allclose(weights @ (3 * x + 1), 3 * (weights @ x) + 1)
    np.testing.assert_allclose(weights.sum(1), 1)


def test_a_single_network_has_weight_1():
    np.testing.assert_array_equal(
        two_sample.t_weights(1, 3, np.random.default_rng(0)), 1
    )


def test_a_test_of_networks_alone_is_scipy_s():
    x = np.array([0.3, 0.5, 0.45, 0.7])
    expected = scipy.stats.ttest_1samp(x, 0.2, alternative="greater").pvalue
    result = two_sample.mean_exceeds(x.mean() - 0.2, (x.var(ddof=1) / 4, 3))
    assert result == pytest.approx(expected)
    alone = two_sample.mean_exceeds(0.3, (0.0, 0), 0.01)
    assert alone == pytest.approx(scipy.stats.norm.sf(3))
    assert two_sample.mean_exceeds(0.3, (0.005, 3), 0.005) > alone


@cases.each(("excess", "p"), [(0.1, 0.0), (0.0, 1.0), (-0.1, 1.0)])
def test_without_any_error_the_sign_decides(excess, p):
    assert two_sample.mean_exceeds(excess, (0.0, 4)) == p
