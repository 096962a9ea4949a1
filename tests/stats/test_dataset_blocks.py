"""Blocks of data sets: closed forms, scipy, explicit enumeration, and null distributions."""

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
    """Return numpy's correlations of ranks without ties."""
    ranks = scipy.stats.rankdata(scores, axis=1)
    kinds = dict(spearman=ranks, pearson=scores, deviations=ranks - ranks.mean(axis=0))
    return np.corrcoef(kinds[method])


@cases.each("method", METHODS)
def test_the_ratio_is_of_eigenvalues(method):
    for seed in range(5):
        scores = draw(6, 5, seed=seed)
        values = np.linalg.eigvalsh(correlations(scores, method))
        result = stats.participation_ratio(scores, method=method)
        assert result == pytest.approx(values.sum() ** 2 / np.sum(values**2), rel=1e-10)
        assert stats.find_blocks(scores, method=method).participation_ratio == result


def test_copies_of_one_data_set_amount_to_one():
    row = draw(7)
    for scores in ([row] * 4, [row, 3 * row + 1, np.exp(row)], [row, -row, row]):
        assert stats.participation_ratio(scores) == pytest.approx(1, abs=1e-10)


def test_uncorrelated_data_sets_amount_to_their_number():
    orthogonal = scipy.linalg.hadamard(8)[1:]
    for method in ("spearman", "pearson"):
        result = stats.participation_ratio(orthogonal, method=method)
        assert result == pytest.approx(7, rel=1e-10)


@cases.each("method", METHODS)
def test_a_data_set_of_equal_scores_correlates_with_no_other(method):
    scores = np.vstack([draw(3, 6), np.full(6, 0.1)])
    blocks = stats.find_blocks(scores, method=method, blocks=2)
    if method != "deviations":  # Deviations from the mean do vary.
        np.testing.assert_allclose(blocks.correlations[3], [0, 0, 0, 1], atol=1e-11)
    equal = stats.find_blocks(np.tile(draw(6), (3, 1)), method="deviations")
    np.testing.assert_array_equal(equal.correlations, np.eye(3))
    assert equal.count == 3


def test_random_data_sets_amount_to_less_than_their_number():
    """The mean of r^2 over all orders is 1 / (k-1); draws agree, also for deviations."""
    for k in (3, 4, 5):
        orders = np.array(list(itertools.permutations(range(k))))
        squares = np.corrcoef(orders)[0] ** 2
        assert squares.mean() == pytest.approx(1 / (k - 1), rel=1e-12)
    for method in ("spearman", "deviations"):
        draws = [
            stats.find_blocks(draw(10, 15, seed=seed), method=method)
            for seed in range(60)
        ]
        mean_ratio = np.mean([blocks.participation_ratio for blocks in draws])
        assert draws[0].unrelated == pytest.approx(mean_ratio, rel=0.04)
    assert stats.find_blocks(draw(10, 15)).unrelated == pytest.approx(140 / 23)


def test_agreement_of_data_sets_is_friedmans_statistic():
    """Scores correlate where algorithms differ: chi2 = (k-1) (1 + (n-1) mean r)."""
    scores = draw(6, 5) + np.arange(5)
    result = stats.find_blocks(scores).correlations[np.triu_indices(6, 1)].mean()
    chi2 = stats.friedman(scores, **UP).chi2
    assert chi2 == pytest.approx(4 * (1 + 5 * result), rel=1e-10)


def partition(labels):
    return {frozenset(np.flatnonzero(labels == label)) for label in set(labels)}


@cases.each("method", METHODS)
def test_blocks_equal_those_of_scipys_tree(method):
    for seed in range(3):
        scores = draw(9, 30, seed=seed)
        distances = distance.squareform(1 - correlations(scores, method), checks=False)
        tree = hierarchy.linkage(distances, "average")
        for cut in (0.3, 0.5, 0.9, 2):
            blocks = stats.find_blocks(scores, cut=cut, method=method)
            expected = hierarchy.fcluster(tree, cut, "distance")
            assert partition(blocks.labels) == partition(expected)
        for count in range(1, 10):
            blocks = stats.find_blocks(scores, blocks=count, method=method)
            expected = hierarchy.fcluster(tree, count, "maxclust")
            assert partition(blocks.labels) == partition(expected)
            assert blocks.count == count
            steps = np.diff(blocks.labels[blocks.order]) != 0
            assert steps.sum() == count - 1  # Members of a block are neighbours.
            assert blocks.labels[0] == 0


