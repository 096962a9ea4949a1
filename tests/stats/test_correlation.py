"""Rank correlations against scipy, enumeration, invariances and null distributions."""

import itertools
import time

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from jbias import stats
from jbias.stats import correlation
from jbias.stats.multiple_testing import adjust
from tests import cases

METHODS = {
    "spearman": (stats.spearman, scipy.stats.spearmanr),
    "kendall": (stats.kendall, scipy.stats.kendalltau),
}


def drawn(n, k, seed=0, *, ties=True):
    values = np.random.default_rng(seed).normal(size=(n, k))
    values[:, 1:] += values[:, :1] / 2
    return np.round(values, 0 if ties else 9)


@cases.each("name", METHODS)
@cases.each("ties", [True, False])
@cases.each("n", [3, 8, 48])
def test_statistic_is_scipys(name, ties, n):
    ours, theirs = METHODS[name]
    x, y = drawn(n, 2, seed=n, ties=ties).T
    x[0] += 3  # Not constant.
    result = ours(x, y, permutations=10)
    assert result.statistic == pytest.approx(theirs(x, y).statistic, abs=1e-12)
    assert result.n == n


@cases.each("name", METHODS)
def test_tiny_samples_are_enumerated(name):
    """p is the share of all orders with at least the observed |correlation|."""
    ours, theirs = METHODS[name]
    x, y = [1.0, 2.0, 2.0, 4.0, 5.0], [2.0, 1.0, 3.0, 3.0, 9.0]
    observed = abs(theirs(x, y).statistic)
    every = [abs(theirs(x, z).statistic) for z in itertools.permutations(y)]
    expected = np.mean(np.asarray(every) >= observed - 1e-9)
    result = ours(x, y)
    assert (result.pvalue, result.exact, result.draws) == (expected, True, 120)
    assert not ours(x, y, permutations=119).exact


@pytest.mark.slow
@cases.each("name", METHODS)
def test_p_is_scipys_permutation_test(name):
    """p equals scipy's within 5 standard errors of two samples of 20,000."""
    ours, theirs = METHODS[name]
    x, y = drawn(20, 2, seed=3).T
    pvalue = ours(x, y, permutations=20_000).pvalue
    other = scipy.stats.permutation_test(
        (y,),
        lambda z: theirs(x, z).statistic,
        permutation_type="pairings",
        n_resamples=2_000,
        rng=np.random.default_rng(1),
    ).pvalue
    assert 0.01 < pvalue < 0.5
    assert abs(pvalue - other) < 5 * np.sqrt(pvalue * (1 - pvalue) / 2_000)


@cases.each("name", METHODS)
def test_sees_ranks_only(name):
    ours, _ = METHODS[name]
    x, y = drawn(15, 2, seed=5).T
    result = ours(x, y, permutations=500, seed=2)
    assert ours(np.exp(x), 3 * y - 1, permutations=500, seed=2) == result
    turned = ours(-x, y, permutations=500, seed=2)
    assert turned.statistic == pytest.approx(-result.statistic, abs=1e-14)
    assert turned.pvalue == result.pvalue
    assert ours(y, x, permutations=9).statistic == pytest.approx(result.statistic)


def test_p_is_never_zero_and_one_where_nothing_differs():
    x = np.arange(30.0)
    assert stats.spearman(x, x, permutations=999).pvalue == 1 / 1000
    # A single odd one out against a balanced measure: every order is as extreme.
    assert stats.spearman([0, 1, 0, 1], [0, 0, 1, 1]).pvalue == 1


def test_p_is_uniform_under_the_null():
    """5 % of 400 independent pairs are rejected at 5 %, within 4 standard errors."""
    rng = np.random.default_rng(0)
    result = [
        stats.spearman(*rng.normal(size=(2, 10)), permutations=199, seed=i).pvalue
        for i in range(400)
    ]
    assert abs(np.mean(np.asarray(result) <= 0.05) - 0.05) < 4 * np.sqrt(0.0475 / 400)


