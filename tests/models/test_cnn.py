"""Tests of the CNN of two convolutions: sizes, cuts and taps, as for the ResNets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import models
from tests import cases

KEY = jax.random.key(0)
IMAGE = jax.random.uniform(jax.random.key(1), (4, 28, 28, 3))


@pytest.fixture(scope="module")
def net():
    return models.MODELS["cnn"](10, width=4)


@pytest.fixture(scope="module")
def variables(net):
    """Return arbitrary weights; proper initialisation takes long to compile."""
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda x: rng.uniform(0, 0.1, x.shape).astype(np.float32),
        jax.eval_shape(net.init, KEY, IMAGE),
    )


def test_the_number_of_parameters_is_the_sum_over_layers():
    shapes = jax.eval_shape(models.MODELS["cnn"](10).init, KEY, IMAGE)["params"]
    num_parameters = sum(x.size for x in jax.tree.leaves(shapes))
    convolutions = 25 * 3 * 32 + 25 * 32 * 64
    assert num_parameters == convolutions + 2 * (32 + 64) + 7 * 7 * 64 * 10 + 10


@cases.each("cut", [1, 2, 3, 4, 5])
def test_features_and_head_compose_to_the_network(net, variables, cut):
    f = net.apply(variables, IMAGE, method="features", stop=cut)
    assert f.shape[1] == {1: 28, 2: 14}.get(cut, 7)
    logits = net.apply(variables, f, method="head_of", start=cut)
    np.testing.assert_allclose(logits, net.apply(variables, IMAGE), rtol=1e-5)


def test_taps_are_called_in_training_only(net, variables):
    tapped_maps = []

    def tap(x, site, key):
        tapped_maps.append((site, x.shape[1]))
        return x

    net_with_tap = net.clone(tap=tap)
    net_with_tap.apply(variables, IMAGE)
    assert not tapped_maps
    net_with_tap.apply(variables, IMAGE, KEY, train=True, mutable=["stats"])
    assert tapped_maps == [
        ("stage1.conv", 28),
        ("stage1", 14),
        ("stage2.conv", 14),
        ("stage2", 7),
    ]


def test_modules_know_their_stage(net, variables):
    stages = {name: net.stage_of(name) for name in variables["params"]}
    assert set(stages.values()) == {1, 2, 5}
    assert jnp.isfinite(net.apply(variables, IMAGE)).all()
