"""Chosen shifts: realised tables equal the requested ones, no image is used twice, and
refusals.
"""

import itertools
import time

import numpy as np
import pytest

from jbias.data import shifts
from tests import cases

GRID = [
    (name, k, m)
    for name, k, m in itertools.product(shifts.LEVELS, (2, 3, 5, 10), (2, 3, 4, 7))
]


def drawn(classes, values, n=6000, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, classes, n), rng.integers(0, values, n)


def pair(name, classes, values):
    return shifts.tables(*shifts.LEVELS[name], shifts.half_groups(classes), values)


@pytest.mark.slow
@cases.each(("name", "classes", "values"), GRID)
def test_realised_tables_equal_the_requested(name, classes, values):
    y, attribute = drawn(classes, values)
    train, test = pair(name, classes, values)
    sizes = dict(train=811, valid=97, id_test=101, ood_test=203)
    shift = shifts.make_shift(y, attribute, train, test, sizes, seed=3)
    for part, table in (
        ("train", train),
        ("valid", train),
        ("id_test", train),
        ("ood_test", test),
    ):
        index = getattr(shift, part)
        counted = shift.realised[part]
        recounted = np.zeros((classes, values), int)
        np.add.at(recounted, (y[index], attribute[index]), 1)
        np.testing.assert_array_equal(counted, recounted)
        assert counted.sum() == sizes[part] == len(index)
        of_class = counted.sum(1)
        assert of_class.max() - of_class.min() <= 1
        assert np.abs(counted - of_class[:, None] * table).max() < 1
    used_images = np.concatenate(
        [shift.train, shift.valid, shift.id_test, shift.ood_test]
    )
    assert len(np.unique(used_images)) == len(used_images)


@cases.each(("name", "classes", "values"), GRID)
def test_laws_of_each_kind_of_shift(name, classes, values):
    kind, share = shifts.LEVELS[name]
    train, test = pair(name, classes, values)
    for table in (train, test):
        np.testing.assert_allclose(table.sum(1), 1)
        assert table.min() >= 0
    np.testing.assert_allclose(train + test, 2 / values)
    train_values, test_values = train.mean(0), test.mean(0)
    if share == 0.5:
        np.testing.assert_allclose(train, test)
    if kind == "conditional":
        np.testing.assert_allclose(train_values, test_values, atol=1e-12)
        assert share == 0.5 or not np.allclose(train, test)
    if kind == "marginal":  # P(class | value) is even: no row differs from another.
        for table in (train, test):
            np.testing.assert_allclose(table, np.tile(table[0], (classes, 1)))
    if kind == "joint" and share > 0.5:
        assert np.abs(train_values - test_values).max() > 1e-3
        assert not np.allclose(train[0], train[-1])


def test_extremes_are_the_published_colours():
    """The extreme of four colours and ten digits is (1/2, 1/2, 0, 0) in group 0, and so
    on.
    """
    groups = shifts.half_groups(10)
    for kind, second in (
        ("marginal", (0.5, 0.5, 0, 0)),
        ("conditional", (0, 0, 0.5, 0.5)),
        ("joint", (0, 0.5, 0.5, 0)),
    ):
        train, test = shifts.tables(kind, 1.0, groups, 4)
        np.testing.assert_allclose(train[:5], np.tile((0.5, 0.5, 0, 0), (5, 1)))
        np.testing.assert_allclose(train[5:], np.tile(second, (5, 1)))
        np.testing.assert_allclose(test, 0.5 - train)


def test_levels_are_monotone_and_end_in_the_extreme():
    for kind in shifts.KINDS:
        shares = [level.share for level in shifts.LEVELS.values() if level.kind == kind]
        assert shares == sorted(set(shares))
        assert shares[0] == 0.5
        assert shares[-1] == 1
    ends = {
        level.kind: name for name, level in shifts.LEVELS.items() if level.share == 1
    }
    assert ends == {"marginal": "M4", "conditional": "C6", "joint": "J4"}


def part_sizes(size):
    """Return the sizes of the parts as the option `shift` does, with rounding."""
    size_held_out = round(0.1 * size)
    return dict(
        train=size - 2 * size_held_out,
        valid=size_held_out,
        id_test=size_held_out,
        ood_test=size_held_out,
    )


@cases.each(
    "seed",
    [*range(12), *(pytest.param(n, marks=pytest.mark.slow) for n in range(12, 60))],
    quick=(
        "11",
        "3",
        "6",
    ),
)
def test_the_largest_size_is_feasible_and_none_larger_is(seed):
    """All sizes are tried on tables of uneven counts."""
    rng = np.random.default_rng(seed)
    classes, values = rng.integers(2, 5), rng.integers(2, 5)
    available = rng.integers(3, 60, (classes, values))
    y, attribute = np.repeat(
        np.indices(available.shape).reshape(2, -1), available.ravel(), 1
    )
    name = [*shifts.LEVELS][seed % len(shifts.LEVELS)]
    train, test = pair(name, classes, values)

    def fits(size):
        try:
            shifts.make_shift(y, attribute, train, test, part_sizes(size), seed)
        except shifts.Infeasible:
            return False
        return True

    most = shifts.largest_feasible_size(available, [(train, test)], part_sizes)
    assert most == max(size for size in range(len(y) + 1) if fits(size))


