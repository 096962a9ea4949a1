"""The stem's max-pool equals XLA's, with either implementation of the gradient."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from jbias.models import pooling
from jbias.runtime import xla
from tests import cases


def plain(x):
    return nn.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))


def pooled(x):
    with xla.compiling_for("gpu"):
        return pooling.max_pool_of_stem(x)


@functools.partial(jax.jit, static_argnames="pool")
def maxima_and_gradient(pool, x, gradient):
    """Return the maxima, and the gradient with respect to x; gradient: that of the maxima."""
    maxima, back = jax.vjp(pool, x)
    return maxima, *back(gradient)


@cases.each("dtype", ["float32", "bfloat16"])
@cases.each("sides", [(8, 8), (7, 9), (1, 2), (2, 1), (3, 3), (5, 4)])
@cases.each("levels", [0, 3])
def test_maxima_are_equal_to_the_bit_and_gradients_to_rounding(dtype, sides, levels):
    """levels: number of different values, so that most windows have ties; 0: no ties."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((2, *sides, 3))
    if levels:
        values = np.floor(values * levels) / levels
    x = jnp.asarray(values, dtype)
    expected_maxima = plain(x)
    np.testing.assert_array_equal(pooled(x), expected_maxima)
    gradient = jnp.asarray(rng.standard_normal(expected_maxima.shape), dtype)
    maxima, pulled = maxima_and_gradient(pooled, x, gradient)
    np.testing.assert_array_equal(maxima, expected_maxima)
    _, expected = maxima_and_gradient(plain, x, gradient)
    assert pulled.dtype == x.dtype
    rounding = 4 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(
        pulled.astype("float32"),
        expected.astype("float32"),
        rtol=rounding,
        atol=rounding * 4,  # Sums of at most four gradients, some of which cancel.
    )


def test_infinite_maps_have_the_gradients_of_the_plain_one():
    x = jnp.array([[-np.inf, 1.0, np.inf], [0.0, -np.inf, np.inf]])[None, ..., None]
    expected = jax.grad(lambda x: plain(x).sum())(x)
    np.testing.assert_array_equal(jax.grad(lambda x: pooled(x).sum())(x), expected)


def test_it_maps_over_seeds():
    x = jnp.asarray(np.random.default_rng(1).standard_normal((2, 2, 6, 6, 3)), "f4")
    grad = jax.grad(lambda x: (pooled(x) ** 2).sum())
    np.testing.assert_array_equal(jax.vmap(grad)(x), jnp.stack([*map(grad, x)]))
