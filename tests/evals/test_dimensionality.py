"""Shared correlations and dimension shares of shape and texture."""

import itertools

import numpy as np
import pytest

from jbias.evals.activations import linear_decoding


def draw_factors(n=240, seed=0):
    rng = np.random.default_rng(seed)
    shape, texture = rng.integers(0, 4, (2, n))
    return rng, shape, texture


def test_correlation_is_over_all_pairs():
    rng, shape, texture = draw_factors(40)
    x = rng.standard_normal((40, 6)) + shape[:, None] * rng.standard_normal(6)
    pairs = [
        (i, j)
        for i, j in itertools.permutations(range(40), 2)
        if shape[i] == shape[j] and texture[i] != texture[j]
    ]
    a, b = (x[list(indices)] for indices in zip(*pairs))
    mean = a.mean(0)
    expected = ((a - mean) * (b - mean)).mean(0).sum() / ((a - mean) ** 2).mean(0).sum()
    correlation = linear_decoding.shared_correlation(x, shape, texture)
    assert correlation == pytest.approx(expected, abs=1e-12)


def test_neurons_of_shape_alone_correlate_with_it_alone():
    _, shape, texture = draw_factors()
    shares = linear_decoding.dimension_shares(np.eye(4)[shape], shape, texture)
    assert shares.shape_correlation == pytest.approx(1)
    # Pairs of one texture have different shapes: one-hots of four correlate by -1/3.
    assert shares.texture_correlation == pytest.approx(-1 / 3, abs=0.02)
    other = linear_decoding.dimension_shares(np.eye(4)[texture], shape, texture)
    assert other.texture_correlation == pytest.approx(1)
    assert other.shape_correlation == pytest.approx(-1 / 3, abs=0.02)


def test_shares_are_a_softmax_with_a_residual_of_one():
    rng, shape, texture = draw_factors()
    shares = linear_decoding.dimension_shares(
        rng.standard_normal((240, 50)), shape, texture
    )
    exponentials = np.exp([shares.shape_correlation, shares.texture_correlation, 1])
    np.testing.assert_allclose(
        shares[:3], exponentials / exponentials.sum(), rtol=1e-12
    )
    # Noise shares nothing, so the shares are 1 : 1 : e.
    assert shares.residual == pytest.approx(np.e / (2 + np.e), abs=0.01)


def test_half_of_the_variance_is_half_a_correlation():
    rng, shape, texture = draw_factors(4000)
    signal = np.array([-1.0, 1.0, -1.0, 1.0])[shape]
    x = np.stack([signal, rng.standard_normal(4000)], axis=1)
    correlation = linear_decoding.shared_correlation(x, shape, texture)
    assert correlation == pytest.approx(0.5, abs=0.03)


def test_without_pairs_or_variance_there_is_no_correlation():
    x = np.zeros((6, 2))
    shape, texture = np.arange(6) % 2, np.arange(6) % 3
    assert np.isnan(linear_decoding.shared_correlation(x, shape, texture))
    assert np.isnan(linear_decoding.shared_correlation(x + 1, np.arange(6), texture))
