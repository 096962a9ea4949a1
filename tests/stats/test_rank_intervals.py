"""Intervals of ranks: the authors' package, a second implementation, closed forms, coverage."""

import itertools
import json
import math
import pathlib

import numpy as np
import pytest
import scipy.stats

from jbias.stats import rank_intervals, ratios
from tests import cases
from tests.stats import test_ratios

ORACLE = pathlib.Path(__file__).parents[1] / "oracles/csranks.json"
SHARES = [0.3, 0.32, 0.45, 0.6, 0.61, 0.8]


def decisions(seed=0, shares=SHARES, num_images=300):
    """Return (numerator, denominator) of simulated observers."""
    rng = np.random.default_rng(seed)
    decided = [0.7 * num_images] * len(shares)
    return test_ratios.simulate(
        rng, num_images=num_images, decided=decided, shares=shares
    )


def bounds(result):
    """Return the simultaneous intervals as rows (lower, upper)."""
    return np.stack([result.lower, result.upper], axis=1).tolist()


def test_sets_equal_those_of_the_authors_package():
    """The scores have a given covariance; 100,000 normal draws, as many as csranks had."""
    for case in json.loads(ORACLE.read_text()):
        x, covariance = np.array(case["x"]), np.array(case["covariance"])
        k = len(x)
        rng = np.random.default_rng(0)
        drawn = rng.multivariate_normal(np.zeros(k), covariance, size=100_000)
        variance = np.diag(covariance)
        scale = np.sqrt(variance[:, None] + variance - 2 * covariance)
        np.fill_diagonal(scale, np.inf)
        t = (x[:, None] - x) / scale
        off_diagonal = ~np.eye(k, dtype=bool)
        is_larger = rank_intervals.step_down(
            t, drawn, scale, is_tested=off_diagonal, confidence=0.95
        )
        simultaneous = rank_intervals.rank_bounds(is_larger).T.tolist()
        assert simultaneous == [*case["simultaneous"].values()]
        for j in range(k):
            involves_j = (np.arange(k) == j) ^ (np.arange(k) == j)[:, None]
            is_larger = rank_intervals.step_down(
                t, drawn, scale, is_tested=involves_j, confidence=0.95
            )
            lower, upper = rank_intervals.rank_bounds(is_larger)[j]
            assert lower == case["marginal"]["lower"][j]
            assert upper == case["marginal"]["upper"][j]


def sets_by_formulas(numerator, denominator, pairs_of, confidence, weights):
    """Return rank intervals by the paper's formulas, over ordered pairs, one by one.

    pairs_of: the ordered pairs of the family.
    """
    k = len(numerator)
    level = 1 - 0.8 * (1 - confidence)
    numerator = np.hstack([numerator, np.tile([1, 1, 0, 0], (k, 1))])
    denominator = np.hstack([denominator, np.ones((k, 4))])
    score = numerator.sum(axis=1) / denominator.sum(axis=1)
    # Derivative of a score by the weight of an image.
    slope = (numerator - score[:, None] * denominator) / denominator.sum(axis=1)[
        :, None
    ]
    redrawn = [(weights @ x) / (weights @ y) for x, y in zip(numerator, denominator)]
    t, drawn = {}, {}
    for a, b in pairs_of:
        width = math.sqrt(sum((slope[a] - slope[b]) ** 2))
        degrees = sum(slope[a] != slope[b]) - 1
        tail = scipy.stats.t.sf((score[a] - score[b]) / width, degrees)
        t[a, b] = scipy.stats.norm.isf(tail)
        drawn[a, b] = (redrawn[a] - score[a] - redrawn[b] + score[b]) / width
    left, significant = set(pairs_of), set()
    while left:
        largest = np.max([drawn[pair] for pair in left], axis=0)
        critical = sorted(largest)[math.ceil(level * (len(largest) - 1))]
        new = {pair for pair in left if t[pair] > critical}
        if not new:
            break
        significant |= new
        left -= new
    return [
        [
            1 + sum((i, j) in significant for i in range(k)),
            k - sum((j, i) in significant for i in range(k)),
        ]
        for j in range(k)
    ]


