"""Laws of the networks other than ResNets: cuts, sites, taps, gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import models
from jbias.models import taps
from tests import cases

KEY = jax.random.key(0)
# Options that make a network small, and a size of images.
SMALL = {
    "vgg11_bn": (dict(width=4, hidden=8), 32),
    "alexnet": (dict(width=4, hidden=8), 64),
    "preact_resnet18": (dict(width=4, depths=(1, 1, 1, 1)), 16),
    "densenet121": (dict(depths=(1, 2, 1, 1), growth=4, width=8), 32),
    "mobilenetv3_small": (
        dict(
            multiplier=0.5,
            hidden=16,
            blocks=(
                ((3, 32, 8, True, False, 2),),
                ((3, 48, 16, False, False, 2), (3, 48, 16, False, False, 1)),
                ((5, 48, 16, True, True, 2),),
                ((5, 48, 16, True, True, 1),),
            ),
        ),
        32,
    ),
    "squeezenet1_1": (dict(squeezed=4, stem_width=8), 32),
    "bagnet9": (dict(width=4, depths=(1, 1, 1, 1)), 16),
}
ALIKE = ("vgg11_bn", "preact_resnet18", "bagnet9")


@functools.cache
def make_net(name):
    """Return a small network, arbitrary weights, and images."""
    options, side = SMALL[name]
    net = models.MODELS[name](5, **options)
    image = jax.random.uniform(jax.random.key(1), (4, side, side, 3))
    shapes = jax.eval_shape(net.init, KEY, image)
    rng = np.random.default_rng(0)

    def draw(path, x):
        if path[-1].key in ("scale", "var"):
            return np.ones(x.shape, np.float32)
        gain = (2 / max(1, np.prod(x.shape[:-1]))) ** 0.5 if len(x.shape) > 1 else 0.1
        return (gain * rng.standard_normal(x.shape)).astype(np.float32)

    return net, jax.tree_util.tree_map_with_path(draw, shapes), image


@pytest.fixture(params=SMALL)
def small(request):
    return make_net(request.param)


@pytest.mark.slow
@pytest.mark.quick("alexnet")
def test_features_and_head_compose_to_the_network(small):
    """features and head_of compose to the whole network, for all cuts."""
    net, variables, image = small

    @jax.jit
    def cut(variables, image):
        composed = []
        for stop in range(1, 6):
            f = net.apply(variables, image, method="features", stop=stop)
            composed.append(net.apply(variables, f, method="head_of", start=stop))
        return net.apply(variables, image), composed

    expected, composed = cut(variables, image)
    assert expected.dtype == jnp.float32
    assert np.ptp(expected, axis=0).max() > 0.01
    for logits in composed:
        np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.quick("alexnet", "preact_resnet18", "bagnet9")
@cases.each("cut", [0, 6])
def test_cuts_outside_the_network_are_refused(small, cut):
    net, variables, image = small
    with pytest.raises(ValueError, match="stop must be in 1 to 5"):
        net.apply(variables, image, method="features", stop=cut)
    with pytest.raises(ValueError, match="start must be in 1 to 5"):
        net.apply(variables, image, method="head_of", start=cut)


@pytest.mark.slow
@cases.each("start", [1, 3, 5], quick=("3",))
def test_a_head_is_initialised_alone(small, start):
    net, variables, image = small
    f = jax.eval_shape(
        lambda v, x: net.apply(v, x, method="features", stop=start), variables, image
    )
    head = jax.eval_shape(
        lambda k, x: net.init(k, x, method="head_of", start=start), KEY, f
    )
    for kind, collection in variables.items():
        expected = {k: v for k, v in collection.items() if net.stage_of(k) >= start}
        head_collection = head.get(kind, {})
        assert jax.tree.map(jnp.shape, head_collection) == jax.tree.map(
            jnp.shape, expected
        )


@pytest.mark.quick("alexnet", "vgg11_bn", "preact_resnet18")
def test_parameters_and_logits_are_float32_in_every_precision(small):
    net, _, image = small
    net = net.clone(dtype=jnp.bfloat16)
    logits, variables = jax.eval_shape(net.init_with_output, KEY, image)
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves((logits, variables)))
    f = jax.eval_shape(
        lambda v, x: net.apply(v, x, method="features"), variables, image
    )
    assert f.dtype == jnp.bfloat16


@pytest.mark.quick("alexnet", "preact_resnet18", "vgg11_bn")
def test_training_with_dropout_needs_a_key(small):
    net, variables, image = small
    net = net.clone(dropout=0.5)
    with pytest.raises(ValueError, match="needs a key"):
        jax.eval_shape(
            lambda v, x: net.apply(v, x, train=True, mutable=["stats"]),
            variables,
            image,
        )


@pytest.mark.slow
@pytest.mark.quick("densenet121", "preact_resnet18")
def test_dropout_acts_in_training_only(small):
    """Two training passes differ only by the key; evaluation has no dropout."""
    net, variables, image = small

    shape = jax.eval_shape(
        lambda v, x: net.apply(v, x, method="features", stop=5), variables, image
    ).shape
    f = np.random.default_rng(0).random(shape, np.float32)

    @jax.jit
    def run(variables, key):
        options = dict(train=True, method="head_of", start=5, mutable=["stats"])
        dropped = net.clone(dropout=0.5).apply(variables, f, key, **options)[0]
        without_dropout = net.clone(dropout=0.0).apply(variables, f, key, **options)[0]
        return (
            dropped,
            without_dropout,
            net.apply(variables, f, method="head_of", start=5),
        )

    dropped, without_dropout, plain = run(variables, KEY)
    np.testing.assert_allclose(without_dropout, plain, rtol=1e-5, atol=1e-5)
    assert not np.allclose(dropped, run(variables, jax.random.key(2))[0])


def test_the_last_linear_layer_is_fc(small):
    net, variables, _ = small
    last = variables["params"]["fc"]
    assert last["bias"].shape == (5,)
    assert net.stage_of("fc") == 5
    assert {net.stage_of(name) for name in variables["params"]} >= {0, 1, 5}


def test_names_of_batch_norms_begin_with_bn(small):
    """Names of batch norms begin with "bn"; SagNet finds the norms of the trunk by them."""
    _, variables, _ = small
    stats = variables.get("stats", {})
    for path, _ in jax.tree_util.tree_leaves_with_path(stats):
        assert path[-2].key.startswith("bn")


@pytest.mark.quick("alexnet", "preact_resnet18", "densenet121")
def test_sites_are_in_order_and_unique(small):
    net, variables, image = small
    sites = taps.sites(net, image.shape[1])
    assert len(set(sites)) == len(sites)
    stages = [site for site in sites if "." not in site and "fc" not in site]
    assert stages == ["stem", "stage1", "stage2", "stage3", "stage4"]
    # Inside a stage are its own sites alone, convolutions among them.
    inside = "stem"
    for site in sites[: sites.index("stage4") + 1]:
        assert site.partition(".")[0] == inside
        if site == inside:
            inside = "stage" + str(stages.index(site) + 1)
    for stage in stages:
        assert any(site.startswith(f"{stage}.") and "conv" in site for site in sites)
    # Every convolution has a site but those of shortcuts and gates.
    kernels = [
        path
        for path, x in jax.tree_util.tree_leaves_with_path(variables["params"])
        if x.ndim == 4 and path[-2].key != "proj" and "fc" not in path[-2].key
    ]
    assert len([site for site in sites if "conv" in site]) == len(kernels)


@pytest.mark.quick("alexnet", "preact_resnet18", "densenet121")
def test_evaluation_calls_no_tap(small):
    net, variables, image = small

    def tap(x, site, key):
        raise AssertionError(site)

    jax.eval_shape(net.clone(tap=tap).apply, variables, image)


@pytest.mark.quick("alexnet")
def test_a_tap_changes_later_features(small):
    net, variables, image = small

    @jax.jit
    def run(variables, image):
        f = net.apply(variables, image, method="features", stop=4)
        heads = (net, net.clone(tap=lambda x, site, key: x * (site != "stage4")))
        return [
            head.clone(dropout=0.0).apply(
                variables,
                f,
                KEY,
                train=True,
                method="head_of",
                start=4,
                mutable=["stats"],
            )[0]
            for head in heads
        ]

    plain, blind = run(variables, image)
    assert np.ptp(plain, axis=0).max() > 0.01
    assert np.ptp(blind, axis=0).max() == 0


# Compiling gradients takes long; these nets have no layer that the others lack.
@pytest.mark.slow
@pytest.mark.parametrize(
    "small",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ALIKE else ())
        for name in SMALL
    ],
    indirect=True,
)
def test_gradients_are_finite_and_reach_every_weight(small):
    net, variables, image = small

    # It runs once: to compile it without optimising is several times as fast.
    @functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def gradient(params):
        def loss(params):
            all_variables = {**variables, "params": params}
            net_ = net.clone(dropout=0.0)
            logits, _ = net_.apply(
                all_variables, image, KEY, train=True, mutable=["stats"]
            )
            return jnp.sum(jnp.sin(logits))

        return jax.grad(loss)(params)

    gradients = gradient(variables["params"])
    for path, x in jax.tree_util.tree_leaves_with_path(gradients):
        assert np.isfinite(x).all()
        assert np.abs(x).max() > 0, jax.tree_util.keystr(path)


def test_images_of_other_shapes_are_refused(small):
    net, variables, image = small
    for wrong in (image.astype(jnp.uint8), image[..., :1]):
        with pytest.raises(ValueError, match="images must be floats"):
            net.apply(variables, wrong)
