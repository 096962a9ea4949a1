"""Bootstrap intervals: rliable's formulas, explicit resampling, and coverage."""

import json
import pathlib

import numpy as np
import pandas as pd
import pytest

from jbias import stats
from jbias.stats import resampling, score_table
from tests import cases

ROOT = pathlib.Path(__file__).parents[2]
CASES = json.loads((ROOT / "tests" / "oracles" / "rliable_metrics.json").read_text())
RUNS = ROOT / "examples" / "biasbed_runs.csv"


@pytest.fixture
def array():
    rng = np.random.default_rng(1)
    runs = rng.normal(size=(1, 3, 6))  # A run is good or bad on all data sets.
    return rng.normal(size=(5, 3, 6)) + runs + np.arange(3)[:, None]


@cases.each("case", CASES["cases"])
def test_aggregates_equal_rliable(case):
    scores = np.array(case["scores"])
    bounds = [(0, 1)] * len(scores)
    found = stats.intervals(scores, larger_is_better=True, bounds=bounds, draws=100)
    for name in ("mean", "iqm", "optimality_gap"):
        value = getattr(found, name).value
        np.testing.assert_allclose(value, case[name], rtol=1e-12, atol=1e-15)
    wins = stats.probability_of_improvement(scores, larger_is_better=True, draws=100)
    expected = case["probability_of_improvement"]
    np.testing.assert_allclose(wins.pairs.value, expected, rtol=1e-12)


@pytest.mark.parametrize("datasets", [False, True])
def test_intervals_equal_explicit_resampling(array, datasets):
    """Every draw again by indices, one at a time, from another generator."""
    rng, draws = np.random.default_rng(7), 4000
    low, high = array.min(axis=(1, 2)), array.max(axis=(1, 2))
    normal = (array - low[:, None, None]) / (high - low)[:, None, None]
    means, middles, wins = [], [], []
    for _ in range(draws):
        rows = rng.integers(0, 5, 5) if datasets else np.arange(5)
        drawn = [array[rows, j][:, rng.integers(0, 6, 6)] for j in range(3)]
        means.append([x.mean() for x in drawn])
        wins.append((drawn[0][:, :, None] > drawn[1][:, None, :]).mean())
        x = np.sort(normal[rows, 0][:, rng.integers(0, 6, 6)], axis=None)
        middles.append(x[7:23].mean())  # 30 scores, 7 cut at either end.
    keywords = dict(larger_is_better=True, datasets=datasets, draws=draws)
    found = stats.intervals(array, **keywords)
    ends = np.quantile(means, [0.025, 0.975], axis=0)
    # Quantiles of 4000 draws of deviation s err by about 0.04 s, twice, four times over.
    for got, expected in [
        (np.stack([found.mean.low, found.mean.high]), ends),
        (
            np.stack([found.iqm.low[0], found.iqm.high[0]]),
            np.quantile(middles, [0.025, 0.975]),
        ),
    ]:
        assert np.abs(got - expected).max() < 0.2 * np.max(expected[1] - expected[0])
    better = stats.mean_differences(array, **keywords)
    differences = np.array(means)[:, 0] - np.array(means)[:, 2]
    assert better.better[0, 2] == pytest.approx((differences > 0).mean(), abs=0.04)
    won = stats.probability_of_improvement(array, **keywords)
    expected = np.quantile(wins, [0.025, 0.975])
    got = [won.pairs.low[0, 1], won.pairs.high[0, 1]]
    np.testing.assert_allclose(got, expected, atol=0.03)


def test_runs_are_drawn_for_all_data_sets_together(array):
    """Effects of whole runs do not average out over data sets."""
    table = score_table.read(np.repeat(array[:1], 20, axis=0))
    found = stats.intervals(table, larger_is_better=True)
    width = found.mean.high - found.mean.low
    np.testing.assert_allclose(width, (found.cells.high - found.cells.low)[0])


def test_intervals_cover_the_truth():
    """90 % intervals of means of 20 runs, 5 x 4 of them at each of 40 tables.

    Of runs r, percentile intervals are too narrow by about sqrt((r-1)/r): 0.88 at r = 20.
    """
    rng, hits = np.random.default_rng(0), []
    for _ in range(40):
        found = stats.intervals(
            rng.normal(size=(5, 4, 20)),
            larger_is_better=True,
            confidence=0.9,
            draws=500,
        ).cells
        hits.append((found.low < 0) & (found.high > 0))
    assert np.mean(hits) == pytest.approx(0.88, abs=0.035)  # 3 sigma of 800 hits.


