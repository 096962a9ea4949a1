"""Correlations of measures that some models lack."""

import numpy as np
import pandas as pd
import pytest

from jbias.stats import correlation
from jbias.stats.multiple_testing import adjust

OPTIONS = dict(permutations=199, seed=3)


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(rng.normal(size=(12, 5)).round(1), columns=list("abcde"))


@pytest.mark.parametrize("method", ["spearman", "kendall"])
def test_a_pair_is_tested_over_the_models_with_both(frame, method):
    frame.loc[[0, 3], "a"] = np.nan
    frame.loc[[3, 7], "d"] = np.nan
    matrix = correlation.pairwise_matrix(
        frame, ("a", "b"), ("d", "e"), method=method, **OPTIONS
    )
    test = getattr(correlation, method)
    ps = []
    for x in ("a", "b"):
        for y in ("d", "e"):
            complete = frame[[x, y]].dropna()
            expected = test(complete[x], complete[y], **OPTIONS)
            assert matrix.statistic.loc[x, y] == expected.statistic
            assert matrix.pvalue.loc[x, y] == expected.pvalue
            ps.append(expected.pvalue)
    assert (matrix.n, matrix.family) == (12, 4)
    np.testing.assert_array_equal(matrix.holm.to_numpy().ravel(), adjust(ps, "holm"))


def test_pairs_with_too_few_models_are_not_tested(frame):
    frame.loc[2:, "a"] = np.nan  # Two models have it.
    frame.loc[0, "b"] = np.nan
    matrix = correlation.pairwise_matrix(frame, ("a", "b", "c"), **OPTIONS)
    assert matrix.statistic.loc["a"].drop("a").isna().all()
    assert matrix.family == 1
    assert matrix.statistic.loc["b", "c"] == matrix.statistic.loc["c", "b"]
    assert matrix.pvalue.loc["b", "c"] == matrix.holm.loc["c", "b"]
    assert np.isnan(matrix.pvalue.to_numpy().diagonal()).all()
    frame["b"] = np.nan
    empty = correlation.pairwise_matrix(frame, ("a", "b"), ("d",), **OPTIONS)
    assert empty.family == 0
    assert empty.holm.isna().all(axis=None)


def test_given_measures_a_pair_is_a_partial_correlation(frame):
    """The models are those with x, y and all covariates; p is adjusted over the family."""
    frame.loc[0, "a"] = frame.loc[5, "e"] = np.nan
    frame.loc[3:, "c"] = np.nan  # Three models have it.
    matrix = correlation.pairwise_matrix(
        frame, ("a", "c"), ("d",), given=("b", "e"), **OPTIONS
    )
    complete = frame[["a", "d", "b", "e"]].dropna()
    assert len(complete) == 10
    expected = correlation.partial(
        complete["a"],
        complete["d"],
        covariates=[complete["b"], complete["e"]],
        **OPTIONS,
    )
    assert matrix.statistic.loc["a", "d"] == expected.statistic
    assert matrix.pvalue.loc["a", "d"] == matrix.holm.loc["a", "d"] == expected.pvalue
    assert matrix.statistic.loc["c"].isna().all()
    assert matrix.family == 1


def test_covariates_are_not_paired(frame):
    matrix = correlation.pairwise_matrix(frame, given=("e",), **OPTIONS)
    assert list(matrix.statistic) == list("abcd")
    with pytest.raises(ValueError, match="'e' twice"):
        correlation.pairwise_matrix(frame, ("a",), ("e",), given=("e",))
    with pytest.raises(ValueError, match="must be columns, got 'q'"):
        correlation.pairwise_matrix(frame, ("a",), ("e",), given=("q",))
    with pytest.raises(ValueError, match="method: must be spearman .* got kendall"):
        correlation.pairwise_matrix(frame, given=("e",), method="kendall")