def test_a_size_for_all_levels_is_feasible_in_each():
    available = np.array(
        [[48, 140], [21, 191]]
    )  # Rounded apart, 44 would be one too many.
    y, attribute = np.repeat(np.indices((2, 2)).reshape(2, -1), available.ravel(), 1)
    pairs = [pair(name, 2, 2) for name in shifts.LEVELS]
    most = shifts.largest_feasible_size(available, pairs, part_sizes)
    for train, test in pairs:
        shifts.make_shift(y, attribute, train, test, part_sizes(most), seed=0)
    assert most >= 40


def test_a_hundred_classes_of_forty_values_are_fast():
    available = np.full((100, 40), 50)
    began = time.process_time()
    pairs = [pair(name, 100, 40) for name in shifts.LEVELS]
    assert shifts.largest_feasible_size(available, pairs, part_sizes) == 100 * 20 * 50
    assert time.process_time() - began < 20


@cases.each("seed", range(20))
def test_remainders_are_the_largest(seed):
    rng = np.random.default_rng(seed)
    shares, size = rng.dirichlet(np.ones(7), 3), rng.integers(0, 90, 3)
    for row, n, rounded in zip(
        shares, size, shifts.round_to_total(shares, size), strict=True
    ):
        assert rounded.sum() == n
        remainder = row * n - np.floor(row * n)
        rounded_up = rounded - np.floor(row * n)
        assert set(rounded_up) <= {0, 1}
        assert remainder[rounded_up == 1].min(initial=1) >= remainder[
            rounded_up == 0
        ].max(initial=0)


def test_an_error_counts_the_missing_images():
    y, attribute = np.repeat([0, 1], 10), np.tile([0, 1], 10)
    train, test = pair("C6", 2, 2)
    with pytest.raises(
        ValueError, match="missing are 2 of class 0 with value 0, 2 of"
    ) as e:
        shifts.make_shift(y, attribute, train, test, dict(train=14), seed=0)
    assert "largest feasible size is 10, as train 10" in str(e.value)


def test_the_same_seed_selects_the_same_images_and_levels_are_nested():
    y, attribute = drawn(4, 2)
    sizes = dict(train=400, id_test=40, ood_test=40)

    def make(name, seed):
        train, test = pair(name, 4, 2)
        return shifts.make_shift(y, attribute, train, test, sizes, seed)

    extreme = make("C6", 0)
    np.testing.assert_array_equal(make("C6", 0).train, extreme.train)
    assert not np.array_equal(make("C6", 1).train, extreme.train)
    common = np.intersect1d(make("C5", 0).train, extreme.train)
    assert len(common) == 380  # 95 % of one are all but the strays of the other.


@cases.each(
    ("change", "message"),
    [
        (dict(train=np.full((2, 2), 0.6)), "rows of the train table must be probabil"),
        (dict(test=np.full((2, 3), 1 / 3)), "both tables must be"),
        (dict(y=np.array([0, 1, 2, 1])), "y must be from 0 to 1"),
        (dict(y=np.array([0.0, 1, 1, 0])), "y must be whole numbers"),
        (dict(sizes=dict(train=-1)), "sizes must be whole numbers"),
        (dict(sizes=dict(ood_test=5.0)), "sizes must be whole numbers"),
        (dict(seed=-1), "seed must be 0 or more"),
        (dict(sizes=dict(tests=1)), "sizes must be whole numbers of train, valid"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    arguments = dict(
        y=np.array([0, 1, 0, 1]),
        attribute=np.array([0, 0, 1, 1]),
        train=np.full((2, 2), 0.5),
        test=np.full((2, 2), 0.5),
        sizes=dict(train=2),
        seed=0,
    )
    with pytest.raises(ValueError, match=message) as error:
        shifts.make_shift(**{**arguments, **change})
    assert "\n" not in str(error.value)


@cases.each(
    ("arguments", "message"),
    [
        (("sideways", 1.0, shifts.half_groups(2), 2), "kind must be one of marginal"),
        (("marginal", 1.5, shifts.half_groups(2), 2), "share must be in"),
        (("marginal", 1.0, shifts.half_groups(2), 1), "2 values or more"),
        (("marginal", 1.0, np.array([0, 0, 1]), 2), "two of equally many classes"),
    ],
)
def test_impossible_tables_are_refused(arguments, message):
    kind, share, groups, values = arguments
    with pytest.raises(ValueError, match=message):
        shifts.tables(kind, share, groups, values)
