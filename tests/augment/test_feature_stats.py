"""Feature statistics: the quantities that each swap keeps, and its gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jbias.augment import batch_permutations, feature_stats
from jbias.models import taps
from tests import cases

KEY = jax.random.key(3)
# Eight images of four channels, each channel with its own mean and deviation.
RNG = np.random.default_rng(0)
X = jnp.asarray(
    RNG.normal(size=(8, 6, 5, 4)) * RNG.uniform(1, 3, (8, 1, 1, 4))
    + RNG.normal(size=(8, 1, 1, 4)),
    jnp.float32,
)


def stats(x):
    x = np.asarray(x, np.float64)
    return x.mean((1, 2)), x.var((1, 2), ddof=1)


def partners(key, count, group):
    return np.asarray(
        batch_permutations.permute(jnp.arange(float(count)), key, group=group), int
    )


def test_moments_are_numpys():
    mean, var = feature_stats.moments(X)
    expected = stats(X)
    np.testing.assert_allclose(mean, expected[0], atol=1e-6)
    np.testing.assert_allclose(var, expected[1], rtol=1e-5)


@pytest.mark.slow
def test_moments_are_float32_for_half_precision():
    half = X.astype(jnp.bfloat16)
    mean, var = feature_stats.moments(half)
    np.testing.assert_allclose(var, stats(half)[1], rtol=1e-5)
    assert mean.dtype == var.dtype == jnp.float32
    for swap in (
        swap_statistics,
        feature_stats.randomise_style,
        feature_stats.randomise_content,
    ):
        assert swap(half, KEY, group=4).dtype == jnp.bfloat16


def swap_statistics(x, key, *, group):
    """Return the map after a swap with an open gate."""
    return swap_with_gate(x, key, True, group)


def swap_with_gate(x, key, acts, group=4):
    acts = jnp.array(acts)

    def swap(mean, var, key):
        return feature_stats.permuted_adain(mean, var, key, group=group)

    affine = feature_stats.gated_affine(x, acts, swap, key)
    return taps.Rescaled(
        x, affine.scale, affine.shift, mean=affine.mean, var=affine.var, acts=acts
    ).value


def test_single_pixels_are_refused():
    with pytest.raises(ValueError, match="at least 2 pixels"):
        feature_stats.moments(X[:, :1, :1])


def test_permutations_stay_inside_groups():
    order = partners(KEY, 24, 4)
    assert sorted(order) == list(range(24))
    np.testing.assert_array_equal(order // 4, np.arange(24) // 4)


@pytest.mark.slow
def test_groups_draw_independently():
    """A group's order depends on its number, not on the length of the batch."""
    np.testing.assert_array_equal(partners(KEY, 64, 8)[:24], partners(KEY, 24, 8))
    within = partners(KEY, 64, 8).reshape(8, 8) % 8
    assert len({tuple(row) for row in within}) > 1


@pytest.mark.slow
def test_permutations_are_uniform():
    """The 6 orders of 3 are equally likely: chi-squared test over 3000 groups."""
    orders = partners(KEY, 9000, 3).reshape(-1, 3) % 3
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 6
    assert scipy.stats.chisquare(counts).pvalue > 0.001


@cases.each("group", [3, 16, 0])
def test_refuses_groups_that_do_not_fit(group):
    with pytest.raises(ValueError, match=f"mix_group={group}, got 8 examples"):
        jax.eval_shape(lambda x: batch_permutations.permute(x, KEY, group=group), X)


def test_adain_takes_the_partners_statistics():
    partner = partners(KEY, 8, 4)
    mean, var = stats(swap_statistics(X, KEY, group=4))
    expected = stats(X)
    np.testing.assert_allclose(mean, expected[0][partner], atol=1e-5)
    # Up to the two epsilons: relative 1e-5 (1/var + 1/var' + 2/std).
    np.testing.assert_allclose(var, expected[1][partner], rtol=1e-4)


