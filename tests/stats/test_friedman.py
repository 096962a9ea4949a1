"""Friedman's test against scipy, the published study, and its invariants."""

import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from jbias import stats
from jbias.stats import score_table
from tests import cases


@pytest.fixture(params=[(2, 3), (7, 8), (10, 4), (30, 12)], ids=str)
def scores(request):
    rng = np.random.default_rng(sum(request.param))
    return rng.normal(size=request.param) + np.linspace(0, 0.5, request.param[1])


def test_chi2_equals_scipy(scores):
    result = stats.friedman(scores, larger_is_better=True)
    expected = scipy.stats.friedmanchisquare(*scores.T)
    assert result.chi2 == pytest.approx(expected.statistic, rel=1e-12)
    assert result.chi2_pvalue == pytest.approx(expected.pvalue, rel=1e-9)


@cases.each("shape", [(4, 3), (7, 8), (30, 12)])
def test_chi2_with_ties_equals_scipy(shape):
    tied = np.random.default_rng(0).integers(0, 5, size=shape)
    assert any(len(set(row)) < len(row) for row in tied)
    expected = scipy.stats.friedmanchisquare(*tied.T)
    result = stats.friedman(tied, larger_is_better=True)
    assert result.chi2 == pytest.approx(expected.statistic, rel=1e-12)
    plain = stats.friedman(tied, larger_is_better=True, ties=False)
    assert plain.chi2 < result.chi2


def test_statistics_agree_among_themselves(scores):
    n, k = scores.shape
    result = stats.friedman(scores, larger_is_better=True)
    f = (n - 1) * result.chi2 / (n * (k - 1) - result.chi2)
    assert result.statistic == pytest.approx(f, rel=1e-12)
    assert result.kendall_w == pytest.approx(result.chi2 / (n * (k - 1)), rel=1e-12)
    assert result.df == (k - 1, (k - 1) * (n - 1))
    expected = scipy.stats.f.sf(f, k - 1, (k - 1) * (n - 1))
    assert result.pvalue == pytest.approx(expected, rel=1e-9)
    assert result.ranks.sum() == pytest.approx(k * (k + 1) / 2)


@cases.each("monotone", [np.exp, np.cbrt, lambda x: 3 * x - 1])
def test_sees_ranks_only(scores, monotone):
    expected = stats.friedman(scores, larger_is_better=True)
    scores = scores.copy()
    scores[0] = monotone(scores[0])  # Each data set may have a scale of its own.
    assert stats.friedman(scores, larger_is_better=True).pvalue == expected.pvalue
    whole = stats.friedman(monotone(scores), larger_is_better=True)
    assert whole.pvalue == expected.pvalue


def test_direction_turns_ranks_only(scores):
    options = stats.friedman(scores, larger_is_better=True)
    down = stats.friedman(scores, larger_is_better=False)
    np.testing.assert_allclose(options.ranks + down.ranks, scores.shape[1] + 1)
    assert (options.pvalue, options.chi2) == (down.pvalue, down.chi2)
    assert stats.friedman(-scores, larger_is_better=False).ranks.tolist() == (
        options.ranks.tolist()
    )


def test_order_of_data_sets_and_algorithms_does_not_matter(scores):
    rng = np.random.default_rng(0)
    rows, columns = map(rng.permutation, scores.shape)
    mixed = stats.friedman(scores[rows][:, columns], larger_is_better=True)
    plain = stats.friedman(scores, larger_is_better=True)
    assert mixed.pvalue == plain.pvalue
    assert mixed.ranks.tolist() == plain.ranks[columns].tolist()


def test_perfect_agreement():
    result = stats.friedman([[3, 2, 1]] * 4, larger_is_better=True)
    assert (result.statistic, result.pvalue) == (math.inf, 0)
    assert (result.kendall_w, result.chi2) == (1, 8)
    assert result.ranks.tolist() == [1, 2, 3]
    tied = stats.friedman([[3, 2, 2]] * 4, larger_is_better=True)
    assert (tied.statistic, tied.kendall_w) == (math.inf, 1)


