"""Vision transformers against timm, torchvision and transformers, and their laws."""

import pathlib
import runpy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import models
from jbias.models import importing, registry, safetensors, taps, weight_names
from tests import cases

ORACLES = pathlib.Path(__file__).parents[1] / "oracles"
DRAWN = runpy.run_path(str(ORACLES / "vit_weights.py"))
SMALL = dict(width=32, heads=2, depth=4, patch=8)
LIBRARIES = {"timm": 0, "torchvision": 1, "transformers": 4}


def small(classes=5, **options):
    return models.MODELS["vit_small16"](classes, **{**SMALL, **options})


def draw_variables(net, image):
    """Return random weights by NumPy; jax's initialisation takes long to compile."""
    rng = np.random.default_rng(0)

    def draw_leaf(path, x):
        first = 1.0 if path[-1].key == "scale" else 0.0
        return (first + 0.1 * rng.standard_normal(x.shape)).astype(np.float32)

    shapes = jax.eval_shape(net.init, jax.random.key(0), image)
    return jax.tree_util.tree_map_with_path(draw_leaf, shapes)


@pytest.mark.slow
@cases.each(
    "case",
    list(DRAWN["CASES"]),
    quick=(
        "transformers",
        "torchvision",
        "timm_smaller",
    ),
)
def test_equals_other_libraries(case, tmp_path):
    """A file with a library's names gives that library's logits."""
    library, drawn_at, side, options = DRAWN["CASES"][case]
    net = small(**{"classes": DRAWN["CLASSES"], **options})
    shapes = jax.eval_shape(
        net.init, jax.random.key(0), jnp.zeros((1, drawn_at, drawn_at, 3))
    )
    names = registry.dialects("vit_small16")[LIBRARIES[library]]
    state = {}
    for name, entry in weight_names.entries(shapes, names).items():
        if library == "transformers" and not name.startswith("classifier"):
            name = f"vit.{name}"
        state[name] = DRAWN["draw"](name, entry.shape)
    safetensors.write(tmp_path / "x.safetensors", state, {})
    class_option = {
        k: v for k, v in options.items() if k == "classes"
    }  # `pool` is seen.
    loaded_net, _, origins = importing.read(
        tmp_path / "x.safetensors", "vit_small16", **SMALL, **class_option
    )
    is_torchvision = library.startswith(
        "torchvision"
    )  # Whose files are all of ImageNet.
    assert loaded_net.mean == ((0.485, 0.456, 0.406) if is_torchvision else (0.5,) * 3)
    assert ("torchvision" in origins["std"]) == is_torchvision
    class_option |= {"mean": net.mean, "std": net.std}  # The oracle's.
    loaded_net, variables = models.load(
        tmp_path / "x.safetensors", "vit_small16", **SMALL, **class_option
    )
    assert (loaded_net.classes, loaded_net.pool) == (net.classes, net.pool)
    expected = np.load(ORACLES / "vit.npz")[case]
    assert np.ptp(expected, axis=0).mean() > 0.1
    logits = jax.jit(loaded_net.apply)(variables, DRAWN["images"](side))
    # Float32 against float64.
    np.testing.assert_allclose(logits, expected, atol=2e-5)


@pytest.mark.slow
@cases.each(
    ("name", "count"),
    [
        ("vit_small16", 22_050_664),
        ("vit_small32", 22_878_952),
        ("vit_base16", 86_567_656),
        ("vit_base32", 88_224_232),
    ],
)
def test_has_the_published_number_of_parameters(name, count):
    net = models.MODELS[name](1000)
    shapes = jax.eval_shape(
        net.init, jax.random.key(0), jax.ShapeDtypeStruct((1, 224, 224, 3), jnp.float32)
    )
    assert sum(x.size for x in jax.tree.leaves(shapes)) == count


@pytest.mark.slow
def test_features_and_head_compose_to_the_network():
    net, image = small(), DRAWN["images"](32)

    @jax.jit
    def run(variables, image):
        logits_by_cut = {0: net.apply(variables, image)}
        for cut in (1, 3, 5):
            f = net.apply(variables, image, method="features", stop=cut)
            assert f.shape == (3, 1, 17, 32)
            logits_by_cut[cut] = net.apply(variables, f, method="head_of", start=cut)
        return logits_by_cut

    logits_by_cut = run(draw_variables(net, image), image)
    assert np.ptp(logits_by_cut[0], axis=0).mean() > 0.1
    for cut in (1, 3, 5):  # One program, so that only fusion can tell them apart.
        np.testing.assert_allclose(logits_by_cut[cut], logits_by_cut[0], atol=1e-5)


def test_stages_are_quarters_of_the_blocks():
    net = models.MODELS["vit_base16"](10)
    stages = [net.stage_of(f"blocks_{i}") for i in range(12)]
    assert stages == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    assert [net.stage_of(n) for n in ("embed", "positions", "norm", "fc")] == [
        *(0, 0, 5, 5)
    ]


def test_sites_in_the_order_of_passage():
    sites = taps.sites(small(), 32)
    assert sites[:6] == (
        *("stem.conv", "stem", "block0.attn", "block0.mlp", "block0", "stage1"),
    )
    assert sites[-1] == "stage4" and len(sites) == 2 + 4 * 3 + 4


@pytest.mark.slow
def test_bfloat16_outputs_are_close_to_float32():
    net = small()
    image = DRAWN["images"](32)
    variables = draw_variables(net, image)
    rough = jax.jit(net.clone(dtype=jnp.bfloat16).apply)(variables, image)
    assert rough.dtype == jnp.float32
    exact = jax.jit(net.apply)(variables, image)
    # Eight binary digits a step, over four blocks.
    np.testing.assert_allclose(rough, exact, atol=0.03 * np.abs(exact).max())


@pytest.mark.parametrize("shape", [(1, 30, 32, 3), (1, 32, 32, 1)])
def test_refuses_images_that_do_not_fit(shape):
    net = small()
    with pytest.raises(ValueError, match=r"models.vit: images must"):
        jax.eval_shape(net.init, jax.random.key(0), jnp.zeros(shape))


@cases.each("options", [{"pool": "max"}, {"depth": 3}, {"heads": 5}])
def test_refuses_impossible_options(options):
    with pytest.raises(ValueError, match=r"models.vit: \w+ must be"):
        small(**options).init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