def test_a_correlation_at_the_cut_joins():
    scores = [[1, 2, 3], [2, 1, 3], [3, 2, 1]]  # r = 0.5, and -0.75 on average.
    blocks = stats.find_blocks(scores)
    assert blocks.labels.tolist() == [0, 0, 1]
    np.testing.assert_allclose(blocks.tree[:, 2], [0.5, 1.75], rtol=1e-12)
    assert stats.find_blocks(scores, cut=0.49).count == 3
    assert stats.find_blocks(scores, cut=1.75).count == 1


@cases.each("labels", [[0, 0, 1, 2, 2], ["a", "b", "b", "b", "a"], [3, 3, 3, 3, 1]])
def test_p_is_the_share_of_all_exchanges_of_blocks(labels):
    scores = np.array([[3.0, 1, 2], [3, 1, 1], [2, 1, 3], [3, 2, 1], [1, 1, 3]])
    ranks = scipy.stats.rankdata(-scores, axis=1)
    blocks = [
        [i for i, label in enumerate(labels) if label == block_label]
        for block_label in set(labels)
    ]
    orders_of_three, statistics = list(itertools.permutations(range(3))), []
    for orders in itertools.product(orders_of_three, repeat=len(blocks)):
        exchanged = np.empty_like(ranks)
        for block, order in zip(blocks, orders, strict=True):
            exchanged[block] = ranks[block][:, order]
        statistics.append(np.sum(exchanged.sum(axis=0) ** 2))
    blocked = stats.friedman_blocked(scores, blocks=labels, **UP)
    observed = np.sum(ranks.sum(axis=0) ** 2)
    assert blocked.exact and blocked.standard_error == 0
    assert blocked.pvalue == pytest.approx(
        np.mean(np.array(statistics) >= observed - 1e-9)
    )
    assert blocked.least == pytest.approx(1 / math.factorial(3) ** (len(blocks) - 1))
    means = np.array([scores[block].mean(axis=0) for block in blocks])
    expected = stats.friedman_permutation(means, **UP)
    assert blocked.means.pvalue == pytest.approx(expected.pvalue)
    assert blocked.approximate.pvalue == stats.friedman(scores, **UP).pvalue


def test_drawn_exchanges_are_of_whole_blocks():
    """Nine algorithms have too many orders to enumerate; compared with numpy's draws."""
    scores, labels = draw(6, 9) + 0.2 * np.arange(9), np.repeat([0, 1, 2], [3, 2, 1])
    blocked = stats.friedman_blocked(scores, blocks=labels, **UP)
    ranks, rng = scipy.stats.rankdata(-scores, axis=1), np.random.default_rng(1)
    sums = np.array([ranks[labels == label].sum(axis=0) for label in range(3)])
    statistics = [
        np.sum(rng.permuted(sums, axis=1).sum(axis=0) ** 2) for _ in range(4000)
    ]
    expected = np.mean(np.array(statistics) >= np.sum(ranks.sum(axis=0) ** 2) - 1e-9)
    error = math.sqrt(expected * (1 - expected) / 4000) + blocked.standard_error
    assert not blocked.exact and blocked.permutations == 10_000
    assert abs(blocked.pvalue - expected) < 4 * error
    assert blocked.least == 1 / 10_001


def test_the_means_of_blocks_are_scipys():
    scores, labels = draw(7, 4), np.array([0, 1, 1, 2, 0, 3, 4])
    means = [scores[labels == label].mean(axis=0) for label in range(5)]
    expected = scipy.stats.friedmanchisquare(*np.transpose(means))
    result = stats.friedman_blocked(scores, blocks=labels, **UP).means.approximate
    assert result.chi2 == pytest.approx(expected.statistic, rel=1e-12)
    assert result.chi2_pvalue == pytest.approx(expected.pvalue, rel=1e-12)


