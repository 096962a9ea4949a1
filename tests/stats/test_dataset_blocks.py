"""Blocks of data sets: closed forms, scipy, every table by hand, and tables without effects."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from scipy.cluster import hierarchy
from scipy.spatial import distance

from jbias import stats
from jbias.stats import permutation
from tests import cases

UP = dict(larger_is_better=True)
METHODS = ("spearman", "pearson", "deviations")


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def correlations(scores, method):
    """Numpy's, of ranks without ties."""
    ranks = scipy.stats.rankdata(scores, axis=1)
    kinds = dict(spearman=ranks, pearson=scores, deviations=ranks - ranks.mean(axis=0))
    return np.corrcoef(kinds[method])


@cases.each("method", METHODS)
def test_the_ratio_is_of_eigenvalues(method):
    for seed in range(5):
        scores = draw(6, 5, seed=seed)
        values = np.linalg.eigvalsh(correlations(scores, method))
        found = stats.participation_ratio(scores, method=method)
        assert found == pytest.approx(values.sum() ** 2 / np.sum(values**2), rel=1e-10)
        assert stats.find_blocks(scores, method=method).participation_ratio == found


def test_one_data_set_again_and_again_amounts_to_one():
    row = draw(7)
    for scores in ([row] * 4, [row, 3 * row + 1, np.exp(row)], [row, -row, row]):
        assert stats.participation_ratio(scores) == pytest.approx(1, abs=1e-10)


def test_data_sets_that_have_nothing_in_common_amount_to_all():
    orthogonal = scipy.linalg.hadamard(8)[1:]
    for method in ("spearman", "pearson"):
        found = stats.participation_ratio(orthogonal, method=method)
        assert found == pytest.approx(7, rel=1e-10)


@cases.each("method", METHODS)
def test_a_data_set_of_equal_scores_is_alike_to_none(method):
    scores = np.vstack([draw(3, 6), np.full(6, 0.1)])
    found = stats.find_blocks(scores, method=method, blocks=2)
    if method != "deviations":  # There it varies as the others' mean does.
        np.testing.assert_allclose(found.correlations[3], [0, 0, 0, 1], atol=1e-11)
    same = stats.find_blocks(np.tile(draw(6), (3, 1)), method="deviations")
    np.testing.assert_array_equal(same.correlations, np.eye(3))
    assert same.count == 3


def test_unrelated_data_sets_amount_to_less():
    """Over all orders the mean of r^2 is 1 / (k-1); and by drawing, of deviations too."""
    for k in (3, 4, 5):
        orders = np.array(list(itertools.permutations(range(k))))
        squares = np.corrcoef(orders)[0] ** 2
        assert squares.mean() == pytest.approx(1 / (k - 1), rel=1e-12)
    for method in ("spearman", "deviations"):
        each = [
            stats.find_blocks(draw(10, 15, seed=seed), method=method)
            for seed in range(60)
        ]
        seen = np.mean([one.participation_ratio for one in each])
        assert each[0].unrelated == pytest.approx(seen, rel=0.04)
    assert stats.find_blocks(draw(10, 15)).unrelated == pytest.approx(140 / 23)


def test_agreement_of_data_sets_is_friedmans_statistic():
    """Why scores correlate where algorithms differ: chi2 = (k-1) (1 + (n-1) mean r)."""
    scores = draw(6, 5) + np.arange(5)
    found = stats.find_blocks(scores).correlations[np.triu_indices(6, 1)].mean()
    chi2 = stats.friedman(scores, **UP).chi2
    assert chi2 == pytest.approx(4 * (1 + 5 * found), rel=1e-10)


def partition(labels):
    return {frozenset(np.flatnonzero(labels == label)) for label in set(labels)}


@cases.each("method", METHODS)
def test_blocks_are_those_of_scipys_tree(method):
    for seed in range(3):
        scores = draw(9, 30, seed=seed)
        apart = distance.squareform(1 - correlations(scores, method), checks=False)
        tree = hierarchy.linkage(apart, "average")
        for cut in (0.3, 0.5, 0.9, 2):
            found = stats.find_blocks(scores, cut=cut, method=method)
            expected = hierarchy.fcluster(tree, cut, "distance")
            assert partition(found.labels) == partition(expected)
        for count in range(1, 10):
            found = stats.find_blocks(scores, blocks=count, method=method)
            expected = hierarchy.fcluster(tree, count, "maxclust")
            assert partition(found.labels) == partition(expected)
            assert found.count == count
            steps = np.diff(found.labels[found.order]) != 0
            assert steps.sum() == count - 1  # They lie together.
            assert found.labels[0] == 0


