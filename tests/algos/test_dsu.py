"""DSU: the noise of statistics, the groups of its spread, and its sites."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.extend import core

from jbias import models
from jbias.algos import dsu
from jbias.augment import feature_stats, sampling
from jbias.models import taps
from jbias.runtime import xla
from tests import cases

KEY = jax.random.key(6)
RNG = np.random.default_rng(0)
X = jnp.asarray(
    RNG.normal(size=(8, 6, 5, 4)) * RNG.uniform(1, 3, (8, 1, 1, 4))
    + RNG.normal(size=(8, 1, 1, 4)),
    jnp.float32,
)


def stats(x):
    x = np.asarray(x, np.float64)
    mean, var = x.mean((1, 2)), x.var((1, 2), ddof=1)
    return mean, np.sqrt(var + 1e-6)


def disturb(x, key, *, factor, group):
    change = functools.partial(dsu.perturb, factor=factor, group=group)
    acts = jnp.array(True)
    found = feature_stats.gated_affine(x, acts, change, key)
    return taps.Rescaled(x, *found, acts).value


def tap_of(net, **options):
    """Return the tap of an algorithm with its result rescaled."""
    tap = dsu.make(net, **options).net.tap
    return lambda *args: getattr(passed := tap(*args), "value", passed)


def spread(s, group):
    """Return the deviation of a statistic inside each image's group."""
    grouped = s.reshape(-1, group, s.shape[-1])
    return np.repeat(np.sqrt(grouped.var(1, ddof=1) + 1e-6), group, axis=0)


@cases.each("scale", [1, 1e-3])
@cases.each("group", [4, 8])
def test_formula_with_the_authors_epsilons(scale, group):
    """On nearly flat maps epsilon dominates every divisor."""
    x = X * scale
    found = disturb(x, KEY, factor=1.0, group=group)
    noise = sampling.draw_each(lambda k: jax.random.normal(k, (2, 1, 4)), KEY, 8)
    noise = np.asarray(noise)[:, :, 0]
    mean, std = stats(x)
    new_mean = mean + noise[:, 0] * spread(mean, group)
    new_std = std + noise[:, 1] * spread(std, group)
    content = (np.asarray(x, np.float64) - mean[:, None, None]) / std[:, None, None]
    expected = content * new_std[:, None, None] + new_mean[:, None, None]
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-5 * scale)


@pytest.mark.slow
def test_noise_is_normal_for_each_image_and_channel():
    """Noise is in units of the statistic's deviation between images of a group."""
    x = jnp.tile(X, (100, 1, 1, 1))
    found = disturb(x, KEY, factor=1.0, group=8)
    mean, std = stats(x)
    new_mean = np.asarray(found, np.float64).mean((1, 2))
    moved = (new_mean - mean) / spread(mean, 8)
    assert scipy.stats.kstest(moved.ravel(), "norm").pvalue > 0.001
    # The sign of a deviation cannot be seen in the output's.
    new_std = np.asarray(found, np.float64).std((1, 2), ddof=1)
    signed = np.sign(np.einsum("bhwc,bhwc->bc", found - new_mean[:, None, None], x))
    turned = (signed * new_std - std) / spread(std, 8)
    assert scipy.stats.kstest(turned.ravel(), "norm").pvalue > 0.001
    assert abs(np.corrcoef(moved.ravel(), turned.ravel())[0, 1]) < 0.06
    assert np.abs(np.corrcoef(moved.T)[np.triu_indices(4, 1)]).max() < 0.15


@pytest.mark.slow
def test_factor_scales_the_noise():
    still = disturb(X, KEY, factor=0.0, group=8)
    np.testing.assert_allclose(still, X, atol=1e-5)
    once, twice = (disturb(X, KEY, factor=f, group=8) for f in (1.0, 2.0))
    np.testing.assert_allclose(twice - X, 2 * (once - X), atol=1e-4)


def test_groups_have_spreads_of_their_own():
    moved = X.at[4:].multiply(3.0)
    found, other = (disturb(x, KEY, factor=1.0, group=4) for x in (X, moved))
    np.testing.assert_allclose(found[:4], other[:4], atol=1e-6)
    whole = disturb(X, KEY, factor=1.0, group=8)
    assert np.abs(whole[:4] - found[:4]).max() > 1e-2


def test_equal_images_hardly_move():
    x = jnp.tile(X[:1], (8, 1, 1, 1))
    found = disturb(x, KEY, factor=1.0, group=8)
    # Their spread is that of epsilon, 1e-3, times normal noise.
    assert 1e-4 < np.abs(found - x).max() < 2e-2


def test_gradients_pass_all_statistics():
    """Gradients also pass through the statistics of other images of the group."""
    x = X[:4, :3, :2, :2]
    jacobian = jax.jit(jax.jacrev(lambda x: disturb(x, KEY, factor=1.0, group=2)))(x)
    size = np.asarray(jnp.abs(jacobian).sum((1, 2, 3, 5, 6, 7))) > 1e-4
    expected = np.kron(np.eye(2, dtype=bool), np.ones((2, 2), bool))
    np.testing.assert_array_equal(size, expected)


