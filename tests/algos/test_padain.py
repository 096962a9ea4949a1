"""Permuted AdaIN: its gates, its sites, and the quantities that it keeps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import models
from jbias.algos import padain
from jbias.models import taps
from jbias.runtime import xla
from jbias.training import convolutions
from tests import cases

X = jax.random.normal(jax.random.key(5), (4, 2, 2, 1))


def conv_sites():
    """Return the sites of ResNet-50 after a convolution, from the net."""
    sites = []

    def tap(x, site, key):
        sites.append(site)
        return x

    net = models.MODELS["resnet50"](5, width=8, stem="small", tap=tap)
    image = jnp.zeros((2, 16, 16, 3))
    key = jax.random.key(0)
    variables = jax.eval_shape(net.init, key, image)
    jax.eval_shape(
        lambda v: net.apply(v, image, key, train=True, mutable=["stats"]), variables
    )
    return [site for site in sites if "conv" in site]


@pytest.mark.quick("0.3")
@pytest.mark.parametrize("p", [0.01, 0.3])
def test_active_sites_are_binomial(p, net):
    """Mean, deviation and probability of none over many forward passes, at 49 sites."""
    sites, passes = conv_sites(), 4000
    tap = padain.make(net, p=p, mix_group=2).net.tap
    keys = jax.random.split(jax.random.key(2), passes)

    @jax.jit
    @jax.vmap
    def acts(key):
        # Even a swap of an image with itself changes bits, by the second epsilon.
        return (tap(X, "stem.conv", key).value != X).any().astype(int)

    active = sum(
        acts(jax.vmap(lambda key, site=site: taps.site_key(key, site))(keys))
        for site in sites
    )
    active = np.asarray(active)
    assert len(sites) == 49
    mean, var = 49 * p, 49 * p * (1 - p)
    assert abs(active.mean() - mean) < 4 * np.sqrt(var / passes)
    # The sample variance of n values of excess kurtosis k spreads by sqrt((2 + k) / n).
    assert abs(active.var() / var - 1) < 4 * np.sqrt((2 + 1 / var) / passes)
    probability_of_none = (1 - p) ** 49
    assert (
        abs((active == 0).mean() - probability_of_none)
        < 4 * np.sqrt(probability_of_none / passes) + 1e-6
    )


@cases.each("site", ["stem", "stage1", "stage4"])
def test_padain_acts_after_convolutions_only(net, site):
    tap = padain.make(net, p=1.0, mix_group=2).net.tap
    assert tap(X, site, jax.random.key(0)) is X


def test_maps_of_a_single_pixel_are_unchanged(net):
    tap = padain.make(net, p=1.0, mix_group=2).net.tap
    x = X[:, :1, :1]
    assert tap(x, "stage4.block0.conv1", jax.random.key(0)) is x


def test_swapping_with_oneself_is_erm_up_to_epsilon(net, variables, image):
    """The only permutation of a group of one image is the identity."""
    key = jax.random.key(0)
    swapped = padain.make(net, p=1.0, mix_group=1).net
    options = {"train": True, "mutable": ["stats"]}

    @jax.jit
    def apply_both(image):
        plain = net.apply(variables, image, key, **options)
        return plain, swapped.apply(variables, image, key, **options)

    def assert_close(a, b):
        np.testing.assert_allclose(a, b, atol=1e-3)

    plain, with_swaps = apply_both(image)
    # 1e-5 in the divisor, relative to deviations of about 0.3, at each site.
    jax.tree.map(assert_close, plain, with_swaps)
    assert (plain[0] != with_swaps[0]).any()


@cases.each("seed", range(6))
def test_a_traced_probability_equals_a_constant(net, seed):
    """A traced probability gives the same draws as a constant."""

    def swap(p, key):
        return padain.make(net, p=p, mix_group=4).net.tap(X, "stem.conv", key).value

    key = jax.random.key(seed)
    np.testing.assert_allclose(jax.jit(swap)(0.5, key), swap(0.5, key), rtol=1e-6)


@pytest.mark.slow
def test_running_statistics_follow_swapped_activations(train):
    """The stem's own swap keeps the channel means of the batch but not deviations."""
    swapped = train("padain", p=1.0, mix_group=4)[1].stats["net"]
    plain = train("erm")[1].stats["net"]
    assert (swapped["bn1"]["var"] != plain["bn1"]["var"]).any()