def test_a_correlation_at_the_cut_joins():
    scores = [[1, 2, 3], [2, 1, 3], [3, 2, 1]]  # r = 0.5, and -0.75 on average.
    found = stats.find_blocks(scores)
    assert found.labels.tolist() == [0, 0, 1]
    np.testing.assert_allclose(found.tree[:, 2], [0.5, 1.75], rtol=1e-12)
    assert stats.find_blocks(scores, cut=0.49).count == 3
    assert stats.find_blocks(scores, cut=1.75).count == 1


@cases.each("labels", [[0, 0, 1, 2, 2], ["a", "b", "b", "b", "a"], [3, 3, 3, 3, 1]])
def test_every_exchange_of_blocks_by_hand(labels):
    scores = np.array([[3.0, 1, 2], [3, 1, 1], [2, 1, 3], [3, 2, 1], [1, 1, 3]])
    ranks = scipy.stats.rankdata(-scores, axis=1)
    blocks = [[i for i, of in enumerate(labels) if of == one] for one in set(labels)]
    ways, hits = list(itertools.permutations(range(3))), []
    for orders in itertools.product(ways, repeat=len(blocks)):
        moved = np.empty_like(ranks)
        for block, order in zip(blocks, orders, strict=True):
            moved[block] = ranks[block][:, order]
        hits.append(np.sum(moved.sum(axis=0) ** 2))
    found = stats.friedman_blocked(scores, blocks=labels, **UP)
    seen = np.sum(ranks.sum(axis=0) ** 2)
    assert found.exact and found.standard_error == 0
    assert found.pvalue == pytest.approx(np.mean(np.array(hits) >= seen - 1e-9))
    assert found.least == pytest.approx(1 / math.factorial(3) ** (len(blocks) - 1))
    means = np.array([scores[block].mean(axis=0) for block in blocks])
    expected = stats.friedman_permutation(means, **UP)
    assert found.means.pvalue == pytest.approx(expected.pvalue)
    assert found.approximate.pvalue == stats.friedman(scores, **UP).pvalue


def test_draws_are_of_whole_blocks():
    """Nine algorithms are too many for all orders: against numpy's draws."""
    scores, labels = draw(6, 9) + 0.2 * np.arange(9), np.repeat([0, 1, 2], [3, 2, 1])
    found = stats.friedman_blocked(scores, blocks=labels, **UP)
    ranks, rng = scipy.stats.rankdata(-scores, axis=1), np.random.default_rng(1)
    sums = np.array([ranks[labels == label].sum(axis=0) for label in range(3)])
    drawn = [np.sum(rng.permuted(sums, axis=1).sum(axis=0) ** 2) for _ in range(4000)]
    expected = np.mean(np.array(drawn) >= np.sum(ranks.sum(axis=0) ** 2) - 1e-9)
    error = math.sqrt(expected * (1 - expected) / 4000) + found.standard_error
    assert not found.exact and found.permutations == 10_000
    assert abs(found.pvalue - expected) < 4 * error
    assert found.least == 1 / 10_001


def test_the_means_of_blocks_are_scipys():
    scores, labels = draw(7, 4), np.array([0, 1, 1, 2, 0, 3, 4])
    means = [scores[labels == label].mean(axis=0) for label in range(5)]
    expected = scipy.stats.friedmanchisquare(*np.transpose(means))
    found = stats.friedman_blocked(scores, blocks=labels, **UP).means.approximate
    assert found.chi2 == pytest.approx(expected.statistic, rel=1e-12)
    assert found.chi2_pvalue == pytest.approx(expected.pvalue, rel=1e-12)


def test_blocks_of_one_are_friedmans_test_and_a_single_block_tells_nothing():
    scores = draw(6, 4) + np.arange(4)
    plain = stats.friedman_permutation(scores, **UP)
    alone = stats.friedman_blocked(scores, blocks=range(6), **UP)
    assert (alone.pvalue, alone.statistic) == (plain.pvalue, plain.statistic)
    assert alone.means.pvalue == plain.pvalue
    together = stats.friedman_blocked(scores, blocks=[0] * 6, **UP)
    assert (together.pvalue, together.least, together.means) == (1, 1, None)


