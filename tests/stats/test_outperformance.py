"""P(A > B) and almost stochastic order against published values, scipy, and all resamples."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from jbias import stats
from tests import cases

A = [0.70, 0.72, 0.71, 0.74, 0.73]
B = [0.69, 0.70, 0.72, 0.71, 0.68]
MORE = {"larger_is_better": True}


def test_pairs_share_seeds_and_ties_are_no_wins():
    outperforming = stats.probability_of_outperforming(A, B, **MORE)
    assert (
        outperforming.mean.value == outperforming.share.value == 0.8
        and outperforming.pairs == 5
    )
    # The share over all pairs of runs with any seeds differs: scipy's U.
    u = scipy.stats.mannwhitneyu(A, B).statistic
    assert u / 25 == 0.82
    identical = stats.probability_of_outperforming(A, A, **MORE)
    assert (
        identical.share.value == identical.share.low == 0 and not identical.significant
    )
    errors = stats.probability_of_outperforming(
        1 - np.array(A), 1 - np.array(B), larger_is_better=False
    )
    assert errors.share.value == 0.8
    rounded = np.array(A) * 3 / 3 * (1 + 2e-16)
    assert stats.probability_of_outperforming(rounded, A, **MORE).share.value == 0


def test_independent_pairs_estimate_mann_and_whitneys_probability():
    """The mean of P(A > B) over shuffled pairs is U / nm."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.5, size=(2, 12)) * [[1], [2]]
    u = scipy.stats.mannwhitneyu(a, b).statistic / 144
    results = [
        stats.probability_of_outperforming(a, np.roll(b, i), draws=100, **MORE)
        for i in range(12)  # All pairs of runs occur once.
    ]
    assert np.mean([result.share.value for result in results]) == pytest.approx(u)


def of_wins(wins: int, pairs: int, **options):
    first = (np.arange(pairs) < wins).astype(float)
    return stats.probability_of_outperforming(
        first, np.full(pairs, 0.5), **MORE, **options
    )


def test_intervals_equal_those_of_a_binomial():
    """The interval of a data set is exact; redrawn wins are binomial with r pairs."""
    result = of_wins(28, 40, draws=20_000)
    exact = scipy.stats.binomtest(28, 40).proportion_ci(method="exact")
    assert (result.share.low[0], result.share.high[0]) == pytest.approx(exact)
    redrawn = scipy.stats.binom.ppf([0.025, 0.975], 40, 0.7) / 40
    assert [result.mean.low, result.mean.high] == pytest.approx(redrawn, abs=0.026)


@cases.each("pairs", [2, 3, 5, 6, 10, 29])
def test_equal_algorithms_are_rarely_significantly_different(pairs):
    """The rate is over all 2^r outcomes; winning five of five is not significant at 95 %."""
    results = [of_wins(k, pairs, draws=100) for k in range(pairs + 1)]
    chances = scipy.stats.binom.pmf(range(pairs + 1), pairs, 0.5)
    rate = chances[[result.significant[0] for result in results]].sum()
    assert rate <= 0.025 and (rate > 0) == (pairs > 5)
    assert np.isfinite(results[-1].mean.low) == (pairs > 5)


@cases.each("runs", [3, 10, 50])
def test_almost_stochastic_order_is_no_test_at_its_level(runs):
    """The bound of equal distributions is below 0.5 far more often than in 5 of 100."""
    first, second = np.random.default_rng(0).normal(size=(2, 400, runs))
    result = stats.almost_stochastic_order(first, second, draws=100, **MORE)
    assert (result.bound < 0.5).mean() > 0.12
    assert result.better.mean() < 0.1


@cases.each(
    ("wins", "significant", "better"),
    [(20, False, False), (29, True, True), (100, True, True)],
)
def test_better_is_significant_and_meaningful(wins, significant, better):
    first = (np.arange(40) < wins * 40 / 40).astype(float)
    outperforming = stats.probability_of_outperforming(first, np.full(40, 0.5), **MORE)
    assert (outperforming.significant[0], outperforming.better[0]) == (
        significant,
        better,
    )


