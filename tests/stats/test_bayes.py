"""Bayesian tests of pairs against baycomp, closed forms and invariants."""

import json
import math
import pathlib

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from jbias import stats
from tests import cases

ROOT = pathlib.Path(__file__).parents[2]
ORACLE = json.loads((ROOT / "tests" / "oracles" / "baycomp_tests.json").read_text())


def probabilities(result, place=()):
    """Return (left, rope, right) or (left, right) as baycomp does; right: the second is better."""
    better, rope = result.better[place], result.rope[place]
    return better[0, 1], rope[0, 1], better[1, 0]


@cases.each("case", ORACLE["signed_rank"])
def test_signed_rank_equals_baycomp(case):
    scores = np.array([case["x"], case["y"]]).T
    posterior = stats.bayesian_signed_rank(
        scores,
        rope=case["rope"],
        prior=case["prior"],
        larger_is_better=True,
        draws=50000,
    )
    left, rope, right = probabilities(posterior)
    expected = case["probs"]
    got = (left, rope, right) if case["rope"] else (left, right)
    # Two samples of 50000: 3 sqrt(2) 0.5 / sqrt(50000), for p = 1/2.
    np.testing.assert_allclose(got, expected, atol=0.01)


@cases.each("case", ORACLE["correlated"])
def test_correlated_t_equals_baycomp(case):
    scores = np.tile(np.array([case["x"], case["y"]]), (2, 1, 1))
    posterior = stats.correlated_t(
        scores,
        rope=case["rope"],
        rho=case["rho"],
        paired=True,
        larger_is_better=True,
    )
    left, rope, right = probabilities(posterior, 1)
    got = (left, rope, right) if case["rope"] else (left, right)
    np.testing.assert_allclose(got, case["probs"], rtol=1e-9, atol=1e-12)


def test_paired_without_correlation_is_the_t_test():
    x, y = np.random.default_rng(0).normal(size=(2, 1, 9))
    scores = np.tile(np.stack([x, y], axis=1), (2, 1, 1))
    posterior = stats.correlated_t(scores, rope=0, paired=True, larger_is_better=True)
    one_sided = scipy.stats.ttest_rel(x[0], y[0], alternative="less").pvalue
    assert posterior.better[0, 0, 1] == pytest.approx(one_sided)
    assert posterior.rope[0, 0, 1] == pytest.approx(0, abs=1e-12)


def test_independent_pairs_of_runs_have_a_closed_form():
    """Two runs give a Cauchy posterior; the difference of two is Cauchy, scales added."""
    scores = np.array([[[1.0, 2.0], [1.3, 1.9]], [[5.0, 1.0], [0.1, 0.4]]])
    rope = 0.2
    posterior = stats.correlated_t(scores, rope=rope, larger_is_better=True)
    means, scales = scores.mean(axis=2), np.abs(np.diff(scores, axis=2))[:, :, 0] / 2
    expected = scipy.stats.cauchy.sf(
        rope, means[:, 0] - means[:, 1], scales[:, 0] + scales[:, 1]
    )
    np.testing.assert_allclose(posterior.better[:, 0, 1], expected, atol=1e-4)


def test_independent_runs_by_monte_carlo():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(2, 2, 6)) * np.array([[1.0], [3.0]])
    posterior = stats.correlated_t(scores, rope=0.3, larger_is_better=True)
    x, y = (
        v.mean() + v.std(ddof=1) / math.sqrt(6) * rng.standard_t(5, 10**6)
        for v in scores[0]
    )
    # Three deviations of a million draws.
    assert posterior.better[0, 0, 1] == pytest.approx((x - y > 0.3).mean(), abs=0.0015)
    assert posterior.better[0, 1, 0] == pytest.approx((y - x > 0.3).mean(), abs=0.0015)


@pytest.mark.parametrize("paired", [False, True])
def test_no_spread_is_certain(paired):
    scores = np.zeros((2, 3, 4))
    scores[:, 1] = 1
    posterior = stats.correlated_t(
        scores, rope=0.5, paired=paired, larger_is_better=True
    )
    assert posterior.better[0, 1, 0] == pytest.approx(1, abs=1e-12)
    assert posterior.rope[0, 0, 2] == pytest.approx(1, abs=1e-12)
    half = stats.correlated_t(scores, rope=0, paired=paired, larger_is_better=True)
    assert half.better[0, 0, 2] == pytest.approx(0.5)


@pytest.mark.parametrize("rope", [0, 0.4])
def test_direction_and_symmetry(rope):
    scores = np.random.default_rng(0).normal(size=(6, 3, 4))
    for function in (stats.bayesian_signed_rank, stats.correlated_t):
        options = function(scores, rope=rope, larger_is_better=True)
        down = function(-scores, rope=rope, larger_is_better=False)
        np.testing.assert_allclose(options.better, down.better, atol=1e-12)
        total = options.better + np.swapaxes(options.better, -1, -2) + options.rope
        np.testing.assert_allclose(total, 1, atol=1e-12)
        if rope == 0:
            off = ~np.eye(3, dtype=bool)
            np.testing.assert_allclose(options.rope[..., off], 0, atol=1e-9)


def test_a_wider_rope_leaves_less():
    frame = pd.read_csv(ROOT / "examples" / "biasbed_runs.csv")
    narrow, wide = (
        stats.bayesian_signed_rank(frame, rope=rope, larger_is_better=True)
        for rope in (0.5, 2)
    )
    assert (wide.rope >= narrow.rope - 1e-12).all()
    assert wide.rope[0, 5] > 0.9  # ERM and InfoDrop.


def test_refusals():
    scores = np.random.default_rng(0).normal(size=(4, 2, 3))
    keywords = dict(larger_is_better=True)
    with pytest.raises(ValueError, match="rope: must be 0 or larger, got -1"):
        stats.bayesian_signed_rank(scores, rope=-1, **keywords)
    with pytest.raises(ValueError, match="prior: must be positive, got 0"):
        stats.bayesian_signed_rank(scores, rope=1, prior=0, **keywords)
    with pytest.raises(ValueError, match="rho: must lie in"):
        stats.correlated_t(scores, rope=1, paired=True, rho=1, **keywords)
    with pytest.raises(ValueError, match="rho: .* not paired, got 0.1; give paired"):
        stats.correlated_t(scores, rope=1, rho=0.1, **keywords)
    frame = pd.read_csv(ROOT / "examples" / "biasbed_runs.csv")
    with pytest.raises(ValueError, match="same runs, got 10 of ERM.*9 of DeepAugERM"):
        stats.correlated_t(frame, rope=1, paired=True, **keywords)
