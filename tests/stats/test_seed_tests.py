"""Tests over the seeds of a data set against scipy, exact p-values, and simulated levels."""

import fractions
import itertools
import math

import numpy as np
import pandas as pd
import pytest
import scipy.special
import scipy.stats

from jbias import stats
from jbias.stats import power, score_table, two_sample
from tests import cases


def tidy(cells, dataset="sketch"):
    """Return a tidy frame of one data set from scores by algorithm; runs are numbered."""
    rows = [
        (algorithm, dataset, str(run), score)
        for algorithm, scores in cells.items()
        for run, score in enumerate(scores)
    ]
    return pd.DataFrame(rows, columns=["algorithm", "dataset", "run", "score"])


def compare(first, second, **options):
    """Return the single test of two algorithms on one data set."""
    frame = tidy({"a": first, "b": second})
    (test,) = stats.compare_seeds(frame, **{"larger_is_better": True} | options).tests
    return test


def normal(*sizes, seed=0):
    rng = np.random.default_rng([seed, *sizes])
    return [rng.normal(60 + i, 1 + i, size) for i, size in enumerate(sizes)]


@cases.each("sizes", [(2, 2), (3, 3), (5, 5), (4, 9), (10, 2)])
def test_t_interval_and_p_are_scipys_welch(sizes):
    first, second = normal(*sizes)
    test = compare(first, second)
    theirs = scipy.stats.ttest_ind(first, second, equal_var=False)
    ends = theirs.confidence_interval(0.95)
    assert test.statistic == pytest.approx(theirs.statistic)
    assert test.degrees == pytest.approx(theirs.df)
    assert test.t_pvalue == test.pvalue == pytest.approx(theirs.pvalue)
    assert (test.low, test.high) == pytest.approx((ends.low, ends.high))
    assert test.difference == pytest.approx(first.mean() - second.mean())
    assert test.runs == sizes


@cases.each("n", [2, 3, 6])
def test_paired_t_interval_and_p_are_scipys(n):
    first, second = normal(n, n)
    test = compare(first, second, paired=True, alpha=0.1)
    theirs = scipy.stats.ttest_rel(first, second)
    ends = theirs.confidence_interval(0.9)
    assert test.t_pvalue == pytest.approx(theirs.pvalue)
    assert (test.low, test.high) == pytest.approx((ends.low, ends.high))


@cases.each("sizes", [(3, 3), (5, 5), (3, 6)])
def test_p_by_permutation_is_the_share_of_all_splits(sizes):
    """The oracle computes scipy's Welch t for each split."""
    first, second = normal(*sizes, seed=1)
    pooled, n = np.concatenate([first, second]), sum(sizes)

    def size(chosen):
        remaining = np.delete(pooled, chosen)
        return abs(
            scipy.stats.ttest_ind(pooled[list(chosen)], remaining, equal_var=False)[0]
        )

    observed = size(range(sizes[0]))
    statistics = [size(c) for c in itertools.combinations(range(n), sizes[0])]
    test = compare(first, second)
    assert test.permutation_exact and test.permutation_error == 0
    assert test.permutation_pvalue == np.mean(
        np.array(statistics) >= observed * (1 - 1e-9)
    )


@cases.each(
    ("first", "second"),
    [
        ("1 1 2 3", "2 2 3 3"),
        ("0.1 0.2 0.3", "0.3 0.3 0.4 0.4"),
        ("5 5 5", "5 5 7"),
        ("61.2 61.2 61.3", "61.3 61.3 61.3"),
        ("60.1 60.0 60.0", "60.0 60.0 60.0 60.0"),
        ("60.1 60.1 60.1", "60.0 60.1 60.1"),
    ],
)
def test_p_by_permutation_is_exact_with_ties(first, second):
    """Equals p by fractions, in which equal statistics are equal; no spread: infinite t."""
    first, second = (
        [fractions.Fraction(word) for word in text.split()] for text in (first, second)
    )

    def square(a, b):
        means = [sum(x) / len(x) for x in (a, b)]
        squared_difference = (means[0] - means[1]) ** 2
        error = sum(
            sum((v - m) ** 2 for v in x) / (len(x) - 1) / len(x)
            for x, m in zip((a, b), means, strict=True)
        )
        return squared_difference / error if error else math.inf

    pooled, observed = [*first, *second], square(first, second)
    is_as_large = []
    for chosen in itertools.combinations(range(len(pooled)), len(first)):
        remaining = [x for i, x in enumerate(pooled) if i not in chosen]
        is_as_large.append(square([pooled[i] for i in chosen], remaining) >= observed)
    test = compare(list(map(float, first)), list(map(float, second)))
    assert test.permutation_pvalue == pytest.approx(np.mean(is_as_large))