def test_profiles_are_shares_of_scores():
    scores = np.random.default_rng(0).random((4, 2, 5))
    bounds = [(0, 1)] * 4
    found = stats.performance_profiles(
        scores, larger_is_better=True, bounds=bounds, thresholds=[0.3, 0.7], draws=500
    )
    expected = [(scores >= t).mean(axis=(0, 2)) for t in (0.3, 0.7)]
    np.testing.assert_allclose(found.share.value, np.transpose(expected))
    assert (found.share.low <= found.share.value).all()
    assert (found.share.value <= found.share.high).all()
    # The mean is the area below the profile.
    whole = stats.performance_profiles(
        scores,
        larger_is_better=True,
        bounds=bounds,
        thresholds=(np.arange(2000) + 0.5) / 2000,
        draws=100,
    )
    area = whole.share.value.mean(axis=1)
    np.testing.assert_allclose(area, scores.mean(axis=(0, 2)), atol=1e-3)


def test_direction_and_antisymmetry(array):
    for function in (stats.probability_of_improvement, stats.mean_differences):
        up = function(array, larger_is_better=True, draws=200)
        down = function(-array, larger_is_better=False, draws=200)
        total = up.pairs.value + up.pairs.value.T
        np.testing.assert_allclose(total, 2 * up.pairs.value[0, 0], atol=1e-12)
        for name in ("value", "low", "high"):
            np.testing.assert_allclose(
                getattr(up.pairs, name), getattr(down.pairs, name), atol=1e-12
            )
        np.testing.assert_allclose(up.better + up.better.T, 1)
        np.testing.assert_allclose(up.pairs.low + up.pairs.high.T, total, atol=1e-12)
    up = stats.intervals(array, larger_is_better=True, draws=200)
    down = stats.intervals(-array, larger_is_better=False, draws=200)
    np.testing.assert_allclose(up.iqm.low, down.iqm.low)
    np.testing.assert_array_equal(up.bounds, -down.bounds)


def test_unequal_runs_and_the_same_seed():
    frame = pd.read_csv(RUNS)
    found = stats.intervals(frame, larger_is_better=True, seed=3)
    again = stats.intervals(frame, larger_is_better=True, seed=3)
    np.testing.assert_array_equal(found.iqm.low, again.iqm.low)
    table = score_table.read(frame)
    np.testing.assert_allclose(found.cells.value, table.means)
    cae = found.algorithms.index("DeepAugERM-CAE")
    assert table.counts[cae] == 9
    spread = table.stds[:, cae] * np.sqrt(8 / 9) / 3  # Of a bootstrap mean.
    width = (found.cells.high - found.cells.low)[:, cae]
    np.testing.assert_allclose(width, 2 * 1.96 * spread, rtol=0.15)
    assert (found.mean.low < found.mean.value).all()
    assert (found.mean.value < found.mean.high).all()


@cases.each("datasets", [False, True])
def test_draws_in_which_neither_is_better_count_half(datasets):
    """Whole numbers say which; tenths of them, and shares of 49 runs, are rounded."""
    n, k, r = 7, 3, 7
    points = np.random.default_rng(0).integers(0, 3, size=(n, k, r))
    keywords = dict(draws=500, seed=0, datasets=datasets)
    drawn = resampling.draw(score_table.read(points), **keywords)
    runs = np.stack(drawn.runs, axis=1)
    sums = np.einsum("bn,njr,bjr->bj", drawn.datasets, points, runs)
    wins = np.sign(points[:, :, None, :, None] - points[:, None, :, None]).astype(int)
    wins = np.einsum("bn,bir,nijrs,bjs->bij", drawn.datasets, runs, wins, runs)
    for statistic, exact in [
        (stats.mean_differences, sums[:, :, None] - sums[:, None]),
        (stats.probability_of_improvement, wins),
    ]:
        found = statistic(points / 10, larger_is_better=True, **keywords)
        expected = (np.sign(exact) + 1).mean(axis=0) / 2
        np.testing.assert_allclose(found.better, expected, rtol=1e-12)
        assert (exact[:, 0, 1] == 0).any()


def test_refusals(array):
    with pytest.raises(
        ValueError, match="at least 2 runs, got 1 of 0; give the single"
    ):
        stats.intervals(array[:, :, :1], larger_is_better=True)
    with pytest.raises(ValueError, match="draws: must be at least 100, got 10"):
        stats.mean_differences(array, larger_is_better=True, draws=10)
    with pytest.raises(ValueError, match="confidence: must lie between 0 and 1"):
        stats.mean_differences(array, larger_is_better=True, confidence=95)
    with pytest.raises(ValueError, match="bounds: .* each of 5 data sets"):
        stats.intervals(array, larger_is_better=True, bounds=[(0, 1)])
    with pytest.raises(ValueError, match="bounds: the best must be better .* for 0"):
        stats.intervals(array, larger_is_better=False, bounds=[(0, 1)] * 5)
    with pytest.raises(ValueError, match="runs: must be at least 1, got 0"):
        resampling.draw(score_table.read(array), draws=100, seed=0, runs=0)
