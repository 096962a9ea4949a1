"""Quade's test and aligned ranks against equivalent formulas and invariants."""

import math

import numpy as np
import pytest
import scipy.stats

from jbias import stats
from tests import cases

BOTH = (stats.quade, stats.aligned_ranks)


@pytest.fixture(params=[(5, 3), (8, 5), (20, 4)], ids=str)
def scores(request):
    rng = np.random.default_rng(sum(request.param))
    return rng.normal(size=request.param) + np.linspace(0, 0.8, request.param[1])


def test_quade_is_the_analysis_of_variance_of_weighted_ranks(scores):
    n, k = scores.shape
    spread = scipy.stats.rankdata(np.ptp(scores, axis=1))
    s = spread[:, None] * (scipy.stats.rankdata(-scores, axis=1) - (k + 1) / 2)
    between = n * np.sum(s.mean(axis=0) ** 2) / (k - 1)
    within = np.sum((s - s.mean(axis=0)) ** 2) / ((n - 1) * (k - 1))
    result = stats.quade(scores, larger_is_better=True)
    assert result.statistic == pytest.approx(between / within, rel=1e-10)
    expected = scipy.stats.f.sf(between / within, *result.df)
    assert result.pvalue == pytest.approx(expected, rel=1e-8)


def test_quade_of_two_orders_as_wilcoxon_does():
    """For k = 2 its statistic is a function of Wilcoxon's (Quade 1979)."""
    rng = np.random.default_rng(0)
    result = []
    for _ in range(50):
        pair = rng.normal(size=(9, 2)) + [0, 0.3]
        w = scipy.stats.wilcoxon(*pair.T).statistic
        result.append((w, stats.quade(pair, larger_is_better=True).statistic))
    w, f = np.array(sorted(result)).T
    assert (np.diff(f) <= 1e-9).all()


@pytest.mark.slow
@pytest.mark.parametrize("tied", [False, True])
def test_aligned_ranks_have_the_permutation_variance(tied):
    """Hodges and Lehmann: with T's denominator, T has mean k - 1 over permutations."""
    rng = np.random.default_rng(1)
    scores = rng.integers(0, 4, (6, 4)) if tied else rng.normal(size=(6, 4))
    orders = np.array([rng.permuted(scores, axis=1) for _ in range(1500)])
    result = [stats.aligned_ranks(s, larger_is_better=True).statistic for s in orders]
    error = np.std(result) / math.sqrt(len(result))
    assert np.mean(result) == pytest.approx(3, abs=4 * error)


def test_aligned_ranks_by_garcias_formula(scores):
    n, k = scores.shape
    aligned = scores - scores.mean(axis=1, keepdims=True)
    r = scipy.stats.rankdata(-aligned).reshape(n, k)
    m = k * n
    above = np.sum(r.sum(axis=0) ** 2) - k * n**2 / 4 * (m + 1) ** 2
    below = m * (m + 1) * (2 * m + 1) / 6 - np.sum(r.sum(axis=1) ** 2) / k
    result = stats.aligned_ranks(scores, larger_is_better=True)
    assert result.statistic == pytest.approx((k - 1) * above / below, rel=1e-10)
    np.testing.assert_allclose(result.ranks, r.mean(axis=0))


@cases.each("test", BOTH)
def test_invariants(test, scores):
    plain = test(scores, larger_is_better=True)
    rng = np.random.default_rng(0)
    rows, columns = map(rng.permutation, scores.shape)
    mixed = test(scores[rows][:, columns], larger_is_better=True)
    assert mixed.pvalue == pytest.approx(plain.pvalue)
    np.testing.assert_allclose(mixed.ranks, plain.ranks[columns])
    # Data sets may differ in difficulty, all scores in their unit.
    moved = 100 * (scores + rng.normal(size=(len(scores), 1)))
    assert test(moved, larger_is_better=True).pvalue == pytest.approx(plain.pvalue)
    tiny = test(1e-9 * scores, larger_is_better=True)
    assert tiny.pvalue == pytest.approx(plain.pvalue)
    turned = test(-scores, larger_is_better=False)
    assert turned.pvalue == pytest.approx(plain.pvalue)
    np.testing.assert_allclose(turned.ranks, plain.ranks)
    assert np.argmin(plain.ranks) in np.argsort(scores.mean(axis=0))[-2:]


@pytest.mark.parametrize("test", BOTH)
def test_edges(test):
    equal = test(np.ones((4, 3)), larger_is_better=True)
    assert (equal.statistic, equal.pvalue) == (0, 1)
    scores = np.random.default_rng(0).random((4, 3))
    with pytest.raises(ValueError, match="tolerance: must be from 0 to a thousandth"):
        test(scores, larger_is_better=True, tolerance=0.01)
    noise = test(1 + scores * 1e-14, larger_is_better=True)
    assert (noise.statistic, noise.pvalue) == (0, 1)
    with pytest.raises(ValueError, match="at least 2 data sets"):
        test([[1, 2, 3]], larger_is_better=True)
    with pytest.raises(TypeError, match="larger_is_better"):
        test(np.ones((4, 3)))


def test_quade_where_all_agree():
    """All data sets agree in their orders and in their ranges."""
    result = stats.quade([[1, 2, 3], [5, 6, 7], [2, 3, 4]], larger_is_better=True)
    assert (result.statistic, result.pvalue) == (math.inf, 0)
    assert result.ranks.tolist() == [3, 2, 1]


@pytest.mark.parametrize("test", BOTH)
def test_last_bits_do_not_break_ties(test):
    """0.1 + 0.2 ties with 0.3, also in ranges and aligned scores."""
    tenths = np.random.default_rng(2).integers(0, 30, size=(8, 4))
    whole = test(tenths, larger_is_better=True)
    noisy = tenths * 0.1 + np.arange(8)[:, None] * 0.7
    assert test(noisy, larger_is_better=True).pvalue == pytest.approx(
        whole.pvalue, rel=1e-9
    )


@pytest.mark.slow
@pytest.mark.parametrize("test", BOTH)
def test_size_under_the_null(test):
    """Within four binomial deviations, and a small error of 12 data sets."""
    draws = np.random.default_rng(3).normal(size=(1500, 12, 5))
    rate = np.mean([test(d, larger_is_better=True).pvalue < 0.05 for d in draws])
    assert abs(rate - 0.05) < 4 * math.sqrt(0.05 * 0.95 / 1500)