def test_a_data_set_given_twice_adds_nothing():
    scores, labels = draw(5, 4) + 0.5 * np.arange(4), [0, 1, 2, 3, 4]
    one = stats.friedman_blocked(scores, blocks=labels, **UP)
    again = stats.friedman_blocked(
        scores[[0, 1, 2, 3, 4, 4]], blocks=[*labels, 4], **UP
    )
    assert again.means.pvalue == one.means.pvalue
    twice = stats.friedman_blocked(np.tile(scores, (2, 1)), blocks=2 * labels, **UP)
    assert (twice.pvalue, twice.means.pvalue) == (one.pvalue, one.means.pvalue)
    assert twice.approximate.pvalue < one.approximate.pvalue
    found = stats.find_blocks(np.tile(scores, (2, 1)), cut=0, method="pearson")
    assert found.labels.tolist() == 2 * labels


def rejections(effect, *, repeats, method=None, count=100):
    """How often the plain and the blocked test of 9 algorithms reject at 0.05, in per cent.

    10 data sets repeat four, or are independent where repeats is false; the blocks are as
    they were made, or found by `method`.
    """
    made, rejected = np.repeat(range(4), [4, 2, 2, 2]), np.zeros(2)
    for seed in range(count):
        rng = np.random.default_rng(seed)
        scores = rng.normal(size=(10, 9))
        if repeats:
            scores = rng.normal(size=(4, 9))[made] + 0.3 * scores
        scores += np.linspace(0, effect, 9)
        labels = stats.find_blocks(scores, method=method).labels if method else made
        found = stats.friedman_blocked(scores, blocks=labels, permutations=300, **UP)
        pvalues = np.array([found.approximate.pvalue, found.pvalue])
        rejected += 100 * (pvalues <= 0.05) / count
    return rejected


@pytest.mark.slow
def test_repeated_data_sets_reject_too_often_unless_they_are_blocks():
    plain, blocked = rejections(0, repeats=True)
    assert plain > 60
    assert blocked <= scipy.stats.binom.ppf(0.999, 100, 0.05)
    found = rejections(0, repeats=True, method="deviations")[1]
    assert found < plain / 4  # Not 5: the blocks are found in the same scores.


@pytest.mark.slow
def test_blocks_by_scores_hide_what_blocks_by_deviations_show():
    """Independent data sets, without and with true differences."""
    for method in ("spearman", "deviations"):
        assert rejections(0, repeats=False, method=method)[1] <= 5
    plain, hidden = rejections(4, repeats=False, method="spearman")
    shown = rejections(4, repeats=False, method="deviations")[1]
    assert plain > 95 and hidden < 30 and shown > 95


@cases.each(
    "made, told",
    [
        (lambda: stats.find_blocks(draw(4, 3), blocks=5), "blocks: .* 1 to 4.* got 5"),
        (lambda: stats.find_blocks(draw(4, 3), blocks=0), "blocks: .* 1 to 4.* got 0"),
        (lambda: stats.find_blocks(draw(4, 3), cut=-0.1), "cut: .* 0 to 2, got -0.1"),
        (lambda: stats.find_blocks(draw(4, 3), cut=math.nan), "cut: .* got nan"),
        (
            lambda: stats.participation_ratio(draw(4, 3), method="kendall"),
            "method: must be one of spearman, pearson, deviations, got 'kendall'",
        ),
        (
            lambda: stats.friedman_blocked(draw(4, 3), blocks=[0, 1, 1], **UP),
            "blocks: must be a label for each of 4 data sets, got 3",
        ),
        (
            lambda: stats.friedman_blocked(draw(3, 3), blocks=[0, None, 1], **UP),
            "blocks: must be a label for each of 3 data sets, got 2",
        ),
        (
            lambda: stats.friedman_blocked(
                draw(3, 3), blocks=[0, 0, 1], permutations=0, **UP
            ),
            "permutations: must be at least 1, got 0",
        ),
    ],
)
def test_refuses_what_has_no_answer(made, told):
    with pytest.raises(ValueError, match=told):
        made()


def test_the_smallest_pvalue_is_that_of_full_agreement():
    for n, k in ((3, 3), (4, 3), (3, 4)):
        agreed = np.tile(np.arange(float(k)), (n, 1))
        exact = stats.friedman_permutation(agreed, **UP)
        assert permutation.smallest_pvalue(n, k) == pytest.approx(exact.pvalue)
