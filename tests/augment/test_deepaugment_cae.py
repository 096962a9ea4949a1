"""Damaged weights of DeepAugment's autoencoder: each option against its table."""

import jax
import numpy as np
import pytest
import scipy.stats

from jbias.augment import deepaugment, deepaugment_cae
from jbias.models import cae

KEYS = jax.random.split(jax.random.key(3), 40)
# Numbered as in the table: 8 is the encoder's last, 9 to 15 the decoder's first.
LAYERS = dict(
    enumerate(
        (
            "e_conv_3.0",
            "d_up_conv_1.0",
            "d_up_conv_1.3",
            "d_block_1.1",
            "d_block_1.4",
            "d_block_2.1",
            "d_block_2.4",
            "d_block_3.1",
        ),
        start=8,
    )
)


@pytest.fixture(scope="module")
def weights():
    rng = np.random.default_rng(0)
    return {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in cae.shapes().items()
    }


def damage_all(weights, option):
    """Return [(changed layers, damaged weights)] for all keys."""

    def changed_layers(new):
        return sorted(
            {
                name.rpartition(".")[0]
                for name in weights
                if not np.array_equal(new[name], weights[name])
            }
        )

    all_damaged = [deepaugment_cae.damage(weights, key, [option]) for key in KEYS]
    return [(changed_layers(new), new) for new in all_damaged]


def changes_layers(damages, places):
    """Return True if the layers that all keys change are those of the table."""
    changed = {name for names, _ in damages for name in names}
    return changed == {LAYERS[i] for i in places}


def pairs(damages, weights, kind="weight"):
    """Yield (original, damaged) weights of the layer that each key changes."""
    for (layer,), new in damages:
        yield weights[f"{layer}.{kind}"], new[f"{layer}.{kind}"]


def rows(original, damage_all):
    """Return pairs of the original and the damaged row, flattened."""
    return zip(
        original.reshape(len(original), -1), damage_all.reshape(len(damage_all), -1)
    )


def test_0_reverses_rows_of_one_layer(weights):
    damages = damage_all(weights, 0)
    assert changes_layers(damages, range(11, 16))
    for kind in ("weight", "bias"):
        for original, damaged_weight in pairs(damages, weights, kind):
            np.testing.assert_array_equal(damaged_weight, original[::-1])


def test_1_negates_rows_and_a_row_drawn_twice_is_restored(weights):
    damages = damage_all(weights, 1)
    assert changes_layers(damages, range(8, 14))
    counts = set()
    for (layer,), new in damages:
        original, damaged_weight = weights[f"{layer}.weight"], new[f"{layer}.weight"]
        negated = np.array(
            [np.array_equal(b, -a) for b, a in rows(original, damaged_weight)]
        )
        unchanged = np.array(
            [np.array_equal(b, a) for b, a in rows(original, damaged_weight)]
        )
        assert (negated ^ unchanged).all()
        counts.add(int(negated.sum()))
        bias = np.ones(len(weights[f"{layer}.bias"]))
        bias[: len(negated)][negated] = -1  # A transposed layer has fewer rows.
        np.testing.assert_array_equal(
            new[f"{layer}.bias"], bias * weights[f"{layer}.bias"]
        )
    # Twelve draws: a row drawn twice is restored.
    assert all(count % 2 == 0 for count in counts)
    assert max(counts) <= 12 and len(counts) > 1


def test_2_zeroes_rows(weights):
    damages = damage_all(weights, 2)
    assert changes_layers(damages, range(8, 14))
    for original, damaged_weight in pairs(damages, weights):
        is_zero = (damaged_weight == 0).reshape(len(damaged_weight), -1).all(1)
        assert 1 <= is_zero.sum() <= 25
        np.testing.assert_array_equal(damaged_weight[~is_zero], original[~is_zero])


def test_3_replaces_rows_by_minus_gelu_once_a_draw(weights):
    damages = damage_all(weights, 3)
    assert changes_layers(damages, range(10, 14))
    num_draws = set()
    for original, damaged_weight in pairs(damages, weights):
        steps = [original]
        for _ in range(6):
            steps.append(-deepaugment.gelu(steps[-1]))
        for row in range(len(original)):
            fits = [np.array_equal(damaged_weight[row], step[row]) for step in steps]
            assert any(fits)
            num_draws.add(fits.index(True))
    assert {0, 1, 2} <= num_draws


def test_4_amplifies_two_layers(weights):
    damages = damage_all(weights, 4)
    assert changes_layers(damages, range(8, 14))
    num_layers = set()
    for layers, new in damages:
        num_layers.add(len(layers))
        bound = 9 if len(layers) == 2 else 81  # The same layer twice.
        for layer in layers:
            ratio = new[f"{layer}.weight"] / weights[f"{layer}.weight"]
            assert 1 - 1e-5 <= ratio.min() and ratio.max() < bound
            np.testing.assert_array_equal(
                new[f"{layer}.bias"], weights[f"{layer}.bias"]
            )
    assert num_layers == {1, 2}


def test_5_masks_with_zeros_or_signs(weights):
    damages = damage_all(weights, 5)
    assert changes_layers(damages, range(8, 14))
    kinds = set()
    for original, damaged_weight in pairs(damages, weights):
        ratio = damaged_weight / original
        low = ratio.min()
        kinds.add(float(low))
        assert set(np.unique(ratio)) == {low, 1}
        assert abs((ratio == 1).mean() - 0.5) < 4 * 0.5 / ratio.size**0.5
    assert kinds == {0, -1}


def test_6_rotates_kernels(weights):
    damages = damage_all(weights, 6)
    assert changes_layers(damages, range(8, 14))
    turns = set()
    for original, damaged_weight in pairs(damages, weights):
        fits = [
            np.array_equal(damaged_weight, np.rot90(original, k, (2, 3)))
            for k in (1, 2, 3)
        ]
        assert sum(fits) == 1
        turns.add(fits.index(True) + 1)
    assert turns == {1, 2, 3}


def test_7_negates_a_fifth_of_the_rows_but_no_bias(weights):
    damages = damage_all(weights, 7)
    assert changes_layers(damages, range(8, 14))
    for (layer,), new in damages:
        original, damaged_weight = weights[f"{layer}.weight"], new[f"{layer}.weight"]
        negated = np.array(
            [np.array_equal(b, -a) for b, a in rows(original, damaged_weight)]
        )
        assert 1 <= negated.sum() <= len(original) // 5
        np.testing.assert_array_equal(damaged_weight[~negated], original[~negated])
        np.testing.assert_array_equal(new[f"{layer}.bias"], weights[f"{layer}.bias"])


@pytest.mark.slow
def test_options_are_uniform():
    keys = jax.random.split(jax.random.key(0), 800)
    drawn = [deepaugment_cae.draw(key) for key in keys]
    assert {len(options) for options in drawn} == {1}
    counts = np.bincount([option for (option,) in drawn], minlength=8)
    assert len(counts) == 8
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_damage_depends_on_the_key_and_does_not_change_its_input(weights):
    copies = {name: value.copy() for name, value in weights.items()}
    for key in KEYS[:16]:
        first, again = (deepaugment_cae.damage(weights, key) for _ in range(2))
        for name in weights:
            np.testing.assert_array_equal(first[name], again[name])
            assert first[name].dtype == np.float32
            assert first[name].shape == copies[name].shape
    for name in weights:
        np.testing.assert_array_equal(weights[name], copies[name])
