"""The mixed model against statsmodels' REML, exact special cases, and coverage."""

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
    """Equal within 1e-4, the accuracy of statsmodels' search for REML."""
    mixed = stats.mixed_model(case["scores"], larger_is_better=True)
    names = {"cell": "interaction", "dataset": "dataset", "run": "run"}
    for theirs, ours in names.items():
        expected = case["variances"][theirs]
        assert mixed.variances[ours] == pytest.approx(expected, rel=2e-3)
    assert mixed.variances["residual"] == pytest.approx(case["residual"], rel=1e-3)
    for j in range(1, len(case["errors"])):
        assert mixed.difference.value[j, 0] == pytest.approx(case["effects"][j])
        error = mixed.standard_error[j, 0]
        assert error == pytest.approx(case["errors"][j], rel=1e-3)


def test_is_the_paired_t_test_where_runs_have_no_effect():
    """Two algorithms whose runs are equal on average have a mean square below E."""
    rng = np.random.default_rng(3)
    scores = simulate(rng, 9, 2, 6, run=0.0, cell=2.0)
    scores -= scores.mean(axis=0) - scores.mean(axis=(0, 2))[:, None]
    mixed = stats.mixed_model(scores, larger_is_better=True)
    assert mixed.variances["run"] == 0
    expected = scipy.stats.ttest_rel(*scores.mean(axis=2).T)
    t = mixed.difference.value[0, 1] / mixed.standard_error[0, 1]
    assert t == pytest.approx(expected.statistic)
    assert mixed.statistic == pytest.approx(expected.statistic**2)
    assert mixed.df[1] == pytest.approx(8)
    assert mixed.pvalue == pytest.approx(expected.pvalue)
    assert mixed.pvalues[0, 1] == pytest.approx(expected.pvalue)


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
        mixed = stats.mixed_model(scores, larger_is_better=True)
        rejected += mixed.pvalue <= 0.05
        covered += mixed.difference.low[0, 1] < 0 < mixed.difference.high[0, 1]
        naive += stats.friedman(scores, larger_is_better=True).pvalue <= 0.05
    # Three deviations of 600 tests are 0.027; Satterthwaite is an approximation.
    assert rejected / 600 == pytest.approx(0.05, abs=0.03)
    assert covered / 600 == pytest.approx(0.95, abs=0.03)
    assert (naive / 600 > 0.3) == (run > 0)


def test_components_are_unbiased():
    rng = np.random.default_rng(1)
    result = [
        stats.mixed_model(simulate(rng, 8, 3, 5), larger_is_better=True).variances
        for _ in range(200)
    ]
    means = pd.DataFrame(result).mean()
    for name, expected in [("interaction", 1), ("run", 0.49), ("residual", 0.25)]:
        assert means[name] == pytest.approx(expected, rel=0.1)
    assert means["dataset"] == pytest.approx(9, rel=0.2)


def test_unequal_runs():
    frame = pd.read_csv(ROOT / "examples" / "biasbed_runs.csv")
    mixed = stats.mixed_model(frame, larger_is_better=True)
    cae = mixed.algorithms.index("DeepAugERM-CAE")
    means = score_table.read(frame).means.mean(axis=0)
    np.testing.assert_allclose(mixed.difference.value[cae], means[cae] - means)
    assert mixed.standard_error[cae, 0] > mixed.standard_error[1, 0]
    np.testing.assert_array_equal(mixed.pvalues, mixed.pvalues.T)


def test_direction_and_no_spread():
    scores = simulate(np.random.default_rng(0), 5, 3, 4)
    options = stats.mixed_model(scores, larger_is_better=True)
    down = stats.mixed_model(-scores, larger_is_better=False)
    np.testing.assert_allclose(options.difference.low, down.difference.low)
    still = np.zeros((4, 2, 3))
    assert stats.mixed_model(still, larger_is_better=True).pvalue == 1
    still[:, 1] = 1
    assert stats.mixed_model(still, larger_is_better=True).pvalue == 0
    with pytest.raises(ValueError, match="at least 2 runs, got 1"):
        stats.mixed_model(scores[:, :, :1], larger_is_better=True)
