"""Every algorithm on every network acts at its sites, or is refused in one line."""

import functools
import itertools

import jax
import jax.numpy as jnp
import pytest

from jbias import algos, models
from jbias.algos import dsu
from jbias.models import taps
from tests import cases, networks
from tests.methods import METHODS

KEY = jax.random.key(0)
BATCH = 4
MIXES = {name for name, method in METHODS.items() if "mix_group" in method.strong}
# Refused pairs of algorithm and network.
REFUSED = {
    (name, network) for name, method in METHODS.items() for network in method.refuses
}
# Tracing all pairs takes a minute; these networks represent the others.
QUICK = ("cnn", "vgg11", "vit_small16", "mobilenetv3_small")


def make_algorithm(algorithm, net, **options):
    """Return the algorithm at full strength, at its default stages, for `BATCH` examples."""
    strong = dict(METHODS[algorithm].strong)
    strong.pop("stages", None)
    group = {"mix_group": BATCH} if algorithm in MIXES else {}
    all_options = {**strong, **group, **options}
    return algos.ALGOS[algorithm](net, **all_options)


@functools.cache
def shapes_of_losses(algorithm, net, side, remedy):
    """Return the shapes of an algorithm's losses on one batch."""
    options = dict(remedy)
    algo = make_algorithm(algorithm, net, **options)
    image = jax.ShapeDtypeStruct((BATCH, side, side, 3), jnp.float32)
    views = METHODS[algorithm].views

    variables = taps.shapes(net, side).variables
    params, stats = {"net": variables["params"]}, {"net": variables.get("stats", {})}
    for name, part in algo.parts.items():
        single = jax.ShapeDtypeStruct((1, *image.shape[1:]), jnp.float32)
        drawn = jax.eval_shape(part, KEY, single, variables)
        params[name], stats[name] = drawn.get("params", {}), drawn.get("stats", {})
    if "style" in params:
        assert params["style"]["fc"] == params["net"]["fc"]

    def run(params, stats, image, key):
        batch = {"image": image, "target": jnp.eye(BATCH, 5)}
        batch |= dict(attribute=jnp.arange(BATCH) % 3, domain=jnp.arange(BATCH) // 2)
        batch |= {"views": views} if views > 1 else {}
        loss_shapes, aux = algo.losses(params, stats, batch, key)
        return loss_shapes, aux.stats

    loss_shapes, new_stats = jax.eval_shape(run, params, stats, image, KEY)
    assert jax.tree.structure(new_stats) == jax.tree.structure(stats)
    return loss_shapes


@cases.each(("algorithm", "network"), sorted(REFUSED), quick=("sagnet",))
def test_unsupported_pairs_are_refused_in_one_line(algorithm, network):
    net, _ = networks.small(network)
    with pytest.raises(ValueError, match=METHODS[algorithm].refusal) as refusal:
        make_algorithm(algorithm, net)
    assert type(net).__name__ in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.slow
@cases.each(
    ("algorithm", "network"),
    [
        pytest.param(
            algorithm, network, marks=() if network in QUICK else pytest.mark.slow
        )
        for algorithm, network in itertools.product(algos.ALGOS, models.MODELS)
        if (algorithm, network) not in REFUSED or METHODS[algorithm].remedy
    ],
    quick=("sagnet",),
)
def test_updates_follow_losses_that_exist(algorithm, network):
    net, side = networks.small(network)
    method = METHODS[algorithm]
    remedy = method.remedy if network in method.refuses else {}
    loss_shapes = shapes_of_losses(algorithm, net, side, tuple(remedy.items()))
    updates = {
        update.loss for update in make_algorithm(algorithm, net, **remedy).updates
    }
    assert updates <= set(loss_shapes) and all(
        x.shape == () for x in loss_shapes.values()
    )


@functools.cache
def sites_of_taps(net, side):
    """Return {algorithm: sites where its tap changes features}, by one trace."""
    names = ("dsu", "efdmix", "mixstyle", "padain")
    tap_by_name = {name: make_algorithm(name, net).net.tap for name in names}
    sites = {name: [] for name in names}

    def note(x, site, key):
        for name, tap in tap_by_name.items():
            y = tap(x, site, key)
            y = y.value if isinstance(y, taps.Rescaled) else y
            assert (y.shape, y.dtype) == (x.shape, x.dtype)
            if y is not x:
                sites[name].append(site)
        return x

    image = jax.ShapeDtypeStruct((BATCH, side, side, 3), jnp.float32)
    noting = net.clone(tap=note)
    jax.eval_shape(lambda key, x: noting.init(key, x, key, train=True), KEY, image)
    return sites


@cases.each(
    "network",
    models.MODELS,
    quick=(
        "resnet18",
        "cnn",
        "resnet34",
    ),
)
def test_taps_act_at_their_sites(network):
    net, side = networks.small(network)
    sites = sites_of_taps(net, side)
    assert sites["mixstyle"] == sites["efdmix"] == ["stage1", "stage2"]
    assert sites["dsu"] == list(dsu.default_sites(net))
    first_site, *later_sites = sites["dsu"]
    stages = ["stem", "stage1", "stage2", "stage3", "stage4"]
    assert "conv" in first_site
    assert later_sites == (["stage1", "stage2"] if network == "cnn" else stages)
    shapes = taps.shapes(net, side).sites
    swapped = [s for s, x in shapes.items() if "conv" in s and x[1] * x[2] > 1]
    assert sites["padain"] == swapped != []


@cases.each(
    ("algorithm", "network", "options", "message"),
    [
        *(
            (
                name,
                "cnn",
                {"stages": (2, 3)},
                "stages .* stage1-2.conv, stage1-2, .*CNN",
            )
            for name in ("mixstyle", "efdmix")
        ),
        ("dsu", "cnn", {"sites": ("stem",)}, "sites .* stage1-2, .*CNN.* got stem"),
        ("dsu", "vgg16", {"sites": ("fc1",)}, ".* stem.conv1-2, stem, .* got fc1"),
        (
            "dsu",
            "vit_base16",
            {"sites": ("stem.conv1",)},
            r".* block0-3\.attn, block0-3",
        ),
        ("dsu", "resnet50", {"sites": ()}, ".* stage1-4.block0.conv1-3, .* got none"),
    ],
)
def test_errors_name_missing_sites(algorithm, network, options, message):
    net, _ = networks.small(network)
    with pytest.raises(ValueError, match=f"{algorithm}: {message}") as refusal:
        make_algorithm(algorithm, net, **options)
    assert "\n" not in str(refusal.value)


def test_dsu_acts_inside_blocks_if_requested():
    net, _ = networks.small("resnet18")
    algo = dsu.make(net, p=1.0, sites=("stage2.block0.conv1",), mix_group=BATCH)
    x = jnp.ones((BATCH, 2, 2, 1))
    assert algo.net.tap(x, "stage2.block0.conv1", KEY) is not x
    assert algo.net.tap(x, "stage2", KEY) is x


def test_any_size_of_patch_is_drawn():
    net = models.MODELS["vit_small16"](5, width=8, heads=2, depth=4, patch=14)
    assert taps.sites(net) == taps.sites(net, 28)