@cases.each("n", [2, 5, 8])
def test_p_by_flipped_signs_is_scipys(n):
    first, second = normal(n, n, seed=2)
    theirs = scipy.stats.permutation_test(
        (first, second),
        lambda a, b: abs(np.mean(a - b)),
        permutation_type="samples",
        alternative="greater",
        n_resamples=np.inf,
    )
    test = compare(first, second, paired=True)
    assert test.permutation_exact
    assert test.permutation_pvalue == pytest.approx(theirs.pvalue)


@cases.each("paired", [False, True])
def test_drawn_p_is_the_exact_one_within_its_error(paired):
    first, second = normal(6, 6, seed=3)
    exact = compare(first, second, paired=paired)
    drawn = compare(first, second, paired=paired, most=1, draws=4000)
    assert not drawn.permutation_exact and drawn.permutation_error > 0
    error = abs(drawn.permutation_pvalue - exact.permutation_pvalue)
    assert error < 4 * drawn.permutation_error
    assert drawn.least_permutation_pvalue == 1 / 4001
    drawn_again = compare(first, second, paired=paired, most=1, draws=4000)
    assert drawn_again == drawn


@cases.each(
    ("sizes", "least"),
    [((3, 3), 0.1), ((5, 5), 2 / 252), ((2, 2), 1 / 3), ((3, 4), 1 / 35)],
)
def test_the_smallest_p_has_separated_runs(sizes, least):
    first, second = (10 * i + 0.1 * np.arange(n) for i, n in enumerate(sizes))
    test = compare(first, second)
    assert test.least_permutation_pvalue == pytest.approx(least)
    assert test.permutation_pvalue == pytest.approx(least)


def test_the_smallest_p_of_pairs_has_equal_signs():
    test = compare([1, 2, 3, 4, 5.5], [0, 1, 2, 3, 4], paired=True)
    assert test.least_permutation_pvalue == test.permutation_pvalue == 2 / 32


@cases.each("paired", [False, True])
def test_hedges_g_is_unbiased_and_its_ends_are_noncentralities(paired):
    """J by gamma functions; at the ends t is the 97.5 and 2.5 % quantile."""
    n = 5
    first, second = normal(n, n, seed=4)
    test = compare(first, second, paired=paired)
    if paired:
        differences = first - second
        d, df, size = differences.mean() / differences.std(ddof=1), n - 1, n
    else:
        pooled = math.sqrt((first.var(ddof=1) + second.var(ddof=1)) / 2)
        d, df, size = (first.mean() - second.mean()) / pooled, 2 * n - 2, n / 2
    gamma = scipy.special.gamma
    correction = gamma(df / 2) / (math.sqrt(df / 2) * gamma((df - 1) / 2))
    assert test.hedges_g == pytest.approx(correction * d)
    root = math.sqrt(size)
    for end, share in ((test.hedges_g_low, 0.975), (test.hedges_g_high, 0.025)):
        assert scipy.stats.nct.cdf(root * d, df, root * end) == pytest.approx(share)


def test_single_runs_are_not_tested_and_in_no_family():
    frame = tidy({"a": [1, 2, 4], "b": [3], "c": [5, 6, 8]})
    result = stats.compare_seeds(frame, larger_is_better=True)
    assert result.family == 1
    for test in result.tests:
        if "b" in (test.first, test.second):
            assert "a single run of b" in test.why_not
            assert math.isnan(test.pvalue) and math.isnan(test.adjusted)
            assert math.isnan(test.low) and math.isfinite(test.difference)
        else:
            assert not test.why_not and test.adjusted == test.pvalue
    one_method = stats.compare_seeds([[1, 2, 3]], larger_is_better=True)
    assert one_method.family == 0 and "0 Welch tests" in repr(one_method)


def test_runs_without_spread():
    """No spread in both: p by permutation; in one: Welch's t; all scores equal: p is 1."""
    without_spread = compare([1, 1, 1, 1], [2, 2, 2, 2])
    assert math.isnan(without_spread.t_pvalue) and math.isnan(without_spread.low)
    assert (
        without_spread.pvalue
        == without_spread.permutation_pvalue
        == pytest.approx(2 / 70)
    )
    assert without_spread.hedges_g == -math.inf
    one_without_spread = compare([1, 1, 1, 1], [2, 2.5, 3, 2])
    deviation = np.std([2, 2.5, 3, 2], ddof=1)
    theirs = scipy.stats.ttest_ind_from_stats(
        1, 0, 4, 2.375, deviation, 4, equal_var=False
    )
    assert one_without_spread.pvalue == pytest.approx(theirs.pvalue)
    equal = compare([0.1 + 0.2] * 3, [0.3] * 3)
    assert (equal.difference, equal.pvalue, equal.hedges_g) == (0, 1, 0)
    shifted = compare([1, 2, 3], [0.5, 1.5, 2.5], paired=True)
    assert math.isnan(shifted.t_pvalue) and shifted.pvalue == 2 / 8
    identical = compare([1, 2, 3], [1, 2, 3], paired=True)
    assert (identical.difference, identical.pvalue) == (0, 1)