def test_half_precision_goes_through_float32():
    found = disturb(X.astype(jnp.bfloat16), KEY, factor=1.0, group=4)
    assert found.dtype == jnp.bfloat16


@pytest.mark.slow
def test_acts_at_the_authors_six_sites(net):
    seen, acted = [], []
    inner = dsu.make(net, p=1.0, mix_group=2).net.tap

    def tap(x, site, key):
        seen.append(site)
        y = inner(x, site, key)
        acted.extend([site] * (y is not x))
        return y

    tapped = models.MODELS["resnet50"](5, width=8, tap=tap)
    image = jnp.zeros((2, 64, 64, 3))
    variables = jax.eval_shape(tapped.init, KEY, image)
    jax.eval_shape(
        lambda v: tapped.apply(v, image, KEY, train=True, mutable=["stats"]), variables
    )
    assert acted == ["stem.conv", "stem", "stage1", "stage2", "stage3", "stage4"]
    assert len(seen) == 54


@pytest.mark.slow
def test_one_gate_a_site_for_the_whole_batch(net):
    p = 0.3
    tap = tap_of(net, p=p, mix_group=4)
    x = X[:, :2, :1, :1]

    @jax.jit
    @jax.vmap
    def changed(key):
        return jnp.abs(tap(x, "stem", key) - x).max((1, 2, 3)) > 1e-5

    seen = np.asarray(changed(jax.random.split(KEY, 1000)))
    np.testing.assert_array_equal(seen.any(axis=1), seen.all(axis=1))
    assert seen.mean() == pytest.approx(p, abs=4 * (p * (1 - p) / 1000) ** 0.5)


def test_options_may_come_at_run_time(net):
    @jax.jit
    def run(p, factor):
        tap = tap_of(net, p=p, factor=factor, mix_group=4)
        return tap(X, "stage1", KEY)

    np.testing.assert_array_equal(run(0.0, 1.0), X)
    once, twice = run(1.0, 1.0), run(1.0, 2.0)
    np.testing.assert_allclose(twice - X, 2 * (once - X), atol=1e-4)


@pytest.mark.slow
@cases.each("p", [0.0, 0.5, 1.0])
def test_a_tpus_step_learns_the_same(p, net, variables, batch):
    """With statistics read in every step, loss, statistics and gradients are a CPU's."""
    algo = dsu.make(net, p=jnp.array(p), mix_group=4)  # An array: 0 is no ERM.
    stats = {"net": variables["stats"]}

    def learned(params):
        losses, aux = algo.losses({"net": params}, stats, batch, jax.random.key(3))
        return losses["class"], aux.stats

    def step(platform):
        with xla.compiling_for(platform):
            learn = jax.jit(jax.value_and_grad(learned, has_aux=True))
            return learn(variables["params"])

    close = functools.partial(np.testing.assert_allclose, rtol=2e-4, atol=2e-5)
    jax.tree.map(close, step("tpu"), step("cpu"))


def test_a_tpu_has_no_condition_around_a_map(net):
    """A branch would copy its maps to another layout."""

    def takes_map(jaxpr):
        """Return whether a condition in the program has an operand of X's shape."""
        for eqn in jaxpr.eqns:
            operands = eqn.invars if eqn.primitive.name == "cond" else ()
            if any(x.aval.shape == X.shape for x in operands):
                return True
        inner = (core.jaxprs_in_params(eqn.params) for eqn in jaxpr.eqns)
        return any(map(takes_map, itertools.chain.from_iterable(inner)))

    def gradient(platform):
        def loss(x):
            tap = tap_of(net, p=0.5, mix_group=4)
            return jnp.sum(tap(x, "stage1", KEY) ** 2)

        with xla.compiling_for(platform):
            return jax.make_jaxpr(jax.grad(loss))(X).jaxpr

    assert takes_map(gradient("cpu"))
    assert not takes_map(gradient("tpu"))


def test_single_pixels_are_refused(net):
    with pytest.raises(ValueError, match="at least 2 pixels"):
        tap_of(net, mix_group=4)(X[:, :1, :1], "stage4", KEY)


@cases.each(
    ("options", "message"),
    [
        ({"p": -0.1}, r"p must be in \[0, 1\], got -0.1"),
        ({"factor": -1.0}, "factor must be at least 0, got -1.0"),
        ({"sites": ("layer1",)}, "sites must be some of stem.conv, stem, stage1"),
        ({"sites": ()}, "sites must be some of"),
        ({"mix_group": 1}, "mix_group must be at least 2, to have a deviation, got 1"),
    ],
)
def test_refuses(options, message, net):
    with pytest.raises(ValueError, match=f"dsu: {message}"):
        dsu.make(net, **options)
