"""The ReLU of a residual sum equals nn.relu, with either implementation of the gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jbias.models import residual_sum, resnet
from jbias.runtime import xla
from tests import cases


def plain(x, shortcut):
    return nn.relu(x + shortcut)


def summed(x, shortcut):
    with xla.compiling_for("gpu"):
        return residual_sum.relu_of_sum(x, shortcut, from_output=True)


@cases.each("dtype", ["float32", "bfloat16"])
@cases.each("levels", [0, 2])
def test_outputs_and_gradients_are_equal_to_the_bit(dtype, levels):
    """levels: number of different values, so that many sums are zero; 0: no ties."""
    rng = np.random.default_rng(0)
    x, shortcut, gradient = rng.standard_normal((3, 2, 5, 4, 3))
    if levels:
        x, shortcut = (
            np.floor(x * levels) / levels,
            np.floor(shortcut * levels) / levels,
        )
        assert np.count_nonzero(x + shortcut == 0) > 5
    x, shortcut, gradient = (jnp.asarray(a, dtype) for a in (x, shortcut, gradient))
    outputs, back = jax.vjp(summed, x, shortcut)
    expected_outputs, back_of_plain = jax.vjp(plain, x, shortcut)
    np.testing.assert_array_equal(outputs, expected_outputs)
    for pulled, expected in zip(back(gradient), back_of_plain(gradient), strict=True):
        assert pulled.dtype == x.dtype
        np.testing.assert_array_equal(pulled, expected)


def test_sums_that_are_not_finite_have_the_gradients_of_the_plain_one():
    x = jnp.array([np.nan, np.inf, -np.inf, np.inf, -0.0])[None, None, None]
    shortcut = jnp.array([1.0, 1.0, 1.0, -np.inf, -0.0])[None, None, None]
    expected = jax.grad(lambda x: plain(x, shortcut).sum())(x)
    gradient = jax.grad(lambda x: summed(x, shortcut).sum())(x)
    np.testing.assert_array_equal(gradient, expected)


@pytest.mark.slow
def test_a_resnet_for_gpus_has_the_gradients_of_one_for_cpus():
    net = resnet.ResNet(depths=(1, 2, 1, 1), bottleneck=True, width=4, classes=3)
    images = jnp.asarray(np.random.default_rng(2).standard_normal((2, 32, 32, 3)), "f4")
    init = jax.jit(net.init, static_argnames="train")
    variables = init(jax.random.key(0), images, train=False)

    def gradient(platform):
        def loss(params):
            with xla.compiling_for(platform):
                outputs = net.apply(
                    {**variables, "params": params}, images, train=False
                )
            return jnp.sum(jnp.sin(outputs))

        return jax.jit(jax.grad(loss))(variables["params"])

    def assert_close(a, b):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)

    jax.tree.map(assert_close, gradient("gpu"), gradient("cpu"))


@pytest.mark.slow
@cases.each(("bottleneck", "has_barrier"), [(True, True), (False, False)])
def test_only_bottlenecks_compute_the_gradient_from_the_output(bottleneck, has_barrier):
    net = resnet.ResNet(depths=(2, 1, 1, 1), bottleneck=bottleneck, width=4, classes=3)
    images = jnp.zeros((2, 32, 32, 3))
    variables = net.init(jax.random.key(0), images, train=False)

    def loss(params):
        with xla.compiling_for("gpu"):
            outputs = net.apply({**variables, "params": params}, images, train=False)
        return outputs.sum()

    program = str(jax.make_jaxpr(jax.grad(loss))(variables["params"]))
    assert ("optimization_barrier" in program) == has_barrier


def test_the_sum_can_be_mapped_over_seeds():
    x, shortcut = np.random.default_rng(1).standard_normal((2, 2, 2, 6, 6, 3))
    grad = jax.grad(lambda x, shortcut: (summed(x, shortcut) ** 2).sum())
    np.testing.assert_array_equal(
        jax.vmap(grad)(x, shortcut), jnp.stack([*map(grad, x, shortcut)])
    )