def test_rounding_moves_no_p():
    """0.1 + 0.2 ties with 0.3, and float32 with float64."""
    exact = compare([0.3, 0.3, 0.5], [0.3, 0.6, 0.7])
    noisy = compare([0.1 + 0.2, 0.3, 0.5], [0.3, np.float32(0.6), 0.7])
    assert noisy.permutation_pvalue == exact.permutation_pvalue
    assert noisy.t_pvalue == pytest.approx(exact.t_pvalue, rel=1e-6)


@cases.each("paired", [False, True])
def test_p_and_g_do_not_depend_on_unit_and_offset(paired):
    """Scaling and shifting change neither p nor g; smaller-is-better turns the signs."""
    first, second = normal(4, 4, seed=5)
    plain = compare(first, second, paired=paired)
    scaled = compare(10 * first + 7, 10 * second + 7, paired=paired)
    turned = compare(first, second, paired=paired, larger_is_better=False)
    for key in ("t_pvalue", "permutation_pvalue", "hedges_g", "hedges_g_low"):
        assert getattr(scaled, key) == pytest.approx(getattr(plain, key)), key
    for key in ("difference", "low", "detectable"):
        assert getattr(scaled, key) == pytest.approx(10 * getattr(plain, key)), key
    assert (turned.low, turned.high) == pytest.approx((-plain.high, -plain.low))
    assert turned.pvalue == plain.pvalue
    assert turned.means == pytest.approx((first.mean(), second.mean()))


def test_holm_counts_all_tests_and_those_of_a_data_set():
    rng = np.random.default_rng(6)
    table = rng.normal(size=(2, 3, 6)) + np.arange(3)[:, None]
    result = stats.compare_seeds(table, larger_is_better=True)
    frame = result.to_frame()
    assert (len(frame), result.family) == (6, 6)
    assert frame["adjusted"].to_numpy() == pytest.approx(
        stats.adjust(frame["pvalue"].to_numpy(), "holm")
    )
    for _, rows in frame.groupby("dataset"):
        adjusted_in_dataset = stats.adjust(rows["pvalue"].to_numpy(), "holm")
        assert rows["adjusted_in_dataset"].to_numpy() == pytest.approx(
            adjusted_in_dataset
        )
    against = stats.compare_seeds(table, larger_is_better=True, reference="1")
    assert [(test.first, test.second) for test in against.tests] == 2 * [
        ("0", "1"),
        ("2", "1"),
    ]
    assert against.tests[0].pvalue == result.tests[0].pvalue
    assert against.tests[0].adjusted <= result.tests[0].adjusted


def test_pairs_are_runs_of_one_name_in_any_order():
    first, second = normal(5, 5, seed=7)
    frame = tidy({"a": first, "b": second})
    shuffled = frame.sample(frac=1, random_state=1)
    result = [
        stats.compare_seeds(x, larger_is_better=True, paired=True, reference="b").tests[
            0
        ]
        for x in (frame, shuffled)
    ]
    assert result[0].pvalue == pytest.approx(result[1].pvalue)
    assert result[0].pvalue == pytest.approx(
        scipy.stats.ttest_rel(first, second).pvalue
    )
    with pytest.raises(ValueError, match="same runs, got none called 4 of b; leave"):
        stats.compare_seeds(frame[:-1], larger_is_better=True, paired=True)


def test_arrays_pair_by_place_and_may_lack_runs():
    array = np.stack(normal(5, 5, seed=8))[None]
    array[0, 1, 0] = math.nan
    table = score_table.read(array, least_datasets=1)
    assert table.run_names == (("0", "1", "2", "3", "4"), ("1", "2", "3", "4"))
    (test,) = stats.compare_seeds(array, larger_is_better=True).tests
    theirs = scipy.stats.ttest_ind(array[0, 0], array[0, 1, 1:], equal_var=False)
    assert test.pvalue == pytest.approx(theirs.pvalue)


