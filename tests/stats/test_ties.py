"""Ties follow the same rule in every test, in any unit of the scores."""

import dataclasses
import functools
import warnings

import numpy as np
import pytest
import scipy.stats

from jbias import stats
from jbias.stats import score_table, two_sample
from tests import cases


def numbers(result, ignored=()):
    """Yield all arrays and numbers of a result, with their names."""
    if isinstance(result, dict):
        items = result.items()
    elif dataclasses.is_dataclass(result):
        items = ((f.name, getattr(result, f.name)) for f in dataclasses.fields(result))
    else:
        items = ()
        if isinstance(result, (float, int, np.ndarray)):
            yield "", np.asarray(result, float)
    for name, value in items:
        if name not in ignored:
            for below, number in numbers(value, ignored):
                yield f"{name}.{below}", number


def results_of(table, unit):
    """Yield results that do not depend on the unit; values in that unit are divided by it."""
    options = dict(larger_is_better=True)
    yield stats.friedman(table, **options)
    yield stats.quade(table, **options)
    yield stats.aligned_ranks(table, **options)
    yield stats.nemenyi(table, **options)
    yield stats.wilcoxon(table, **options)
    yield stats.rank_stability(table, draws=100, **options)
    yield stats.effect_sizes(table, draws=100, **options)
    yield stats.bayesian_signed_rank(table, rope=0.2 * unit, draws=500, **options)
    yield stats.correlated_t(table, rope=0.2 * unit, **options)
    yield stats.correlated_t(table, rope=0.2 * unit, paired=True, **options)
    yield stats.bradley_terry(table, local_rope=0.4, draws=2000, **options)
    power_result = stats.power_of_design(
        table, difference=0.5 * unit, seeds=(1, 3), datasets=(6,), draws=200
    )
    for name, value in power_result.minimal.items():
        power_result.minimal[name] = value / unit
    yield dataclasses.replace(power_result, difference=0)


@pytest.mark.parametrize("unit", [1e-11, 1e9])
def test_units_change_nothing(unit):
    rng = np.random.default_rng(0)
    table = (rng.normal(size=(8, 4, 3)) + 0.3 * np.arange(4)[:, None]).round(1)
    table[:2, 1] = table[:2, 0]
    table[2] = table[2, :, :1]
    for plain, scaled in zip(
        results_of(table, 1), results_of(unit * table, unit), strict=True
    ):
        plain_numbers, scaled_numbers = dict(numbers(plain)), dict(numbers(scaled))
        assert plain_numbers.keys() == scaled_numbers.keys() and plain_numbers
        for name, value in plain_numbers.items():
            field = f"{type(plain).__name__}.{name}"
            np.testing.assert_allclose(
                scaled_numbers[name],
                value,
                rtol=1e-3 if "minimal" in name else 1e-6,
                atol=1e-9,
                err_msg=field,
            )


@pytest.mark.slow
@cases.each("unit", [1e-11, 1, 1e9])
def test_means_that_differ_by_rounding_tie(unit):
    """0.1 + 0.2 + 0.3 differs from 0.3 + 0.2 + 0.1 in floats."""
    table = np.zeros((6, 3, 3))
    table[:, 0], table[:, 1] = [0.1, 0.2, 0.3], [0.3, 0.2, 0.1]
    table *= unit
    assert unit > 1 or (table[:, 0].sum(axis=1) != table[:, 1].sum(axis=1)).any()
    options = dict(larger_is_better=True)
    assert stats.friedman(table, **options).ranks.tolist() == [1.5, 1.5, 3]
    stable = stats.rank_stability(table, draws=100, **options)
    assert stable.ranks.value.tolist() == [1.5, 1.5, 3]
    result = stats.bradley_terry(table, draws=2000, **options)
    assert result.ties[0, 1] == 6 and result.wins[0].tolist() == [0, 3, 6]
    result = stats.effect_sizes(table, draws=100, **options)
    assert result.rank_biserial.value[0, 1] == result.hedges_g.value[0, 1] == 0
    result = stats.bayesian_signed_rank(table, rope=0, draws=500, **options)
    assert result.better[0, 1] == result.better[1, 0] == 0.5


