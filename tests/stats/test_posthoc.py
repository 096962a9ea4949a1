"""Pairwise tests by mean ranks against scikit-posthocs, Demsar's tables, and invariants."""

import json
import math
import pathlib

import numpy as np
import pytest
import scipy.stats

from jbias import stats
from jbias.stats import posthoc
from tests import cases

ORACLES = pathlib.Path(__file__).parents[1] / "oracles"
CASES = json.loads((ORACLES / "posthocs_nemenyi.json").read_text())["cases"]

# Demsar 2006, table 5(a): critical values for k = 2 to 10.
DEMSAR = {
    0.05: [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164],
    0.10: [1.645, 2.052, 2.291, 2.459, 2.589, 2.693, 2.780, 2.855, 2.920],
}


@cases.each("case", CASES)
def test_pvalues_equal_scikit_posthocs(case):
    for larger_is_better in (True, False):
        result = stats.nemenyi(case["scores"], larger_is_better=larger_is_better)
        # Both integrate numerically; tails of 1e-12 are all error.
        np.testing.assert_allclose(
            result.pvalues, case["pvalues"], rtol=1e-7, atol=1e-11
        )


@cases.each("alpha", DEMSAR)
def test_critical_difference_equals_demsars_table(alpha):
    rng = np.random.default_rng(0)
    for k, q in enumerate(DEMSAR[alpha], start=2):
        result = stats.nemenyi(rng.random((9, k)), larger_is_better=True)
        expected = q * math.sqrt(k * (k + 1) / (6 * 9))
        # The table rounds at three digits, and some of its last digits are off by one.
        assert result.critical_difference(alpha) == pytest.approx(expected, rel=5e-4)


def test_invariants():
    scores = np.random.default_rng(3).random((6, 7))
    result = stats.nemenyi(scores, larger_is_better=True)
    np.testing.assert_array_equal(result.pvalues, result.pvalues.T)
    np.testing.assert_array_equal(np.diag(result.pvalues), 1)
    assert ((result.pvalues >= 0) & (result.pvalues <= 1)).all()
    squeezed = stats.nemenyi(np.cbrt(scores), larger_is_better=True)
    np.testing.assert_array_equal(squeezed.pvalues, result.pvalues)
    turned = stats.nemenyi(-scores, larger_is_better=False)
    np.testing.assert_array_equal(turned.ranks, result.ranks)


def test_two_algorithms_are_a_sign_test():
    """For k = 2, z = |R_1 - R_2| sqrt(n), normal."""
    scores = np.array([[1, 2]] * 7 + [[2, 1]] * 2)
    result = stats.nemenyi(scores, larger_is_better=True)
    z = abs(result.ranks[0] - result.ranks[1]) * math.sqrt(9)
    assert z == pytest.approx((7 - 2) / math.sqrt(9))
    assert result.pvalues[0, 1] == pytest.approx(2 * scipy.stats.norm.sf(z), abs=1e-9)


@cases.each("alpha", [0.01, 0.05, 0.1])
def test_critical_difference_is_where_p_crosses_alpha(alpha):
    scores = np.random.default_rng(4).random((20, 9)) + np.linspace(0, 0.7, 9)
    result = stats.nemenyi(scores, larger_is_better=True)
    apart = np.abs(result.ranks[:, None] - result.ranks) >= (
        result.critical_difference(alpha)
    )
    np.testing.assert_array_equal(apart, result.pvalues <= alpha)
    assert apart.any()


@cases.each("alpha", [0, 1, -0.1, 5, math.nan])
def test_refuses_alpha_that_is_no_chance(alpha):
    result = stats.nemenyi([[1, 2], [3, 4]], larger_is_better=True)
    with pytest.raises(ValueError, match="alpha: must lie between 0 and 1"):
        result.critical_difference(alpha)


@cases.each(
    ("ranks", "critical_difference", "expected"),
    [
        ([1, 2, 3, 4], 1.5, ((0, 1), (1, 2), (2, 3))),
        ([1, 2, 3, 4], 2.5, ((0, 1, 2), (1, 2, 3))),
        ([1, 2, 3, 4], 9, ((0, 1, 2, 3),)),
        ([1, 2, 3, 4], 0.5, ()),
        ([1, 2, 3, 4], 1.0, ()),  # As far apart as the difference is apart.
        ([4, 1.5, 3, 1.5], 1.2, ((1, 3), (2, 0))),
        ([2, 2, 2], 1, ((0, 1, 2),)),
        ([1, 1.4, 1.8, 4, 4.2], 1, ((0, 1, 2), (3, 4))),
    ],
)
def test_cliques(ranks, critical_difference, expected):
    assert posthoc.cliques(ranks, critical_difference) == expected


def test_cliques_hold_all_pairs_that_do_not_differ():
    rng = np.random.default_rng(5)
    for _ in range(200):
        ranks = rng.uniform(1, 9, size=9)
        difference = rng.uniform(0, 5)
        groups = [set(group) for group in posthoc.cliques(ranks, difference)]
        for i, j in zip(*np.triu_indices(9, 1), strict=True):
            together = any({i, j} <= group for group in groups)
            assert together == (abs(ranks[i] - ranks[j]) < difference)
        assert not any(a < b for a in groups for b in groups)