@pytest.mark.slow
@cases.each("p", [0.0, 0.5, 1.0])
def test_batch_norm_rescales_maps(p, net, variables, batch):
    """On accelerators losses, statistics and gradients are those of the rescaled map."""
    algo = padain.make(net, p=p, mix_group=4)
    stats = {"net": variables["stats"]}

    def learned(params):
        losses, aux = algo.losses({"net": params}, stats, batch, jax.random.key(3))
        return losses["class"], aux.stats

    def step(platform):
        with xla.compiling_for(platform):
            return jax.jit(jax.value_and_grad(learned, has_aux=True))(
                variables["params"]
            )

    def assert_close(a, b):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)

    jax.tree.map(assert_close, step("tpu"), step("cpu"))


@pytest.mark.slow
@pytest.mark.parametrize("unrolled", [False, True])
def test_seeds_in_one_program_share_the_condition(unrolled, net, variables, batch):
    """On accelerators all seeds share a condition, and each seed has its own gradient."""
    algo = padain.make(net, p=0.05, mix_group=4)
    stats = {"net": variables["stats"]}

    def step(params, key, shared=None, static=None):
        del shared, static

        def loss(params):
            return algo.losses({"net": params}, stats, batch, key)[0]["class"]

        return jax.value_and_grad(loss)(params)

    keys = jax.random.split(jax.random.key(0), 2)
    params = jax.tree.map(lambda x: jnp.stack([x, 1.1 * x]), variables["params"])
    with xla.compiling_for("tpu"):

        def step_all(params, keys):
            if unrolled:
                return convolutions.over_seeds(step)(params, keys, None, None)
            return jax.vmap(step)(params, keys)

        program = jax.make_jaxpr(step_all)(params, keys)
        assert "cond" in {eqn.primitive.name for eqn in program.eqns}
        together = jax.jit(step_all)(params, keys)
        single = [
            jax.jit(step)(jax.tree.map(lambda x, i=i: x[i], params), keys[i])
            for i in range(2)
        ]

    def assert_close(a, b):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)

    expected = jax.tree.map(lambda *x: jnp.stack(x), *single)
    jax.tree.map(assert_close, together, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    "constants", [{"binary": True}, {"views": 2, "consistency": 12.0}]
)
def test_constants_of_a_batch_stay_python_numbers(constants, net, variables, batch):
    """Numbers in a batch that losses use stay Python numbers inside the condition."""
    algo, stats = padain.make(net, p=0.5, mix_group=4), {"net": variables["stats"]}
    batch = {**batch, **constants}

    def loss(params):
        key = jax.random.key(3)
        return algo.losses({"net": params}, stats, batch, key)[0]["class"]

    def step(platform):
        with xla.compiling_for(platform):
            return jax.jit(jax.value_and_grad(loss))(variables["params"])

    def assert_close(a, b):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)

    jax.tree.map(assert_close, step("cpu"), step("tpu"))


def test_gradients_by_the_image_are_refused(net, variables, batch):
    """Off the CPU a gradient by the image is refused; it would be zero without an error."""
    algo, stats = padain.make(net, p=0.5, mix_group=4), {"net": variables["stats"]}

    def loss(image):
        params, key = {"net": variables["params"]}, jax.random.key(3)
        return algo.losses(params, stats, {**batch, "image": image}, key)[0]["class"]

    with xla.compiling_for("tpu"), pytest.raises(jax.errors.UnexpectedTracerError):
        jax.grad(loss)(batch["image"])
