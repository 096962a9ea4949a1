"""Networks against published implementations in PyTorch (tests/oracles/nets.py)."""

import json
import math

import jax
import numpy as np
import pytest

from jbias import models
from tests import cases, drawn
from tests.drawn import (
    DRAWN,
    NETS_CASES,
    ORACLES,
    published_name,
    published_shape,
    variables_of,
)

STORED = np.load(ORACLES / "nets.npz")
DISTORTION = np.load(ORACLES / "distortion.npz")
PUBLISHED = json.loads(STORED["shapes"].tobytes())
# Of torchvision's pages on its models; the others have no count but their shapes.
COUNTS = {
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "resnext50": 25_028_904,
    "vgg11": 132_863_336,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "vgg11_bn": 132_868_840,
    "vgg16_bn": 138_365_992,
    "vgg19_bn": 143_678_248,
    "alexnet": 61_100_840,
    "densenet121": 7_978_856,
    "mobilenetv3_large": 5_483_032,
    "mobilenetv3_small": 2_542_856,
    "squeezenet1_0": 1_248_424,
    "squeezenet1_1": 1_235_496,
}
SLOW = ("mobilenetv3_large", "bagnet9")  # Others have all their layers.


@cases.each(
    "name",
    PUBLISHED,
    quick=(
        "resnet18",
        "vgg16",
        "vgg19",
    ),
)
def test_names_and_shapes_are_the_published_ones(name):
    net = models.MODELS[name](1000)
    shapes = {}
    variables = variables_of(net, 224)
    for path, x in jax.tree_util.tree_leaves_with_path(variables):
        key = published_name(net, path)
        assert key not in shapes
        shapes[key] = published_shape(x.shape)
    assert shapes == {key: tuple(shape) for key, shape in PUBLISHED[name].items()}
    if name in COUNTS:
        counts = (math.prod(x.shape) for x in jax.tree.leaves(variables["params"]))
        assert sum(counts) == COUNTS[name]


def make_case(case):
    """Return the network of a case, the oracle's weights, and images."""
    model, size, factor, options = NETS_CASES["CASES"][case]
    net = models.MODELS[model](DRAWN["CLASSES"], **options)

    variables = drawn.variables(net, size, factor)
    return net, variables, DRAWN["images"](size)


@cases.each(
    "case",
    [
        pytest.param(case, marks=pytest.mark.slow if case in SLOW else ())
        for case in NETS_CASES["CASES"]
    ],
    quick=(
        "alexnet",
        "vgg11_at_224",
        "vgg11",
    ),
)
def test_equals_the_published_implementation(case):
    net, variables, image = make_case(case)
    expected = STORED[f"{case}/logits"]
    # An answer that ignores the image would test nothing.
    assert np.ptp(expected, axis=0).mean() > 0.1
    logits = jax.jit(net.apply)(variables, image)
    # Float32 against float64.
    np.testing.assert_allclose(logits, expected, atol=1e-4 * np.abs(expected).max())


@cases.each(
    "case",
    NETS_CASES["CASES"],
    quick=(
        "vgg11",
        "vgg11_at_224",
        "alexnet",
    ),
)
def test_images_of_the_least_size_are_accepted(case):
    model, _, _, options = NETS_CASES["CASES"][case]
    net, least = models.MODELS[model](3, **options), int(STORED[f"{case}/least"])
    variables_of(net, least)
    if least > 1:
        with pytest.raises(ValueError, match=f"at least {least} pixels"):
            variables_of(net, least - 1)


@pytest.mark.slow
@cases.each("name", [name for name in STORED.files if name.endswith(".running_var")])
def test_running_statistics_of_the_first_batch_norm_equal_pytorchs(name):
    case, _, published = name.partition("/")
    net, variables, image = make_case(case)

    @jax.jit
    def train(variables, image):
        options = dict(train=True, method="features", stop=1, mutable=["stats"])
        if "layer1" in published:
            options["stop"] = 2
        return net.apply(variables, image, jax.random.key(0), **options)[1]

    statistics = {
        published_name(net, path): x
        for path, x in jax.tree_util.tree_leaves_with_path(train(variables, image))
    }
    for kind in ("running_mean", "running_var"):
        key = published.replace("running_var", kind)
        np.testing.assert_allclose(statistics[key], STORED[f"{case}/{key}"], atol=1e-5)


def test_vgg_with_one_linear_layer_equals_the_distortion_papers():
    """Its VGG-16 at an eighth of the width: batch norm, no hidden layer."""

    def name(net, path):
        return published_name(net, path).replace("classifier.6", "classifier")

    constants = dict(mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010))
    net = models.MODELS["vgg16_bn"](10, width=8, hidden=0, **constants)
    variables = drawn.variables(net, 32, 2.0, name)
    image = DISTORTION["images"] / np.float32(255)
    expected = DISTORTION["vgg"]
    assert np.ptp(expected, axis=0).mean() > 0.1
    logits = jax.jit(net.apply)(variables, image)
    np.testing.assert_allclose(logits, expected, atol=1e-4)