@cases.each(("seed", "confidence"), [(0, 0.95), (1, 0.8), (2, 0.99)])
def test_intervals_equal_a_second_implementation_of_the_formulas(seed, confidence):
    numerator, denominator = decisions(seed)
    result = rank_intervals.rank_intervals(
        numerator, denominator, confidence=confidence, draws=500, seed=seed
    )
    weights = np.vstack([*ratios.weight_chunks(304, draws=500, seed=seed)])
    ordered = list(itertools.permutations(range(6), 2))
    simultaneous = sets_by_formulas(
        numerator, denominator, ordered, confidence, weights
    )
    assert bounds(result) == simultaneous
    for j in range(6):
        pairs_of = [pair for pair in ordered if j in pair]
        marginal = sets_by_formulas(
            numerator, denominator, pairs_of, confidence, weights
        )[j]
        assert [result.marginal_lower[j], result.marginal_upper[j]] == marginal


def test_two_observers_have_ranks_one_and_two_if_and_only_if_their_pair_is_significant():
    """For one pair, the maximum over both directions is |z|, nearly normal: p within 0.01."""
    outcomes = set()
    for seed in range(60):
        numerator, denominator = decisions(seed, shares=[0.5, 0.6])
        result = rank_intervals.rank_intervals(numerator, denominator, draws=5000)
        pair = ratios.compare_ratios(numerator, denominator)
        if abs(pair.pvalue[0] - 0.05) < 0.01:
            continue
        expected = {-1: [[2, 2], [1, 1]], 0: [[1, 2], [1, 2]], 1: [[1, 1], [2, 2]]}
        assert bounds(result) == expected[pair.verdict[0]]
        outcomes.add(int(pair.verdict[0]))
    assert outcomes >= {-1, 0}


def test_ranks_are_one_plus_the_number_of_larger_scores_and_inside_their_intervals():
    numerator, denominator = decisions()
    numerator = np.vstack([numerator, numerator[2:3]])  # Equal to another.
    denominator = np.vstack([denominator, denominator[2:3]])
    result = rank_intervals.rank_intervals(numerator, denominator, draws=500)
    value = numerator.sum(axis=1) / denominator.sum(axis=1)
    assert (result.value == value).all()
    assert (result.rank == scipy.stats.rankdata(-value, method="min")).all()
    assert result.rank[2] == result.rank[6]
    for lower, upper in (
        (result.lower, result.upper),
        (result.marginal_lower, result.marginal_upper),
    ):
        assert (lower <= result.rank).all() and (result.rank <= upper).all()
        assert lower[2] == lower[6] and upper[2] == upper[6]
    # Simultaneous intervals contain the marginal ones.
    assert (result.lower <= result.marginal_lower).all()
    assert (result.marginal_upper <= result.upper).all()
    assert not (result.is_larger & result.is_larger.T).any()


def test_observers_with_equal_decisions_may_have_every_rank():
    numerator, denominator = decisions(shares=[0.4])
    result = rank_intervals.rank_intervals(
        numerator.repeat(4, axis=0), denominator.repeat(4, axis=0), draws=100
    )
    assert bounds(result) == [[1, 4]] * 4 and result.rank.tolist() == [1] * 4


def test_the_order_of_observers_does_not_matter_and_smaller_scores_reverse_the_ranks():
    """The score 1 - v has the numerator denominator - numerator; extra images are symmetric."""
    numerator, denominator = decisions(4)
    result = rank_intervals.rank_intervals(numerator, denominator, draws=1000)
    order = np.array([3, 0, 5, 1, 4, 2])
    permuted = rank_intervals.rank_intervals(
        numerator[order], denominator[order], draws=1000
    )
    assert bounds(permuted) == [bounds(result)[j] for j in order]
    reverse = rank_intervals.rank_intervals(
        denominator - numerator, denominator, draws=1000
    )
    assert (reverse.lower == 7 - result.upper).all()
    assert (reverse.upper == 7 - result.lower).all()
    assert (reverse.marginal_lower == 7 - result.marginal_upper).all()


