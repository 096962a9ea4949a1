"""Wilcoxon's test against all sign flips, scipy, and its invariants."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from jbias import stats
from jbias.stats import posthoc
from tests import cases


def by_hand(d, zeros):
    """Return the results of all 2^n signs, one by one."""
    ranks = scipy.stats.rankdata(np.abs(d))
    if zeros == "wilcox":
        ranks, d = scipy.stats.rankdata(np.abs(d[d != 0])), d[d != 0]
    observed = abs(np.sum(np.sign(d) * ranks))
    weights = ranks if zeros == "split" else ranks[d != 0]
    signs = np.array(list(itertools.product([-1, 1], repeat=len(weights))))
    return np.mean(np.abs(signs @ weights) >= observed - 1e-9)


@cases.each("zeros", posthoc.ZEROS)
@cases.each("n", [2, 5, 9])
def test_all_signs_by_hand(zeros, n):
    scores = np.random.default_rng(n).integers(0, 6, size=(n, 6))
    result = stats.wilcoxon(scores, larger_is_better=True, zeros=zeros, adjust="none")
    assert result.exact
    for i, j in zip(*np.triu_indices(6, 1), strict=True):
        d = (scores[:, i] - scores[:, j]).astype(float)
        assert result.pvalues[i, j] == pytest.approx(by_hand(d, zeros), abs=1e-12)


@cases.each("n", [4, 10, 25, 60])
def test_equals_scipys_exact_test_without_ties(n):
    scores = np.random.default_rng(n).normal(size=(n, 4)) + [0, 0.2, 0.5, 0.9]
    result = stats.wilcoxon(scores, larger_is_better=True)
    for i, j in zip(*np.triu_indices(4, 1), strict=True):
        expected = scipy.stats.wilcoxon(scores[:, i], scores[:, j], method="exact")
        assert result.pvalues[i, j] == pytest.approx(expected.pvalue, rel=1e-9)
        w = result.statistics[i, j]
        assert (n * (n + 1) / 2 - abs(w)) / 2 == pytest.approx(expected.statistic)
        assert np.sign(w) == np.sign(result.ranks[j] - result.ranks[i]) or abs(w) < n


@pytest.mark.parametrize("zeros", ["wilcox", "pratt"])
def test_equals_scipys_permutations_with_ties(zeros):
    scores = np.random.default_rng(1).integers(0, 7, size=(9, 3)).astype(float)
    result = stats.wilcoxon(scores, larger_is_better=True, zeros=zeros)
    for i, j in [(0, 1), (0, 2), (1, 2)]:
        expected = scipy.stats.wilcoxon(
            scores[:, i],
            scores[:, j],
            zero_method=zeros,
            method=scipy.stats.PermutationMethod(n_resamples=2**12),
        )
        assert result.pvalues[i, j] == pytest.approx(expected.pvalue, rel=1e-9)


def test_normal_above_200_data_sets():
    scores = np.random.default_rng(2).normal(size=(201, 3)) + [0, 0.1, 0.2]
    result = stats.wilcoxon(scores, larger_is_better=True)
    assert not result.exact
    exact = stats.wilcoxon(scores[:200], larger_is_better=True)
    assert exact.exact
    for i, j in [(0, 1), (0, 2), (1, 2)]:
        expected = scipy.stats.wilcoxon(
            scores[:, i], scores[:, j], method="asymptotic", correction=False
        )
        assert result.pvalues[i, j] == pytest.approx(expected.pvalue, rel=1e-9)
        normal = scipy.stats.wilcoxon(
            scores[:200, i], scores[:200, j], method="asymptotic"
        )
        # How far apart the two are where one gives way to the other.
        assert exact.pvalues[i, j] == pytest.approx(normal.pvalue, abs=2e-3)
    assert 0 < result.least < 1e-40


def test_invariants():
    scores = np.random.default_rng(3).normal(size=(8, 5))
    result = stats.wilcoxon(scores, larger_is_better=True)
    np.testing.assert_array_equal(result.pvalues, result.pvalues.T)
    np.testing.assert_array_equal(result.statistics, -result.statistics.T)
    np.testing.assert_array_equal(np.diag(result.pvalues), 1)
    assert (result.adjusted >= result.pvalues).all()
    order = np.random.default_rng(4).permutation(5)
    mixed = stats.wilcoxon(scores[:, order], larger_is_better=True)
    np.testing.assert_allclose(mixed.adjusted, result.adjusted[order][:, order])
    turned = stats.wilcoxon(-100 * scores - 7, larger_is_better=False)
    np.testing.assert_allclose(turned.statistics, result.statistics)
    np.testing.assert_allclose(turned.adjusted, result.adjusted)


def test_a_pair_does_not_depend_on_others():
    scores = np.random.default_rng(5).normal(size=(8, 5))
    whole = stats.wilcoxon(scores, larger_is_better=True)
    alone = stats.wilcoxon(scores[:, [1, 3]], larger_is_better=True)
    assert alone.pvalues[0, 1] == whole.pvalues[1, 3]


def test_control_is_a_row_of_the_pairs():
    scores = np.random.default_rng(6).normal(size=(9, 4))
    pairs = stats.wilcoxon(scores, larger_is_better=True)
    result = stats.wilcoxon(scores, larger_is_better=True, control=2)
    assert result.control == "2"
    assert result.algorithms == ("0", "1", "3")
    compared = [0, 1, 3]
    np.testing.assert_array_equal(result.pvalues, pairs.pvalues[2, compared])
    np.testing.assert_array_equal(result.statistics, pairs.statistics[compared, 2])
    np.testing.assert_array_equal(result.ranks, pairs.ranks[compared])
    assert result.control_rank == pairs.ranks[2]
    np.testing.assert_allclose(
        result.adjusted, stats.adjust(result.pvalues, result.adjustment)
    )


def test_least_is_reached():
    """All data sets rank the same: the smallest possible p, which `least` states."""
    scores = np.arange(4) * np.arange(1, 7)[:, None]
    result = stats.wilcoxon(scores, larger_is_better=True)
    assert result.pvalues.min() == result.least == 2**-5
    assert result.adjusted.min() == result.least_adjusted == 6 * 2**-5
    for zeros in posthoc.ZEROS:
        other = stats.wilcoxon(scores, larger_is_better=True, zeros=zeros)
        assert other.pvalues.min() == 2**-5
    hochberg = stats.wilcoxon(scores, larger_is_better=True, adjust="hochberg")
    assert hochberg.adjusted.min() == hochberg.least_adjusted == 2**-5


def test_last_bits_do_not_break_ties():
    tenths = np.random.default_rng(7).integers(0, 30, size=(10, 5))
    whole = stats.wilcoxon(tenths, larger_is_better=True)
    noisy = tenths * 0.1 + np.arange(10)[:, None] * 0.7
    wilcoxon = stats.wilcoxon(noisy, larger_is_better=True)
    np.testing.assert_array_equal(wilcoxon.pvalues, whole.pvalues)
    raw = stats.wilcoxon(noisy, larger_is_better=True, tolerance=0)
    assert np.abs(raw.pvalues - whole.pvalues).max() > 0.01


def test_ties_at_the_edge_of_rounding():
    """1/1280 is halfway between two multiples of 1e-6, where rounding separates ties."""
    counts = np.random.default_rng(8).integers(0, 40, size=(12, 5)) * 2
    whole = stats.wilcoxon(counts, larger_is_better=True)
    shares = counts / 1280 + np.random.default_rng(9).uniform(0, 1e-9, counts.shape)
    wilcoxon = stats.wilcoxon(shares, larger_is_better=True)
    np.testing.assert_array_equal(wilcoxon.pvalues, whole.pvalues)


def test_all_equal():
    for zeros in posthoc.ZEROS:
        result = stats.wilcoxon(np.ones((5, 3)), larger_is_better=True, zeros=zeros)
        np.testing.assert_array_equal(result.adjusted, np.ones((3, 3)))
        assert result.cliques(0.05) == ((0, 1, 2),)


@pytest.mark.slow
def test_size_under_the_null():
    """At most 5 %, as the test is exact, and the largest level that 9 data sets allow."""
    steps = np.array([by_hand(d * np.arange(1, 10), "wilcox") for d in signs(9)])
    size = np.mean(steps <= 0.05)
    draws = np.random.default_rng(10).normal(size=(1500, 9, 2))
    result = [stats.wilcoxon(d, larger_is_better=True).pvalues[0, 1] for d in draws]
    assert size <= 0.05
    assert np.mean(np.array(result) <= 0.05) == pytest.approx(
        size, abs=4 * math.sqrt(0.05 / 1500)
    )


def signs(n):
    return np.array(list(itertools.product([-1.0, 1.0], repeat=n)))


def test_refusals():
    scores = np.random.default_rng(0).random((5, 4))
    for options, message in [
        ({"zeros": "drop"}, "zeros: must be one of wilcox, pratt, split"),
        ({"adjust": "sidak"}, "adjust: must be one of"),
        ({"control": "ERM"}, "control: must be one of 0, 1, 2, 3, got 'ERM'"),
        ({"control": 0, "adjust": "shaffer"}, "shaffer is for all pairs"),
        ({"tolerance": 0.1}, "tolerance: must be from 0 to a thousandth"),
        ({"tolerance": math.nan}, "tolerance: must be"),
    ]:
        with pytest.raises(ValueError, match=message):
            stats.wilcoxon(scores, larger_is_better=True, **options)
    with pytest.raises(TypeError, match="larger_is_better"):
        stats.wilcoxon(scores)
