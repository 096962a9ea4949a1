"""Tiles in random order: nothing of an image is lost but where it was."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias.evals import grid_shuffle, probe
from tests import cases

RANDOM = np.random.default_rng(0)


def shown(made, condition, image, index):
    rows = probe.Rows(jnp.asarray(image), jnp.asarray(index), None, None)
    show = jax.jit(made.show, static_argnums=2)
    return np.asarray(show(rows, made.conditions[condition], made.static(condition)))


def tiles(image, g):
    """The tiles by plain slices."""
    h, w = image.shape[0] // g, image.shape[1] // g
    return [
        image[i * h : (i + 1) * h, j * w : (j + 1) * w].tobytes()
        for i in range(g)
        for j in range(g)
    ]


@cases.each("g", [2, 4, 8])
def test_tiles_stay_what_they_are(g):
    """Tiles and pixels do not change, only their order and place."""
    image = RANDOM.random((6, 32, 24, 3), np.float32)
    got = shown(grid_shuffle.make(grids=(g,)), f"{g}x{g}", image, np.arange(6))
    for one, other in zip(image, got):
        assert collections.Counter(tiles(one, g)) == collections.Counter(
            tiles(other, g)
        )
    assert not np.array_equal(image, got)


def test_the_image_as_it_is_and_one_tile():
    image = RANDOM.random((2, 9, 9, 3), np.float32)
    np.testing.assert_array_equal(
        shown(grid_shuffle.make(), "", image, np.arange(2)), image
    )
    one = grid_shuffle.shuffle(jnp.asarray(image[0]), jax.random.key(0), g=1)
    np.testing.assert_array_equal(one, image[0])


def test_what_no_tile_holds_is_black():
    image = RANDOM.random((1, 28, 29, 3), np.float32) + 0.1
    got = shown(grid_shuffle.make(grids=(8,)), "8x8", image, [0])[0]
    assert not got[24:].any() and not got[:, 24:].any()
    inside = image[0, :24, :24]
    assert collections.Counter(tiles(got[:24, :24], 8)) == collections.Counter(
        tiles(inside, 8)
    )


def test_all_orders_are_as_likely_and_each_image_has_its_own():
    """The identity, too: of four tiles one in 24."""
    image = np.arange(4, dtype=np.float32).reshape(1, 2, 2, 1)
    index = np.arange(4800)
    made = grid_shuffle.make(grids=(2,))
    got = shown(made, "2x2", np.repeat(image, len(index), 0), index).reshape(-1, 4)
    orders, counts = np.unique(got, axis=0, return_counts=True)
    assert len(orders) == 24 and orders[0].tolist() == [0, 1, 2, 3]
    # Chi squared of 23 degrees: 49.7 is passed once in a thousand.
    assert ((counts - 200) ** 2 / 200).sum() < 49.7
    few = shown(made, "2x2", np.repeat(image, 3, 0), index[[7, 4000, 7]]).reshape(-1, 4)
    np.testing.assert_array_equal(few, got[[7, 4000, 7]])


@cases.each("grids", [(), (1,), (2, 2), (2.0,)])
def test_grids_that_are_none_are_refused(grids):
    with pytest.raises(ValueError, match="grids must be whole"):
        grid_shuffle.make(grids=grids)


def test_tiles_smaller_than_a_pixel_are_refused():
    with pytest.raises(ValueError, match="8 by 8 tiles"):
        grid_shuffle.shuffle(jnp.zeros((7, 9, 3)), jax.random.key(0), g=8)
