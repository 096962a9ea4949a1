"""The search for the arrangement of classes and values with the largest drop."""

import itertools

import numpy as np
import pytest

from jbias.data import shifts
from jbias.measures import attribute_reliance
from tests import cases


def drop_of(kind, groups, order, accuracy):
    """Return the drop of the given groups and order of values, computed from the tables."""
    train, test = shifts.tables(kind, 1.0, groups, len(order))
    return ((train - test) * accuracy[:, order]).sum() / len(groups)


def largest_drop(kind, accuracy):
    """Return the largest drop over all groups and orders."""
    k, m = accuracy.shape
    half = [0] * (k // 2) + [1] * (k // 2) + [-1] * (k % 2)
    return max(
        drop_of(kind, np.array(groups), np.array(order), accuracy)
        for groups in set(itertools.permutations(half))
        for order in itertools.permutations(range(m))
    )


@cases.each("kind", shifts.KINDS)
@cases.each("shape", [(2, 2), (4, 4), (3, 5), (5, 3)])
def test_finds_the_largest_drop(kind, shape):
    for seed in range(4):
        accuracy = np.random.default_rng(seed).random(shape)
        chosen = attribute_reliance.choose_arrangement(kind, accuracy)
        found_drop = (chosen.contrast() * accuracy).sum()
        assert found_drop == pytest.approx(largest_drop(kind, accuracy))


@pytest.mark.parametrize("kind", ["conditional", "joint"])
def test_finds_groups_among_many_classes(kind):
    """With 12 classes not all groups are tried; the planted groups are found."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        groups = rng.permutation(shifts.half_groups(12))
        order = rng.permutation(6)
        train, _ = shifts.tables(kind, 1.0, groups, 6)
        accuracy = 0.3 * rng.random((12, 6))
        accuracy[:, order] += 0.6 * (train > 0)
        chosen = attribute_reliance.choose_arrangement(kind, accuracy)
        planted_drop = drop_of(kind, groups, order, accuracy)
        assert (chosen.contrast() * accuracy).sum() >= planted_drop - 1e-12


@cases.each("kind", shifts.KINDS)
def test_the_order_of_classes_and_values_does_not_matter(kind):
    rng = np.random.default_rng(0)
    accuracy = rng.random((6, 8))
    rows, columns = rng.permutation(6), rng.permutation(8)
    original = attribute_reliance.choose_arrangement(kind, accuracy)
    permuted = attribute_reliance.choose_arrangement(kind, accuracy[rows][:, columns])
    expected = original.contrast()[rows][:, columns]
    assert permuted.contrast() == pytest.approx(expected)


@cases.each("kind", shifts.KINDS)
def test_tables_equal_those_of_the_shift(kind):
    """Columns are values; in the chosen order they have the published form."""
    accuracy = np.random.default_rng(1).random((4, 4))
    chosen = attribute_reliance.choose_arrangement(kind, accuracy)
    for table, expected in zip(
        chosen.tables(0.75), shifts.tables(kind, 0.75, chosen.groups, 4)
    ):
        assert table[:, chosen.order] == pytest.approx(expected)
        assert table.sum(1) == pytest.approx(1)


def test_missing_cells_are_refused():
    with pytest.raises(ValueError, match="^arrangement: accuracies must be finite"):
        attribute_reliance.choose_arrangement(
            "joint", np.array([[1.0, np.nan], [0.0, 1.0]])
        )
