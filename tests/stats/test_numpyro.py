"""Our samplers against NumPyro's NUTS for the same models."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import stats
from jbias.stats import hierarchical, mcmc
from tests import cases

numpyro = pytest.importorskip("numpyro", reason="needs numpyro, of the extra test")
from numpyro import diagnostics, infer
from numpyro import distributions as dist

CHAINS, DRAWS = 4, 3000
FAR = 4  # Standard errors: one of 16,000 comparisons goes further by chance.


def draw(model, draws=DRAWS, **sites):
    """Return draws of NUTS by site, (chains, draws, ...)."""
    kernel = infer.NUTS(model, target_accept_prob=0.98)
    options = dict(num_warmup=1000, num_samples=draws, num_chains=CHAINS)
    options |= dict(chain_method="vectorized", progress_bar=False)
    run = infer.MCMC(kernel, **options)
    with jax.numpy_rank_promotion("allow"):  # NumPyro's own code promotes.
        run.run(jax.random.key(0), extra_fields=("diverging",), **sites)
    result = run.get_samples(group_by_chain=True)
    assert run.get_extra_fields(group_by_chain=True)["diverging"].mean() < 0.002
    return {name: np.asarray(x, np.float64) for name, x in result.items()}


def share_error(p, draws, effective):
    """Return the standard error of a share over both samples' draws."""
    both = 1 / diagnostics.effective_sample_size(draws) + 1 / effective
    return np.sqrt(np.maximum(p * (1 - p), 1e-4) * both)


def assert_equal_mean(ours, draws, effective):
    both = 1 / diagnostics.effective_sample_size(draws) + 1 / effective
    error = draws.std(axis=(0, 1)) * np.sqrt(both)
    assert np.all(np.abs(ours - draws.mean(axis=(0, 1))) <= FAR * error)


def assert_quantile(ours, q, draws, effective):
    """Assert that our value is NUTS' q quantile, within a few standard errors of a share."""
    some = FAR * share_error(q, draws, effective)
    low, high = np.quantile(draws, np.clip([q - some, q + some], 0, 1))
    assert low <= ours <= high, (q, low, ours, high)


def assert_share(ours, inside, draws, effective):
    """Assert that our share equals that of NUTS; `inside`: true for each draw that counts."""
    p = inside.mean(axis=(0, 1))
    assert np.all(np.abs(ours - p) <= FAR * share_error(p, draws, effective))


def flat(name, shape=(), support=dist.constraints.real):
    return numpyro.sample(name, dist.ImproperUniform(support, shape, ()))


def scale_of_datasets():
    """Sample degrees of freedom, centre and scale of the differences over data sets."""
    a = numpyro.sample("a", dist.Uniform(1, 2))
    b = numpyro.sample("b", dist.Uniform(0.01, 0.1))
    # On the grid of ours, whose ends cut 3 % of the prior off.
    ends = dict(low=hierarchical._GRID[0], high=hierarchical._GRID[-1])
    log = numpyro.sample("log", dist.Uniform(*map(math.log, ends.values())))
    nu = numpyro.deterministic("nu", 1 + jnp.exp(log))
    numpyro.factor("of_nu", dist.Gamma(a, b).log_prob(jnp.exp(log)) + log)
    return nu, flat("d0"), flat("s0", support=dist.constraints.positive)


def between(n):
    """Sample the differences d_i of n data sets."""
    nu, d0, s0 = scale_of_datasets()
    z = numpyro.sample("z", dist.StudentT(nu, 0, 1).expand([n]))
    return numpyro.deterministic("d", d0 + s0 * z)


def paired_model(x, rho):
    """Model differences x (n, r) with equal correlations; the prior of s_i is flat."""
    n, r = x.shape
    d, s = between(n), flat("s", (n,), dist.constraints.positive)
    within = jnp.linalg.cholesky((1 - rho) * jnp.eye(r) + rho)
    scale_tril = s[:, None, None] * within
    numpyro.sample(
        "x", dist.MultivariateNormal(d[:, None], scale_tril=scale_tril), obs=x
    )


def unpaired_model(x, y):
    """Model runs x (n, r) and y (n, q) of two algorithms; priors of log s_i are flat."""
    n = len(x)
    d, level = between(n), flat("level", (n,))
    for name, runs, mean in (("x", x, level + d), ("y", y, level)):
        s = jnp.exp(flat(f"log_s_{name}", (n,)))
        numpyro.sample(name, dist.Normal(mean[:, None], s[:, None]), obs=runs)


def scores(seed, runs):
    """Return scores of two algorithms on nine data sets, one of which differs from the others."""
    rng = np.random.default_rng(seed)
    truth = 0.6 + 0.5 * rng.normal(size=9)
    truth[-1] += 3
    x, y = (rng.normal(size=(9, r)) * rng.uniform(0.3, 1.5, (9, 1)) for r in runs)
    return x + truth[:, None], y