def test_many_pairs_can_be_significant_and_not_meaningful():
    first = (np.arange(1000) < 560).astype(float)
    outperforming = stats.probability_of_outperforming(
        first, np.full(1000, 0.5), **MORE
    )
    assert outperforming.significant[0] and not outperforming.better[0]
    lower = stats.probability_of_outperforming(
        first, np.full(1000, 0.5), gamma=0.55, **MORE
    )
    assert lower.better[0]


def test_data_sets_are_redrawn_together():
    """Seeds are the same on all data sets, so equal rows do not narrow the interval."""
    first, second = np.tile(A * 2, (3, 1)), np.tile(B * 2, (3, 1))
    outperforming = stats.probability_of_outperforming(first, second, **MORE)
    one_data_set = stats.probability_of_outperforming(A * 2, B * 2, **MORE).mean
    ends = float(one_data_set.low), float(one_data_set.high)
    assert (outperforming.mean.low, outperforming.mean.high) == pytest.approx(ends)


def test_noethers_number_of_pairs():
    assert stats.pairs_for_outperforming() == 29
    z = scipy.stats.norm.ppf(0.95) * 2
    needed = (z / (math.sqrt(6) * 0.1)) ** 2
    assert stats.pairs_for_outperforming(gamma=0.6) == math.ceil(needed)
    with pytest.raises(ValueError, match="gamma: must be above 0.5, got 0.4"):
        stats.pairs_for_outperforming(gamma=0.4)


def order(first, second, **options):
    result = stats.almost_stochastic_order(first, second, **{**MORE, **options})
    return result.violation[0], result.bound[0]


def test_violations_of_both_directions_sum_to_one():
    """deep-significance gives 0 and 0.994975 here: its numerator lacks a grid point."""
    assert order(A, B)[0] == 0 and order(B, A) == (1, 1)
    rng = np.random.default_rng(0)
    for r, s in ((5, 5), (7, 4), (30, 30)):
        a, b = rng.normal(size=r), rng.normal(size=s)
        total = order(a, b)[0] + order(b, a)[0]
        assert total == pytest.approx(1)
        assert order(-a, -b, larger_is_better=False)[0] == pytest.approx(order(a, b)[0])
    assert order(A, A) == (0.5, 1)


@cases.each("sizes", [(5, 5), (7, 4), (3, 10)])
def test_the_integral_equals_a_fine_grid(sizes):
    """Equals deep-significance at 71b9e42 with its first point and a step of 1e-5."""
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=n) for n in sizes)
    t = np.arange(1e-5, 1, 1e-5)
    f, g = (np.sort(x)[np.ceil(len(x) * t - 1e-9).astype(int) - 1] for x in (a, b))
    expected = (np.maximum(g - f, 0) ** 2).sum() / ((g - f) ** 2).sum()
    assert order(a, b)[0] == pytest.approx(expected, abs=1e-4)


def exact_deviation() -> float:
    """Return the deviation of the violation over all 126 x 126 resamples of five runs each."""
    resamples = list(itertools.combinations_with_replacement(range(5), 5))
    weights = []
    for resample in resamples:
        counts = np.bincount(resample, minlength=5)
        weights.append(math.factorial(5) / np.prod([math.factorial(c) for c in counts]))
    weights = np.outer(weights, weights) / 5**10
    f, g = (np.sort(np.array(x)[np.array(resamples)], axis=1) for x in (A, B))
    gap = g[None] - f[:, None]
    squares = (gap**2).sum(-1)
    violations = (np.maximum(gap, 0) ** 2).sum(-1)
    violation = np.where(
        squares > 0, violations / np.where(squares > 0, squares, 1), 0.5
    )
    mean = (weights * violation).sum()
    return math.sqrt((weights * (violation - mean) ** 2).sum())


