"""Nemenyi's test: against scikit-posthocs and Demsar's table, and by its invariants."""

import json
import math
import pathlib

import numpy as np
import pytest
import scipy.stats

from jbias import stats
from jbias.stats import pairs

ORACLES = pathlib.Path(__file__).parents[1] / "oracles"
CASES = json.loads((ORACLES / "posthocs_nemenyi.json").read_text())["cases"]

# Demsar 2006, table 5(a): critical values for k = 2 to 10.
DEMSAR = {
    0.05: [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164],
    0.10: [1.645, 2.052, 2.291, 2.459, 2.589, 2.693, 2.780, 2.855, 2.920],
}


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_pvalues_equal_scikit_posthocs(case):
    for larger_is_better in (True, False):
        result = stats.nemenyi(case["scores"], larger_is_better=larger_is_better)
        # Both integrate numerically; tails of 1e-12 are all error.
        np.testing.assert_allclose(
            result.pvalues, case["pvalues"], rtol=1e-7, atol=1e-11
        )


@pytest.mark.parametrize("alpha", DEMSAR)
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


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.1])
def test_critical_difference_is_where_p_crosses_alpha(alpha):
    scores = np.random.default_rng(4).random((20, 9)) + np.linspace(0, 0.7, 9)
    result = stats.nemenyi(scores, larger_is_better=True)
    apart = np.abs(result.ranks[:, None] - result.ranks) >= (
        result.critical_difference(alpha)
    )
    np.testing.assert_array_equal(apart, result.pvalues <= alpha)
    assert apart.any()


@pytest.mark.parametrize("alpha", [0, 1, -0.1, 5, math.nan])
def test_refuses_alpha_that_is_no_chance(alpha):
    result = stats.nemenyi([[1, 2], [3, 4]], larger_is_better=True)
    with pytest.raises(ValueError, match="alpha: must lie between 0 and 1"):
        result.critical_difference(alpha)


@pytest.mark.parametrize(
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
    assert pairs.cliques(ranks, critical_difference) == expected


def test_cliques_hold_all_pairs_that_do_not_differ():
    rng = np.random.default_rng(5)
    for _ in range(200):
        ranks = rng.uniform(1, 9, size=9)
        difference = rng.uniform(0, 5)
        groups = [set(group) for group in pairs.cliques(ranks, difference)]
        for i, j in zip(*np.triu_indices(9, 1), strict=True):
            together = any({i, j} <= group for group in groups)
            assert together == (abs(ranks[i] - ranks[j]) < difference)
        assert not any(a < b for a in groups for b in groups)