@cases.each("name", METHODS)
def test_constant_is_not_known(name):
    ours, _ = METHODS[name]
    result = ours([2, 2, 2, 2], [1, 2, 3, 4])
    assert np.isnan([result.statistic, result.pvalue]).all()


@cases.each("name", METHODS)
def test_cell_of_a_matrix_is_the_pair(name):
    ours, _ = METHODS[name]
    frame = pd.DataFrame(drawn(20, 5), columns=list("abcde"))
    matrix = correlation.pairwise_matrix(
        frame, "ab", "cde", method=name, permutations=300, seed=4
    )
    for a, b in itertools.product("ab", "cde"):
        pair = ours(frame[a], frame[b], permutations=300, seed=4)
        assert matrix.statistic.loc[a, b] == pytest.approx(pair.statistic, abs=1e-14)
        assert matrix.pvalue.loc[a, b] == pair.pvalue
    assert (matrix.n, matrix.family, matrix.draws, matrix.exact) == (20, 6, 300, False)
    flat = matrix.pvalue.to_numpy().ravel()
    for method in ("holm", "bh"):
        table = getattr(matrix, method)
        np.testing.assert_array_equal(table.to_numpy().ravel(), adjust(flat, method))


def test_matrix_within_is_symmetric_and_counts_pairs_once():
    frame = pd.DataFrame(drawn(20, 4), columns=list("abcd"))
    frame["same"] = 1.0
    matrix = correlation.pairwise_matrix(frame, permutations=200)
    assert matrix.family == 6
    for name in ("statistic", "pvalue", "holm", "bh"):
        table = getattr(matrix, name)
        np.testing.assert_array_equal(table, table.T)
        assert table["same"].isna().all()
    assert np.isnan(np.diag(matrix.pvalue)).all()
    upper = np.triu_indices(4, 1)
    np.testing.assert_array_equal(
        matrix.holm.to_numpy()[upper], adjust(matrix.pvalue.to_numpy()[upper], "holm")
    )


def test_batches_draw_the_same_orders(monkeypatch):
    x, y = drawn(20, 2, seed=3).T
    whole = stats.spearman(x, y, permutations=1000)
    monkeypatch.setattr(correlation, "_BATCH_CELLS", 700)
    assert stats.spearman(x, y, permutations=1000) == whole


def test_a_family_of_24_takes_less_than_a_second():
    frame = pd.DataFrame(drawn(48, 10), columns=list("abcdefghij"))
    began = time.process_time()
    correlation.pairwise_matrix(frame, "abcdef", "ghij", permutations=10_000)
    assert time.process_time() - began < 1


def test_partial_is_the_textbooks_for_one_covariate():
    x, y, z = drawn(30, 3, seed=1).T
    xy, xz, yz = (
        scipy.stats.spearmanr(a, b).statistic for a, b in [(x, y), (x, z), (y, z)]
    )
    expected = (xy - xz * yz) / np.sqrt((1 - xz**2) * (1 - yz**2))
    result = stats.partial(x, y, covariates=[z], permutations=9)
    assert result.statistic == pytest.approx(expected, abs=1e-12)


def test_partial_with_one_group_is_spearman():
    x, y = drawn(12, 2, seed=1, ties=False).T
    plain = stats.spearman(x, y, permutations=999)
    result = stats.partial(x, y, groups=["all"] * 12, permutations=999)
    assert result.statistic == pytest.approx(plain.statistic, abs=1e-12)
    assert result.pvalue == plain.pvalue


def test_partial_removes_differences_between_groups():
    """Two distant groups without a relation within: rho drops from 0.75 to its residual."""
    rng = np.random.default_rng(2)
    groups = np.repeat([0, 1], 20)
    x, y = rng.normal(size=(2, 40)) + 9 * groups
    assert stats.spearman(x, y, permutations=999).pvalue == 0.001
    result = stats.partial(x, y, groups=groups, permutations=999)
    assert abs(result.statistic) < 0.3
    assert result.pvalue > 0.1