@cases.each("unit", [1e-11, 1, 1e9])
def test_runs_that_differ_by_rounding_have_no_spread(unit):
    table = unit * np.ones((4, 1, 5)) * np.array([0.1, 0.3, 0.7])[:, None]
    signs = np.array([[0, -1, -1], [1, 0, -1], [1, 1, 0]])
    options = dict(larger_is_better=True)
    result = stats.effect_sizes(table, draws=100, **options)
    for gamma in result.gamma:
        np.testing.assert_array_equal(np.sign(gamma), signs)
        assert np.isinf(gamma[signs != 0]).all()
    for paired in (False, True):
        result = stats.correlated_t(table, rope=0, paired=paired, **options)
        expected = np.tile(signs > 0, (4, 1, 1))
        np.testing.assert_allclose(result.better, expected, atol=1e-9)


def test_the_rounding_error_of_a_mean_depends_only_on_its_runs():
    values = np.array([[[1.0, 3.0], [2.0, 2.0]], [[4e9, 1.0], [2.0, 2.0]]])
    errors = score_table.mean_errors(score_table.read(values))
    np.testing.assert_allclose(errors, [[3e-12, 2e-12], [4e-3, 2e-12]])


def scores_of_three():
    """Return a matrix of eight data sets and three methods with distinct scores."""
    noise = np.random.default_rng(0).normal(size=(8, 3))
    return 50 + 3 * np.arange(3) + noise


@pytest.mark.parametrize("huge", [1e8, 1e13, -1e13, 1e200, 1.7e308])
def test_a_huge_score_of_one_method_does_not_change_tests_of_other_methods(huge):
    """Signed-rank p of two methods, and ranks of all, equal scipy's."""
    scores = scores_of_three()
    expected = scipy.stats.wilcoxon(scores[:, 0], scores[:, 1]).pvalue
    scores[0, 2] = huge
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wilcoxon = stats.wilcoxon(scores, larger_is_better=False, adjust="none")
        ranks = score_table.rank(scores, larger_is_better=False)
    assert wilcoxon.pvalues[0, 1] == pytest.approx(expected, abs=1e-12)
    np.testing.assert_array_equal(ranks, scipy.stats.rankdata(scores, axis=1))


@pytest.mark.parametrize("huge", [1e8, 1e13])
def test_a_huge_score_of_a_pair_does_not_change_the_order_of_other_differences(huge):
    scores = scores_of_three()
    scores[0, 1] = huge
    expected = scipy.stats.wilcoxon(scores[:, 0], scores[:, 1]).pvalue
    wilcoxon = stats.wilcoxon(scores, larger_is_better=False, adjust="none")
    assert wilcoxon.pvalues[0, 1] == pytest.approx(expected, abs=1e-12)


def test_a_huge_score_does_not_change_effects_and_posteriors_of_other_methods():
    noise = np.random.default_rng(1).normal(size=(8, 3, 4))
    values = 50 + 3 * np.arange(3)[:, None] + noise
    huge = values.copy()
    huge[0, 2, 0] = 1e13
    for name, options in (
        ("bayesian_signed_rank", dict(rope=0.5, draws=500)),
        ("correlated_t", dict(rope=0.5)),
    ):
        run = functools.partial(getattr(stats, name), larger_is_better=True, **options)
        assert run(huge).better[..., 0, 1] == pytest.approx(
            run(values).better[..., 0, 1]
        )
    effects = [
        stats.effect_sizes(x, draws=100, larger_is_better=True) for x in (values, huge)
    ]
    for field in ("rank_biserial", "hedges_g"):
        plain, other = (getattr(x, field).value[0, 1] for x in effects)
        assert other == plain, field


def test_float32_scores_tie_like_their_decimals():
    decimals = np.array([[73.2, 71.1], [64.3, 62.2], [58.9, 60.1], [80.4, 78.3]])
    single = decimals.astype(np.float32).astype(np.float64)
    options = dict(larger_is_better=True, adjust="none")
    wilcoxon = stats.wilcoxon(single, **options)
    assert (
        wilcoxon.statistics[0, 1]
        == stats.wilcoxon(decimals, **options).statistics[0, 1]
    )
    assert wilcoxon.pvalues[0, 1] == 2 * 2 / 2**4  # W = 3 + 3 + 3 - 1 of 10.