def test_nemenyis_groups_follow_from_the_critical_difference():
    rng = np.random.default_rng(6)
    for _ in range(50):
        scores = rng.random((10, 7)) + np.linspace(0, rng.random(), 7)
        result = stats.nemenyi(scores, larger_is_better=True)
        for alpha in (0.05, 0.5):
            critical = result.critical_difference(alpha)
            expected = posthoc.cliques(result.ranks, critical)
            assert result.cliques(alpha) == expected


def test_groups_of_a_relation_that_is_not_by_rank():
    near = np.eye(4, dtype=bool)
    for i, j in [(0, 2), (2, 3), (0, 3), (1, 2)]:
        near[i, j] = near[j, i] = True
    groups = posthoc.largest_groups(near, np.array([1.0, 2, 3, 4]))
    assert groups == ((0, 2, 3), (1, 2))
    assert posthoc.largest_groups(np.eye(3, dtype=bool), np.arange(3)) == ()


def test_fields_of_nemenyis_result_are_consistent():
    scores = np.random.default_rng(7).random((6, 5))
    result = stats.nemenyi(scores, larger_is_better=True)
    assert result.algorithms == ("0", "1", "2", "3", "4")
    np.testing.assert_array_equal(result.adjusted, result.pvalues)
    better = result.ranks[:, None] < result.ranks
    np.testing.assert_array_equal(result.statistics > 0, better)
    equal = stats.nemenyi(np.tile(np.arange(5.0), (6, 1)), larger_is_better=True)
    assert equal.pvalues.min() == pytest.approx(equal.least)
    assert equal.least == result.least < result.pvalues.min()


def test_conover_is_fishers_test_of_ranks():
    """The least significant difference of a two-way analysis of ranks, with ties."""
    scores = np.random.default_rng(8).integers(0, 5, size=(9, 4))
    ranked = scipy.stats.rankdata(-scores, axis=1)
    n, k = ranked.shape
    left = ranked - ranked.mean(axis=0)  # Rows have one mean, so nothing more to take.
    variance = np.sum(left**2) / ((n - 1) * (k - 1))
    result = stats.conover(scores, larger_is_better=True, adjust="none")
    for i, j in zip(*np.triu_indices(k, 1), strict=True):
        t = (ranked[:, j].mean() - ranked[:, i].mean()) / math.sqrt(2 * variance / n)
        assert result.statistics[i, j] == pytest.approx(t, abs=1e-12)
        p = 2 * scipy.stats.t.sf(abs(t), (n - 1) * (k - 1))
        assert result.pvalues[i, j] == pytest.approx(p)


def test_conover_where_no_variance_is_left():
    result = stats.conover([[3, 2, 2]] * 4, larger_is_better=True)
    assert result.pvalues.tolist() == [[1, 0, 0], [0, 1, 1], [0, 1, 1]]
    assert result.statistics[0].tolist() == [0, math.inf, math.inf]
    equal = stats.conover(np.ones((4, 3)), larger_is_better=True)
    np.testing.assert_array_equal(equal.adjusted, np.ones((3, 3)))


# Demsar 2006, table 5(b), k = 2 to 10; but for 9 it prints 2.724, where 2.734 is right.
DUNN = {2: 1.960, 3: 2.241, 4: 2.394, 5: 2.498, 6: 2.576, 7: 2.638, 8: 2.690, 10: 2.773}


@cases.each("k", DUNN)
def test_dunn_crosses_alpha_at_demsars_value(k):
    scores = np.random.default_rng(k).random((11, k)) + np.linspace(0, 0.5, k)
    result = stats.bonferroni_dunn(scores, larger_is_better=True, control=0)
    scale = math.sqrt(k * (k + 1) / (6 * 11))
    np.testing.assert_allclose(
        result.statistics, (result.control_rank - result.ranks) / scale
    )
    z = scipy.stats.norm.isf(0.05 / (2 * (k - 1)))
    assert z == pytest.approx(DUNN[k], abs=6e-4)
    crossed = np.abs(result.statistics) >= z
    np.testing.assert_array_equal(crossed, result.adjusted <= 0.05)


@cases.each("adjust", ["holm", "hochberg", "hommel", "bh"])
def test_dunn_adjusts_as_asked(adjust):
    scores = np.random.default_rng(9).random((9, 5)) + np.linspace(0, 0.5, 5)
    options = {"larger_is_better": True, "control": 3}
    result = stats.bonferroni_dunn(scores, adjust=adjust, **options)
    np.testing.assert_allclose(result.adjusted, stats.adjust(result.pvalues, adjust))
    plain = stats.bonferroni_dunn(scores, **options)
    assert (result.adjusted <= plain.adjusted).all()
    turned = stats.bonferroni_dunn(-scores, larger_is_better=False, control="3")
    np.testing.assert_array_equal(turned.adjusted, plain.adjusted)


def test_dunn_refuses():
    with pytest.raises(TypeError, match="control"):
        stats.bonferroni_dunn(np.eye(4), larger_is_better=True)
    with pytest.raises(ValueError, match="control: must be one of 0, 1, 2, 3, got '4'"):
        stats.bonferroni_dunn(np.eye(4), larger_is_better=True, control=4)
    with pytest.raises(ValueError, match="shaffer is for all pairs"):
        stats.bonferroni_dunn(
            np.eye(4), larger_is_better=True, control=0, adjust="shaffer"
        )