def test_adain_has_the_authors_epsilons():
    """On nearly flat maps epsilons dominate the divisor: compared with NumPy."""
    x = np.asarray(X, np.float64) * 1e-3
    swapped_map = swap_statistics(jnp.asarray(x, jnp.float32), KEY, group=8)
    mean, var = (v[:, None, None] for v in stats(x))
    partner = partners(KEY, 8, 8)
    content = (x - mean) / (np.sqrt(var + 1e-5) + 1e-5)
    expected = content * np.sqrt(var[partner] + 1e-5) + mean[partner]
    np.testing.assert_allclose(swapped_map, expected, rtol=2e-4, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("acts", [True, False])
def test_adain_has_the_gradient_of_its_formula(acts):
    """The gradient is jax's own for an open gate, and zero for a closed one."""
    weight = jax.random.normal(KEY, X.shape)
    partner = partners(KEY, 8, 4)

    def formula(x):
        mean, var = map(feature_stats.broadcastable, feature_stats.moments(x))
        style = jax.lax.stop_gradient((mean[partner], var[partner]))
        content = (x - mean) / (jnp.sqrt(var + 1e-5) + 1e-5)
        return content * jnp.sqrt(style[1] + 1e-5) + style[0] if acts else x

    def gradient(f):
        return jax.grad(lambda x: jnp.sum(weight * f(x)))(X)

    np.testing.assert_allclose(
        gradient(lambda x: swap_with_gate(x, KEY, acts)),
        gradient(formula),
        atol=2e-6 if acts else 0,
    )


@pytest.mark.slow
def test_adain_holds_the_style_constant():
    """The gradient of each output by other images is zero."""
    x = X[:4, :3, :2, :2]
    jacobian = jax.jacrev(lambda x: swap_statistics(x, KEY, group=4))(x)
    size = jnp.abs(jacobian).sum((1, 2, 3, 5, 6, 7))
    assert (jnp.diag(size) > 0).all()
    np.testing.assert_array_equal(size - jnp.diag(jnp.diag(size)), 0)
    assert (partners(KEY, 4, 4) != np.arange(4)).any()


def test_style_moves_mean_and_variance_by_one_share_towards_the_partner():
    mean, var = stats(feature_stats.randomise_style(X, KEY, group=4))
    original_mean, original_var = stats(X)
    order = jax.random.split(KEY)[1]
    partner = partners(order, 8, 4)
    for i in np.flatnonzero(partner != np.arange(8)):
        # One share explains means and variances (not deviations) of all channels.
        full_step = np.r_[
            original_mean[i] - original_mean[partner[i]],
            original_var[i] - original_var[partner[i]],
        ]
        remaining = np.r_[
            mean[i] - original_mean[partner[i]], var[i] - original_var[partner[i]]
        ]
        share = remaining @ full_step / (full_step @ full_step)
        assert 0 <= share <= 1
        np.testing.assert_allclose(remaining, share * full_step, atol=1e-4)
    assert (partner != np.arange(8)).sum() >= 4


def test_style_with_oneself_is_the_identity_up_to_epsilon():
    mixed = feature_stats.randomise_style(X, KEY, group=1)
    np.testing.assert_allclose(mixed, X, atol=1e-5)


@pytest.mark.slow
def test_shares_of_style_are_uniform():
    """The means of mixed flat images 0 and 1 (plus a ripple) are the shares."""
    ripple = jnp.array([-0.1, 0.1]).reshape(1, 1, 2, 1)
    x = jnp.tile(jnp.array([0.0, 1.0]), 2000).reshape(-1, 1, 1, 1) + ripple
    mean = stats(feature_stats.randomise_style(x, KEY, group=2))[0][:, 0]
    partner = partners(jax.random.split(KEY)[1], 4000, 2)
    first = np.arange(4000) % 2 == 0
    swap_statistics = partner != np.arange(4000)
    share = np.where(first, 1 - mean, mean)[swap_statistics]
    assert len(share) > 1500
    assert scipy.stats.kstest(share, "uniform").pvalue > 0.001


@pytest.mark.slow
def test_style_gradients_reach_the_partner():
    x = X[:4, :3, :2, :2]
    key = jax.random.key(1)
    jacobian = jax.jacrev(lambda x: feature_stats.randomise_style(x, key, group=4))(x)
    size = np.asarray(jnp.abs(jacobian).sum((1, 2, 3, 5, 6, 7))) > 0
    expected = np.eye(4, dtype=bool)
    expected[np.arange(4), partners(jax.random.split(key)[1], 4, 4)] = True
    np.testing.assert_array_equal(size, expected)
    assert expected.sum() > 4


def test_randomised_content_has_the_partners_pattern_and_own_statistics():
    mixed = feature_stats.randomise_content(X, KEY, group=4)
    for a, b in zip(stats(mixed), stats(X)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    partner = partners(KEY, 8, 4)
    for i in range(8):
        for c in range(4):
            ours, theirs = np.ravel(mixed[i, :, :, c]), np.ravel(X[partner[i], :, :, c])
            assert np.corrcoef(ours, theirs)[0, 1] > 0.9999


def directions():
    """Return a random direction, and its part that changes no mean and no variance."""
    free = np.random.default_rng(1).normal(size=X.shape)
    mean = free.mean((1, 2), keepdims=True)
    centred = np.asarray(X) - np.asarray(X).mean((1, 2), keepdims=True)
    cov = ((free - mean) * centred).mean((1, 2), keepdims=True)
    var = (centred**2).mean((1, 2), keepdims=True)
    blind = free - mean - cov / var * centred
    return jnp.asarray(free, jnp.float32), jnp.asarray(blind, jnp.float32)


def test_content_gradients_pass_mean_and_variance_only():
    free, blind = directions()

    def push(direction, swap):
        _, moved = jax.jvp(lambda x: swap(x, KEY, group=4), (X,), (direction,))
        return float(jnp.abs(moved).max())

    swap = feature_stats.randomise_content
    assert push(blind, swap) < 1e-5
    assert push(free, swap) > 0.1
    # The same direction is not blind for what keeps its own content.
    assert push(blind, feature_stats.randomise_style) > 0.1


@pytest.mark.slow
def test_content_takes_no_gradient_of_the_partner():
    x = X[:4, :3, :2, :2]
    jacobian = jax.jacrev(lambda x: feature_stats.randomise_content(x, KEY, group=4))(x)
    size = jnp.abs(jacobian).sum((1, 2, 3, 5, 6, 7))
    np.testing.assert_array_equal(size - jnp.diag(jnp.diag(size)), 0)
