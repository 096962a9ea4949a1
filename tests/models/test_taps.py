"""Reading the features at the sites of a network in evaluation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import models
from jbias.models import taps
from tests import cases

KEY = jax.random.key(0)
IMAGE = jax.random.uniform(KEY, (2, 16, 16, 3))


@pytest.fixture(scope="module", params=["cnn", "resnet18"])
def net(request):
    options = {} if request.param == "cnn" else dict(stem="small", depths=(1, 1, 1, 1))
    return models.MODELS[request.param](5, width=8, **options)


QUICK = ("preact_resnet18", "vgg11", "vit_small32")


@pytest.mark.slow
@cases.each(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in models.MODELS
    ],
)
def test_features_and_gradients_can_be_read_in_every_network(name):
    """Sites can be read also if a submodule has the name of a site."""
    net = models.MODELS[name](5)
    image = jax.ShapeDtypeStruct((2, 64, 64, 3), jnp.float32)
    variables = jax.eval_shape(net.init, KEY, image)
    _, features = jax.eval_shape(functools.partial(taps.read, net), variables, image)
    assert set(features) == set(taps.sites(net, 64))
    site = [site for site in features if site.startswith(("stage", "block"))][-1]

    def pull(variables, image):
        return taps.site_gradient(net, variables, image, site, lambda z: z.max(-1))

    for array in jax.eval_shape(pull, variables, image):
        assert array.shape == features[site].shape


@pytest.mark.slow
def test_reading_changes_no_logit(net):
    """Logits with and without reading are equal to the bit in one program."""
    order, rng = [], np.random.default_rng(0)
    # Drawn by numpy: jax's draws take long to compile. Variances are positive.
    variables = jax.tree.map(
        lambda x: rng.uniform(0, 0.1, x.shape).astype(np.float32),
        jax.eval_shape(net.init, KEY, IMAGE),
    )

    @jax.jit
    def run(variables, image):
        plain = net.apply(variables, image)
        f = net.apply(variables, image, method="features")
        logits, features = taps.read(net, variables, image)
        order.extend(features)
        return logits, features, plain, f

    logits, features, plain, f = run(variables, IMAGE)
    assert jnp.array_equal(logits, plain) and jnp.ptp(logits) > 0
    assert order == list(taps.sites(net, 16))
    assert jnp.array_equal(features["stage2"], f)


def test_sites_are_in_the_order_of_the_network(net):
    sites = taps.sites(net, 16)
    assert sites[-2:] == ("stage2.conv", "stage2") or sites[:2] == (
        "stem.conv",
        "stem",
    )
    assert len(set(sites)) == len(sites)


def test_reading_adds_no_variables(net):
    assert set(jax.eval_shape(net.init, KEY, IMAGE)) == {"params", "stats"}


@pytest.mark.slow
def test_the_gradient_at_a_stage_equals_that_of_its_head(net):
    """At a stage the gradient equals that of head_of, to the bit."""
    variables = net.init(KEY, IMAGE)

    def score(logits):
        return logits.max(-1)

    x, gradient = taps.site_gradient(net, variables, IMAGE, "stage2", score)
    stage_features = net.apply(variables, IMAGE, method="features", stop=3)
    head_gradient = jax.grad(
        lambda f: score(net.apply(variables, f, method="head_of", start=3)).sum()
    )(stage_features)
    assert jnp.array_equal(x, stage_features)
    assert jnp.array_equal(gradient, head_gradient) and bool((head_gradient != 0).any())


@pytest.mark.slow
def test_the_gradient_inside_a_block_is_the_finite_difference():
    net = models.MODELS["resnet18"](5, width=8, stem="small")
    variables = net.init(KEY, IMAGE)
    site = "stage4.block1.conv1"
    x, gradient = taps.site_gradient(net, variables, IMAGE, site, lambda z: z[:, 0])
    step = 1e-2 * jax.random.normal(KEY, x.shape)
    added = {"added": {"stage4_block1": {taps.variable_name(site): step}}}
    moved = net.apply({**variables, **added}, IMAGE)[:, 0]
    unmoved = net.apply(variables, IMAGE)[:, 0]
    slope = (gradient * step).sum((1, 2, 3))
    assert jnp.allclose(moved - unmoved, slope, rtol=0.05, atol=1e-6)
    assert x.shape == (2, 2, 2, 64)


@pytest.mark.slow
def test_gradients_at_unknown_sites_are_refused(net):
    variables = net.init(KEY, IMAGE)
    with pytest.raises(ValueError, match="site must be one of .*stage1.*got 'stage9'"):
        taps.site_gradient(net, variables, IMAGE, "stage9", lambda z: z[:, 0])
