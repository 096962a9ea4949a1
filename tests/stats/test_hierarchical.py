"""The hierarchical t-test against Stan, limits, coverage, and refusals."""

import json
import pathlib

import numpy as np
import pytest
import scipy.stats

from jbias import stats
from jbias.stats import hierarchical

ROOT = pathlib.Path(__file__).parents[2]
ORACLE = json.loads((ROOT / "tests" / "oracles" / "baycomp_tests.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("case", ORACLE["hierarchical"], ids=range(2))
def test_equals_stan(case):
    """The posterior equals that of baycomp's model sampled by Stan."""
    scores = np.stack([case["x"], case["y"]], axis=1)
    result = stats.hierarchical_t(
        scores,
        rope=case["rope"],
        rho=case["rho"],
        paired=True,
        larger_is_better=True,
        draws=3000,
    )
    got = result.better[0, 1], result.rope[0, 1], result.better[1, 0]
    # 2000 effective draws give 3 deviations of 0.033 where the chance is a half.
    np.testing.assert_allclose(got, case["probs"], atol=0.03)
    assert result.rhat[0, 1] < 1.01


def test_much_noise_draws_data_sets_together():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(8, 2, 5)) * 3
    scores[:, 1] += 1
    result = stats.hierarchical_t(scores, rope=0.5, larger_is_better=True)
    raw = scores.mean(axis=2)
    shrunk = result.by_dataset[:, 1, 0].std()
    assert shrunk < 0.7 * (raw[:, 1] - raw[:, 0]).std()


@pytest.mark.slow
def test_without_noise_it_is_a_t_model_of_means():
    """With known d_i, the posterior of (d_0, s_0, nu) equals its density on a grid."""
    d = np.array([0.2, 0.5, -0.3, 1.1, 0.6, 0.4, 3.0])
    noise = 1e-4 * np.array([-1, 0, 1])
    scores = np.stack([d[:, None] + noise, 0 * d[:, None] + noise], axis=1)
    options = dict(rope=0, larger_is_better=True, draws=20_000)
    result = stats.hierarchical_t(scores, **options)
    assert result.effective_draws[0, 1] > 20_000  # A hundredth of deviations, and less.
    d0 = np.linspace(-3, 4, 281)[:, None, None]
    s0 = np.exp(np.linspace(-5, 3, 161))[None, :, None]
    nu = (1 + hierarchical._GRID)[None, None, :]
    log = np.log(s0) + hierarchical._LOG_PRIOR
    for x in d:
        log = log + scipy.stats.t.logpdf((x - d0) / s0, nu) - np.log(s0)
    density = np.exp(log - log.max())
    density /= density.sum()
    of_d0 = density.sum(axis=(1, 2))
    assert result.difference.value[0, 1] == pytest.approx(of_d0 @ d0.ravel(), abs=0.015)
    positive = of_d0[d0.ravel() > 0].sum()
    assert result.positive[0, 1] == pytest.approx(positive, abs=0.004)
    upto = np.cumsum(of_d0) - of_d0 / 2
    ends = np.interp([0.025, 0.975], upto, d0.ravel())
    got = [result.difference.low[0, 1], result.difference.high[0, 1]]
    np.testing.assert_allclose(got, ends, atol=0.025)
    of_s0 = density.sum(axis=(0, 2))
    middle = np.interp(0.5, np.cumsum(of_s0) - of_s0 / 2, s0.ravel())
    assert result.between[0, 1] == pytest.approx(middle, rel=0.02)
    np.testing.assert_allclose(result.by_dataset[:, 0, 1], d, atol=1e-3)


@pytest.mark.slow
def test_intervals_cover():
    """95 % intervals of d_0 contain the truth for 45 pairs with different true values."""
    rng = np.random.default_rng(4)
    k, n, r = 10, 8, 4
    truth = rng.normal(0, 0.5, size=k)
    scores = truth[:, None] + rng.normal(0, 0.7, size=(n, k, 1))
    scores = scores + rng.normal(size=(n, k, r))
    result = stats.hierarchical_t(scores, rope=0.1, larger_is_better=True)
    expected = truth[:, None] - truth
    inside = (result.difference.low <= expected) & (expected <= result.difference.high)
    off = ~np.eye(k, dtype=bool)
    assert inside[off].mean() >= 0.85  # The pairs share their algorithms.


def test_direction_and_symmetry():
    scores = np.random.default_rng(0).normal(size=(6, 3, 4)) + np.arange(3)[:, None]
    options = stats.hierarchical_t(scores, rope=0.2, larger_is_better=True)
    down = stats.hierarchical_t(-scores, rope=0.2, larger_is_better=False)
    np.testing.assert_allclose(options.better, down.better, atol=1e-12)
    np.testing.assert_allclose(options.better + options.better.T + options.rope, 1)
    np.testing.assert_allclose(options.difference.low, -options.difference.high.T)
    np.testing.assert_allclose(options.positive + options.positive.T, 1)
    assert options.better[2, 0] > 0.9


@pytest.mark.slow
def test_refuses_chains_that_differ(monkeypatch):
    scores = np.random.default_rng(0).normal(size=(6, 2, 4))
    monkeypatch.setattr(hierarchical, "_MAX_RHAT", 0.9)
    with pytest.raises(ValueError, match="chains must agree, got R-hat .* for 0 and 1"):
        stats.hierarchical_t(scores, rope=0, larger_is_better=True, draws=100)


def test_refusals():
    scores = np.random.default_rng(0).normal(size=(6, 2, 4))
    keywords = dict(rope=0, larger_is_better=True)
    with pytest.raises(ValueError, match="at least 3 data sets, got 2"):
        stats.hierarchical_t(scores[:2], **keywords)
    with pytest.raises(ValueError, match="at least 2 runs, got 1"):
        stats.hierarchical_t(scores[:, :, :1], **keywords)
    with pytest.raises(ValueError, match="at least 3 runs, got 2"):
        stats.hierarchical_t(scores[:, :, :2], paired=True, **keywords)
    with pytest.raises(ValueError, match="draws: must be at least 100 a chain, got 10"):
        stats.hierarchical_t(scores, draws=10, **keywords)
    with pytest.raises(ValueError, match="rho: .* not paired"):
        stats.hierarchical_t(scores, rho=0.2, **keywords)