def test_no_difference_at_all():
    for ties in (True, False):
        result = stats.friedman(np.ones((4, 3)), larger_is_better=True, ties=ties)
        assert (result.statistic, result.pvalue, result.chi2_pvalue) == (0, 1, 1)
        assert result.ranks.tolist() == [2, 2, 2]
    balanced = stats.friedman([[1, 2], [2, 1]], larger_is_better=True)
    assert (balanced.chi2, balanced.pvalue) == (0, 1)


def test_uncorrected_is_smaller_where_there_are_ties():
    scores = [[1, 2, 2, 4], [1, 1, 3, 4], [2, 1, 3, 3], [1, 2, 4, 3]]
    corrected = stats.friedman(scores, larger_is_better=True)
    plain = stats.friedman(scores, larger_is_better=True, ties=False)
    mean_ranks = plain.ranks
    chi2 = 12 * 4 / 20 * (np.sum(mean_ranks**2) - 4 * 25 / 4)
    assert plain.chi2 == pytest.approx(chi2)
    assert corrected.chi2 == pytest.approx(chi2 / (1 - 3 * 6 / (4 * 4 * 15)))


def test_size_under_the_null():
    """F rejects about 5 % of random rankings, within four binomial deviations."""
    rng = np.random.default_rng(1)
    draws = rng.random((1000, 12, 5))
    results = (stats.friedman(draw, larger_is_better=True) for draw in draws)
    rate = np.mean([result.pvalue < 0.05 for result in results])
    assert abs(rate - 0.05) < 4 * math.sqrt(0.05 * 0.95 / 1000)


def test_conover_degrees():
    scores = np.random.default_rng(0).random((7, 8))
    result = stats.friedman(scores, larger_is_better=True, df="conover")
    assert result.df == (7 - 2 / 7, 6 * (7 - 2 / 7))
    with pytest.raises(ValueError, match="n=2 and k=2"):
        stats.friedman(scores[:2, :2], larger_is_better=True, df="conover")
    with pytest.raises(ValueError, match="'textbook' or 'conover'"):
        stats.friedman(scores, larger_is_better=True, df="exact")


@cases.each(
    ("scores", "message"),
    [
        ([[1, 2, 3]], "got 1 and 3"),
        ([[1], [2]], "got 2 and 1"),
        ([1, 2, 3], r"got shape \(3,\)"),
        ([[1, 2], [math.nan, 1]], "got none for 0 on 1;"),
        ([[1, math.inf], [math.nan, 1]], "got inf for 1 on 0;"),
    ],
)
def test_scores_that_cannot_be_ranked_are_refused(scores, message):
    for test in (stats.friedman, stats.nemenyi, score_table.rank):
        with pytest.raises(ValueError, match=f"^scores: .*{message}"):
            test(scores, larger_is_better=True)


def test_the_direction_is_required():
    with pytest.raises(TypeError, match="larger_is_better"):
        stats.friedman([[1, 2], [3, 4]])


def test_names_of_a_frames_columns_stay_with_its_results():
    names = ["SagNet", "ERM", "pAdaIN"]
    frame = pd.DataFrame([[3, 1, 2], [3, 2, 1], [9, 1, 5], [4, 2, 3]], columns=names)
    friedman = stats.friedman(frame, larger_is_better=True)
    best_first = friedman.to_frame()["rank"]
    assert best_first.to_dict() == {"SagNet": 1.0, "pAdaIN": 2.25, "ERM": 2.75}
    assert [*best_first.index] == ["SagNet", "pAdaIN", "ERM"]
    assert repr(friedman).startswith("Friedman F(2, 6) = ") and "ERM 2.75" in repr(
        friedman
    )
    pairs = stats.nemenyi(frame, larger_is_better=True)
    table = pairs.to_frame()
    assert [*table.index] == [*table.columns] == names
    assert table.loc["SagNet", "ERM"] == pairs.pvalues[0, 1] == table.min().min()
    assert repr(pairs).endswith(f"p {pairs.pvalues[0, 1]:.3g}, of SagNet and ERM")
    assert "\n" not in repr(friedman) + repr(pairs)
