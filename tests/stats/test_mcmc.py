"""R-hat and effective draws of autoregressive chains, for which both are known."""

import numpy as np
import pytest
import scipy.signal

from jbias.stats import mcmc
from tests import cases


def autoregressive(phi, shape=(4, 20000), seed=0):
    noise = np.random.default_rng(seed).normal(size=shape)
    return scipy.signal.lfilter([1], [1, -phi], noise, axis=1)


@cases.each("phi", [-0.4, 0.0, 0.5, 0.9])
def test_effective_draws_of_an_autoregression(phi):
    """d (1 - phi) / (1 + phi) in the limit of many draws."""
    effective = mcmc.effective_draws(autoregressive(phi))
    assert effective == pytest.approx(80000 * (1 - phi) / (1 + phi), rel=0.15)


def test_chains_that_agree_and_chains_that_do_not():
    draws = autoregressive(0.3, (4, 1000))
    assert mcmc.split_rhat(draws) == pytest.approx(1, abs=0.01)
    apart = draws + 2 * np.arange(4)[:, None]
    halves = np.concatenate([apart[:, :500], apart[:, 500:]])
    within = halves.var(axis=1, ddof=1).mean()
    plus = within * 499 / 500 + halves.mean(axis=1).var(ddof=1)
    assert mcmc.split_rhat(apart) == pytest.approx(np.sqrt(plus / within))
    assert mcmc.split_rhat(apart) > 1.5
    assert mcmc.effective_draws(apart) < 20
    drift = draws + np.linspace(0, 5, 1000)  # Halves of one chain disagree.
    assert mcmc.split_rhat(drift) > 1.2


def test_several_parameters_at_once_and_constant_draws():
    draws = np.stack([autoregressive(0.2, (4, 400), seed=s) for s in range(3)], axis=2)
    for function in (mcmc.split_rhat, mcmc.effective_draws):
        separate = [function(draws[:, :, p]) for p in range(3)]
        np.testing.assert_allclose(function(draws), separate)
    constant = np.ones((4, 100))
    assert mcmc.split_rhat(constant) == 1
    assert mcmc.effective_draws(constant) == np.inf
    assert mcmc.split_rhat(constant * np.arange(4)[:, None]) == np.inf
