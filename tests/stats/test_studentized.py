"""The range of normals against scipy, the normal distribution, and its own quantile."""

import math

import numpy as np
import pytest
import scipy.stats

from jbias.stats import posthoc
from tests import cases

Q = np.array([1e-6, 0.05, 0.4, 1, 1.7, 2.5, 3.3, 4.1, 5, 6.5, 8])


@cases.each("k", [2, 3, 8, 20, 50, 100])
def test_equals_scipy(k):
    expected = scipy.stats.studentized_range.sf(Q, k, np.inf)
    np.testing.assert_allclose(posthoc.range_sf(Q, k), expected, rtol=0, atol=1e-10)
    for alpha in (0.01, 0.05, 0.5):
        q = scipy.stats.studentized_range.ppf(1 - alpha, k, np.inf)
        assert posthoc.range_isf(alpha, k) == pytest.approx(q, abs=1e-10)


def test_two_are_normal_far_into_the_tail():
    q = np.linspace(0.01, 45, 200)
    expected = 2 * scipy.stats.norm.sf(q / math.sqrt(2))
    np.testing.assert_allclose(posthoc.range_sf(q, 2), expected, rtol=1e-12)


@pytest.mark.parametrize("k", [3, 50])
def test_tails_lie_below_bonferroni_and_near_it(k):
    q = np.linspace(9, 40, 20)
    bound = k * (k - 1) * scipy.stats.norm.sf(q / math.sqrt(2))
    share = posthoc.range_sf(q, k) / bound
    assert (share <= 1 + 1e-12).all()
    assert share[-1] == pytest.approx(1, abs=1e-6)


def test_shape_and_ends():
    probabilities = posthoc.range_sf(np.array([[0, -1], [3, 1e9]]), 5)
    assert probabilities.shape == (2, 2)
    assert probabilities[0].tolist() == [1, 1]
    assert probabilities[1, 1] == 0
    assert posthoc.range_sf(2.0, 5).shape == ()


@cases.each("alpha", [1e-12, 1e-3, 0.05, 0.5, 0.999])
def test_isf_is_the_way_back(alpha):
    for k in (2, 7, 50):
        q = posthoc.range_isf(alpha, k)
        assert float(posthoc.range_sf(q, k)) == pytest.approx(alpha, rel=1e-9)
