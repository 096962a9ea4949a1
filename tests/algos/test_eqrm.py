"""EQRM: the quantile against DomainBed and SciPy, and its schedule."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

from jbias.algos import eqrm
from tests import cases, domainbed

RNG = np.random.default_rng(0)
RISKS = RNG.uniform(0.1, 2, 6).astype(np.float32)
ALL = jnp.ones(6)
QUANTILE = jax.jit(eqrm.quantile)
SLOPES = jax.jit(jax.value_and_grad(eqrm.quantile))


def exact_quantile(risks, alpha):
    """Return the quantile of the kernel density by a root search."""
    risks = np.asarray(risks, np.float64)
    bandwidth = 1.06 * risks.std(ddof=1) * len(risks) ** -0.2

    def excess(x):
        return stats.norm.cdf(x, risks, bandwidth).mean() - alpha

    return optimize.brentq(excess, risks.min() - 9, risks.max() + 9, xtol=1e-12)


def test_losses_and_gradients_are_those_of_domainbed():
    sequences = list(domainbed.updates("EQRM"))
    assert len(sequences) == 3
    for sequence in sequences:
        algo = eqrm.make(
            domainbed.Perceptron(),
            alpha=sequence[0].options["eqrm_quantile"],
            columns=domainbed.COLUMNS,
        )
        compute = domainbed.compiled(algo)
        for update in sequence:
            value, grads, _ = compute(update.batch)
            domainbed.assert_equal(update, value, grads)


@cases.each("alpha", [0.01, 0.5, 0.75, 0.999])
def test_the_quantile_is_that_of_the_kernel_density(alpha):
    value = QUANTILE(RISKS, ALL, alpha)
    assert value == pytest.approx(exact_quantile(RISKS, alpha), rel=1e-5)


def test_environments_that_a_batch_lacks_do_not_count():
    risks = jnp.zeros(9).at[jnp.arange(6) + 2].set(RISKS)
    present = jnp.zeros(9).at[jnp.arange(6) + 2].set(1)
    value = QUANTILE(risks, present, 0.75)
    assert value == pytest.approx(exact_quantile(RISKS, 0.75), rel=1e-5)
    _, grads = SLOPES(risks, present, 0.75)
    _, expected = SLOPES(jnp.asarray(RISKS), ALL, 0.75)
    np.testing.assert_allclose(grads[2:8], expected, rtol=1e-5)
    assert not grads[:2].any() and not grads[8:].any()


def test_the_gradient_is_that_of_the_last_bisection():
    """q = (1 - w) min + w max + s z with w fixed; a common shift moves q by itself."""
    value, grads = SLOPES(jnp.asarray(RISKS), ALL, 0.75)
    n, z = len(RISKS), stats.norm.ppf(0.75)
    deviation = RISKS.std(ddof=1)
    slopes = 1.06 * n**-0.2 * z * (RISKS - RISKS.mean()) / (n - 1) / deviation
    low, high = RISKS.argmin(), RISKS.argmax()
    shift = 1.06 * n**-0.2 * z * deviation
    w = (value - shift - RISKS[low]) / (RISKS[high] - RISKS[low])
    slopes[low] += 1 - w
    slopes[high] += w
    np.testing.assert_allclose(grads, slopes, rtol=1e-4, atol=1e-6)
    assert grads.sum() == pytest.approx(1, abs=1e-5)


@cases.each("risks", [[0.7, 0.7, 0.7], [0.7]])
def test_equal_losses_have_their_mean_as_quantile(risks):
    """The density has no width; value and gradient are those of the mean."""
    risks = jnp.asarray(risks)
    present = jnp.ones(len(risks))
    value, grads = SLOPES(risks, present, 0.9)
    assert value == pytest.approx(0.7)
    np.testing.assert_allclose(grads, np.full(len(risks), 1 / len(risks)), rtol=1e-6)


def test_the_loss_is_the_class_loss_in_the_burn_in_and_the_quantile_later():
    (sequence, *_) = domainbed.updates("EQRM")
    batch = sequence[0].batch
    algo = eqrm.make(domainbed.Perceptron(), burn_in=0.2, columns=domainbed.COLUMNS)
    assert [algo.static(step, 501) for step in (0, 99, 100, 500)] == [
        *(False, False),
        *(True, True),
    ]
    plain, _, early = domainbed.compiled(algo, static=False)(batch)
    tail, _, late = domainbed.compiled(algo, static=True)(batch)
    (erm, *_), *_ = domainbed.updates("ERM")
    assert plain == pytest.approx(erm.values["loss"], rel=1e-6)
    assert early.metrics["quantile"] == late.metrics["quantile"] == tail
    assert tail > plain and algo.whole_batch
    without = eqrm.make(domainbed.Perceptron(), burn_in=0.0, columns=domainbed.COLUMNS)
    assert without.static(0, 10) is None


@cases.each("options", [{"alpha": 0.0}, {"alpha": 1.0}, {"burn_in": -0.1}])
def test_impossible_options_are_refused(net, options):
    with pytest.raises(ValueError, match="eqrm: .*got"):
        eqrm.make(net, columns=domainbed.COLUMNS, **options)