def test_the_bound_follows_from_all_resamples():
    """The bound is also near that of deep-significance, with 1,000 draws and seed 1234: 0.135."""
    z, deviation = scipy.stats.norm.ppf(0.95), exact_deviation()
    assert order(A, B, draws=100_000)[1] == pytest.approx(z * deviation, rel=0.02)
    assert z * deviation == pytest.approx(0.135, abs=0.02)
    # A fair division: 10 comparisons at 0.95 are one at 0.995.
    ten_comparisons, one_comparison = (
        order(A, B, comparisons=10)[1],
        order(A, B, confidence=0.995)[1],
    )
    assert (
        ten_comparisons == pytest.approx(one_comparison)
        and ten_comparisons > order(A, B)[1]
    )


def test_almost_is_between_better_and_not():
    """One run that is worse at the lowest quantile violates the order a little."""
    a, b = [0.60, 0.81, 0.82, 0.83], [0.61, 0.71, 0.72, 0.73]
    result = stats.almost_stochastic_order(a, b, **MORE)
    assert result.violation[0] == pytest.approx(0.0001 / (0.0001 + 3 * 0.01))


@cases.each(
    ("first", "second", "paired"),
    [
        (A, B[:4], True),
        ([0.1], [0.2], False),
        ([A, A], [B], False),
        (A, [*B[:4], np.nan], True),
    ],
)
def test_invalid_scores_are_refused(first, second, paired):
    tests = [stats.probability_of_outperforming]
    tests += [] if paired and len(second) == 4 else [stats.almost_stochastic_order]
    for test in tests:
        with pytest.raises(ValueError, match="first and second: must be finite scores"):
            test(first, second, **MORE)


def test_frames_are_read_by_the_names_of_their_axes():
    """Rows are seeds and columns data sets, as in a frame of (method, seed) rows."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 5, 3))
    names = dict(index="seed", columns="dataset")
    a_frame, b_frame = (pd.DataFrame(x.T).rename_axis(**names) for x in (a, b))
    options = dict(larger_is_better=True, draws=100)
    for test in (stats.probability_of_outperforming, stats.almost_stochastic_order):
        expected = test(a, b, **options)
        result = test(a_frame, b_frame, **options)
        for name in ("share", "violation"):
            if hasattr(expected, name):
                first, other = getattr(expected, name), getattr(result, name)
                if name == "share":
                    first, other = first.value, other.value
                np.testing.assert_array_equal(first, other)
    several = pd.DataFrame(a.T).rename_axis(index="method", columns="dataset")
    with pytest.raises(ValueError, match="scores of one algorithm each"):
        stats.probability_of_outperforming(several, several, **options)


def named_frames():
    """Return two frames of four data sets and twelve seeds."""
    rng = np.random.default_rng(0)
    axes = dict(
        index=pd.Index([*"acsp"], name="dataset"), columns=pd.RangeIndex(12, name="run")
    )
    first = pd.DataFrame(rng.normal(size=(4, 12)) + np.arange(4)[:, None], **axes)
    return first, first - 0.05 + 0.1 * rng.normal(size=(4, 12))


def test_frames_are_paired_by_their_labels():
    """The order of rows and columns changes nothing; other labels are refused."""
    first, second = named_frames()
    options = dict(larger_is_better=True, draws=100)
    pairs, order = stats.probability_of_outperforming, stats.almost_stochastic_order
    shares = pairs(first, second, **options).share.value
    violations = order(first, second, **options).violation
    for other in (second.iloc[::-1], second.iloc[:, ::-1], second.iloc[::-1, ::-1].T):
        np.testing.assert_array_equal(
            pairs(first, other, **options).share.value, shares
        )
        np.testing.assert_allclose(order(first, other, **options).violation, violations)
    one_row = pairs(first.loc["a"], second.loc["a"].iloc[::-1], **options)
    assert one_row.share.value == shares[0]
    other_sets = second.rename(index={"a": "x"})
    other_runs = second.rename(columns={0: 77})
    for test in (pairs, order):
        with pytest.raises(ValueError, match="same data sets, each once, got a, c, s,"):
            test(first, other_sets, **options)
    with pytest.raises(ValueError, match="same runs, each once, got 0, 1, 2, 3, 4 and"):
        pairs(first, other_runs, **options)
    order(first, other_runs, **options)
    pairs(first, other_sets.to_numpy(), **options)
