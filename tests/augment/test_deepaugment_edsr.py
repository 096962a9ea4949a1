"""Damaged weights of the super-resolution network: each option against its table."""

import jax
import numpy as np
import pytest
import scipy.stats

from jbias.augment import deepaugment, deepaugment_edsr
from jbias.models import edsr
from tests import cases

KEYS = jax.random.split(jax.random.key(3), 32)
THIRDS, SECONDS, FOURTHS, ANY = {0, 3, 6, 9}, {1, 4, 7}, {1, 5, 9}, set(range(15))
FEATURES = 8  # Narrow, for speed; all else as published.


def conv(block, number, kind="weight"):
    return f"body.{block}.body.{number}.{kind}"


@pytest.fixture(scope="module")
def weights():
    rng = np.random.default_rng(0)
    return {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in edsr.shapes(features=FEATURES).items()
    }


def changed_names(weights, new):
    return {n for n in weights if not np.array_equal(new[n], weights[n])}


def damage_all(weights, option, blocks, *suffixes):
    """Return [(block, new weight)] for all keys; check that one block changes."""
    damages = []
    for key in KEYS:
        new = deepaugment_edsr.damage(weights, key, [option])
        names = changed_names(weights, new)
        (block,) = {int(name.split(".")[1]) for name in names}
        assert names == {f"body.{block}.body.{suffix}" for suffix in suffixes}
        damages.append((block, new))
    assert {block for block, _ in damages} == blocks
    return damages


def test_0_reverses_the_filters_of_a_block(weights):
    suffixes = "0.weight", "0.bias", "2.weight", "2.bias"
    for block, new in damage_all(weights, 0, THIRDS, *suffixes):
        for suffix in suffixes:
            name = f"body.{block}.body.{suffix}"
            np.testing.assert_array_equal(new[name], weights[name][::-1])


@cases.each(("option", "blocks", "factor"), [(1, SECONDS, -1), (2, THIRDS, 0)])
def test_1_and_2_negate_or_zero_the_first_convolution(weights, option, blocks, factor):
    for block, new in damage_all(weights, option, blocks, "0.weight", "0.bias"):
        for kind in ("weight", "bias"):
            name = conv(block, 0, kind)
            np.testing.assert_array_equal(new[name], factor * weights[name])


def test_3_is_minus_gelu_of_both_weights(weights):
    for block, new in damage_all(weights, 3, THIRDS, "0.weight", "2.weight"):
        for number in (0, 2):
            name = conv(block, number)
            np.testing.assert_array_equal(new[name], -deepaugment.gelu(weights[name]))


@cases.each(
    ("option", "stencil"),
    [
        (4, [[0, 1, 0], [1, -4, 1], [0, 1, 0]]),
        (5, [[-1, -1, -1], [-1, 8, -1], [-1, -1, -1]]),
    ],
)
def test_4_and_5_multiply_by_a_laplacian(weights, option, stencil):
    for block, new in damage_all(weights, option, THIRDS, "0.weight"):
        name = conv(block, 0)
        np.testing.assert_array_equal(new[name], weights[name] * np.float32(stencil))


def test_6_amplifies_the_second_convolution(weights):
    most = []
    for block, new in damage_all(weights, 6, THIRDS, "2.weight"):
        ratio = new[conv(block, 2)] / weights[conv(block, 2)]
        assert ratio.min() >= 1 - 1e-5
        most.append(ratio.max())
    assert 4 < max(most) < 5 and min(most) < 2


def test_7_mirrors_the_first_and_negates_the_second(weights):
    for block, new in damage_all(weights, 7, THIRDS, "0.weight", "2.weight"):
        mirrored = weights[conv(block, 0)][..., ::-1]
        np.testing.assert_array_equal(new[conv(block, 0)], mirrored)
        np.testing.assert_array_equal(new[conv(block, 2)], -weights[conv(block, 2)])