def test_partial_is_the_correlation_of_residuals():
    """Equals numpy's least squares on dummies and a covariate; NaN if these explain a measure."""
    x, y, z = drawn(24, 3, seed=2).T
    groups = np.arange(24) % 3
    ranked = [scipy.stats.rankdata(v) for v in (x, y, z)]
    design = np.column_stack([np.eye(3)[groups], ranked[2]])
    left, right = (v - design @ np.linalg.lstsq(design, v)[0] for v in ranked[:2])
    expected = left @ right / np.sqrt((left @ left) * (right @ right))
    options = dict(groups=groups, covariates=[z], permutations=9)
    assert stats.partial(x, y, **options).statistic == pytest.approx(
        expected, abs=1e-12
    )
    result = stats.partial(groups, y, **options)
    assert np.isnan([result.statistic, result.pvalue]).all()


def test_partial_reorders_within_groups_only():
    """Two groups of three have 36 orders; all are enumerated."""
    x = y = np.asarray([1.0, 2, 3, 11, 12, 13])
    result = stats.partial(x, y, groups=list("aaabbb"))
    assert (result.draws, result.exact, result.n) == (36, True, 6)
    assert result.statistic == pytest.approx(1)
    # The order itself and the one that turns both groups around.
    assert result.pvalue == 2 / 36


def test_partial_fits_the_covariate_to_every_order():
    """Equals all 720 orders of six residuals, added to the fit and fitted again by numpy."""
    x, y, z = drawn(6, 3, seed=4, ties=False).T
    design = np.column_stack([np.ones(6), scipy.stats.rankdata(z)])

    def residuals(values):
        return values - design @ np.linalg.lstsq(design, values)[0]

    ranked = scipy.stats.rankdata(y)
    left, right = residuals(scipy.stats.rankdata(x)), residuals(ranked)
    fit = ranked - right
    every = [
        abs(np.corrcoef(left, residuals(fit + right[list(order)]))[0, 1])
        for order in itertools.permutations(range(6))
    ]
    result = stats.partial(x, y, covariates=[z])
    assert result.exact
    expected = np.mean(np.asarray(every) >= abs(result.statistic) - 1e-9)
    assert result.pvalue == pytest.approx(expected, abs=1e-12)


def test_partial_holds_its_level_with_a_covariate():
    """Both measures follow the covariate: 5 % of 200 are rejected, within 4 standard errors."""
    rng = np.random.default_rng(0)
    is_rejected = []
    for i in range(200):
        z = rng.normal(size=20)
        x, y = rng.normal(size=(2, 20)) + z
        result = stats.partial(x, y, covariates=[z], permutations=199, seed=i)
        is_rejected.append(result.pvalue <= 0.05)
    assert abs(np.mean(is_rejected) - 0.05) < 4 * np.sqrt(0.0475 / 200)


def test_influence_is_the_change_from_leaving_one_out():
    x, y = drawn(12, 2, seed=1).T
    result = stats.influence(x, y)
    for i in range(12):
        without_model = scipy.stats.spearmanr(
            np.delete(x, i), np.delete(y, i)
        ).statistic
        assert result.without[i] == pytest.approx(without_model, abs=1e-12)
    np.testing.assert_allclose(result.influence, result.statistic - result.without)


@cases.each("low", [-5, 5, 9])
def test_influence_flags_by_the_rule(low):
    x, y = np.append(np.arange(20.0), 19.5), np.append(np.arange(20.0), low)
    y[::3] += 2.5
    result = stats.influence(x, y)
    moved = np.abs(result.influence) / np.sqrt((1 - result.without**2) / 18)
    np.testing.assert_array_equal(result.flagged, moved > 2 / np.sqrt(21))
    assert 0 < result.flagged.sum() < 5