def assert_same_posterior(result, draws):
    effective = result.effective_draws[0, 1]
    assert_equal_mean(result.difference.value[0, 1], draws["d0"], effective)
    assert_quantile(result.difference.low[0, 1], 0.025, draws["d0"], effective)
    assert_quantile(result.difference.high[0, 1], 0.975, draws["d0"], effective)
    assert_quantile(result.between[0, 1], 0.5, draws["s0"], effective)
    assert_share(result.positive[0, 1], draws["d0"] > 0, draws["d0"], effective)
    if "d" in draws:
        assert_equal_mean(result.by_dataset[:, 0, 1], draws["d"], effective)


def means_model(m):
    """Model runs without noise: the means m_i are the d_i."""
    nu, d0, s0 = scale_of_datasets()
    numpyro.sample("m", dist.StudentT(nu, d0, s0), obs=m)


@pytest.mark.slow
def test_hierarchical_t_of_runs_without_noise():
    """Few unknowns allow many draws, so this comparison is the most precise one."""
    m = np.array([0.2, 0.5, -0.3, 1.1, 0.6, 0.4, 3.0, 0.9, 0.1])
    noise = 1e-5 * np.array([-1, 0, 1])
    table = np.stack([m[:, None] + noise, np.zeros((9, 3))], axis=1)
    options = dict(rope=0.1, larger_is_better=True, draws=40_000)
    result = stats.hierarchical_t(table, paired=True, **options)
    theirs = draw(means_model, draws=25_000, m=m)
    assert_same_posterior(result, theirs)


@pytest.mark.slow
def test_hierarchical_t_of_paired_runs():
    x, y = scores(0, (6, 6))
    table, rho = np.stack([x, y], axis=1), 0.2
    options = dict(rope=0.1, larger_is_better=True, draws=4000)
    result = stats.hierarchical_t(table, paired=True, rho=rho, **options)
    assert_same_posterior(result, draw(paired_model, x=x - y, rho=rho))


@pytest.mark.slow
def test_hierarchical_t_of_independent_runs():
    """Five runs of one algorithm and seven of the other."""
    x, y = scores(1, (5, 7))
    table = np.full((9, 2, 7), math.nan)
    table[:, 0, :5], table[:, 1] = x, y
    options = dict(rope=0.1, larger_is_better=True, draws=4000)
    result = stats.hierarchical_t(table, **options)
    assert_same_posterior(result, draw(unpaired_model, x=x, y=y))


def strengths_model(wins):
    k = len(wins)
    rows, columns = np.triu_indices(k, 1)
    s = numpyro.sample("s", dist.LogNormal(0, 0.5))
    z = numpyro.sample("z", dist.Normal(0, 1).expand([k]))
    b = numpyro.deterministic("b", s * z)
    odds = b[rows] - b[columns]
    games = (wins + wins.T)[rows, columns]
    won = wins[rows, columns]
    numpyro.sample("won", dist.Binomial(games, logits=odds), obs=won)


@pytest.mark.slow
def test_bradley_terry():
    """Five algorithms on twelve data sets; the last one always loses."""
    wins = np.array(
        [
            [0, 8, 7, 9, 12],
            [4, 0, 6, 10, 12],
            [5, 6, 0, 7, 12],
            [3, 2, 5, 0, 12],
            [0, 0, 0, 0, 0],
        ]
    )
    bradley_terry = stats.bradley_terry_of_wins(wins)
    theirs = draw(strengths_model, wins=wins)["b"]
    effective = bradley_terry.effective_draws
    rows, columns = np.triu_indices(len(wins), 1)
    odds = theirs[..., rows] - theirs[..., columns]
    p = 1 / (1 + np.exp(-odds))
    assert_equal_mean(bradley_terry.strengths.value, theirs, effective)
    assert_equal_mean(bradley_terry.p_win.value[rows, columns], p, effective)
    assert_share(bradley_terry.better[rows, columns], odds > 0, p, effective)
    close = (p >= 0.45) & (p <= 0.55)
    assert_share(bradley_terry.equivalent[rows, columns], close, p, effective)
    inside = (p >= bradley_terry.p_win.low[rows, columns]) & (
        p <= bradley_terry.p_win.high[rows, columns]
    )
    assert_share(0.89, inside, p, effective)


@cases.each("phi", [0.0, 0.8])
def test_diagnostics(phi):
    """R-hat is the same; effective draws are of chains cut in halves, whose variances
    NumPyro takes for those of n draws, not n - 1."""
    noise = np.random.default_rng(0).normal(size=(4, 1000))
    draws = np.zeros_like(noise)
    for t in range(1000):
        draws[:, t] = phi * draws[:, t - 1] + noise[:, t]
    expected = diagnostics.split_gelman_rubin(draws)
    assert mcmc.split_rhat(draws) == pytest.approx(expected, rel=1e-9)
    halves = draws.reshape(8, 500)
    expected = diagnostics.effective_sample_size(halves)
    assert mcmc.effective_draws(draws) == pytest.approx(expected, rel=5e-3)
