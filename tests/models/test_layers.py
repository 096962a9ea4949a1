"""Batch normalisation has PyTorch's semantics, written out in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias.models import layers

DECAY, EPS = 0.9, 1e-5


def variables(c=3, mean=0.0, var=1.0):
    params = {"scale": jnp.arange(1.0, c + 1), "bias": jnp.arange(float(c))}
    return {
        "params": params,
        "stats": {"mean": jnp.full(c, mean), "var": jnp.full(c, var)},
    }


def train(v, x, **options):
    y, new = layers.BatchNorm(**options).apply(v, x, train=True, mutable=["stats"])
    return y, new["stats"]


@pytest.fixture
def x():
    return np.random.default_rng(0).normal(2, 3, (4, 5, 6, 3)).astype(np.float32)


def test_normalises_biased_and_remembers_unbiased(x):
    v = variables(mean=0.5, var=2.0)
    y, stats = train(v, x)
    mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
    expected = (x - mean) / np.sqrt(var + EPS) * [1, 2, 3] + [0, 1, 2]
    np.testing.assert_allclose(y, expected, atol=1e-5)
    np.testing.assert_allclose(stats["mean"], 0.9 * 0.5 + 0.1 * mean, rtol=1e-6)
    unbiased = x.var((0, 1, 2), ddof=1)
    np.testing.assert_allclose(stats["var"], 0.9 * 2.0 + 0.1 * unbiased, rtol=1e-6)


def test_evaluates_by_running_statistics(x):
    v = variables(mean=0.5, var=2.0)
    y = layers.BatchNorm().apply(v, x, train=False)
    expected = (x - 0.5) / np.sqrt(2 + EPS) * [1, 2, 3] + [0, 1, 2]
    np.testing.assert_allclose(y, expected, atol=1e-5)


def test_gradients_pass_through_the_batch_statistics(x):
    """The gradient of a normalised channel is orthogonal to shifts of its input."""
    direction = jnp.broadcast_to(jnp.array([1.0, 2, 3]).reshape(1, 1, 1, 3), x.shape)
    _, moved = jax.jvp(lambda x: train(variables(), x)[0], (x,), (direction,))
    np.testing.assert_allclose(moved, 0, atol=1e-5)


@pytest.mark.parametrize("offset", [1e3, -1e4])
def test_large_means_cost_no_digits_once_remembered(x, offset):
    """One pass around zero would lose all digits of a variance of 9 in this test."""
    shifted = (x + np.float32(offset)).astype(np.float32)
    _, stats = train(variables(mean=offset, var=9.0), shifted)
    exact = shifted.astype(np.float64).var((0, 1, 2), ddof=1)
    np.testing.assert_allclose(stats["var"], 0.9 * 9 + 0.1 * exact, rtol=1e-4)


def test_statistics_are_float32_for_bfloat16(x):
    half = jnp.asarray(x, jnp.bfloat16)
    y, stats = train(variables(), half, dtype=jnp.bfloat16)
    assert y.dtype == jnp.bfloat16
    exact = np.asarray(half, np.float64).var((0, 1, 2), ddof=1)
    np.testing.assert_allclose(stats["var"], 0.9 + 0.1 * exact, rtol=1e-6)


def test_initialisation_in_training_mode_leaves_the_statistics(x):
    v = layers.BatchNorm().init(jax.random.key(0), x, train=True)
    np.testing.assert_array_equal(v["stats"]["mean"], 0)
    np.testing.assert_array_equal(v["stats"]["var"], 1)


def test_refuses_to_train_on_one_value():
    with pytest.raises(ValueError, match="more than one value per channel"):
        train(variables(), np.zeros((1, 1, 1, 3), np.float32))


def test_groups_are_normalised_by_themselves(x):
    """Groups equal two batch norms of two images each; statistics are their mean."""
    y, stats = train(variables(mean=0.5, var=2.0), x, group=2)
    halves = [train(variables(mean=0.5, var=2.0), half)[0] for half in (x[:2], x[2:])]
    np.testing.assert_allclose(y, np.concatenate(halves), atol=1e-6)
    grouped = x.reshape(2, 2, 5, 6, 3)
    mean, var = (
        f((1, 2, 3), keepdims=True).reshape(2, 1, 1, 1, 3)
        for f in (grouped.mean, grouped.var)
    )
    expected = (grouped - mean) / np.sqrt(var + EPS) * [1, 2, 3] + [0, 1, 2]
    np.testing.assert_allclose(y, expected.reshape(x.shape), atol=1e-5)
    means, unbiased = grouped.mean((1, 2, 3)), grouped.var((1, 2, 3), ddof=1)
    assert np.ptp(means, axis=0).min() > 0.1  # The groups differ.
    np.testing.assert_allclose(stats["mean"], 0.45 + 0.1 * means.mean(0), rtol=1e-6)
    np.testing.assert_allclose(stats["var"], 1.8 + 0.1 * unbiased.mean(0), rtol=1e-6)


def test_one_group_is_the_whole_batch(x):
    ungrouped = train(variables(mean=0.5), x, group=0)
    one_group = train(variables(mean=0.5), x, group=4)

    def assert_close(a, b):
        np.testing.assert_allclose(a, b, rtol=1e-6)

    jax.tree.map(assert_close, ungrouped, one_group)


@pytest.mark.slow
def test_gradients_stay_in_their_group(x):
    def first_of(x):
        y, _ = train(variables(), x, group=2)
        return jnp.sum(y[:2] ** 3)

    gradient = jax.grad(first_of)(jnp.asarray(x))
    assert jnp.abs(gradient[:2]).max() > 1e-3 and not gradient[2:].any()


def test_refuses_rows_that_groups_do_not_divide(x):
    with pytest.raises(ValueError, match="multiple of norm_group, 3 rows, got 4"):
        train(variables(), x, group=3)
    with pytest.raises(ValueError, match="more than one value per channel"):
        train(variables(), np.zeros((4, 1, 1, 3), np.float32), group=1)
