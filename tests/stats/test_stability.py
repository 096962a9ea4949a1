"""Stability of rankings: explicit re-ranking, and limits without noise and with only noise."""

import pathlib

import numpy as np
import pandas as pd
import pytest

from jbias import stats
from jbias.stats import bootstrap, score_table

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def array():
    rng = np.random.default_rng(2)
    return rng.normal(size=(7, 4, 5)) + 0.5 * np.arange(4)[:, None]


@pytest.mark.parametrize("ties", [False, True])
def test_pvalues_are_friedmans(array, ties):
    means = array.mean(axis=2).round(0 if ties else 6)
    ranked = score_table.rank(means, larger_is_better=True)
    pvalues = bootstrap.friedman_pvalues(np.stack([ranked, ranked[:, ::-1]]))
    expected = stats.friedman(means, larger_is_better=True).pvalue
    np.testing.assert_allclose(pvalues, expected, rtol=1e-9)
    agreed = np.tile(np.arange(1.0, 5), (1, 7, 1))
    assert bootstrap.friedman_pvalues(agreed)[0] == 0
    assert bootstrap.friedman_pvalues(np.full((1, 7, 4), 2.5))[0] == 1


@pytest.mark.slow
def test_equals_explicit_resampling(array):
    rng, draws = np.random.default_rng(5), 1500
    friedman_flips, best, ranked_before, nemenyi_flips = 0, np.zeros(4), 0, 0
    observed = stats.nemenyi(array, larger_is_better=True)
    friedman = stats.friedman(array, larger_is_better=True).pvalue <= 0.05
    cd = observed.critical_difference(0.05)
    for _ in range(draws):
        means = [array[:, j, rng.integers(0, 5, 5)].mean(axis=1) for j in range(4)]
        resampled = stats.friedman(np.stack(means, axis=1), larger_is_better=True)
        friedman_flips += (resampled.pvalue <= 0.05) != friedman
        first = np.isclose(resampled.ranks, resampled.ranks.min())
        best += first / first.sum()
        ranked_before += (resampled.ranks[3] < resampled.ranks[1]) + 0.5 * np.isclose(
            resampled.ranks[3], resampled.ranks[1]
        )
        is_apart = [abs(r[0] - r[3]) >= cd for r in (resampled.ranks, observed.ranks)]
        nemenyi_flips += is_apart[0] != is_apart[1]
    stability = stats.rank_stability(array, larger_is_better=True, draws=3000)
    # Shares of 1500 and of 3000 draws differ by 0.016 at most; three times that.
    assert stability.friedman_flips == pytest.approx(friedman_flips / draws, abs=0.05)
    np.testing.assert_allclose(stability.best, best / draws, atol=0.05)
    assert stability.ranked_before[3, 1] == pytest.approx(
        ranked_before / draws, abs=0.05
    )
    assert stability.nemenyi_flips[0, 3] == pytest.approx(
        nemenyi_flips / draws, abs=0.05
    )


def test_without_noise_nothing_changes(array):
    still = np.repeat(array[:, :, :1], 5, axis=2)
    stability = stats.rank_stability(still, larger_is_better=True, draws=100)
    assert (stability.same_order, stability.friedman_flips, stability.any_flips) == (
        1,
        0,
        0,
    )
    np.testing.assert_array_equal(stability.ranks.low, stability.ranks.high)
    np.testing.assert_allclose(stability.places.sum(axis=0), 1)
    expected = stats.nemenyi(still, larger_is_better=True).pvalues <= 0.05
    np.testing.assert_array_equal(stability.nemenyi, expected)


def test_ties_share_places():
    scores = np.zeros((4, 3, 2))
    scores[:, 2] = -1
    stability = stats.rank_stability(scores, larger_is_better=True, draws=100)
    np.testing.assert_array_equal(
        stability.places, [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]]
    )
    assert stability.ranked_before[0, 1] == 0.5


def test_fewer_runs_and_other_data_sets_change_more(array):
    few, all_, sets = (
        stats.rank_stability(array, larger_is_better=True, **keywords)
        for keywords in (dict(runs=1), {}, dict(datasets=True))
    )
    assert few.same_order < all_.same_order
    assert sets.same_order < all_.same_order
    np.testing.assert_allclose(all_.ranked_before + all_.ranked_before.T, 1)
    for result in (few, all_, sets):
        np.testing.assert_allclose(result.places.sum(axis=1), 1)


def test_the_published_study():
    """CAE leads with any seeds, but the pairs that pass Nemenyi's threshold change."""
    frame = pd.read_csv(ROOT / "examples" / "biasbed_runs.csv")
    stability = stats.rank_stability(frame, larger_is_better=True)
    assert stability.best[stability.algorithms.index("DeepAugERM-CAE")] > 0.99
    assert stability.friedman and stability.friedman_flips == 0
    assert stability.any_flips > 0.5
