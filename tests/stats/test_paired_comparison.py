"""Bradley-Terry model against the reference's posteriors, quadrature, and invariants."""

import json
import pathlib

import numpy as np
import pandas as pd
import pytest
import scipy.special
import scipy.stats

from jbias import stats
from jbias.stats import paired_comparison, score_table
from tests import cases

ROOT = pathlib.Path(__file__).parents[2]
ORACLE = ROOT / "tests" / "oracles" / "biasbed_bradley_terry.json"
REFERENCE = json.loads(ORACLE.read_text())


def paper(which):
    """Return the means of the paper's configuration, and the deviations of Table 2."""
    frame = pd.read_csv(ROOT / "examples" / "biasbed_paper_configuration.csv")
    means = frame.pivot(index="dataset", columns="algorithm", values="score")
    order = REFERENCE["datasets"][which], REFERENCE["algorithms"]
    stds = pd.DataFrame(REFERENCE["stds"]).loc[order]
    return means.loc[order].to_numpy(), stds.to_numpy()


@pytest.mark.slow
@cases.each("name", REFERENCE["results"])
def test_equals_the_reference(name):
    expected = REFERENCE["results"][name]
    means, stds = paper(name.split("/")[0])
    rope = 0.4 if "localrope" in name else 0.0
    wins, ties = paired_comparison.count_wins_and_ties(
        means,
        stds if rope else 0 * stds,
        rope=rope,
        errors=score_table.mean_errors(score_table.read(means)),
    )
    np.testing.assert_array_equal(wins, expected["wins_after_ties"])
    np.testing.assert_array_equal(ties, expected["ties"])
    bradley_terry = stats.bradley_terry_of_wins(wins)
    # The reference's own Monte Carlo error is about 0.005.
    np.testing.assert_allclose(
        bradley_terry.p_win.value, expected["mean_pwin"], atol=0.005
    )
    better = np.array(expected["prob_pwin_gt_half"])
    np.fill_diagonal(better, 0.5)
    np.testing.assert_allclose(bradley_terry.better, better, atol=0.012)
    assert bradley_terry.effective_draws > 10000


@pytest.mark.slow
@pytest.mark.parametrize("games", [(7, 2), (30, 0)])
def test_two_algorithms_by_quadrature(games):
    """b_1 - b_2 ~ Normal(0, 2 s^2): two dimensions on a grid."""
    s = np.exp(0.5 * scipy.stats.norm.ppf((np.arange(400) + 0.5) / 400))
    d = np.linspace(-60, 60, 24001)
    prior = scipy.stats.norm.pdf(d, scale=np.sqrt(2) * s[:, None]).mean(axis=0)
    won, lost = games
    density = prior * scipy.special.expit(d) ** won * scipy.special.expit(-d) ** lost
    density /= density.sum()
    p = scipy.special.expit(d)
    upto = np.cumsum(density)
    ends = np.searchsorted(upto, upto + 0.89)
    inside = ends < len(d)
    width = p[ends[inside]] - p[inside]
    low = p[inside][np.argmin(width)]
    bradley_terry = stats.bradley_terry_of_wins([[0, won], [lost, 0]])
    assert bradley_terry.p_win.value[0, 1] == pytest.approx(p @ density, abs=4e-3)
    assert bradley_terry.better[0, 1] == pytest.approx(density[d > 0].sum(), abs=6e-3)
    band = density[(p >= 0.45) & (p <= 0.55)].sum()
    assert bradley_terry.equivalent[0, 1] == pytest.approx(band, abs=6e-3)
    assert bradley_terry.p_win.low[0, 1] == pytest.approx(low, abs=0.015)
    assert bradley_terry.p_win.high[0, 1] == pytest.approx(low + width.min(), abs=0.015)


