"""Grid shuffle: tiles keep their pixels and get a random order."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias.stimuli import grid_shuffle, shown
from tests import cases

RANDOM = np.random.default_rng(0)


def show_stimuli(shuffle_probe, condition, image, index):
    rows = shown.Rows(jnp.asarray(image), jnp.asarray(index), None, None)
    show = jax.jit(shuffle_probe.show, static_argnums=2)
    return np.asarray(
        show(rows, shuffle_probe.conditions[condition], shuffle_probe.static(condition))
    )


def split_tiles(image, g):
    """Return the bytes of the tiles of a g x g grid."""
    h, w = image.shape[0] // g, image.shape[1] // g
    return [
        image[i * h : (i + 1) * h, j * w : (j + 1) * w].tobytes()
        for i in range(g)
        for j in range(g)
    ]


@cases.each("g", [2, 4, 8])
def test_shuffling_keeps_the_tiles(g):
    """Tiles and pixels do not change, only their order and place."""
    image = RANDOM.random((6, 32, 24, 3), np.float32)
    stimuli = show_stimuli(
        grid_shuffle.make(grids=(g,)), f"{g}x{g}", image, np.arange(6)
    )
    for original, shuffled in zip(image, stimuli):
        assert collections.Counter(split_tiles(original, g)) == collections.Counter(
            split_tiles(shuffled, g)
        )
    assert not np.array_equal(image, stimuli)


def test_one_tile_and_the_plain_condition_do_not_change_the_image():
    image = RANDOM.random((2, 9, 9, 3), np.float32)
    np.testing.assert_array_equal(
        show_stimuli(grid_shuffle.make(), "", image, np.arange(2)), image
    )
    one_tile = grid_shuffle.shuffle(jnp.asarray(image[0]), jax.random.key(0), g=1)
    np.testing.assert_array_equal(one_tile, image[0])


def test_pixels_beyond_the_tiles_are_black():
    image = RANDOM.random((1, 28, 29, 3), np.float32) + 0.1
    stimulus = show_stimuli(grid_shuffle.make(grids=(8,)), "8x8", image, [0])[0]
    assert not stimulus[24:].any() and not stimulus[:, 24:].any()
    inside = image[0, :24, :24]
    assert collections.Counter(
        split_tiles(stimulus[:24, :24], 8)
    ) == collections.Counter(split_tiles(inside, 8))


def test_all_tile_orders_are_equally_likely_and_depend_on_the_image():
    """The identity is one of the 24 orders of four tiles."""
    image = np.arange(4, dtype=np.float32).reshape(1, 2, 2, 1)
    index = np.arange(4800)
    shuffle_probe = grid_shuffle.make(grids=(2,))
    all_orders = show_stimuli(
        shuffle_probe, "2x2", np.repeat(image, len(index), 0), index
    ).reshape(-1, 4)
    orders, counts = np.unique(all_orders, axis=0, return_counts=True)
    assert len(orders) == 24 and orders[0].tolist() == [0, 1, 2, 3]
    # Chi squared of 23 degrees: 49.7 is passed once in a thousand.
    assert ((counts - 200) ** 2 / 200).sum() < 49.7
    orders_again = show_stimuli(
        shuffle_probe, "2x2", np.repeat(image, 3, 0), index[[7, 4000, 7]]
    ).reshape(-1, 4)
    np.testing.assert_array_equal(orders_again, all_orders[[7, 4000, 7]])


@cases.each("grids", [(), (1,), (2, 2), (2.0,)])
def test_invalid_grids_are_refused(grids):
    with pytest.raises(ValueError, match="grids must be whole"):
        grid_shuffle.make(grids=grids)


def test_tiles_smaller_than_a_pixel_are_refused():
    with pytest.raises(ValueError, match="8 by 8 tiles"):
        grid_shuffle.shuffle(jnp.zeros((7, 9, 3)), jax.random.key(0), g=8)
