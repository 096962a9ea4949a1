"""Power against closed forms and independently simulated studies; texts of verdicts."""

import math
import pathlib

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from jbias import stats
from jbias.stats import power, score_table
from tests import cases

ROOT = pathlib.Path(__file__).parents[2]
BETWEEN, COMMON, NOISE = 1.0, 0.5, 1.5  # Deviations of interactions, runs, residuals.


def table(rng, n, k, r):
    scores = rng.normal(0, 5, size=(n, 1, 1)) + rng.normal(0, BETWEEN, size=(n, k, 1))
    scores = scores + rng.normal(0, COMMON, size=(1, k, r))
    return scores + rng.normal(0, NOISE, size=(n, k, r))


@pytest.fixture(scope="module")
def large():
    """Return a table so large that draws from it are nearly normal."""
    return table(np.random.default_rng(0), 150, 4, 20)


def power_at(scores, difference, *, runs, datasets, draws):
    """Return the power of each test, from studies simulated by the module."""
    read = score_table.read(scores)
    simulator, k = power._Simulator(read, None), len(read.algorithms)
    rng = np.random.default_rng(0)
    studies = simulator.simulate(rng, draws, num_datasets=datasets, runs=[runs] * k)
    tests = power._Tests(datasets, k, alpha=0.05, pair_alpha=0.05)
    detected = tests.detect(studies, difference)
    return {test: hits.mean() for test, hits in detected.items()}


@pytest.mark.slow
def test_equals_studies_simulated_apart(large):
    """New normal studies, tested with scipy and with Nemenyi's test."""
    rng, difference, n, r, k = np.random.default_rng(1), 1.5, 10, 3, 4
    hits = np.zeros(3)
    studies = 600
    q = stats.nemenyi(np.eye(n)[:, :k], larger_is_better=True).critical_difference(0.05)
    for _ in range(studies):
        means = table(rng, n, k, r).mean(axis=2)
        means[:, 0] += difference
        d = means[:, 0] - means[:, 1]
        ahead = d.mean() > 0
        hits[0] += ahead and scipy.stats.ttest_1samp(d, 0).pvalue <= 0.05
        hits[1] += ahead and scipy.stats.wilcoxon(d, method="exact").pvalue <= 0.05
        mean_ranks = score_table.rank(means, larger_is_better=True).mean(axis=0)
        hits[2] += mean_ranks[1] - mean_ranks[0] >= q
    result = power_at(large, difference, runs=r, datasets=n, draws=2000)
    got = [result[test] for test in power.TESTS]
    # Three deviations of 600 studies and of 2000: 0.07.
    np.testing.assert_allclose(got, hits / studies, atol=0.07)
    assert 0.15 < min(got) and max(got) < 0.9


def test_t_has_a_closed_form(large):
    """Run effects shift all data sets equally and are not part of the closed form."""
    scores = large - large.mean(axis=0) + large.mean(axis=(0, 2))[:, None]
    for r in (2, 8):
        deviation = math.sqrt(2 * BETWEEN**2 + 2 * NOISE**2 / r)
        for n in (6, 15):
            result = power_at(scores, 1.0, runs=r, datasets=n, draws=3000)
            expected = stats.power_of_t(difference=1.0, deviation=deviation, datasets=n)
            assert result["t"] == pytest.approx(expected, abs=0.04)


def test_closed_forms():
    deviation, n = 2.0, 12
    least = stats.minimal_difference_of_t(deviation=deviation, datasets=n)
    power = stats.power_of_t(difference=least, deviation=deviation, datasets=n)
    assert power == pytest.approx(0.8)
    rng = np.random.default_rng(0)
    d = rng.normal(least, deviation, size=(20000, n))
    simulated = scipy.stats.ttest_1samp(d, 0, axis=1)
    is_significant = (simulated.pvalue <= 0.05) & (simulated.statistic > 0)
    assert is_significant.mean() == pytest.approx(0.8, abs=0.01)
    level = stats.power_of_t(difference=1e-9, deviation=deviation, datasets=n)
    assert level == pytest.approx(0.025)