def test_8_shifts_each_input_one_way_for_all_outputs(weights):
    lone = dict(weights)  # Only input channel 3 has weights: its shift is seen.
    for block in FOURTHS:
        lone[conv(block, 0)] = np.zeros_like(weights[conv(block, 0)])
        lone[conv(block, 0)][:, 3] = weights[conv(block, 0)][:, 3]
    signs = set()
    for block, new in damage_all(lone, 8, FOURTHS, "0.weight"):
        original, damaged_weight = lone[conv(block, 0)], new[conv(block, 0)]
        np.testing.assert_array_equal(
            damaged_weight, damaged_weight[:, :1] * np.ones_like(damaged_weight)
        )
        padded = np.pad(original[:, 3], ((0, 0), (1, 1), (1, 1)))
        matching_shifts = [
            (sign, row, column)
            for sign in (1, -1)
            for row in range(3)
            for column in range(3)
            if np.array_equal(
                sign * padded[:, row : row + 3, column : column + 3],
                damaged_weight[:, 0],
            )
        ]
        assert len(matching_shifts) == 1
        signs.add(matching_shifts[0])
    assert len(signs) > 5


def identity(weights, number):
    """Return kernels whose correlation is the mirrored bank."""
    kernel = np.zeros((FEATURES, FEATURES, 3, 3), np.float32)
    kernel[np.arange(FEATURES), np.arange(FEATURES), 1, 1] = 1
    return weights | {conv(block, number): kernel for block in range(16)}


def test_9_blurs_with_a_separate_bank_for_each_pair(weights):
    low, high = [], []
    for block, new in damage_all(identity(weights, 0), 9, THIRDS, "0.weight"):
        bank = new[conv(block, 0)]
        assert -1 / 6 - 1e-6 <= bank.min() and bank.max() < 1 / 6
        assert len(np.unique(bank)) > 0.99 * bank.size
        low.append(bank.min()), high.append(bank.max())
    assert np.ptp(low) < 0.01 < np.ptp(high)  # One factor for the whole bank.


def test_10_smears_by_weights_that_sum_to_one(weights):
    for block, new in damage_all(identity(weights, 2), 10, FOURTHS, "2.weight"):
        bank = new[conv(block, 2)].reshape(-1, 9)
        assert bank.min() >= 0
        np.testing.assert_allclose(bank.sum(1), 1, rtol=1e-5)
        # Mean of sum p^2 of Dirichlet(0.1 x 9): (a + 1) / (9 a + 1).
        assert abs((bank**2).sum(1).mean() - 1.1 / 1.9) < 0.15
        assert len(np.unique(bank.argmax(1))) == 9


def test_11_adds_noise(weights):
    for block, new in damage_all(
        weights, 11, ANY - _undrawn_blocks(weights, 11), "2.weight"
    ):
        noise = new[conv(block, 2)] - weights[conv(block, 2)]
        assert np.abs(noise).max() <= 0.5 + 1e-6
        assert abs(noise.std() - 12**-0.5) < 0.03


def _undrawn_blocks(weights, option):
    """Return the blocks of 0..14 that no key draws, which are few."""
    drawn = set()
    for key in KEYS:
        names = changed_names(weights, deepaugment_edsr.damage(weights, key, [option]))
        drawn |= {int(name.split(".")[1]) for name in names}
    assert drawn <= ANY and len(drawn) >= 11
    return ANY - drawn


def damage_five_times(weights, option, numbers):
    """Return (name, before, after) of the changes of five draws; check their names."""
    _undrawn_blocks(weights, option)
    for key in KEYS:
        new = deepaugment_edsr.damage(weights, key, [option])
        names = changed_names(weights, new)
        assert names <= {conv(b, number) for b in ANY for number in numbers}
        assert len(names) <= 5
        yield from ((name, weights[name], new[name]) for name in names)