def test_reads_scores_in_any_direction():
    scores = np.random.default_rng(0).normal(size=(8, 4, 5)) + np.arange(4)[:, None]
    bradley_terry = stats.bradley_terry(scores, larger_is_better=True, local_rope=0.4)
    turned = stats.bradley_terry(-scores, larger_is_better=False, local_rope=0.4)
    np.testing.assert_array_equal(bradley_terry.wins, turned.wins)
    np.testing.assert_array_equal(bradley_terry.p_win.value, turned.p_win.value)
    assert bradley_terry.algorithms == ("0", "1", "2", "3")
    np.testing.assert_allclose(bradley_terry.better + bradley_terry.better.T, 1)
    np.testing.assert_allclose(bradley_terry.p_win.low + bradley_terry.p_win.high.T, 1)
    assert (np.diff(bradley_terry.strengths.value) > 0).all()
    several = bradley_terry.wins + bradley_terry.wins.T - 8
    off = ~np.eye(4, dtype=bool)
    np.testing.assert_array_equal(several[off], bradley_terry.ties[off] % 2)


def test_equal_means_tie():
    means = np.array([[1.0, 1.0], [1.0, 1.0], [0.3, 0.1 + 0.2], [2, 1]])
    wins, ties = paired_comparison.count_wins_and_ties(
        means,
        np.zeros((4, 2)),
        rope=0,
        errors=score_table.mean_errors(score_table.read(means)),
    )
    np.testing.assert_array_equal(ties, [[0, 3], [3, 0]])
    np.testing.assert_array_equal(wins, [[0, 3], [2, 0]])


def test_refusals():
    scores = np.random.default_rng(0).normal(size=(8, 4))
    with pytest.raises(ValueError, match="at least 2 runs"):
        stats.bradley_terry(scores, larger_is_better=True, local_rope=0.4)
    with pytest.raises(ValueError, match="local_rope: must be 0 or larger, got -1"):
        stats.bradley_terry(scores, larger_is_better=True, local_rope=-1)
    with pytest.raises(ValueError, match="draws: must be at least 1000, got 100"):
        stats.bradley_terry(scores, larger_is_better=True, draws=100)
    with pytest.raises(
        ValueError, match="draws: 1000 amount to only .* give more draw"
    ):
        stats.bradley_terry(scores, larger_is_better=True, draws=1000)
    with pytest.raises(ValueError, match="wins: must be a square matrix of counts"):
        stats.bradley_terry_of_wins([[1, 2], [3, 0]])


@pytest.mark.slow
@cases.each("apart", [0, 3])
@cases.each("n", [2, 20, 50])
def test_many_algorithms(n, apart):
    """Includes algorithms that hardly ever lose to the next: very skewed posteriors."""
    rng = np.random.default_rng(n)
    scores = rng.normal(size=(n, 12)) + apart * np.arange(12)
    bradley_terry = stats.bradley_terry(scores, larger_is_better=True)
    assert bradley_terry.effective_draws > 4000
    # The likelihood does not know the sum of b, whose mean is the prior's.
    assert (
        abs(bradley_terry.strengths.value.sum())
        < 0.1 * np.ptp(bradley_terry.strengths.value) + 0.1
    )
    if apart:
        assert (np.diff(bradley_terry.strengths.value) > 0).all()


@pytest.mark.slow
def test_fifty_algorithms():
    scores = np.random.default_rng(0).normal(size=(50, 50)) + 3 * np.arange(50)
    bradley_terry = stats.bradley_terry(scores, larger_is_better=True)
    assert bradley_terry.effective_draws > 1500
    assert (np.diff(bradley_terry.strengths.value) > 0).all()


def test_no_games_leave_the_prior():
    """log s ~ Normal(0, 1/2), b ~ Normal(0, s): however far its tails reach."""
    chains = paired_comparison.draw_posterior(
        np.zeros((5, 5)), 30000, np.random.default_rng(0)
    )
    log_scale = chains[:, :, 0].ravel()
    assert log_scale.mean() == pytest.approx(0, abs=0.02)
    assert log_scale.std() == pytest.approx(0.5, abs=0.02)
    z = chains[:, :, 1:].reshape(-1, 5) * np.exp(-log_scale)[:, None]
    np.testing.assert_allclose(np.cov(z.T), np.eye(5), atol=0.05)
    assert scipy.stats.kstest(z[::10, 0], "norm").pvalue > 1e-3
