"""Laws of the ResNets: sizes, cuts, taps, initialisation."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import models
from jbias.models import taps
from tests import cases

COUNTS = {
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "resnext50": 25_028_904,
}
KEY = jax.random.key(0)
IMAGE = jax.random.uniform(jax.random.key(1), (4, 16, 16, 3))


def tiny(**options):
    return models.MODELS["resnet18"](5, width=8, stem="small", **options)


def draw_variables(net):
    """Return arbitrary weights; proper initialisation takes long to compile."""
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda x: rng.uniform(0, 0.1, x.shape).astype(np.float32), shapes(net)
    )


@pytest.fixture(scope="module")
def variables():
    return draw_variables(tiny())


def shapes(net, image=IMAGE, **kw):
    return jax.eval_shape(lambda k, x: net.init(k, x, **kw), KEY, image)


def test_every_model_has_a_published_parameter_count():
    assert {name for name in models.MODELS if name.startswith("resne")} == set(COUNTS)


@pytest.mark.slow
@cases.each(
    "name",
    COUNTS,
    quick=(
        "resnet18",
        "resnet34",
        "resnext50",
    ),
)
def test_published_parameter_counts(name):
    params = shapes(models.MODELS[name](1000))["params"]
    assert sum(math.prod(x.shape) for x in jax.tree.leaves(params)) == COUNTS[name]


@pytest.mark.slow
@cases.each("name", COUNTS, quick=("resnet18",))
@cases.each("stem", ["imagenet", "small"])
@cases.each("dtype", [jnp.float32, jnp.bfloat16])
def test_parameters_and_logits_are_float32(name, stem, dtype):
    net = models.MODELS[name](7, width=16, stem=stem, dtype=dtype)
    logits, variables = jax.eval_shape(
        lambda k, x: net.init_with_output(k, x), KEY, IMAGE
    )
    assert logits.shape == (4, 7)
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves((logits, variables)))


@pytest.mark.slow
@cases.each(
    ("stem", "sides"), [("imagenet", (16, 16, 8, 4, 2)), ("small", (64, 64, 32, 16, 8))]
)
def test_strides(stem, sides):
    net = models.MODELS["resnet50"](7, width=8, stem=stem)
    image = jnp.zeros((1, 64, 64, 3))
    variables = shapes(net, image)
    for stop, (side, channels) in enumerate(zip(sides, (8, 32, 64, 128, 256)), 1):
        f = jax.eval_shape(
            lambda v, x, stop=stop: net.apply(v, x, method="features", stop=stop),
            variables,
            image,
        )
        assert f.shape == (1, side, side, channels)


@pytest.mark.slow
@cases.each("cut", [2, 3, 4, 5])
def test_head_of_features_is_the_net(variables, cut):
    net = tiny()
    f = net.apply(variables, IMAGE, method="features", stop=cut)
    logits = net.apply(variables, f, method="head_of", start=cut)
    np.testing.assert_array_equal(logits, net.apply(variables, IMAGE))


@cases.each("cut", [0, 6])
def test_cuts_outside_the_network_are_refused(variables, cut):
    with pytest.raises(ValueError, match="stop must be in 1 to 5"):
        tiny().apply(variables, IMAGE, method="features", stop=cut)
    with pytest.raises(ValueError, match="start must be in 1 to 5"):
        tiny().apply(variables, IMAGE, method="head_of", start=cut)


@pytest.mark.slow
@cases.each("start", [2, 3, 5])
def test_a_head_is_initialised_alone(start):
    net = tiny()
    all_shapes = shapes(net)
    f = jax.eval_shape(
        lambda v, x: net.apply(v, x, method="features", stop=start), all_shapes, IMAGE
    )
    head = shapes(net, f, method="head_of", start=start)
    for kind in ("params", "stats"):
        expected = {
            k: v for k, v in all_shapes[kind].items() if net.stage_of(k) >= start
        }
        # A linear layer has no statistics.
        assert head.get(kind, {}) == expected


def test_stages_of_modules(variables):
    stages = {name: tiny().stage_of(name) for name in variables["params"]}
    assert stages.pop("conv1") == stages.pop("bn1") == 0
    assert stages.pop("fc") == 5
    assert stages == {f"stage{i}_block{j}": i for i in range(1, 5) for j in range(2)}


@pytest.mark.slow
def test_sites_of_taps():
    tapped = {}

    def tap(x, site, key):
        assert site not in tapped
        tapped[site] = (x.shape[-1], key)
        return x

    net = models.MODELS["resnet50"](5, width=8, stem="small", tap=tap)
    variables = shapes(net)
    jax.eval_shape(net.apply, variables, IMAGE)
    assert not tapped  # Neither initialisation nor evaluation calls it.

    @jax.jit
    def keys(variables):
        net.apply(variables, IMAGE, KEY, train=True, mutable=["stats"])
        return {site: jax.random.key_data(key) for site, (_, key) in tapped.items()}

    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), variables)
    draw_variables = {tuple(np.asarray(k)) for k in keys(zeros).values()}
    convs = [site for site in tapped if "conv" in site]
    # The stem and three in each of 16 blocks; projections have none.
    assert len(convs) == 49
    assert convs[:4] == ["stem.conv"] + [f"stage1.block0.conv{i}" for i in (1, 2, 3)]
    assert set(tapped) - set(convs) == {"stem", "stage1", "stage2", "stage3", "stage4"}
    assert tapped["stage1.block0.conv3"][0] == 32
    assert len(draw_variables) == len(tapped)


def test_training_with_dropout_needs_a_key(variables):
    net = tiny(dropout=0.5)
    with pytest.raises(ValueError, match="needs a key"):
        jax.eval_shape(
            lambda v: net.apply(v, IMAGE, train=True, mutable=["stats"]), variables
        )


def test_dropout_is_scaled_and_for_training_only(variables):
    f = jnp.ones((2000, 1, 1, 64))
    net = tiny(dropout=0.25)
    # A linear layer that sums shows what reaches it.
    params = {"fc": {"kernel": jnp.ones((64, 5)), "bias": jnp.zeros(5)}}
    head = {"params": params, "stats": {}}
    dropped = net.apply(head, f, KEY, train=True, method="head_of", start=5)[:, 0]
    # 64 gates of chance 0.75, each passing 4/3: deviation of the mean of 2000 sums.
    spread = (4 / 3) * math.sqrt(64 * 0.75 * 0.25 / 2000)
    assert abs(dropped.mean() - 64) < 5 * spread
    # The sum's own deviation is 4/3 sqrt(64 p (1-p)) = 4.6; 20 gates could not hide.
    assert 4 < dropped.std() < 5.3
    plain = net.apply(head, f, method="head_of", start=5)
    np.testing.assert_array_equal(plain, 64)


@pytest.mark.slow
def test_normalises_images_first(variables):
    """A net with other mean and std equals the net on rescaled images."""
    net, raw = tiny(), tiny(mean=(0.0,) * 3, std=(1.0,) * 3)
    image = (IMAGE - jnp.array(net.mean).reshape(1, 1, 1, 3)) / jnp.array(
        net.std
    ).reshape(1, 1, 1, 3)
    np.testing.assert_allclose(
        raw.apply(variables, image), net.apply(variables, IMAGE), atol=1e-5
    )


@cases.each("image", [jnp.zeros((1, 16, 16, 3), jnp.uint8), jnp.zeros((1, 16, 16, 1))])
def test_images_of_other_shapes_are_refused(variables, image):
    with pytest.raises(ValueError, match="images must be floats"):
        tiny().apply(variables, image)


def test_refuses_an_unknown_stem():
    with pytest.raises(ValueError, match="stem must be"):
        shapes(models.MODELS["resnet18"](5, stem="large"))


@cases.each("option", [dict(groups=2), dict(width_per_group=32)])
def test_plain_blocks_have_no_groups(option):
    with pytest.raises(ValueError, match="are for bottlenecks"):
        shapes(tiny(**option))


def test_groups_have_whole_channels():
    with pytest.raises(ValueError, match="must be a multiple of 64"):
        shapes(models.MODELS["resnext50"](5, width=8))


@pytest.mark.slow
def test_initialisation_is_torchvisions():
    net = models.MODELS["resnet18"](1000, width=32)

    @jax.jit
    def draw(key):  # Only what is looked at, for the compiler's sake.
        params = net.init(key, IMAGE)["params"]
        block, wider = params["stage1_block1"], params["stage2_block0"]
        kernels = block["conv1"]["kernel"], wider["proj"]["kernel"]
        return kernels, params["fc"], (block["bn1"], block["bn2"])

    kernels, linear, norms = draw(KEY)
    for kernel in kernels:
        h, w, _, out = kernel.shape
        expected = math.sqrt(2 / (h * w * out))
        # The deviation of n normal draws has itself the deviation sigma / sqrt(2 n).
        assert abs(kernel.std() / expected - 1) < 5 / math.sqrt(2 * kernel.size)
        # Flax's own default would cut at two deviations.
        assert jnp.abs(kernel).max() > 2.5 * expected
    limit = 1 / math.sqrt(256)
    for x in (linear["kernel"], linear["bias"]):
        assert 0.98 * limit < jnp.abs(x).max() <= limit
        assert abs(x.std() / (limit / math.sqrt(3)) - 1) < 0.1
    for bn in norms:  # The last of a block is not zero either.
        np.testing.assert_array_equal(bn["scale"], 1)
        np.testing.assert_array_equal(bn["bias"], 0)


@pytest.mark.slow
def test_remat_recomputes_blocks_with_equal_gradients():
    """Gradients are equal; four blocks' convolutions occur twice in the program."""

    def short(**options):
        return tiny(depths=(1, 1, 1, 1), **options)

    variables = draw_variables(short())

    def gradient(net):
        def loss(params):
            logits, _ = net.apply(
                {**variables, "params": params}, IMAGE, KEY, train=True, mutable="stats"
            )
            return jnp.sum(jnp.sin(logits))

        return jax.jit(jax.grad(loss)).lower(variables["params"])

    def run(lowered):
        # The program runs once: compilation is the larger cost.
        return lowered.compile({"xla_backend_optimization_level": 0})(
            variables["params"]
        )

    def count_convolutions(lowered):
        # XLA for CPUs undoes rematerialisation: count before compilation.
        return lowered.as_text().count("stablehlo.convolution")

    def assert_close(a, b):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)

    stored, recomputed = gradient(short()), gradient(short(remat=True))
    jax.tree.map(assert_close, run(stored), run(recomputed))
    # Two convolutions per block and three projections.
    assert count_convolutions(recomputed) - count_convolutions(stored) == 11
    assert taps.sites(short(remat=True)) == taps.sites(short())