@cases.each(("gap", "k"), [(1.0, 8), (3.3, 8), (0.7, 3)])
def test_data_sets_for_nemenyi(gap, k):
    n = stats.datasets_for_nemenyi(gap=gap, algorithms=k)
    for count, reached in [(n, True), (n - 1, False)]:
        scores = np.random.default_rng(0).random((max(count, 2), k))
        result = stats.nemenyi(scores, larger_is_better=True)
        assert (result.critical_difference(0.05) <= gap) == reached
    with pytest.raises(ValueError, match="gap: must lie in"):
        stats.datasets_for_nemenyi(gap=9, algorithms=k)


def test_simulated_variances_are_unbiased():
    """Small tables: interactions do not include the noise of the runs."""
    rng, variances = np.random.default_rng(2), []
    for _ in range(150):
        simulator = power._Simulator(score_table.read(table(rng, 8, 3, 4)), None)
        studies = simulator.simulate(rng, 60, num_datasets=8, runs=[4, 4, 4])
        d = studies.means[:, :, 0] - studies.means[:, :, 1]
        variances.append([d.var(axis=1, ddof=1).mean(), np.mean(d.mean(axis=1) ** 2)])
    within = 2 * (BETWEEN**2 + NOISE**2 / 4)
    expected = [within, within / 8 + 2 * COMMON**2 / 4]
    # Variances clipped at 0 leave some bias.
    np.testing.assert_allclose(np.mean(variances, axis=0), expected, rtol=0.1)


def test_wilcoxon_never_rejects_where_it_cannot():
    """2^(1-n) is the smallest p: 10 data sets and 28 pairs give 0.0547."""
    assert power._wilcoxon_critical(10, 0.05 / 28) == math.inf
    assert power._wilcoxon_critical(10, 0.05 / 25) == 55
    assert power._wilcoxon_critical(10, 0.05) == 55 - 8  # Every textbook's table.
    frame = pd.read_csv(ROOT / "examples" / "biasbed_runs.csv")
    power_result = stats.power_of_design(frame, difference=2, seeds=[10], datasets=[10])
    assert power_result.comparisons == 28
    assert power_result.power["wilcoxon"].max() == 0
    assert power_result.minimal["wilcoxon"] == math.inf
    assert (
        "With 10 data sets and 9 to 10 runs, a difference of 2 is"
        in power_result.verdict
    )
    assert "is no evidence against such a difference" in power_result.verdict
    assert "none by Wilcoxon's" in power_result.verdict


@pytest.mark.slow
def test_more_finds_more(large):
    power_result = stats.power_of_design(large[:12, :, :6], difference=1.5)
    for test in power.TESTS:
        assert power_result.power[test][-1, -1] > power_result.power[test][0, 0]
        assert power_result.power[test].shape == (5, 4)
        if math.isfinite(power_result.minimal[test]):
            again = stats.power_of_design(
                large[:12, :, :6],
                difference=power_result.minimal[test],
                seeds=[6],
                datasets=[12],
            )
            assert again.present[test] == pytest.approx(0.8, abs=0.05)
    sure = stats.power_of_design(
        large[:30], difference=5, seeds=[1], datasets=[5], draws=200
    )
    assert "makes such a difference unlikely" in sure.verdict


def test_one_pair_and_refusals(large):
    frame = pd.read_csv(ROOT / "examples" / "biasbed_runs.csv")
    near, far = (
        stats.power_of_design(frame, difference=2, pair=(a, "ERM"), comparisons=1)
        for a in ("InfoDrop", "StylizedERM")
    )
    assert near.present["t"] > 0.8
    assert far.present["t"] < 0.2
    for keywords, message in [
        (dict(pair=("ERM", "ERM")), "pair: must be two algorithms"),
        (dict(pair=("ERM", "Erm")), "pair: must be one of ERM"),
        (dict(alpha=5), "alpha: must lie between 0 and 1, got 5"),
        (dict(seeds=[0]), "at least 1 run and 2 data sets"),
        (dict(draws=1), "draws: must be at least 100, got 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            stats.power_of_design(frame, difference=2, **keywords)
    with pytest.raises(ValueError, match="difference: must be positive, got 0"):
        stats.power_of_design(frame, difference=0)


def test_a_table_without_spread_finds_everything():
    power_result = stats.power_of_design(
        np.zeros((6, 2, 2)), difference=1, seeds=[1], datasets=[6], draws=100
    )
    assert power_result.present == dict.fromkeys(power.TESTS, 1.0)
    assert max(power_result.minimal.values()) < 1e-8