def test_influence_flags_models_against_the_trend_and_not_outliers_along_it():
    x = np.arange(20.0)
    y = x + np.random.default_rng(0).normal(size=20)
    x, y = np.append(x, [100, 19.5]), np.append(y, [100, -5])
    flagged = stats.influence(x, y).flagged
    assert flagged[21]
    assert not flagged[20]


def test_interval_is_of_resampled_models():
    x, y = drawn(15, 2, seed=1).T
    rows = np.random.default_rng(7).integers(15, size=(200, 15))
    expected = [scipy.stats.spearmanr(x[r], y[r]).statistic for r in rows]
    for level, ends in [(0.95, [0.025, 0.975]), (0.5, [0.25, 0.75])]:
        interval = correlation.bootstrap_interval(
            x, y, level=level, resamples=200, seed=7
        )
        assert (interval.low, interval.high) == pytest.approx(
            np.quantile(expected, ends)
        )
        assert interval.constant == 0


def test_interval_given_a_covariate_is_of_the_textbooks_partial():
    """Each resample has (xy - xz yz) / sqrt((1 - xz^2) (1 - yz^2)) of scipy's rho."""
    x, y, z = drawn(15, 3, seed=1).T
    rows = np.random.default_rng(7).integers(15, size=(200, 15))
    expected = []
    for r in rows:
        xy, xz, yz = (
            scipy.stats.spearmanr(a[r], b[r]).statistic
            for a, b in [(x, y), (x, z), (y, z)]
        )
        expected.append((xy - xz * yz) / np.sqrt((1 - xz**2) * (1 - yz**2)))
    interval = correlation.bootstrap_interval(
        x, y, covariates=[z], resamples=200, seed=7
    )
    assert (interval.low, interval.high) == pytest.approx(
        np.quantile(expected, [0.025, 0.975])
    )
    plain = stats.partial(x, y, covariates=[z], permutations=9)
    assert interval.statistic == pytest.approx(plain.statistic, abs=1e-12)


def test_interval_given_several_covariates_is_of_residuals():
    """Equals least squares in every resample; a repeated or constant covariate adds nothing."""
    x, y, z, u = drawn(15, 4, seed=2).T
    rows = np.random.default_rng(7).integers(15, size=(50, 15))
    expected = []
    for r in rows:
        ranked = [scipy.stats.rankdata(v[r]) for v in (x, y, z, u)]
        design = np.column_stack([np.ones(15), *ranked[2:]])
        first, second = (v - design @ np.linalg.lstsq(design, v)[0] for v in ranked[:2])
        expected.append(np.corrcoef(first, second)[0, 1])
    for covariates in ([z, u], [u, z, z, np.ones(15)]):
        interval = correlation.bootstrap_interval(
            x, y, covariates=covariates, resamples=50, seed=7
        )
        assert (interval.low, interval.high) == pytest.approx(
            np.quantile(expected, [0.025, 0.975])
        )


def test_interval_leaves_out_resamples_explained_by_the_covariate():
    """x equals z except for two exchanged models; without both, the residual is 0."""
    z = np.arange(6.0)
    x, y = z[[0, 1, 2, 3, 5, 4]], z[[3, 1, 5, 0, 2, 4]]
    interval = correlation.bootstrap_interval(x, y, covariates=[z], resamples=4_000)
    share = 2 * (5 / 6) ** 6 - (4 / 6) ** 6  # Either of them is not drawn.
    assert abs(interval.constant / 4_000 - share) < 4 * np.sqrt(0.25 / 4_000)
    whole = correlation.bootstrap_interval(z, y, covariates=[z], resamples=9)
    assert whole.constant == 9
    assert np.isnan([whole.statistic, whole.low, whole.high]).all()


