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


def damaged(weights, option):
    """Return [(changed layers, damaged weights)] for all keys."""
    found = [deepaugment_cae.damage(weights, key, [option]) for key in KEYS]
    return [
        (
            sorted(
                {
                    name.rpartition(".")[0]
                    for name in weights
                    if not np.array_equal(new[name], weights[name])
                }
            ),
            new,
        )
        for new in found
    ]


def reached(found, places):
    """Return whether the layers that keys change are those of the table."""
    return {name for names, _ in found for name in names} == {LAYERS[i] for i in places}


def pairs(found, weights, kind="weight"):
    """Return (before, after) of the layer that each key changes."""
    for (layer,), new in found:
        yield weights[f"{layer}.{kind}"], new[f"{layer}.{kind}"]


def rows(before, after):
    """Return each row before and after, flattened."""
    return zip(before.reshape(len(before), -1), after.reshape(len(after), -1))


def test_0_reverses_rows_of_one_layer(weights):
    found = damaged(weights, 0)
    assert reached(found, range(11, 16))
    for kind in ("weight", "bias"):
        for before, after in pairs(found, weights, kind):
            np.testing.assert_array_equal(after, before[::-1])


def test_1_negates_rows_and_a_row_drawn_twice_is_restored(weights):
    found = damaged(weights, 1)
    assert reached(found, range(8, 14))
    counts = set()
    for (layer,), new in found:
        before, after = (w[f"{layer}.weight"] for w in (weights, new))
        negated = np.array([np.array_equal(b, -a) for b, a in rows(before, after)])
        kept = np.array([np.array_equal(b, a) for b, a in rows(before, after)])
        assert (negated ^ kept).all()
        counts.add(int(negated.sum()))
        bias = np.ones(len(weights[f"{layer}.bias"]))
        bias[: len(negated)][negated] = -1  # A transposed layer has fewer rows.
        np.testing.assert_array_equal(
            new[f"{layer}.bias"], bias * weights[f"{layer}.bias"]
        )
    # Twelve draws: what is drawn twice drops out two at a time.
    assert all(count % 2 == 0 for count in counts)
    assert max(counts) <= 12 and len(counts) > 1


def test_2_zeroes_rows(weights):
    found = damaged(weights, 2)
    assert reached(found, range(8, 14))
    for before, after in pairs(found, weights):
        gone = (after == 0).reshape(len(after), -1).all(1)
        assert 1 <= gone.sum() <= 25
        np.testing.assert_array_equal(after[~gone], before[~gone])


def test_3_replaces_rows_by_minus_gelu_once_a_draw(weights):
    found = damaged(weights, 3)
    assert reached(found, range(10, 14))
    times = set()
    for before, after in pairs(found, weights):
        steps = [before]
        for _ in range(6):
            steps.append(-deepaugment.gelu(steps[-1]))
        for row in range(len(before)):
            fits = [np.array_equal(after[row], step[row]) for step in steps]
            assert any(fits)
            times.add(fits.index(True))
    assert {0, 1, 2} <= times


def test_4_amplifies_two_layers(weights):
    found = damaged(weights, 4)
    assert reached(found, range(8, 14))
    numbers = set()
    for layers, new in found:
        numbers.add(len(layers))
        most = 9 if len(layers) == 2 else 81  # The same layer twice.
        for layer in layers:
            ratio = new[f"{layer}.weight"] / weights[f"{layer}.weight"]
            assert 1 - 1e-5 <= ratio.min() and ratio.max() < most
            np.testing.assert_array_equal(
                new[f"{layer}.bias"], weights[f"{layer}.bias"]
            )
    assert numbers == {1, 2}


def test_5_masks_with_zeros_or_signs(weights):
    found = damaged(weights, 5)
    assert reached(found, range(8, 14))
    kinds = set()
    for before, after in pairs(found, weights):
        ratio = after / before
        low = ratio.min()
        kinds.add(float(low))
        assert set(np.unique(ratio)) == {low, 1}
        assert abs((ratio == 1).mean() - 0.5) < 4 * 0.5 / ratio.size**0.5
    assert kinds == {0, -1}


def test_6_rotates_kernels(weights):
    found = damaged(weights, 6)
    assert reached(found, range(8, 14))
    turns = set()
    for before, after in pairs(found, weights):
        fits = [np.array_equal(after, np.rot90(before, k, (2, 3))) for k in (1, 2, 3)]
        assert sum(fits) == 1
        turns.add(fits.index(True) + 1)
    assert turns == {1, 2, 3}


def test_7_negates_a_fifth_of_the_rows_but_no_bias(weights):
    found = damaged(weights, 7)
    assert reached(found, range(8, 14))
    for (layer,), new in found:
        before, after = (w[f"{layer}.weight"] for w in (weights, new))
        negated = np.array([np.array_equal(b, -a) for b, a in rows(before, after)])
        assert 1 <= negated.sum() <= len(before) // 5
        np.testing.assert_array_equal(after[~negated], before[~negated])
        np.testing.assert_array_equal(new[f"{layer}.bias"], weights[f"{layer}.bias"])


@pytest.mark.slow
def test_options_are_uniform():
    keys = jax.random.split(jax.random.key(0), 800)
    drawn = [deepaugment_cae.draw(key) for key in keys]
    assert {len(options) for options in drawn} == {1}
    counts = np.bincount([option for (option,) in drawn], minlength=8)
    assert len(counts) == 8
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_damage_is_of_the_key_and_leaves_the_weights_alone(weights):
    before = {name: value.copy() for name, value in weights.items()}
    for key in KEYS[:16]:
        first, again = (deepaugment_cae.damage(weights, key) for _ in range(2))
        for name in weights:
            np.testing.assert_array_equal(first[name], again[name])
            assert first[name].dtype == np.float32
            assert first[name].shape == before[name].shape
    for name in weights:
        np.testing.assert_array_equal(weights[name], before[name])
