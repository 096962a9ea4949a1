"""Frozen random filters: the frozen weights, and the saved computation."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import models
from jbias.algos import erm, frozen
from jbias.training import optim
from jbias.training import step as train_step

QUICK = {"xla_backend_optimization_level": 0}


def chains(algo):
    rate = optim.constant(0.1, 1)
    return tuple(optim.sgd(rate, decay=1e-3) for _ in algo.updates)


def sizes(net):
    """Return the numbers of frozen parameters and of all."""
    image = jnp.zeros((1, 32, 32, 3))
    shapes = jax.eval_shape(net.init, jax.random.key(0), image)["params"]
    leaves = jax.tree_util.tree_leaves_with_path({"net": shapes})
    size = {tuple(k.key for k in path): math.prod(x.shape) for path, x in leaves}
    return sum(size[path] for path in frozen.spatial_kernels(net)), sum(size.values())


@pytest.mark.parametrize(
    ("name", "expected"),
    [("resnet18", (10_994_880, 11_689_512)), ("resnet50", (11_326_656, 25_557_032))],
)
def test_the_published_number_of_parameters_is_frozen(name, expected):
    assert sizes(models.MODELS[name](1000)) == expected


def test_the_stem_and_kernels_larger_than_a_pixel_are_frozen():
    kernels = frozen.spatial_kernels(models.MODELS["resnet50"](1000))
    assert ("net", "conv1", "kernel") in kernels
    assert len(kernels) == 1 + 3 + 4 + 6 + 3
    assert {path[-2] for path in kernels} == {"conv1", "conv2"}
    stem = frozen.spatial_kernels(models.MODELS["resnet50"](1000), area=9)
    assert stem == {("net", "conv1", "kernel")}


@pytest.mark.slow
def test_filters_keep_their_bits_and_other_weights_learn(net, train, variables):
    """Frozen filters keep their bits under momentum and weight decay."""
    _, state, _ = train("frozen_filters")
    still = frozen.spatial_kernels(net)
    leaves = jax.tree_util.tree_leaves_with_path(
        jax.tree.map(
            lambda a, b: bool((a != b).any()), state.params["net"], variables["params"]
        )
    )
    for path, moved in leaves:
        assert moved == (("net", *(k.key for k in path)) not in still)
    assert len(still) == 9


@pytest.mark.slow
def test_filters_have_no_momentum(train):
    _, state, _ = train("frozen_filters")
    momentum_size = sum(x.size for x in jax.tree.leaves(state.opt) if x.ndim == 4)
    # Of the four-dimensional weights only the 1x1 projections are left.
    assert momentum_size == 8 * 16 + 16 * 32 + 32 * 64


@pytest.mark.slow
def test_seeds_have_different_filters(net, image):
    init = jax.jit(frozen.make(net).net.init, compiler_options=QUICK)
    first, second = (
        {"net": init(jax.random.key(seed), image[:1])["params"]} for seed in (0, 1)
    )
    for path in frozen.spatial_kernels(net):
        a, b = first, second
        for name in path:
            a, b = a[name], b[name]
        assert np.abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.5


def flops(algo, begin, batch):
    txs = chains(algo)
    step = jax.jit(train_step.make_step(algo, txs), compiler_options=QUICK)
    compiled = step.lower(begin(algo, txs), batch, jax.random.key(0)).compile()
    return compiled.cost_analysis()["flops"]


@pytest.mark.slow
def test_gradients_of_filters_are_not_computed(net, begin, batch):
    """The pass over weights, one of three, is not computed."""
    erm_flops = flops(erm.make(net), begin, batch)
    frozen_flops = flops(frozen.make(net), begin, batch)
    # Not exactly 2/3: projections are trained, and the stem's input needs no gradient.
    assert frozen_flops / erm_flops == pytest.approx(2 / 3, abs=0.05)


def test_an_area_of_0_is_refused(net):
    with pytest.raises(ValueError, match="area must be at least 1, got 0"):
        frozen.make(net, area=0)
