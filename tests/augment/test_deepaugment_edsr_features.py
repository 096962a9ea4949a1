"""Damaged activations of the super-resolution network: each option by its table."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jbias.augment import deepaugment_edsr

B = 60
KEYS = jax.random.split(jax.random.key(4), B)
X = jnp.asarray(np.random.default_rng(0).standard_normal((B, 6, 5, 64)), jnp.float32)
# Layer i adds 2^i: the sum says which of them were run.
LAYERS = [lambda x, i=i: x + 2**i for i in range(17)]
ALL, FIRST = 2**17 - 1, 2**5 - 1
INT = jnp.asarray(np.random.default_rng(1).integers(-9, 9, (B, 4, 3, 8)), jnp.float32)


@functools.cache
def damage_before_body(option, **flags):
    applied_layers = jax.jit(
        lambda x: deepaugment_edsr.before(x, KEYS, option, **flags)
    )
    return np.asarray(applied_layers(X))


def run_body(option, x=INT, **flags):
    applied_layers = jax.jit(
        lambda x: deepaugment_edsr.body(LAYERS, x, KEYS[: len(x)], option, **flags)
    )
    return np.asarray(applied_layers(x))


def sources(maps):
    """Return the channel of X that each channel equals, by image."""
    is_equal = (maps[..., None, :] == np.asarray(X)[..., :, None]).all((1, 2))
    assert (is_equal.sum(1) == 1).all()
    return is_equal.argmax(1)


def test_released_swaps_copy_the_second_channel_over_the_first():
    order = sources(damage_before_body("swap"))
    moved = (order != np.arange(64)).sum(1)
    assert moved.max() <= 5 and moved.mean() > 4
    # Copies: what was overwritten is lost.
    assert all(len(set(row)) < 64 for row, m in zip(order, moved) if m)


def test_true_swaps_permute():
    order = sources(damage_before_body("swap", true_swaps=True))
    assert (np.sort(order, 1) == np.arange(64)).all()
    moved = (order != np.arange(64)).sum(1)
    assert moved.max() <= 10 and moved.mean() > 8


@pytest.mark.parametrize(
    ("option", "factor", "share"), [("zero", 0, 0.05), ("negate", -1, 0.025)]
)
def test_elements_before_the_body(option, factor, share):
    damaged = damage_before_body(option)
    hit = damaged != np.asarray(X)
    np.testing.assert_array_equal(damaged[hit], factor * np.asarray(X)[hit])
    assert abs(hit.mean() - share) < 4 * (share * (1 - share) / hit.size) ** 0.5


def test_the_option_nothing_changes_nothing():
    np.testing.assert_array_equal(damage_before_body("nothing"), X)
    np.testing.assert_array_equal(run_body("nothing"), INT + ALL)


def test_body_negates_after_five_blocks():
    np.testing.assert_array_equal(run_body("negate"), -(INT + FIRST) + (ALL - FIRST))


@pytest.mark.slow
def test_body_rectifies_after_five_blocks():
    x = INT / 4 - FIRST  # What arrives there is negative or positive.
    relu = jax.nn.relu(x + FIRST) + (ALL - FIRST)
    gelu = jax.nn.gelu(x + FIRST, approximate=False) + (ALL - FIRST)
    rectified = run_body("rectify", x)
    is_relu = [np.array_equal(f, r) for f, r in zip(rectified, relu)]
    # The sum is large: float32 keeps two decimals.
    is_gelu = [np.allclose(f, g, atol=0.02) for f, g in zip(rectified, gelu)]
    assert (np.array(is_relu) | np.array(is_gelu)).all()
    assert abs(np.mean(is_relu) - 1 / 3) < 4 * (2 / 9 / B) ** 0.5


def test_body_flips_after_five_blocks():
    x = np.asarray(INT)
    rows = x[:, ::-1, :, ::-1] + ALL
    columns = x[:, :, ::-1, ::-1] + ALL
    flipped = run_body("flip")
    by_rows = [np.array_equal(f, r) for f, r in zip(flipped, rows)]
    by_columns = [np.array_equal(f, c) for f, c in zip(flipped, columns)]
    assert (np.array(by_rows) ^ np.array(by_columns)).all()
    assert abs(np.mean(by_rows) - 1 / 3) < 4 * (2 / 9 / B) ** 0.5


def applied_layers(maps):
    """Return the layers that were applied to each image, from their summands."""
    added = (maps - np.asarray(INT)).astype(int)
    assert (added == added[:, :1, :1, :1]).all()
    return [{i for i in range(17) if number >> i & 1} for number in added[:, 0, 0, 0]]


@pytest.mark.slow
def test_released_skips_apply_one_layer_to_the_body_s_input():
    layers = applied_layers(run_body("skip"))
    assert all(len(applied) == 1 for applied in layers)
    numbers = [next(iter(applied)) for applied in layers]
    assert set(numbers) <= {13, 14, 15, 16}
    last = (14 / 15) ** 3  # The final convolution, unless it is skipped.
    share = np.mean(np.array(numbers) == 16)
    assert abs(share - last) < 4 * (last * (1 - last) / B) ** 0.5
    assert share < 1


@pytest.mark.slow
def test_true_skips_leave_out_up_to_three_layers():
    for layers in applied_layers(run_body("skip", true_skips=True)):
        left_out = set(range(17)) - layers
        assert 1 <= len(left_out) <= 3 and min(left_out) >= 2


@pytest.mark.slow
def test_true_skips_change_no_other_option():
    for option in ("negate", "flip", "nothing"):
        np.testing.assert_array_equal(
            run_body(option, true_skips=True), run_body(option)
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "count"),
    [
        (deepaugment_edsr.draw_before, 4),
        (deepaugment_edsr.draw_inside, 5),
    ],
)
def test_options_are_uniform(draw, count):
    keys = jax.random.split(jax.random.key(9), 2000)
    counts = np.bincount(jax.vmap(draw)(keys), minlength=count)
    assert len(counts) == count
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("act", "options"),
    [
        (damage_before_body, deepaugment_edsr.BEFORE),
        (run_body, deepaugment_edsr.INSIDE),
    ],
)
def test_drawn_options_are_applied(act, options):
    x = (
        {} if act is damage_before_body else {"x": INT - FIRST}
    )  # Of both signs at the cut.
    drawn = act(None, **x)
    forced = [act(option, **x) for option in options]
    fits = np.array(
        [
            [(image == other[i]).all() for other in forced]
            for i, image in enumerate(drawn)
        ]
    )
    assert (fits.sum(1) == 1).all()
    assert fits.any(0).all()


@pytest.mark.slow
def test_images_are_damaged_independently():
    np.testing.assert_array_equal(run_body(None, INT[:3]), run_body(None)[:3])


@pytest.mark.slow
def test_a_body_of_four_blocks_is_cut_after_the_first():
    layers = LAYERS[:5]
    negated = deepaugment_edsr.body(layers, INT, KEYS, "negate")
    np.testing.assert_array_equal(negated, -(INT + 1) + (2**5 - 2))
    skipped = deepaugment_edsr.body(layers, INT, KEYS, "skip")
    summands = set(np.asarray(skipped - INT)[:, 0, 0, 0])
    assert summands <= {2.0, 4.0, 8.0, 16.0} and len(summands) > 1
