"""Tests of two groups of runs: exact levels, and agreement with scipy."""

import numpy as np
import pytest
import scipy.stats

from jbias.stats import two_sample
from tests import cases


@cases.each("sizes", [(5, 5), (3, 6), (2, 2)])
def test_exchange_is_scipys_permutation_test(sizes):
    rng = np.random.default_rng(sum(sizes))
    first, second = (rng.normal(0.5 * i, 1, n) for i, n in enumerate(sizes))
    exchange = two_sample.exchange(first, second)
    for alternative, p in (("greater", exchange.greater), ("less", exchange.less)):
        expected = scipy.stats.permutation_test(
            (first, second),
            lambda a, b: np.mean(a) - np.mean(b),
            alternative=alternative,
            n_resamples=np.inf,
        )
        assert p == pytest.approx(expected.pvalue)
    assert exchange.exact and exchange.least == pytest.approx(
        1 / scipy.special.comb(sum(sizes), sizes[0])
    )
    assert exchange.difference == pytest.approx(first.mean() - second.mean())


def test_exchange_is_exact_under_the_null():
    """Exactly k of the 70 splits of eight values have p <= k / 70."""
    values = np.random.default_rng(0).normal(size=8)
    splits = [np.array(c) for c in two_sample.itertools.combinations(range(8), 4)]
    p = [two_sample.exchange(values[c], np.delete(values, c)).greater for c in splits]
    assert sorted(p) == pytest.approx(np.arange(1, 71) / 70)


def test_exchange_takes_units_of_any_shape():
    """The statistic is the largest column mean, not a mean of numbers."""
    rng = np.random.default_rng(1)
    first, second = rng.random((4, 3)) + [0.6, 0, 0], rng.random((4, 3))

    def largest(rows):
        return rows.mean(axis=0).max()

    exchange = two_sample.exchange(first, second, largest)
    assert exchange.difference == pytest.approx(largest(first) - largest(second))
    assert exchange.greater == 1 / 70 or exchange.greater > 1 / 70
    drawn = two_sample.exchange(first, second, largest, most=1, draws=999)
    assert not drawn.exact and drawn.least == 1 / 1000
    assert drawn.greater == pytest.approx(exchange.greater, abs=0.05)


def test_margin_is_how_far_below_still_counts():
    first, second = np.array([9.5, 9.6, 9.7, 9.4]), np.array([9.9, 10, 9.8, 10.1])
    assert two_sample.exchange(first, second).greater == 1
    near = two_sample.exchange(first, second, margin=1.0)
    assert near.greater == 1 / 70
    assert near.difference == pytest.approx(-0.4)


def test_rank_sum_is_exact_of_few():
    first, second = np.arange(5) + 10.0, np.arange(5.0)
    assert two_sample.rank_sum(first, second) == pytest.approx(1 / 252)
    assert two_sample.rank_sum(second, first) == pytest.approx(1)


def test_welch_of_summaries_equals_welch_of_runs():
    rng = np.random.default_rng(2)
    first, second = rng.normal(1, 1, 5), rng.normal(0, 3, 7)
    first_summary, second_summary = (
        (x.mean(), x.std(ddof=1), len(x)) for x in (first, second)
    )
    expected = scipy.stats.ttest_ind(
        first, second, equal_var=False, alternative="greater"
    )
    greater, less = two_sample.welch(first_summary, second_summary)
    assert greater == pytest.approx(expected.pvalue) and greater + less == 1
    without_spread = two_sample.welch((1, 0, 5), (2, 0, 5))
    assert np.isnan(without_spread).all()


def test_nothing_to_exchange_is_refused():
    with pytest.raises(ValueError, match="must have units"):
        two_sample.exchange(np.array([]), np.array([1.0]))


@cases.each("unit", [1e-12, 1, 1e10, 1e13, 1e15, 1e100])
def test_the_unit_of_the_scores_changes_no_p(unit):
    """For a mean, and for a mean over its deviation, which has no unit; ties remain."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(1.5, 1, 6), rng.normal(0, 1, 6)

    def standardised(values):
        return values.mean() / values.std()

    for statistic in (np.mean, standardised):
        expected = two_sample.exchange(first, second, statistic)
        exchange = two_sample.exchange(first * unit, second * unit, statistic)
        assert (exchange.greater, exchange.less) == (expected.greater, expected.less)
    # Splits with equal sums count; 0.1 + 0.2 equals 0.3 up to rounding: 4 of 6.
    tied = two_sample.exchange(np.array([0.1, 0.2]) * unit, np.array([0.3, 0.0]) * unit)
    assert tied.greater == pytest.approx(4 / 6)
    # Means that are tiny compared with the values.
    first = np.array([1e8, -1e8, 0.1, 0.2]) * unit
    second = np.array([0.3, 0.0, 1, 1]) * unit
    assert two_sample.exchange(first, second).less < 1
