"""The mixed model: statsmodels' REML, exact special cases, null distribution, coverage."""

import json
import pathlib

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from jbias import stats
from jbias.stats import score_table

ROOT = pathlib.Path(__file__).parents[2]
ORACLE = ROOT / "tests" / "oracles" / "statsmodels_mixed.json"
CASES = json.loads(ORACLE.read_text())["cases"]


def simulate(rng, n, k, r, effects=0.0, cell=1.0, run=0.7, noise=0.5):
    scores = rng.normal(0, 3, size=(n, 1, 1)) + np.zeros((k, 1)) + effects
    scores = scores + rng.normal(0, cell, size=(n, k, 1))
    scores = scores + rng.normal(0, run, size=(1, k, r))
    return scores + rng.normal(0, noise, size=(n, k, r))


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_equals_statsmodels(case):
    """REML is found there by search, to some 1e-4."""
    found = stats.mixed_model(case["scores"], larger_is_better=True)
    names = {"cell": "interaction", "dataset": "dataset", "run": "run"}
    for theirs, ours in names.items():
        expected = case["variances"][theirs]
        assert found.variances[ours] == pytest.approx(expected, rel=2e-3)
    assert found.variances["residual"] == pytest.approx(case["residual"], rel=1e-3)
    for j in range(1, len(case["errors"])):
        assert found.difference.value[j, 0] == pytest.approx(case["effects"][j])
        error = found.standard_error[j, 0]
        assert error == pytest.approx(case["errors"][j], rel=1e-3)


def test_is_the_paired_t_test_where_runs_have_no_effect():
    """Of two algorithms; runs that are alike on average have a mean square below E."""
    rng = np.random.default_rng(3)
    scores = simulate(rng, 9, 2, 6, run=0.0, cell=2.0)
    scores -= scores.mean(axis=0) - scores.mean(axis=(0, 2))[:, None]
    found = stats.mixed_model(scores, larger_is_better=True)
    assert found.variances["run"] == 0
    expected = scipy.stats.ttest_rel(*scores.mean(axis=2).T)
    t = found.difference.value[0, 1] / found.standard_error[0, 1]
    assert t == pytest.approx(expected.statistic)
    assert found.statistic == pytest.approx(expected.statistic**2)
    assert found.df[1] == pytest.approx(8)
    assert found.pvalue == pytest.approx(expected.pvalue)
    assert found.pvalues[0, 1] == pytest.approx(expected.pvalue)


@pytest.mark.slow
@pytest.mark.parametrize("run", [0.0, 2.0])
def test_null_distribution(run):
    """Right by the level and the coverage, whether runs have effects or not.

    A test of means over runs, with data sets as its only sample, rejects far more if they do.
    """
    rng = np.random.default_rng(0)
    rejected, covered, naive = 0, 0, 0
    for _ in range(600):
        scores = simulate(rng, 6, 3, 4, run=run, cell=0.5)
        found = stats.mixed_model(scores, larger_is_better=True)
        rejected += found.pvalue <= 0.05
        covered += found.difference.low[0, 1] < 0 < found.difference.high[0, 1]
        naive += stats.friedman(scores, larger_is_better=True).pvalue <= 0.05
    # Three deviations of 600 tests are 0.027; Satterthwaite is an approximation.
    assert rejected / 600 == pytest.approx(0.05, abs=0.03)
    assert covered / 600 == pytest.approx(0.95, abs=0.03)
    assert (naive / 600 > 0.3) == (run > 0)


def test_components_are_unbiased():
    rng = np.random.default_rng(1)
    found = [
        stats.mixed_model(simulate(rng, 8, 3, 5), larger_is_better=True).variances
        for _ in range(200)
    ]
    means = pd.DataFrame(found).mean()
    for name, expected in [("interaction", 1), ("run", 0.49), ("residual", 0.25)]:
        assert means[name] == pytest.approx(expected, rel=0.1)
    assert means["dataset"] == pytest.approx(9, rel=0.2)


def test_unequal_runs():
    frame = pd.read_csv(ROOT / "examples" / "biasbed_runs.csv")
    found = stats.mixed_model(frame, larger_is_better=True)
    cae = found.algorithms.index("DeepAugERM-CAE")
    means = score_table.read(frame).means.mean(axis=0)
    np.testing.assert_allclose(found.difference.value[cae], means[cae] - means)
    assert found.standard_error[cae, 0] > found.standard_error[1, 0]
    np.testing.assert_array_equal(found.pvalues, found.pvalues.T)


def test_direction_and_no_spread():
    scores = simulate(np.random.default_rng(0), 5, 3, 4)
    up = stats.mixed_model(scores, larger_is_better=True)
    down = stats.mixed_model(-scores, larger_is_better=False)
    np.testing.assert_allclose(up.difference.low, down.difference.low)
    still = np.zeros((4, 2, 3))
    assert stats.mixed_model(still, larger_is_better=True).pvalue == 1
    still[:, 1] = 1
    assert stats.mixed_model(still, larger_is_better=True).pvalue == 0
    with pytest.raises(ValueError, match="at least 2 runs, got 1"):
        stats.mixed_model(scores[:, :, :1], larger_is_better=True)
