"""Damaged codes of DeepAugment's autoencoder: each option against its table."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jbias.augment import deepaugment_cae

KEYS = jax.random.split(jax.random.key(3), 40)
X = jnp.asarray(np.random.default_rng(1).uniform(-1, 1, (40, 8, 6, 32)), jnp.float32)
LATENT = jax.jit(deepaugment_cae.latent)


def damage_code(option, x=X, keys=KEYS):
    damaged, gain = LATENT(x, keys, option)
    return np.array(damaged), np.array(gain)


def flips(x):
    return [x[::-1], x[:, ::-1], x[::-1, ::-1]]


def shifted(x, row, column):
    """Return the image (h w ...) in which each pixel is the one at that offset."""
    around = ((1, 1), (1, 1), *[(0, 0)] * (x.ndim - 2))
    return np.pad(x, around)[row : row + x.shape[0], column : column + x.shape[1]]


@pytest.mark.slow
def test_code_0_amplifies_the_bits():
    damaged, gain = damage_code(0)
    np.testing.assert_array_equal(damaged, X)
    assert gain.min() >= 3 and gain.max() < 7
    assert len({image.max() for image in gain}) == len(gain)  # Each has its own.


def test_code_1_to_8_do_not_change_the_bits():
    for option in range(1, 9):
        assert (damage_code(option)[1] == 1).all()


@pytest.mark.parametrize(("option", "factor", "share"), [(1, 0, 0.2), (2, -1, 0.1)])
def test_code_1_and_2_drop_or_negate_whole_positions(option, factor, share):
    damaged, _ = damage_code(option)
    hit = (damaged == factor * np.asarray(X)).all(-1)
    np.testing.assert_array_equal(damaged[~hit], X[~hit])
    assert abs(hit.mean() - share) < 4 * (share * (1 - share) / hit.size) ** 0.5


def test_code_3_permutes_the_first_ten_channels():
    damaged, _ = damage_code(3)
    np.testing.assert_array_equal(damaged[..., 10:], X[..., 10:])
    for new, old in zip(damaged, np.asarray(X)):
        order = [int(np.argmax([(n == o).all() for o in old.T])) for n in new.T[:10]]
        assert sorted(order) == list(range(10))


def test_code_4_flips_a_few_channels_in_the_same_way():
    damaged, _ = damage_code(4)
    counts, flip_kinds = set(), set()
    for new, old in zip(damaged, np.asarray(X)):
        changed = (new != old).any((0, 1))
        counts.add(int(changed.sum()))
        fits = [np.array_equal(new[..., changed], f[..., changed]) for f in flips(old)]
        assert sum(fits) == 1
        flip_kinds.add(fits.index(True))
    assert counts <= {1, 3, 5}  # Five draws: a channel drawn twice is restored.
    assert len(counts) > 1 and flip_kinds == {0, 1, 2}


def test_code_5_flips_all_channels_in_the_same_way():
    damaged, _ = damage_code(5)
    flip_kinds = set()
    for new, old in zip(damaged, np.asarray(X)):
        fits = [np.array_equal(new, f) for f in flips(old)]
        assert sum(fits) == 1
        flip_kinds.add(fits.index(True))
    assert flip_kinds == {0, 1, 2}


@pytest.mark.slow
def test_code_6_is_a_convolution_near_the_identity():
    channel = 5
    impulse = jnp.zeros((len(KEYS), 7, 7, 32)).at[:, 3, 3, channel].set(1)
    damaged, _ = damage_code(6, impulse)
    assert (damaged[:, 2:5, 2:5] != 0).all()
    damaged[:, 3, 3, channel] -= 1
    assert 0.09 < np.abs(damaged).max() <= 0.1 + 1e-6
    assert abs(damaged[:, 2:5, 2:5].mean()) < 1e-3
    damaged[:, 2:5, 2:5] = 0
    assert (damaged == 0).all()


def test_code_7_adds_a_shifted_channel_to_half_of_them():
    damaged, _ = damage_code(7)
    added = damaged - np.asarray(X)
    shifts = [
        np.stack([shifted(image, row, column) for image in np.asarray(X)])
        for row in range(3)
        for column in range(3)
    ]
    changed = np.abs(added).max((1, 2)) > 1e-5
    share = 0.5 * (1 - 1 / 288)  # A tap that is there already changes nothing.
    assert abs(changed.mean() - share) < 4 * 0.5 / changed.size**0.5
    for i, j in np.argwhere(changed):
        errors = [
            np.abs(shift[i] - added[i, ..., j, None]).max((0, 1)).min()
            for shift in shifts
        ]
        assert min(errors) < 1e-5
        # A channel's own tap, there already, is not added to itself.
        assert np.abs(added[i, ..., j] - np.asarray(X)[i, ..., j]).max() > 1e-5


def test_code_8_shifts_channels_by_offsets_that_last():
    damaged, _ = damage_code(8)
    repeat_shares = []
    for new, old in zip(damaged, np.asarray(X)):
        fits = [
            np.abs(shifted(old, row, column) - new).max((0, 1)) < 1e-6
            for row in range(3)
            for column in range(3)
        ]
        assert np.sum(fits, 0).tolist() == [1] * 32
        offsets = np.argmax(fits, 0)
        repeat_shares.append((offsets[1:] == offsets[:-1]).mean())
    # Drawn anew with chance 0.2, of nine places.
    n = len(repeat_shares) * 31
    expected_share = 0.8 + 0.2 / 9
    assert (
        abs(np.mean(repeat_shares) - expected_share)
        < 4 * (expected_share * (1 - expected_share) / n) ** 0.5
    )


@pytest.mark.slow
def test_drawn_options_are_uniform_and_applied():
    keys = jax.random.split(jax.random.key(8), 3600)
    counts = np.bincount(jax.vmap(deepaugment_cae.draw_latent)(keys), minlength=9)
    assert len(counts) == 9
    assert scipy.stats.chisquare(counts).pvalue > 1e-3
    damaged, gain = damage_code(None)
    forced = [damage_code(option) for option in range(9)]
    drawn_options = set()
    for i in range(len(KEYS)):
        fits = [
            np.allclose(damaged[i], x[i], atol=1e-6) and np.allclose(gain[i], g[i])
            for x, g in forced
        ]
        assert sum(fits) == 1
        drawn_options.add(fits.index(True))
    assert len(drawn_options) >= 7


def test_an_images_code_is_damaged_independently():
    """The result does not depend on the place in the batch or on other images."""
    damaged, gain = damage_code(None)
    reversed_codes, reversed_gain = damage_code(None, X[::-1], KEYS[::-1])
    np.testing.assert_array_equal(reversed_codes, damaged[::-1])
    np.testing.assert_array_equal(reversed_gain, gain[::-1])