@cases.each(
    ("options", "message"),
    [
        ({"reference": "x"}, "reference: must be one of a, b"),
        ({"alpha": 0}, "alpha: must lie between 0 and 1"),
        ({"target": 0.01}, "target: must lie between alpha and 1"),
        ({"draws": 0}, "draws: must be at least 1"),
    ],
)
def test_refuses_invalid_options(options, message):
    with pytest.raises(ValueError, match=message):
        compare([1, 2], [3, 4], **options)


def test_one_data_set_is_enough_where_asked_for_only():
    frame = tidy({"a": [1, 2], "b": [3, 4]})
    assert score_table.read(frame, least_datasets=1).datasets == ("sketch",)
    with pytest.raises(ValueError, match="at least 2 data sets"):
        score_table.read(frame)
    with pytest.raises(ValueError, match="at least 1 data set .* got 1 and 1"):
        stats.compare_seeds(tidy({"a": [1, 2]}), larger_is_better=True)


@cases.each("paired", [False, True])
def test_the_detectable_difference_has_the_requested_power(paired):
    """4,000 simulated studies with the deviations of the table; 3 standard errors."""
    first, second = normal(5, 5, seed=9)
    test = compare(first, second, paired=paired)
    rng = np.random.default_rng(0)
    if paired:
        scale = (first - second).std(ddof=1)
        drawn = rng.normal(test.detectable, scale, (5, 4000))
        p = scipy.stats.ttest_1samp(drawn, 0, alternative="greater").pvalue
    else:
        a, b = (rng.normal(0, x.std(ddof=1), (5, 4000)) for x in (first, second))
        p = scipy.stats.ttest_ind(
            a + test.detectable, b, equal_var=False, alternative="greater"
        ).pvalue
    # Welch's t is noncentral t to about a point only.
    assert np.mean(p <= 0.025) == pytest.approx(0.8, abs=0.03)


def test_the_detectable_difference_is_at_the_level_that_tests_share():
    frame = tidy(dict(zip("abc", normal(4, 5, 6), strict=True)))
    result = stats.compare_seeds(frame, larger_is_better=True)
    deviations = [float(x.std(ddof=1)) for x in normal(4, 5, 6)]
    assert result.tests[0].detectable == pytest.approx(
        power.minimal_difference_of_welch(
            deviations=tuple(deviations[:2]), seeds=(4, 5), alpha=0.05 / 3
        )
    )


def test_the_minimal_difference_of_equal_deviations_equals_students():
    result = power.minimal_difference_of_welch(deviations=(2, 2), seeds=(6, 6))
    critical = scipy.stats.t.isf(0.025, 10)
    shift = result / (2 * math.sqrt(1 / 3))
    assert scipy.stats.nct.sf(critical, 10, shift) == pytest.approx(0.8)
    with pytest.raises(ValueError, match="seeds: must be at least 2"):
        power.minimal_difference_of_welch(deviations=(2, 2), seeds=(1, 6))


@cases.each(
    ("sizes", "deviations"), [((3, 3), (1, 1)), ((5, 5), (1, 3)), ((4, 8), (1, 1))]
)
def test_no_more_than_alpha_is_claimed_of_equal_means(sizes, deviations):
    """1,000 studies at 0.05: Welch's level within 3 standard errors, and a permutation's.

    With deviations of 1 and 3 Welch's test and its permutation hold approximately.
    """
    rng = np.random.default_rng(sum(sizes))
    studies = 1000
    claimed = np.zeros((2, studies), bool)
    for i in range(studies):
        first, second = (
            rng.normal(0, s, n) for n, s in zip(sizes, deviations, strict=True)
        )
        claimed[0, i] = two_sample.welch_t(first, second).pvalue <= 0.05
        claimed[1, i] = two_sample.permute_welch(first, second).pvalue <= 0.05
    welch, permuted = claimed.mean(axis=1)
    error = math.sqrt(0.05 * 0.95 / studies)
    assert welch < 0.05 + 3 * error
    assert permuted < 0.05 + (3 * error if len(set(deviations)) == 1 else 0.03)
    assert (permuted == 0) == (sizes == (3, 3))


@pytest.mark.slow
def test_holm_keeps_the_error_of_a_family():
    """Three equal algorithms on two data sets, 1,000 times: any claim in at most 5 %."""
    rng = np.random.default_rng(0)
    wrong = [
        (
            stats.compare_seeds(x, larger_is_better=True).to_frame()["adjusted"] <= 0.05
        ).any()
        for x in rng.normal(size=(1000, 2, 3, 5))
    ]
    assert np.mean(wrong) < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 1000)