def test_unexplained_equals_scipys_regression_residual():
    x, z = drawn(30, 2, seed=1).T
    r = scipy.stats.linregress(*map(scipy.stats.rankdata, (z, x))).rvalue
    assert correlation.unexplained(x, [z]) == pytest.approx(1 - r**2)
    assert correlation.unexplained(x, [z, np.exp(x)]) == pytest.approx(0, abs=1e-12)
    assert correlation.unexplained(x, [np.ones(30)]) == pytest.approx(1)


def test_intervals_cover_the_true_correlation():
    """95 % intervals contain rho in at least 88 % of 200 samples of a normal pair."""
    rng = np.random.default_rng(0)
    truth = 6 / np.pi * np.arcsin(0.6 / 2)
    num_covered = 0
    for i in range(200):
        x, y = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=40).T
        interval = correlation.bootstrap_interval(x, y, resamples=200, seed=i)
        num_covered += interval.low <= truth <= interval.high
    assert 0.88 <= num_covered / 200 <= 0.99


def test_interval_counts_resamples_without_rho():
    result = correlation.bootstrap_interval([0, 0, 1], [1, 2, 3], resamples=500)
    # Of the 27 draws of three, 8 hold the first two alone and 1 the last.
    share = 9 / 27
    assert abs(result.constant / 500 - share) < 4 * np.sqrt(share * (1 - share) / 500)


FRAME = pd.DataFrame({"a": [1.0, 2, 3, 5], "b": [2.0, 1, 4, 4], "c": list("wxyz")})
REFUSED = {
    "unequal": (lambda: stats.spearman([1, 2, 3], [1, 2]), "one length"),
    "two": (lambda: stats.spearman([1, 2], [1, 2]), "at least 3"),
    "nan": (lambda: stats.kendall([1, np.nan, 3], [1, 2, 3]), "x: must be a finite"),
    "none": (lambda: stats.spearman([1, 2, 3], [1, 2, 3], permutations=0), "least 1"),
    "words": (lambda: correlation.pairwise_matrix(FRAME), "c: must be a finite"),
    "unknown": (lambda: correlation.pairwise_matrix(FRAME, ["q"]), "'q': a, b, c"),
    "both": (lambda: correlation.pairwise_matrix(FRAME, ["a"], ["a"]), "'a' twice"),
    "one": (lambda: correlation.pairwise_matrix(FRAME, ["a"]), "at least 2"),
    "method": (lambda: correlation.pairwise_matrix(FRAME, "ab", method="r"), "method"),
    "free": (lambda: stats.partial(FRAME.a, FRAME.b), "groups or covariates"),
    "few": (lambda: stats.partial(FRAME.a, FRAME.b, groups="wxy"), "groups: must"),
    "spent": (lambda: stats.partial(FRAME.a, FRAME.b, groups=FRAME.c), "2 are needed"),
    "many": (
        lambda: correlation.bootstrap_interval(
            FRAME.a, FRAME.b, covariates=[[1, 2, 4, 3], [1, 4, 2, 3]]
        ),
        "2 are needed",
    ),
    "short": (lambda: stats.influence([1, 2, 3], [1, 2, 3]), "at least 4"),
    "level": (
        lambda: correlation.bootstrap_interval(FRAME.a, FRAME.b, level=95),
        "level",
    ),
}


@cases.each("name", REFUSED)
def test_invalid_arguments_are_refused(name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.slow
@cases.each("name", METHODS)
def test_no_p_is_below_the_least(name):
    """No order of few models has a smaller p, with or without ties; without ties it is reached."""
    test, _ = METHODS[name]
    for permutations in (9, 99):
        least = correlation.smallest_pvalue(4, permutations)
        for x in ([1, 2, 3, 4], [1, 1, 2, 3], [1, 1, 2, 2], [1, 1, 1, 2]):
            for y in itertools.product((1, 2, 3), repeat=4):
                if len(set(y)) > 1:
                    assert test(x, y, permutations=permutations).pvalue >= least
    assert test([1, 2, 3, 4], [1, 2, 3, 4], permutations=99).pvalue == least
