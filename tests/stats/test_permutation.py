"""Permutation tests against explicit enumeration, published tables, and null distributions."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from jbias import stats
from jbias.stats import permutation
from tests import cases


def every_table(ranked):
    """Yield the rank sums of all (k!)^n tables."""
    rows = [list(itertools.permutations(row)) for row in ranked]
    return np.array([np.sum(table, axis=0) for table in itertools.product(*rows)])


TABLES = [
    np.array([[3.0, 1, 2], [2, 1, 3], [3, 1, 2], [3, 2, 1]]),
    np.array([[2.0, 1, 2], [2, 1, 3], [1, 1, 1], [3, 2, 1]]),
    np.array([[4.0, 1, 2, 2], [2, 1, 3, 4], [2, 1, 1, 1]]),
]


@cases.each("scores", TABLES)
def test_exact_is_every_table_by_hand(scores):
    ranked = scipy.stats.rankdata(-scores, axis=1)
    sums = every_table(ranked)
    observed = np.sum(ranked.sum(axis=0) ** 2)
    result = stats.friedman_permutation(scores, larger_is_better=True)
    expected = np.mean(np.sum(sums**2, axis=1) >= observed - 1e-9)
    assert result.exact
    assert result.pvalue == pytest.approx(expected, rel=1e-12)
    assert (result.standard_error, result.permutations) == (0, 0)


@cases.each("scores", TABLES)
def test_max_t_is_every_table_by_hand(scores):
    """Equals Westfall and Young's algorithm 2.8 written literally."""
    ranked = scipy.stats.rankdata(-scores, axis=1)
    pairs = list(itertools.combinations(range(scores.shape[1]), 2))
    sums = every_table(ranked)
    tables = np.abs([[s[i] - s[j] for i, j in pairs] for s in sums])
    observed = np.abs([ranked[:, i].sum() - ranked[:, j].sum() for i, j in pairs])
    result = stats.max_t(scores, larger_is_better=True)
    assert (result.exact, result.permutations) == (True, 0)
    order, last = np.argsort(-observed, kind="stable"), 0.0
    for at, m in enumerate(order):
        i, j = pairs[m]
        alone = np.mean(tables[:, m] >= observed[m] - 1e-9)
        assert result.pvalues[i, j] == pytest.approx(alone, rel=1e-9)
        reached = tables[:, order[at:]].max(axis=1) >= observed[m] - 1e-9
        last = max(last, np.mean(reached))
        assert result.adjusted[i, j] == pytest.approx(last, rel=1e-9)


def test_exact_gives_friedmans_own_table():
    """Friedman 1937, table V: P(chi2 >= 6) = 0.028 for k = 3, n = 3, and so on."""
    for n, k, chi2, p in [
        (3, 3, 6, 0.028),
        (4, 3, 6.5, 0.042),
        (5, 3, 6.4, 0.039),
        (8, 3, 6.25, 0.047),
        (4, 4, 7.8, 0.036),
    ]:
        sums, chances = permutation.exact_rank_sums(
            np.tile(2 * np.arange(1, k + 1), (n, 1))
        )
        result = 3 * np.sum(sums**2, axis=1) / (n * k * (k + 1)) - 3 * n * (k + 1)
        assert chances[result >= chi2 - 1e-9].sum() == pytest.approx(p, abs=6e-4)


def test_draws_near_all():
    """Random draws agree with the exact test within four standard errors, also for pairs."""
    rng = np.random.default_rng(0)
    scores = np.round(rng.normal(size=(7, 4)) + [0, 0.5, 0.5, 1], 1)
    twice = np.rint(2 * scipy.stats.rankdata(-scores, axis=1)).astype(int)
    sums = np.concatenate([*permutation.draw_rank_sums(twice, 20_000, 0)])
    observed = np.sum(twice.sum(axis=0) ** 2)
    exact = stats.friedman_permutation(scores, larger_is_better=True).pvalue
    drawn = np.mean(np.sum(sums**2, axis=1) >= observed)
    assert drawn == pytest.approx(exact, abs=4 * math.sqrt(exact / 20_000))


