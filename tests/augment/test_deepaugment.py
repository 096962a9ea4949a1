"""DeepAugment's order of images, and the images of each damaged network."""

import jax
import numpy as np
import pytest

from jbias.augment import deepaugment
from tests import cases

KEY = jax.random.key(5)


def test_every_image_comes_once():
    runs = deepaugment.draw_order(KEY, 500).index_by_network
    assert sorted(np.concatenate(runs)) == list(range(500))
    assert all(len(run) for run in runs)


def test_weights_are_renewed_before_one_image_in_twenty():
    n = 20_000
    runs = len(deepaugment.draw_order(KEY, n).index_by_network)
    assert abs(runs - 0.05 * n) < 4 * (n * 0.05 * 0.95) ** 0.5


def test_runs_begin_where_weights_are_renewed():
    order = deepaugment.draw_order(KEY, 300)
    begins = {int(run[0]) for run in order.index_by_network}
    assert begins == set(order.index[order.renewed].tolist())
    assert order.renewed[0]


@pytest.mark.parametrize(("renewal", "runs"), [(0, 1), (1, 50)])
def test_renewal_rates_of_0_and_1(renewal, runs):
    assert (
        len(deepaugment.draw_order(KEY, 50, renewal=renewal).index_by_network) == runs
    )


def test_images_of_a_run_are_not_adjacent_in_the_set():
    """Images of a damaged network are not of one class in a set sorted by class."""
    order = deepaugment.draw_order(KEY, 5000)
    gaps = np.abs(np.diff(order.index))
    # Two uniform places are a third of the set apart.
    assert abs(gaps.mean() - 5000 / 3) < 60


def test_more_images_do_not_reorder_the_first_images():
    small, large = deepaugment.draw_order(KEY, 400), deepaugment.draw_order(KEY, 600)
    in_small = large.index < 400
    np.testing.assert_array_equal(large.index[in_small], small.index)
    np.testing.assert_array_equal(large.renewed[in_small][1:], small.renewed[1:])


def test_the_order_depends_on_the_key():
    first, again = (deepaugment.draw_order(KEY, 100) for _ in range(2))
    other = deepaugment.draw_order(jax.random.key(6), 100)
    np.testing.assert_array_equal(first.index, again.index)
    assert not np.array_equal(first.index, other.index)


@cases.each(("have", "expected"), [(128, 25), (64, 12), (32, 6), (16, 3), (2, 1)])
def test_a_narrow_layer_loses_the_same_share_of_rows(have, expected):
    assert deepaugment.scale_count(25, have, 128) == expected