@pytest.mark.parametrize("shape", [(10_000, 20), (3_000, 100)])
def test_sums_of_squares_of_large_tables_do_not_overflow(shape):
    """Quade's F and the aligned ranks' T against the same formulas in floats."""
    n, k = shape
    scores = np.random.default_rng(2).normal(size=shape) + np.arange(k) / 10
    ranks = scipy.stats.rankdata(-scores, axis=1)
    weights = scipy.stats.rankdata(np.ptp(scores, axis=1))
    s = weights[:, None] * (ranks - (k + 1) / 2)
    between = np.sum(s.sum(axis=0) ** 2) / n
    quade = (n - 1) * between / (np.sum(s**2) - between)
    result = stats.quade(scores, larger_is_better=True, tolerance=0)
    assert result.statistic == pytest.approx(quade, rel=1e-9)
    aligned = scores - scores.mean(axis=1, keepdims=True)
    ranks = scipy.stats.rankdata(-aligned).reshape(n, k)
    rows, columns = ranks.sum(axis=1), ranks.sum(axis=0)
    between = np.sum((columns - n * (k * n + 1) / 2) ** 2)
    within = np.sum(ranks**2) - np.sum(rows**2) / k
    result = stats.aligned_ranks(scores, larger_is_better=True, tolerance=0)
    assert result.statistic == pytest.approx((k - 1) * between / within, rel=1e-9)


def test_a_huge_value_does_not_change_the_order_of_exchanges():
    """Two groups of four without overlap: p is 1 of the 70 splits, for any largest value."""
    first, second = np.array([60.0, 61, 62, 63]), np.array([50.0, 51, 52, 53])
    for largest in (64.0, 1e8, 1e12):
        exchange = two_sample.exchange(np.append(first[:3], largest), second)
        assert exchange.greater == pytest.approx(1 / 70)


def test_a_method_with_huge_scores_does_not_change_groups_of_other_methods():
    rng = np.random.default_rng(3)
    runs = [list(50 + 3 * i + rng.normal(size=6)) for i in range(3)]
    options = dict(seeds=(2,), difference=0.5, larger_is_better=True)
    plain = stats.few_seeds(runs, **options)
    huge = stats.few_seeds([*runs[:2], [1e13, *runs[2][1:]]], **options)
    np.testing.assert_array_equal(huge.apart[:, :2], plain.apart[:, :2])
    assert huge.needed[0, 1] == plain.needed[0, 1]


def test_both_sides_of_welchs_test_keep_their_digits():
    greater, less = two_sample.welch((90.0, 1.0, 30), (50.0, 1.0, 30))
    expected = scipy.stats.ttest_ind_from_stats(
        90, 1, 30, 50, 1, 30, equal_var=False, alternative="greater"
    )
    assert greater == expected.pvalue > 0
    greater, less = two_sample.welch((50.0, 1.0, 30), (90.0, 1.0, 30))
    assert less == pytest.approx(expected.pvalue, rel=1e-6)


@cases.each("unit", [1, 0.1, 1e-3, 1e-8 / 7])
def test_runs_that_cancel_tie_in_every_unit(unit):
    """Tests of whole numbers do not change if all are divided by the same number."""
    rows = [[1, 2, -3], [2, -3, 1], [5, 4, 6], [3, 2, 4], [1, 1, 1], [6, 6, 6]]
    other_rows = [[0, 0, 0], [0, 0, 0], [2, 1, 3], [1, 2, 0], [3, 3, 3], [1, 1, 1]]
    table = np.stack([rows, other_rows], axis=1) * unit
    ties = [[1.5, 1.5]] * 2 + [[1, 2]] * 2 + [[2, 1], [1, 2]]
    options = dict(larger_is_better=True)
    assert score_table.rank(table, **options).tolist() == ties
    # Of six differences two are 0, and the others 3, 2, -2 and 5.
    w = stats.wilcoxon(table, **options)
    assert w.statistics[0, 1] == 3 + 1.5 - 1.5 + 4
    assert w.pvalues[0, 1] == 2 * 3 / 2**4
    expected = stats.quade(np.round(table / unit).mean(axis=2).round(), **options)
    assert stats.quade(table, **options).pvalue == pytest.approx(expected.pvalue)
    expected = stats.aligned_ranks(
        np.round(table / unit).mean(axis=2).round(), **options
    )
    assert stats.aligned_ranks(table, **options).pvalue == pytest.approx(
        expected.pvalue
    )
    posterior = stats.bayesian_signed_rank(table, rope=0, draws=500, **options)
    whole = stats.bayesian_signed_rank(
        np.round(table / unit).mean(axis=2).round(), rope=0, draws=500, **options
    )
    np.testing.assert_allclose(posterior.better, whole.better)


def near_zero_rows():
    """Return a matrix with zeros that have rounding errors."""
    return np.array(
        [[0.1 + 0.2 - 0.3, 0.0, 0.5], [0.3 - 0.2 - 0.1, 0.0, 0.5], [0.6, 0.4, 0.5]]
    )