def test_draws_are_uniform():
    """Orders of one data set by chi-squared; sums of many by mean and variance."""
    sums = np.concatenate(
        [*permutation.draw_rank_sums(np.array([[0, 1, 2, 3]]), 24_000, 1)]
    )
    counts = np.unique(sums, axis=0, return_counts=True)[1]
    assert len(counts) == 24
    assert scipy.stats.chisquare(counts).pvalue > 1e-3
    n, k = 20, 9
    sums = np.concatenate(
        [*permutation.draw_rank_sums(np.tile(np.arange(k), (n, 1)), 20_000, 2)]
    )
    assert (sums.sum(axis=1) == n * k * (k - 1) // 2).all()
    variance = n * (k * k - 1) / 12
    error = math.sqrt(variance / len(sums))
    assert np.abs(sums.mean(axis=0) - n * (k - 1) / 2).max() < 4 * error
    np.testing.assert_allclose(sums.var(axis=0), variance, rtol=0.05)


def test_p_of_draws_is_never_zero_and_seeds_repeat():
    scores = np.tile(np.arange(10.0), (12, 1))
    first = stats.friedman_permutation(scores, larger_is_better=True, permutations=99)
    assert (first.exact, first.pvalue, first.permutations) == (False, 0.01, 99)
    assert first.statistic == math.inf
    pairs = stats.max_t(scores, larger_is_better=True, permutations=99)
    assert pairs.adjusted.min() == pairs.least == pairs.least_adjusted == 0.01
    noise = np.random.default_rng(0).normal(size=(12, 10))
    result = [
        stats.max_t(noise, larger_is_better=True, permutations=500, seed=seed).adjusted
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(result[0], result[1])
    assert (result[0] != result[2]).any()
    p = stats.friedman_permutation(noise, larger_is_better=True, permutations=400)
    assert p.standard_error == pytest.approx(math.sqrt(p.pvalue * (1 - p.pvalue) / 400))


def test_many_algorithms():
    """Ranks beyond 1023 take keys of 64 bits."""
    sums = np.concatenate(
        [*permutation.draw_rank_sums(2 * np.arange(600)[None], 50, 0)]
    )
    assert (np.sort(sums, axis=1) == 2 * np.arange(600)).all()
    assert len(np.unique(sums, axis=0)) == 50


def test_invariants():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(6, 4)) + [0, 0.3, 0.6, 0.9]
    plain = stats.friedman_permutation(scores, larger_is_better=True)
    order = rng.permutation(4)
    mixed = stats.friedman_permutation(np.exp(scores[:, order]), larger_is_better=True)
    assert mixed.pvalue == pytest.approx(plain.pvalue, rel=1e-12)
    turned = stats.friedman_permutation(scores, larger_is_better=False)
    assert turned.pvalue == pytest.approx(plain.pvalue, rel=1e-12)
    pairs = stats.max_t(scores, larger_is_better=True)
    np.testing.assert_array_equal(pairs.adjusted, pairs.adjusted.T)
    assert (pairs.adjusted >= pairs.pvalues - 1e-12).all()
    again = stats.max_t(scores[:, order], larger_is_better=True)
    np.testing.assert_allclose(again.adjusted, pairs.adjusted[order][:, order])
    for k in (3, 12):  # All tie, so there is one order, whatever k.
        equal = stats.friedman_permutation(np.ones((4, k)), larger_is_better=True)
        assert equal.pvalue == 1


def test_least_of_exact_pairs_is_reached():
    """Reached if one algorithm is always first and one last, with varying orders between."""
    scores = [[4, 3, 2, 1], [4, 2, 3, 1], [4, 3, 2, 1]]
    result = stats.max_t(scores, larger_is_better=True)
    assert result.pvalues[0, 3] == pytest.approx(result.least)
    assert result.adjusted[0, 3] == pytest.approx(result.least_adjusted)


@pytest.mark.slow
def test_approximation_is_the_rate_of_rejection():
    """Equals simulated rejections of `friedman`, and exact values where possible."""
    rng = np.random.default_rng(2)
    for n, k in [(3, 3), (5, 4), (6, 8)]:
        error_rates = stats.type_1_error(n, k)
        assert error_rates.exact == (k < 8)
        results = [
            stats.friedman(draw, larger_is_better=True)
            for draw in rng.random((1500, n, k))
        ]
        for rate, p in [(error_rates.f, "pvalue"), (error_rates.chi2, "chi2_pvalue")]:
            rejection_rate = np.mean([getattr(result, p) <= 0.05 for result in results])
            error = math.sqrt(rate * (1 - rate) / 1500) + error_rates.standard_error
            assert rejection_rate == pytest.approx(rate, abs=4 * error + 1e-12)


def test_more_algorithms_than_a_factorial_of_floats_holds():
    for n, k in ((5, 171), (3, 200)):
        type_1_error = stats.type_1_error(n, k, draws=200)
        assert 0 <= type_1_error.f <= 1
        assert type_1_error.least == 0


def test_approximation_of_few():
    """With 3 data sets and algorithms F rejects at chi2 = 4.67, six times too often."""
    error_rates = stats.type_1_error(3, 3)
    assert error_rates.exact
    assert (error_rates.f, error_rates.chi2) == (
        pytest.approx(7 / 36),
        pytest.approx(1 / 36),
    )
    assert error_rates.least == pytest.approx(1 / 36)
    assert stats.type_1_error(2, 2).least == 0.5
    assert stats.type_1_error(7, 8) is stats.type_1_error(7, 8)


def test_size_under_the_null():
    """An exact test rejects as often as its discrete p-values allow, at most 5 %."""
    draws = np.random.default_rng(3).integers(0, 4, size=(400, 6, 4))
    rate = np.mean(
        [
            stats.friedman_permutation(d, larger_is_better=True).pvalue <= 0.05
            for d in draws
        ]
    )
    assert rate <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 400)
    assert rate > 0.01


def test_refusals():
    scores = np.random.default_rng(0).random((4, 4))
    for test in (stats.friedman_permutation, stats.max_t):
        with pytest.raises(ValueError, match="permutations: must be at least 1, got 0"):
            test(scores, larger_is_better=True, permutations=0)
        with pytest.raises(TypeError, match="larger_is_better"):
            test(scores)
    with pytest.raises(ValueError, match="at least 2 data sets.*got 1, 3"):
        stats.type_1_error(1, 3)
    with pytest.raises(ValueError, match="alpha: must lie"):
        stats.type_1_error(4, 3, alpha=1)
