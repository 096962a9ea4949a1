"""Bootstrap intervals against rliable's formulas, explicit resampling, and coverage."""

import json
import pathlib

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from jbias import stats
from jbias.stats import bootstrap_intervals, score_table
from studies import interval_coverage
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
    intervals = stats.intervals(scores, larger_is_better=True, bounds=bounds, draws=100)
    for name in ("mean", "iqm", "optimality_gap"):
        value = getattr(intervals, name).value
        np.testing.assert_allclose(value, case[name], rtol=1e-12, atol=1e-15)
    wins = stats.probability_of_improvement(scores, larger_is_better=True, draws=100)
    expected = case["probability_of_improvement"]
    np.testing.assert_allclose(wins.pairs.value, expected, rtol=1e-12)


@pytest.mark.parametrize("datasets", [False, True])
def test_intervals_equal_explicit_resampling(array, datasets):
    """Intervals equal those of draws made one at a time by indices, with another generator."""
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
    intervals = stats.intervals(array, **keywords)
    ends = np.quantile(means, [0.025, 0.975], axis=0)
    # With data sets, percentiles are moved from the value by `widening`.
    factor = bootstrap_intervals.widening(5, 0.95) if datasets else 1.0
    middle = array.mean(axis=(0, 2))
    ends = middle + factor * (ends - middle)
    middle = np.sort(normal[:, 0], axis=None)[7:23].mean()
    middles = middle + factor * (np.array(middles) - middle)
    value = (array[:, 0][:, :, None] > array[:, 1][:, None, :]).mean()
    wins = np.clip(value + factor * (np.array(wins) - value), 0, 1)
    # Quantiles of 4000 draws of deviation s err by about 0.04 s, twice, four times over.
    for got, expected in [
        (np.stack([intervals.mean.low, intervals.mean.high]), ends),
        (
            np.stack([intervals.iqm.low[0], intervals.iqm.high[0]]),
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
    np.testing.assert_allclose(got, expected, atol=0.03 * factor)


@cases.each(("count", "factor"), [(5, 1.584), (10, 1.217), (20, 1.096), (1000, 1.002)])
def test_widened_intervals_have_the_length_of_students(count, factor):
    """A bootstrap of normal differences without noise of runs gives the t interval."""
    assert bootstrap_intervals.widening(count, 0.95) == pytest.approx(factor, abs=1e-3)
    if count > 20:
        return
    differences = scipy.stats.norm.ppf((np.arange(count) + 0.5) / count)
    scores = np.zeros((count, 2, 3))
    scores[:, 0] = differences[:, None]
    result = stats.mean_differences(
        scores, larger_is_better=True, datasets=True, draws=40_000
    ).pairs
    error = scipy.stats.sem(differences)
    half = scipy.stats.t.ppf(0.975, count - 1) * error
    # Sums of few draws have shorter tails than the normal distribution.
    length = result.high[0, 1] - result.low[0, 1]
    assert length == pytest.approx(2 * half, rel=0.06)


def test_widened_intervals_stay_where_the_numbers_can_be():
    scores = np.zeros((4, 2, 3))
    scores[:3, 0] = 1
    scores[3, 1] = 1
    result = stats.probability_of_improvement(
        scores, larger_is_better=True, datasets=True
    ).pairs
    assert result.low.min() == 0 and result.high.max() == 1
    ranks = stats.rank_stability(scores, larger_is_better=True, datasets=True).ranks
    assert ranks.low.min() >= 1 and ranks.high.max() <= 2
    effects = stats.effect_sizes(scores, larger_is_better=True, datasets=True)
    assert effects.a12_mean.high.max() <= 1


@cases.each(("runs", "share"), [(3, 0.749), (5, 0.8455), (10, 0.9041)])
def test_percentile_intervals_reach_as_far_as_they_say(runs, share):
    """The stated coverage is the share of t draws with |t| sqrt(r / (r - 1)) < 1.96."""
    t = np.random.default_rng(0).standard_t(runs - 1, 400_000)
    drawn = (np.abs(t) < 1.959964 * np.sqrt((runs - 1) / runs)).mean()
    coverage = bootstrap_intervals.percentile_coverage(runs)
    assert coverage == pytest.approx(share, abs=1e-3)
    assert coverage == pytest.approx(drawn, abs=0.003)  # 4 sigma.


def test_the_coverage_page_prints_the_largest_standard_error_of_its_shares():
    """54 % of 4,000 studies has 0.79 points, and 75 % would have 0.68."""
    seeds = {"normal scores": [0.75, 0.84, 0.9], "two humps": [0.54, 0.73, 0.92]}
    datasets = {"3 seeds, now": (0.97, 0.96, 0.96)}
    page = interval_coverage.page(seeds, datasets, studies=4000)
    assert 0.54 * 0.46 / 4000 == pytest.approx(0.0079**2, rel=0.01)
    assert "value; standard error at most 0.8 points.\n" in page
    assert "| two humps | 54 % | 73 % | 92 % |\n" in page
    assert page.endswith("| 3 seeds, now | 97 % | 96 % | 96 % |\n")
    less = interval_coverage.page(seeds, datasets, studies=40_000)
    assert "at most 0.2 points" in less


@pytest.mark.slow
def test_simulated_coverages_equal_the_stored_table():
    """1,000 studies of each kind: within 4 standard errors of the stored shares."""
    path = ROOT / "studies/results/interval-coverage.md"
    rows = [
        [float(cell.strip(" %")) / 100 for cell in line.split("|")[2:5]]
        for line in path.read_text().splitlines()
        if line.endswith("% |")
    ]
    simulated = [
        [interval_coverage.seed_coverage(draw, r, studies=1000) for r in (3, 5, 10)]
        for draw in (interval_coverage.normal, interval_coverage.two_humps)
    ]
    for runs in (3, 10):
        coverages = [
            interval_coverage.dataset_coverage(n, runs, studies=1000)
            for n in (5, 10, 20)
        ]
        simulated += [list(shares) for shares in zip(*coverages, strict=True)]
    np.testing.assert_allclose(simulated, rows, atol=0.06)
    assert np.min(simulated[3::2]) > 0.925  # Coverage of intervals over data sets.
    assert simulated[4][0] < 0.88  # Coverage of the earlier intervals.


def test_runs_are_drawn_for_all_data_sets_together(array):
    """Effects of whole runs do not average out over data sets."""
    table = score_table.read(np.repeat(array[:1], 20, axis=0))
    intervals = stats.intervals(table, larger_is_better=True)
    width = intervals.mean.high - intervals.mean.low
    np.testing.assert_allclose(width, (intervals.cells.high - intervals.cells.low)[0])


def test_intervals_cover_the_truth():
    """90 % intervals of means of 20 runs, 5 x 4 of them at each of 40 tables.

    Of runs r, percentile intervals are too narrow by about sqrt((r-1)/r): 0.88 at r = 20.
    """
    rng, hits = np.random.default_rng(0), []
    for _ in range(40):
        result = stats.intervals(
            rng.normal(size=(5, 4, 20)),
            larger_is_better=True,
            confidence=0.9,
            draws=500,
        ).cells
        hits.append((result.low < 0) & (result.high > 0))
    assert np.mean(hits) == pytest.approx(0.88, abs=0.035)  # 3 sigma of 800 hits.


def test_profiles_are_shares_of_scores():
    scores = np.random.default_rng(0).random((4, 2, 5))
    bounds = [(0, 1)] * 4
    profiles = stats.performance_profiles(
        scores, larger_is_better=True, bounds=bounds, thresholds=[0.3, 0.7], draws=500
    )
    expected = [(scores >= t).mean(axis=(0, 2)) for t in (0.3, 0.7)]
    np.testing.assert_allclose(profiles.share.value, np.transpose(expected))
    assert (profiles.share.low <= profiles.share.value).all()
    assert (profiles.share.value <= profiles.share.high).all()
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
        options = function(array, larger_is_better=True, draws=200)
        down = function(-array, larger_is_better=False, draws=200)
        total = options.pairs.value + options.pairs.value.T
        np.testing.assert_allclose(total, 2 * options.pairs.value[0, 0], atol=1e-12)
        for name in ("value", "low", "high"):
            np.testing.assert_allclose(
                getattr(options.pairs, name), getattr(down.pairs, name), atol=1e-12
            )
        np.testing.assert_allclose(options.better + options.better.T, 1)
        np.testing.assert_allclose(
            options.pairs.low + options.pairs.high.T, total, atol=1e-12
        )
    options = stats.intervals(array, larger_is_better=True, draws=200)
    down = stats.intervals(-array, larger_is_better=False, draws=200)
    np.testing.assert_allclose(options.iqm.low, down.iqm.low)
    np.testing.assert_array_equal(options.bounds, -down.bounds)


def test_unequal_runs_and_the_same_seed():
    frame = pd.read_csv(RUNS)
    intervals = stats.intervals(frame, larger_is_better=True, seed=3)
    again = stats.intervals(frame, larger_is_better=True, seed=3)
    np.testing.assert_array_equal(intervals.iqm.low, again.iqm.low)
    table = score_table.read(frame)
    np.testing.assert_allclose(intervals.cells.value, table.means)
    cae = intervals.algorithms.index("DeepAugERM-CAE")
    assert table.counts[cae] == 9
    spread = table.stds[:, cae] * np.sqrt(8 / 9) / 3  # Of a bootstrap mean.
    width = (intervals.cells.high - intervals.cells.low)[:, cae]
    np.testing.assert_allclose(width, 2 * 1.96 * spread, rtol=0.15)
    assert (intervals.mean.low < intervals.mean.value).all()
    assert (intervals.mean.value < intervals.mean.high).all()


@cases.each("datasets", [False, True])
def test_draws_in_which_neither_is_better_count_half(datasets):
    """Ties are exact for whole numbers, and within rounding for tenths and means of 49 runs."""
    n, k, r = 7, 3, 7
    points = np.random.default_rng(0).integers(0, 3, size=(n, k, r))
    keywords = dict(draws=500, seed=0, datasets=datasets)
    drawn = bootstrap_intervals.draw(score_table.read(points), **keywords)
    runs = np.stack(drawn.runs, axis=1)
    sums = np.einsum("bn,njr,bjr->bj", drawn.datasets, points, runs)
    wins = np.sign(points[:, :, None, :, None] - points[:, None, :, None]).astype(int)
    wins = np.einsum("bn,bir,nijrs,bjs->bij", drawn.datasets, runs, wins, runs)
    for statistic, exact in [
        (stats.mean_differences, sums[:, :, None] - sums[:, None]),
        (stats.probability_of_improvement, wins),
    ]:
        result = statistic(points / 10, larger_is_better=True, **keywords)
        expected = (np.sign(exact) + 1).mean(axis=0) / 2
        np.testing.assert_allclose(result.better, expected, rtol=1e-12)
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
        bootstrap_intervals.draw(score_table.read(array), draws=100, seed=0, runs=0)


def test_widened_intervals_stay_within_the_range_of_scores():
    """Normalised scores stay in [0, 1], gaps at 0 or above, means within the bounds."""
    rng = np.random.default_rng(0)
    options = dict(datasets=True, larger_is_better=True, draws=500)
    scores = np.clip(rng.normal([[[0.97], [0.2], [0.5]]], 0.02, (5, 3, 5)), 0, 1)
    intervals = stats.intervals(scores, **options)
    near_one = rng.beta(1.2, 0.05, (5, 3, 5))
    bounded = stats.intervals(near_one, bounds=[(0, 1)] * 5, **options)
    errors = stats.intervals(
        1 - near_one,
        bounds=[(1, 0)] * 5,
        **{**options, "larger_is_better": False},
    )
    for result in (intervals, bounded, errors):
        for estimate in (result.iqm, result.optimality_gap):
            assert (estimate.low >= 0).all() and (estimate.high <= 1).all()
    for result in (bounded, errors):
        assert (result.mean.low >= 0).all() and (result.mean.high <= 1).all()
    assert (intervals.iqm.high == 1).any() and (bounded.optimality_gap.low == 0).any()
    assert (bounded.mean.high == 1).any() and (errors.mean.low == 0).any()


def test_bounds_that_scores_cross_do_not_cut_intervals():
    """Scores above a human's: the interquartile mean may exceed 1, the gap is 0 or more."""
    rng = np.random.default_rng(1)
    scores = rng.normal(1.5, 0.5, (5, 2, 4))
    options = dict(datasets=True, larger_is_better=True, draws=500)
    intervals = stats.intervals(scores, bounds=[(0, 1)] * 5, **options)
    assert (intervals.iqm.high > 1).all() and (intervals.mean.high > 1).all()
    assert (intervals.optimality_gap.low >= 0).all()
    free = stats.intervals(scores, **options)
    np.testing.assert_array_equal(free.mean.high, intervals.mean.high)
