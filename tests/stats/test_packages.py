"""Comparisons with other packages: equal, or different for a known reason.

Friedman's chi-squared, adjustments and groups in diagrams agree to 1e-12 (scipy 1.17.1,
statsmodels 0.15.0, statds 1.1.7, scikit-posthocs 0.17.1). Others:

- Friedman, F: equal to pingouin, whose degrees of freedom are k-1-2/n and n-1 times that;
  Iman and Davenport's are k-1 and (k-1)(n-1). `df="conover"` gives pingouin's, as in the
  published study.
- Nemenyi and the critical difference: 1e-10 (scikit-posthocs, scipy `studentized_range`). Old
  versions of scikit-posthocs end at 0.001 and 0.9, as in the published tables; autorank 1.3.0
  interpolates (5e-4).
- Conover: 1e-9 with six adjustments of scikit-posthocs, whose `single-step` has wrong degrees
  of freedom.
- Quade: 1e-8 (statds), and R's printed digits (`quade.test`). If all data sets agree in order
  and range, statds gives p = 1, R p = (1/k!)^(n-1) and jbias p = 0. R's is right; use
  `friedman_permutation` in this case.
- Aligned ranks: 1e-10 without ties (statds). With ties, only jbias' statistic has mean k - 1
  over permutations.
- Wilcoxon: 1e-9 without ties (scipy, scikit-posthocs). scipy finds ties by exact float
  comparison, and is approximate above n = 13; jbias is exact up to 200 data sets. Zeros:
  scipy's `wilcox` and `pratt` equal; its `zsplit` by permutation is Pratt's test, and `split`
  of jbias also draws signs for zeros, as Demsar's rule does.
"""

import json
import pathlib

import numpy as np
import pytest
import scipy.stats

from jbias import stats
from jbias.stats import multiple_testing, posthoc
from tests import cases

ORACLES = pathlib.Path(__file__).parents[1] / "oracles"
STORED = json.loads((ORACLES / "ranks.json").read_text())
CASES = [
    pytest.param(case, id=f"{np.shape(case['scores'])}") for case in STORED["cases"]
]


def has_ties(scores):
    return any(len(set(row)) < len(row) for row in scores)


@cases.each("case", CASES)
@cases.each("adjust", STORED["cases"][0]["conover"])
def test_conover_equals_scikit_posthocs(case, adjust):
    result = stats.conover(case["scores"], larger_is_better=True, adjust=adjust)
    np.testing.assert_allclose(
        result.adjusted, case["conover"][adjust], rtol=1e-9, atol=1e-14
    )


@cases.each("case", CASES)
def test_quade_equals_statds(case):
    result = stats.quade(case["scores"], larger_is_better=True)
    np.testing.assert_allclose(result.ranks, case["quade"]["ranks"], rtol=1e-12)
    assert result.statistic == pytest.approx(case["quade"]["f"], rel=1e-10)
    assert result.pvalue == pytest.approx(case["quade"]["p"], rel=1e-8)


@cases.each("case", CASES)
def test_aligned_ranks_equal_statds_without_ties(case):
    """With ties, statds uses the sum of squared ranks that is valid without ties."""
    result = stats.aligned_ranks(case["scores"], larger_is_better=True)
    if has_ties(case["scores"]):
        assert result.statistic > case["aligned"]["chi2"]
        assert result.statistic == pytest.approx(case["aligned"]["chi2"], rel=1e-2)
        return
    np.testing.assert_allclose(result.ranks, case["aligned"]["ranks"], rtol=1e-12)
    assert result.statistic == pytest.approx(case["aligned"]["chi2"], rel=1e-10)


@cases.each("case", CASES)
def test_wilcoxon_equals_scikit_posthocs_without_ties(case):
    """With ties or zeros, scikit-posthocs uses scipy's exact table for ranks without ties."""
    scores = np.array(case["scores"])
    result = stats.wilcoxon(scores, larger_is_better=True)
    compared_pairs = 0
    for i, j in zip(*np.triu_indices(scores.shape[1], 1), strict=True):
        sizes = np.abs(scores[:, i] - scores[:, j])
        if len({0.0, *sizes}) == len(sizes) + 1:
            assert result.pvalues[i, j] == pytest.approx(case["wilcoxon"][i][j])
            compared_pairs += 1
    assert compared_pairs > 0 or has_ties(scores)


@cases.each("case", STORED["adjusted"])
def test_adjusted_equal_statsmodels(case):
    for name, expected in case["adjusted"].items():
        np.testing.assert_allclose(
            stats.adjust(case["p"], name), expected, rtol=1e-12, err_msg=name
        )


@cases.each("case", STORED["shaffer"])
def test_shaffer_equals_statds(case):
    np.testing.assert_allclose(
        stats.adjust(case["p"], "shaffer"), case["adjusted"], rtol=1e-12
    )


@cases.each("case", STORED["critical_distances"])
def test_critical_difference_nears_autoranks(case):
    """autorank interpolates a table of quantiles, to about four digits."""
    n, k = case["n"], case["k"]
    scores = np.random.default_rng(0).random((n, k))
    ours = stats.nemenyi(scores, larger_is_better=True).critical_difference
    assert ours(case["alpha"]) == pytest.approx(case["cd"], rel=5e-4)
    q = scipy.stats.studentized_range.ppf(1 - case["alpha"], k, np.inf)
    exact = q * np.sqrt(k * (k + 1) / (12 * n))
    assert ours(case["alpha"]) == pytest.approx(exact, rel=1e-10)


@cases.each("case", STORED["cliques"])
def test_groups_equal_scikit_posthocs(case):
    near = np.array(case["near"], dtype=bool)
    groups = posthoc.largest_groups(near, np.arange(len(near)))
    assert [list(group) for group in groups] == case["groups"]


def test_quade_equals_r():
    """R's example (?quade.test): hand lotions, Conover 1999, p. 375."""
    sold = [
        [5, 4, 7, 10, 12],
        [1, 3, 1, 0, 2],
        [16, 12, 22, 22, 35],
        [5, 4, 3, 5, 4],
        [10, 9, 7, 13, 10],
        [19, 18, 28, 37, 58],
        [10, 7, 6, 8, 7],
    ]
    result = stats.quade(sold, larger_is_better=True)
    assert result.statistic == pytest.approx(3.8293, abs=5e-5)
    assert result.pvalue == pytest.approx(0.01519, abs=5e-6)
    assert result.df == (4, 24)


def test_every_method_is_checked():
    checked = {*STORED["adjusted"][0]["adjusted"], "shaffer", "none"}
    assert checked == set(multiple_testing.METHODS)