def test_single_blocks_give_friedmans_test_and_one_block_gives_p_of_one():
    scores = draw(6, 4) + np.arange(4)
    plain = stats.friedman_permutation(scores, **UP)
    single_blocks = stats.friedman_blocked(scores, blocks=range(6), **UP)
    assert (single_blocks.pvalue, single_blocks.statistic) == (
        plain.pvalue,
        plain.statistic,
    )
    assert single_blocks.means.pvalue == plain.pvalue
    one_block = stats.friedman_blocked(scores, blocks=[0] * 6, **UP)
    assert (one_block.pvalue, one_block.least, one_block.means) == (1, 1, None)


def test_a_data_set_given_twice_adds_nothing():
    scores, labels = draw(5, 4) + 0.5 * np.arange(4), [0, 1, 2, 3, 4]
    once = stats.friedman_blocked(scores, blocks=labels, **UP)
    one_repeated = stats.friedman_blocked(
        scores[[0, 1, 2, 3, 4, 4]], blocks=[*labels, 4], **UP
    )
    assert one_repeated.means.pvalue == once.means.pvalue
    all_repeated = stats.friedman_blocked(
        np.tile(scores, (2, 1)), blocks=2 * labels, **UP
    )
    assert (all_repeated.pvalue, all_repeated.means.pvalue) == (
        once.pvalue,
        once.means.pvalue,
    )
    assert all_repeated.approximate.pvalue < once.approximate.pvalue
    blocks = stats.find_blocks(np.tile(scores, (2, 1)), cut=0, method="pearson")
    assert blocks.labels.tolist() == 2 * labels


def rejections(effect, *, repeats, method=None, count=100):
    """Return how often the plain and the blocked test reject at 0.05, in per cent.

    9 algorithms on 10 data sets, which repeat four data sets, or are independent without
    `repeats`. The blocks are the true ones, or those found by `method`.
    """
    true_blocks, rejected = np.repeat(range(4), [4, 2, 2, 2]), np.zeros(2)
    for seed in range(count):
        rng = np.random.default_rng(seed)
        scores = rng.normal(size=(10, 9))
        if repeats:
            scores = rng.normal(size=(4, 9))[true_blocks] + 0.3 * scores
        scores += np.linspace(0, effect, 9)
        labels = (
            stats.find_blocks(scores, method=method).labels if method else true_blocks
        )
        blocked = stats.friedman_blocked(scores, blocks=labels, permutations=300, **UP)
        pvalues = np.array([blocked.approximate.pvalue, blocked.pvalue])
        rejected += 100 * (pvalues <= 0.05) / count
    return rejected


@pytest.mark.slow
def test_repeated_data_sets_reject_too_often_unless_they_are_blocks():
    plain, blocked = rejections(0, repeats=True)
    assert plain > 60
    assert blocked <= scipy.stats.binom.ppf(0.999, 100, 0.05)
    result = rejections(0, repeats=True, method="deviations")[1]
    assert result < plain / 4  # Above 5 %, as the same scores determine the blocks.


@pytest.mark.slow
def test_blocks_from_deviations_keep_the_power_that_blocks_from_scores_lose():
    """The data sets are independent, without and with true differences of algorithms."""
    for method in ("spearman", "deviations"):
        assert rejections(0, repeats=False, method=method)[1] <= 5
    plain, by_scores = rejections(4, repeats=False, method="spearman")
    by_deviations = rejections(4, repeats=False, method="deviations")[1]
    assert plain > 95 and by_scores < 30 and by_deviations > 95


@cases.each(
    ("call", "message"),
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
def test_invalid_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_smallest_pvalue_has_full_agreement():
    for n, k in ((3, 3), (4, 3), (3, 4)):
        agreed = np.tile(np.arange(float(k)), (n, 1))
        exact = stats.friedman_permutation(agreed, **UP)
        assert permutation.smallest_pvalue(n, k) == pytest.approx(exact.pvalue)