def test_12_rotates_kernels_or_channels(weights):
    rotations = set()
    for _, original, damaged_weight in damage_five_times(weights, 12, (0, 2)):
        assert np.array_equal(np.sort(original, None), np.sort(damaged_weight, None))
        for axes in ((2, 3), (0, 1)):
            for k in (1, 2, 3):
                if np.array_equal(damaged_weight, np.rot90(original, k, axes)):
                    rotations.add((axes, k))
    assert len(rotations) == 6


@cases.each(("option", "low"), [(13, -1), (14, 0)])
def test_13_and_14_mask_with_signs_or_zeros(weights, option, low):
    shares = []
    for _, original, damaged_weight in damage_five_times(weights, option, (0,)):
        ratio = damaged_weight / original
        assert set(np.unique(ratio)) <= {low, 1}
        shares.append((ratio == 1).mean())
    assert abs(np.median(shares) - 0.5) < 0.02


def test_15_negates_whole_filters(weights):
    counts = []
    for _, original, damaged_weight in damage_five_times(weights, 15, (0,)):
        rows = zip(original.reshape(FEATURES, -1), damaged_weight.reshape(FEATURES, -1))
        signs = [1 if np.array_equal(b, a) else -1 for b, a in rows]
        np.testing.assert_array_equal(
            damaged_weight, original * np.float32(signs)[:, None, None, None]
        )
        counts.append(signs.count(-1))
    # Four draws of eight, as 32 of 64: a share of 1 - (7/8)^4 is drawn.
    assert max(counts) <= 8 and abs(np.mean(counts) - 3.3) < 0.7


def test_16_keeps_the_largest_of_each_kernel(weights):
    for _, original, damaged_weight in damage_five_times(weights, 16, (0, 2)):
        assert ((damaged_weight != 0).sum((2, 3)) <= 1).all()
        largest, damaged_sum = original.max((2, 3)), damaged_weight.sum((2, 3))
        # A second draw finds zeros, which are larger than a negative entry.
        assert ((damaged_sum == largest) | ((damaged_sum == 0) & (largest < 0))).all()


@pytest.mark.slow
def test_three_options_are_drawn_uniformly_with_replacement():
    keys = jax.random.split(jax.random.key(0), 600)
    drawn = [deepaugment_edsr.draw(key) for key in keys]
    assert {len(options) for options in drawn} == {3}
    counts = np.bincount(np.concatenate(drawn), minlength=17)
    assert len(counts) == 17
    assert scipy.stats.chisquare(counts).pvalue > 1e-3
    repeats = np.mean([len(set(options)) < 3 for options in drawn])
    assert abs(repeats - (1 - 16 * 15 / 17**2)) < 0.05


def test_options_act_one_after_the_other(weights):
    """Weights that are zeroed and then noisy equal the noise."""
    for key in KEYS:
        new = deepaugment_edsr.damage(weights, key, [2, 2, 1])
        zeroed = {b for b in THIRDS if not new[conv(b, 0)].any()}
        negated = {
            b for b in SECONDS if np.array_equal(new[conv(b, 0)], -weights[conv(b, 0)])
        }
        assert 1 <= len(zeroed) <= 2 and len(negated) == 1


def test_damage_depends_on_the_key_and_does_not_change_its_input(weights):
    copies = {name: value.copy() for name, value in weights.items()}
    num_changed = 0
    for key in KEYS:
        first, again = (deepaugment_edsr.damage(weights, key) for _ in range(2))
        assert not changed_names(first, again)
        num_changed += bool(changed_names(weights, first))
        for name, value in first.items():
            assert value.dtype == np.float32 and value.shape == copies[name].shape
    assert num_changed == len(KEYS)
    assert not changed_names(copies, weights)


@cases.each("option", range(17))
def test_a_network_of_four_blocks_can_be_damaged_too(option):
    rng = np.random.default_rng(0)
    shapes = edsr.shapes(features=4, blocks=4, scale=2)
    small = {k: rng.standard_normal(s).astype(np.float32) for k, s in shapes.items()}
    for key in KEYS[:8]:
        names = changed_names(small, deepaugment_edsr.damage(small, key, [option]))
        assert names and all(name.startswith("body.") for name in names)
