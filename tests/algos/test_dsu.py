"""DSU: the noise of statistics, the groups of its spread, and its sites."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.extend import core

from jbias import models
from jbias.algos import dsu
from jbias.augment import feature_stats, random_numbers
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


def perturb_map(x, key, *, factor, group):
    def change(mean, var, key):
        return dsu.perturb(mean, var, key, factor=factor, group=group)

    acts = jnp.array(True)
    affine = feature_stats.gated_affine(x, acts, change, key)
    return taps.Rescaled(
        x, affine.scale, affine.shift, mean=affine.mean, var=affine.var, acts=acts
    ).value


def tap_of(net, **options):
    """Return the tap of an algorithm with its result rescaled."""
    tap = dsu.make(net, **options).net.tap

    def apply(*args):
        y = tap(*args)
        return y.value if isinstance(y, taps.Rescaled) else y

    return apply


def spread(s, group):
    """Return the deviation of a statistic inside each image's group."""
    grouped = s.reshape(-1, group, s.shape[-1])
    return np.repeat(np.sqrt(grouped.var(1, ddof=1) + 1e-6), group, axis=0)


@cases.each("scale", [1, 1e-3])
@cases.each("group", [4, 8])
def test_formula_with_the_authors_epsilons(scale, group):
    """On nearly flat maps epsilon dominates every divisor."""
    x = X * scale
    disturbed = perturb_map(x, KEY, factor=1.0, group=group)
    noise = random_numbers.draw_each(lambda k: jax.random.normal(k, (2, 1, 4)), KEY, 8)
    noise = np.asarray(noise)[:, :, 0]
    mean, std = stats(x)
    new_mean = mean + noise[:, 0] * spread(mean, group)
    new_std = std + noise[:, 1] * spread(std, group)
    content = (np.asarray(x, np.float64) - mean[:, None, None]) / std[:, None, None]
    expected = content * new_std[:, None, None] + new_mean[:, None, None]
    np.testing.assert_allclose(disturbed, expected, rtol=2e-3, atol=1e-5 * scale)


@pytest.mark.slow
def test_noise_is_normal_for_each_image_and_channel():
    """Noise is in units of the statistic's deviation between images of a group."""
    x = jnp.tile(X, (100, 1, 1, 1))
    disturbed = perturb_map(x, KEY, factor=1.0, group=8)
    mean, std = stats(x)
    new_mean = np.asarray(disturbed, np.float64).mean((1, 2))
    mean_noise = (new_mean - mean) / spread(mean, 8)
    assert scipy.stats.kstest(mean_noise.ravel(), "norm").pvalue > 0.001
    # The output's deviation loses its sign: recover the sign by the products.
    new_std = np.asarray(disturbed, np.float64).std((1, 2), ddof=1)
    signed = np.sign(np.einsum("bhwc,bhwc->bc", disturbed - new_mean[:, None, None], x))
    std_noise = (signed * new_std - std) / spread(std, 8)
    assert scipy.stats.kstest(std_noise.ravel(), "norm").pvalue > 0.001
    assert abs(np.corrcoef(mean_noise.ravel(), std_noise.ravel())[0, 1]) < 0.06
    assert np.abs(np.corrcoef(mean_noise.T)[np.triu_indices(4, 1)]).max() < 0.15


@pytest.mark.slow
def test_factor_scales_the_noise():
    still = perturb_map(X, KEY, factor=0.0, group=8)
    np.testing.assert_allclose(still, X, atol=1e-5)
    once, twice = (perturb_map(X, KEY, factor=f, group=8) for f in (1.0, 2.0))
    np.testing.assert_allclose(twice - X, 2 * (once - X), atol=1e-4)


def test_groups_have_separate_spreads():
    moved = X.at[4:].multiply(3.0)
    in_fours = perturb_map(X, KEY, factor=1.0, group=4)
    other = perturb_map(moved, KEY, factor=1.0, group=4)
    np.testing.assert_allclose(in_fours[:4], other[:4], atol=1e-6)
    in_eights = perturb_map(X, KEY, factor=1.0, group=8)
    assert np.abs(in_eights[:4] - in_fours[:4]).max() > 1e-2


def test_equal_images_hardly_change():
    x = jnp.tile(X[:1], (8, 1, 1, 1))
    disturbed = perturb_map(x, KEY, factor=1.0, group=8)
    # Their spread is that of epsilon, 1e-3, times normal noise.
    assert 1e-4 < np.abs(disturbed - x).max() < 2e-2


def test_gradients_pass_all_statistics():
    """Gradients also pass through the statistics of other images of the group."""
    x = X[:4, :3, :2, :2]
    jacobian = jax.jit(jax.jacrev(lambda x: perturb_map(x, KEY, factor=1.0, group=2)))(
        x
    )
    size = np.asarray(jnp.abs(jacobian).sum((1, 2, 3, 5, 6, 7))) > 1e-4
    expected = np.kron(np.eye(2, dtype=bool), np.ones((2, 2), bool))
    np.testing.assert_array_equal(size, expected)


def test_half_precision_goes_through_float32():
    disturbed = perturb_map(X.astype(jnp.bfloat16), KEY, factor=1.0, group=4)
    assert disturbed.dtype == jnp.bfloat16


@pytest.mark.slow
def test_dsu_acts_at_the_authors_six_sites(net):
    sites, acted = [], []
    inner = dsu.make(net, p=1.0, mix_group=2).net.tap

    def tap(x, site, key):
        sites.append(site)
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
    assert len(sites) == 54


@pytest.mark.slow
def test_a_site_has_one_gate_for_the_whole_batch(net):
    p = 0.3
    tap = tap_of(net, p=p, mix_group=4)
    x = X[:, :2, :1, :1]

    @jax.jit
    @jax.vmap
    def changed(key):
        return jnp.abs(tap(x, "stem", key) - x).max((1, 2, 3)) > 1e-5

    is_changed = np.asarray(changed(jax.random.split(KEY, 1000)))
    np.testing.assert_array_equal(is_changed.any(axis=1), is_changed.all(axis=1))
    assert is_changed.mean() == pytest.approx(p, abs=4 * (p * (1 - p) / 1000) ** 0.5)


def test_options_may_be_traced(net):
    @jax.jit
    def run(p, factor):
        tap = tap_of(net, p=p, factor=factor, mix_group=4)
        return tap(X, "stage1", KEY)

    np.testing.assert_array_equal(run(0.0, 1.0), X)
    once, twice = run(1.0, 1.0), run(1.0, 2.0)
    np.testing.assert_allclose(twice - X, 2 * (once - X), atol=1e-4)


@pytest.mark.slow
@cases.each("p", [0.0, 0.5, 1.0])
def test_a_tpu_step_equals_a_cpu_step(p, net, variables, batch):
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

    def assert_close(a, b):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)

    jax.tree.map(assert_close, step("tpu"), step("cpu"))


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
def test_bad_options_are_refused(options, message, net):
    with pytest.raises(ValueError, match=f"dsu: {message}"):
        dsu.make(net, **options)