def test_three_decisions_for_the_shape_do_not_prove_the_first_rank():
    numerator, denominator = decisions(shares=[0.5, 0.5, 0.5, 0.9])
    numerator[0], denominator[0] = 0, 0
    numerator[0, :3], denominator[0, :3] = 1, 1
    result = rank_intervals.rank_intervals(numerator, denominator, draws=1000)
    assert result.value[0] == 1 and result.rank[0] == 1
    assert bounds(result)[0] == [1, 4]
    assert result.rank[3] == 2 and result.lower[3] == 1


@cases.each(
    ("shares", "decided"),
    [
        pytest.param([0.5] * 6, 200, marks=pytest.mark.slow),
        ([0.4, 0.4, 0.4, 0.4, 0.6, 0.6], 25),
    ],
)
def test_simultaneous_intervals_cover_all_true_ranks(shares, decided):
    """300 studies: at least 95 % less 3 standard errors (1.3 points each)."""
    rng = np.random.default_rng(0)
    true = scipy.stats.rankdata(-np.array(shares), method="min")
    is_covered, is_covered_naively = [], []
    for seed in range(300):
        numerator, denominator = test_ratios.simulate(
            rng, num_images=300, decided=[decided] * len(shares), shares=shares
        )
        options = {"draws": 400, "seed": seed}
        result = rank_intervals.rank_intervals(numerator, denominator, **options)
        is_covered.append(((result.lower <= true) & (true <= result.upper)).all())
        low, high = rank_intervals.naive_rank_percentiles(
            numerator, denominator, **options
        ).T
        is_covered_naively.append(((low <= true) & (true <= high)).all())
    assert np.mean(is_covered) >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 300)
    assert np.mean(is_covered_naively) < np.mean(is_covered) - 0.2


def test_naive_percentiles_are_those_of_ranks_in_repeated_images():
    numerator, denominator = decisions(5)
    denominator[0, 1:], numerator[0, 1:] = 0, 0  # Not drawn in a third of the draws.
    weights = np.vstack([*ratios.weight_chunks(300, draws=200, seed=3)]).astype(int)
    ranks = []
    for row in weights:
        images = np.repeat(np.arange(300), row)
        total = denominator[:, images].sum(axis=1)
        value = numerator[:, images].sum(axis=1) / np.where(total, total, np.nan)
        larger = [[other > v for other in value] for v in value]
        ranks.append(np.where(total, 1 + np.sum(larger, axis=1), np.nan))
    low, high = rank_intervals.naive_rank_percentiles(
        numerator, denominator, draws=200, seed=3, confidence=0.8
    ).T
    for j in range(6):
        column = np.sort([rank[j] for rank in ranks if not np.isnan(rank[j])])
        assert low[j] == column[math.floor(0.1 * (len(column) - 1))]
        assert high[j] == column[math.ceil(0.9 * (len(column) - 1))]


@cases.each(
    "function",
    [rank_intervals.rank_intervals, rank_intervals.naive_rank_percentiles],
)
def test_wrong_arguments_are_refused(function):
    numerator, denominator = decisions()
    for options, words in (
        ({"draws": 99}, "draws: must be at least 100"),
        ({"confidence": 1}, "confidence: must lie between 0 and 1"),
    ):
        with pytest.raises(ValueError, match=words):
            function(numerator, denominator, **options)
    numerator[3], denominator[3] = 0, 0
    with pytest.raises(ValueError, match=r"observer 3; leave it out of the ranking"):
        function(numerator, denominator)