@cases.each("unit", [1, 100, 1e-9])
def test_a_zero_that_rounding_moved_ties_with_zero(unit):
    options = dict(larger_is_better=True)
    scores = near_zero_rows() * unit
    assert (scores[:2, 0] != 0).all()
    tied = [2.5, 2.5, 1]
    assert score_table.rank(scores, **options).tolist() == [tied, tied, [1, 3, 2]]
    assert score_table.rank(scores[[0, 0, 1]], **options).tolist() == [tied] * 3
    whole = np.round(near_zero_rows(), 9)
    for test in (stats.quade, stats.aligned_ranks):
        assert test(scores, **options).pvalue == pytest.approx(
            test(whole, **options).pvalue
        )
    wilcoxon = stats.wilcoxon(scores, zeros="pratt", **options)
    expected = stats.wilcoxon(whole, zeros="pratt", **options)
    np.testing.assert_array_equal(wilcoxon.statistics, expected.statistics)
    stable = stats.rank_stability(scores[:, :, None].repeat(2, 2), draws=100, **options)
    assert stable.ranks.value.tolist() == pytest.approx([2, 2.6667, 1.3333], abs=1e-3)


@cases.each("huge", [1e14, 1e16, 1e17, 1e20, 1e200])
def test_a_huge_score_ties_no_small_ones(huge):
    """For one data set, and for all scores of an algorithm beyond float64's digits."""
    scores = scores_of_three()
    scores[0, 2] = huge
    ranks = score_table.rank(scores, larger_is_better=False)
    np.testing.assert_array_equal(ranks, scipy.stats.rankdata(scores, axis=1))
    if huge > 1e19 or huge < 1e15:
        scores[:, 2] = huge
        ranks = score_table.rank(scores, larger_is_better=False)
        np.testing.assert_array_equal(ranks, scipy.stats.rankdata(scores, axis=1))


def test_data_sets_of_other_units_tie_no_scores():
    """Scores of 1e-17 on one data set are not zeros, for any scores on other data sets."""
    scores = scores_of_three() * np.array([1e-17] * 2 + [1] * 3 + [1e17] * 3)[:, None]
    ranks = score_table.rank(scores, larger_is_better=False)
    np.testing.assert_array_equal(ranks, scipy.stats.rankdata(scores, axis=1))


def test_close_float32_scores_tie_like_their_decimals():
    """Scores of 70.0 to 70.6 in per cent or as shares, one run or three."""
    options = dict(larger_is_better=True)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        for shape in ((12, 2), (12, 2, 3)):
            decimals = np.round(rng.uniform(70, 70.6, shape), 1)
            expected = stats.wilcoxon(decimals, **options).statistics
            aligned = stats.aligned_ranks(decimals, **options).pvalue
            for scores in (decimals, decimals / 100):
                single = scores.astype(np.float32)
                wilcoxon = stats.wilcoxon(single, **options)
                np.testing.assert_array_equal(wilcoxon.statistics, expected)
                assert stats.aligned_ranks(single, **options).pvalue == pytest.approx(
                    aligned
                )


def test_means_over_runs_of_float32_tie_as_those_of_the_decimals():
    decimals = np.random.default_rng(0).integers(300, 307, (20, 4, 3)) / 10
    expected = scipy.stats.rankdata(decimals.sum(axis=2).round(6), axis=1)
    for scores in (decimals, decimals / 100):
        single = scores.astype(np.float32)
        ranks = score_table.rank(single, larger_is_better=False)
        np.testing.assert_array_equal(ranks, expected)


@pytest.mark.slow
@cases.each("size", [70.0, 1e6, 2.0**22])
def test_close_scores_of_float64_and_exact_ones_do_not_tie(size):
    """Differences of 1e-9 of the size, neighbouring whole numbers, and eighths."""
    rng = np.random.default_rng(1)
    options = dict(larger_is_better=False, adjust="none")
    steps = rng.permutation(24).reshape(12, 2)
    for step in (1e-9 * size, 1.0, 0.125 if size < 1e5 else 1.0):
        scores = size + step * (steps - 12 + 100 * np.arange(12)[:, None] % 7)
        expected = scipy.stats.wilcoxon(steps[:, 0] - steps[:, 1]).statistic
        result = stats.wilcoxon(scores, **options).statistics[0, 1]
        assert 12 * 13 / 4 - abs(result) / 2 == expected
